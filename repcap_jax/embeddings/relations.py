"""Which tokens lie next to each other: neighbours, opposites and near-duplicates of every token, in one walk."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from scipy import sparse

from repcap_jax.embeddings.similarity import duplicate_rows
from repcap_jax.kernels.counting import Counter
from repcap_jax.kernels.listing import PairsAbove, PairsResult
from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import Progress, fold_pairs
from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.reducers import (
    Extent,
    Histogram,
    NearestNeighbours,
    Neighbours,
    Tile,
)

_BINS = 400  # of the histograms of nearest and most opposed cosines
_LISTED = 200  # near-duplicate groups and pairs written to a record


@dataclasses.dataclass(frozen=True)
class CountAbove:
    """Reducer: how many pairs have a cosine above `threshold`, exactly.

    Args:
      threshold: pairs with `cosine > threshold` count.
    """

    threshold: float

    def start(self, extent: Extent) -> Counter:
        return Counter.zeros()

    def update(self, state: Counter, tile: Tile) -> Counter:
        above = tile.mask & (tile.cosines > self.threshold)
        return state.add(jnp.sum(jnp.sum(above, axis=1, dtype=jnp.int32)))

    def merge(self, a: Counter, b: Counter) -> Counter:
        return a.merge(b)

    def finish(self, state: Counter, rows: int) -> int:
        return int(state.total())


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """Pairs of rows that are almost the same direction.

    Attributes:
      threshold: the cosine above which a pair is listed.
      pairs: those pairs, the closest first, at most as many as were asked for.
      duplicate_rows: numbers of rows that are equal, number for number, to an earlier one.
    """

    threshold: float
    pairs: PairsResult
    duplicate_rows: np.ndarray

    def groups(self) -> list[np.ndarray]:
        """Rows that listed pairs connect, the largest group first; rising row numbers in each."""
        members, joined = np.unique(np.concatenate([self.pairs.i, self.pairs.j]), return_inverse=True)
        if not len(members):
            return []
        i, j = joined.reshape(2, -1)
        links = sparse.coo_matrix((np.ones(len(i), bool), (i, j)), shape=(len(members), len(members)))
        _, label = sparse.csgraph.connected_components(links, directed=False)
        found = [members[label == number] for number in range(label.max() + 1)]
        return sorted(found, key=lambda group: (-len(group), group[0]))

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; the first groups and pairs only."""
        groups, listed = self.groups(), slice(_LISTED)
        columns = (self.pairs.i[listed].tolist(), self.pairs.j[listed].tolist(), self.pairs.cosines[listed].tolist())
        return {
            "threshold": self.threshold,
            "total_pairs": self.pairs.total,
            "listed_pairs": len(self.pairs.i),
            "truncated": self.pairs.truncated,
            "tokens": int(sum(map(len, groups))),
            "n_groups": len(groups),
            "groups": [{"size": len(group), "rows": group[:20].tolist()} for group in groups[:_LISTED]],
            "pairs": [list(pair) for pair in zip(*columns)],
            "duplicate_rows": {"count": len(self.duplicate_rows), "ids": self.duplicate_rows[:_LISTED].tolist()},
        }


