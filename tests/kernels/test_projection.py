"""Projections and covariance against NumPy in float64."""

import numpy as np
import pytest

from repcap_jax.kernels import covariance, projection
from repcap_jax.kernels.covariance import row_covariance
from repcap_jax.kernels.projection import project_rows


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(projection, "_BLOCK", 64)
    monkeypatch.setattr(covariance, "BLOCK_ROWS", 64)


def rows(n=150, d=12, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 63, 64, 150])
@pytest.mark.parametrize("unit", [False, True])
def test_projections(n, unit):
    x, c = rows(n), rows(3, seed=1)
    exact = x.astype(np.float64) @ c.T.astype(np.float64)
    if unit:
        exact /= np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(project_rows(x, c, unit=unit), exact, atol=1e-5)


def test_rows_without_direction_give_nan():
    x = rows(10)
    x[2], x[5, 0] = 0, np.nan
    found = project_rows(x, rows(2, seed=1))
    assert np.isnan(found[[2, 5]]).all() and np.isfinite(np.delete(found, [2, 5], axis=0)).all()


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_covariance(shift):
    x = rows(200, 12) * np.linspace(0.01, 1, 12, dtype=np.float32) + np.float32(shift)
    x[3], x[70, 1] = 0, np.inf
    kept = np.delete(x.astype(np.float64), [3, 70], axis=0)
    found = row_covariance(x)
    exact = np.cov(kept.T, bias=True)
    np.testing.assert_allclose(found.covariance, exact, atol=1e-6 * np.abs(exact).max())
    np.testing.assert_allclose(found.mean, kept.mean(axis=0), rtol=1e-9)
    assert found.n_rows == 198 and found.excluded_rows.tolist() == [3, 70]


def test_bad_input():
    with pytest.raises(ValueError, match="equally long"):
        project_rows(rows(4, 5), rows(2, 6))
    with pytest.raises(ValueError, match="finite"):
        project_rows(rows(4, 5), np.full((1, 5), np.nan))
    with pytest.raises(ValueError, match="two usable rows"):
        row_covariance(np.eye(3)[:1])


def test_scale_of_a_covariance_does_not_matter():
    x = rows(90, 4).astype(np.float64)
    np.testing.assert_allclose(row_covariance(x * 1e25).covariance / 1e50, row_covariance(x).covariance, rtol=1e-6)


def test_directions_beyond_float32():
    with pytest.raises(ValueError, match="beyond float32"):
        project_rows(rows(9), np.full((1, 12), 1e39))
