"""The similarity distribution against float64 pairs, and the isotropic reference against draws."""

import json

import ml_dtypes
import numpy as np
import pytest

from repcap_jax.capacity import IsotropicReference
from repcap_jax.embeddings.similarity import (
    corresponding_cosines,
    duplicate_rows,
    similarity_distribution,
)
from tests import oracles


@pytest.fixture(scope="module")
def x():
    x = (np.random.default_rng(2).standard_normal((600, 32)) + 0.5).astype(np.float32)
    x[10] = 0.0
    x[20, 3] = np.nan
    x[30, 1] = -np.inf
    x[41] = x[40]
    x[500] = x[40]
    return x


@pytest.fixture(scope="module")
def found(x):
    return similarity_distribution(x, bins=4000)


def test_numbers(x, found):
    exact = oracles.pair_cosines(x)
    assert found.n_pairs == len(exact) == found.counts.sum()
    assert found.mean == pytest.approx(exact.mean(), rel=1e-6)
    assert found.std == pytest.approx(exact.std(), rel=1e-6)
    assert found.epsilon == pytest.approx(exact.mean() + 2 * exact.std(), rel=1e-6)
    assert found.epsilon_at(3.0) == pytest.approx(exact.mean() + 3 * exact.std(), rel=1e-6)
    assert found.largest.cosine == pytest.approx(1.0, abs=1e-6) and found.largest[1:] == (40, 41)
    assert found.smallest.cosine == pytest.approx(exact.min(), abs=1e-6)


def test_rows_without_direction(found):
    assert found.zero_rows.tolist() == [10]
    assert found.nonfinite_rows.tolist() == [20, 30]
    assert found.excluded_rows.tolist() == [10, 20, 30]
    assert found.duplicate_rows.tolist() == [41, 500]


def test_padding_is_no_duplicate_and_immense_is_not_zero():
    x = np.random.default_rng(0).standard_normal((50, 6))
    x[10:20] = 0.0
    x[30] = 1e300
    x[31] = 1e-300
    found = similarity_distribution(x, moments_only=True)
    assert found.zero_rows.tolist() == [*range(10, 20), 31]
    assert found.nonfinite_rows.tolist() == [30]
    assert found.duplicate_rows.tolist() == []
    edge = np.full((20, 1024), 2.0**120, np.float32)
    assert similarity_distribution(edge, moments_only=True).n_pairs == 190


def test_one_dimension():
    record = similarity_distribution(np.array([[1.0], [-2.0], [3.0]])).to_record()
    json.dumps(record, allow_nan=False)


def test_quantiles_and_tail(x, found):
    exact = oracles.pair_cosines(x)
    shares = np.array([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0])
    np.testing.assert_allclose(found.quantile(shares), np.quantile(exact, shares), atol=2 / 4000 + 1e-3)
    assert found.quantile(0.5) == pytest.approx(np.median(exact), abs=1e-3)
    assert np.all(np.diff(found.quantile(np.linspace(0, 1, 101))) >= 0)
    assert found.share_above(found.epsilon) == pytest.approx(np.mean(exact > found.epsilon), abs=1e-3)
    assert found.share_above(-1.0) == 1.0 and found.share_above(1.0) == 0.0
    centres, density = found.density()
    assert np.sum(density) * (centres[1] - centres[0]) == pytest.approx(1.0)
    for q in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            found.quantile(q)


def test_moments_only(x, found):
    bare = similarity_distribution(x, moments_only=True)
    assert (bare.mean, bare.std, bare.n_pairs) == (found.mean, found.std, found.n_pairs)
    assert bare.counts is None and bare.largest is None
    with pytest.raises(ValueError, match="moments only"):
        bare.quantile(0.5)
    json.dumps(bare.to_record(), allow_nan=False)


def test_record_is_valid_json(found):
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["duplicate_rows"] == {"count": 2, "ids": [41, 500]}
    assert record["largest"]["rows"] == [40, 41]
    assert record["isotropic_epsilon"] == pytest.approx(2 / np.sqrt(32))


def test_isotropic_reference_is_what_a_gaussian_gives():
    d, n = 24, 1500
    reference = IsotropicReference(n, d)
    draw = np.random.default_rng(5).standard_normal((n, d))
    cosines = oracles.pair_cosines(draw)
    assert reference.std == pytest.approx(cosines.std(), rel=0.01)
    assert reference.epsilon == pytest.approx(cosines.mean() + 2 * cosines.std(), rel=0.02)
    assert reference.tail(0.3) == pytest.approx(np.mean(cosines > 0.3), rel=0.05)
    assert reference.largest == pytest.approx(cosines.max(), rel=0.1)
    grid = np.linspace(-1, 1, 20001)
    assert np.trapezoid(reference.density(grid), grid) == pytest.approx(1.0, rel=1e-4)


def test_duplicates_by_value_not_by_bytes():
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0], [0.0, 1.0]], np.float32)
    assert duplicate_rows(x).tolist() == [1, 3]
    assert duplicate_rows(x.astype(ml_dtypes.bfloat16)).tolist() == [1, 3]
    assert duplicate_rows(x.astype(np.int8)).tolist() == [1, 3]


def test_corresponding_rows(x):
    y = x[::-1].copy()
    cosines = corresponding_cosines(x, y)
    u, usable = oracles.unit_rows(x)
    v, v_usable = oracles.unit_rows(y)
    both = usable & v_usable
    np.testing.assert_allclose(cosines[both], np.sum(u * v, axis=1)[both], atol=1e-12)
    assert np.all(np.isnan(cosines[~both]))
    with pytest.raises(ValueError, match="one shape"):
        corresponding_cosines(x, y[:-1])


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.ones(4), "non-empty matrix"),
        (np.ones((0, 4)), "non-empty matrix"),
        (np.ones((1, 4)), "two usable rows"),
        (np.zeros((9, 4)), "two usable rows for a pair, got 0 of 9"),
        (np.full((9, 4), np.nan), "two usable rows for a pair, got 0 of 9"),
    ],
)
def test_bad_matrices(x, says):
    with pytest.raises(ValueError, match=says):
        similarity_distribution(x)
