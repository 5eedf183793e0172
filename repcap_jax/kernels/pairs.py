"""Fold reducers over the cosines of all pairs of rows, tile by tile, on one device or many, in one walk.

    reduce over i < j   of   <x_i, x_j> / (|x_i| |x_j|)          (symmetric: rows of x with rows of x)
    reduce over all i, j of  <x_i, y_j> / (|x_i| |y_j|)          (rectangular: rows of x with rows of y)

The matrix of cosines is never formed; a tile of it exists at a time. Three levels, each with one job:

  slabs    parts of the matrix that fit device memory. Usually one; otherwise pairs of slabs are streamed from the host.
  ring     each device owns a shard of the slab and meets the other shards as they are passed round with ppermute. In a
           symmetric walk half a turn suffices, since the pair of shards (a, b) is met once; with an even number of
           devices the last half step is shared, each of the two devices taking half of the rows.
  tiles    two nested loops over a pair of shards; only tiles on or above the diagonal when a shard meets itself.

Every loop bound is a traced scalar, so one compiled program serves all matrices of a size bucket.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from repcap_jax.kernels.placement import (
    AXIS,
    Placed,
    Slab,
    check_matrix,
    device_dtype,
    excluded_rows,
    place,
    rows_mesh,
)
from repcap_jax.kernels.precision import products, resolve_precision, unit_rows
from repcap_jax.kernels.reducers import Extent, Histogram, HistogramResult, NearestNeighbours, Neighbours, Reducer, Tile

Progress = Callable[[int, int], None]  # pairs done, pairs in all

_MIN_TILE, _MAX_TILE = 128, 8192


class FoldResult(NamedTuple):
    """What a walk found.

    Attributes:
      results: one result for each reducer, in their order.
      n_pairs: pairs of usable rows that were met.
      excluded_rows: row numbers of `x` left out because they are zero or not finite.
      excluded_columns: the same for `y`; equal to `excluded_rows` in a symmetric walk.
      tile: tile size used.
      precision: matrix-product precision used.
      devices: number of devices used.
    """

    results: tuple[Any, ...]
    n_pairs: int
    excluded_rows: np.ndarray
    excluded_columns: np.ndarray
    tile: int
    precision: str
    devices: int


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
      mesh: devices to share the work (their order and shape do not matter); `None` for the default device.
      precision: `"highest"` (float32, the default), `"high"` or `"default"`; see `precision.py`.
      device_bytes: memory that may hold rows on each device; `None` asks the device. A larger matrix is streamed.
      progress: called as `progress(pairs_done, pairs_total)` while the walk goes on.
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
    reducers = tuple(reducers)
    for reducer in reducers:
        if not isinstance(reducer, Reducer):
            raise TypeError(f"a reducer needs start, update, merge and finish, got {reducer!r}")
    if not reducers:
        raise ValueError("give at least one reducer; there is nothing to compute")

    mesh = rows_mesh(mesh)
    longest = max(len(x), 0 if y_matrix is None else len(y_matrix))
    plan = _Plan(
        mesh=mesh,
        tile=_choose_tile(tile, math.ceil(longest / mesh.size), mesh),
        precision=resolve_precision(precision),
        symmetric=y is None,
    )
    walk = _Walk(x, x if y_matrix is None else y_matrix, reducers, plan, device_bytes, progress)
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


# --- the compiled part ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What a compiled program depends on beside shapes and reducers."""

    mesh: Mesh
    tile: int
    precision: str
    symmetric: bool


class _Span(NamedTuple):
    """Traced scalars of one call: where the slabs lie, the ring step, and the tile rows to do."""

    own_start: Int[Array, ""]
    own_count: Int[Array, ""]
    own_per_shard: Int[Array, ""]
    met_start: Int[Array, ""]
    met_count: Int[Array, ""]
    met_per_shard: Int[Array, ""]
    step: Int[Array, ""]
    first: Int[Array, ""]
    last: Int[Array, ""]
    same_slab: Int[Array, ""]


def _shard_range(start: Array, count: Array, per_shard: Array, shard: Array) -> tuple[Array, Array]:
    """First row number of a shard, and how many rows it has."""
    return start + shard * per_shard, jnp.clip(count - shard * per_shard, 0, per_shard)


