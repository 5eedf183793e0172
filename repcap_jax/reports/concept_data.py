"""What the figures of linear concepts are drawn from: records of models, and their arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from repcap_jax.reports.model_names import tell_apart
from repcap_jax.reports.workdir import Workdir

PRODUCTS = ("causal", "euclidean", "random")


@dataclasses.dataclass(frozen=True)
class ConceptResult:
    """The record of one model with its arrays.

    Attributes:
      record: a finished record of the experiment.
      arrays: left-out projections and histograms by name; empty if the file is lost.
    """

    record: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.record["model"])

    def concepts(self, product: str = "causal") -> list[Mapping[str, Any]]:
        """Entries of the concepts under an inner product, in the order of the heat map."""
        return list((self.record["products"].get(product) or {}).get("concepts", []))

    def heat_map(self, product: str) -> Mapping[str, Any] | None:
        """The heat map under an inner product, None if it was not computed."""
        return (self.record["products"].get(product) or {}).get("heat_map")


def read_concepts(workdir: Workdir) -> tuple[list[ConceptResult], list[str]]:
    """Read the finished models of a workdir in their order, and sentences about what is missing."""
    results, notes = [], []
    for record in tell_apart(workdir.records()):
        name = record.get("model", record["key"])
        if record["status"] == "failed":
            error = record.get("error") or {}
            notes.append(f"{name} failed: {error.get('type', 'error')}: {error.get('message', '')}")
            continue
        arrays: Mapping[str, np.ndarray] = {}
        try:
            arrays = workdir.load_arrays(record["arrays"])
        except (KeyError, ValueError) as error:
            notes.append(f"{name}: its arrays are missing, so its projections are not drawn: {error}")
        results.append(ConceptResult(record, arrays))
        notes += [f"{name}: {concept} was left out: {why}." for concept, why in record.get("left_out", {}).items()]
    if others := len(workdir.records(any_settings=True)) - len(workdir.records()):
        notes.append(f"{others} earlier result(s) computed with other settings are not shown.")
    return results, notes
