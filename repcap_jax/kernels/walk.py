"""How all pairs of rows are met, tile by tile, on one device or many.

A tile of the matrix of cosines exists at a time. Three levels, each with one job:

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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from repcap_jax.kernels.placement import (
    AXIS,
    Placed,
    Slab,
    bucket,
    device_dtype,
    excluded_rows,
    place,
    ring_reduce,
    spans_processes,
)
from repcap_jax.kernels.precision import products, unit_rows
from repcap_jax.kernels.reducers import Extent, Reducer, Tile

Progress = Callable[[int, int], None]  # pairs done, pairs in all

_MIN_TILE, _MAX_TILE = 128, 8192
_STREAMED_COPIES = 4  # shards on a device while streaming: those three, and the next slab's as it is placed


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


# --- the compiled part ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
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


def _fold_shards(states: Any, own: Placed, met: Placed, span: _Span, reducers: tuple[Reducer, ...], plan: Plan) -> Any:
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
def _fold(states: Any, own: Placed, met: Placed, span: _Span, *, reducers: tuple[Reducer, ...], plan: Plan) -> Any:
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

    def merge(a: Any, b: Any) -> Any:
        return tuple(reducer.merge(*states) for reducer, *states in zip(reducers, a, b))

    def local(states: Any) -> Any:
        return ring_reduce(merge, jax.tree.map(lambda leaf: leaf[0], states), mesh.size)

    return jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False)(states)


# --- the schedule -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Walk:
    """The host's side: places slabs, runs the ring, reports progress."""

    x: np.ndarray
    y: np.ndarray
    reducers: tuple[Reducer, ...]
    plan: Plan
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
                # The met rows belong to the call alone: a name for them here would keep one more copy.
                states = self._meet(
                    *(states, own, None if same else self._place(self.y, col_slab, excluded[False], q)),
                    *(row_slab, col_slab),
                )
            del own
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

    def _meet(self, states: Any, own: Placed, other: Placed | None, row_slab: Slab, col_slab: Slab) -> Any:
        """All pairs of two slabs: a turn of the ring, or half a turn when there is no other and a slab meets itself."""
        devices, same = self.plan.mesh.size, other is None
        met = own if other is None else other
        del other
        before, pairs = self.done, _pair_count(row_slab.count, col_slab.count, same)
        calls = list(self._calls(row_slab, devices // 2 + 1 if same else devices))
        for number, (step, first, last) in enumerate(calls, start=1):
            if step > 0 and first == 0:
                # Passing on depends on no result, so it would run ahead and pile up copies.
                jax.block_until_ready(states)
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


def choose_tile(tile: int | None, rows: int, mesh: Mesh) -> int:
    if tile is None:
        # A CPU tile must stay in cache between the product and the count; accelerators want fewer, larger products.
        preferred = 512 if mesh.devices.flat[0].platform == "cpu" else 4096
        return int(np.clip(2 ** math.ceil(math.log2(rows)), _MIN_TILE, preferred))
    check_tile(tile)
    return int(tile)


def check_tile(tile: int | None) -> None:
    """Refuse a tile size that is neither `None` nor a power of two from 128 to 8,192, by a ValueError."""
    if tile is None:
        return
    if isinstance(tile, bool) or tile != int(tile) or not _MIN_TILE <= tile <= _MAX_TILE or int(tile) & (int(tile) - 1):
        raise ValueError(f"tile must be a power of two from {_MIN_TILE} to {_MAX_TILE:,}, got {tile!r}")


def _shard_size(x: np.ndarray, y: np.ndarray, plan: Plan, device_bytes: int | None) -> int:
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
    fitting = int(limit // (_STREAMED_COPIES * row_bytes * plan.tile))
    if fitting < 1:
        raise ValueError(
            f"{limit:,} bytes of device memory do not hold {_STREAMED_COPIES} tiles of {plan.tile} rows of "
            f"{row_bytes:,} bytes; use a smaller tile or raise device_bytes"
        )
    return min(size, fitting * plan.tile)


def _memory_limit(mesh: Mesh) -> int | None:
    """Three quarters of what the fullest device of any process has left; None where no platform says (CPU)."""
    free = [
        stats["bytes_limit"] - stats.get("bytes_in_use", 0)
        for stats in (device.memory_stats() or {} for device in mesh.local_devices)
        if stats.get("bytes_limit")
    ]
    least = min(free, default=-1)
    if spans_processes(mesh):
        # All processes must plan the same walk. Kilobytes fit 32 bits.
        everywhere = multihost_utils.process_allgather(np.asarray(least // 1024, np.int32))
        least = int(everywhere.min()) * 1024 if everywhere.min() >= 0 else -1
    return None if least < 0 else int(0.75 * least)
