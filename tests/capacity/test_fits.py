"""Fits: the published numbers from the published grids, recovery of known constants, and bad grids."""

import json
import math

import numpy as np
import pytest

from repcap_jax.capacity import (
    LAWS,
    PackingGrid,
    RatioLaw,
    coherence_bound,
    fit_errors,
    fit_law,
    laws,
    load_grid,
    measured_grid,
)
from repcap_jax.capacity.laws import FOUR_PARAMETER, RATIO


@pytest.fixture(scope="module")
def fitted(published_grid_paths):
    """Every fit of the published grids used below, made once."""
    names = ("jl-optimised", "ratio", "four-parameter", "welch-ratio")
    fits = {name: fit_law(name, published_grid_paths["optimized"]) for name in names}
    return {**fits, "jl-random": fit_law("jl-random", published_grid_paths["random"])}


def test_published_random_fit(fitted):
    fit = fitted["jl-random"]
    assert round(fit.constants["C"], 4) == 3.0295
    assert round(fit.r2, 4) == 0.9985
    assert round(100 * fit.mape, 2) == 1.31


def test_published_jl_fit(fitted):
    fit = fitted["jl-optimised"]
    assert round(fit.constants["C"], 4) == 0.7068
    assert round(100 * fit.mape) == 975
    assert round(100 * fit.above_d.mape, 1) == 52.2 and round(fit.above_d.r2, 4) == 0.9647
    # With the law at 0 for k <= d the six cells below d no longer make up the error.
    assert (fit.all_cells.n_cells, fit.above_d.n_cells) == (166, 160)
    assert fit.floored.mape == pytest.approx(0.539, abs=0.001)


def test_published_ratio_fit(fitted):
    fit = fitted["ratio"]
    assert round(fit.constants["C"], 3) == 1.293
    assert round(100 * fit.mape, 1) == 7.9
    assert round(100 * fit.above_d.mape, 1) == 4.5 and round(fit.above_d.r2, 4) == 0.9983


def test_published_four_parameter_fit(fitted):
    fit = fitted["four-parameter"]
    assert {key: round(value, 3) for key, value in fit.constants.items()} == {
        "C": 0.458, "a": 1.067, "b": 1.447, "c": 0.972,
    }  # fmt: skip
    for key, value in FOUR_PARAMETER.constants.items():
        assert fit.constants[key] == pytest.approx(value, rel=5e-6)
    assert round(100 * fit.mape, 1) == 5.4 and round(100 * fit.mape, 2) == 5.35
    assert round(100 * fit.above_d.mape, 2) == 1.80 and round(fit.above_d.r2, 4) == 0.9998


def test_welch_ratio_fit(fitted):
    fit = fitted["welch-ratio"]
    assert round(fit.constants["A"], 3) == 0.302
    assert round(100 * fit.mape, 1) == 6.8 and round(100 * fit.above_d.mape, 1) == 3.3
    assert round(fit.above_d.r2, 4) == 0.9994


def test_held_out_and_intervals(fitted):
    for fit in fitted.values():
        assert fit.held_out.rmse >= fit.rmse * 0.999
        assert fit.held_out_above_d.n_cells == fit.above_d.n_cells
        for key, (low, high) in fit.intervals.items():
            assert low < fit.constants[key] < high
        assert not fit.law.extrapolates(1024, 20000)
        json.dumps(fit.to_record(), allow_nan=False)


def synthetic(law, noise=0.0, seed=0):
    d, k = np.meshgrid([64, 128, 256, 512.0], np.geomspace(700, 50000, 8))
    epsilon = law.epsilon(k, d)
    epsilon = epsilon * (1 + noise * np.random.default_rng(seed).standard_normal(epsilon.shape))
    return np.stack([k.ravel(), d.ravel(), epsilon.ravel()], axis=1)


