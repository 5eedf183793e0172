"""Sweeps over counts and dimensions: which cells, cheap ones first, and how long each will take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from repcap_jax.kernels.checks import one_of, whole
from repcap_jax.packing.exact import known_best
from repcap_jax.packing.pack import default_starts, default_steps, is_polished

KINDS = ("optimised", "random")


class Cell(NamedTuple):
    """One cell of a grid.

    Attributes:
      kind: `"optimised"` (a packing) or `"random"` (the best of `trials` random draws).
      k: number of vectors.
      d: dimension.
      trials: random draws; 0 for a packing.
    """

    kind: str
    k: int
    d: int
    trials: int = 0

    @property
    def name(self) -> str:
        """What tells the cell from the others of a sweep."""
        draws = f" trials={self.trials}" if self.kind == "random" else ""
        return f"{self.kind} d={self.d} k={self.k}{draws}"


def grid_cells(
    kind: str,
    d_values: Iterable[int],
    *,
    k_values: Iterable[int] = (),
    ratios: Iterable[float | int] = (),
    trials: int = 0,
) -> list[Cell]:
    """The cells of a grid: every d with every k, and with every k = round(ratio d).

    Args:
      kind: `"optimised"` or `"random"`.
      d_values: dimensions, >= 2.
      k_values: numbers of vectors, >= 2.
      ratios: values of k / d, > 0; a k below 2 is raised to 2.
      trials: draws of a random cell, >= 1.
    Returns:
      Cells without repetitions.
    Raises:
      TypeError, ValueError: for values out of range, or a grid without cells.
    """
    one_of(kind, KINDS, "kind")
    trials = whole(trials, "trials", 1) if kind == "random" else 0
    d_values = [whole(d, "d", 2) for d in d_values]
    k_values = [whole(k, "k", 2) for k in k_values]
    ratios = list(ratios)
    if bad := [ratio for ratio in ratios if not (math.isfinite(ratio) and ratio > 0)]:
        raise ValueError(f"ratios k / d must be positive numbers, got {bad}")
    cells = [Cell(kind, k, d, trials) for d in d_values for k in k_values]
    cells += [Cell(kind, max(2, round(ratio * d)), d, trials) for d in d_values for ratio in ratios]
    if not cells:
        raise ValueError("the grid has no cells: give dimensions, and counts or ratios k / d")
    return list(dict.fromkeys(cells))


def cell_key(key: Array, cell: Cell) -> Array:
    """The random key of a cell, which does not depend on the other cells of its sweep."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, KINDS.index(cell.kind)), cell.d), cell.k)


def cell_work(cell: Cell, *, objective: str = "lines", steps: int | None = None, starts: int | None = None) -> float:
    """Arithmetic operations that a cell takes, roughly: what orders a sweep and what its times are estimated from.

    A step makes three products of 2 d operations for each of k^2 / 2 pairs and spends some 100 more on the rest; a
    draw makes one product. `None` for `steps` and `starts` means the choice of `pack`.
    """
    k, d = cell.k, cell.d
    if cell.kind == "random":
        return cell.trials * k * k * (d + 10.0)
    if known_best(k, d, objective) is not None:
        return 0.0
    starts = default_starts(k) if starts is None else starts
    steps = default_steps(k, d, starts) if steps is None else steps
    return float(steps * starts) * k * k * (3.0 * d + 100.0)


class TimeEstimate:
    """Seconds that cells will take, from the speed of a matrix product and then from the cells that were timed."""

    _COMPILE, _POLISH = 3.0, 8.0  # seconds that a cell takes beside its work

    def __init__(self) -> None:
        # Operations a second until the first cell of a kind has been timed.
        self._rates = dict.fromkeys(KINDS, 0.7 * _product_rate())

    def seconds(self, cell: Cell, work: float) -> float:
        """Seconds for a cell whose `cell_work` is `work`."""
        return self._beside(cell, work) + work / self._rates[cell.kind]

    def timed(self, cell: Cell, work: float, seconds: float) -> None:
        """Take note of what a cell took; later ones weigh more, because they are the larger ones."""
        beside = self._beside(cell, work)
        if work > 0 and seconds > 2 * beside:  # else its work is not what took the time
            self._rates[cell.kind] = math.sqrt(self._rates[cell.kind] * work / (seconds - beside))

    def _beside(self, cell: Cell, work: float) -> float:
        polished = cell.kind == "optimised" and work > 0 and is_polished(cell.k, cell.d)
        return self._COMPILE + (self._POLISH if polished else 0.0)


def _product_rate() -> float:
    """Operations a second of a float32 matrix product on the default device."""
    rows = jnp.ones((1024, 512))
    product = jax.jit(lambda x: jnp.matmul(x, x.T, precision="highest"))
    jax.block_until_ready(product(rows))
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(product(rows))
        best = min(best, time.perf_counter() - began)
    return 2.0 * 1024 * 1024 * 512 / best
