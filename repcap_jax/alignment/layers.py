"""One layer as the experiment reports it: the score, how it moves with k and m, and the spectral metrics beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.alignment.checks import check_hidden
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


def _table_ks(d: int, k: int, least: int) -> list[int]:
    """Half, once and twice k, those below d and not below `least`."""
    return [other for other in (max(1, k // 2), 2 * k) if least <= other < d]


def _table_ms(most: int) -> list[int]:
    return [m for m in REMOVALS if m <= most]


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
      ks, ms: of the table; `None` for half, once and twice k, and 0, 1, 5 and 10, as far as the states allow. `k` and
        `remove` are added where they are missing.
      table_nulls: random subspaces of the table's other cells, the first of the score's own; at least 2.
    Returns:
      LayerAlignment.
    Raises:
      TypeError, ValueError: see `alignment_score`.
    Source: Xu 2026 (arXiv:2605.17084).
    """
    hidden, readout = check_hidden(hidden), np.asarray(readout)
    n, d = hidden.shape
    # Of states in R^k at most k - 2 directions can be removed.
    ks = sorted({k, *(_table_ks(d, k, remove + 2 if remove_after else 1) if ks is None else ks)})
    ms = sorted({remove, *(_table_ms(min(n, ks[0] if remove_after else d) - 2) if ms is None else ms)})
    common: dict[str, Any] = {"remove_after": remove_after, "method": method, "mesh": mesh}
    # Frames are drawn one by one from the key, so that fewer of them are the first of more.
    first = None if frames is None else frames[:table_nulls]
    table = sensitivity(hidden, readout, key, ks=ks, ms=ms, nulls=min(table_nulls, nulls), frames=first, **common)
    wide = None if frames is None else frames[:, :, :k]
    score = alignment_score(hidden, readout[:, :k], key, nulls=nulls, remove=remove, frames=wide, **common)
    return LayerAlignment(score, table.replaced(score), spectral_metrics(hidden, readout[:, :k]))
