"""`load_decoder`: a checkpoint's weights on the device, a layer at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from repcap_jax.checkpoints import Checkpoint, CheckpointError
from repcap_jax.kernels.precision import resolve_precision
from repcap_jax.models import names as where
from repcap_jax.models.decoder import Decoder
from repcap_jax.models.families import Family, UnsupportedModel, read_family
from repcap_jax.models.layers import ACTIVATIONS, MLP, Attention, Block, Linear, Norm
from repcap_jax.models.spec import DecoderSpec
from repcap_jax.models.tensors import LayerTensors

_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
Progress = Callable[[int, int], None]  # layers read, layers in all


def load_decoder(
    checkpoint: Checkpoint,
    *,
    dtype: str = "float32",
    head: bool = True,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """Load a decoder-only language model, to compute its residual stream.

    Its config.json names the family; missing keys have the defaults of transformers' config classes. Weights are read
    from every format that `open_checkpoint` reads, one layer at a time, so that memory peaks at about a layer (or the
    embedding) above the weights themselves.

    Args:
      checkpoint: an open checkpoint with a config; it may be closed afterwards.
      dtype: of the matrix products' factors, `"float32"` or `"bfloat16"`. Products are accumulated in float32, and the
        residual stream, norms and softmax are float32 either way.
      head: load the unembedding of an untied model, too; only `logits` and what is built on it need it.
      mesh: devices that share the batch of each call; each holds all weights. None for the default device.
      precision: of matrix products, `"highest"` (float32; the default), `"high"` or `"default"`.
      progress: called as `progress(layers_read, layers)`.
    Returns:
      The decoder.
    Raises:
      UnsupportedModel: (a ValueError) a model_type or a setting that is not supported.
      CheckpointError: (a ValueError) a tensor is missing, of the wrong shape, or would not be used.
      ValueError: an unknown dtype or precision.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must come from open_checkpoint(source), got {type(checkpoint).__name__}")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
    precision = resolve_precision(precision)
    spec, names = _family(checkpoint)
    if spec.block.activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UnsupportedModel(f"activation {spec.block.activation!r} of this {spec.family} is none of {known}")
    final = checkpoint.final_norm() if spec.final_norm and spec.norm.affine else None
    if final is None and spec.final_norm and spec.norm.affine:
        raise CheckpointError(f"{checkpoint.source}: the file has no final norm, which a {spec.family} decoder needs.")
    tensors = LayerTensors(checkpoint, spec, names, 0 if final is None else final.offset)
    weights = _Weights(_DTYPES[dtype], mesh)
    blocks = _blocks(_stacked(tensors, spec, weights, progress), spec, precision)
    outside = _outside(tensors, spec, weights, precision)
    if final is not None:
        bias = None if final.bias is None else weights.put(final.bias)
        outside["final"] = Norm(spec.norm, weights.put(final.weight + np.float32(final.offset)), bias)
    elif spec.final_norm:
        outside["final"] = Norm(spec.norm, None, None)
    tied = head and checkpoint.tied
    if head and not tied:
        bias = checkpoint.unembedding_bias()
        kernel = weights.put(checkpoint.unembedding(), low=True)
        outside["unembedding"] = Linear(kernel, None if bias is None else weights.put(bias), precision)
    embedding = weights.put(checkpoint.embedding(), low=True)
    return Decoder(spec, source=checkpoint.source, mesh=mesh, embedding=embedding, blocks=blocks, tied=tied, **outside)


def attention_projections(checkpoint: Checkpoint, layer: int = 0) -> dict[str, np.ndarray]:
    """W_Q, W_K and W_V of one layer; only the tensors that hold them are read.

    Args:
      checkpoint: an open checkpoint with a config.
      layer: its number, from 0.
    Returns:
      `{"query": (heads * head_dim, d), "key": (kv_heads * head_dim, d), "value": ...}` float32.
    Raises:
      UnsupportedModel: (a ValueError) a model_type or a setting that is not supported.
      CheckpointError: (a ValueError) a tensor is missing or of the wrong shape.
    """
    spec, names = _family(checkpoint)
    found = LayerTensors(checkpoint, spec, names, 0).projections(layer)
    return dict(zip(("query", "key", "value"), found))


