"""Checks of what the score is given: everything that can be told before a program is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.placement import check_matrix

_LISTED = 8


def check_hidden(hidden: Any) -> np.ndarray:
    """Hidden states as an `(n, d)` float32 array, each row of which has a direction from their mean.

    Raises:
      TypeError: not an array of real numbers.
      ValueError: not a matrix, fewer than three rows, NaN or infinite entries, a row with one number in all entries, or
        a row that is the mean of all.
    """
    states = check_matrix(hidden, "hidden")
    n, d = states.shape
    if n < 3:
        raise ValueError(f"hidden must hold at least 3 states, whose distances can be ranked, got {n}")
    states = np.asarray(states, np.float32)
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if len(bad):
        raise ValueError(f"hidden holds NaN or infinite entries (float32) in {_rows(bad)} of {n}; leave them out")
    constant = np.flatnonzero((states == states[:, :1]).all(axis=1))
    if len(constant):
        raise ValueError(
            f"hidden is constant along {_rows(constant)} of {n} (zeros or one number throughout): padding, not a state"
        )
    centred = states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(centred, axis=1)
    # What float32 cannot tell from the mean has no direction from it.
    vanishing = np.flatnonzero(lengths <= 1e-6 * np.linalg.norm(states, axis=1))
    if len(vanishing):
        raise ValueError(
            f"{_rows(vanishing)} of hidden equal the mean of all {n} states, so they have no direction from it"
            + ("; all states are the same" if len(vanishing) == n else "")
        )
    return states


def check_basis(basis: Any, name: str, d: int) -> np.ndarray:
    """A `(d, k)` float32 array of orthonormal columns, k < d.

    Raises:
      TypeError, ValueError: for anything else.
    """
    columns = check_matrix(basis, name)
    if columns.shape[0] != d:
        raise ValueError(f"hidden states have d = {d}, but {name} has shape {columns.shape}: it must be (d, k)")
    k = columns.shape[1]
    if k >= d:
        raise ValueError(
            f"the subspace must be smaller than the width, got k = {k} of d = {d}: with k = d every null is the whole "
            "space and their spread is 0"
        )
    columns = np.asarray(columns, np.float32)
    off = np.abs(columns.T.astype(np.float64) @ columns - np.eye(k)).max() if np.isfinite(columns).all() else np.nan
    if not off < 1e-3:
        raise ValueError(f"the columns of {name} must be orthonormal; products are off by {off:.2g}")
    return columns


def check_frames(frames: Any, d: int, k: int) -> Any:
    """The first k columns of `(nulls, d, at least k)` float32 frames, on the host or the device as they came.

    Raises:
      ValueError: for another shape, fewer than two frames, or a first frame that is not orthonormal.
    """
    shape = np.shape(frames)
    if len(shape) != 3 or shape[0] < 2 or shape[1] != d or shape[2] < k:
        raise ValueError(f"frames must have shape (nulls >= 2, d = {d}, k = {k}), got {shape}")
    check_basis(np.asarray(frames[0]), "frames[0]", d)
    if isinstance(frames, np.ndarray):
        frames = frames.astype(np.float32, copy=False)
    return frames if shape[2] == k else frames[:, :, :k]


def check_removal(remove: Any, n: int, d: int, k: int, remove_after: bool) -> int:
    """The number m of principal directions to remove.

    Raises:
      TypeError, ValueError: not a whole number from 0 on, or so many that too little is left.
    """
    m = whole(remove, "remove", 0)
    # n centred states span n - 1 dimensions; two must be left for the cosines to vary.
    if m > min(n, d) - 2:
        raise ValueError(
            f"removing m = {m} principal directions leaves nothing to compare: n = {n} states in d = {d} allow up to "
            f"m = {min(n, d) - 2}"
        )
    if remove_after and m > k - 2:
        raise ValueError(f"removing m = {m} directions after the projection needs k of at least m + 2, got k = {k}")
    return m


def first_equals(rows: np.ndarray) -> np.ndarray:
    """For each row the number of the first row equal to it, its own if none is before it."""
    seen: dict[bytes, int] = {}
    plain = np.ascontiguousarray(rows + np.zeros((), rows.dtype))  # -0.0 becomes 0.0
    return np.array([seen.setdefault(row.tobytes(), number) for number, row in enumerate(plain)], np.int32)


def _rows(numbers: np.ndarray) -> str:
    listed = ", ".join(map(str, numbers[:_LISTED])) + (", .." if len(numbers) > _LISTED else "")
    return f"{len(numbers)} row{'s' if len(numbers) > 1 else ''} ({listed})"
