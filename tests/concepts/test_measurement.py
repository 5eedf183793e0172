"""Measurement, intervention and isomorphism on states with planted concepts."""

import json

import numpy as np
import pytest

from repcap_jax.concepts.directions import concept_direction
from repcap_jax.concepts.inner_product import causal_inner_product
from repcap_jax.concepts.measurement import intervene, intervention, isomorphism, log_odds, measure, most_likely
from tests.concepts.builders import planted


@pytest.fixture(scope="module")
def data():
    x, _, concepts = planted(noise=0.05)
    causal = causal_inner_product(x)
    return x, concepts, causal, [concept_direction(x, pairs, causal) for pairs in concepts]


def contexts(causal, direction, seed=0, m=20, strength=2.0):
    """States of paired contexts that differ by the concept's embedding representation."""
    rng = np.random.default_rng(seed)
    before = causal.to_embedding(causal.unwhiten(rng.standard_normal((m, 16))))
    noise = causal.to_embedding(causal.unwhiten(0.3 * rng.standard_normal((m, 16))))
    return before, before + strength * causal.to_embedding(direction.direction) + noise


def test_measurement_tells_only_its_own_concept(data):
    _, _, causal, directions = data
    found = measure(*contexts(causal, directions[1]), directions, "c1")
    assert found.auc()[1] > 0.9 and np.abs(found.auc()[[0, 2, 3]] - 0.5).max() < 0.25
    assert found.effect()[1] > 4 > 2 > np.abs(found.effect()[[0, 2, 3]]).max()
    json.dumps(found.to_record(), allow_nan=False)


def test_isomorphism_finds_the_concept(data):
    _, _, causal, directions = data
    found = isomorphism(*contexts(causal, directions[2]), directions, causal, "c2")
    assert found.causal[2] > 0.95 and np.abs(np.delete(found.causal, 2)).max() < 0.3
    # Without Cov(gamma) the two representations do not match.
    assert found.causal[2] > found.euclidean[2] + 0.1
    json.dumps(found.to_record(), allow_nan=False)


def test_intervention_is_linear_and_on_target(data):
    x, concepts, causal, directions = data
    states = np.random.default_rng(1).standard_normal((6, 16))
    found = intervention(states, x, directions[0], {c.name: c for c in concepts}, causal, (1.0, 0.0, 0.5, 0.5))
    assert found.alphas.tolist() == [0.0, 0.5, 1.0], "the last is the largest"
    exact = [
        np.mean((x[c.rows[:, 1]].astype(np.float64) - x[c.rows[:, 0]]) @ causal.to_embedding(directions[0].direction))
        for c in concepts
    ]
    np.testing.assert_allclose(found.mean, np.outer((0.0, 0.5, 1.0), exact), atol=1e-9)
    assert found.on_target() > 1.2 and found.off_target() < 0.25 * found.on_target()
    assert (found.low <= found.mean + 1e-12).all() and (found.mean <= found.high + 1e-12).all()
    json.dumps(found.to_record(), allow_nan=False)


def test_log_odds_are_those_of_the_softmax(data):
    x, concepts, causal, directions = data
    states = np.random.default_rng(2).standard_normal((3, 16))
    logits = states @ x.T.astype(np.float64)
    log_p = logits - np.log(np.exp(logits - logits.max()).sum(axis=1, keepdims=True)) - logits.max()
    pairs = concepts[0].rows
    np.testing.assert_allclose(log_odds(states, x, pairs), log_p[:, pairs[:, 1]] - log_p[:, pairs[:, 0]], atol=1e-9)
    ids, best = most_likely(states, x, 4)
    np.testing.assert_array_equal(ids, np.argsort(-logits, axis=1)[:, :4])
    np.testing.assert_allclose(best, -np.sort(-logits, axis=1)[:, :4], atol=1e-4)
    np.testing.assert_array_equal(intervene(states, directions[0], causal, 0.0), states)


def test_bad_input(data):
    x, concepts, causal, directions = data
    states = np.ones((3, 16))
    for before, after, says in (
        (states, states[:2], "paired states"),
        (states[:, :4], states[:, :4], "paired states"),
        (states * np.nan, states, "NaN"),
    ):
        with pytest.raises(ValueError, match=says):
            measure(before, after, directions)
    with pytest.raises(ValueError, match="same mean"):
        isomorphism(states, states, directions, causal)
    with pytest.raises(ValueError, match="at least one concept"):
        measure(states, states, [])
    with pytest.raises(ValueError, match="hidden states"):
        intervention(states[:, :3], x, directions[0], {"c0": concepts[0]}, causal)
    with pytest.raises(ValueError, match="must be finite"):
        intervention(states, x, directions[0], {"c0": concepts[0]}, causal, [0.1, np.nan])
    with pytest.raises(ValueError, match="at least one alpha"):
        intervention(states, x, directions[0], {}, causal)
