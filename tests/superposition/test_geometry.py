"""Polytopes: the catalogue is what it says, and features in those shapes are recognised."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from repcap_jax.superposition import feature_clusters, gram_distance, ideal_polytopes, nearest_polytope

POLYTOPES = ideal_polytopes()
BY_NAME = {polytope.name: polytope for polytope in POLYTOPES}
# Largest cosine between vertices: textbook values.
GOLDEN = (1 + 5**0.5) / 2
COSINES = {
    "antipodal pair": -1.0,
    "triangle": -0.5,
    "pentagon": np.cos(2 * np.pi / 5),
    "tetrahedron": -1 / 3,
    "4-simplex": -1 / 4,
    "octahedron": 0.0,
    "triangular bipyramid": 0.0,
    "pentagonal bipyramid": np.cos(2 * np.pi / 5),
    "cube": 1 / 3,
    "tricapped trigonal prism": 1 / 3,
    "icosahedron": 1 / 5**0.5,
    "dodecahedron": 5**0.5 / 3,
    "24-cell": 0.5,
    "5-demicube": 0.2,
}
FRACTIONS = {
    "antipodal pair": "1/2",
    "triangle": "2/3",
    "tetrahedron": "3/4",
    "pentagon": "2/5",
    "square antiprism": "3/8",
}


def moved(vectors, seed, dimensions=None, noise=0.0):
    """The vectors turned, in another order, inside a larger space, with noise."""
    rng = np.random.default_rng(seed)
    d = vectors.shape[1] if dimensions is None else dimensions
    rows = np.pad(vectors, ((0, 0), (0, d - vectors.shape[1])))
    turn = ortho_group.rvs(d, random_state=rng) if d > 1 else np.ones((1, 1))
    return (rows @ turn + noise * rng.normal(size=rows.shape))[rng.permutation(len(rows))]


@pytest.mark.parametrize("polytope", POLYTOPES, ids=lambda polytope: polytope.name)
def test_catalogue(polytope):
    gram = polytope.vectors @ polytope.vectors.T
    np.testing.assert_allclose(np.diagonal(gram), 1, atol=1e-12)
    np.testing.assert_allclose(polytope.vectors.sum(axis=0) if len(gram) > 1 else 0, 0, atol=1e-12)
    assert np.linalg.matrix_rank(polytope.vectors) == polytope.vectors.shape[1]
    if polytope.name in COSINES:
        largest = gram[np.triu_indices(len(gram), 1)].max()
        assert largest == pytest.approx(COSINES[polytope.name], abs=1e-12)
    if polytope.name in FRACTIONS:
        assert polytope.fraction == Fraction(FRACTIONS[polytope.name])


def test_equal_edges_of_the_antiprism():
    """Tammes' best eight points: every vertex has four nearest ones at one cosine, 0.2612039."""
    gram = BY_NAME["square antiprism"].vectors
    uniform = next(p.vectors for p in POLYTOPES if p.name == "square antiprism")
    nearest = np.sort(uniform @ uniform.T, axis=1)[:, -5:-1]
    np.testing.assert_allclose(nearest, 0.2612038749637414, atol=1e-12)
    assert gram_distance(gram, uniform) < 0.1, "both versions have one name because they are near"


@pytest.mark.parametrize("polytope", POLYTOPES, ids=lambda polytope: polytope.name)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_recognised_wherever_it_lies(polytope, noise):
    shape = nearest_polytope(moved(polytope.vectors, 5, noise=noise))
    assert shape.name == shape.nearest == polytope.name
    assert shape.distance < (1e-7 if noise == 0 else 0.1)
    assert nearest_polytope(moved(polytope.vectors, 6, dimensions=8)).name == polytope.name


@given(st.integers(0, 2**31), st.integers(2, 9))
def test_distance_is_invariant(seed, k):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(k, 3)), rng.normal(size=(k, 4))
    distance = gram_distance(one, other)
    assert distance == pytest.approx(gram_distance(other, one), abs=1e-9)
    assert distance == pytest.approx(gram_distance(3 * moved(one, seed), other), abs=1e-7)
    assert gram_distance(one, one) == 0


def test_nothing_fits():
    shape = nearest_polytope(np.random.default_rng(0).normal(size=(8, 8)))
    assert shape.name == "none" and shape.nearest and shape.distance > 0.1
    shape = nearest_polytope(np.random.default_rng(0).normal(size=(11, 3)))
    assert shape.name == "none" and shape.distance == float("inf") and shape.nearest == ""


def test_clusters_of_features():
    """A triangle, a pair and a single feature in orthogonal spaces, one feature ignored."""
    parts = [BY_NAME[name].vectors for name in ("triangle", "antipodal pair", "single")]
    w = np.zeros((4, 7))
    w[:2, [0, 2, 5]], w[2:3, [1, 4]], w[3:, [6]] = parts[0].T, 1.1 * parts[1].T, parts[2].T
    w[0, 3] = 0.2
    turned = ortho_group.rvs(4, random_state=1) @ w
    clusters = feature_clusters(turned + 0.01 * np.random.default_rng(0).normal(size=w.shape))
    assert [c.shape.name for c in clusters] == ["triangle", "antipodal pair", "single"]
    assert [c.features for c in clusters] == [(0, 2, 5), (1, 4), (6,)]
    for cluster, share in zip(clusters, (2 / 3, 1 / 2, 1)):
        assert cluster.dimensionality == pytest.approx(share, abs=0.05)
    assert json.dumps([c.to_record() for c in clusters], allow_nan=False)


def test_octahedron_comes_apart():
    clusters = feature_clusters(BY_NAME["octahedron"].vectors.T)
    assert [c.shape.name for c in clusters] == ["antipodal pair"] * 3


def test_unknown_shapes_have_a_record():
    (cluster,) = feature_clusters(np.ones((2, 11)) + 0.1 * np.random.default_rng(0).normal(size=(2, 11)))
    record = json.loads(json.dumps(cluster.to_record(), allow_nan=False))
    assert record["shape"] == "none" and record["distance"] is None and "11 vectors" in record["distance_reason"]


def test_nothing_stored_and_bad_input():
    assert feature_clusters(np.zeros((2, 3))) == []
    with pytest.raises(ValueError, match="one model"):
        feature_clusters(np.zeros((2, 2, 3)))
    with pytest.raises(ValueError, match="with a direction"):
        nearest_polytope(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="cannot be compared"):
        gram_distance(np.eye(2), np.eye(3))
