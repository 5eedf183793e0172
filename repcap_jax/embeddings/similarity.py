"""The distribution of all pairwise cosines of a matrix of vectors."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from jax.sharding import Mesh

from repcap_jax.capacity.isotropic import IsotropicReference
from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import Progress, fold_pairs
from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.precision import SMALLEST_NORMAL, resolve_precision
from repcap_jax.kernels.reducers import ExtremePair, Extremes, Histogram

_LISTED = 1000  # row numbers written to a record; the full lists stay on the object


@dataclasses.dataclass(frozen=True)
class SimilarityDistribution:
    """Cosines of all pairs i < j of the usable rows of one matrix.

    Attributes:
      n_rows: rows of the matrix, usable or not.
      d_model: length of a row.
      n_pairs: pairs of usable rows.
      mean: mu, from the exact moments and not from the bins.
      std: sigma, population form.
      counts: `(bins,)` int64 exact counts on [-1, 1]; `None` if only the moments were asked for.
      edges: `(bins + 1,)` float64; `None` likewise.
      largest, smallest: the extreme cosines and their rows; `None` likewise.
      zero_rows: row numbers left out because every entry is zero in float32.
      nonfinite_rows: row numbers left out because of NaN, infinity, or a norm beyond what float32 can invert.
      duplicate_rows: row numbers whose row is the same, number for number, as an earlier one. They take part.
      precision: matrix-product precision.
      devices: number of devices that shared the work.
    """

    n_rows: int
    d_model: int
    n_pairs: int
    mean: float
    std: float
    counts: np.ndarray | None
    edges: np.ndarray | None
    largest: ExtremePair | None
    smallest: ExtremePair | None
    zero_rows: np.ndarray
    nonfinite_rows: np.ndarray
    duplicate_rows: np.ndarray
    precision: str
    devices: int

    @property
    def epsilon(self) -> float:
        """epsilon = mu + 2 sigma (Guha 2026, section 2)."""
        return self.epsilon_at(2.0)

    def epsilon_at(self, sigmas: float) -> float:
        """mu + `sigmas` * sigma."""
        return self.mean + sigmas * self.std

    @property
    def excluded_rows(self) -> np.ndarray:
        """Row numbers left out, rising."""
        return np.union1d(self.zero_rows, self.nonfinite_rows)

    @property
    def isotropic(self) -> IsotropicReference:
        """The reference for as many usable rows of the same length."""
        return IsotropicReference(self.n_rows - len(self.excluded_rows), self.d_model)

    def density(self) -> tuple[np.ndarray, np.ndarray]:
        """Bin centres and probability density of the cosines."""
        counts, edges = self._bins()
        return (edges[1:] + edges[:-1]) / 2, counts / (counts.sum() * np.diff(edges))

    def quantile(self, q: float | np.ndarray) -> float | np.ndarray:
        """The cosine below which a share `q` of the pairs lies, linear within a bin (exact to one bin width).

        Raises:
          ValueError: if q is outside [0, 1] or there is no histogram.
        """
        q = np.asarray(q, np.float64)
        if np.any(~((q >= 0) & (q <= 1))):
            raise ValueError(f"a quantile is asked for by a share from 0 to 1, got {q}")
        counts, edges = self._bins()
        filled = np.flatnonzero(counts)
        below = np.concatenate([[0], np.cumsum(counts[filled])]) / counts.sum()
        # Empty bins carry no mass: within a filled bin the share grows linearly, between filled bins it stands still.
        found = np.minimum(np.searchsorted(below[1:], q, side="left"), len(filled) - 1)
        within = (q - below[found]) / (below[found + 1] - below[found])
        value = edges[filled[found]] + within * (edges[filled[found] + 1] - edges[filled[found]])
        return float(value) if value.ndim == 0 else value

    def share_above(self, cosine: float) -> float:
        """Share of the pairs whose cosine exceeds `cosine`, linear within a bin."""
        counts, edges = self._bins()
        below = np.concatenate([[0], np.cumsum(counts)])
        return float(1 - np.interp(cosine, edges, below) / below[-1])

    def _bins(self) -> tuple[np.ndarray, np.ndarray]:
        if self.counts is None or self.edges is None:
            raise ValueError("this distribution holds moments only; compute it with moments_only=False for a histogram")
        return self.counts, self.edges

    def to_record(self) -> dict[str, Any]:
        """Numbers as valid JSON; the histogram itself is stored apart."""
        record: dict[str, Any] = {
            "n_rows": self.n_rows,
            "d_model": self.d_model,
            "n_pairs": self.n_pairs,
            "mean": self.mean,
            "std": self.std,
            "epsilon": self.epsilon,
            "epsilon_1.5_sigma": self.epsilon_at(1.5),
            "epsilon_3_sigma": self.epsilon_at(3.0),
            "precision": self.precision,
            "devices": self.devices,
            "isotropic_std": self.isotropic.std,
            "isotropic_epsilon": self.isotropic.epsilon,
            "isotropic_largest": self.isotropic.largest,
        }
        for name in ("zero_rows", "nonfinite_rows", "duplicate_rows"):
            rows = getattr(self, name)
            record[name] = {"count": len(rows), "ids": rows[:_LISTED].tolist()}
        for name in ("largest", "smallest"):
            pair = getattr(self, name)
            record[name] = None if pair is None else {"cosine": pair.cosine, "rows": [pair.i, pair.j]}
        if self.counts is not None:
            record["quantiles"] = {f"{q:g}": self.quantile(q) for q in (0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999)}
            record["share_above_epsilon"] = self.share_above(self.epsilon)
            record["isotropic_share_above_epsilon"] = self.isotropic.tail(self.epsilon)
        return record


def similarity_distribution(
    x: Any,
    *,
    bins: int = 2000,
    moments_only: bool = False,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> SimilarityDistribution:
    """The distribution of `<x_i, x_j> / (|x_i| |x_j|)` over all pairs i < j of the rows of x.

    Args:
      x: `(n, d)`, for instance a token embedding matrix W_E.
      bins: bins of the histogram on [-1, 1].
      moments_only: leave out the histogram and the extremes: O(n d^2) instead of O(n^2 d).
      tile, mesh, precision, progress: see `repcap_jax.kernels.pairs.fold_pairs`.
    Returns:
      SimilarityDistribution.
    Raises:
      TypeError: if x is not a real-valued array.
      ValueError: if it is not a matrix, if fewer than two rows are usable, or if an option is out of range.
    Source: Guha 2026 (arXiv:2606.02765), section 2. Its code drops rows that do not fill a slice and accumulates in the
      checkpoint's own dtype; here every pair counts once and sums are finished in float64.
    """
    x = check_matrix(x)
    histogram = Histogram(bins)
    moments = cosine_moments(x, mesh=mesh, precision=precision)
    zero = np.array([row for row in moments.excluded_rows if _vanishes(x[row])], int)
    counts = edges = largest = smallest = None
    if not moments_only:
        fold = fold_pairs(x, [histogram, Extremes()], tile=tile, mesh=mesh, precision=precision, progress=progress)
        (counts, edges), (largest, smallest) = fold.results
    return SimilarityDistribution(
        n_rows=x.shape[0],
        d_model=x.shape[1],
        n_pairs=moments.n_pairs,
        mean=moments.mean,
        std=moments.std,
        counts=counts,
        edges=edges,
        largest=largest,
        smallest=smallest,
        zero_rows=zero,
        nonfinite_rows=np.setdiff1d(moments.excluded_rows, zero),
        duplicate_rows=np.setdiff1d(duplicate_rows(x), moments.excluded_rows),
        precision=resolve_precision(precision),
        devices=1 if mesh is None else mesh.size,
    )


def _vanishes(row: np.ndarray) -> bool:
    """Whether a row is zero as float32 arithmetic sees it."""
    return bool(np.all(np.abs(np.asarray(row, np.float64)) < SMALLEST_NORMAL))


def duplicate_rows(x: np.ndarray) -> np.ndarray:
    """Numbers of the rows that are equal, number for number, to a row before them (0.0 and -0.0 are equal).

    Rows are compared by a 128-bit digest, so that memory is 16 bytes a row and not another copy of the matrix.

    Args:
      x: `(n, d)`.
    Returns:
      Rising row numbers; the first of each group of equal rows is not among them.
    """
    seen: set[bytes] = set()
    repeated = []
    for start in range(0, len(x), 1024):
        block = np.ascontiguousarray(x[start : start + 1024] + np.zeros((), x.dtype))  # -0.0 becomes 0.0
        for offset, row in enumerate(block):
            digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            if digest in seen:
                repeated.append(start + offset)
            seen.add(digest)
    return np.array(repeated, int)


def corresponding_cosines(x: Any, y: Any) -> np.ndarray:
    """Cosine of each row of x with the same row of y, for instance of W_E with W_U.

    Args:
      x, y: `(n, d)` each.
    Returns:
      `(n,)` float64; NaN where either row is zero or not finite.
    Raises:
      TypeError, ValueError: if x and y are not matrices of one shape.
    """
    x, y = check_matrix(x), check_matrix(y, "y")
    if x.shape != y.shape:
        raise ValueError(f"corresponding rows need matrices of one shape, got {x.shape} and {y.shape}")
    cosines = np.empty(len(x))
    for start in range(0, len(x), 4096):
        a, b = (np.asarray(m[start : start + 4096], np.float64) for m in (x, y))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            part = np.einsum("nd,nd->n", a, b) / norms
        cosines[start : start + 4096] = np.where(np.isfinite(part), np.clip(part, -1, 1), np.nan)
    return cosines
