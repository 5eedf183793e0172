"""What can be folded over all pairs of rows: histogram, nearest neighbours, extremes; and, in `listing.py`, pairs above
a threshold.

A reducer is a frozen dataclass (hashable, so that a compiled walk is reused) with four pure functions:

    start(extent)        -> state       an empty partial result
    update(state, tile)  -> state       one tile of cosines taken in
    merge(a, b)          -> state       two partial results of disjoint pairs joined
    finish(state, rows)  -> result      NumPy, on the host

The engine in `pairs.py` guarantees that each pair is unmasked in exactly one tile, so no reducer thinks about the
diagonal, padding, excluded rows or devices. Results do not depend on the order of tiles: counts are integers and ties
are broken by row number.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from repcap_jax.kernels.counting import Counter, CountingStrategy

NO_ID = np.iinfo(np.int32).max  # larger than any row number, so that a real one wins a tie


@dataclasses.dataclass(frozen=True)
class Extent:
    """Room a walk needs: `rows` is an upper bound of `n` that is the same for a whole size bucket."""

    rows: int
    symmetric: bool


@dataclasses.dataclass(frozen=True)
class Tile:
    """Cosines between `r` consecutive rows and `c` consecutive columns.

    Attributes:
      cosines: `(r, c)` float32 in [-1, 1].
      mask: `(r, c)`, True for the pairs to take in.
      row_start: row number of the tile's first row.
      col_start: row number of the tile's first column.
      symmetric: whether rows and columns number the same set, so that a pair concerns both of its members.
    """

    cosines: Float[Array, "r c"]
    mask: Bool[Array, "r c"]
    row_start: Int[Array, ""]
    col_start: Int[Array, ""]
    symmetric: bool

    def masked(self, fill: float) -> Float[Array, "r c"]:
        """The cosines, with `fill` where the mask is False."""
        return jnp.where(self.mask, self.cosines, fill)

    def pair_ids(self) -> tuple[Int[Array, "r c"], Int[Array, "r c"]]:
        """Row numbers `(i, j)` of each entry; `i < j` when symmetric, whichever side of the diagonal the tile is on."""
        rows = self.row_start + jax.lax.broadcasted_iota(jnp.int32, self.cosines.shape, 0)
        cols = self.col_start + jax.lax.broadcasted_iota(jnp.int32, self.cosines.shape, 1)
        if not self.symmetric:
            return rows, cols
        return jnp.minimum(rows, cols), jnp.maximum(rows, cols)


@runtime_checkable
class Reducer(Protocol):
    """The four functions above."""

    def start(self, extent: Extent) -> Any: ...
    def update(self, state: Any, tile: Tile) -> Any: ...
    def merge(self, a: Any, b: Any) -> Any: ...
    def finish(self, state: Any, rows: int) -> Any: ...


class HistogramResult(NamedTuple):
    """Exact bin counts.

    Attributes:
      counts: `(bins,)` int64.
      edges: `(bins + 1,)` float64.
    """

    counts: np.ndarray
    edges: np.ndarray


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Counts of cosines in equal bins, with NumPy's convention: bins `[e_b, e_{b+1})`, the last one closed.

    Cosines outside `range` are not counted, as in `numpy.histogram`.

    Args:
      bins: number of bins, 1 to 1,000,000.
      range: `(low, high)`, the outer edges.
      strategy: how to count; see `counting.Counter.count`.
    Raises:
      ValueError: for an impossible number of bins, range or strategy.
    """

    bins: int = 2000
    range: tuple[float, float] = (-1.0, 1.0)
    strategy: CountingStrategy = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int | np.integer) or not 1 <= self.bins <= 10**6:
            raise ValueError(f"bins must be a whole number from 1 to 1,000,000, got {self.bins!r}")
        try:
            low, high = (float(edge) for edge in self.range)
        except (TypeError, ValueError):
            raise ValueError(f"range must be two numbers (low, high), got {self.range!r}") from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"range must be finite with low < high, got {self.range!r}")
        if self.strategy not in ("auto", "scatter", "onehot"):
            raise ValueError(f"strategy must be 'auto', 'scatter' or 'onehot', got {self.strategy!r}")
        object.__setattr__(self, "bins", int(self.bins))
        object.__setattr__(self, "range", (low, high))

    def start(self, extent: Extent) -> Counter:
        return Counter.zeros((self.bins + 1,))  # the last one takes what is not to be counted

    def update(self, state: Counter, tile: Tile) -> Counter:
        low, high = self.range
        position = (tile.cosines - low) * (self.bins / (high - low))
        # Truncation is floor here: what is below `low` is left out, and `high` itself belongs to the last bin.
        index = jax.lax.clamp(0, position.astype(jnp.int32), self.bins - 1)
        inside = tile.mask
        if low > -1.0 or high < 1.0:
            inside &= (tile.cosines >= low) & (tile.cosines <= high)
        return state.count(jnp.where(inside, index, self.bins), self.strategy)

    def merge(self, a: Counter, b: Counter) -> Counter:
        return a.merge(b)

    def finish(self, state: Counter, rows: int) -> HistogramResult:
        return HistogramResult(state.total()[:-1], np.linspace(*self.range, self.bins + 1))


