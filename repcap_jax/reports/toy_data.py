"""Records and arrays of a study of toy models, in the form that its figures and table take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repcap_jax.reports.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class ToyCell:
    """One sparsity of a study.

    Attributes:
      record: what the experiment recorded.
      arrays: one entry an instance; empty where the file is missing.
    """

    record: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def sparsity(self) -> float:
        """S."""
        return self.record["sparsity"]

    @property
    def density(self) -> float:
        """1 - S."""
        return 1 - self.record["sparsity"]

    @property
    def activation(self) -> str:
        """Of the output."""
        return self.record["activation"]

    def best(self, name: str, which: int = 0) -> np.ndarray:
        """An array's entry for the best seed of one importance decay."""
        return self.arrays[name][self.record["best"][which]]

    def shapes(self, which: int = 0) -> list[str]:
        """Names of the polytopes that the best seed's features form, the largest cluster first."""
        return [cluster["shape"] for cluster in self.record["clusters"][which]]


@dataclasses.dataclass(frozen=True)
class ToyStudy:
    """A whole run.

    Attributes:
      geometry: cells of the geometry study, by activation (relu first) and sparsity.
      phases: cells of the phase diagrams by m, dense ones first.
      packings: by (k, m): the coherence that the packer reaches, for `"lines"` and `"codes"`.
      warnings: a sentence for each cell that failed or whose arrays are missing.
    """

    geometry: list[ToyCell]
    phases: dict[int, list[ToyCell]]
    packings: dict[tuple[int, int], Mapping[str, Any]]
    warnings: list[str]

    def of(self, activation: str) -> list[ToyCell]:
        """Geometry cells of one activation, by sparsity."""
        return [cell for cell in self.geometry if cell.activation == activation]


def read_study(workdir: Workdir) -> ToyStudy:
    """The finished cells of a workdir of `experiments.toy_superposition`."""
    records = workdir.records()
    warnings = [f"{r['key']} failed: {r['error']['message']}" for r in records if r["status"] == "failed"]
    geometry: list[ToyCell] = []
    phases: dict[int, list[ToyCell]] = {}
    packings = {}
    for record in (record for record in records if record["status"] == "done"):
        if record["study"] == "packing":
            packings[record["k"], record["m"]] = record
            continue
        try:
            arrays = workdir.load_arrays(record["arrays"])
        except ValueError as error:
            warnings.append(f"{record['key']}: {error}")
            continue
        cell = ToyCell(record, arrays)
        if record["study"] == "geometry":
            geometry.append(cell)
        else:
            phases.setdefault(record["m"], []).append(cell)
    geometry.sort(key=lambda cell: (cell.activation != "relu", cell.sparsity))
    for cells in phases.values():
        cells.sort(key=lambda cell: cell.sparsity)
    return ToyStudy(_one_size(geometry), phases, packings, warnings)


def spread(cells: Sequence[ToyCell], most: int) -> list[ToyCell]:
    """Up to `most` cells, evenly spread over their order."""
    if len(cells) <= most:
        return list(cells)
    return [cells[place] for place in np.linspace(0, len(cells) - 1, most).round().astype(int)]


def feature_order(cell: ToyCell, which: int = 0) -> np.ndarray:
    """Features by cluster, so that those which share dimensions lie side by side; unrepresented ones come last."""
    clustered = [number for cluster in cell.record["clusters"][which] for number in cluster["features"]]
    rest = [number for number in range(cell.record["n"]) if number not in clustered]
    return np.array([*clustered, *rest])


def _one_size(cells: list[ToyCell]) -> list[ToyCell]:
    """The cells of the size (n, m) that was recorded last: a workdir may hold several."""
    if not cells:
        return cells
    last = max(cells, key=lambda cell: cell.record.get("written", ""))
    size = last.record["n"], last.record["m"]
    return [cell for cell in cells if (cell.record["n"], cell.record["m"]) == size]