@pytest.mark.parametrize("law", LAWS.values(), ids=lambda law: law.name)
def test_known_constants_are_recovered(law):
    start = law.with_constants(**{key: 1.3 * value for key, value in law.constants.items()})
    fit = fit_law(start, synthetic(law), held_out=False)
    for key, value in law.constants.items():
        assert fit.constants[key] == pytest.approx(value, rel=1e-6)
    assert fit.r2 == pytest.approx(1) and fit.held_out is None and fit.held_out_reason == "not asked for"


def test_intervals_cover():
    # Additive noise of one size is what the intervals assume: 90 % of them must hold the true constant.
    cells, hits = synthetic(RATIO), 0
    for seed in range(50):
        noisy = cells + np.random.default_rng(seed).standard_normal(cells.shape) * [0, 0, 1e-3]
        low, high = fit_law("ratio", noisy, confidence=0.9, held_out=False).intervals["C"]
        hits += low < RATIO.C < high
    assert 40 <= hits <= 50


def test_one_dimension_cannot_be_held_out_nor_fix_c():
    cells = synthetic(FOUR_PARAMETER)
    fit = fit_law("four-parameter", cells[cells[:, 1] == 128])
    assert fit.held_out is None and "single value of d" in fit.held_out_reason
    assert any(math.isnan(low) for low, _ in fit.intervals.values())
    record = json.loads(json.dumps(fit.to_record(), allow_nan=False))
    assert record["held_out_reason"] and record["intervals_reason"]


def test_cells_that_determine_nothing_are_not_fitted_to():
    """Without d = 4 only cells with k <= d are left, of which every ratio law says 0."""
    fit = fit_law("ratio", [[8, 4, 0.3], [16, 4, 0.5], [32, 4, 0.6], [8, 32, 0], [16, 32, 0]])
    assert fit.held_out is None and "without d = 4 fewer cells with k > d" in fit.held_out_reason


def test_error_definitions():
    errors = fit_errors(np.array([1.0, 2.0, 5.0]), np.array([1.0, 1.0, 4.0]))
    assert errors.rmse == pytest.approx(math.sqrt(2 / 3))
    assert errors.nrmse == pytest.approx(math.sqrt(2 / 3) / 3)
    assert errors.mape == pytest.approx((0 + 1 + 0.25) / 3)
    assert errors.r2 == pytest.approx(1 - 2 / 6)
    zero = fit_errors(np.array([0.0, 0.1]), np.array([0.0, 0.1]))
    assert zero.n_zero == 1 and zero.mape == 0
    empty = json.loads(json.dumps(fit_errors(np.array([]), np.array([])).to_record(), allow_nan=False))
    assert empty["mape"] is None and empty["mape_reason"]


def test_bad_fits():
    cells = synthetic(RATIO)
    with pytest.raises(ValueError, match="4 constants"):
        fit_law("four-parameter", cells[:3])
    with pytest.raises(ValueError, match="known laws"):
        fit_law("cubic", cells)
    with pytest.raises(TypeError):
        fit_law(RatioLaw, cells)
    with pytest.raises(ValueError, match="confidence"):
        fit_law("ratio", cells, confidence=1.0)


