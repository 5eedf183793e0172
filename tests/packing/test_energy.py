"""Least energies: closed forms, published values, the way to codes, and the sums themselves."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax.packing import (
    known_best,
    minimal_energy,
    published_code,
    published_thomson_energy,
    riesz_energy,
    symmetry,
)
from repcap_jax.packing.energy import _objective, _smooth_energy

KEY = jax.random.key(11)
EXACT = 1e-7  # relative, for every energy of the table
# Energies that follow from the arrangement: 1/distance summed over the pairs by hand.
CLOSED_FORMS = {
    2: 1 / 2,
    3: 3 / math.sqrt(3),
    4: 6 / math.sqrt(8 / 3),
    5: 1 / 2 + 6 / math.sqrt(2) + 3 / math.sqrt(3),
    6: 12 / math.sqrt(2) + 3 / 2,
    12: 30 / math.sqrt(2 - 2 / math.sqrt(5)) + 30 / math.sqrt(2 + 2 / math.sqrt(5)) + 6 / 2,
}


@pytest.fixture(scope="module")
def eight():
    return minimal_energy(KEY, 8, 3, starts=16)


def oracle(rows, s):
    """One pair at a time."""
    total = 0.0
    for i in range(len(rows)):
        for j in range(i):
            distance = np.linalg.norm(rows[i] - rows[j])
            total += -np.log(distance) if s == 0 else distance**-s
    return total


@given(st.integers(0, 2**31), st.sampled_from([0, 0.5, 1, 3, 12]))
def test_energy_and_gradient(seed, s):
    rows = np.random.default_rng(seed).normal(size=(6, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert riesz_energy(2 * rows, s) == pytest.approx(oracle(rows, s), rel=1e-10)
    value, gradient = _objective(rows, float(s))
    nudge = np.zeros_like(rows)
    nudge[seed % 6, seed % 3] = 1e-6
    slope = (_objective(rows + nudge, float(s))[0] - _objective(rows - nudge, float(s))[0]) / 2e-6
    assert gradient[seed % 6, seed % 3] == pytest.approx(slope, rel=1e-4, abs=1e-7)
    in_float32 = float(_smooth_energy(jnp.float32(rows), jnp.float32(s)))
    assert in_float32 == pytest.approx(value - (np.log(15) / s if s else 0), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("k", CLOSED_FORMS)
def test_published_values_against_theory(k):
    assert published_thomson_energy(k) == pytest.approx(CLOSED_FORMS[k], abs=6e-10)


def test_published_tables():
    assert published_thomson_energy(51) is None and published_code(8, 3) == 0.2612039 and published_code(5, 3) is None
    energies = np.array([published_thomson_energy(k) for k in range(2, 51)])
    assert (np.diff(energies, 2) > 0).all(), "each further charge costs more than the one before"


def test_eight_points_are_an_antiprism(eight):
    """Two squares, one turned by 45 degrees: every point alike, four nearest neighbours, four kinds of distance."""
    assert eight.energy == pytest.approx(19.675287861, rel=EXACT) and eight.found >= 8
    found = eight.symmetry()
    assert found.kinds == 1 and found.counts.sum() == 28
    assert found.coordination.tolist() == [4] * 8
    assert sorted(found.counts.tolist()) == [4, 8, 8, 8]
    np.testing.assert_allclose(np.linalg.norm(eight.vectors, axis=1), 1, atol=1e-14)
    assert eight.energy == pytest.approx(oracle(eight.vectors, 1), rel=1e-12) and eight.gradient < 1e-7
    cube = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    assert symmetry(cube.astype(float)).counts.tolist() == [12, 12, 4], "edges and two diagonals"
    assert symmetry(cube.astype(float)).coordination.tolist() == [3] * 8


def test_record(eight):
    record = json.loads(json.dumps(eight.to_record(), allow_nan=False))
    assert record["starts"] == 16 and record["symmetry"]["coordination"] == {"4": 8}
    assert record["smallest_angle"] == pytest.approx(math.degrees(math.acos(record["coherence"])))


def test_large_exponents_end_in_codes():
    """Beyond float64 the energy is told as its logarithm, and the points are nearly the best code."""
    found = minimal_energy(KEY, 8, 3, s=2000, starts=16)
    assert math.isinf(found.energy) is (found.log_energy > 709) and math.isfinite(found.log_energy)
    assert 0 <= found.coherence - published_code(8, 3) < 0.005
    json.dumps(found.to_record(), allow_nan=False)


def test_logarithmic_energy_and_the_plane():
    """Regular polygons have the least energy of every s; k points have product of distances k^(k/2)."""
    found = minimal_energy(KEY, 5, 2, s=0, starts=8)
    assert found.energy == pytest.approx(-2.5 * math.log(5), abs=1e-9) and found.log_energy is None
    assert found.coherence == pytest.approx(known_best(5, 2, "codes").vectors[0] @ known_best(5, 2, "codes").vectors[1])


def test_same_key_same_points_and_progress():
    told = []
    one = minimal_energy(KEY, 5, 2, s=0, starts=8, progress=lambda done, steps: told.append((done, steps)))
    np.testing.assert_array_equal(one.vectors, minimal_energy(KEY, 5, 2, s=0, starts=8).vectors)
    assert told[-1] == (600, 600) and len(told) == 10


@pytest.mark.slow
@pytest.mark.parametrize("k", [*range(2, 33), 50])
def test_thomson(k):
    """Every published energy up to 32, and that of 50 points, from random starts."""
    assert minimal_energy(KEY, k, 3).energy == pytest.approx(published_thomson_energy(k), rel=EXACT)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: minimal_energy(KEY, 1, 3), ValueError, "k must be at least 2"),
        (lambda: minimal_energy(KEY, 4, 1), ValueError, "d must be at least 2"),
        (lambda: minimal_energy(KEY, 4, 3, s=-1), ValueError, "s must be a number from 0"),
        (lambda: minimal_energy(KEY, 4, 3, s=math.inf), ValueError, "s must be a number from 0"),
        (lambda: minimal_energy(KEY, 4, 3, starts=0), ValueError, "starts must be at least 1"),
        (lambda: minimal_energy(KEY, 4, 3, steps=0), ValueError, "steps must be at least 1"),
        (lambda: minimal_energy(KEY, True, 3), TypeError, "k must be a whole number"),
        (lambda: riesz_energy(np.eye(3), -1), ValueError, "must not be negative"),
    ],
)
def test_bad_values(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_coinciding_points():
    assert riesz_energy(np.ones((2, 3))) == math.inf
