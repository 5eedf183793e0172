"""The parts of a decoder as Flax NNX modules, whose weights may be stacked over layers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from repcap_jax.kernels.precision import PRECISIONS
from repcap_jax.models.attention import causal_attention
from repcap_jax.models.rope import rotate
from repcap_jax.models.spec import DecoderSpec, NormSpec

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_fast": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
}


class Linear(nnx.Module):
    """x W^T + b in float32; the factors of the product are in the weights' dtype.

    Attributes:
      kernel: `(out, in)`, as checkpoints store it.
      bias: `(out,)` float32, or None.
    """

    def __init__(self, kernel: Any, bias: Any | None, precision: str):
        self.kernel = nnx.Param(kernel)
        self.bias = None if bias is None else nnx.Param(bias)
        self.precision = precision

    def __call__(self, x: Float[Array, "*rows in"]) -> Float[Array, "*rows out"]:
        kernel = self.kernel[...]
        product = jax.lax.dot_general(
            x.astype(kernel.dtype),
            kernel,
            (((x.ndim - 1,), (1,)), ((), ())),
            precision=PRECISIONS[self.precision],
            preferred_element_type=jnp.float32,
        )
        return product if self.bias is None else product + self.bias[...]


class Norm(nnx.Module):
    """RMSNorm or LayerNorm over the last axis, in float32.

    Attributes:
      weight: broadcast against what is normalised; None where the model's norms have none. The one that gemma adds to
        its weights is in it.
      bias: likewise.
    """

    def __init__(self, spec: NormSpec, weight: Any | None, bias: Any | None):
        self.spec = spec
        self.weight = None if weight is None else nnx.Param(weight)
        self.bias = None if bias is None else nnx.Param(bias)

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        if self.spec.kind == "layer":
            x = x - jnp.mean(x, axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.spec.eps)
        x = x if self.weight is None else x * self.weight[...]
        return x if self.bias is None else x + self.bias[...]


class Attention(nnx.Module):
    """Queries, keys and values from one fused projection, and the projection of what the heads found."""

    def __init__(self, spec: DecoderSpec, qkv: Linear, out: Linear, q_norm: Norm | None, k_norm: Norm | None):
        self.spec, self.qkv, self.out, self.q_norm, self.k_norm = spec, qkv, out, q_norm, k_norm

    def __call__(self, x: Float[Array, "batch seq d"], layer: dict[str, Array], tables: dict[str, Array | None]) -> Any:
        """One layer's attention; `layer` holds its scale, window and rotation, `tables` what all layers share."""
        spec = self.spec.attention
        q, k, v = self._heads(self.qkv(x))
        if tables["cos"] is not None:
            cos, sin = tables["cos"][layer["rope"]], tables["sin"][layer["rope"]]
            q, k = rotate(q, cos, sin, spec.interleaved), rotate(k, cos, sin, spec.interleaved)
        found = causal_attention(
            q * layer["scale"],
            k,
            v,
            window=layer["window"] if any(spec.windows) else None,
            softcap=spec.softcap,
            bias=tables["alibi"],
            dtype=self.qkv.kernel.dtype,
            precision=PRECISIONS[self.qkv.precision],
        )
        return self.out(found.reshape(*x.shape[:2], -1))

    def _heads(self, rows: Float[Array, "batch seq width"]) -> tuple[Array, Array, Array]:
        """Queries `(batch, seq, kv_heads, group, head_dim)`, keys and values `(batch, seq, kv_heads, head_dim)`."""
        spec = self.spec.attention
        if spec.clip is not None:
            rows = jnp.clip(rows, -spec.clip, spec.clip)
        ends = np.cumsum([spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim])
        q, k, v = jnp.split(rows, ends, axis=-1)
        if spec.qk_norm == "width":
            q, k = self.q_norm(q), self.k_norm(k)
        shape = (*rows.shape[:2], -1, spec.head_dim)
        q, k, v = q.reshape(shape), k.reshape(shape), v.reshape(shape)
        if spec.qk_norm == "head":
            q, k = self.q_norm(q), self.k_norm(k)
        return q.reshape(*rows.shape[:2], spec.kv_heads, -1, spec.head_dim), k, v


class MLP(nnx.Module):
    """act(x W_up) W_down, or act(x W_gate) * (x W_up) W_down with both first projections in one."""

    def __init__(self, spec: DecoderSpec, up: Linear, down: Linear):
        self.spec, self.up, self.down = spec, up, down

    def __call__(self, x: Float[Array, "batch seq d"]) -> Float[Array, "batch seq d"]:
        activation = ACTIVATIONS[self.spec.block.activation]
        inner = self.up(x)
        if self.spec.block.gated:
            gate, inner = jnp.split(inner, 2, axis=-1)
            return self.down(activation(gate) * inner)
        return self.down(activation(inner))


class Block(nnx.Module):
    """One layer; norms that a family lacks are None."""

    def __init__(self, spec: DecoderSpec, attention: Attention, mlp: MLP, norms: dict[str, Norm]):
        self.spec, self.attention, self.mlp = spec, attention, mlp
        self.attention_in, self.attention_out = norms.get("attention_in"), norms.get("attention_out")
        self.mlp_in, self.mlp_out = norms.get("mlp_in"), norms.get("mlp_out")

    def __call__(self, x: Float[Array, "batch seq d"], layer: dict[str, Array], tables: dict[str, Array | None]) -> Any:
        """The residual stream after this layer."""
        spec = self.spec.block
        if spec.norm_after_add:
            x = _apply(self.attention_in, x + self.attention(x, layer, tables))
            return _apply(self.mlp_in, x + self.mlp(x))
        normed = _apply(self.attention_in, x)
        added = _apply(self.attention_out, self.attention(normed, layer, tables)) * spec.residual_scale
        if spec.parallel:
            inner = normed if self.mlp_in is None else self.mlp_in(x)
            return x + added + self.mlp(inner) * spec.residual_scale
        x = (normed if spec.residual_from_norm else x) + added
        normed = _apply(self.mlp_in, x)
        x = normed if spec.residual_from_norm else x
        return x + _apply(self.mlp_out, self.mlp(normed)) * spec.residual_scale


def _apply(norm: Norm | None, x: Array) -> Array:
    return x if norm is None else norm(x)