def _family(checkpoint: Checkpoint) -> Family:
    """What the checkpoint holds; a GGUF file has names of its own, and for llama 3.1 divisors of the frequencies."""
    if not checkpoint.config:
        raise UnsupportedModel(
            f"{checkpoint.source}: no config.json beside the weights, so the architecture is unknown; open the model's "
            "folder, or pass hidden states with --hidden_states=file.safetensors."
        )
    try:
        family = read_family(checkpoint.config)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{checkpoint.source}: {error}") from error
    if checkpoint.format != "gguf":
        return family
    if family.spec.family not in where.GGUF:
        raise UnsupportedModel(
            f"{checkpoint.source}: GGUF files are read for {', '.join(sorted(where.GGUF))}, not for "
            f"{family.spec.family}; give the model's safetensors."
        )
    spec = family.spec
    if where.GGUF_FREQUENCY_DIVISORS in checkpoint.names():
        divisors = checkpoint.tensor(where.GGUF_FREQUENCY_DIVISORS).astype(np.float64)
        (rope,) = spec.attention.ropes
        frequencies = tuple(float(f) for f in np.asarray(rope.frequencies) / divisors)
        attention = dataclasses.replace(spec.attention, ropes=(dataclasses.replace(rope, frequencies=frequencies),))
        spec = dataclasses.replace(spec, attention=attention)
    return Family(spec, where.GGUF[spec.family])


class _Weights:
    """Puts arrays on the devices: matrices in the dtype of the products (`low`), the rest in float32."""

    def __init__(self, dtype: np.dtype, mesh: Mesh | None):
        self.dtype = dtype
        self.sharding = None if mesh is None else NamedSharding(mesh, P())

    def put(self, array: np.ndarray, low: bool = False) -> Array:
        return jax.device_put(np.ascontiguousarray(array, self.dtype if low else np.float32), self.sharding)

    def stack(self, shape: tuple[int, ...], low: bool) -> Array:
        """Zeros to be filled in place; the host never holds the whole stack."""
        zeros = functools.partial(jnp.zeros, shape, self.dtype if low else np.float32)
        return zeros() if self.sharding is None else jax.jit(zeros, out_shardings=self.sharding)()


@functools.partial(jax.jit, donate_argnums=0)
def _write(stack: Array, layer: Array, number: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(stack, layer.astype(stack.dtype), number, 0)


def _stacked(
    tensors: LayerTensors, spec: DecoderSpec, weights: _Weights, progress: Progress | None
) -> dict[str, Array]:
    """All layers' weights, stacked along a first axis."""
    stacks: dict[str, Array] = {}
    for number in range(spec.layers):
        layer = tensors.layer(number)
        if number == 0:
            low = {name: name.endswith(".kernel") for name in layer}
            stacks = {name: weights.stack((spec.layers, *layer[name].shape), low[name]) for name in layer}
        if {name: array.shape for name, array in layer.items()} != {n: s.shape[1:] for n, s in stacks.items()}:
            raise CheckpointError(
                f"{tensors.checkpoint.source}: layer {number} does not have the tensors and shapes of layer 0, which a "
                f"{spec.family} decoder would."
            )
        for name in layer:
            stacks[name] = _write(stacks[name], layer[name], np.int32(number))
        if progress is not None:
            progress(number + 1, spec.layers)
    return stacks


def _blocks(stacks: dict[str, Array], spec: DecoderSpec, precision: str) -> Block:
    def linear(place: str) -> Linear:
        return Linear(stacks[f"{place}.kernel"], stacks.get(f"{place}.bias"), precision)

    def norm(place: str) -> Norm:
        return Norm(spec.norm, stacks.get(f"{place}.weight"), stacks.get(f"{place}.bias"))

    q_norm, k_norm = (norm(place) if spec.attention.qk_norm else None for place in ("q_norm", "k_norm"))
    attention = Attention(spec, linear("qkv"), linear("out"), q_norm, k_norm)
    mlp = MLP(spec, linear("up"), linear("down"))
    return Block(spec, attention, mlp, {place: norm(place) for place in spec.norms})


def _outside(tensors: LayerTensors, spec: DecoderSpec, weights: _Weights, precision: str) -> dict[str, Any]:
    """The modules before and after the blocks that only some families have."""
    names, found = tensors.names, {}
    if names.positions is not None:
        table = tensors.table(names.positions)[names.skipped_positions :]
        if spec.max_positions is None or table.shape != (spec.max_positions, spec.d_model):
            raise CheckpointError(
                f"{tensors.checkpoint.source}: the learned positions have shape {table.shape}, but the config asks for "
                f"{(spec.max_positions, spec.d_model)}."
            )
        found["positions"] = weights.put(table)
    if names.embedding_norm is not None:
        weight, bias = tensors.norm(names.embedding_norm)
        found["embedding_norm"] = Norm(spec.norm, weights.put(weight), None if bias is None else weights.put(bias))
    for place in ("project_in", "project_out"):
        stem = getattr(names, place)
        if stem is not None:
            kernel, bias = tensors.linear(stem)
            found[place] = Linear(weights.put(kernel, low=True), None if bias is None else weights.put(bias), precision)
    return found
