"""A layer's tensors from any checkpoint in one form: matrices (out, in); queries, keys and values in one."""

from __future__ import annotations

import numpy as np

from repcap_jax.checkpoints import Checkpoint, CheckpointError
from repcap_jax.models.names import Names
from repcap_jax.models.spec import DecoderSpec

_MATRIX_LEAVES = ("weight", "kernel", "embedding")
_NORM_LEAVES = ("weight", "scale")


class LayerTensors:
    """The tensors of one checkpoint, asked for by the stems of a family's names.

    Args:
      checkpoint: where they are.
      spec: the decoder they are for.
      names: the family's names.
      norm_offset: what the family adds to the weights of its norms.
    Raises:
      CheckpointError: no layer is named as the family names its layers.
    """

    def __init__(self, checkpoint: Checkpoint, spec: DecoderSpec, names: Names, norm_offset: int):
        self.checkpoint, self.spec, self.names, self.norm_offset = checkpoint, spec, names, norm_offset
        self._present = frozenset(checkpoint.names())
        self._read: set[str] = set()
        self.prefix = self._find_prefix()

    def layer(self, number: int) -> dict[str, np.ndarray]:
        """Read one layer.

        Args:
          number: of the layer, from 0.
        Returns:
          float32 arrays by name: `qkv.kernel`, `qkv.bias`, `out.kernel`, `up.kernel`, `down.kernel`,
          `attention_in.weight` and so on; what the layer lacks is left out.
        Raises:
          CheckpointError: a tensor is missing or of the wrong shape, or the layer holds one that nothing would use.
        """
        start, names = self.names.layer.format(number), self.names
        parts = {"out": self._linear(start + names.out), "down": self._linear(start + names.down)}
        parts["qkv"] = self._qkv(start)
        ups = [self._linear(start + stem) for stem in names.up]
        parts["up"] = tuple(_joined([up[kind] for up in ups], [up[0] for up in ups]) for kind in (0, 1))
        for place, stem in names.norms.items():
            parts[place] = self._norm(start + stem)
        for place, stem in zip(("q_norm", "k_norm"), names.qk_norms or ()):
            parts[place] = self._qk_norm(start + stem, place)
        self._refuse_unread(start)
        found = {}
        for place, (matrix, bias) in parts.items():
            leaf = "kernel" if place in ("qkv", "out", "up", "down") else "weight"
            found |= {f"{place}.{leaf}": matrix, f"{place}.bias": bias}
        found = {name: array for name, array in found.items() if array is not None}
        self._check(found, start)
        return found

    def projections(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """W_Q, W_K and W_V of one layer, `(out, in)` each.

        Raises:
          CheckpointError: a tensor is missing or of the wrong shape.
        """
        spec, (kernel, _) = self.spec.attention, self._qkv(self.names.layer.format(number))
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        if kernel.shape != (queries + 2 * keys, self.spec.d_model):
            raise CheckpointError(
                f"{self.checkpoint.source}: queries, keys and values of layer {number} have shape {kernel.shape}, but "
                f"the config asks for {(queries + 2 * keys, self.spec.d_model)}."
            )
        return tuple(np.split(kernel, [queries, queries + keys]))

    def norm(self, stem: str) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Weight and bias of a norm outside the layers."""
        return self._norm(stem)

    def linear(self, stem: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Matrix `(out, in)` and bias of a projection outside the layers."""
        return self._linear(stem)

    def table(self, stem: str) -> np.ndarray:
        """Learned embeddings, one a row."""
        name = self._name(stem, _MATRIX_LEAVES)
        return self._tensor(name)

    def _find_prefix(self) -> str:
        anchor = self.names.layer.format(0) + self.names.out + "."
        prefixes = {name[: -len(anchor + leaf)] for name in self._present for leaf in _MATRIX_LEAVES
                    if name == anchor + leaf or name.endswith("." + anchor + leaf)}  # fmt: skip
        if len(prefixes) != 1:
            found = ", ".join(sorted(prefixes)) or "none"
            raise CheckpointError(
                f"{self.checkpoint.source}: expected one tensor named [prefix]{anchor}weight for a {self.spec.family} "
                f"decoder, found prefixes: {found}; the file is incomplete, quantised, or of another model_type."
            )
        return prefixes.pop()

    def _name(self, stem: str, leaves: tuple[str, ...]) -> str:
        for leaf in leaves:
            name = f"{self.prefix}{stem}.{leaf}"
            if name in self._present:
                return name
        raise CheckpointError(
            f"{self.checkpoint.source}: no tensor {self.prefix}{stem}.{leaves[0]}, which a {self.spec.family} decoder "
            "needs; the file is incomplete, quantised, or of another model_type."
        )

    def _tensor(self, name: str) -> np.ndarray:
        self._read.add(name)
        return self.checkpoint.tensor(name)

    def _bias(self, stem: str) -> np.ndarray | None:
        name = f"{self.prefix}{stem}.bias"
        return self._tensor(name) if name in self._present else None

    def _linear(self, stem: str) -> tuple[np.ndarray, np.ndarray | None]:
        name = self._name(stem, _MATRIX_LEAVES)
        matrix = self._tensor(name)
        # Flax keeps the transpose of what torch keeps, of gpt2's (in, out) matrices, too.
        if name.endswith(".kernel") != self.names.transposed:
            matrix = matrix.T
        return matrix, self._bias(stem)

    def _norm(self, stem: str) -> tuple[np.ndarray | None, np.ndarray | None]:
        if not self.spec.norm.affine:
            return None, None
        return self._tensor(self._name(stem, _NORM_LEAVES)) + np.float32(self.norm_offset), self._bias(stem)

    def _qk_norm(self, stem: str, place: str) -> tuple[np.ndarray | None, np.ndarray | None]:
        if "{}" not in stem:
            return self._norm(stem)
        attention = self.spec.attention
        heads = attention.heads if place == "q_norm" else attention.kv_heads
        found = [self._norm(stem.format(head)) for head in range(heads)]
        weights, biases = zip(*found)
        return np.stack(weights), None if biases[0] is None else np.stack(biases)

    def _qkv(self, start: str) -> tuple[np.ndarray, np.ndarray | None]:
        parts = [self._linear(start + stem) for stem in self.names.qkv]
        if len(parts) == 1:
            (kernel, bias), regroup = parts[0], self.names.qkv_layout == "grouped"
            return tuple(self._ungrouped(part) if regroup else part for part in (kernel, bias))
        if self.names.permuted:
            heads = (self.spec.attention.heads, self.spec.attention.kv_heads)
            parts[:2] = [tuple(_unpaired(array, count) for array in part) for part, count in zip(parts, heads)]
        kernels, biases = zip(*parts)
        return np.concatenate(kernels), _joined(biases, kernels)

    def _ungrouped(self, rows: np.ndarray | None) -> np.ndarray | None:
        """Rows of queries, keys, values of each key head in turn -> all queries, all keys, all values."""
        if rows is None:
            return None
        spec = self.spec.attention
        group = spec.heads // spec.kv_heads
        shape = (spec.kv_heads, group + 2, spec.head_dim, *rows.shape[1:])
        if rows.size != np.prod(shape):
            raise CheckpointError(
                f"{self.checkpoint.source}: the fused projection has shape {rows.shape}; the config asks for "
                f"{spec.heads} heads, {spec.kv_heads} key heads of {spec.head_dim}."
            )
        grouped = rows.reshape(shape)
        parts = (grouped[:, :-2], grouped[:, -2], grouped[:, -1])
        return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])

    def _refuse_unread(self, start: str) -> None:
        """A tensor that nothing reads may be a part of the model that would be missing without a word."""
        whole = self.prefix + start
        ignored = {whole + name for name in self.names.ignored}
        unread = [name for name in self._present - self._read - ignored if name.startswith(whole)]
        if unread:
            raise CheckpointError(
                f"{self.checkpoint.source}: {', '.join(sorted(unread)[:5])} would not be used by a {self.spec.family} "
                "decoder as its config describes it; the weights and the config do not belong together."
            )

    def _check(self, found: dict[str, np.ndarray], start: str) -> None:
        """Refuse matrices whose shapes contradict the config; the MLP's width is the weights' own."""
        spec, d = self.spec.attention, self.spec.d_model
        inner = found["down.kernel"].shape[-1]
        expected = {
            "qkv.kernel": ((spec.heads + 2 * spec.kv_heads) * spec.head_dim, d),
            "out.kernel": (d, spec.heads * spec.head_dim),
            "up.kernel": (inner * (2 if self.spec.block.gated else 1), d),
            "down.kernel": (d, inner),
        }
        expected |= {f"{place}.weight": (d,) for place in self.names.norms if f"{place}.weight" in found}
        for name, shape in expected.items():
            if found[name].shape != shape:
                raise CheckpointError(
                    f"{self.checkpoint.source}: {self.prefix}{start}: {name} has shape {found[name].shape}, but the "
                    f"config asks for {shape}; the weights and the config do not belong together."
                )


def _unpaired(rows: np.ndarray | None, heads: int) -> np.ndarray | None:
    """Undo GGUF's order: each head's coordinates i and i + head_dim / 2 lie side by side there."""
    if rows is None:
        return None
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _joined(biases: list[np.ndarray | None] | tuple, kernels: list[np.ndarray] | tuple) -> np.ndarray | None:
    """Several biases (or matrices) as one, zeros for those that are missing; None where all are."""
    if all(bias is None for bias in biases):
        return None
    return np.concatenate(
        [np.zeros(len(kernel), np.float32) if bias is None else bias for bias, kernel in zip(biases, kernels)]
    )
