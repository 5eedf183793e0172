"""Haar-distributed frames: k orthonormal columns in R^d whose span is uniform on the Grassmannian."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.spectra import orthonormal_columns

_AT_ONCE = 8  # frames whose factorisations are in memory together


def grassmann_frames(key: Array, count: int, d: int, k: int) -> Float[Array, "count d k"]:
    """Independent uniform k-frames in R^d.

        A ~ N(0, 1)^(d x k),   A = F R,   R upper triangular with a positive diagonal

    Frame i depends on the key and on i alone, so that more frames continue a shorter set, and the first k' columns of
    a frame are the k'-frame of the same key, up to rounding.

    Args:
      key: a `jax.random` key.
      count: number of frames, >= 1.
      d: dimension.
      k: columns, 1 .. d.
    Returns:
      `(count, d, k)` float32, F^T F = I.
    Raises:
      ValueError: for numbers out of range.
    Source: Mezzadri 2007 (arXiv:math-ph/0609050), section 5: with signs left free Q is not Haar (its span is).
    """
    count, d, k = whole(count, "count", 1), whole(d, "d", 1), whole(k, "k", 0)
    if not 1 <= k <= d:
        raise ValueError(f"a frame in R^{d} has 1 to {d} columns, got k = {k}")
    return _frames(key, count, d, k)


def haar_frame(key: Array, d: int, k: int) -> Float[Array, "d k"]:
    """One uniform k-frame in R^d; may be traced."""
    columns = jax.vmap(lambda number: jax.random.normal(jax.random.fold_in(key, number), (d,), jnp.float32))
    # With k <= 3 d / 4 the condition number of A is about (1 + sqrt(k/d)) / (1 - sqrt(k/d)) <= 14.
    return orthonormal_columns(columns(jnp.arange(k)).T, well_conditioned=4 * k <= 3 * d and d >= 16)


def frame_keys(key: Array, count: int) -> Array:
    """One key a frame: `grassmann_frames(key, count, d, k)[i]` is `haar_frame(frame_keys(key, count)[i], d, k)`."""
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(count))


@functools.partial(jax.jit, static_argnames=("count", "d", "k"))
def _frames(key: Array, count: int, d: int, k: int) -> Array:
    return lax.map(lambda own: haar_frame(own, d, k), frame_keys(key, count), batch_size=_AT_ONCE)
