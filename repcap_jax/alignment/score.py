"""`alignment_score` and `sensitivity`: is a layer's geometry organised for prediction?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.alignment.checks import check_basis, check_hidden, check_removal, first_equals, whole
from repcap_jax.alignment.program import Plan, Sides, correlate
from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.kernels.grassmann import frame_keys
from repcap_jax.kernels.placement import rows_mesh
from repcap_jax.kernels.ranks import finish, resolve_method

# A state of which less than this is left, in length, has lost its direction to float32 rounding.
_LEAST_SHARE = 1e-5


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

    Everything is one device program; memory is a few vectors of n (n - 1) / 2 pairs, whatever the number of nulls.

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
    run = _Run.checked(hidden, readout, key, (readout.shape[1],), (remove,), remove_after, method, nulls, frames, mesh)
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
    run = _Run.checked(hidden, readout, key, widths, removals, remove_after, method, nulls, frames, mesh)
    return Sensitivity(removals, widths, run.scores())


@dataclasses.dataclass(frozen=True)
class _Run:
    """One call of the device program, its arguments checked."""

    hidden: np.ndarray
    readout: np.ndarray
    first_equal: np.ndarray
    key: Array | None
    frames: Any
    nulls: int
    method: str
    plan: Plan

    @classmethod
    def checked(
        cls,
        hidden: np.ndarray,
        readout: np.ndarray,
        key: Array | None,
        ks: tuple[int, ...],
        ms: tuple[int, ...],
        remove_after: bool,
        method: str,
        nulls: int,
        frames: Any,
        mesh: Mesh | None,
    ) -> _Run:
        n, d = hidden.shape
        ms = tuple(check_removal(m, n, d, ks[0], remove_after) for m in ms)
        if frames is None:
            if key is None:
                raise TypeError("give a jax.random key from which the null subspaces are drawn, or frames")
            nulls = whole(nulls, "nulls", 2)
        else:
            frames = _check_frames(frames, d, ks[-1])
            nulls = len(frames)
        mesh = rows_mesh(mesh)
        first_equal = first_equals(hidden)
        repeats = bool(np.any(first_equal != np.arange(n)))
        resolved = resolve_method(method, mesh.devices.flat[0].platform)
        return cls(
            hidden,
            readout,
            first_equal,
            key,
            frames,
            nulls,
            method,
            Plan(ks, ms, remove_after, resolved, repeats, mesh),
        )

    def scores(self) -> tuple[tuple[AlignmentScore, ...], ...]:
        """A score for each m and k."""
        plan = self.plan
        subspaces = self.nulls + 1
        order = np.zeros(subspaces + -subspaces % plan.mesh.size, np.int32)
        order[:subspaces] = np.arange(subspaces)
        nulls = frame_keys(self.key, self.nulls) if self.frames is None else self.frames
        sides = correlate(self.hidden, self.first_equal, self.readout, nulls, order, plan=plan)
        self._check_shares(sides, subspaces)
        rho = finish(np.asarray(sides.squares)[:, None], sides.products)[:subspaces]
        by_sort = np.asarray(sides.products.sorted)[:subspaces]
        return tuple(
            tuple(self._score(rho[:, i, j], by_sort[:, i, j], m, k) for j, k in enumerate(plan.ks))
            for i, m in enumerate(plan.ms)
        )

    def _score(self, rho: np.ndarray, by_sort: np.ndarray, m: int, k: int) -> AlignmentScore:
        if not np.isfinite(rho).all():
            raise ValueError(f"all distances between the states are equal for m = {m}, k = {k}: they have no order")
        key_data = None if self.key is None else tuple(np.asarray(_raw(self.key)).reshape(-1).tolist())
        return AlignmentScore(
            rho=float(rho[0]),
            null_rhos=rho[1:],
            n=self.hidden.shape[0],
            d=self.hidden.shape[1],
            k=k,
            m=m,
            remove_after=self.plan.remove_after,
            method=self.method,
            methods_used={"binned": int(np.sum(~by_sort)), "sort": int(np.sum(by_sort))},
            repeated=int(np.sum(self.first_equal != np.arange(len(self.first_equal)))),
            frames="drawn" if self.frames is None else "given",
            key_data=key_data,
            key_impl=None if self.key is None else str(jax.random.key_impl(self.key)),
            devices=self.plan.mesh.size,
        )

    def _check_shares(self, sides: Sides, subspaces: int) -> None:
        full, projected = np.asarray(sides.full_share), np.asarray(sides.projected_share)[:subspaces]
        for i, m in enumerate(self.plan.ms):
            if not full[i] > _LEAST_SHARE:
                raise ValueError(f"removing m = {m} principal directions leaves nothing of at least one state")
            for j, k in enumerate(self.plan.ks):
                lost = np.flatnonzero(~(projected[:, i, j] > _LEAST_SHARE))
                if len(lost):
                    which = "the readout subspace" if lost[0] == 0 else f"null subspace {lost[0] - 1}"
                    raise ValueError(f"at least one state has no component in {which} for m = {m}, k = {k}")


def _raw(key: Array) -> Array:
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _check_frames(frames: Any, d: int, k: int) -> Any:
    shape = np.shape(frames)
    if len(shape) != 3 or shape[0] < 2 or shape[1] != d or shape[2] < k:
        raise ValueError(f"frames must have shape (nulls >= 2, d = {d}, k = {k}), got {shape}")
    frames = frames[:, :, :k]
    spread = jnp.einsum("bdk,bdl->bkl", frames[:1], frames[:1], precision="highest") - jnp.eye(k)
    if not float(jnp.abs(spread).max()) < 1e-3:
        raise ValueError("the columns of each frame must be orthonormal; use rc.grassmann_frames")
    return frames
