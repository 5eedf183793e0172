"""Inner products of all rows of a matrix with a few directions, a block of rows at a time."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.precision import PRECISIONS, resolve_precision, row_scales, unit_rows

_BLOCK = 4096


def project_rows(
    x: Any, directions: Any, *, unit: bool = False, precision: str | None = None
) -> Float32[np.ndarray, "n q"]:
    """Inner product of every row with every direction: `<x_i, c_j>`, or `<x_i, c_j> / |x_i|` where `unit`.

    Args:
      x: `(n, d)` matrix of any real dtype; it may be memory-mapped.
      directions: `(q, d)`, of any length.
      unit: divide by the length of the row, so that unit directions give cosines.
      precision: matrix-product precision, `"highest"` by default.
    Returns:
      `(n, q)` float32; NaN for rows that are zero or not finite.
    Raises:
      TypeError, ValueError: if they are no finite matrices of equally long rows.
    """
    x, directions = check_matrix(x), check_matrix(directions, "directions")
    precision = resolve_precision(precision)
    if x.shape[1] != directions.shape[1]:
        raise ValueError(f"rows and directions must be equally long, got {x.shape} and {directions.shape}")
    with np.errstate(over="ignore"):
        factors = np.asarray(directions).astype(np.float32)
    if not np.isfinite(factors).all():
        raise ValueError("directions hold entries that are NaN, infinite or beyond float32; a projection needs others")
    out = np.empty((len(x), len(directions)), np.float32)
    for start in range(0, len(x), _BLOCK):
        rows = np.asarray(x[start : start + _BLOCK])
        block = np.zeros((min(_BLOCK, len(x)), x.shape[1]), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            block[: len(rows)] = rows
        out[start : start + len(rows)] = _projected(block, factors, unit, precision)[: len(rows)]
    return out


@functools.partial(jax.jit, static_argnames=("unit", "precision"))
def _projected(block: Float[Array, "r d"], factors: Float[Array, "q d"], unit: bool, precision: str) -> Array:
    scales = row_scales(block)
    usable = scales[:, None] > 0
    rows = unit_rows(block, scales) if unit else jnp.where(usable, block, 0.0)
    products = jax.lax.dot_general(rows, factors, (((1,), (1,)), ((), ())), precision=PRECISIONS[precision])
    return jnp.where(usable, products, jnp.nan)
