"""Frames: orthonormal, reproducible, nested, and uniform."""

import jax
import numpy as np
import pytest
from scipy import stats

from repcap_jax import grassmann_frames
from repcap_jax.kernels.grassmann import frame_keys, haar_frame

D, K, COUNT = 12, 3, 4000


@pytest.fixture(scope="module")
def frames():
    return np.asarray(grassmann_frames(jax.random.key(0), COUNT, D, K), np.float64)


def test_orthonormal(frames):
    grams = np.einsum("bdk,bdl->bkl", frames, frames)
    np.testing.assert_allclose(grams, np.broadcast_to(np.eye(K), grams.shape), atol=1e-6)


@pytest.mark.parametrize("k", [1, 24, 31, 32])
def test_orthonormal_at_every_width(k):
    for frame in np.asarray(grassmann_frames(jax.random.key(1), 3, 32, k), np.float64):
        np.testing.assert_allclose(frame.T @ frame, np.eye(k), atol=2e-6)


@pytest.mark.parametrize("k", [5, 24, 32])
def test_they_are_the_sign_fixed_qr(k):
    key = jax.random.key(4)
    columns = [jax.random.normal(jax.random.fold_in(key, number), (32,)) for number in range(k)]
    q, r = np.linalg.qr(np.stack(columns, axis=1).astype(np.float64))
    np.testing.assert_allclose(haar_frame(key, 32, k), q * np.sign(np.diagonal(r)), atol=2e-5)


def test_mean_projector(frames):
    """E F F^T = (k / d) I. An entry of a projector has a standard deviation below 1/2 sqrt(k/d (1 - k/d))."""
    mean = np.einsum("bik,bjk->ij", frames, frames) / COUNT
    np.testing.assert_allclose(mean, K / D * np.eye(D), atol=5 * 0.22 / np.sqrt(COUNT))


def test_squared_projection_has_its_law(frames):
    """|F^T e|^2 ~ Beta(k/2, (d - k)/2) for every unit vector e: the squared cosine of the angle to a line."""
    for e in (np.eye(D)[0], np.eye(D)[-1], np.ones(D) / np.sqrt(D)):
        squared = np.sum((e @ frames) ** 2, axis=1)
        assert stats.kstest(squared, stats.beta(K / 2, (D - K) / 2).cdf).pvalue > 1e-3


def test_principal_angle_has_its_law():
    """The angle between a uniform plane in R^3 and a fixed one: its cosine is uniform, as that of their normals."""
    frames = np.asarray(grassmann_frames(jax.random.key(2), COUNT, 3, 2), np.float64)
    smallest = np.linalg.svd(frames[:, :2, :], compute_uv=False)[:, -1]
    assert stats.kstest(smallest, stats.uniform().cdf).pvalue > 1e-3


def test_frames_are_haar_and_not_only_their_spans(frames):
    """Without the signs the first entries would all have one sign."""
    for entry in (frames[:, 0, 0], frames[:, 1, 1], frames[:, 2, 2]):
        assert stats.kstest((entry**2), stats.beta(0.5, (D - 1) / 2).cdf).pvalue > 1e-3
        assert abs(np.mean(np.sign(entry))) < 5 / np.sqrt(COUNT)


def test_more_frames_continue_fewer_and_columns_are_nested(frames):
    key = jax.random.key(0)
    np.testing.assert_allclose(grassmann_frames(key, 5, D, K), frames[:5], atol=1e-6)
    np.testing.assert_allclose(grassmann_frames(key, 5, D, 2), frames[:5, :, :2], atol=1e-6)
    np.testing.assert_allclose(haar_frame(frame_keys(key, 5)[3], D, K), frames[3], atol=1e-6)


@pytest.mark.parametrize("count, k, says", [(0, 3, "count"), (2, 0, "1 to 12"), (2, 13, "k = 13")])
def test_bad_input(count, k, says):
    with pytest.raises(ValueError, match=says):
        grassmann_frames(jax.random.key(0), count, D, k)
