"""Questions put in words: named pairs and analogies, looked up through a tokenizer and asked of a matrix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from repcap_jax.checkpoints.words import Words
from repcap_jax.embeddings.analogies import Answer, Query, Score, query_direction, score, solve
from repcap_jax.embeddings.similarity import corresponding_cosines
from repcap_jax.kernels.placement import check_matrix


@dataclasses.dataclass(frozen=True)
class Analogy:
    """A question in words.

    Attributes:
      plus, minus: words to add and to take away.
      expected: the answer, None if none is known.
      relation: the kind of question, for grouping; "" for none.
    """

    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    expected: str | None = None
    relation: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """All words of the question and its answer."""
        return (*self.plus, *self.minus, *(() if self.expected is None else (self.expected,)))

    def __str__(self) -> str:
        asked = " + ".join(self.plus) + "".join(f" - {word}" for word in self.minus)
        return asked if self.expected is None else f"{asked} = {self.expected}"


@dataclasses.dataclass(frozen=True)
class AnalogyResult:
    """A question, and its answer or why there is none."""

    analogy: Analogy
    answer: Answer | None
    problem: str | None

    def to_record(self, words: Words) -> dict[str, Any]:
        """The question and answer as valid JSON, rows as text."""
        record = {"question": str(self.analogy), "relation": self.analogy.relation, "problem": self.problem}
        if self.answer is None:
            return record | {"answers": [], "cosines": [], "rank": None, "expected_cosine": None}
        kept = {name: value for name, value in self.answer.to_record().items() if name != "rows"}
        return record | {"answers": words.texts(self.answer.rows)} | kept


@dataclasses.dataclass(frozen=True)
class NamedPair:
    """Two words and the cosine of their rows, or why there is none."""

    first: str
    second: str
    cosine: float | None
    problem: str | None

    def to_record(self) -> dict[str, Any]:
        """The pair as valid JSON."""
        return dataclasses.asdict(self)


def parse_pair(text: str) -> tuple[str, str]:
    """Split `cat-dog` (or `cat:dog`, for words with a hyphen) into two words.

    Raises:
      ValueError: it is no pair.
    """
    parts = [part.strip() for part in text.split(":" if ":" in text else "-")]
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"a pair is written word-word, or word:word where a word has a hyphen, got {text!r}")
    return parts[0], parts[1]


def parse_analogy(text: str) -> Analogy:
    """Read `king-man+woman`, with `=queen` at its end where an answer is expected.

    Raises:
      ValueError: it is no such expression.
    """
    asked, _, expected = text.partition("=")
    parts = [part.strip() for part in re.split(r"([+-])", asked)]
    words, signs = parts[::2], ["+", *parts[1::2]]
    if "=" in text and not expected.strip() or not all(words) or len(words) < 2:
        raise ValueError(
            f"an analogy is written word-word+word, with =word at its end if one is expected, got {text!r}"
        )
    plus = tuple(word for word, sign in zip(words, signs) if sign == "+")
    minus = tuple(word for word, sign in zip(words, signs) if sign == "-")
    return Analogy(plus, minus, expected.strip() or None)


def built_in_analogies() -> list[Analogy]:
    """The hundred analogies that come with the package: ten relations, ten questions each."""
    text = (resources.files("repcap_jax.embeddings") / "data" / "analogies.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return [Analogy((b, c), (a,), d, relation) for relation, a, b, c, d in rows]


def named_pairs(x: Any, words: Words, pairs: Sequence[tuple[str, str]]) -> list[NamedPair]:
    """Cosine of the rows of two words, for each pair.

    Args:
      x: `(n, d)`, rows by token id.
      words: looks the words up.
      pairs: of words; those that are no single token are reported with the reason.
    Returns:
      One NamedPair for each, in their order.
    """
    x, found = check_matrix(x), []
    for first, second in pairs:
        rows, problem = _rows(words, (first, second), len(x))
        cosine = None
        if problem is None:
            cosine = float(corresponding_cosines(x[rows[:1]], x[rows[1:]])[0])
            if np.isnan(cosine):
                cosine, problem = None, "a row is zero or not finite"
        found.append(NamedPair(first, second, cosine, problem))
    return found


def ask(
    x: Any,
    words: Words,
    analogies: Sequence[Analogy],
    *,
    top: int = 40,
    exclude: str = "variants",
    precision: str | None = None,
) -> list[AnalogyResult]:
    """Answer analogies in words; those with a word that is no single token are reported with the reason.

    Args:
      x: `(n, d)`, rows by token id.
      words: looks the words up.
      analogies: the questions.
      top: how many answers to give.
      exclude: what may not answer: `"variants"`, the words of the question with and without word-start mark and in
        every common case; `"words"`, the very tokens of the question; `"nothing"`.
      precision: matrix-product precision.
    Returns:
      One AnalogyResult for each, in their order.
    Raises:
      ValueError: an option is out of range.
    """
    if exclude not in ("variants", "words", "nothing"):
        raise ValueError(f"exclude must be 'variants', 'words' or 'nothing', got {exclude!r}")
    x = check_matrix(x)
    queries: list[Query] = []
    problems: list[str | None] = []
    for analogy in analogies:
        rows, problem = _rows(words, analogy.words, len(x))
        if problem is None:
            query = _query(analogy, rows, words, exclude, len(x))
            try:
                query_direction(x, query)
                queries.append(query)
            except ValueError as error:
                problem = str(error)
        problems.append(problem)
    answers = iter(solve(x, queries, top=top, precision=precision) if queries else [])
    return [
        AnalogyResult(analogy, next(answers) if problem is None else None, problem)
        for analogy, problem in zip(analogies, problems)
    ]


def scores(results: Sequence[AnalogyResult]) -> dict[str, Score]:
    """Score of each relation that has an answered question with an expected answer, and of `"all"` together."""
    ranks: dict[str, list[int]] = {}
    for result in results:
        if result.answer is not None and result.answer.rank is not None:
            ranks.setdefault(result.analogy.relation, []).append(result.answer.rank)
    found = {relation: score(places) for relation, places in ranks.items()}
    return found | ({"all": score(sum(ranks.values(), []))} if ranks else {})


def _query(analogy: Analogy, rows: list[int], words: Words, exclude: str, n: int) -> Query:
    """The question in row numbers."""
    first = len(analogy.plus)
    plus, minus = tuple(rows[:first]), tuple(rows[first : first + len(analogy.minus)])
    expected = None if analogy.expected is None else rows[-1]
    excluded = {"nothing": set(), "words": {*plus, *minus}}.get(exclude)
    if excluded is None:
        asked = (*analogy.plus, *analogy.minus)
        excluded = {row for word in asked for row in words.variants(word) if row < n} | {*plus, *minus}
    return Query(plus, minus, tuple(sorted(excluded - {expected})), expected)


def _rows(words: Words, asked: Sequence[str], n: int) -> tuple[list[int], str | None]:
    """Row numbers of words, or the reasons why some have none."""
    found = [words.look_up(word) for word in asked]
    problems = [f"{lookup.word}: {lookup.problem}" for lookup in found if lookup.problem]
    problems += [f"{lookup.word}: beyond the matrix's {n} rows" for lookup in found if (lookup.token or 0) >= n]
    return [lookup.token for lookup in found if lookup.token is not None], "; ".join(problems) or None