class Neighbours(NamedTuple):
    """Nearest rows by cosine.

    Attributes:
      ids: `(n, count)` int64 row numbers, nearest first; -1 where there is none.
      cosines: `(n, count)` float32; NaN where there is none.
    """

    ids: np.ndarray
    cosines: np.ndarray


class _Ranked(NamedTuple):
    """Best `count` candidates a row has met, in order of falling cosine, then rising row number."""

    cosines: Float[Array, "n count"]
    ids: Int[Array, "n count"]

    def insert(self, cosines: Float[Array, " n"], ids: Int[Array, " n"]) -> _Ranked:
        """One more candidate for each row, put in its place; the last of the list drops out."""
        ahead = (self.cosines > cosines[:, None]) | ((self.cosines == cosines[:, None]) & (self.ids < ids[:, None]))
        place = jnp.sum(ahead, axis=1, keepdims=True)
        column = jax.lax.broadcasted_iota(jnp.int32, self.ids.shape, 1)

        def put(old: Array, new: Array) -> Array:
            shifted = jnp.roll(old, 1, axis=1)
            return jnp.where(column < place, old, jnp.where(column == place, new[:, None], shifted))

        return _Ranked(put(self.cosines, cosines), put(self.ids, ids))


@dataclasses.dataclass(frozen=True)
class NearestNeighbours:
    """For each row the `count` other rows of largest cosine; ties go to the lowest row number.

    A row is never its own neighbour, by row number and not by position, so duplicated rows find each other.
    In a rectangular walk the neighbours of the rows of `x` are sought among the rows of `y`.

    Args:
      count: how many neighbours, 1 to 1,024.
      opposed: seek the smallest cosines instead.
    Raises:
      ValueError: for an impossible count.
    """

    count: int = 1
    opposed: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or not 1 <= self.count <= 1024:
            raise ValueError(f"count must be a whole number from 1 to 1,024, got {self.count!r}")
        object.__setattr__(self, "count", int(self.count))

    def start(self, extent: Extent) -> _Ranked:
        shape = (extent.rows, self.count)
        return _Ranked(jnp.full(shape, -jnp.inf, jnp.float32), jnp.full(shape, NO_ID, jnp.int32))

    def update(self, state: _Ranked, tile: Tile) -> _Ranked:
        cosines = jnp.where(tile.mask, -tile.cosines if self.opposed else tile.cosines, -jnp.inf)
        state = self._absorb(state, cosines, tile.row_start, tile.col_start, axis=1)
        if tile.symmetric:
            state = self._absorb(state, cosines, tile.col_start, tile.row_start, axis=0)
        return state

    def _absorb(self, state: _Ranked, cosines: Array, own_start: Array, other_start: Array, axis: int) -> _Ranked:
        """Take in the candidates along `axis` for the rows along the other one.

        A row's `count` best of this tile are drawn one at a time, and only while some row of the tile still has a
        candidate at least as good as the worst it keeps. After the first few tiles that is seldom, so the usual cost
        is one maximum over the tile.
        """
        size = cosines.shape[1 - axis]
        kept = _Ranked(*(jax.lax.dynamic_slice_in_dim(leaf, own_start, size) for leaf in state))
        other = other_start + jax.lax.broadcasted_iota(jnp.int32, cosines.shape, axis)

        def improves(best: Array, kept: _Ranked) -> Array:
            return jnp.any((best > -jnp.inf) & (best >= kept.cosines[:, -1]))

        def draw(best: Array, left: Array, kept: _Ranked) -> tuple[Array, _Ranked]:
            expanded = jnp.expand_dims(best, axis)
            ids = jnp.min(jnp.where(left == expanded, other, NO_ID), axis=axis)
            return ids, kept.insert(best, jnp.where(best > -jnp.inf, ids, NO_ID))

        best = jnp.max(cosines, axis=axis)
        if self.count == 1:
            kept = jax.lax.cond(improves(best, kept), lambda k: draw(best, cosines, k)[1], lambda k: k, kept)
        else:

            def another(carry: tuple) -> Array:
                drawn, best, _, kept = carry
                return (drawn < self.count) & improves(best, kept)

            def step(carry: tuple) -> tuple:
                drawn, best, left, kept = carry
                ids, kept = draw(best, left, kept)
                left = jnp.where(other == jnp.expand_dims(ids, axis), -jnp.inf, left)
                return drawn + 1, jnp.max(left, axis=axis), left, kept

            _, _, _, kept = jax.lax.while_loop(another, step, (0, best, cosines, kept))
        return _Ranked(
            *(jax.lax.dynamic_update_slice_in_dim(leaf, part, own_start, 0) for leaf, part in zip(state, kept))
        )

    def merge(self, a: _Ranked, b: _Ranked) -> _Ranked:
        return jax.lax.fori_loop(0, self.count, lambda c, ranked: ranked.insert(b.cosines[:, c], b.ids[:, c]), a)

    def finish(self, state: _Ranked, rows: int) -> Neighbours:
        cosines, ids = (np.asarray(leaf)[:rows] for leaf in state)
        found = ids != NO_ID
        sign = -1.0 if self.opposed else 1.0
        return Neighbours(
            np.where(found, ids, -1).astype(np.int64), np.where(found, np.float32(sign) * cosines, np.float32(np.nan))
        )


