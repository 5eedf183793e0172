"""Mean and covariance of the rows of a tall matrix, streamed: d x d numbers whatever n."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.spectra import BLOCK_ROWS, block_gram


class RowCovariance(NamedTuple):
    """First and second moments of rows.

    Attributes:
      mean: `(d,)` float64.
      covariance: `(d, d)` float64, symmetric, population form (divided by the number of rows).
      n_rows: rows that took part.
      excluded_rows: numbers of the rows left out because they are zero or not finite.
    """

    mean: Float64[np.ndarray, " d"]
    covariance: Float64[np.ndarray, "d d"]
    n_rows: int
    excluded_rows: np.ndarray


def row_covariance(x: Any) -> RowCovariance:
    """`Cov = (1/n) sum_i (x_i - m)(x_i - m)^T` over the usable rows, a block of rows at a time.

    The mean is taken away in float64 before the device multiplies in float32, so that the common direction of an
    unembedding, by far its longest, does not drown the others.

    Args:
      x: `(n, d)` matrix of any real dtype; it may be memory-mapped.
    Returns:
      RowCovariance.
    Raises:
      TypeError: if x is not a real-valued array.
      ValueError: if it is not a matrix, or fewer than two of its rows are usable.
    """
    x = check_matrix(x)
    n, d = x.shape
    total, largest, excluded = np.zeros(d), 0.0, []
    for start in range(0, n, BLOCK_ROWS):
        rows, usable = _usable(x[start : start + BLOCK_ROWS])
        total += rows[usable].sum(axis=0)
        largest = max(largest, np.abs(rows[usable]).max(initial=0.0))
        excluded.append(start + np.flatnonzero(~usable))
    left_out = np.concatenate(excluded)
    count = n - len(left_out)
    if count < 2:
        raise ValueError(f"a covariance needs at least two usable rows, got {count} of {n} (zero or not finite)")
    mean, covariance = total / count, np.zeros((d, d))
    for start in range(0, n, BLOCK_ROWS):
        rows, usable = _usable(x[start : start + BLOCK_ROWS])
        block = np.zeros((min(BLOCK_ROWS, n), d), np.float32)
        # Without the division squares of float32 would overflow or vanish.
        block[: len(rows)][usable] = (rows[usable] - mean) / largest
        covariance += np.asarray(block_gram(block), np.float64)
    covariance *= largest**2 / count
    return RowCovariance(mean, (covariance + covariance.T) / 2, count, left_out)


def _usable(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(block).astype(np.float64)
    return rows, np.isfinite(rows).all(axis=1) & rows.any(axis=1)
