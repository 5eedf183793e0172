"""Analogies in row numbers and in words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax.checkpoints.words import Words
from repcap_jax.embeddings.analogies import Query, score, solve
from repcap_jax.embeddings.lexicon import (
    Analogy,
    ask,
    built_in_analogies,
    named_pairs,
    parse_analogy,
    parse_pair,
    scores,
)
from tests.tokenizers import make_tokenizer

N, D = 300, 20


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)


@pytest.fixture(scope="module")
def royal():
    """A byte-level tokenizer with a matrix in which gender is one direction."""
    tokenizer = make_tokenizer(["man", "woman", "king", "queen", "King", "boy", "girl"])
    words = Words(tokenizer)
    rng = np.random.default_rng(1)
    x = 0.3 * rng.standard_normal((words.size, 32)).astype(np.float32)
    gender = rng.standard_normal(32)
    for male, female in (("man", "woman"), ("king", "queen"), ("boy", "girl")):
        x[words.token(male)] = rng.standard_normal(32)
        x[words.token(female)] = x[words.token(male)] + 0.5 * gender
    man, woman, king = (x[words.token(word)] for word in ("man", "woman", "king"))
    # The variant King is the very vector that is looked for: nearer than the answer.
    x[words.token("King")] = sum(s * v / np.linalg.norm(v) for s, v in ((1, king), (-1, man), (1, woman)))
    return x, words


def exact_order(x, query):
    unit = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    target = unit[list(query.plus)].sum(axis=0) - unit[list(query.minus)].sum(axis=0)
    cosines = unit @ (target / np.linalg.norm(target))
    kept = np.setdiff1d(np.arange(len(x)), query.excluded)
    return kept[np.argsort(-cosines[kept], kind="stable")], cosines


def test_order_and_rank(matrix):
    queries = [Query((i, i + 50), (i + 100,), (i, i + 50, i + 100), i + 150) for i in range(40)]
    for query, answer in zip(queries, solve(matrix, queries, top=10)):
        order, cosines = exact_order(matrix, query)
        np.testing.assert_allclose(answer.cosines, cosines[order[:10]], atol=1e-5)
        assert answer.rank == 1 + int(np.flatnonzero(order == query.expected)[0])
        assert not set(answer.rows.tolist()) & set(query.excluded)


@given(st.integers(0, 2**31), st.floats(0.01, 100))
def test_lengths_do_not_matter(seed, scale):
    x = np.random.default_rng(seed).standard_normal((30, 6)).astype(np.float32)
    scales = np.ones((30, 1), np.float32)
    scales[seed % 30] = scale
    query = Query((0, 1), (2,), (0, 1, 2), 5)
    (a,), (b,) = solve(x, [query], top=3), solve(x * scales, [query], top=3)
    assert a.rank == b.rank and (a.rows == b.rows).all()


def test_ties_go_to_the_lowest_row():
    x = np.eye(4, dtype=np.float32)[[0, 1, 1, 1]]
    (answer,) = solve(x, [Query((0, 1), (), (0,), 3)], top=4)
    assert answer.rows.tolist() == [1, 2, 3] and answer.rank == 3


def test_scores():
    found = score([1, 2, 20])
    assert (found.n, found.accuracy_1, found.accuracy_10) == (3, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found.reciprocal_rank == pytest.approx((1 + 0.5 + 0.05) / 3)
    with pytest.raises(ValueError, match="no rank"):
        score([])


def test_words_are_asked(royal):
    x, words = royal
    questions = [parse_analogy("king-man+woman=queen"), parse_analogy("king-man+zebra")]
    found, missing = ask(x, words, questions)
    assert found.answer.rank == 1 and words.text(found.answer.rows[0]) == "␣queen"
    assert missing.answer is None and "zebra: 5 tokens" in missing.problem
    # The variant King is nearer than queen: it answers unless variants are excluded.
    assert ask(x, words, questions[:1], exclude="words")[0].answer.rank == 2
    assert ask(x, words, questions[:1], exclude="nothing")[0].answer.rank >= 2
    summary = scores([found, missing])
    assert summary["all"].n == 1 and scores([missing]) == {}
    for result in (found, missing):
        json.dumps(result.to_record(words), allow_nan=False)


def test_named_pairs(royal):
    x, words = royal
    known, unknown = named_pairs(x, words, [("king", "queen"), ("king", "zebra")])
    a, b = (x[words.token(word)].astype(np.float64) for word in ("king", "queen"))
    assert known.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-12)
    assert unknown.cosine is None and "zebra" in unknown.problem


def test_zero_row_is_a_problem_and_not_an_end(royal):
    x, words = royal
    x = x.copy()
    x[words.token("boy")] = 0
    bad, good = ask(x, words, [parse_analogy("boy-man+woman"), parse_analogy("king-man+woman=queen")])
    assert "no direction" in bad.problem and good.answer.rank == 1
    assert named_pairs(x, words, [("boy", "man")])[0].problem == "a row is zero or not finite"


def test_built_in_list():
    found = built_in_analogies()
    relations = [analogy.relation for analogy in found]
    assert len(found) == 100 and {relations.count(name) for name in relations} == {10} and len(set(relations)) == 10
    assert all(len(set(analogy.words)) >= 3 and len(analogy.words) == 4 for analogy in found)
    assert len(set(found)) == 100


def test_expressions():
    assert parse_analogy("king - man + woman = queen") == Analogy(("king", "woman"), ("man",), "queen")
    assert parse_pair("cat-dog") == ("cat", "dog") and parse_pair("well-known:famous") == ("well-known", "famous")
    for bad in ("king", "king-", "+king", "king-man=", "=queen"):
        with pytest.raises(ValueError, match="analogy"):
            parse_analogy(bad)
    for bad in ("cat", "cat-", "a-b-c"):
        with pytest.raises(ValueError, match="pair"):
            parse_pair(bad)


def test_bad_input(matrix, royal):
    for query, says in (
        (Query(()), "at least one"),
        (Query((N,)), "outside"),
        (Query((1,), (1,)), "cancel"),
        (Query((1,), (), (N,)), "outside"),
    ):
        with pytest.raises(ValueError, match=says):
            solve(matrix, [query])
    with pytest.raises(ValueError, match="top"):
        solve(matrix, [Query((1,))], top=0)
    with pytest.raises(ValueError, match="exclude"):
        ask(*royal, [], exclude="some")