class ExtremePair(NamedTuple):
    """A pair of rows `(i, j)` and its cosine; `i = j = -1` and NaN when there was no pair."""

    cosine: float
    i: int
    j: int


class ExtremesResult(NamedTuple):
    """The pairs of largest and of smallest cosine."""

    largest: ExtremePair
    smallest: ExtremePair

    @property
    def coherence(self) -> float:
        """Largest absolute cosine."""
        return max(self.largest.cosine, -self.smallest.cosine)


class _Best(NamedTuple):
    cosine: Float[Array, ""]
    i: Int[Array, ""]
    j: Int[Array, ""]


def _better(a: _Best, b: _Best) -> _Best:
    """The larger cosine of two, or the lexicographically first pair."""
    first = (a.cosine > b.cosine) | ((a.cosine == b.cosine) & ((a.i < b.i) | ((a.i == b.i) & (a.j <= b.j))))
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)


def _tile_best(cosines: Array, tile: Tile) -> _Best:
    best = jnp.max(jnp.max(cosines, axis=1))
    i, j = tile.pair_ids()
    hits = cosines == best
    first = jnp.min(jnp.min(jnp.where(hits, i, NO_ID), axis=1))
    second = jnp.min(jnp.min(jnp.where(hits & (i == first), j, NO_ID), axis=1))
    return _Best(best, first, second)


@dataclasses.dataclass(frozen=True)
class Extremes:
    """The largest and the smallest cosine and the pairs that have them; ties go to the lexicographically first pair."""

    def start(self, extent: Extent) -> tuple[_Best, _Best]:
        none = _Best(jnp.float32(-jnp.inf), jnp.int32(NO_ID), jnp.int32(NO_ID))
        return none, none

    def update(self, state: tuple[_Best, _Best], tile: Tile) -> tuple[_Best, _Best]:
        def take(kept: _Best, cosines: Array) -> _Best:
            best = jnp.max(jnp.max(cosines, axis=1))
            wanted = (best > -jnp.inf) & (best >= kept.cosine)
            return jax.lax.cond(wanted, lambda k: _better(_tile_best(cosines, tile), k), lambda k: k, kept)

        largest, negated_smallest = state
        negated = jnp.where(tile.mask, -tile.cosines, -jnp.inf)
        return take(largest, tile.masked(-jnp.inf)), take(negated_smallest, negated)

    def merge(self, a: tuple[_Best, _Best], b: tuple[_Best, _Best]) -> tuple[_Best, _Best]:
        return _better(a[0], b[0]), _better(a[1], b[1])

    def finish(self, state: tuple[_Best, _Best], rows: int) -> ExtremesResult:
        def pair(best: _Best, sign: float) -> ExtremePair:
            if int(best.i) == NO_ID:
                return ExtremePair(float("nan"), -1, -1)
            return ExtremePair(sign * float(best.cosine), int(best.i), int(best.j))

        return ExtremesResult(pair(state[0], 1.0), pair(state[1], -1.0))
