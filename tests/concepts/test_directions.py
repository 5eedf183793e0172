"""Concept directions, leave-one-out projections, separation from random pairs: planted structure and references."""

import json

import jax
import numpy as np
import pytest
from scipy import stats

from repcap_jax.concepts.directions import concept_direction
from repcap_jax.concepts.inner_product import causal_inner_product, euclidean_inner_product
from repcap_jax.concepts.separation import area_under_curve, sample_pairs, separations
from tests.concepts.builders import planted, token_pairs


@pytest.fixture(scope="module")
def data():
    x, root, concepts = planted()
    return x, root, concepts, causal_inner_product(x)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("kind", ["causal", "euclidean"])
def test_against_numpy(data, normalise, kind):
    x, _, concepts, causal = data
    product = causal if kind == "causal" else euclidean_inner_product(16)
    pairs = concepts[0].rows
    found = concept_direction(x, concepts[0], product, normalise=normalise)
    z = x.astype(np.float64)
    if kind == "causal":
        values, vectors = np.linalg.eigh(np.cov(x.T.astype(np.float64), bias=True))
        z = z @ vectors / np.sqrt(values) @ vectors.T
    differences = z[pairs[:, 1]] - z[pairs[:, 0]]
    parts = differences / np.linalg.norm(differences, axis=1, keepdims=True) if normalise else differences
    mean = parts.sum(axis=0)
    np.testing.assert_allclose(found.whitened, mean / np.linalg.norm(mean), atol=1e-5)
    for i in range(len(pairs)):
        others = np.delete(parts, i, axis=0).sum(axis=0)
        exact = differences[i] @ others / np.linalg.norm(others)
        assert found.left_out[i] == pytest.approx(exact, abs=1e-5 * max(1, abs(exact)) * 5)
        assert found.left_out_cosines[i] == pytest.approx(exact / np.linalg.norm(differences[i]), abs=1e-5)
    assert product.inner(found.direction, found.direction) == pytest.approx(1, abs=1e-9)


def test_planted_concepts_are_recovered_and_orthogonal(data):
    x, root, concepts, causal = data
    directions = [concept_direction(x, pairs, causal) for pairs in concepts]
    for number, found in enumerate(directions):
        exact = root[number] / np.sqrt(causal.inner(root[number], root[number]))
        assert causal.inner(found.direction, exact) > 0.98
    causal_cosines = np.array([[causal.inner(a.direction, b.direction) for a in directions] for b in directions])
    np.testing.assert_allclose(causal_cosines, np.eye(4), atol=0.2)
    vectors = np.stack([found.direction / np.linalg.norm(found.direction) for found in directions])
    assert np.abs(vectors @ vectors.T - np.eye(4)).max() > 0.35  # not under the Euclidean one


def test_sampled_pairs_are_distinct_and_uniform():
    rows = np.array([3, 5, 8, 9, 12])
    every = sample_pairs(jax.random.key(0), rows, 100)
    assert len(every) == 10 and len({frozenset(pair) for pair in every.tolist()}) == 10
    big = sample_pairs(jax.random.key(1), np.arange(1000), 20_000)
    assert len({frozenset(pair) for pair in big.tolist()}) == 20_000 and (big[:, 0] != big[:, 1]).all()
    # All rows are equally often drawn, on either side: a chi-square of 999 degrees of freedom, and a sign test.
    counts = np.bincount(big.ravel(), minlength=1000)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.binomtest(int(np.sum(big[:, 0] < big[:, 1])), len(big)).pvalue > 1e-4
    assert (sample_pairs(jax.random.key(1), np.arange(1000), 20_000) == big).all()
    huge = sample_pairs(jax.random.key(2), np.arange(262_144), 1000)
    assert huge.max() < 262_144 and len(np.unique(huge // 1024)) > 200


def test_auc():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 8, 40), rng.integers(0, 8, 60)
    exact = stats.mannwhitneyu(a, b).statistic / (40 * 60)
    assert area_under_curve(a, b) == pytest.approx(exact)
    assert area_under_curve([1, 2], [0, -1]) == 1 and area_under_curve([0.0], [0.0]) == 0.5


def test_separation_from_random_pairs(data):
    x, _, concepts, causal = data
    rng = np.random.default_rng(5)
    drawn = rng.choice(np.arange(1000, 8000), (8, 30, 2), replace=False)
    noise = [token_pairs(rows, f"noise{number}", "none") for number, rows in enumerate(drawn)]
    directions = [concept_direction(x, pairs, causal) for pairs in (*concepts, *noise)]
    key = jax.random.key(0)
    found = separations(x, directions, causal, key, random_pairs=3000, bootstraps=300)
    for separation in found[:4]:
        assert separation.auc.value > 0.8 and separation.auc_cosine.value > 0.95 and separation.effect.value > 1
        assert separation.auc.low <= separation.auc.value <= separation.auc.high
    # What is left out has no part in its direction: pairs without a concept come out at one half.
    assert np.mean([separation.auc.value for separation in found[4:]]) == pytest.approx(0.5, abs=0.1)
    assert found[0].counts.sum() == found[0].random_pairs == 3000
    again = separations(x, directions, causal, key, random_pairs=3000, bootstraps=300)
    assert again[1].auc == found[1].auc
    json.dumps([item.to_record() for item in found] + [item.to_record() for item in directions], allow_nan=False)

    # The same numbers from pairs formed one by one.
    pairs = sample_pairs(jax.random.split(key)[0], np.arange(len(x)), 3000)
    differences = causal.whiten(x[pairs[:, 1]].astype(np.float64) - x[pairs[:, 0]])
    random = differences @ directions[0].whitened
    cosines = random / np.linalg.norm(differences, axis=1)
    assert found[0].auc.value == pytest.approx(area_under_curve(directions[0].left_out, random), abs=1e-3)
    assert found[0].auc_cosine.value == pytest.approx(
        area_under_curve(directions[0].left_out_cosines, cosines), abs=1e-3
    )
    own = directions[0].left_out
    exact = (own.mean() - random.mean()) / np.sqrt((own.var(ddof=1) + random.var(ddof=1)) / 2)
    assert found[0].effect.value == pytest.approx(exact, abs=1e-4)


def test_bad_input(data):
    x, _, concepts, causal = data
    with pytest.raises(ValueError, match="two are needed"):
        concept_direction(x, token_pairs([[0, 1]]), causal)
    with pytest.raises(ValueError, match="two are needed"):
        concept_direction(x, token_pairs([[0, 0], [1, 2]]), causal)
    with pytest.raises(ValueError, match="cancel"):
        concept_direction(x, token_pairs([[0, 1], [1, 0]]), causal)
    with pytest.raises(ValueError, match="width 16"):
        concept_direction(x[:, :5], concepts[0], causal)
    with pytest.raises(ValueError, match="confidence"):
        separations(x, [], causal, jax.random.key(0), confidence=1.0)
    for rows, count in (([1], 5), ([1, 2], 0)):
        with pytest.raises(ValueError, match="at least two rows"):
            sample_pairs(jax.random.key(0), np.array(rows), count)
