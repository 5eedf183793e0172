"""What the figures of token relations are drawn from: records of models, and their arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from repcap_jax.reports.embedding_data import Counts
from repcap_jax.reports.model_names import tell_apart
from repcap_jax.reports.style import family_group
from repcap_jax.reports.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class RelationResult:
    """The record of one model with its arrays.

    Attributes:
      record: a finished record of the experiment.
      arrays: histograms and curves by name; empty if the file is lost.
    """

    record: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.record["model"])

    @property
    def family(self) -> str:
        return family_group(self.record.get("family"))

    @property
    def relations(self) -> Mapping[str, Any] | None:
        """Neighbours and distribution, None if they were not asked for."""
        return self.record.get("relations")

    def histogram(self, name: str) -> Counts | None:
        """A histogram of the arrays, None if it is absent or empty."""
        counts, edges = self.arrays.get(f"{name}_counts"), self.arrays.get(f"{name}_edges")
        return None if counts is None or edges is None or not np.sum(counts) else Counts(counts, edges)


def read_relations(workdir: Workdir) -> tuple[list[RelationResult], list[str]]:
    """Read the finished models of a workdir in their order, and sentences about what is missing."""
    results, notes = [], []
    for record in tell_apart(workdir.records()):
        if record["status"] == "failed":
            error = record.get("error") or {}
            name = record.get("model", record["key"])
            notes.append(f"{name} failed: {error.get('type', 'error')}: {error.get('message', '')}")
            continue
        arrays: Mapping[str, np.ndarray] = {}
        if record.get("arrays"):
            try:
                arrays = workdir.load_arrays(record["arrays"])
            except ValueError as error:
                notes.append(f"{record['model']}: its arrays are missing, so its distributions are not drawn: {error}")
        results.append(RelationResult(record, arrays))
    if others := len(workdir.records(any_settings=True)) - len(workdir.records()):
        notes.append(f"{others} earlier result(s) computed with other settings are not shown.")
    return results, notes
