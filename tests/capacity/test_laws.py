"""Laws: limits, closed-form inverses, elasticities and what happens outside their range."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repcap_jax.capacity import laws

ALL = pytest.mark.parametrize("law", laws.LAWS.values(), ids=lambda law: law.name)
DIMENSIONS = st.integers(2, 16384)


def test_equations():
    k, d = 20000.0, 512.0
    assert laws.JL_OPTIMISED.epsilon(k, d) == pytest.approx(math.sqrt(0.7068 * math.log(k) / d))
    assert laws.RATIO.epsilon(k, d) == pytest.approx(math.sqrt(1.293 * math.log(k / d) / d))
    c = laws.FOUR_PARAMETER
    assert c.epsilon(k, d) == pytest.approx(math.sqrt(c.C * math.log(k**c.a / d) ** c.b / d**c.c))
    welch = math.sqrt((k - d) / (d * (k - 1)))
    assert laws.WELCH_RATIO.epsilon(k, d) == pytest.approx(welch * (1 + 0.302 * math.log(k / d)))
    assert laws.WELCH_QUADRATIC.epsilon(k, d) == pytest.approx(
        welch * math.sqrt(1.0762 + 0.15516 * math.log(k / d) ** 2)
    )


@ALL
def test_floor(law):
    assert law.epsilon(100, 128) == law.epsilon(128, 128) == 0
    assert law.capacity(128, 0) == 128
    assert law.capacity(767, 0.0) == 767
    assert law.elasticity(128, 0) == 0


@ALL
@settings(max_examples=25)
@given(d=DIMENSIONS, log_ratio=st.floats(0.01, 30))
def test_inverse(law, d, log_ratio):
    k = d * math.exp(log_ratio)
    epsilon = law.epsilon(k, d)
    assert law.log_capacity(d, epsilon) == pytest.approx(math.log(k), rel=1e-9)
    assert law.capacity(d, epsilon) == pytest.approx(k, rel=1e-7)


@ALL
@settings(max_examples=25)
@given(d=DIMENSIONS, epsilon=st.floats(0, 1.5), other=st.floats(0, 1.5))
def test_capacity_is_monotone_and_at_least_d(law, d, epsilon, other):
    low, high = sorted((epsilon, other))
    assert d <= law.capacity(d, low) <= law.capacity(d, high)


@ALL
@pytest.mark.parametrize("d, epsilon", [(64, 0.3), (512, 0.1), (4096, 0.06), (16384, 0.2)])
def test_elasticity_is_the_derivative(law, d, epsilon):
    step = 1e-4
    rise = law.log_capacity(d, epsilon * math.exp(step)) - law.log_capacity(d, epsilon * math.exp(-step))
    assert law.elasticity(d, epsilon) == pytest.approx(rise / (2 * step), rel=1e-6)


@ALL
def test_overflow_becomes_inf_with_a_finite_logarithm(law):
    assert law.capacity(16384, 5.0) == math.inf
    assert math.isfinite(law.log_capacity(16384, 5.0))
    assert law.elasticity(16384, 5.0) > 0
    count, note = law.max_vectors(16384, 5.0)
    assert count == math.inf and "float64" in note


@ALL
def test_vectorised(law):
    d = np.array([64, 512, 4096])[:, None]
    epsilon = np.array([0.0, 0.05, 0.3])
    table = law.capacity(d, epsilon)
    slopes = law.elasticity(d, epsilon)
    assert table.shape == slopes.shape == (3, 3)
    for i in range(3):
        for j in range(3):
            assert table[i, j] == law.capacity(int(d[i, 0]), float(epsilon[j]))
            assert slopes[i, j] == law.elasticity(int(d[i, 0]), float(epsilon[j]))
    assert law.epsilon(np.array([10, 100, 1000]), 64).shape == (3,)


@ALL
@pytest.mark.parametrize("epsilon", [-1e-9, -1.0, math.nan, math.inf, [0.1, math.nan]])
def test_bad_epsilon(law, epsilon):
    for method in (law.capacity, law.log_capacity, law.elasticity):
        with pytest.raises(ValueError, match="epsilon must be finite"):
            method(64, epsilon)


def test_bad_sizes():
    with pytest.raises(ValueError, match="d must be"):
        laws.RATIO.capacity(0, 0.1)
    with pytest.raises(ValueError, match="k must be"):
        laws.RATIO.epsilon(math.nan, 4)
    with pytest.raises(TypeError, match="real number"):
        laws.RATIO.epsilon("many", 4)


def test_bad_constants():
    with pytest.raises(ValueError, match="positive"):
        laws.RatioLaw(-1.0)
    with pytest.raises(ValueError, match="positive"):
        laws.WelchRatioLaw(0.0)
    with pytest.raises(TypeError):
        laws.JLLaw("0.7")


def test_extrapolation():
    law = laws.FOUR_PARAMETER
    assert not law.extrapolates(4096, 32000)
    assert law.extrapolates(4097, 32000) and law.extrapolates(4096, 1999)
    assert law.extrapolates(np.array([16, 64]), np.array([4000, 4000])).tolist() == [True, False]
    reasons = law.extrapolation_reasons(5120, 1e6)
    assert len(reasons) == 2 and "d = 5,120" in reasons[0] and "k = 1e+06" in reasons[1]
    quadratic = laws.WELCH_QUADRATIC
    assert not quadratic.extrapolates(256, 2560)
    assert quadratic.extrapolates(256, 257) and quadratic.extrapolates(32, 600)
    assert "d^2" in " ".join(quadratic.extrapolation_reasons(32, 600))
    assert laws.RatioLaw(1.0).extrapolates(64, 128)


def test_max_vectors_says_what_it_means():
    law = laws.FOUR_PARAMETER
    count, note = law.max_vectors(512, law.epsilon(20000, 512))
    assert count == 20000 and note == ""
    count, note = law.max_vectors(512, 1e-4)
    assert count == 512 and "orthonormal" in note


def test_four_parameter_law_does_not_dip_below_d():
    # Between k = d and the curve's start the inverse of the bare formula is below d.
    law = laws.FOUR_PARAMETER
    start = math.sqrt(law.C * ((law.a - 1) * math.log(4096)) ** law.b / 4096**law.c)
    assert law.capacity(4096, start * 0.9) == 4096
    assert law.capacity(4096, start * 1.01) > 4096


@ALL
def test_record(law):
    record = json.loads(json.dumps(law.to_record(), allow_nan=False))
    assert record["constants"] == dict(law.constants)
    assert record["fit_range"]["d"][0] >= 16 and record["source"]


def test_lookup():
    assert laws.get_law("ratio") is laws.RATIO
    assert laws.get_law("four_parameter") is laws.FOUR_PARAMETER and laws.get_law("JL") is laws.JL_OPTIMISED
    assert laws.get_law(laws.RATIO) is laws.RATIO
    with pytest.raises(ValueError, match="known laws"):
        laws.get_law("cubic")
    with pytest.raises(TypeError):
        laws.get_law(3)
