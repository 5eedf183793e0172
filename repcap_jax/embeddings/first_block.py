"""What the first block's attention sees of the tokens, and the gains of the norms in every layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float32

from repcap_jax.checkpoints import Checkpoint
from repcap_jax.checkpoints.roles import config_value, norm_offset
from repcap_jax.embeddings.relations import summarised
from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import Progress, fold_pairs
from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.projection import project_rows
from repcap_jax.kernels.reducers import Histogram, NearestNeighbours, Neighbours
from repcap_jax.models import UnsupportedModel, attention_projections

_PARTS = {
    "query": {"q_proj", "attn_q", "query", "wq"},
    "key": {"k_proj", "attn_k", "key", "wk"},
    "value": {"v_proj", "attn_v", "value", "wv"},
}
_FUSED = {"c_attn", "qkv_proj", "attn_qkv", "Wqkv"}  # all queries, all keys, all values
_INPUT_NORMS = {"input_layernorm", "attn_norm", "ln_1", "self_attn_layer_norm", "attention_norm", "ln_attn"}
_NORM_WORDS = ("norm", "ln")
_MATRIX_LEAVES, _NORM_LEAVES = ("weight", "kernel"), ("weight", "scale")


def first_projections(checkpoint: Checkpoint) -> dict[str, Float32[np.ndarray, "width d"]]:
    """W_Q, W_K and W_V of block 0: as the decoders read them, and for other architectures by the tensors' names.

    Args:
      checkpoint: an open checkpoint.
    Returns:
      `{"query": (width, d), "key": ..., "value": ...}`, biases left out.
    Raises:
      ValueError: no such tensors, of shapes that contradict the config, or a fused one that it does not say how to
        take apart.
    """
    try:
        return attention_projections(checkpoint)
    except UnsupportedModel:
        layer = _layer_tensors(checkpoint, 0)
    found = {}
    for part, modules in _PARTS.items():
        names = [name for module, name in layer.items() if module.rsplit(".", 1)[-1] in modules]
        if len(names) == 1:
            found[part] = _oriented(checkpoint, names[0])
    if len(found) == 3:
        return found
    fused = [name for module, name in layer.items() if module.rsplit(".", 1)[-1] in _FUSED]
    if len(fused) != 1:
        listed = ", ".join(sorted(layer)[:12]) or "none"
        raise ValueError(f"{checkpoint.source}: no projections of queries, keys and values in block 0, found: {listed}")
    return _taken_apart(_oriented(checkpoint, fused[0]), checkpoint.config, fused[0])


def input_gain(checkpoint: Checkpoint) -> Float32[np.ndarray, " d"] | None:
    """The gain of the norm before block 0's attention, None where there is none by a known name."""
    for module, name in _layer_tensors(checkpoint, 0, _NORM_LEAVES).items():
        if module.rsplit(".", 1)[-1] in _INPUT_NORMS:
            offset = 0 if checkpoint.format == "gguf" else norm_offset(checkpoint.config)
            return checkpoint.tensor(name) + np.float32(offset)
    return None


def seen_through(
    x: Any, projection: Any, gain: Any = None, *, precision: str | None = None
) -> Float32[np.ndarray, "n width"]:
    """What a projection makes of every row: `W (g * x_i / |x_i|)`.

    A norm's division by a row's own length leaves its cosines alone, its gain g does not. A mean that LayerNorm takes
    away first is not modelled.

    Args:
      x: `(n, d)`.
      projection: `(width, d)`.
      gain: `(d,)` of the norm in front, None for ones.
      precision: matrix-product precision.
    Returns:
      `(n, width)`; NaN for rows without a direction.
    Raises:
      ValueError: the shapes do not fit.
    """
    weights = check_matrix(projection, "projection")
    if gain is not None:
        factors = np.asarray(gain, np.float32)
        if factors.shape != (weights.shape[1],):
            raise ValueError(f"gain must hold one number for each of {weights.shape[1]} columns, got {factors.shape}")
        weights = weights * factors
    return project_rows(x, weights, unit=True, precision=precision)


