"""Spearman on device against SciPy: ties, clusters, lengths, dtypes, and which way was taken."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax import spearman
from repcap_jax.kernels import ranks
from tests import oracles

RNG = np.random.default_rng(0)
N = 4000  # one length for most tests: one program


def sides(kind, n=N):
    """A pair of float32 sides with about the given character."""
    rng = np.random.default_rng([n, len(kind)])
    a = rng.standard_normal(n)
    b = 0.6 * a + rng.standard_normal(n)
    kinds = {
        "plain": (a, b),
        "tied": (np.round(a, 1), np.round(b, 1)),
        "one side tied": (a, np.round(b)),
        "clusters": (a, np.round(b) + 1e-5 * b),
        "far outlier": (a, np.where(np.arange(n) == 7, 1e9, b)),
        "zeros of both signs": (a, np.where(b > 0.5, 0.0, np.where(b < -0.5, -0.0, b))),
        "tiny": (a, 1e-38 * b),
        "reversed": (a, -a),
    }
    return tuple(side.astype(np.float32) for side in kinds[kind])


KINDS = ["plain", "tied", "one side tied", "clusters", "far outlier", "zeros of both signs", "tiny", "reversed"]


@pytest.mark.parametrize("method", ["sort", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_scipy(kind, method):
    a, b = sides(kind)
    assert float(spearman(a, b, method=method)) == pytest.approx(oracles.spearman(a, b), abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5, 64, 1023, 1025])
def test_lengths(n):
    a, b = RNG.standard_normal((2, n)).astype(np.float32)
    for method in ("sort", "auto"):
        assert float(spearman(a, b, method=method)) == pytest.approx(oracles.spearman(a, b), abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.int64, np.uint8, bool, "bfloat16"])
def test_dtypes(dtype):
    a, b = (np.maximum(0, 20 * np.tanh(side)) for side in sides("plain"))
    a, b = (
        np.asarray(jax.numpy.asarray(side, dtype)) if dtype == "bfloat16" else side.astype(dtype) for side in (a, b)
    )
    exact = oracles.spearman(a.astype(np.float64), b.astype(np.float64))
    assert float(spearman(a, b)) == pytest.approx(exact, abs=1e-6)


def test_differences_below_float32_count():
    a, b = RNG.standard_normal((2, N))
    b = 1.0 + 1e-10 * (a + b)
    assert float(spearman(a, b)) == pytest.approx(oracles.spearman(a, b), abs=1e-6)


def test_as_many_pairs_as_a_thousand_states_have():
    n = 499_500
    a, b = sides("plain", n)
    for method in ("binned", "sort"):
        found = spearman(a, b, method=method)
        assert float(found) == pytest.approx(oracles.spearman(a, b), abs=1e-6)
        assert found.method == method
    assert spearman(a, b).method == "binned"
    tied = np.round(a, 2), np.round(b, 2)
    assert float(spearman(*tied)) == pytest.approx(oracles.spearman(*tied), abs=1e-6)


def test_clusters_are_noticed():
    a, b = sides("clusters", 100_000)
    exact = oracles.spearman(a, b)
    # The bins are wrong here, so that taking them unseen would show.
    assert abs(float(spearman(a, b, method="binned")) - exact) > 1e-4
    found = spearman(a, b)
    assert found.method == "sort"
    assert float(found) == pytest.approx(exact, abs=1e-6)


def test_a_batch_takes_its_own_way_row_by_row():
    n = 200_000
    a, plain = sides("plain", n)
    rows = np.stack([plain, np.round(plain) + 1e-5 * plain, -a])
    found = spearman(a, rows)
    assert found.methods == ("binned", "sort", "binned") and found.method == "binned+sort"
    np.testing.assert_allclose(found, [oracles.spearman(a, row) for row in rows], atol=1e-6)
    assert np.asarray(found)[2] == pytest.approx(-1, abs=1e-6)


def test_a_constant_row_is_null_and_the_rest_goes_on():
    a, b = sides("plain")
    found = spearman(a, np.stack([b, np.full(N, 3.5, np.float32), a]))
    assert np.isnan(found.rho[1]) and found.reasons[0] is None
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["cells"][1]["rho"] is None and "constant" in record["cells"][1]["reason"]
    assert record["cells"][2]["rho"] == pytest.approx(1)
    alone = spearman(np.ones(5), np.arange(5))
    assert np.isnan(float(alone)) and "a is constant" in alone.to_record()["reason"]


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 40), method=st.sampled_from(["sort", "auto"]))
def test_invariances(seed, steps, method):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, steps + 1, (2, 200)).astype(np.float32)
    a[0], b[0] = steps + 1, steps + 2  # neither is constant
    rho = float(spearman(a, b, method=method))
    order = rng.permutation(200)
    assert float(spearman(a[order], b[order], method=method)) == pytest.approx(rho, abs=1e-6)
    assert float(spearman(b, a, method=method)) == pytest.approx(rho, abs=1e-6)
    assert float(spearman(a, np.exp(b / 8), method=method)) == pytest.approx(rho, abs=1e-6)
    assert float(spearman(a, -b, method=method)) == pytest.approx(-rho, abs=1e-6)
    assert rho == pytest.approx(oracles.spearman(a, b), abs=1e-6)


def test_what_auto_means():
    assert ranks.resolve_method("auto", 10**6, "gpu") == ranks.resolve_method("auto", 10**6, "tpu") == "sort"
    assert ranks.resolve_method("auto", 10**6, "cpu") == "auto"
    assert ranks.resolve_method("auto", 10**4, "cpu") == "sort"
    assert ranks.resolve_method("binned", 10**6, "gpu") == ranks.resolve_method("binned", 10, "cpu") == "binned"


@pytest.mark.parametrize(
    "a, b, options, says",
    [
        (np.arange(3), np.arange(4), {}, "equally long"),
        (np.arange(1), np.arange(1), {}, "2 to"),
        (np.array([1, np.nan, 2]), np.arange(3), {}, "a holds 1 NaN"),
        (np.arange(3), np.array([1, np.inf, 2]), {}, "b holds 1 NaN or infinite"),
        (np.ones((2, 3)), np.ones(3), {}, "a must have shape"),
        (np.arange(3), np.ones((1, 2, 3)), {}, "b must have shape"),
        (np.arange(3), np.arange(3), {"method": "fast"}, "method must be one of"),
    ],
)
def test_bad_values(a, b, options, says):
    with pytest.raises(ValueError, match=says):
        spearman(a, b, **options)


def test_bad_types():
    with pytest.raises(TypeError, match="real numbers"):
        spearman(np.array(["x", "y"]), np.arange(2))
    with pytest.raises(TypeError, match="real numbers"):
        spearman(np.arange(2), np.arange(2) + 1j)


def test_numbers_too_small_for_float32_keep_their_order():
    assert float(spearman(np.array([0, 1e-40, 2e-40, 1], np.float32), [0, 1, 2, 3])) == 1
