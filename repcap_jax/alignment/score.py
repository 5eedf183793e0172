"""`alignment_score` and `sensitivity`: is a layer's geometry organised for prediction?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.alignment.checks import check_basis, check_hidden
from repcap_jax.alignment.layer import LayerRun
from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.kernels.checks import whole


def alignment_score(
    hidden: Any,
    readout: Any,
    key: Array | None,
    *,
    nulls: int = 100,
    remove: int = 1,
    remove_after: bool = False,
    frames: Any = None,
    method: str = "auto",
    mesh: Mesh | None = None,
) -> AlignmentScore:
    """Whether the readout subspace keeps the order of the distances between hidden states better than chance.

        X = H - mean,   X <- X - X V_m V_m^T                      (CCR-m: V_m the first m principal directions)
        rho(S) = Spearman over i < j of  1 - cos(x_i, x_j)  and  1 - cos(S^T x_i, S^T x_j)
        z = (rho(readout) - mean_b rho(F_b)) / std_b rho(F_b),    F_b uniform on the Grassmannian, ddof 1

    Everything is one device program, and a second one where `auto` sorts; memory is a few vectors of n (n - 1) / 2
    pairs, whatever the number of nulls.

    Args:
      hidden: `(n, d)` hidden states of one layer, n >= 3. Equal states are allowed: their pairs tie.
      readout: `(d, k)` orthonormal columns, k < d, from `readout_subspace`.
      key: a `jax.random` key for the nulls; `None` only with `frames`.
      nulls: random subspaces, at least 2; taken from `frames` if those are given.
      remove: m, principal directions removed; 0 .. min(n, d) - 2.
      remove_after: on the projected side, remove the m principal directions of the projected states, instead of
        projecting what is left in the full space.
      frames: `(nulls, d, k)` orthonormal frames, to share one set among layers (`rc.grassmann_frames`); `None` draws
        `grassmann_frames(key, nulls, d, k)`, one at a time.
      method: of the ranks: `"auto"`, `"sort"` or `"binned"`, see `rc.spearman`.
      mesh: devices to share the nulls; `None` for the default device.
    Returns:
      AlignmentScore.
    Raises:
      TypeError, ValueError: for fewer than 3 states, NaN, constant or vanishing states, a readout of another width,
        k >= d, m too large, or states of which the projection leaves nothing.
    Source: Xu 2026 (arXiv:2605.17084), Subspace PGA and CCR.
    """
    hidden = check_hidden(hidden)
    readout = check_basis(readout, "readout", hidden.shape[1])
    run = LayerRun.checked(
        hidden, readout, key, (readout.shape[1],), (remove,), remove_after, method, nulls, frames, mesh
    )
    return run.scores()[0][0]


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """Scores over numbers of removed directions and subspace dimensions.

    Attributes:
      ms: numbers of removed directions.
      ks: subspace dimensions, rising.
      scores: `scores[i][j]` for `ms[i]` and `ks[j]`.
    """

    ms: tuple[int, ...]
    ks: tuple[int, ...]
    scores: tuple[tuple[AlignmentScore, ...], ...]

    @property
    def z(self) -> np.ndarray:
        """`(m, k)` float64."""
        return np.array([[score.z for score in row] for row in self.scores])

    @property
    def effect(self) -> np.ndarray:
        """`(m, k)` float64, rho less the null's mean."""
        return np.array([[score.effect for score in row] for row in self.scores])

    def at(self, *, m: int, k: int) -> AlignmentScore:
        """The score for one cell.

        Raises:
          KeyError: if it was not computed.
        """
        if m not in self.ms or k not in self.ks:
            raise KeyError(f"m = {m}, k = {k} is not among m = {self.ms}, k = {self.ks}")
        return self.scores[self.ms.index(m)][self.ks.index(k)]

    def replaced(self, score: AlignmentScore) -> Sensitivity:
        """The table with a score for one of its k and m put in the place of its own."""
        rows = [list(row) for row in self.scores]
        rows[self.ms.index(score.m)][self.ks.index(score.k)] = score
        return dataclasses.replace(self, scores=tuple(tuple(row) for row in rows))

    def to_record(self) -> dict[str, Any]:
        """The cells as valid JSON."""
        cells = [score.to_record() for row in self.scores for score in row]
        return {"ms": list(self.ms), "ks": list(self.ks), "cells": cells}


def default_ks(d: int) -> tuple[int, ...]:
    """Subspace dimensions of the sensitivity table: d/12, d/6 and d/3, at least 1."""
    return tuple(sorted({max(1, d // 12), max(1, d // 6), max(1, d // 3)}))


def sensitivity(
    hidden: Any,
    readout: Any,
    key: Array | None,
    *,
    ks: Sequence[int] | None = None,
    ms: Sequence[int] = (0, 1, 5, 10),
    nulls: int = 100,
    remove_after: bool = False,
    frames: Any = None,
    method: str = "auto",
    mesh: Mesh | None = None,
) -> Sensitivity:
    """`alignment_score` for every k and m of a table, in one program.

    The full side is ranked once for each m. A subspace is projected once, its first k columns being the subspace of
    dimension k: those of the readout by construction, those of a uniform frame because they are a uniform k-frame.
    So a cell is `alignment_score` of `readout[:, :k]` with the same key.

    Args:
      hidden: `(n, d)`.
      readout: `(d, k)` with k at least the largest of `ks`, from `readout_subspace`.
      key, nulls, remove_after, method, mesh: see `alignment_score`.
      ks: subspace dimensions; `None` for d/12, d/6 and d/3.
      ms: numbers of removed principal directions.
      frames: `(nulls, d, k)` as wide as the largest of `ks` at least.
    Returns:
      Sensitivity.
    Raises:
      TypeError, ValueError: see `alignment_score`; or an empty table.
    """
    hidden = check_hidden(hidden)
    n, d = hidden.shape
    readout = check_basis(readout, "readout", d)
    widths = tuple(sorted({whole(k, "k", 1) for k in (default_ks(d) if ks is None else ks)}))
    removals = tuple(sorted({whole(m, "m", 0) for m in ms}))
    if not widths or not removals:
        raise ValueError(f"give at least one k and one m, got ks = {widths}, ms = {removals}")
    if widths[-1] > readout.shape[1]:
        raise ValueError(f"the readout has {readout.shape[1]} columns, fewer than the largest k = {widths[-1]}")
    readout = readout[:, : widths[-1]]
    run = LayerRun.checked(hidden, readout, key, widths, removals, remove_after, method, nulls, frames, mesh)
    return Sensitivity(removals, widths, run.scores())