def test_grids_from_files(tmp_path):
    cells = [[100, 50, 0.1], [200, 50, 0.2]]
    (tmp_path / "grid.json").write_text(json.dumps({"source": "me", "cells": cells}))
    (tmp_path / "grid.csv").write_text("# mine\nd,epsilon,k,note\n50,0.1,100,a\n50,0.2,200,b\n")
    from_json, from_csv = load_grid(tmp_path / "grid.json"), load_grid(str(tmp_path / "grid.csv"))
    assert from_json.source == "me" and len(from_json) == 2
    np.testing.assert_array_equal(from_json.cells, from_csv.cells)
    assert from_json.k.tolist() == [100, 200] and from_json.epsilon.tolist() == [0.1, 0.2]
    assert json.loads(json.dumps(from_json.to_record()))["cells"] == cells
    assert fit_law("ratio", tmp_path / "grid.json").all_cells.n_cells == 2
    (tmp_path / "spreadsheet.csv").write_text("k,d,epsilon\n9,4,0.5\n", encoding="utf-8-sig")
    assert load_grid(tmp_path / "spreadsheet.csv").cells.tolist() == [[9, 4, 0.5]]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[[1, 2, 3]]", "cells"),
        ("a.json", '{"cells": [[1, 2]]}', "three numbers"),
        ("a.json", '{"cells": []}', "at least one"),
        ("a.json", '{"cells": [["a", 32, 0.1]]}', "a.json"),
        ("a.json", '{"cells": [[64, 2000, 0.1], [-1, 2, 3]]}', "row 1"),
        ("a.csv", "k,dim,eps\n1,2,3\n", "lacks the columns d, epsilon"),
        ("a.csv", "", "lacks the columns"),
        ("a.csv", "k,d,epsilon\n1,2\n", "a.csv"),
        ("a.csv", "k,d,epsilon\n1,2,x\n", "a.csv"),
        ("a.csv", "k,d,epsilon\n1,2,nan\n", "finite"),
        ("a.txt", "1 2 3", "json or .csv"),
    ],
)
def test_bad_grid_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_grid(tmp_path / name)


def test_bad_grids(tmp_path):
    with pytest.raises(FileNotFoundError, match="no packing grid"):
        load_grid(tmp_path / "absent.json")
    with pytest.raises(ValueError, match="shape"):
        PackingGrid(np.zeros((3, 2)))
    with pytest.raises(TypeError, match="real number"):
        PackingGrid([["a", 1, 2]])


def test_cells_below_a_bound_are_counted():
    """A ratio law with a tiny constant promises what no arrangement reaches, one with a large constant does not."""
    cells = [[k, d, epsilon] for d in (8, 16) for k, epsilon in ((2 * d, 0.05), (4 * d, 0.06), (6 * d, 0.07))]
    assert fit_law("ratio", cells).below_bound == len(cells)
    assert fit_law("ratio", [[k, d, 10 * epsilon] for k, d, epsilon in cells]).below_bound == 0


def test_a_grid_without_packings_is_refused():
    with pytest.raises(ValueError, match="no cell with k > d"):
        fit_law("ratio", [[4, 8, 0.0], [5, 8, 0.0]])


def test_the_shipped_grid():
    """Our own packings: above every bound, with their provenance, and the laws' constants are its fits."""
    grid = measured_grid()
    assert "repcap_jax.pack" in grid.source
    for k, d, epsilon in grid.cells:
        assert epsilon >= coherence_bound(int(k), int(d)).value - 1e-11
    law = laws.WELCH_QUADRATIC
    chosen = grid.select((grid.k / grid.d >= law.fit_range.ratio[0]) & (grid.k <= law.fit_range.square * grid.d**2))
    assert law.fit_range.d == (chosen.d.min(), chosen.d.max())
    assert law.fit_range.ratio[1] == pytest.approx((chosen.k / chosen.d).max(), rel=1e-4)
    fitted = fit_law("welch-quadratic", chosen)
    assert law.constants == pytest.approx(fitted.constants, rel=1e-4)
    assert fitted.mape < 0.005 and not fitted.below_bound


@pytest.mark.parametrize(
    ("d", "k", "reached"),
    [
        (32, 2000, 0.3564),
        (32, 4000, 0.3946),
        (64, 2000, 0.2103),
        (64, 4000, 0.2428),
        (128, 2000, 0.1279),
        (128, 4000, 0.148),
        (256, 2000, 0.0767),
        (256, 4000, 0.0914),
        (512, 2000, 0.0446),
        (512, 4000, 0.0559),
        (1024, 2000, 0.0242),
        (1024, 4000, 0.0324),
    ],  # fmt: skip
)
def test_the_shipped_grid_is_as_good_as_an_earlier_optimiser(d, k, reached):
    """Within half a percent of what one random start of another optimiser reached."""
    assert measured_grid().at(k, d) <= 1.005 * reached
