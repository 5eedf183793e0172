"""What the score returns."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64


@dataclasses.dataclass(frozen=True)
class AlignmentScore:
    """How well the readout subspace keeps the order of the distances between states, against random subspaces.

    Attributes:
      rho: Spearman's correlation of the cosine distances of all pairs in the full space and in the readout subspace.
      null_rhos: `(nulls,)` the same for uniform random subspaces of the same dimension.
      n: states.
      d: width.
      k: dimension of the subspaces.
      m: principal directions removed.
      remove_after: whether those of the projected states were removed on the projected side.
      method: of the ranks, as asked for.
      methods_used: how many of the `nulls + 1` correlations came from a `"sort"` and from the `"binned"` way.
      repeated: states that equal an earlier one.
      frames: `"drawn"` from the key, or `"given"`.
      key_data, key_impl: the random key; `None` if the frames were given without one.
      devices: that shared the nulls.
    """

    rho: float
    null_rhos: Float64[np.ndarray, " nulls"]
    n: int
    d: int
    k: int
    m: int
    remove_after: bool
    method: str
    methods_used: dict[str, int]
    repeated: int
    frames: str
    key_data: tuple[int, ...] | None
    key_impl: str | None
    devices: int

    @property
    def nulls(self) -> int:
        """Number of random subspaces."""
        return len(self.null_rhos)

    @property
    def null_mean(self) -> float:
        """Mean of the null's rho."""
        return float(self.null_rhos.mean())

    @property
    def null_std(self) -> float:
        """Standard deviation of the null's rho (ddof 1)."""
        return float(self.null_rhos.std(ddof=1))

    @property
    def effect(self) -> float:
        """rho less the null's mean."""
        return self.rho - self.null_mean

    @property
    def z(self) -> float:
        """z = (rho - null mean) / null std; NaN where the nulls do not vary."""
        return self.effect / self.null_std if self.null_std > 0 else math.nan

    @property
    def z_error(self) -> float:
        """Monte-Carlo standard error of z, from the finite number B of nulls: sqrt(1 / B + z^2 / (2 (B - 1))).

        First-order error of a normal null's mean and standard deviation. It does not cover the choice of states.
        """
        return math.sqrt(1 / self.nulls + self.z**2 / (2 * (self.nulls - 1)))

    @property
    def p_above(self) -> float:
        """(1 + #{null >= rho}) / (1 + nulls): how often chance does at least as well."""
        return (1 + int(np.sum(self.null_rhos >= self.rho))) / (1 + self.nulls)

    @property
    def p_below(self) -> float:
        """(1 + #{null <= rho}) / (1 + nulls): how often chance does no better."""
        return (1 + int(np.sum(self.null_rhos <= self.rho))) / (1 + self.nulls)

    @property
    def p_two_sided(self) -> float:
        """Twice the smaller of `p_above` and `p_below`, at most 1."""
        return min(1.0, 2 * min(self.p_above, self.p_below))

    @property
    def method_used(self) -> str:
        """`"binned"`, `"sort"`, or `"binned+sort"` if `auto` took both."""
        return "+".join(name for name, count in sorted(self.methods_used.items()) if count)

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        record = {
            name: getattr(self, name)
            for name in ("z", "z_error", "rho", "effect", "null_mean", "null_std", "p_above", "p_below", "p_two_sided")
        }
        record |= {name: getattr(self, name) for name in ("n", "d", "k", "m", "nulls", "remove_after", "repeated")}
        record |= {"method": self.method, "methods_used": dict(self.methods_used), "devices": self.devices}
        record |= {"frames": self.frames, "null_rhos": self.null_rhos.tolist()}
        record["key"] = None if self.key_data is None else {"data": list(self.key_data), "impl": self.key_impl}
        if math.isnan(self.z):
            record |= {"z": None, "z_error": None, "z_reason": "the nulls do not vary, so z has no scale"}
        return record
