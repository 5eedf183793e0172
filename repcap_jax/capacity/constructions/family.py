"""What a family of explicit line sets is: which members fit in R^d, and the rows of one member."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np


class Member(NamedTuple):
    """One explicit set: k lines in R^d with coherence at most `coherence`, at the parameters of its family."""

    parameters: tuple[int, ...]
    d: int
    k: int
    coherence: float


class Family(NamedTuple):
    """A family of explicit line sets.

    Args:
      name: short name, the key in the catalogue.
      parameter_names: what the integers in `Member.parameters` mean.
      members: members(d) yields the members that fit in R^d and are not beaten by another member of the family.
      dimension: dimension(*parameters) is the d of that member, if there is one.
      rows: rows(parameters, index) returns the unit vectors with the given row numbers, float64 [len(index), d].
      source: where the family comes from.
    """

    name: str
    parameter_names: tuple[str, ...]
    members: Callable[[int], Iterable[Member]]
    dimension: Callable[..., int]
    rows: Callable[[tuple[int, ...], np.ndarray], np.ndarray]
    source: str


def split(index: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (index // base, index % base as int64); works for int64 and for Python integers in object arrays."""
    return index // base, (index % base).astype(np.int64)


def digits(index: np.ndarray, base: int, count: int) -> list[np.ndarray]:
    """Return the `count` lowest digits of each number in the given base, lowest first."""
    found: list[Any] = []
    for _ in range(count):
        index, digit = split(index, base)
        found.append(digit)
    return found


def prepend_identity(index: np.ndarray, d: int, rest: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return unit basis vectors for row numbers below d and rest(number - d) for the others."""
    basis = np.asarray(index < d, dtype=bool)
    if not basis.any():
        return rest(index - d)
    rows = np.zeros((len(index), d))
    rows[np.flatnonzero(basis), index[basis].astype(np.int64)] = 1.0
    if not basis.all():
        rows[~basis] = rest(index[~basis] - d)
    return rows
