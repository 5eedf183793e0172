"""What the figures of layer alignment are drawn from: the records of each model's layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repcap_jax.reports.model_names import source_of, tell_apart
from repcap_jax.reports.style import family_group
from repcap_jax.reports.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class ModelLayers:
    """The finished layers of one model, in their order.

    Attributes:
      source: where it is, as the user gave it.
      model: its name.
      records: one for each layer; the final norm's output, if it was scored, comes last.
    """

    source: str
    model: str
    records: tuple[Mapping[str, Any], ...]

    @property
    def family(self) -> str:
        """The family, for its colour."""
        return family_group(self.records[0].get("family"))

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return int(self.records[0]["d_model"])

    @property
    def k(self) -> int:
        """Dimension of the readout subspace."""
        return int(self.records[0]["score"]["k"])

    @property
    def m(self) -> int:
        """Number of principal directions removed."""
        return int(self.records[0]["score"]["m"])

    @property
    def layers(self) -> np.ndarray:
        """Layer numbers; that of the final norm's output is one more than the last block's."""
        return np.array([record["layer"] for record in self.records])

    @property
    def depth(self) -> np.ndarray:
        """Layer number over the number of blocks: 0 the embedding, 1 the last block."""
        return self.layers / max(int(self.records[0]["blocks"]), 1)

    @property
    def normed(self) -> np.ndarray:
        """Which layers are the final norm's output."""
        return np.array([record["name"] == "final norm" for record in self.records])

    def score(self, name: str) -> np.ndarray:
        """One number of each layer's score; NaN where there is none."""
        return _numbers(record["score"].get(name) for record in self.records)

    def spectral(self, name: str) -> np.ndarray:
        """One spectral metric of each layer; NaN where there is none."""
        return _numbers(record["spectral"].get(name) for record in self.records)

    @property
    def ms(self) -> list[int]:
        """Numbers of removed directions in the sensitivity table."""
        return list(self.records[0]["sensitivity"]["ms"])

    @property
    def ks(self) -> list[int]:
        """Subspace dimensions in the sensitivity table."""
        return list(self.records[0]["sensitivity"]["ks"])

    def table(self, name: str = "z") -> np.ndarray:
        """`(layers, m, k)` of the sensitivity table; NaN where there is none."""
        return np.array([[_numbers(row) for row in record["sensitivity"][name]] for record in self.records], np.float64)

    def band(self, name: str = "z") -> tuple[np.ndarray, np.ndarray]:
        """Least and largest value over k at the m of the score, for each layer."""
        over_k = self.table(name)[:, self.ms.index(self.m)]
        return np.nanmin(over_k, axis=1), np.nanmax(over_k, axis=1)


def _numbers(values: Any) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def read_layers(workdir: Workdir) -> tuple[list[ModelLayers], list[str]]:
    """The finished layers by model, and a sentence for each cell that failed."""
    records = tell_apart(workdir.records())
    done: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["status"] == "done" and record["kind"] == "layer":
            done.setdefault(source_of(record), []).append(record)
    models = [
        ModelLayers(source, of[0]["model"], tuple(sorted(of, key=lambda r: r["layer"]))) for source, of in done.items()
    ]
    failed = [f"{r['key']} failed: {r['error']['message']}" for r in records if r["status"] == "failed"]
    return models, failed


def label(models: Sequence[ModelLayers]) -> str:
    """The settings that all models share, for a subtitle: "n = 1,000, k = 100, m = 1"."""
    first = models[0].records[0]["score"]
    shared = []
    for name in ("n", "k", "m", "nulls"):
        values = {record["score"][name] for model in models for record in model.records}
        shared.append(f"{name} = {first[name]:,}" if len(values) == 1 else f"{name} differs")
    return ", ".join(shared)
