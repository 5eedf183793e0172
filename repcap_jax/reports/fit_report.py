"""Tables, figures and report of laws fitted to a packing grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repcap_jax.capacity import FitErrors, LawFit, PackingGrid
from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.law_figures import residual_figure, surface_figure
from repcap_jax.reports.packing_data import DescentHistory, grid_results
from repcap_jax.reports.packing_figures import coherence_figures, collapse_figure, history_figure
from repcap_jax.reports.packing_report import cell_table
from repcap_jax.reports.strict_json import dump_pretty
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "What the capacity law is worth"
_CAPTION = "Laws for the coherence ε of k packed directions in d dimensions, fitted by least squares on ε."


def write_fit_report(
    workdir: Workdir,
    grid: PackingGrid,
    fits: Mapping[str, LawFit],
    *,
    published: PackingGrid | None = None,
    histories: Sequence[DescentHistory] = (),
    warnings: Sequence[str] = (),
) -> Path:
    """Write `fits.json`, `fit_table`, `grid_table`, all figures and `report.html`.

    Args:
      workdir: where to.
      grid: the cells that were fitted.
      fits: by name of the law.
      published: a grid to draw and tabulate beside it.
      histories: of the optimiser, if the grid is one's own sweep.
      warnings: sentences for the head of the report.
    Returns:
      The path of report.html.
    """
    workdir.write_text("fits.json", dump_pretty({name: fit.to_record() for name, fit in fits.items()}))
    cells = grid_results(grid, published)
    laws = [fit.law for name, fit in fits.items() if name != "jl-optimised"]  # the JL law is no function of k / d
    compared = [fits[name] for name in ("jl-optimised", "ratio") if name in fits]
    figures = {
        "collapse": ([collapse_figure(cells, laws)], "Coherence times √d against k / d, with the fitted laws."),
        "residuals": ([residual_figure(grid, list(fits.values()))], "What each law leaves over, cells with k > d."),
        "surfaces": ([surface_figure(grid, compared)], "JL law and ratio law as surfaces, with the fitted cells."),
        "coherence": (
            coherence_figures(cells),
            "Cells, bound (dashed), best explicit construction (green) and published values.",
        ),
        "history": ([history_figure(histories)], "How the optimiser got there."),
    }
    images = {name: save_pages(workdir, pages, name, caption) for name, (pages, caption) in figures.items()}
    drawn = [image for name in ("collapse", "residuals", "surfaces") for image in images[name]]
    sections = [
        Section("Fits", [f"Grid: {grid.source or 'no source given'}; {len(grid)} cells."], [fit_table(workdir, fits)]),
        Section("Laws against cells", images=drawn),
        Section("Cells", tables=[cell_table(workdir, "grid_table", cells)], images=images["coherence"]),
        Section("Optimiser", images=images["history"]),
    ]
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables], warnings)


def fit_table(workdir: Workdir, fits: Mapping[str, LawFit]) -> Table:
    """Write the table of fitted constants and errors, and return it for a report."""
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("law", "law"),
        Column("form", "form"),
        Column("constants (confidence interval)", "constants"),
        Column("cells", "cells", ",", **right),
        Column("R²", "r2", ".4f", "$R^2$", **right),
        Column("RMSE", "rmse", ".5f", **right),
        Column("NRMSE", "nrmse", ".4f", **right),
        Column("MAPE", "mape", ".2%", **right),
        Column("cells k > d", "cells_above", ",", **right),
        Column("R², k > d", "r2_above", ".4f", "$R^2$, $k>d$", **right),
        Column("RMSE, k > d", "rmse_above", ".5f", "RMSE, $k>d$", **right),
        Column("NRMSE, k > d", "nrmse_above", ".4f", "NRMSE, $k>d$", **right),
        Column("MAPE, k > d", "mape_above", ".2%", "MAPE, $k>d$", **right),
        Column("MAPE held out, k > d", "mape_held_out", ".2%", "MAPE held out, $k>d$", **right),
        Column("cells below a bound", "violations", ",", **right),
    ]
    notes = [
        "Held out: each dimension is predicted from constants fitted to the other dimensions.",
        "Cells below a bound: cells with k > d where the law promises a coherence that no arrangement reaches.",
    ]
    if any(fit.all_cells.n_cells != fit.above_d.n_cells for fit in fits.values()):
        notes.append(
            "On all cells: those with k ≤ d have ε near 0, so that each adds 100 % or more to MAPE, and thousands of "
            "percent for the JL law, whose formula is not 0 there."
        )
    return write_table(workdir, "fit_table", [_row(n, fit) for n, fit in fits.items()], columns, _CAPTION, notes)


def _row(name: str, fit: LawFit) -> Row:
    row: Row = {"law": name, "form": fit.law.form, "constants": _constants(fit), "violations": fit.below_bound}
    row |= {"cells": fit.all_cells.n_cells, "cells_above": fit.above_d.n_cells}
    return {
        **row,
        **_errors("", fit.all_cells),
        **_errors("_above", fit.above_d),
        "mape_held_out": None if fit.held_out_above_d is None else fit.held_out_above_d.mape,
    }


def _errors(suffix: str, errors: FitErrors) -> Row:
    return {f"{name}{suffix}": getattr(errors, name) for name in ("r2", "rmse", "nrmse", "mape")}


def _constants(fit: LawFit) -> str:
    """ "C = 1.293 (1.28 to 1.31)"."""
    parts = []
    for name, value in fit.constants.items():
        low, high = fit.intervals[name]
        interval = f" ({low:.4g} to {high:.4g})" if math.isfinite(low) else " (not determined)"
        parts.append(f"{name} = {value:.4g}{interval}")
    return ", ".join(parts)
