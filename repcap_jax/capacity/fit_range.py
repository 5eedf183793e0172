"""The range of cells a law was fitted on, so that an estimate outside it can say that it extrapolates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._values import Number


@dataclass(frozen=True)
class FitRange:
    """The cells a law was fitted on: a point outside them is an extrapolation.

    Args:
      d: smallest and largest dimension of the grid.
      k: smallest and largest number of vectors, or None if only the ratio matters.
      ratio: smallest and largest k / d, or None.
      square: largest k / d^2, or None.
    """

    d: tuple[Number, Number]
    k: tuple[Number, Number] | None = None
    ratio: tuple[Number, Number] | None = None
    square: Number | None = None

    def _limits(self, d: Any, k: Any) -> Iterator[tuple[str, Any, tuple[Number, Number]]]:
        """Each limited quantity: its name, its value and its range."""
        yield "d", d, self.d
        if self.k is not None:
            yield "k", k, self.k
        if self.ratio is not None:
            yield "k / d", k / d, self.ratio
        if self.square is not None:
            yield "k / d^2", k / d**2, (0, self.square)

    def contains(self, d: Any, k: Any) -> Any:
        """Return whether (d, k) lies in the fitted range, elementwise; rounding of k at its ends is forgiven."""
        d, k = np.asarray(d, np.float64), np.asarray(k, np.float64)
        inside = [_within(value, limits) for _, value, limits in self._limits(d, k)]
        inside = np.logical_and.reduce(np.broadcast_arrays(*inside))
        return bool(inside) if np.ndim(inside) == 0 else inside

    def reasons(self, d: float, k: float) -> tuple[str, ...]:
        """Return one sentence for each limit that the point (d, k) breaks."""
        return tuple(
            f"{name} = {value:,.6g} is outside the fitted range {limits[0]:,.6g} to {limits[1]:,.6g}"
            for name, value, limits in self._limits(d, k)
            if not _within(value, limits)
        )


def _within(value: Any, limits: tuple[Number, Number]) -> Any:
    return (value >= limits[0] * (1 - 1e-9)) & (value <= limits[1] * (1 + 1e-9))