@dataclasses.dataclass(frozen=True)
class ProjectedTokens:
    """Cosines of the tokens as a projection sees them.

    Attributes:
      width: length of what the projection gives.
      gain: whether the gain of the norm in front was applied.
      mean, std: mu and sigma of all cosines.
      counts, edges: histogram of all cosines.
      nearest: `(n, 1)` nearest token of each token, and its cosine.
    """

    width: int
    gain: bool
    mean: float
    std: float
    counts: np.ndarray
    edges: np.ndarray
    nearest: Neighbours

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; neighbours and histogram are arrays."""
        return {
            "width": self.width,
            "gain": self.gain,
            "mean": self.mean,
            "std": self.std,
            "epsilon": self.mean + 2 * self.std,
            "nearest": summarised(self.nearest.cosines[:, 0]),
        }


def projected_tokens(
    x: Any,
    projection: Any,
    gain: Any = None,
    *,
    bins: int = 2000,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> ProjectedTokens:
    """Distribution of cosines and nearest tokens of what `seen_through` gives, in one walk.

    Args:
      x, projection, gain: see `seen_through`.
      bins, tile, mesh, precision, progress: see `similarity_distribution`.
    Returns:
      ProjectedTokens.
    Raises:
      ValueError: as `seen_through`.
    """
    seen = seen_through(x, projection, gain, precision=precision)
    moments = cosine_moments(seen, mesh=mesh, precision=precision)
    reducers = [Histogram(bins), NearestNeighbours(1)]
    fold = fold_pairs(seen, reducers, tile=tile, mesh=mesh, precision=precision, progress=progress)
    (counts, edges), nearest = fold.results
    return ProjectedTokens(seen.shape[1], gain is not None, moments.mean, moments.std, counts, edges, nearest)


def norm_gains(checkpoint: Checkpoint) -> dict[str, Float32[np.ndarray, "layers d"]]:
    """Gains of the norms inside the layers, by the norm's name and layer; those that every layer has.

    Args:
      checkpoint: an open checkpoint.
    Returns:
      `{norm: (layers, width)}`, what the model multiplies by; empty where no tensor is named as a norm.
    """
    offset = 0 if checkpoint.format == "gguf" else norm_offset(checkpoint.config)
    by_norm: dict[str, dict[int, str]] = {}
    for name in checkpoint.names():
        *modules, leaf = name.split(".")
        numbers = [place for place, module in enumerate(modules) if module.isdigit()]
        if leaf in _NORM_LEAVES and len(numbers) == 1 and _is_norm(modules[-1]):
            by_norm.setdefault(".".join(modules[numbers[0] + 1 :]), {})[int(modules[numbers[0]])] = name
    found = {}
    for norm, names in by_norm.items():
        gains = [checkpoint.tensor(names[layer]) for layer in sorted(names)]
        if sorted(names) == list(range(len(names))) and len({gain.shape for gain in gains}) == 1 and gains[0].ndim == 1:
            found[norm] = np.stack(gains) + np.float32(offset)
    return found


def gain_record(gains: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Mean, std, extremes and mean square of the gains of each layer, as valid JSON."""
    return {
        norm: {
            "mean": values.mean(axis=1, dtype=np.float64).tolist(),
            "std": values.std(axis=1, dtype=np.float64).tolist(),
            "min": values.min(axis=1).tolist(),
            "max": values.max(axis=1).tolist(),
        }
        for norm, values in gains.items()
    }


def _is_norm(module: str) -> bool:
    return any(word.startswith(_NORM_WORDS) or word.endswith("norm") for word in module.lower().split("_"))


def _layer_tensors(checkpoint: Checkpoint, layer: int, leaves: tuple[str, ...] = _MATRIX_LEAVES) -> dict[str, str]:
    """Tensors of one numbered layer: module -> name, the module without what stands before the number."""
    found = {}
    for name in checkpoint.names():
        *modules, leaf = name.split(".")
        numbers = [place for place, module in enumerate(modules) if module.isdigit()]
        if leaf in leaves and numbers and int(modules[numbers[0]]) == layer:
            found[".".join(modules[numbers[0] + 1 :])] = name
    return found


def _oriented(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """A projection as (out, in): gpt2's c_attn and Flax kernels are stored the other way round."""
    matrix = checkpoint.tensor(name)
    turned = name.endswith(".kernel") != (name.split(".")[-2] == "c_attn" and checkpoint.format != "gguf")
    return np.ascontiguousarray(matrix.T) if turned else matrix


def _taken_apart(matrix: np.ndarray, config: Mapping, name: str) -> dict[str, np.ndarray]:
    heads = config_value(config, "num_attention_heads", "n_head")
    kv_heads = config_value(config, "num_key_value_heads", "num_kv_heads") or heads
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or len(matrix) % (heads + 2 * kv_heads):
        raise ValueError(
            f"{name}: a fused projection of shape {matrix.shape} cannot be taken apart with {heads} heads and "
            f"{kv_heads} key heads; the config should say num_attention_heads and num_key_value_heads"
        )
    head_dim = len(matrix) // (heads + 2 * kv_heads)
    return dict(zip(_PARTS, np.split(matrix, [heads * head_dim, (heads + kv_heads) * head_dim])))
