"""What a packing run returns."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64


class BoundViolation(RuntimeError):
    """A coherence below what a theorem allows: an error of this software, not of its user."""


class History(NamedTuple):
    """What the start that won went through, one entry a step, in the float32 of the optimiser.

    Attributes:
      step: step number.
      smooth_maximum: the smooth maximum, in units of a cosine; never below the coherence but for rounding.
      coherence: largest |cos| (lines) or cos (codes).
      p: the exponent of the annealing.
    """

    step: Int64[np.ndarray, " n"]
    smooth_maximum: Float32[np.ndarray, " n"]
    coherence: Float32[np.ndarray, " n"]
    p: Float32[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class PackSettings:
    """Everything beside the key and the given vectors that decides the numbers of a run.

    Attributes:
      objective: `"lines"` or `"codes"`.
      steps: steps of each start.
      starts: independent starts.
      init: where they start: `"random"`, `"vectors"`, or the name of a construction.
      dtype: of the matrix products, `"float32"` or `"bfloat16"`.
      float32_steps: last steps, done with float32 products whatever the dtype.
      tile: rows of a block.
      devices: devices that share the tiles.
      p_first: p at the first step, for one start after another, in turn.
      p_last: p at the last step.
      rate_first, rate_last: learning rate at the first and last step.
    """

    objective: str
    steps: int
    starts: int
    init: str
    dtype: str
    float32_steps: int
    tile: int
    devices: int
    p_first: tuple[float, ...]
    p_last: float
    rate_first: float
    rate_last: float

    def to_record(self) -> dict[str, Any]:
        """The settings as valid JSON."""
        return {**dataclasses.asdict(self), "p_first": list(self.p_first)}


@dataclasses.dataclass(frozen=True)
class Packing:
    """A packing of k vectors in R^d, with what it is held against and how it came about.

    Attributes:
      vectors: `(k, d)` float32 unit rows.
      coherence: largest |cos| (lines) or cos (codes) over the pairs of these rows, in float64.
      bound: no arrangement has a smaller coherence.
      bound_name: the theorem that says so.
      history: the steps of the winning start; empty where no optimiser was needed.
      start_coherences: `(starts,)` coherence of each start after the descent, before the polish.
      polished: whether the float64 polish improved on the descent.
      completed: False after an interrupt, when `steps_done` may be less than `settings.steps`.
      settings: see `PackSettings`; `None` where the best arrangement is known and was returned at once.
      key_data, key_impl: the random key.
      seconds: wall time of this call.
    """

    vectors: Float32[np.ndarray, "k d"]
    coherence: float
    objective: str
    bound: float
    bound_name: str
    history: History
    start_coherences: np.ndarray
    polished: bool
    completed: bool
    settings: PackSettings | None
    key_data: tuple[int, ...]
    key_impl: str
    seconds: float

    def __post_init__(self) -> None:
        # Vectors are float32, but their coherence is evaluated in float64: only its rounding is forgiven.
        if self.coherence < self.bound - 1e-11:
            raise BoundViolation(
                f"internal error: {self.k} vectors in R^{self.d} ({self.objective}) have coherence {self.coherence!r}, "
                f"below the {self.bound_name} bound {self.bound!r}; please report this with key {self.key_data}"
            )

    @property
    def k(self) -> int:
        """Number of vectors."""
        return self.vectors.shape[0]

    @property
    def d(self) -> int:
        """Dimension."""
        return self.vectors.shape[1]

    @property
    def gap(self) -> float:
        """Coherence less its bound: 0 for a proven optimum."""
        return self.coherence - self.bound

    @property
    def steps_done(self) -> int:
        """Steps of the optimiser; 0 where none was needed."""
        return len(self.history.step)

    def to_record(self) -> dict[str, Any]:
        """Everything but the vectors and the history, as valid JSON."""
        record: dict[str, Any] = {
            "k": self.k,
            "d": self.d,
            "objective": self.objective,
            "coherence": self.coherence,
            "bound": self.bound,
            "bound_name": self.bound_name,
            "polished": self.polished,
            "completed": self.completed,
            "steps_done": self.steps_done,
            "start_coherences": [float(value) for value in self.start_coherences],
            "settings": None if self.settings is None else self.settings.to_record(),
            "key": {"data": list(self.key_data), "impl": self.key_impl},
            "seconds": self.seconds,
        }
        if self.settings is None:
            record["settings_reason"] = "the best arrangement is known; no optimiser was needed"
        return {name: _finite(value) for name, value in record.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
