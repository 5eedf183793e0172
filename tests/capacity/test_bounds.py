"""Bounds: sharp cases, an independent quadrature, monotonicity, inverses, and packings that must not pass them."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import roots_jacobi

from repcap_jax.capacity import bounds, coherence_bound, constructions_in, max_vectors_bound, random_existence

SHARP = [
    (3, 6, 1 / math.sqrt(5)),
    (6, 16, 1 / 3),
    (7, 28, 1 / 3),
    (23, 276, 1 / 5),
    (8, 120, 1 / 2),
    (24, 98280, 1 / 2),
    (6, 36, 1 / 2),
    (7, 63, 1 / 2),
    (5, 10, 1 / 3),
    (16, 144, 1 / 4),
    (16, 256, 1 / 3),
    (23, 2300, 1 / 3),
    (4096, 8392704, 1 / 64),
]


@pytest.mark.parametrize("d, k, mu", SHARP)
def test_sharp_cases(d, k, mu):
    assert coherence_bound(k, d).value == pytest.approx(mu, rel=1e-14)
    assert max_vectors_bound(d, mu).value == k


@pytest.mark.parametrize("d, k, mu", [(5, 16, 1 / math.sqrt(5)), (3, 7, 1 / math.sqrt(3))])
def test_orthoplex_cases(d, k, mu):
    assert coherence_bound(k, d) == (pytest.approx(mu), "orthoplex")


def test_names():
    assert coherence_bound(2018, 1009).name == "Welch"
    assert coherence_bound(8390657, 4096).name == "orthoplex"
    assert coherence_bound(120, 8).name == "Levenshtein level 2"
    assert coherence_bound(12, 10).name == "Bukh-Cox"
    assert coherence_bound(10**6, 64).name == "Levenshtein level 4"
    assert coherence_bound(10**15, 3).name == "cap packing"
    assert coherence_bound(64, 64) == (0.0, "orthonormal")
    assert coherence_bound(5, 2) == (pytest.approx(math.cos(math.pi / 5)), "equal angles in the plane")


@pytest.mark.parametrize(
    "d, k, printed",
    [(32, 2000, 0.2709), (32, 4000, 0.2844), (64, 4000, 0.1730), (128, 4000, 0.0870), (1024, 4000, 0.0270)],
)
def test_tabulated_values(d, k, printed):
    assert coherence_bound(k, d).value == pytest.approx(printed, abs=5.1e-5)


def quadrature_count(m, t, d):
    """1 / weight at node 1 of the quadrature with nodes (-1 for even m), .., 2t^2 - 1, 1, from its definition."""
    x, w = roots_jacobi(40, (d - 3) / 2, -0.5)
    w = w / w.sum()
    s = 2 * t * t - 1
    fixed = [s, 1.0] if m % 2 else [-1.0, s, 1.0]
    free = (m + 1) // 2 - 1 if m % 2 else m // 2 - 1
    # The free nodes are the zeros of the monic polynomial orthogonal to lower degrees under w times the fixed factors.
    signed = w * np.prod([x - node for node in fixed], axis=0)
    moments = [float(np.sum(signed * x**j)) for j in range(2 * free + 1)]
    matrix = np.array([[moments[i + j] for j in range(free)] for i in range(free)])
    lower = np.linalg.solve(matrix, [-moments[free + i] for i in range(free)]) if free else []
    nodes = np.concatenate([np.polynomial.polynomial.polyroots([*lower, 1.0]) if free else [], fixed])
    powers = np.vander(nodes, increasing=True).T
    weights = np.linalg.solve(powers, [float(np.sum(w * x**j)) for j in range(len(nodes))])
    return 1 / weights[-1]


@pytest.mark.parametrize("d", [3, 4, 7, 24, 100])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_levenshtein_agrees_with_its_quadrature(m, d):
    low, high = bounds._level_start(m, d), bounds._level_start(m + 1, d)
    for share in (0.1, 0.5, 0.9):
        t = low + share * (high - low)
        assert bounds._log_levenshtein(m, t, d) == pytest.approx(math.log(quadrature_count(m, t, d)), rel=1e-6)


@pytest.mark.parametrize("d", [3, 8, 64, 4096])
@pytest.mark.parametrize("m", [1, 2, 3, 7])
def test_levenshtein_levels_join(m, d):
    end = bounds._level_start(m + 1, d)
    joint = math.log(math.comb(d + m, m + 1))
    assert bounds._log_levenshtein(m, end, d) == pytest.approx(joint, rel=1e-10)
    assert bounds._log_levenshtein(m + 1, end, d) == pytest.approx(joint, rel=1e-10)


def test_low_levels_are_the_closed_forms():
    assert bounds._log_levenshtein(1, bounds.welch_bound(500, 100), 100) == pytest.approx(math.log(500), rel=1e-13)
    second = bounds.levenshtein_second_bound(9000, 100)
    assert bounds._log_levenshtein(2, second, 100) == pytest.approx(math.log(9000), rel=1e-13)


@settings(max_examples=60)
@given(d=st.integers(2, 16384), log_k=st.floats(0.0, 35.0), step=st.floats(0.0, 3.0))
def test_coherence_rises_with_k(d, log_k, step):
    k, more = int(d * math.exp(log_k)), int(d * math.exp(log_k + step))
    low, high = coherence_bound(k, d).value, coherence_bound(more, d).value
    assert 0 <= low <= high * (1 + 1e-12) <= 1 + 1e-9


@settings(max_examples=60)
@given(d=st.integers(2, 16384), low=st.floats(0, 0.999), high=st.floats(0, 0.999))
def test_counts_rise_with_epsilon(d, low, high):
    low, high = sorted((low, high))
    assert d <= max_vectors_bound(d, low).value <= max_vectors_bound(d, high).value
    assert random_existence(d, low).log_value <= random_existence(d, high).log_value + 1e-9
    assert random_existence(d, high).log_value <= max_vectors_bound(d, high).log_value + 1e-9


@settings(max_examples=60)
@given(d=st.integers(3, 16384), log_ratio=st.floats(0.0, 27.0))
def test_inverse(d, log_ratio):
    k = int(d * math.exp(log_ratio)) + 1
    mu = coherence_bound(k, d).value
    assert max_vectors_bound(d, mu).value >= k
    # A little below the bound k lines are excluded: the two functions come from the same theorems.
    assert max_vectors_bound(d, mu * (1 - 1e-9)).value <= k


def test_bounds_stay_below_every_construction():
    for d in (2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 24, 32, 64, 100, 128, 512, 1024, 4096, 16384):
        for found in constructions_in(d):
            most = max_vectors_bound(found.native_d, found.coherence)
            assert math.log(found.native_k) <= most.log_value * (1 + 1e-12), (found, most)
            if found.native_k <= 10**300:
                bound = coherence_bound(found.native_k, found.native_d)
                assert bound.value <= found.coherence * (1 + 1e-12), (found, bound)


def test_bounds_stay_below_the_published_packings(published_cells):
    for k, d, epsilon in published_cells["optimized"]:
        if k > d:
            assert coherence_bound(int(k), int(d)).value <= epsilon


def test_many_lines_in_many_dimensions():
    assert coherence_bound(10**15, 16384).name == "Levenshtein level 3"
    huge = max_vectors_bound(16384, 0.5)
    assert huge.value == math.inf and 4000 < huge.log_value < 6000
    record = json.loads(json.dumps(huge.to_record(), allow_nan=False))
    assert record["vectors"] is None and record["log10_vectors"] > 1000 and "float64" in record["vectors_reason"]


def test_unbounded_is_said():
    nothing = max_vectors_bound(64, 1.0)
    assert nothing.value == math.inf and nothing.log_value == math.inf and "any number" in nothing.name
    record = json.loads(json.dumps(nothing.to_record(), allow_nan=False))
    assert record["vectors"] is None and "any number" in record["vectors_reason"]


def test_small_epsilon_allows_a_basis():
    assert max_vectors_bound(64, 0).value == 64
    assert max_vectors_bound(1, 0.5).value == 1
    assert random_existence(64, 0).value == 64


@pytest.mark.parametrize("k, d", [(0, 4), (4, 0), (2.5, 4), (math.nan, 4), (4, math.inf), (True, 4), (10**301, 4)])
def test_bad_sizes(k, d):
    with pytest.raises(ValueError, match="must be"):
        coherence_bound(k, d)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    for function in (max_vectors_bound, random_existence):
        with pytest.raises(ValueError, match="epsilon must be finite"):
            function(8, epsilon)
