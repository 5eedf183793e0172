"""Principal directions through the d x d Gram matrix, never through an SVD of a tall matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.precision import PRECISIONS

# Rows multiplied in float32 before float64 takes over on the host: few enough that rounding stays near 1e-6.
BLOCK_ROWS = 4096


class RightSingularVectors(NamedTuple):
    """Right singular vectors as columns, and their singular values.

    Attributes:
      vectors: `(d, k)` float64.
      values: `(k,)` float64.
      all_values: `(d,)` float64 singular values, falling.
    """

    vectors: Float64[np.ndarray, "d k"]
    values: Float64[np.ndarray, " k"]
    all_values: Float64[np.ndarray, " d"]


def gram_matrix(x: Any, *, centre: bool = False, scale: Any = None) -> Float64[np.ndarray, "d d"]:
    """X^T X in float64 for a tall matrix, a block of rows at a time.

        X^T X = sum_blocks (B - 1 m^T)^T (B - 1 m^T) + n m m^T,      m the mean row

    The mean row, by far the largest direction of an unembedding, is taken out in float64 first: what is multiplied in
    float32 on the device then has a much smaller range, and the small directions keep their digits.

    Args:
      x: `(n, d)`, any real dtype, may be memory-mapped.
      centre: leave the mean row out altogether.
      scale: `(d,)` factors of the columns, applied to every row first; `None` for ones.
    Returns:
      `(d, d)`.
    Raises:
      TypeError, ValueError: if x is not a matrix of finite real numbers, or scale is not of its width.
    """
    x = check_matrix(x)
    n, d = x.shape
    factors = np.ones(d) if scale is None else np.asarray(scale, np.float64)
    if factors.shape != (d,) or not np.isfinite(factors).all():
        raise ValueError(f"scale must hold {d} finite factors, one a column, got shape {factors.shape}")
    total, largest = np.zeros(d), 0.0
    for start in range(0, n, BLOCK_ROWS):
        block = np.asarray(x[start : start + BLOCK_ROWS]).astype(np.float64)
        total += block.sum(axis=0)
        largest = max(largest, float(np.abs(block * factors).max()))
    if not np.isfinite(total).all():
        raise ValueError("the matrix holds NaN or infinite entries; singular vectors need finite ones")
    mean, largest = total / n, largest or 1.0  # squares of float32 would overflow or vanish without it
    gram = np.zeros((d, d))
    for start in range(0, n, BLOCK_ROWS):
        block = (np.asarray(x[start : start + BLOCK_ROWS]).astype(np.float64) - mean) * factors / largest
        padded = np.zeros((min(BLOCK_ROWS, n), d), np.float32)
        padded[: len(block)] = block
        gram += np.asarray(block_gram(padded), np.float64)
    gram = (gram + gram.T) / 2 * largest**2
    return gram if centre else gram + n * np.outer(mean * factors, mean * factors)


@jax.jit
def block_gram(block: Float[Array, "r d"]) -> Float[Array, "d d"]:
    """B^T B of one block of rows, on device."""
    return jax.lax.dot_general(block, block, (((0,), (0,)), ((), ())), precision=PRECISIONS["highest"])


def right_singular_vectors(
    x: Any, k: int, *, centre: bool = False, scale: Any = None, largest: bool = True
) -> RightSingularVectors:
    """k right singular vectors of a tall matrix, by `eigh` of its Gram matrix in float64.

    Args:
      x: `(n, d)`.
      k: how many, 1 .. d.
      centre, scale: see `gram_matrix`.
      largest: those of the largest singular values, the largest first; else of the smallest, the smallest first.
    Returns:
      RightSingularVectors; the entry of largest absolute value in each vector is positive.
    Raises:
      TypeError, ValueError: see `gram_matrix`; or k is out of range.
    """
    d, k = check_matrix(x).shape[1], whole(k, "k", 0)
    if not 1 <= k <= d:
        raise ValueError(f"a matrix with {d} columns has 1 to {d} right singular vectors, got k = {k}")
    eigenvalues, vectors = np.linalg.eigh(gram_matrix(x, centre=centre, scale=scale))
    values = np.sqrt(np.maximum(eigenvalues, 0.0))
    order = np.arange(d)[::-1] if largest else np.arange(d)
    chosen = vectors[:, order[:k]]
    heads = chosen[np.abs(chosen).argmax(axis=0), np.arange(k)]
    return RightSingularVectors(chosen * np.sign(heads), values[order[:k]], values[::-1].copy())


def principal_directions(centred: Float[Array, "n d"], m: int) -> Float[Array, "d m"]:
    """The first m principal directions of centred rows, the first one first; may be traced.

    The eigenvectors of X^T X or, where rows are fewer than columns, X^T u / |X^T u| for the eigenvectors u of X X^T.

    Args:
      centred: `(n, d)` float32 rows of mean zero.
      m: how many, 0 .. min(n, d); static.
    """
    n, d = centred.shape
    if m == 0:
        return jnp.zeros((d, 0), jnp.float32)
    # Scaled to rows of about length one: no square overflows or vanishes.
    scaled = centred / jnp.maximum(jnp.max(jnp.abs(centred)), jnp.float32(1e-30))
    rows_first = n < d
    shared = (((1,), (1,)), ((), ())) if rows_first else (((0,), (0,)), ((), ()))
    gram = jax.lax.dot_general(scaled, scaled, shared, precision=PRECISIONS["highest"])
    _, vectors = jnp.linalg.eigh(gram, symmetrize_input=False)
    top = vectors[:, ::-1][:, :m]
    if not rows_first:
        return top
    images = jax.lax.dot_general(scaled, top, (((0,), (0,)), ((), ())), precision=PRECISIONS["highest"])
    return orthonormal_columns(images / jnp.linalg.norm(images, axis=0))


def orthonormal_columns(a: Float[Array, "d k"], *, well_conditioned: bool = False) -> Float[Array, "d k"]:
    """Q of the QR decomposition whose R has a positive diagonal, for independent columns; may be traced.

    Q is A R^-1, and a Cholesky step takes what rounding has left of the angles between its columns. R is that of
    Householder reflections, or the Cholesky factor of A^T A, which takes half the time but needs a condition number
    below a few hundred. Forming Q out of the reflections themselves takes hundreds of times longer on CPUs.

    Args:
      a: `(d, k)` float32, k <= d.
      well_conditioned: whether the Cholesky factor will do; static.
    """
    if well_conditioned:
        q = _by_cholesky(a)
    else:
        r = jnp.linalg.qr(a, mode="r")
        q = _right_solve(a, r * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)[:, None])
    return _by_cholesky(q)


def _by_cholesky(a: Array) -> Array:
    gram = jax.lax.dot_general(a, a, (((0,), (0,)), ((), ())), precision=PRECISIONS["highest"])
    return _right_solve(a, jnp.linalg.cholesky(gram).T)


def _right_solve(a: Array, upper: Array) -> Array:
    return jax.lax.linalg.triangular_solve(upper, a, left_side=False, lower=False)
