"""Average ranks and Spearman's correlation on device: one side ranked once, many sides correlated with it.

With N values a side, u_i the average rank of a_i less (N + 1) / 2, and w_i the same of b_i,

    rho = sum_i u_i w_i / sqrt(sum_i u_i^2  sum_i w_i^2).

Two ways to the sums on b's side:

  sort    exact. Sort the values; a value's average rank is half way through its run, found by bisection.
  binned  count the values in 65,536 equal bins between their least and largest, and give all of a bin its middle rank
          w_b. Then sum u w = sum_b w_b U_b, where U_b is the sum of u over the bin: two scatters, no sort, no gather.

What the bins lose is the order inside them. With c_b values in bin b and delta = sum_b (c_b^3 - c_b) / N^3 less what
the ties of a contribute, rho is off by up to delta / 2 where a and b rise together inside the bins, and by about
sqrt(delta / N) at random. Both are known once the bins are counted, so that `auto` keeps the bins where they are good
for 5e-7 and sorts where they are not: values in clusters, ties that a does not share, few values. It decides on the
host, between two programs: a branch inside the first would copy the values, and be compiled though rarely taken.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

BINS = 1 << 16
METHODS = ("auto", "sort", "binned")
Method = Literal["auto", "sort", "binned"]

TOLERATED = 5e-7  # error of rho up to which `auto` keeps the bins
_MOST_VALUES = 1 << 24  # positions and dense ranks are exact in float32
_BLOCK = 1024  # entries summed in float32 before float64 takes over on the host
_HALF_ULP = 2.0**-25
_FAN = 16  # BINS is a power of it


class Ranked(NamedTuple):
    """The side that is ranked once.

    Attributes:
      centred: average rank less (N + 1) / 2.
      squares: partial sums of its squares, to be finished in float64.
      tied: sum of t^3 - t over its runs of t equal values.
    """

    centred: Float[Array, " p"]
    squares: Float[Array, " s"]
    tied: Float[Array, ""]


class Products(NamedTuple):
    """Partial sums of one correlation, to be finished in float64 on the host, and about how far rho may be off.

    Attributes:
      cross: partial sums of u w.
      squares: partial sums of w^2.
      loss: 0 from a sort.
    """

    cross: Float[Array, " s"]
    squares: Float[Array, " s"]
    loss: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Correlation:
    """Spearman's rho of one pair of sides, or of one side with each of several.

    `float(...)` and `numpy.asarray(...)` give rho itself.

    Attributes:
      rho: `()` or `(m,)` float64; NaN where a side is constant.
      methods: `"sort"` or `"binned"`, for each rho in turn: which way was taken.
      reasons: for each rho in turn, why it is NaN, or `None`.
    """

    rho: np.ndarray
    methods: tuple[str, ...]
    reasons: tuple[str | None, ...]

    @property
    def method(self) -> str:
        """The way taken, or `"binned+sort"` if both occur."""
        return "+".join(sorted(set(self.methods)))

    def __float__(self) -> float:
        return float(self.rho)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.rho, dtype=dtype)

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON: null and a reason for a constant side."""
        cells = [
            {"rho": None if reason else float(rho), "reason": reason, "method": method}
            for rho, reason, method in zip(np.atleast_1d(self.rho), self.reasons, self.methods)
        ]
        return cells[0] if self.rho.ndim == 0 else {"cells": cells}


