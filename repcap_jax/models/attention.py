"""Causal attention over whole sequences, a block of queries at a time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# Queries in a block, and blocks at most: the scores of a block, (batch, heads, block, keys), are what is in memory at a
# time, and keys after the block's last query are not touched; but each block adds to the program.
_QUERY_BLOCK, _MOST_BLOCKS = 128, 16
_MASKED = -1e30


def causal_attention(
    q: Float[Array, "batch seq kv_heads group head_dim"],
    k: Float[Array, "batch seq kv_heads head_dim"],
    v: Float[Array, "batch seq kv_heads head_dim"],
    *,
    window: Int[Array, ""] | None,
    softcap: float | None,
    bias: Float[Array, "kv_heads group seq"] | None,
    dtype: Any,
    precision: Any,
) -> Float[Array, "batch seq kv_heads group head_dim"]:
    """softmax(q . k) v over the keys at or before each query.

    Args:
      q: scaled queries; query heads in groups that share a key head.
      k, v: keys and values.
      window: how many keys a query sees, itself included; None for all.
      softcap: scores become `softcap * tanh(score / softcap)`.
      bias: added to the scores of each key, the same for all queries.
      dtype: in which products are formed; they are accumulated in float32.
      precision: of the products.
    Returns:
      What each head found, float32.
    """
    batch, seq, kv_heads, group, head_dim = q.shape
    # One product for each key head, the queries of its whole group as rows.
    q = q.astype(dtype).transpose(0, 2, 3, 1, 4)
    k = k.astype(dtype).transpose(0, 2, 1, 3)
    v = v.astype(dtype).transpose(0, 2, 1, 3)
    found, block_size = [], max(_QUERY_BLOCK, -(-seq // _MOST_BLOCKS))
    for start in range(0, seq, block_size):
        stop = min(start + block_size, seq)
        rows = q[:, :, :, start:stop].reshape(batch, kv_heads, group * (stop - start), head_dim)
        scores = _products("bkqd,bksd->bkqs", rows, k[:, :, :stop], precision)
        scores = scores.reshape(batch, kv_heads, group, stop - start, stop)
        if softcap is not None:
            scores = softcap * jnp.tanh(scores / softcap)
        if bias is not None:
            scores = scores + bias[None, :, :, None, :stop]
        at, key = np.arange(start, stop)[:, None], np.arange(stop)[None, :]
        seen = jnp.asarray(key <= at)
        if window is not None:
            seen = seen & (key > at - window)
        weights = jax.nn.softmax(jnp.where(seen, scores, _MASKED), axis=-1).astype(dtype)
        weights = weights.reshape(batch, kv_heads, group * (stop - start), stop)
        block = _products("bkqs,bksd->bkqd", weights, v[:, :, :stop], precision)
        found.append(block.reshape(batch, kv_heads, group, stop - start, head_dim))
    return jnp.concatenate(found, axis=3).transpose(0, 3, 1, 2, 4)


def _products(form: str, a: Array, b: Array, precision: Any) -> Array:
    return jnp.einsum(form, a, b, precision=precision, preferred_element_type=jnp.float32)


def alibi_biases(heads: int, seq: int, arithmetic: str, scale: float) -> Float[np.ndarray, "heads seq"]:
    """Linear biases on the keys, `slope_h * position`, for every head.

    The slopes are `2^(-8 i / heads)` for a power of two; other numbers of heads take the next smaller power's, and then
    every second one of the next larger power's.

    Args:
      heads, seq: sizes.
      arithmetic: `"float32"`, or `"bfloat16"` to round slopes, positions and products as falcon does.
      scale: a factor on the result.
    Returns:
      `(heads, seq)` float32. A row may lack a constant: softmax does not see it.
    Source: Press et al. 2022 (arXiv:2108.12409), section 3.
    """
    power = 2 ** int(np.floor(np.log2(heads)))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    values, positions = np.asarray(slopes, np.float32), np.arange(seq, dtype=np.float32)
    if arithmetic == "bfloat16":
        # On the host, since a compiler may skip roundings between operations that it joins.
        values, positions = values.astype(jnp.bfloat16), positions.astype(jnp.bfloat16)
    return (values[:, None] * positions[None, :]).astype(np.float32) * np.float32(scale)
