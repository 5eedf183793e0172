"""What the figures of embedding geometry are drawn from: records of models, and their histograms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repcap_jax.reports.model_names import tell_apart
from repcap_jax.reports.style import family_group
from repcap_jax.reports.workdir import Workdir

MATRICES = ("embedding", "unembedding")


@dataclasses.dataclass(frozen=True)
class Counts:
    """A histogram: exact counts between rising edges."""

    counts: np.ndarray
    edges: np.ndarray

    def density(self) -> tuple[np.ndarray, np.ndarray]:
        """Bin centres and probability density."""
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        return centres, self.counts / (self.counts.sum() * np.diff(self.edges))

    def support(self, share: float = 0.0) -> tuple[float, float]:
        """Where the counts lie, without a share of them at either end."""
        below = np.cumsum(self.counts) / self.counts.sum()
        first = int(np.searchsorted(below, share, side="right"))
        last = int(np.searchsorted(below, 1 - share - 1e-12, side="left"))
        return float(self.edges[first]), float(self.edges[min(last, len(self.counts) - 1) + 1])

    def coarser(self, factor: int) -> Counts:
        """The same with `factor` bins made one, where that leaves no remainder; itself otherwise."""
        if factor < 2 or len(self.counts) % factor:
            return self
        return Counts(self.counts.reshape(-1, factor).sum(axis=1), self.edges[::factor])


@dataclasses.dataclass(frozen=True)
class ModelResult:
    """The record of one model with its histograms.

    Attributes:
      record: a finished record of the embedding experiment.
      histograms: by "embedding", "unembedding" and "correspondence"; empty if only moments were computed.
    """

    record: Mapping[str, Any]
    histograms: Mapping[str, Counts] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.record["model"])

    @property
    def family(self) -> str:
        return family_group(self.record.get("family"))

    @property
    def d_model(self) -> int:
        return int(self.record["d_model"])

    def distribution(self, matrix: str = "embedding") -> Mapping[str, Any] | None:
        """The numbers of one matrix, or None if it was not measured."""
        return (self.record["matrices"].get(matrix) or {}).get("distribution")

    def capacities(self, matrix: str = "embedding") -> list[Mapping[str, Any]]:
        """The capacity estimates at mu + 1.5, 2 and 3 sigma, or the one at 2 if there is no range."""
        entry = self.record["matrices"].get(matrix) or {}
        estimates = (entry.get("capacity_range") or {}).get("estimates")
        return list(estimates) if estimates else [entry["capacity"]] if entry.get("capacity") else []


def read_results(workdir: Workdir) -> tuple[list[ModelResult], list[str]]:
    """Read the finished models of a workdir, ordered by family, then width, then name.

    Args:
      workdir: of an embedding experiment.
    Returns:
      The models, and sentences about what is missing: failed models, absent histograms, results of other settings.
    """
    results, notes = [], []
    current = tell_apart(workdir.records())
    for record in current:
        if record["status"] == "failed":
            error = record.get("error") or {}
            notes.append(
                f"{record.get('model', record['key'])} failed: {error.get('type', 'error')}: {error.get('message', '')}"
            )
            continue
        if missing := [name for name in ("model", "d_model", "matrices") if name not in record]:
            notes.append(f"{record['key']}: its record lacks {', '.join(missing)}, so it is not shown.")
            continue
        histograms: dict[str, Counts] = {}
        if record.get("histogram"):
            try:
                histograms = as_histograms(workdir.load_arrays(record["histogram"]))
            except ValueError as error:
                notes.append(f"{record['model']}: no histogram, so it is missing from the distributions: {error}")
        results.append(ModelResult(record, histograms))
    if others := len(workdir.records(any_settings=True)) - len(current):
        notes.append(f"{others} earlier result(s) computed with other settings are not shown.")
    results.sort(key=lambda result: (result.family, result.d_model, result.name))
    return results, notes


def as_histograms(arrays: Mapping[str, np.ndarray]) -> dict[str, Counts]:
    """Return the histograms in arrays named `<what>_counts` and `<what>_edges`; empty ones are left out.

    Raises:
      ValueError: if counts and edges do not belong together.
    """
    found = {}
    for key, counts in arrays.items():
        what, _, kind = key.rpartition("_")
        if kind != "counts" or np.size(counts) == 0:
            continue
        edges = arrays.get(f"{what}_edges")
        if edges is None or edges.shape != (len(counts) + 1,):
            raise ValueError(f"{what}: {len(counts)} counts need {len(counts) + 1} edges")
        if np.sum(counts) > 0:
            found[what] = Counts(np.asarray(counts), np.asarray(edges, np.float64))
    return found


def with_histogram(results: Sequence[ModelResult], matrix: str) -> list[ModelResult]:
    """Return the models whose `matrix` was measured and has a histogram."""
    return [result for result in results if result.distribution(matrix) and matrix in result.histograms]