def _take_tile(rows: Placed, block: Array, tile: int) -> tuple[Array, Array]:
    """A tile of unit rows, and which of them are usable."""
    values = jax.lax.dynamic_slice_in_dim(rows.values, block * tile, tile)
    scales = jax.lax.dynamic_slice_in_dim(rows.scales, block * tile, tile)
    return unit_rows(values, scales), scales > 0


def _fold_shards(states: Any, own: Placed, met: Placed, span: _Span, reducers: tuple[Reducer, ...], plan: _Plan) -> Any:
    """One device's part of a ring step: tiles of its own shard against the shard it has met."""
    tile, devices = plan.tile, plan.mesh.size
    shard = jax.lax.axis_index(AXIS)
    own_start, own_rows = _shard_range(span.own_start, span.own_count, span.own_per_shard, shard)
    other = (shard + span.step) % devices
    met_start, met_rows = _shard_range(span.met_start, span.met_count, span.met_per_shard, other)
    row_tiles, col_tiles = -(-own_rows // tile), -(-met_rows // tile)

    same_slab = span.same_slab == 1
    itself = same_slab & (span.step == 0)
    # In the last half step of an even ring both devices hold the same pair of shards: the lower one takes the upper
    # half of its own tile rows, the higher one the rest, which are columns to it.
    shared = same_slab & (2 * span.step == devices)
    lower = shard < other
    half = (jnp.where(lower, row_tiles, col_tiles) + 1) // 2
    row_end = jnp.minimum(span.last, jnp.where(shared & lower, half, row_tiles))
    col_begin = jnp.where(shared & ~lower, half, 0)
    local_row = jax.lax.broadcasted_iota(jnp.int32, (tile, tile), 0)
    local_col = jax.lax.broadcasted_iota(jnp.int32, (tile, tile), 1)

    def over_rows(i: Array, states: Any) -> Any:
        rows, row_usable = _take_tile(own, i, tile)

        def over_cols(j: Array, states: Any) -> Any:
            cols, col_usable = _take_tile(met, j, tile)
            mask = row_usable[:, None] & col_usable[None, :]
            mask &= (local_row < local_col) | ~(itself & (i == j))
            # Rounding can carry a cosine past one, and out of the last bin.
            cosines = jnp.clip(products(rows, cols, plan.precision), -1.0, 1.0)
            met_tile = Tile(cosines, mask, own_start + i * tile, met_start + j * tile, plan.symmetric)
            return tuple(reducer.update(state, met_tile) for reducer, state in zip(reducers, states))

        return jax.lax.fori_loop(jnp.where(itself, i, col_begin), col_tiles, over_cols, states)

    return jax.lax.fori_loop(span.first, row_end, over_rows, states)


@functools.partial(jax.jit, static_argnames=("reducers", "plan"), donate_argnames="states")
def _fold(states: Any, own: Placed, met: Placed, span: _Span, *, reducers: tuple[Reducer, ...], plan: _Plan) -> Any:
    def local(states: Any, own: Placed, met: Placed, span: _Span) -> Any:
        mine = jax.tree.map(lambda leaf: leaf[0], states)
        mine = _fold_shards(mine, own, met, span, reducers, plan)
        return jax.tree.map(lambda leaf: leaf[None], mine)

    return jax.shard_map(
        local, mesh=plan.mesh, in_specs=(P(AXIS), P(AXIS), P(AXIS), P()), out_specs=P(AXIS), check_vma=False
    )(states, own, met, span)


@functools.partial(jax.jit, static_argnames="mesh")
def _rotate(met: Placed, *, mesh: Mesh) -> Placed:
    """Pass the met shards on, so that device r holds what device r + 1 held."""
    passes = [((r + 1) % mesh.size, r) for r in range(mesh.size)]
    return jax.shard_map(
        lambda rows: jax.tree.map(lambda leaf: jax.lax.ppermute(leaf, AXIS, passes), rows),
        mesh=mesh,
        in_specs=P(AXIS),
        out_specs=P(AXIS),
        check_vma=False,
    )(met)


@functools.partial(jax.jit, static_argnames=("reducers", "extent", "mesh"))
def _start(*, reducers: tuple[Reducer, ...], extent: Extent, mesh: Mesh) -> Any:
    def local() -> Any:
        return jax.tree.map(lambda leaf: leaf[None], tuple(reducer.start(extent) for reducer in reducers))

    return jax.shard_map(local, mesh=mesh, in_specs=(), out_specs=P(AXIS), check_vma=False)()


@functools.partial(jax.jit, static_argnames=("reducers", "mesh"))
def _merge(states: Any, *, reducers: tuple[Reducer, ...], mesh: Mesh) -> Any:
    """Join the devices' partial results; every device (and process) ends with the whole."""

    def local(states: Any) -> Any:
        gathered = jax.lax.all_gather(jax.tree.map(lambda leaf: leaf[0], states), AXIS)
        return tuple(_merge_all(reducer, state, mesh.size) for reducer, state in zip(reducers, gathered))

    return jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False)(states)