def spearman(a: Any, b: Any, *, method: str = "auto") -> Correlation:
    """Spearman's rank correlation of one vector with another, or with each row of a matrix.

    The equation is at the head of this module; ties have their average rank, as in `scipy.stats.spearmanr`.

    Args:
      a: `(n,)` real numbers, at least two.
      b: `(n,)`, or `(m, n)` to correlate a with every row.
      method: `"sort"` (exact), `"binned"` (65,536 bins, whatever they lose), or `"auto"`: on CPUs the bins where their
        loss is below 5e-7 and a sort elsewhere; on accelerators, and for fewer than 65,536 entries, always the sort.
    Returns:
      Correlation. A constant side gives NaN with a reason for its cells alone.
    Raises:
      TypeError: for something that is not an array of real numbers.
      ValueError: for unequal lengths, fewer than two or more than 2^24 entries, NaN or infinite entries, an unknown
        method.
    """
    resolve_method(method, 0)  # refuses an unknown name before anything else
    a, b = _numbers(a, "a", (1,)), _numbers(b, "b", (1, 2))
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a and the rows of b must be equally long, got {a.shape} and {b.shape}")
    if not 2 <= a.size <= _MOST_VALUES:
        raise ValueError(f"a correlation needs 2 to {_MOST_VALUES:,} entries, got {a.size:,}")
    chosen = resolve_method(method, a.size)
    rows = np.atleast_2d(b)
    first, others = _as_float32(a[None])[0], _as_float32(rows)
    reasons = tuple(_reason(a, row) for row in rows)
    by_sort = np.full(len(rows), chosen == "sort")
    rho = np.empty(len(rows))
    if chosen != "sort":
        squares, products = _correlate(first, others, method="binned")
        rho[:] = finish(squares, products)
        if chosen == "auto":
            by_sort |= np.asarray(products.loss) > TOLERATED
    for number in np.flatnonzero(by_sort):
        rho[number] = finish(*_correlate(first, others[number : number + 1], method="sort"))[0]
    rho[[reason is not None for reason in reasons]] = np.nan
    methods = tuple("sort" if exact else "binned" for exact in by_sort)
    return Correlation(rho.reshape(b.shape[:-1]), methods, reasons)


