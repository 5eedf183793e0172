"""Embedding against unembedding: each token's two rows, and whether each finds its own in the other matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float64

from repcap_jax.embeddings.relations import summarised
from repcap_jax.embeddings.similarity import corresponding_cosines
from repcap_jax.kernels.pairs import Progress, fold_pairs
from repcap_jax.kernels.reducers import Histogram, NearestNeighbours, Neighbours

_BINS = 400


@dataclasses.dataclass(frozen=True)
class UnembeddingComparison:
    """Cosines of embedding rows with unembedding rows.

    Attributes:
      own: `(n,)` cosine of each embedding row with the unembedding row of the same token; NaN if one has no direction.
      nearest: `(n, 1)` the unembedding row closest to each embedding row, and its cosine.
      counts, edges: histogram of all n^2 cosines.
    """

    own: Float64[np.ndarray, " n"]
    nearest: Neighbours
    counts: np.ndarray
    edges: np.ndarray

    @property
    def own_is_nearest(self) -> float | None:
        """Share of the tokens whose nearest unembedding row is their own; None where no token has both rows."""
        usable = ~np.isnan(self.own)
        rows = np.arange(len(self.own))
        return float(np.mean(self.nearest.ids[usable, 0] == rows[usable])) if usable.any() else None

    def arrays(self) -> dict[str, np.ndarray]:
        """Cosines and nearest rows of every token, and histograms."""
        counts, edges = np.histogram(self.own[~np.isnan(self.own)], bins=_BINS, range=(-1.0, 1.0))
        found = {"own_cosines": self.own.astype(np.float32), "cross_ids": self.nearest.ids[:, 0].astype(np.int32)}
        found |= {"cross_cosines": self.nearest.cosines[:, 0], "own_counts": counts, "own_edges": edges}
        return found | {"cross_counts": self.counts, "cross_edges": self.edges}

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        mean = float(np.average(centres, weights=self.counts))
        return {
            "own": summarised(self.own),
            "nearest": summarised(self.nearest.cosines[:, 0]),
            "own_is_nearest": self.own_is_nearest,
            "cross_mean": mean,
            "cross_std": float(np.sqrt(np.average((centres - mean) ** 2, weights=self.counts))),
        }


def compare_unembedding(
    embedding: Any,
    unembedding: Any,
    *,
    bins: int = 2000,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> UnembeddingComparison:
    """Compare an embedding with an unembedding, row by row and all rows with all rows, in one walk.

    Args:
      embedding, unembedding: `(n, d)` each, rows by token id.
      bins, tile, mesh, precision, progress: see `similarity_distribution`.
    Returns:
      UnembeddingComparison.
    Raises:
      TypeError, ValueError: if they are not matrices of one shape, or no row of one of them has a direction.
    Source: Guha 2026 (arXiv:2606.02765), appendix C.
    """
    own = corresponding_cosines(embedding, unembedding)
    reducers = [Histogram(bins), NearestNeighbours(1)]
    fold = fold_pairs(embedding, reducers, y=unembedding, tile=tile, mesh=mesh, precision=precision, progress=progress)
    (counts, edges), nearest = fold.results
    if not counts.sum():
        raise ValueError("no row of one of the matrices has a direction: all are zero or not finite")
    return UnembeddingComparison(own, nearest, counts, edges)
