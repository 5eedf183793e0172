"""Exact moments against float64 pairs, and against the fold."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax.kernels import moments
from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import pair_histogram
from tests import oracles


def gaussian(n, d, shift=0.0, seed=0):
    return (np.random.default_rng(seed).standard_normal((n, d)) + shift).astype(np.float32)


def assert_moments(x, relative=1e-6, **options):
    exact = oracles.pair_cosines(x)
    got = cosine_moments(x, **options)
    assert got.n_pairs == len(exact)
    # The mean may be anything down to zero, so that its error is measured against the spread as well.
    assert got.mean == pytest.approx(exact.mean(), rel=relative, abs=relative * exact.std())
    assert got.std == pytest.approx(exact.std(), rel=relative)


@pytest.mark.parametrize(
    ("n", "d", "shift"),
    [(3000, 64, 0.0), (3000, 64, 0.5), (2500, 300, 0.1), (100, 1024, 0.0), (700, 1024, 0.2), (9, 2, 0.0)],
)
def test_against_float64(n, d, shift):
    assert_moments(gaussian(n, d, shift))


def test_nearly_parallel_rows():
    """Cosines around 0.9989 with a spread of 2e-4: the textbook formula would lose the variance to cancellation."""
    assert_moments(gaussian(3000, 64, 30.0), relative=2e-5)


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_device_count(devices, mesh_of):
    assert_moments(gaussian(5000, 40, 0.3), mesh=mesh_of(devices))


@pytest.mark.slow
def test_slabs(monkeypatch, mesh_of):
    """Rows that do not fit at once go through in parts."""
    monkeypatch.setattr(moments, "_SLAB_BYTES", 1)
    for devices in (1, 2):
        assert_moments(gaussian(9001, 12, 0.3), mesh=mesh_of(devices))


def test_excluded_rows_and_dtypes():
    x = gaussian(500, 16, 0.5)
    x[3], x[7, 1], x[499, 0] = 0.0, np.nan, -np.inf
    assert_moments(x)
    assert cosine_moments(x).excluded_rows.tolist() == [3, 7, 499]
    for dtype in (ml_dtypes.bfloat16, np.float16, np.float64):
        assert_moments(x.astype(dtype))


def test_agrees_with_the_fold():
    x = gaussian(2000, 32, 0.4)
    counts, edges = pair_histogram(x, bins=4000)
    centres = (edges[1:] + edges[:-1]) / 2
    mean = np.average(centres, weights=counts)
    got = cosine_moments(x)
    assert got.mean == pytest.approx(mean, abs=1e-5)
    assert got.std == pytest.approx(np.sqrt(np.average((centres - mean) ** 2, weights=counts)), rel=1e-5)


def test_orthonormal_rows():
    """No spread at all: rounding must not look like one."""
    for n in (64, 130):
        found = cosine_moments(np.eye(n, dtype=np.float32))
        assert found.mean == pytest.approx(0.0, abs=1e-9) and found.std < 1e-7


def test_equal_and_opposite_rows():
    same = cosine_moments(np.ones((50, 7), np.float32))
    assert same.mean == pytest.approx(1.0, abs=1e-6) and same.std < 1e-3
    pair = cosine_moments(np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32))
    assert pair.mean == pytest.approx(-1.0, abs=1e-6) and pair.std < 1e-3


@given(seed=st.integers(0, 2**16), n=st.integers(3, 60), d=st.integers(2, 20))
def test_invariances(seed, n, d):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    base = cosine_moments(x)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    for changed in (x[rng.permutation(n)], x * np.exp(rng.uniform(-3, 3, (n, 1))), x @ rotation):
        got = cosine_moments(changed)
        assert got.mean == pytest.approx(base.mean, abs=1e-6) and got.std == pytest.approx(base.std, abs=1e-6)


@pytest.mark.slow
def test_fewer_rows_than_columns(mesh_of):
    """The pairs are summed, and no d x d matrix is formed: here it would take 6 GiB."""
    x = gaussian(40, 40_000, 0.3)
    for devices in (1, 3):
        assert_moments(x, mesh=mesh_of(devices))


def test_one_program_for_a_size_bucket():
    cosine_moments(gaussian(36 * 2048, 3, 0.5))
    before = moments._add_gram._cache_size(), moments._add_rows._cache_size()
    for n in (35 * 2048 - 9, 34 * 2048 + 1):
        cosine_moments(gaussian(n, 3, 0.5))
    assert (moments._add_gram._cache_size(), moments._add_rows._cache_size()) == before


def test_bad_input():
    with pytest.raises(ValueError, match="two usable rows"):
        cosine_moments(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="two usable rows"):
        cosine_moments(np.ones((1, 3)))
    with pytest.raises(ValueError, match="non-empty matrix"):
        cosine_moments(np.ones(3))
    with pytest.raises(ValueError, match="precision"):
        cosine_moments(np.ones((4, 3)), precision="exact")