def resolve_method(method: str, count: int, platform: str | None = None) -> str:
    """The method for `count` values on a platform, by default that of the first device.

    `"auto"` becomes `"sort"` on accelerators, where sorting is fast and scattering slow, and for fewer values than
    bins, which are then never good enough.

    Raises:
      ValueError: for an unknown name.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    scatters = (platform or jax.default_backend()) == "cpu" and count >= BINS
    return method if scatters or method != "auto" else "sort"


def finish(squares: Any, products: Products) -> np.ndarray:
    """rho in float64 from partial sums; NaN where a side does not vary.

    Args:
      squares: `(..., s)` partial sums of u^2, of a shape that broadcasts to that of the products.
      products: `(..., s)` each.
    """
    first, cross, second = (
        np.asarray(part, np.float64).sum(axis=-1) for part in (squares, products.cross, products.squares)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = cross / np.sqrt(first * second)
    # Rounding may carry a perfect correlation a little beyond one.
    return np.where(first * second > 0, np.clip(rho, -1.0, 1.0), np.nan)


def rank(values: Float[Array, " p"]) -> Ranked:
    """Rank one side exactly; float32 values without NaN."""
    centred, run = _sorted_ranks(values)
    extra = jnp.where(run > 1, (run - 1.0) * (run + 1.0), 0.0)  # t^2 - 1 for each of t members
    return Ranked(centred, _partial_sums(centred * centred), jnp.sum(_partial_sums(extra)))


def rank_products(values: Float[Array, " p"], against: Ranked, *, method: str) -> Products:
    """Rank `values` and correlate them with the side that is ranked already.

    Args:
      values: float32 without NaN.
      against: the other side, from `rank`.
      method: `"sort"` or `"binned"`; static.
    """
    if method == "binned":
        return _bin_products(values, against)
    centred, _ = _sorted_ranks(values)
    cross, squares = (_partial_sums(centred * other) for other in (against.centred, centred))
    return Products(cross, squares, jnp.zeros(()))


def _sorted_ranks(values: Array) -> tuple[Array, Array]:
    """Average rank less (N + 1) / 2 of each value, and the length of its run of equal values."""
    keys = _sortable(values)
    ordered = lax.sort(keys)
    position = jnp.arange(len(keys), dtype=jnp.int32)
    last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
    ends = lax.cummin(jnp.where(last, position + 1, jnp.int32(2**31 - 1)), reverse=True)
    first = jnp.searchsorted(ordered, keys).astype(jnp.int32)
    end = ends.at[first].get(mode="promise_in_bounds")
    # 0-based ranks first .. end - 1 have mean (first + end - 1) / 2, and all N of them (N - 1) / 2. Halves are exact.
    centred = (first + end - len(keys)).astype(jnp.float32) * 0.5
    return centred, (end - first).astype(jnp.float32)


def _sortable(values: Array) -> Array:
    """int32 keys in the order of the float32 values: integers sort several times faster. -0 becomes 0."""
    bits = lax.bitcast_convert_type(jnp.where(values == 0, 0.0, values), jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _bin_products(values: Array, against: Ranked) -> Products:
    index, n = _bin_numbers(values), len(values)
    # Counts stay below 2^24, where float32 is exact, and a scatter of floats takes half the time of one of integers.
    c = jnp.zeros(BINS, jnp.float32).at[index].add(1.0, mode="promise_in_bounds")
    sums = jnp.zeros(BINS, jnp.float32).at[index].add(against.centred, mode="promise_in_bounds")
    # A bin's middle rank is below + (c + 1) / 2, less (N + 1) / 2: halves, exact in float32 up to 2^23 values.
    middle = _running_sums(c) - 0.5 * c - 0.5 * n
    largest, cubes = jnp.max(c), jnp.sum(_partial_sums(c * (c * c - 1.0)))
    # 1e-6 of the cubes is more than their rounding, which must not hide behind ties.
    delta = jnp.maximum(cubes - against.tied, 1e-6 * cubes) / n / n / n
    rounding = _HALF_ULP * jnp.sqrt(largest) * largest / n  # of the largest bin's float32 sum
    loss = delta / 2 + 4 * jnp.sqrt(delta / n) + rounding
    return Products(_partial_sums(sums * middle), _partial_sums(c * middle * middle), loss)


def _bin_numbers(values: Array) -> Int[Array, " p"]:
    least, largest = jnp.min(values), jnp.max(values)
    width = largest - least
    scale = jnp.where(width > 0, BINS / jnp.where(width > 0, width, 1.0), 0.0)
    return jnp.clip(((values - least) * scale).astype(jnp.int32), 0, BINS - 1)


def _running_sums(counts: Array) -> Array:
    """Sums of the counts up to and including each bin, exact below 2^24, as small products: several times faster on a
    CPU than a scan."""
    upto = jnp.triu(jnp.ones((_FAN, _FAN), jnp.float32))
    rows = counts.reshape(-1, _FAN)
    within = lax.dot(rows, upto, precision=lax.Precision.HIGHEST)
    if len(rows) == 1:
        return within[0]
    before = _running_sums(within[:, -1])
    return (within + (before - within[:, -1])[:, None]).reshape(-1)


def _partial_sums(terms: Array) -> Array:
    """Sums of blocks of terms. A single float32 sum over millions of them would lose several digits."""
    return jnp.sum(jnp.pad(terms, (0, -len(terms) % _BLOCK)).reshape(-1, _BLOCK), axis=1)


@functools.partial(jax.jit, static_argnames="method")
def _correlate(a: Array, rows: Array, *, method: str) -> tuple[Array, Products]:
    ranked = rank(a)
    return ranked.squares, lax.map(lambda row: rank_products(row, ranked, method=method), rows)


def _numbers(x: Any, name: str, dimensions: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(x)
    if not (array.dtype.kind in "fiub" or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in dimensions or 0 in array.shape:
        shapes = " or ".join({1: "(n,)", 2: "(m, n)"}[count] for count in dimensions)
        raise ValueError(f"{name} must have shape {shapes}, got {array.shape}")
    array = array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16 and its relatives
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds {np.sum(~np.isfinite(array))} NaN or infinite entries, which have no rank")
    return array


def _as_float32(rows: np.ndarray) -> np.ndarray:
    """Rows in float32 with the order and the ties they have: as they are, or their dense ranks where float32 could
    not tell their values apart or their range overflows."""
    plain = rows.astype(np.float32)
    width = np.ptp(plain.astype(np.float64), axis=1)
    fits = np.all(plain.astype(rows.dtype) == rows) and np.all((width == 0) | ((width > 1e-30) & (width < 1e30)))
    fits &= np.all((plain == 0) | (np.abs(plain) >= np.finfo(np.float32).tiny))  # devices flush smaller ones to 0
    if fits:
        return plain
    return np.stack([np.unique(row, return_inverse=True)[1].reshape(-1) for row in rows]).astype(np.float32)


def _reason(a: np.ndarray, row: np.ndarray) -> str | None:
    for name, side in (("a", a), ("b", row)):
        if np.all(side == side[0]):
            return f"{name} is constant: all of its {side.size} entries are {side[0]}, so they have no order"
    return None
