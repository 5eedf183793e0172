"""Packing results beside what they are held against: bounds, constructions, published values and predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repcap_jax.capacity import PackingGrid, best_construction, coherence_bound
from repcap_jax.reports.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class CellResult:
    """What was reached in one cell, and what it is held against.

    Attributes:
      kind: `"optimised"` or `"random"`.
      k, d: number of vectors and dimension.
      epsilon: coherence reached.
      bound, bound_name: no arrangement has a smaller coherence.
      construction, construction_name: coherence of the best explicit arrangement; `None` and "" if there is none.
      published: the published value; `None` if there is none.
      predicted: of a random cell, what extreme-value theory says.
      record: the record of the sweep; empty for a grid from a file.
    """

    kind: str
    k: int
    d: int
    epsilon: float
    bound: float
    bound_name: str
    construction: float | None
    construction_name: str
    published: float | None = None
    predicted: float | None = None
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """k / d."""
        return self.k / self.d

    @property
    def signed(self) -> bool:
        """Whether epsilon is the largest cosine of points, not the largest |cos| of lines."""
        return self.record.get("objective") == "codes"

    @property
    def scaled(self) -> float:
        """epsilon sqrt(d), which is near 1 for any good packing of a few times d lines."""
        return self.epsilon * self.d**0.5


@dataclasses.dataclass(frozen=True)
class DescentHistory:
    """The steps of one cell's winning start."""

    title: str
    step: np.ndarray
    smooth_maximum: np.ndarray
    coherence: np.ndarray
    p: np.ndarray
    bound: float


def sweep_results(
    workdir: Workdir, published: Mapping[str, PackingGrid] | None = None
) -> tuple[list[CellResult], list[str]]:
    """The finished cells of a packing sweep by kind, d and k, and a sentence for each cell that failed.

    Of random cells of one size, the one with the most draws.
    """
    done = {}
    for record in sorted(workdir.records(), key=lambda record: record.get("trials") or 0):
        if record["status"] == "done":
            done[record["kind"], record["d"], record["k"]] = record
    failed = [record for record in workdir.records() if record["status"] == "failed"]
    results = [_from_record(record, published or {}) for record in done.values()]
    results.sort(key=lambda cell: (cell.kind, cell.d, cell.k))
    return results, [f"{record['key']} failed: {record['error']['message']}" for record in failed]


def grid_results(grid: PackingGrid, published: PackingGrid | None = None, kind: str = "optimised") -> list[CellResult]:
    """The cells of a grid of lines by d and k; of several of one size the best is kept.

    Cells whose k or d is no whole number cannot be held against bounds and are left out.
    """
    whole = {(int(k), int(d)) for k, d, _ in grid.cells if k == int(k) >= 2 and d == int(d) >= 2}
    return [
        _held_against(kind, k, d, grid.at(k, d) or 0.0, published=None if published is None else published.at(k, d))
        for k, d in sorted(whole, key=lambda cell: (cell[1], cell[0]))
    ]


def _held_against(kind: str, k: int, d: int, epsilon: float, **more: Any) -> CellResult:
    bound, construction = coherence_bound(k, d), best_construction(k, d)
    built, name = (None, "") if construction is None else (construction.coherence, construction.name)
    return CellResult(kind, k, d, epsilon, bound.value, bound.name, built, name, **more)


def _from_record(record: Mapping[str, Any], published: Mapping[str, PackingGrid]) -> CellResult:
    kind, k, d = record["kind"], record["k"], record["d"]
    grid = published.get(kind)
    known = None if grid is None else grid.at(k, d)
    if record.get("objective") == "codes":  # the catalogue, its bounds and published grids are about lines
        bound = record["bound"], record["bound_name"]
        return CellResult(kind, k, d, record["epsilon"], *bound, None, "", None, None, record)
    predicted = record.get("predicted")
    return _held_against(kind, k, d, record["epsilon"], published=known, predicted=predicted, record=record)


def descent_histories(workdir: Workdir, results: Sequence[CellResult], most: int = 6) -> list[DescentHistory]:
    """The histories of some cells, spread over the sizes of the sweep; those whose file is missing are left out."""
    told = [cell for cell in results if cell.record.get("history")]
    told.sort(key=lambda cell: (cell.d, cell.k))
    places = np.unique(np.linspace(0, len(told) - 1, min(most, len(told))).round().astype(int))
    found = []
    for cell in (told[place] for place in places):
        try:
            arrays = workdir.load_arrays(cell.record["history"])
        except ValueError:
            continue
        fields = {name: arrays[name] for name in ("step", "smooth_maximum", "coherence", "p")}
        found.append(DescentHistory(f"d = {cell.d}, k = {cell.k:,}", bound=cell.bound, **fields))
    return found


def grid_of(results: Sequence[CellResult], kind: str, source: str) -> PackingGrid | None:
    """The cells of lines of one kind as a grid, for `load_grid` to read again; `None` if there is none."""
    rows = [[cell.k, cell.d, cell.epsilon] for cell in results if cell.kind == kind and not cell.signed]
    return PackingGrid(rows, source) if rows else None
