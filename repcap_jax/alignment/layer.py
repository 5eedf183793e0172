"""One layer's run: arguments checked, the device program called, what the bins could not tell sorted, scores made."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.alignment.checks import check_frames, check_removal, first_equals
from repcap_jax.alignment.program import Plan, Sides, correlate
from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.grassmann import frame_keys
from repcap_jax.kernels.placement import on_host, rows_mesh
from repcap_jax.kernels.ranks import TOLERATED, finish, resolve_method

# A state of which less than this is left, in length, has lost its direction to float32 rounding.
_LEAST_SHARE = 1e-5
# Subspaces sorted by one call where only a few need it.
_SORTED_AT_ONCE = 8


@dataclasses.dataclass(frozen=True)
class LayerRun:
    """The scores of one layer for every m and k.

    Attributes:
      hidden: `(n, d)` float32 states.
      readout: `(d, ks[-1])` float32.
      first_equal: `(n,)` for each state the first one that equals it.
      key: of the nulls, or `None`.
      frames: `(nulls, d, ks[-1])`, or `None` to draw them from the key.
      nulls: how many.
      ms: numbers of principal directions removed, rising.
      method: of the ranks, as asked for.
      plan: of the first program.
    """

    hidden: np.ndarray
    readout: np.ndarray
    first_equal: np.ndarray
    key: Array | None
    frames: Any
    nulls: int
    ms: tuple[int, ...]
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
    ) -> LayerRun:
        """The run for checked states and readout; the other arguments are those of `alignment_score`."""
        n, d = hidden.shape
        ms = tuple(check_removal(m, n, d, ks[0], remove_after) for m in ms)
        if frames is None and key is None:
            raise TypeError("give a jax.random key from which the null subspaces are drawn, or frames")
        if frames is not None:
            frames = check_frames(frames, d, ks[-1])
        nulls = whole(nulls, "nulls", 2) if frames is None else len(frames)
        mesh = rows_mesh(mesh)
        first_equal = first_equals(hidden)
        repeats = bool(np.any(first_equal != np.arange(n)))
        resolved = resolve_method(method, n * (n - 1) // 2, mesh.devices.flat[0].platform)
        first_way = "sort" if resolved == "sort" else "binned"
        plan = Plan(ks, max(ms), remove_after, first_way, repeats, mesh)
        return cls(hidden, readout, first_equal, key, frames, nulls, ms, method, plan)

    def scores(self) -> tuple[tuple[AlignmentScore, ...], ...]:
        """A score for each m and k."""
        every = np.arange(self.nulls + 1)
        rho, loss = self._correlate(every, self.ms, self.plan, len(every))
        by_sort = np.full(rho.shape, self.plan.method == "sort")
        if self.method == "auto":
            by_sort |= loss > TOLERATED
            self._sort_again(rho, loss > TOLERATED)
        return tuple(
            tuple(self._score(rho[:, i, j], by_sort[:, i, j], m, k) for j, k in enumerate(self.plan.ks))
            for i, m in enumerate(self.ms)
        )

    def _sort_again(self, rho: np.ndarray, lossy: np.ndarray) -> None:
        """Replace the correlations that the bins could not tell, one m and k after the other."""
        for i, m in enumerate(self.ms):
            for j, k in enumerate(self.plan.ks):
                which = np.flatnonzero(lossy[:, i, j])
                at_once = len(lossy) if 2 * len(which) > len(lossy) else _SORTED_AT_ONCE
                for start in range(0, len(which), at_once):
                    part = which[start : start + at_once]
                    exact, _ = self._correlate(part, (m,), self.plan._replace(ks=(k,), method="sort"), at_once)
                    rho[part, i, j] = exact[:, 0, 0]

    def _correlate(
        self, subspaces: np.ndarray, ms: tuple[int, ...], plan: Plan, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """rho and its loss, `(subspaces, m, k)` each, by a program for `length` subspaces."""
        order = np.zeros(length + -length % plan.mesh.size, np.int32)
        order[: len(subspaces)] = subspaces
        k = plan.ks[-1]
        nulls = frame_keys(self.key, self.nulls) if self.frames is None else self.frames
        if self.frames is not None and k < self.readout.shape[1]:
            nulls = nulls[:, :, :k]
        sides = correlate(
            self.hidden, self.first_equal, self.readout[:, :k], nulls, order, np.array(ms, np.int32), plan=plan
        )
        sides = on_host(sides, plan.mesh)
        self._check_shares(sides, subspaces, ms, plan.ks)
        rho = finish(np.asarray(sides.squares)[:, None], sides.products)
        return rho[: len(subspaces)], np.asarray(sides.products.loss)[: len(subspaces)]

    def _score(self, rho: np.ndarray, by_sort: np.ndarray, m: int, k: int) -> AlignmentScore:
        if not np.isfinite(rho).all():
            raise ValueError(f"all distances between the states are equal for m = {m}, k = {k}: they have no order")
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
            key_data=None if self.key is None else tuple(np.asarray(_raw(self.key)).reshape(-1).tolist()),
            key_impl=None if self.key is None else str(jax.random.key_impl(self.key)),
            devices=self.plan.mesh.size,
        )

    def _check_shares(self, sides: Sides, subspaces: np.ndarray, ms: tuple[int, ...], ks: tuple[int, ...]) -> None:
        full, projected = np.asarray(sides.full_share), np.asarray(sides.projected_share)[: len(subspaces)]
        for i, m in enumerate(ms):
            if not full[i] > _LEAST_SHARE:
                raise ValueError(f"removing m = {m} principal directions leaves nothing of at least one state")
            for j, k in enumerate(ks):
                lost = subspaces[~(projected[:, i, j] > _LEAST_SHARE)]
                if len(lost):
                    which = "the readout subspace" if lost[0] == 0 else f"null subspace {lost[0] - 1}"
                    raise ValueError(f"at least one state has no component in {which} for m = {m}, k = {k}")


def _raw(key: Array) -> Array:
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
