"""Measures of shared dimensions against sums written out, shapes whose values are known, and what must not matter."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from repcap_jax.superposition import feature_measures, ideal_polytopes, last_feature_phase


def oracle(w):
    """Norms, interference and dimensionality, one pair at a time."""
    n = w.shape[1]
    norms, interference, dimensionality = np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        norms[i] = np.sqrt(sum(w[:, i] ** 2))
        unit = w[:, i] / norms[i]
        interference[i] = sum((unit @ w[:, j]) ** 2 for j in range(n) if j != i)
        dimensionality[i] = norms[i] ** 2 / sum((unit @ w[:, j]) ** 2 for j in range(n))
    return norms, interference, dimensionality


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6))
def test_against_oracle(seed, m, n):
    w = np.random.default_rng(seed).normal(size=(2, m, n))
    found = feature_measures(w)
    for place in range(2):
        for got, wanted in zip((found.norms, found.interference, found.dimensionality), oracle(w[place])):
            np.testing.assert_allclose(got[place], wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.features_per_dimension, (w**2).sum(axis=(1, 2)) / m)
    assert (found.dimensionality.sum(axis=1) <= m + 1e-9).all(), "no more dimensions are shared out than there are"
    np.testing.assert_array_equal(found.dedicated | found.superposed | found.ignored, True)


@given(st.integers(0, 2**31))
def test_rotation_and_order_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    w, order = rng.normal(size=(3, 7)), rng.permutation(7)
    turned = feature_measures(ortho_group.rvs(3, random_state=rng) @ w[:, order])
    plain = feature_measures(w)
    np.testing.assert_allclose(turned.dimensionality, plain.dimensionality[order], rtol=1e-9)
    np.testing.assert_allclose(turned.interference, plain.interference[order], rtol=1e-9)
    np.testing.assert_allclose(turned.coherence, plain.coherence)


@pytest.mark.parametrize("polytope", ideal_polytopes(), ids=lambda polytope: polytope.name)
def test_dimensionality_of_polytopes(polytope):
    """Tight frames share all of their dimensions, D_i = d / k; the others nearly do."""
    found = feature_measures(polytope.vectors.T)
    frame = polytope.vectors.T @ polytope.vectors
    if np.allclose(frame, np.trace(frame) / len(frame) * np.eye(len(frame)), atol=1e-9):
        np.testing.assert_allclose(found.dimensionality, float(polytope.fraction), rtol=1e-9)
    else:
        assert 0.95 * len(frame) < found.dimensionality.sum() < len(frame) + 1e-9


def test_who_is_stored():
    w = np.array([[1.0, -0.9, 0.0, 0.1], [0.0, 0.0, 1.0, 0.0]])
    found = feature_measures(w)
    assert found.superposed.tolist() == [True, True, False, False]
    assert found.dedicated.tolist() == [False, False, True, False]
    assert found.ignored.tolist() == [False, False, False, True]
    assert found.coherence == pytest.approx(1) and found.largest_cosine == pytest.approx(0)
    stack = feature_measures(np.stack([w, w[:, [3, 0, 1, 2]], w[:, [2, 3, 0, 1]]]))
    assert last_feature_phase(stack).tolist() == [0, 1, 2]


def test_zero_features_and_records():
    found = feature_measures(np.zeros((2, 3)))
    assert found.dimensionality.tolist() == [0, 0, 0] and np.isnan(found.coherence)
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["coherence"] is None and record["ignored"] == 1 and "fewer than two" in record["coherence_reason"]
    assert feature_measures(np.zeros((4, 2, 3))).to_record()["represented"] == [0] * 4


@pytest.mark.parametrize("bad", [np.zeros(3), np.array([[np.nan, 1.0]])])
def test_bad_weights(bad):
    with pytest.raises(ValueError, match="finite and of shape"):
        feature_measures(bad)
