"""One layer as the experiment reports it: the score, how it moves with k and m, and the spectral metrics beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.alignment.score import Sensitivity, alignment_score, sensitivity
from repcap_jax.alignment.spectral import SpectralMetrics, spectral_metrics

REMOVALS = (0, 1, 5, 10)
TABLE_NULLS = 20  # tells how z moves with k and m; the score itself has more
_CELL = ("z", "z_error", "effect", "rho", "null_mean", "null_std")


@dataclasses.dataclass(frozen=True)
class LayerAlignment:
    """The alignment of one layer.

    Attributes:
      score: for the k and m that are reported.
      table: scores over numbers of removed directions and subspace dimensions, which show how it depends on them; from
        the first of its nulls, but for the reported k and m, where the score itself stands.
      spectral: metrics of the states' spectrum.
    """

    score: AlignmentScore
    table: Sensitivity
    spectral: SpectralMetrics

    def to_record(self) -> dict[str, Any]:
        """Score, table and metrics as valid JSON; of the table's cells everything but the single nulls."""
        table: dict[str, Any] = {"ms": list(self.table.ms), "ks": list(self.table.ks)}
        table["nulls"] = [[score.nulls for score in row] for row in self.table.scores]
        for name in _CELL:
            values = [[getattr(score, name) for score in row] for row in self.table.scores]
            table[name] = [[value if math.isfinite(value) else None for value in row] for row in values]
        if any(value is None for row in table["z"] for value in row):
            table["z_reason"] = "the nulls of these cells do not vary, so z has no scale"
        return {"score": self.score.to_record(), "sensitivity": table, "spectral": self.spectral.to_record()}


def table_axes(n: int, d: int, k: int, m: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The k and m of the default table: half, once and twice k below d; of 0, 1, 5, 10 and m those that n allows."""
    ks = {max(1, k // 2), k, *({2 * k} if 2 * k < d else ())}
    return tuple(sorted(ks)), tuple(sorted({*(r for r in REMOVALS if r <= min(n, d) - 2), m}))


def layer_alignment(
    hidden: Any,
    readout: Any,
    key: Array | None,
    *,
    k: int = 100,
    remove: int = 1,
    ks: Sequence[int] | None = None,
    ms: Sequence[int] | None = None,
    nulls: int = 100,
    table_nulls: int = TABLE_NULLS,
    remove_after: bool = False,
    frames: Any = None,
    method: str = "auto",
    mesh: Mesh | None = None,
) -> LayerAlignment:
    """Score one layer, show how the score moves with k and m, and describe the layer's spectrum.

    Args:
      hidden: `(n, d)` states of the layer.
      readout: `(d, largest k)` from `readout_subspace`.
      key, nulls, remove_after, frames, method, mesh: see `alignment_score`.
      k, remove: of the score that is reported.
      ks, ms: of the table; `None` for `table_axes`. `k` and `remove` are added where they are missing.
      table_nulls: random subspaces of the table's other cells, the first of the score's own; at least 2.
    Returns:
      LayerAlignment.
    Raises:
      TypeError, ValueError: see `alignment_score`.
    Source: Xu 2026 (arXiv:2605.17084).
    """
    hidden, readout = np.asarray(hidden), np.asarray(readout)
    default_ks, default_ms = table_axes(*hidden.shape, k, remove)
    ks = sorted({k, *(default_ks if ks is None else ks)})
    ms = sorted({remove, *(default_ms if ms is None else ms)})
    common: dict[str, Any] = {"remove_after": remove_after, "method": method, "mesh": mesh}
    # Frames are drawn one by one from the key, so that fewer of them are the first of more.
    first = None if frames is None else frames[:table_nulls]
    table = sensitivity(hidden, readout, key, ks=ks, ms=ms, nulls=min(table_nulls, nulls), frames=first, **common)
    wide = None if frames is None else frames[:, :, :k]
    score = alignment_score(hidden, readout[:, :k], key, nulls=nulls, remove=remove, frames=wide, **common)
    return LayerAlignment(score, table.replaced(score), spectral_metrics(hidden, readout[:, :k]))
