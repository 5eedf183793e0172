"""Refit a law to a packing grid, with its errors on all cells, on k > d and on dimensions left out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from ._values import Number, json_number
from .bounds import coherence_bound
from .grids import PackingGrid, as_grid
from .laws import FitRange, Law, get_law


@dataclass(frozen=True)
class FitErrors:
    """How far a law is from the cells of a grid.

    Args:
      n_cells: number of cells compared.
      r2: 1 - sum (law - epsilon)^2 / sum (epsilon - mean epsilon)^2.
      rmse: square root of the mean of (law - epsilon)^2.
      nrmse: rmse / (max epsilon - min epsilon).
      mape: mean of |law - epsilon| / epsilon, as a fraction (0.05 is 5 %).
      n_zero: cells with epsilon = 0, which have no relative error and are left out of mape.
    """

    n_cells: int
    r2: float
    rmse: float
    nrmse: float
    mape: float
    n_zero: int

    def to_record(self) -> dict:
        """Return the errors as valid JSON; what a single cell or a constant grid leaves undefined is null."""
        record: dict = {"n_cells": self.n_cells, "n_zero": self.n_zero}
        for key in ("r2", "rmse", "nrmse", "mape"):
            json_number(record, key, getattr(self, key), "undefined: no cells, no spread of epsilon, or only zeros")
        return record


def fit_errors(predicted: np.ndarray, epsilon: np.ndarray) -> FitErrors:
    """Return the errors of predicted coherences against measured ones (see FitErrors for the equations)."""
    predicted, epsilon = np.asarray(predicted, np.float64), np.asarray(epsilon, np.float64)
    if len(epsilon) == 0:
        return FitErrors(0, math.nan, math.nan, math.nan, math.nan, 0)
    gap = predicted - epsilon
    spread, total = float(np.ptp(epsilon)), float(np.sum((epsilon - epsilon.mean()) ** 2))
    rmse = float(np.sqrt(np.mean(gap**2)))
    positive = epsilon > 0
    return FitErrors(
        n_cells=len(epsilon),
        r2=1 - float(np.sum(gap**2)) / total if total > 0 else math.nan,
        rmse=rmse,
        nrmse=rmse / spread if spread > 0 else math.nan,
        mape=float(np.mean(np.abs(gap[positive]) / epsilon[positive])) if positive.any() else math.nan,
        n_zero=int(np.sum(~positive)),
    )


@dataclass(frozen=True)
class LawFit:
    """A law refitted to a grid.

    Args:
      law: the form with the fitted constants and, as fitted range, that of the grid.
      intervals: for each constant its confidence interval (low, high); (nan, nan) where the grid does not determine it.
      confidence: level of the intervals.
      all_cells: errors of `Law.curve` on all cells, the published convention.
      above_d: errors on the cells with k > d.
      floored: errors on all cells with the law at 0 for k <= d, as `Law.epsilon` has it; differs for the JL law only.
      held_out, held_out_above_d: the same errors as `all_cells` and `above_d` when each value of d is predicted from
        constants fitted to the other values; None where that cannot be done, `held_out_reason` saying why.
      grid_source: provenance of the cells.
      below_bound: cells with k > d where the fitted law promises less than any arrangement can reach.
    """

    law: Law
    intervals: Mapping[str, tuple[float, float]]
    confidence: float
    all_cells: FitErrors
    above_d: FitErrors
    floored: FitErrors
    held_out: FitErrors | None
    held_out_above_d: FitErrors | None
    held_out_reason: str
    grid_source: str
    below_bound: int

    @property
    def constants(self) -> Mapping[str, float]:
        """The fitted constants by name."""
        return self.law.constants

    # The published convention under the short names.

    @property
    def r2(self) -> float:
        """R^2 on all cells."""
        return self.all_cells.r2

    @property
    def rmse(self) -> float:
        """RMSE on all cells."""
        return self.all_cells.rmse

    @property
    def nrmse(self) -> float:
        """NRMSE on all cells."""
        return self.all_cells.nrmse

    @property
    def mape(self) -> float:
        """MAPE on all cells, as a fraction."""
        return self.all_cells.mape

    def to_record(self) -> dict:
        """Return the fit as valid JSON."""
        intervals = {key: list(v) if all(map(math.isfinite, v)) else None for key, v in self.intervals.items()}
        record = {
            "law": self.law.to_record(),
            "intervals": intervals,
            "confidence": self.confidence,
            "all_cells": self.all_cells.to_record(),
            "above_d": self.above_d.to_record(),
            "floored": self.floored.to_record(),
            "held_out": self.held_out.to_record() if self.held_out else None,
            "held_out_above_d": self.held_out_above_d.to_record() if self.held_out_above_d else None,
            "held_out_reason": self.held_out_reason or None,
            "grid_source": self.grid_source,
            "below_bound": self.below_bound,
        }
        if None in intervals.values():
            record["intervals_reason"] = "the cells do not determine every constant"
        return record


def _curve(law: Law, grid: PackingGrid) -> np.ndarray:
    return law.curve(np.log(grid.k), grid.d)


def _minimise(law: Law, grid: PackingGrid) -> tuple[Law, np.ndarray, np.ndarray]:
    """Least squares over the logarithms of the constants: the law, residuals and Jacobian at the minimum."""
    names = list(law.constants)
    start = np.log([law.constants[name] for name in names])

    def at(logs: np.ndarray) -> Law:
        return law.with_constants(**dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: np.ndarray) -> np.ndarray:
        return _curve(at(logs), grid) - grid.epsilon

    # Constants stay within a factor e^20 of the start: a constant the cells do not determine must not overflow.
    found = least_squares(
        residuals,
        start,
        jac="3-point",
        bounds=(start - 20, start + 20),
        x_scale="jac",
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    return at(found.x), found.fun, found.jac


def _intervals(law: Law, residuals: np.ndarray, jacobian: np.ndarray, confidence: float) -> dict:
    """Confidence intervals from the linearised fit, symmetric in the logarithm of each constant."""
    n, p = jacobian.shape
    _, singular, vt = np.linalg.svd(jacobian, full_matrices=False)
    if n <= p or singular[-1] <= 1e-10 * singular[0]:
        return {name: (math.nan, math.nan) for name in law.constants}
    variance = residuals @ residuals / (n - p)
    errors = np.sqrt(variance * np.sum((vt / singular[:, None]) ** 2, axis=0))
    reach = student.ppf(0.5 + confidence / 2, n - p) * errors
    return {
        name: (value * math.exp(-width), value * math.exp(width))
        for (name, value), width in zip(law.constants.items(), reach.tolist(), strict=True)
    }


def _held_out(law: Law, grid: PackingGrid) -> tuple[np.ndarray | None, str]:
    """Predictions for each d from constants fitted without it, or None and the reason."""
    values = np.unique(grid.d)
    if len(values) < 2:
        return None, "the grid has a single value of d"
    predicted = np.empty(len(grid))
    for value in values:
        rest = grid.d != value
        if (rest & (grid.k > grid.d)).sum() < len(law.constants):  # cells with k <= d determine nothing
            return None, f"without d = {value:g} fewer cells with k > d remain than the law has constants"
        predicted[~rest] = _curve(_minimise(law, grid.select(rest))[0], grid.select(~rest))
    return predicted, ""


def _below_bound(law: Law, grid: PackingGrid) -> int:
    """How many cells of whole numbers k > d the law puts below the best bound."""
    predicted = _curve(law, grid)
    return sum(
        bool(value < coherence_bound(int(k), int(d)).value)
        for (k, d, _), value in zip(grid.cells, predicted)
        if k > d and k == int(k) and d == int(d)
    )


def fit_law(law: str | Law, grid: Any, *, confidence: Number = 0.95, held_out: bool = True) -> LawFit:
    """Return a law refitted to a packing grid by plain least squares on epsilon.

        minimise over the constants   sum over all cells of (law(k, d) - epsilon)^2

    All cells count equally, also those with k <= d, where every form is 0 except the JL law, whose formula
    sqrt(C ln k / d) is compared as it stands. This convention reproduces the published constants and errors. Relative
    errors on all cells say little: the few cells with k <= d have epsilon near 0, so each adds 100 % for a form that is
    0 there and thousands of percent for the JL law. See `LawFit.above_d`.

    Args:
      law: the form to fit, a Law or its name in `laws.LAWS`; its constants are the start.
      grid: PackingGrid, path of a .json or .csv grid, or an array of rows [k, d, epsilon].
      confidence: level of the intervals, strictly between 0 and 1. They treat the misfits of the cells as independent
        and equal in size, which a smooth misfit is not: read them as a lower limit of the uncertainty.
      held_out: whether to refit without each value of d (one fit per value).

    Returns:
      LawFit.

    Raises:
      ValueError: fewer cells than constants, no cell with k > d, a grid that is not one, unknown law, or confidence
        outside (0, 1).
      TypeError: law is neither a name nor a Law.

    Source: Guha 2026, arXiv:2606.02765, for the JL, ratio and four-parameter forms.
    """
    law, grid = get_law(law), as_grid(grid)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if len(grid) < len(law.constants):
        raise ValueError(f"the {law.form} law has {len(law.constants)} constants, but the grid has {len(grid)} cells")
    if not (grid.k > grid.d).any():
        raise ValueError("the grid has no cell with k > d: elsewhere coherence is 0, so there is nothing to fit")
    fitted, residuals, jacobian = _minimise(law, grid)
    span = FitRange(d=(grid.d.min(), grid.d.max()), k=(grid.k.min(), grid.k.max()))
    source = f"least squares on {grid.source or 'a packing grid'}"
    fitted = fitted.with_constants(name=f"{law.name or law.form} refit", source=source, fit_range=span)
    predicted, above = _curve(fitted, grid), grid.k > grid.d
    left_out, reason = _held_out(law, grid) if held_out else (None, "not asked for")
    return LawFit(
        law=fitted,
        intervals=_intervals(fitted, residuals, jacobian, confidence),
        confidence=confidence,
        all_cells=fit_errors(predicted, grid.epsilon),
        above_d=fit_errors(predicted[above], grid.epsilon[above]),
        floored=fit_errors(np.where(above, predicted, 0), grid.epsilon),
        held_out=None if left_out is None else fit_errors(left_out, grid.epsilon),
        held_out_above_d=None if left_out is None else fit_errors(left_out[above], grid.epsilon[above]),
        held_out_reason=reason,
        grid_source=grid.source,
        below_bound=_below_bound(fitted, grid),
    )