def _merge_all(reducer: Reducer, stacked: Any, devices: int) -> Any:
    def pick(device: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[device], stacked)

    return jax.lax.fori_loop(1, devices, lambda device, whole: reducer.merge(whole, pick(device)), pick(0))


# --- the schedule -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Walk:
    """The host's side: places slabs, runs the ring, reports progress."""

    x: np.ndarray
    y: np.ndarray
    reducers: tuple[Reducer, ...]
    plan: _Plan
    device_bytes: int | None
    progress: Progress | None

    def run(self) -> FoldResult:
        plan, mesh = self.plan, self.plan.mesh
        self.size = _shard_size(self.x, self.y, plan, self.device_bytes)
        row_slabs, col_slabs = self._slabs(len(self.x)), self._slabs(len(self.y))
        rows = max(len(slabs) for slabs in (row_slabs, col_slabs)) * self.size * mesh.size + plan.tile
        states = _start(reducers=self.reducers, extent=Extent(rows, plan.symmetric), mesh=mesh)

        self.done, self.total = 0, _pair_count(len(self.x), len(self.y), plan.symmetric)
        excluded: dict[bool, dict[int, np.ndarray]] = {True: {}, False: {}}
        for p, row_slab in enumerate(row_slabs):
            own = self._place(self.x, row_slab, excluded[True], p)
            for q, col_slab in enumerate(col_slabs):
                if plan.symmetric and q < p:
                    continue
                same = plan.symmetric and p == q
                met = own if same else self._place(self.y, col_slab, excluded[False], q)
                states = self._meet(states, own, met, row_slab, col_slab, same)
            del own, met
        if mesh.size == 1:
            states = jax.tree.map(lambda leaf: leaf[0], states)
        else:
            states = _merge(states, reducers=self.reducers, mesh=mesh)
        return self._result(jax.device_get(states), excluded)

    def _slabs(self, rows: int) -> list[Slab]:
        """Equal parts of the rows, each dealt evenly over the devices."""
        parts = math.ceil(rows / (self.size * self.plan.mesh.size))
        each = math.ceil(rows / parts)
        return [
            Slab(start, min(each, rows - start), math.ceil(min(each, rows - start) / self.plan.mesh.size))
            for start in range(0, rows, each)
        ]

    def _place(self, matrix: np.ndarray, slab: Slab, excluded: dict[int, np.ndarray], number: int) -> Placed:
        placed = place(matrix, slab, self.size, self.plan.mesh)
        if number not in excluded:
            excluded[number] = excluded_rows(placed, slab, self.plan.mesh)
        return placed

    def _meet(self, states: Any, own: Placed, met: Placed, row_slab: Slab, col_slab: Slab, same: bool) -> Any:
        """All pairs of two slabs: one turn of the ring, or half a turn when they are the same."""
        devices = self.plan.mesh.size
        before, pairs = self.done, _pair_count(row_slab.count, col_slab.count, same)
        calls = list(self._calls(row_slab, devices // 2 + 1 if same else devices))
        for number, (step, first, last) in enumerate(calls, start=1):
            if step > 0 and first == 0:
                met = _rotate(met, mesh=self.plan.mesh)
            span = _Span(
                *(row_slab.start, row_slab.count, row_slab.per_shard),
                *(col_slab.start, col_slab.count, col_slab.per_shard),
                *(step, first, last, int(same)),
            )
            span = _Span(*(np.int32(value) for value in span))
            states = _fold(states, own, met, span, reducers=self.reducers, plan=self.plan)
            if self.progress is not None:
                jax.block_until_ready(states)
                self.done = before + int(pairs * _share_done(calls[:number], calls, same))
                self.progress(self.done, self.total)
        self.done = before + pairs
        return states

    def _calls(self, slab: Slab, steps: int) -> Iterator[tuple[int, int, int]]:
        """Ring step and range of tile rows of each call; without a progress report one call does a whole step."""
        tiles = math.ceil(slab.per_shard / self.plan.tile)
        chunk = tiles if self.progress is None else max(1, math.ceil(tiles / 32))
        for step in range(steps):
            for first in range(0, tiles, chunk):
                yield step, first, min(first + chunk, tiles)

    def _result(self, states: Any, excluded: dict[bool, dict[int, np.ndarray]]) -> FoldResult:
        def joined(parts: dict[int, np.ndarray]) -> np.ndarray:
            return np.concatenate([parts[number] for number in sorted(parts)])

        rows = joined(excluded[True])
        columns = rows if self.plan.symmetric else joined(excluded[False])
        usable_rows, usable_columns = len(self.x) - len(rows), len(self.y) - len(columns)
        return FoldResult(
            results=tuple(
                reducer.finish(state, len(self.x)) for reducer, state in zip(self.reducers, states, strict=True)
            ),
            n_pairs=_pair_count(usable_rows, usable_columns, self.plan.symmetric),
            excluded_rows=rows,
            excluded_columns=columns,
            tile=self.plan.tile,
            precision=self.plan.precision,
            devices=self.plan.mesh.size,
        )


def _pair_count(rows: int, columns: int, symmetric: bool) -> int:
    return rows * (rows - 1) // 2 if symmetric else rows * columns


def _share_done(done: list[tuple[int, int, int]], calls: list[tuple[int, int, int]], same: bool) -> float:
    """Share of the tiles in the calls done; a shard meeting itself has fewer tiles in its later rows."""
    tile_rows = max(last for _, _, last in calls)

    def tiles(call: tuple[int, int, int]) -> int:
        step, first, last = call
        triangle = same and step == 0
        return sum(tile_rows - row if triangle else tile_rows for row in range(first, last))

    return sum(map(tiles, done)) / sum(map(tiles, calls))


def _choose_tile(tile: int | None, rows: int, mesh: Mesh) -> int:
    if tile is None:
        # A CPU tile must stay in cache between the product and the count; accelerators want fewer, larger products.
        preferred = 512 if mesh.devices.flat[0].platform == "cpu" else 4096
        return int(np.clip(2 ** math.ceil(math.log2(rows)), _MIN_TILE, preferred))
    if isinstance(tile, bool) or tile != int(tile) or not _MIN_TILE <= tile <= _MAX_TILE or tile & (tile - 1):
        raise ValueError(f"tile must be a power of two from {_MIN_TILE} to {_MAX_TILE}, got {tile!r}")
    return int(tile)


def bucket(tiles: int) -> int:
    """The number of tiles rounded up to three bits after the leading one, so that sizes share compiled programs.

    At most an eighth is added: 1 .. 16, 18, 20, .. 32, 36, ..
    """
    step = 1 << max(0, tiles.bit_length() - 4)
    return -(-tiles // step) * step


def _shard_size(x: np.ndarray, y: np.ndarray, plan: _Plan, device_bytes: int | None) -> int:
    """Rows of a padded shard: the whole matrix dealt over the devices if that fits their memory, or a part of it."""
    per_shard = max(math.ceil(len(m) / plan.mesh.size) for m in (x, y))
    size = bucket(math.ceil(per_shard / plan.tile)) * plan.tile
    limit = _memory_limit(plan.mesh) if device_bytes is None else device_bytes
    if limit is None:
        return size
    row_bytes = max(m.shape[1] * device_dtype(m).itemsize + 4 for m in (x, y))
    # A shard that meets only itself is held once. Otherwise there are its own, the met one and the one on its way.
    copies = 1 if plan.symmetric and plan.mesh.size == 1 else 3
    if copies * size * row_bytes <= limit:
        return size
    fitting = int(limit // (3 * row_bytes * plan.tile))
    if fitting < 1:
        raise ValueError(
            f"{limit:,} bytes of device memory do not hold three tiles of {plan.tile} rows of {row_bytes:,} bytes; "
            "use a smaller tile or raise device_bytes"
        )
    return min(size, fitting * plan.tile)


def _memory_limit(mesh: Mesh) -> int | None:
    """Three quarters of what the smallest local device offers; None where the platform does not say (CPU)."""
    limits = [
        (device.memory_stats() or {}).get("bytes_limit")
        for device in mesh.devices.flat
        if device.process_index == jax.process_index()
    ]
    known = [limit for limit in limits if limit]
    return int(0.75 * min(known)) if known else None
