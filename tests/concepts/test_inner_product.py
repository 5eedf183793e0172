"""Inner products against NumPy, and what a floor does."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax.concepts.inner_product import causal_inner_product, euclidean_inner_product, random_inner_product
from tests.concepts.builders import anisotropic


@pytest.fixture(scope="module")
def rows():
    return anisotropic()[0]


@pytest.fixture(scope="module")
def causal(rows):
    return causal_inner_product(rows)


def test_agrees_with_the_inverse_covariance(rows, causal):
    inverse = np.linalg.inv(np.cov(rows.T.astype(np.float64), bias=True))
    u, v = np.random.default_rng(1).standard_normal((2, 5, 16))
    exact = np.einsum("nd,de,ne->n", u, inverse, v)
    np.testing.assert_allclose(causal.inner(u, v), exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    np.testing.assert_allclose(causal.to_embedding(u), u @ inverse, rtol=1e-5, atol=1e-5 * np.abs(u @ inverse).max())
    assert isinstance(causal.inner(u[0], v[0]), float) and causal.floored == 0


def test_whitening(rows, causal):
    z = causal.whiten(rows)
    np.testing.assert_allclose(np.cov(z.T, bias=True), np.eye(16), atol=1e-5)
    np.testing.assert_allclose(causal.unwhiten(z), rows, atol=1e-5)


@given(st.integers(0, 2**31))
def test_isomorphism_and_its_inverse(causal, seed):
    u, v = np.random.default_rng(seed).standard_normal((2, 16))
    np.testing.assert_allclose(causal.to_unembedding(causal.to_embedding(u)), u, atol=1e-9)
    # The causal inner product of two concepts is the plain product of one's embedding with the other's unembedding.
    assert causal.inner(u, v) == pytest.approx(causal.to_embedding(u) @ v, rel=1e-9, abs=1e-9)
    assert causal.inner(u, v) == pytest.approx(causal.inner(v, u), rel=1e-9, abs=1e-9)
    assert causal.inner(u, u) > 0


def test_rank_deficient_rows_give_finite_numbers():
    """Fewer rows than columns, and a zero row."""
    x = np.random.default_rng(2).standard_normal((10, 24)).astype(np.float32)
    x[4] = 0
    found = causal_inner_product(x, floor=1e-4)
    assert found.floored == 24 - 8 and found.excluded_rows.tolist() == [4]
    assert found.variances.min() == found.floor == pytest.approx(1e-4 * found.variances.max())
    u = np.random.default_rng(3).standard_normal(24)
    assert np.isfinite(found.whiten(u)).all() and np.isfinite(found.inner(u, u))
    np.testing.assert_allclose(found.unwhiten(found.whiten(u)), u, atol=1e-9)
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["floored"] == 16 and record["condition"] == pytest.approx(1e4)


def test_other_products(causal):
    u, v = np.random.default_rng(4).standard_normal((2, 16))
    plain = euclidean_inner_product(16)
    assert plain.inner(u, v) == pytest.approx(u @ v) and (plain.whiten(u) == u).all()
    random = random_inner_product(jax.random.key(0), causal)
    np.testing.assert_allclose(random.basis.T @ random.basis, np.eye(16), atol=1e-12)
    assert (random.variances == causal.variances).all()
    again = random_inner_product(jax.random.key(0), causal)
    assert random.inner(u, v) == again.inner(u, v) != causal.inner(u, v)


def test_bad_input(rows):
    for floor in (0.0, -1.0, 2.0):
        with pytest.raises(ValueError, match="floor"):
            causal_inner_product(rows, floor=floor)
    with pytest.raises(ValueError, match="all usable rows are the same"):
        causal_inner_product(np.ones((5, 3)))
    with pytest.raises(ValueError, match="length 16"):
        causal_inner_product(rows).whiten(np.ones(3))
    with pytest.raises(ValueError, match="at least 1"):
        euclidean_inner_product(0)
