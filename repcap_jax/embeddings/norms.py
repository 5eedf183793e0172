"""Lengths of the rows: their distribution, rows with next to none, and how length goes with the token's id."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy import stats

from repcap_jax.embeddings.relations import summarised
from repcap_jax.kernels.placement import check_matrix

_BLOCK = 4096
_BINS = 200
_LISTED = 1000


@dataclasses.dataclass(frozen=True)
class RowNorms:
    """Euclidean lengths of all rows.

    Attributes:
      norms: `(n,)` float64; NaN where a row is not finite.
      tiny: share of the median below which a row counts as tiny.
    """

    norms: Float64[np.ndarray, " n"]
    tiny: float

    @property
    def median(self) -> float:
        """Median length of the rows that are finite."""
        return float(np.nanmedian(self.norms))

    @property
    def zero_rows(self) -> np.ndarray:
        """Row numbers of length zero."""
        return np.flatnonzero(self.norms == 0)

    @property
    def tiny_rows(self) -> np.ndarray:
        """Row numbers whose length is above zero and below `tiny` times the median."""
        return np.flatnonzero((self.norms > 0) & (self.norms < self.tiny * self.median))

    @property
    def nonfinite_rows(self) -> np.ndarray:
        """Row numbers with NaN or infinite entries."""
        return np.flatnonzero(np.isnan(self.norms))

    @property
    def correlation_with_id(self) -> float | None:
        """Spearman correlation of length with row number; None where all lengths are the same."""
        usable = np.flatnonzero(~np.isnan(self.norms))
        if len(usable) < 3 or np.ptp(self.norms[usable]) == 0:
            return None
        return float(stats.spearmanr(usable, self.norms[usable]).statistic)

    def by_id(self, bands: int = 120) -> dict[str, np.ndarray]:
        """Quantiles of the length in bands of consecutive row numbers: `id`, `low` (5 %), `median`, `high` (95 %)."""
        edges = np.unique(np.linspace(0, len(self.norms), min(bands, len(self.norms)) + 1).astype(int))
        rows = []
        for first, last in zip(edges[:-1], edges[1:]):
            usable = self.norms[first:last][~np.isnan(self.norms[first:last])]
            if len(usable):
                rows.append([(first + last - 1) / 2, *np.quantile(usable, (0.05, 0.5, 0.95))])
        return dict(zip(("id", "low", "median", "high"), np.array(rows).reshape(-1, 4).T))

    def arrays(self) -> dict[str, np.ndarray]:
        """All lengths, their histogram, and their quantiles by id."""
        usable = self.norms[~np.isnan(self.norms)]
        counts, edges = np.histogram(usable, bins=_BINS)
        bands = {f"norm_by_{name}": values for name, values in self.by_id().items()}
        return {"norms": self.norms, "norm_counts": counts, "norm_edges": edges, **bands}

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        correlation = self.correlation_with_id
        record = {
            **summarised(self.norms),
            "tiny": self.tiny,
            "correlation_with_id": correlation,
            "correlation_reason": "all lengths are the same" if correlation is None else None,
        }
        for name in ("zero_rows", "tiny_rows", "nonfinite_rows"):
            rows = getattr(self, name)
            record[name] = {"count": len(rows), "ids": rows[:_LISTED].tolist()}
        return record


def row_norms(x: Any, *, tiny: float = 0.01) -> RowNorms:
    """Length of every row, `|x_i| = sqrt(sum_j x_ij^2)`, in float64.

    Args:
      x: `(n, d)`.
      tiny: share of the median length below which a row is listed as tiny.
    Returns:
      RowNorms.
    Raises:
      TypeError, ValueError: if x is no matrix, no row of it is finite, or tiny is not a share from 0 to 1.
    """
    x = check_matrix(x)
    if not 0 <= tiny <= 1:
        raise ValueError(f"tiny is a share of the median length, from 0 to 1, got {tiny}")
    norms = np.empty(len(x))
    for start in range(0, len(x), _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):
            block = np.asarray(x[start : start + _BLOCK]).astype(np.float64)
            norms[start : start + len(block)] = np.linalg.norm(block, axis=1)
    norms[~np.isfinite(norms)] = np.nan
    if np.isnan(norms).all():
        raise ValueError("no row is finite, so there is no length to report")
    return RowNorms(norms, float(tiny))