@dataclasses.dataclass(frozen=True)
class TokenRelations:
    """Neighbours and opposites of every row, and what they were counted against.

    Attributes:
      n_rows, d_model: shape of the matrix.
      n_pairs: pairs of usable rows.
      mean, std: mu and sigma of all cosines.
      epsilon: mu + 2 sigma, or what was asked for.
      counts, edges: histogram of all cosines.
      neighbours: `(n, count)` nearest rows and cosines; -1 and NaN for excluded rows.
      opposed: `(n, 1)` most opposed row and cosine.
      near_duplicates: pairs above the threshold.
      pairs_above_epsilon: exact count, the right tail.
      excluded_rows: rows that are zero or not finite.
      precision, devices: how it was computed.
    """

    n_rows: int
    d_model: int
    n_pairs: int
    mean: float
    std: float
    epsilon: float
    counts: np.ndarray
    edges: np.ndarray
    neighbours: Neighbours
    opposed: Neighbours
    near_duplicates: NearDuplicates
    pairs_above_epsilon: int
    excluded_rows: np.ndarray
    precision: str
    devices: int

    @property
    def mutual(self) -> float:
        """Share of the usable rows that are their nearest neighbour's nearest neighbour."""
        nearest = self.neighbours.ids[:, 0]
        rows = np.flatnonzero(nearest >= 0)
        return float(np.mean(nearest[nearest[rows]] == rows)) if len(rows) else float("nan")

    def arrays(self) -> dict[str, np.ndarray]:
        """Neighbours of every row, and histograms of all, nearest and most opposed cosines."""
        found = {
            "neighbour_ids": self.neighbours.ids.astype(np.int32),
            "neighbour_cosines": self.neighbours.cosines,
            "opposed_ids": self.opposed.ids[:, 0].astype(np.int32),
            "opposed_cosines": self.opposed.cosines[:, 0],
            "all_counts": self.counts,
            "all_edges": self.edges,
        }
        for name, cosines in (("nearest", self.neighbours.cosines[:, 0]), ("opposed", self.opposed.cosines[:, 0])):
            counts, edges = np.histogram(cosines[~np.isnan(cosines)], bins=_BINS, range=(-1.0, 1.0))
            found |= {f"{name}_counts": counts, f"{name}_edges": edges}
        return found

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; neighbours of every row are in `arrays()`."""
        return {
            "n_rows": self.n_rows,
            "d_model": self.d_model,
            "n_pairs": self.n_pairs,
            "mean": self.mean,
            "std": self.std,
            "epsilon": self.epsilon,
            "pairs_above_epsilon": self.pairs_above_epsilon,
            "share_above_epsilon": self.pairs_above_epsilon / self.n_pairs,
            "nearest": summarised(self.neighbours.cosines[:, 0]),
            "opposed": summarised(self.opposed.cosines[:, 0]),
            "mutual_share": self.mutual,
            "near_duplicates": self.near_duplicates.to_record(),
            "excluded_rows": {"count": len(self.excluded_rows), "ids": self.excluded_rows[:_LISTED].tolist()},
            "precision": self.precision,
            "devices": self.devices,
        }


def token_relations(
    x: Any,
    *,
    count: int = 1,
    near: float = 0.99,
    epsilon: float | None = None,
    max_pairs: int = 65536,
    bins: int = 2000,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> TokenRelations:
    """Nearest and most opposed row of every row, near-duplicates and the distribution of cosines, in one walk.

    Memory beside the rows is `(n, count)` candidates, a histogram and `max_pairs` pairs on each device, never `(n, n)`.

    Args:
      x: `(n, d)`, for instance a token embedding W_E.
      count: how many nearest rows to keep.
      near: cosine above which a pair is a near-duplicate.
      epsilon: start of the right tail; None for mu + 2 sigma, from the exact moments.
      max_pairs: most near-duplicate pairs to list; all are counted.
      bins, tile, mesh, precision, progress: see `similarity_distribution`.
    Returns:
      TokenRelations.
    Raises:
      TypeError, ValueError: if x is no matrix with two usable rows, or an option is out of range.
    Source: Guha 2026 (arXiv:2606.02765), section 2.3 and appendix C.
    """
    x = check_matrix(x)
    if epsilon is not None and not -1.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon is a cosine from -1 to 1, got {epsilon}")
    reducers = [
        Histogram(bins),
        NearestNeighbours(count),
        NearestNeighbours(1, opposed=True),
        PairsAbove(near, max_pairs),
    ]
    moments = cosine_moments(x, mesh=mesh, precision=precision)
    tail = moments.mean + 2 * moments.std if epsilon is None else float(epsilon)
    fold = fold_pairs(x, [*reducers, CountAbove(tail)], tile=tile, mesh=mesh, precision=precision, progress=progress)
    (counts, edges), neighbours, opposed, pairs, above = fold.results
    return TokenRelations(
        n_rows=x.shape[0],
        d_model=x.shape[1],
        n_pairs=moments.n_pairs,
        mean=moments.mean,
        std=moments.std,
        epsilon=tail,
        counts=counts,
        edges=edges,
        neighbours=neighbours,
        opposed=opposed,
        near_duplicates=NearDuplicates(near, pairs, np.setdiff1d(duplicate_rows(x), moments.excluded_rows)),
        pairs_above_epsilon=above,
        excluded_rows=moments.excluded_rows,
        precision=fold.precision,
        devices=fold.devices,
    )


def summarised(values: np.ndarray) -> dict[str, Any]:
    """Mean, std, extremes and quantiles of the values that are numbers, as valid JSON."""
    usable = values[~np.isnan(values)].astype(np.float64)
    if not len(usable):
        return {"n": 0, "mean": None, "std": None, "min": None, "max": None, "quantiles": {}}
    shares = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    return {
        "n": len(usable),
        "mean": float(usable.mean()),
        "std": float(usable.std()),
        "min": float(usable.min()),
        "max": float(usable.max()),
        "quantiles": {f"{q:g}": float(v) for q, v in zip(shares, np.quantile(usable, shares))},
    }
