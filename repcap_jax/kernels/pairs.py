"""Reducers folded over the cosines of all pairs of rows, in one walk: the front doors.

    reduce over i < j   of   <x_i, x_j> / (|x_i| |x_j|)          (symmetric: rows of x with rows of x)
    reduce over all i, j of  <x_i, y_j> / (|x_i| |y_j|)          (rectangular: rows of x with rows of y)

The matrix of cosines is never formed. `walk.py` says how the pairs are met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

from repcap_jax.kernels.placement import check_matrix, rows_mesh
from repcap_jax.kernels.precision import resolve_precision
from repcap_jax.kernels.reducers import Histogram, HistogramResult, NearestNeighbours, Neighbours, Reducer
from repcap_jax.kernels.walk import FoldResult, Plan, Progress, Walk, choose_tile

__all__ = ["FoldResult", "Progress", "fold_pairs", "nearest_neighbours", "pair_histogram"]


def fold_pairs(
    x: Any,
    reducers: Sequence[Reducer],
    *,
    y: Any = None,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    device_bytes: int | None = None,
    progress: Progress | None = None,
) -> FoldResult:
    """Fold `reducers` over the cosines of all pairs of rows in one walk.

    Rows of zero norm and rows with NaN or infinite entries take no part; their numbers are returned.

    Args:
      x: `(n, d)` matrix of any real dtype: NumPy, memory-mapped, bfloat16 or a JAX array. 16-bit floats stay 16-bit on
        the device; products are accumulated in float32.
      reducers: what to compute, see `reducers.py`.
      y: `(m, d)` for a rectangular walk of x against y; `None` for the pairs `i < j` of x.
      tile: rows and columns of a tile, a power of two from 128 to 8,192; `None` chooses by platform.
      mesh: devices to share the work (their order and shape do not matter), for instance `rc.device_mesh()`; `None`
        for the first local device alone. With several, each holds up to three shards of the rows.
      precision: `"highest"` (float32, the default), `"high"` or `"default"`; see `precision.py`.
      device_bytes: memory that may hold rows on each device; `None` asks the device. A larger matrix is streamed.
      progress: called as `progress(pairs_done, pairs_total)` while the walk goes on. Of several processes all give one
        or none does, since it splits the walk into more steps.
    Returns:
      FoldResult.
    Raises:
      TypeError: if x or y is not a real-valued array, or a reducer lacks one of its four functions.
      ValueError: for a wrong shape, tile, precision or memory limit.
    """
    x = check_matrix(x)
    y_matrix = None if y is None else check_matrix(y, "y")
    if y_matrix is not None and x.shape[1] != y_matrix.shape[1]:
        raise ValueError(f"x and y must have equally long rows, got {x.shape} and {y_matrix.shape}")
    reducers = _check_reducers(reducers)

    mesh = rows_mesh(mesh)
    longest = max(len(x), 0 if y_matrix is None else len(y_matrix))
    plan = Plan(
        mesh=mesh,
        tile=choose_tile(tile, math.ceil(longest / mesh.size), mesh),
        precision=resolve_precision(precision),
        symmetric=y is None,
    )
    walk = Walk(x, x if y_matrix is None else y_matrix, reducers, plan, device_bytes, progress)
    return walk.run()


def pair_histogram(
    x: Any,
    y: Any = None,
    *,
    bins: int = 2000,
    range: tuple[float, float] = (-1.0, 1.0),
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
) -> HistogramResult:
    """Exact histogram of all pairwise cosines: `counts[b]` pairs have a cosine in bin `b`.

    Args:
      x: `(n, d)`; the pairs are `i < j`, each once.
      y: `(m, d)`; if given, all `n m` pairs of a row of x and a row of y.
      bins, range: as in `numpy.histogram`: right-open bins, the last one closed, values outside the range not counted.
      tile, mesh, precision: see `fold_pairs`.
    Returns:
      `(counts, edges)`: int64 `(bins,)` and float64 `(bins + 1,)`.
    Raises:
      TypeError, ValueError: see `fold_pairs` and `Histogram`.
    """
    histogram = Histogram(bins, range)
    return fold_pairs(x, [histogram], y=y, tile=tile, mesh=mesh, precision=precision).results[0]


def nearest_neighbours(
    x: Any,
    y: Any = None,
    *,
    count: int = 1,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
) -> Neighbours:
    """The `count` rows of largest cosine for each row of x, among the other rows of x or among the rows of y.

    Ties go to the lowest row number, and a row is never its own neighbour.

    Args:
      x: `(n, d)`.
      y: `(m, d)` or `None`.
      count: neighbours for each row.
      tile, mesh, precision: see `fold_pairs`.
    Returns:
      `(ids, cosines)`, both `(n, count)`; -1 and NaN where a row has no (further) neighbour or is excluded.
    Raises:
      TypeError, ValueError: see `fold_pairs` and `NearestNeighbours`.
    """
    neighbours = NearestNeighbours(count)
    return fold_pairs(x, [neighbours], y=y, tile=tile, mesh=mesh, precision=precision).results[0]


def _check_reducers(reducers: Sequence[Reducer]) -> tuple[Reducer, ...]:
    given = tuple(reducers)
    if not given:
        raise ValueError("give at least one reducer; there is nothing to compute")
    for reducer in given:
        if isinstance(reducer, type):
            raise TypeError(f"give a reducer, not its class: {reducer.__name__}()")
        if not isinstance(reducer, Reducer) or reducer.__hash__ is None:
            raise TypeError(f"a reducer is hashable and has start, update, merge and finish, got {reducer!r}")
    return given
