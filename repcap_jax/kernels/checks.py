"""Checks of arguments: whole numbers in a range, and names from a list."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(value: Any, name: str, lowest: int = 1, highest: int | None = None) -> int:
    """Return `value` as an int in `lowest .. highest`.

    Raises:
      TypeError: not a whole number.
      ValueError: out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < lowest or (highest is not None and value > highest):
        wanted = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{name} must be {wanted}, got {value}")
    return int(value)


def one_of(value: Any, known: tuple[str, ...], name: str) -> str:
    """Return `value` if it is one of the known names.

    Raises:
      ValueError: it is not.
    """
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value
