"""Arrangements known to be best, which need no optimiser: few vectors, or vectors in the plane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64


class KnownBest(NamedTuple):
    """Vectors that no arrangement beats, and the name of the arrangement."""

    vectors: Float64[np.ndarray, "k d"]
    name: str


def known_best(k: int, d: int, objective: str) -> KnownBest | None:
    """The best arrangement of k vectors in R^d where theory gives it for every such k and d, else None.

    Lines: orthonormal for k <= d (coherence 0), the simplex for k = d + 1 (1/d), equal angles in the plane.
    Codes: the simplex for k <= d + 1 (-1/(k-1)), part of the cross-polytope for k <= 2d (0), a regular polygon in the
    plane.

    Args:
      k: number of vectors, >= 2.
      d: dimension, >= 2.
      objective: `"lines"` or `"codes"`.
    Source: Rankin 1955; Welch 1974 for the simplex of lines.
    """
    if objective == "lines" and k <= d:
        return KnownBest(np.eye(k, d), "orthonormal")
    if d == 2:
        turn = np.pi if objective == "lines" else 2 * np.pi
        angles = turn * np.arange(k) / k
        name = "equal angles in the plane" if objective == "lines" else "regular polygon"
        return KnownBest(np.stack([np.cos(angles), np.sin(angles)], axis=1), name)
    if k == d + 1 or (objective == "codes" and k <= d):
        return KnownBest(np.pad(_simplex(k), ((0, 0), (0, d - k + 1))), "simplex")
    if objective == "codes" and k <= 2 * d:
        return KnownBest(np.concatenate([np.eye(d), -np.eye(d)])[:k], "cross-polytope")
    return None


def _simplex(k: int) -> np.ndarray:
    """k unit vectors of R^(k-1) with all products -1/(k-1)."""
    rows = np.zeros((k, k - 1))
    for i in range(k - 1):
        # Column i makes row i a unit vector and gives all later rows their product -1/(k-1) with it.
        rows[i, i] = np.sqrt(1 - rows[i, :i] @ rows[i, :i])
        rows[i + 1 :, i] = (-1 / (k - 1) - rows[i, :i] @ rows[i, :i]) / rows[i, i]
    return rows
