"""Settings of toy models and the features that are drawn for them."""

import jax
import numpy as np
import pytest

from repcap_jax.superposition import checked_instances, feature_moments, instance_grid, sparse_features
from repcap_jax.superposition.instances import draw_uniforms

SAMPLES = 200_000
KINDS = [("independent", 1), ("correlated", 2), ("anticorrelated", 2), ("anticorrelated", 3)]


def drawn(features, set_size, sparsity, n=6):
    draw = draw_uniforms(jax.random.key(3), n, SAMPLES, features, set_size)
    return np.asarray(sparse_features(draw, sparsity, features, set_size), np.float64)


@pytest.mark.parametrize("features, set_size", KINDS)
@pytest.mark.parametrize("sparsity", [0.7, 0.95])
def test_each_feature_is_zero_or_uniform(features, set_size, sparsity):
    x = drawn(features, set_size, sparsity)
    assert x.shape == (6, SAMPLES) and x.min() >= 0 and x.max() <= 1
    error = 5 * np.sqrt(sparsity * (1 - sparsity) / SAMPLES)
    np.testing.assert_allclose((x == 0).mean(axis=1), sparsity, atol=error)
    active = np.sort(x[x > 0])
    uniform = np.linspace(0, 1, len(active))
    assert np.abs(active - uniform).max() < 2.5 / np.sqrt(len(active))  # Kolmogorov-Smirnov


@pytest.mark.parametrize("features, set_size", KINDS)
def test_moments(features, set_size):
    x = drawn(features, set_size, 0.8)
    mean, covariance = feature_moments(6, 0.8, features, set_size)
    np.testing.assert_allclose(x.mean(axis=1), mean, atol=3e-3)
    np.testing.assert_allclose(np.cov(x), covariance, atol=2e-3)


def test_sets_occur_together_or_never():
    together = drawn("correlated", 3, 0.9)
    np.testing.assert_array_equal(together[0] > 0, together[2] > 0)
    assert np.abs(together[0] - together[1]).max() > 0.5, "each has a value of its own"
    assert ((drawn("anticorrelated", 3, 0.7).reshape(2, 3, -1) > 0).sum(axis=1) <= 1).all()


def test_no_sparsity_is_dense():
    assert (drawn("independent", 1, 0.0) > 0).mean() > 0.9999


def test_grid():
    grid = instance_grid(3, [0, 0.5], [1, 0.5], seeds=2)
    assert grid.n == 3 and grid.sparsity.tolist() == [0] * 4 + [0.5] * 4 and grid.seed.tolist() == [0, 1] * 4
    np.testing.assert_array_equal(grid.importance[2], [1, 0.5, 0.25])
    assert grid.select(slice(0, 3)).seed.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: instance_grid(3, [1.0]), r"S must be in \[0, 1\)"),
        (lambda: instance_grid(3, [-0.1]), r"S must be in \[0, 1\)"),
        (lambda: instance_grid(3, [float("nan")]), r"S must be in \[0, 1\)"),
        (lambda: instance_grid(0, [0.5]), "n must be at least 1"),
        (lambda: instance_grid(3, [0.5], [0.0]), "decays must be positive"),
        (lambda: instance_grid(3, []), "no instances"),
        (lambda: checked_instances([0.5], [[1.0, -1.0]], [0]), "not negative, instance 0"),
        (lambda: checked_instances([0.5], [[0.0, 0.0]], [0]), "nothing to learn"),
        (lambda: checked_instances([0.5, 0.6], [[1.0]], [0]), r"sparsity must have shape \(1,\)"),
        (lambda: checked_instances([0.5], [1.0], [0]), "shape .instances, n."),
        (lambda: checked_instances([0.5], [[1.0]], [-1]), "seeds must be"),
        (lambda: feature_moments(6, 0.5, "correlated", 4), "divide n = 6"),
        (lambda: feature_moments(6, 0.4, "anticorrelated", 2), "S must be at least 0.5"),
        (lambda: feature_moments(6, 0.4, "paired", 2), "features must be one of"),
        (lambda: feature_moments(6, 0.4, "independent", 2), "leave it at 1"),
    ],
)
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_counts_are_whole_numbers():
    with pytest.raises(TypeError, match="n must be a whole number"):
        instance_grid(True, [0.5])
