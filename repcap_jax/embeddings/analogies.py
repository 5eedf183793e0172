"""Analogies by vector arithmetic, `king - man + woman`: what comes first, and where the expected answer stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.projection import project_rows

_BATCH = 32  # queries at a time: n x 32 cosines are the most that is in memory


@dataclasses.dataclass(frozen=True)
class Query:
    """A sum of unit vectors to look for.

    Attributes:
      plus, minus: row numbers to add and to take away.
      excluded: row numbers that may not answer: usually the words themselves and their case variants.
      expected: the row that should come first, None if there is none.
    """

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    expected: int | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """What lies closest to a query.

    Attributes:
      rows: the closest rows, closest first, the excluded ones left out.
      cosines: their cosines with the query.
      rank: place of the expected row, from 1; None if none was expected or it is excluded itself.
      expected_cosine: its cosine; None likewise.
    """

    rows: np.ndarray
    cosines: np.ndarray
    rank: int | None
    expected_cosine: float | None

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return {
            "rows": self.rows.tolist(),
            "cosines": self.cosines.tolist(),
            "rank": self.rank,
            "expected_cosine": self.expected_cosine,
        }


@dataclasses.dataclass(frozen=True)
class Score:
    """How often expected answers came first.

    Attributes:
      n: queries with an expected answer.
      accuracy_1, accuracy_10: share of them whose answer has rank 1, or at most 10.
      reciprocal_rank: mean of 1 / rank.
    """

    n: int
    accuracy_1: float
    accuracy_10: float
    reciprocal_rank: float

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return dataclasses.asdict(self)


def solve(x: Any, queries: Sequence[Query], *, top: int = 40, precision: str | None = None) -> list[Answer]:
    """The rows closest to each query, by cosine.

        q = sum_{plus} x_i / |x_i| - sum_{minus} x_i / |x_i|,      answer = argmax_j <x_j, q> / (|x_j| |q|)

    Ties go to the lowest row number.

    Args:
      x: `(n, d)`.
      queries: what to look for.
      top: how many rows to return for each.
      precision: matrix-product precision, `"highest"` by default.
    Returns:
      One Answer for each query.
    Raises:
      TypeError, ValueError: if x is no matrix, a row number is outside it, a row of a query has no direction, or the
        vectors of a query cancel.
    Source: Guha 2026 (arXiv:2606.02765), appendix C.
    """
    x = check_matrix(x)
    if top < 1:
        raise ValueError(f"top is the number of rows to return, at least 1, got {top}")
    targets = np.array([query_direction(x, query) for query in queries]).reshape(-1, x.shape[1])
    answers: list[Answer] = []
    for start in range(0, len(targets), _BATCH):
        cosines = project_rows(x, targets[start : start + _BATCH], unit=True, precision=precision)
        answers += [_answer(column, query, top) for column, query in zip(cosines.T, queries[start : start + _BATCH])]
    return answers


def score(ranks: Sequence[int]) -> Score:
    """Accuracy at 1 and at 10, and mean reciprocal rank.

    Args:
      ranks: place of each expected answer, from 1.
    Raises:
      ValueError: if there is none.
    """
    places = np.asarray(ranks, np.float64)
    if not len(places):
        raise ValueError("no rank to score: every analogy lacked a single-token word")
    return Score(len(places), float(np.mean(places <= 1)), float(np.mean(places <= 10)), float(np.mean(1 / places)))


def query_direction(x: np.ndarray, query: Query) -> np.ndarray:
    """The unit vector that a query looks for, `(d,)` float64; errors as in `solve`."""
    if not query.plus:
        raise ValueError("a query needs at least one row to add")
    rows = [*query.plus, *query.minus]
    beyond = [row for row in (*rows, *query.excluded, *([query.expected] if query.expected is not None else [])) if
              not 0 <= row < len(x)]  # fmt: skip
    if beyond:
        raise ValueError(f"row numbers {beyond} are outside the matrix with {len(x)} rows")
    vectors = np.asarray(x[rows]).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"rows {rows}: one of them is zero or not finite, so it has no direction to add")
    signs = np.array([1.0] * len(query.plus) + [-1.0] * len(query.minus))
    target = signs @ (vectors / lengths)
    length = np.linalg.norm(target)
    if length < 1e-9:
        raise ValueError(f"the vectors of rows {rows} cancel, so the query has no direction")
    return target / length


def _answer(cosines: np.ndarray, query: Query, top: int) -> Answer:
    allowed = np.where(np.isnan(cosines), -np.inf, cosines)
    allowed[list(query.excluded)] = -np.inf
    count = min(top, len(allowed))
    least = np.partition(allowed, len(allowed) - count)[len(allowed) - count]
    candidates = np.flatnonzero(allowed >= least)
    rows = candidates[np.argsort(-allowed[candidates], kind="stable")][:count]
    rows = rows[np.isfinite(allowed[rows])]
    rank = cosine = None
    if query.expected is not None and np.isfinite(allowed[query.expected]):
        own = allowed[query.expected]
        ahead = np.count_nonzero(allowed > own) + np.count_nonzero(allowed[: query.expected] == own)
        rank, cosine = 1 + int(ahead), float(own)
    return Answer(rows, cosines[rows], rank, cosine)
