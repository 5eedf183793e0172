"""Closed forms against brute force: quadrature, sampling, and descents that know nothing of them."""

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.optimize import minimize

from repcap_jax.superposition import (
    PhaseLosses,
    antipodal_loss,
    antipodal_optimum,
    feature_moments,
    linear_loss,
    linear_optimum,
    optimal_phase_losses,
    phase_losses,
)


@pytest.mark.parametrize("decay", [1.0, 0.8])
@pytest.mark.parametrize("features, set_size", [("independent", 1), ("correlated", 2), ("anticorrelated", 2)])
def test_linear_optimum_against_descent(decay, features, set_size):
    """No weights beat it; where it is exact, the best of some descents reaches it."""
    n, m, importance = 4, 2, decay ** np.arange(4)
    moments = feature_moments(n, 0.7, features, set_size)
    optimum = linear_optimum(importance, m, moments[1])

    def loss(flat):
        w = flat.reshape(m, n)
        return linear_loss(w, (np.eye(n) - w.T @ w) @ moments[0], importance, moments)

    rng = np.random.default_rng(0)
    reached = min(minimize(loss, rng.normal(size=m * n), tol=1e-12).fun for _ in range(5))
    assert reached >= optimum.loss - 1e-9
    assert optimum.exact == (decay == 1 or features == "independent")
    assert reached == pytest.approx(optimum.loss, rel=1e-5 if optimum.exact else 0.2)


def test_linear_optimum_keeps_the_most_important():
    variance = 0.1 / 3 - 0.01 / 4
    covariance = feature_moments(4, 0.9)[1]
    assert linear_optimum(np.array([0.5, 2, 1, 0.25]), 2, covariance).loss == pytest.approx(0.75 * variance)
    assert linear_optimum(np.array([1.0, 2.0]), 2, feature_moments(2, 0.9)[1]) == (0.0, True)
    with pytest.raises(ValueError, match="not negative"):
        linear_optimum(np.array([1.0, -1.0]), 1, feature_moments(2, 0.9)[1])
    with pytest.raises(ValueError, match="m must be at least 1"):
        linear_optimum(np.array([1.0, 1.0]), 0, feature_moments(2, 0.9)[1])


def test_linear_loss_against_samples():
    rng = np.random.default_rng(1)
    w, b, importance = rng.normal(size=(2, 5)) / 2, rng.normal(size=5) / 5, rng.random(5)
    x = np.maximum(rng.random((5, 400_000)) - 0.6, 0) / 0.4
    sampled = importance @ ((x - w.T @ (w @ x) - b[:, None]) ** 2).mean(axis=1)
    assert linear_loss(w, b, importance, feature_moments(5, 0.6)) == pytest.approx(sampled, rel=0.01)


@pytest.mark.parametrize("lengths, biases", [((1, 1), (0, 0)), ((1.1, 0.7), (-0.05, 0.2)), ((0.3, 1.2), (0.4, -0.3)),
                                             ((0.0, 1.0), (0.1, 0.0))])  # fmt: skip
def test_antipodal_loss_against_quadrature(lengths, biases):
    (a, c), p, r = lengths, 0.3, 2.5

    def expected(own, other, bias):
        def missed(x, y):
            return (x - max(0.0, own * x - other * y + bias)) ** 2

        both = dblquad(lambda y, x: missed(x, y), 0, 1, 0, 1, epsabs=1e-9)[0]
        single = quad(lambda x: missed(x, 0), 0, 1)[0] + quad(lambda y: missed(0, y), 0, 1)[0]
        return p * p * both + p * (1 - p) * single + (1 - p) ** 2 * missed(0, 0)

    wanted = expected(a * a, a * c, biases[0]) + r * expected(c * c, a * c, biases[1])
    assert antipodal_loss(1 - p, r, lengths, biases) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("sparsity", [0.0, 0.6, 0.99])
@pytest.mark.parametrize("r", [0.1, 1.0, 5.0])
def test_plain_antipodal_pair(sparsity, r):
    plain = antipodal_loss(sparsity, r, (1.0, 1.0), (0.0, 0.0))
    assert plain == pytest.approx(float(phase_losses(1, sparsity, r).antipodal), rel=1e-12)
    best, (a, c, *biases) = antipodal_optimum(sparsity, r)
    assert best <= plain * (1 + 1e-12)
    assert antipodal_loss(sparsity, r, (a, c), tuple(biases)) == pytest.approx(best, rel=1e-9)


def test_phases():
    """Dense: the important feature has the dimension. Sparse: both share it. A third feature changes who gives way."""
    sparsity, r = np.array([0.0, 0.0, 0.999]), np.array([0.5, 2.0, 1.0])
    assert phase_losses(1, sparsity, r).best().tolist() == [0, 1, 2]
    assert optimal_phase_losses(1, sparsity, np.array([0.1, 10.0, 1.0])).best().tolist() == [0, 1, 2]
    two = phase_losses(2, np.array([0.0, 0.9]), np.array([10.0, 10.0]))
    assert two.best().tolist() == [1, 1], "the others share, or one of them gives way"
    assert two.dedicated[1] == pytest.approx(0.01 / 3) and two.dedicated[0] == pytest.approx(1 / 12)
    better = optimal_phase_losses(2, np.array([0.0, 0.9]), np.array([10.0, 10.0]))
    assert (better.dedicated <= two.dedicated).all() and (better.antipodal <= two.antipodal).all()


def test_an_antipodal_pair_of_no_length_is_no_phase_of_its_own():
    near = PhaseLosses(np.array([0.1]), np.array([0.3]), np.array([0.1 - 1e-9]))
    assert near.best().tolist() == [0] and near._replace(antipodal=np.array([0.09])).best().tolist() == [2]


@pytest.mark.parametrize(
    "sparsity, r, message", [(1.0, 1.0, "sparsity"), (0.5, 0.0, "importance"), (-1.0, 1.0, "sparsity")]
)
def test_bad_values(sparsity, r, message):
    with pytest.raises(ValueError, match=message):
        phase_losses(1, sparsity, r)
