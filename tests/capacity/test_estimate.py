"""Capacity estimates: the paper's table, classes, flags, budgets and records."""

import json
import math

import numpy as np
import pytest

from repcap_jax.capacity import (
    FOUR_PARAMETER,
    capacity_bracket,
    capacity_range,
    direction_budget,
    geometry_class,
    representational_capacity,
)


def printed_interval(text):
    """The interval of values that print as `text` with its digits."""
    mantissa, exponent = text.split("e")
    half = 0.5 * 10.0 ** -len(mantissa.partition(".")[2]) * 10.0 ** int(exponent)
    return float(text) - half, float(text) + half


def test_published_table(published_models):
    assert len(published_models) == 45
    indeterminate = 0
    for row in published_models:
        d, epsilon = int(row["d_model"]), float(row["epsilon"])
        estimate = representational_capacity(d, epsilon)
        assert estimate.indeterminate == (row["capacity"] == "indeterminate"), row
        if estimate.indeterminate:
            indeterminate += 1
            assert estimate.geometry_class == "class 1" and "class 1" in estimate.reason
            continue
        low, high = printed_interval(row["capacity"])
        # epsilon is printed to 5 decimals: the capacities it may stand for must meet the printed one.
        assert FOUR_PARAMETER.capacity(d, epsilon - 5e-6) <= high, row
        assert FOUR_PARAMETER.capacity(d, epsilon + 5e-6) >= low, row
    assert indeterminate == 14


@pytest.mark.parametrize(
    "epsilon, expected",
    [(0, "class 2"), (0.09962, "class 2"), (0.1, "between"), (0.2, "between"), (0.20164, "class 1"), (1.4, "class 1")],
)
def test_geometry_class(epsilon, expected):
    assert geometry_class(epsilon) == expected
    assert representational_capacity(64, epsilon).indeterminate == (expected == "class 1")


def test_extrapolation_is_said():
    estimate = representational_capacity(5120, 0.0555)
    assert estimate.extrapolates and len(estimate.extrapolation_reasons) == 2
    inside = representational_capacity(4096, FOUR_PARAMETER.epsilon(20000, 4096))
    assert not inside.extrapolates and inside.capacity == pytest.approx(20000)


def test_record_is_json_even_when_capacity_overflows():
    estimate = representational_capacity(16384, 0.9)
    assert estimate.capacity == math.inf and math.isfinite(estimate.log10_capacity)
    record = json.loads(json.dumps(estimate.to_record(), allow_nan=False))
    assert record["capacity"] is None and "float64" in record["capacity_reason"]
    record = json.loads(json.dumps(representational_capacity(768, 1e200).to_record(), allow_nan=False))
    assert record["log10_capacity"] is None and "float64" in record["log10_capacity_reason"]
    record = json.loads(json.dumps(representational_capacity(4096, 0.05).to_record(), allow_nan=False))
    assert record["indeterminate_reason"] is None and record["capacity"] > 4096


def test_floor_is_d():
    estimate = representational_capacity(4096, 0.001)
    assert estimate.capacity == 4096 and estimate.elasticity == 0


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    for call in (lambda: representational_capacity(64, epsilon), lambda: geometry_class(epsilon)):
        with pytest.raises(ValueError, match="epsilon must be finite"):
            call()


def test_several_epsilons():
    with pytest.raises(Exception, match="epsilon must be one number|Type-check"):
        representational_capacity(64, np.array([0.1, 0.2]))


@pytest.mark.parametrize("d_model", [0, -3, 2.5, math.nan])
def test_bad_width(d_model):
    with pytest.raises(ValueError, match="d_model must be"):
        representational_capacity(d_model, 0.1)


def test_budget():
    tied = direction_budget(1000, 5000, True)
    untied = direction_budget(1000, 5000, False)
    assert (tied.token_directions, tied.features_left) == (1000, 4000)
    assert (untied.token_directions, untied.features_left) == (2000, 3000)
    short = direction_budget(4000, 5000, False)
    assert short.overdrawn and short.features_left == -3000 and "more than fit" in short.summary()
    endless = direction_budget(4000, math.inf, False)
    record = json.loads(json.dumps(endless.to_record(), allow_nan=False))
    assert record["features_left"] is None and record["capacity"] is None
    with pytest.raises(ValueError, match="capacity"):
        direction_budget(10, math.nan, True)
    with pytest.raises(ValueError, match="vocab_size"):
        direction_budget(0, 10, True)


def test_range():
    spread = capacity_range(4096, 0.01, 0.02)
    assert [e.epsilon for e in spread.estimates] == pytest.approx([0.04, 0.05, 0.07])
    assert spread.low.capacity < spread.central.capacity < spread.high.capacity
    assert spread.central == representational_capacity(4096, 0.05)
    assert [cell["multiple"] for cell in json.loads(json.dumps(spread.to_record()))["estimates"]] == [1.5, 2, 3]
    for mean, std in ((0.1, -1), (math.nan, 0.1), (-0.5, 0.01)):
        with pytest.raises(ValueError, match="mean"):
            capacity_range(64, mean, std)


def test_bracket_example():
    # At d = 4,096, epsilon = 1/64 the bounds meet, far above what the published law says.
    bracket = capacity_bracket(4096, 1 / 64)
    assert bracket.guaranteed == bracket.upper.value == 8_392_704
    assert bracket.decades == pytest.approx(0) and not bracket.wide
    law = {estimate.law: estimate for estimate in bracket.estimates}["four-parameter"]
    assert 9_000 < law.capacity < 11_000 and not law.extrapolates
    summary = bracket.summary()
    assert "8,392,704" in summary and "known" in summary and "Below what is proven to exist" in summary


def test_bracket_of_a_real_model_is_wide_and_says_so():
    bracket = representational_capacity(4096, 0.0645).bracket
    assert bracket.wide and "wide" in bracket.summary() and "Outside their fitted range" in bracket.summary()
    assert bracket.guaranteed_log10 == pytest.approx(13.55, abs=0.01)
    record = json.loads(json.dumps(bracket.to_record(), allow_nan=False))
    assert record["wide"] and len(record["estimates"]) == len(bracket.estimates) == 6


@pytest.mark.parametrize("d", [1, 2, 3, 24, 576, 4096, 16384])
@pytest.mark.parametrize("epsilon", [0, 1e-6, 0.01, 1 / 64, 0.05, 0.0996, 0.15, 0.3, 0.72868, 0.999, 1.0, 1.7])
def test_bracket_is_ordered_and_json(d, epsilon):
    bracket = capacity_bracket(d, epsilon)
    assert d <= bracket.guaranteed <= bracket.upper.value
    assert bracket.decades >= -1e-9
    json.dumps(bracket.to_record(), allow_nan=False)
    assert ("Indeterminate" in bracket.summary()) == (0.2 < epsilon < 1)


def test_bracket_flags_laws_above_the_bound():
    summary = capacity_bracket(576, 0.72868).summary()
    assert "Above what any arrangement can reach: jl-optimised" in summary


def test_bracket_quotes_the_laws_asked_for():
    bracket = capacity_bracket(512, 0.1, laws=["ratio", FOUR_PARAMETER])
    assert [estimate.law for estimate in bracket.estimates] == ["ratio", "four-parameter"]
    with pytest.raises(ValueError, match="known laws"):
        capacity_bracket(512, 0.1, laws=["cubic"])
    with pytest.raises(ValueError, match="epsilon"):
        capacity_bracket(512, -0.1)
