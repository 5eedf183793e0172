"""Figures of packings: coherence by count, the collapse onto k / d, random draws, and how the optimiser got there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from repcap_jax.capacity import Law, coherence_bound
from repcap_jax.reports.packing_data import CellResult, DescentHistory
from repcap_jax.reports.style import FAINT, GREY, INK, new_figure, style

_PANELS = 12  # dimensions on one page
_LOG_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(range(1, 10)), tuple(1 + i / 5 for i in range(45)))
_MOST_TICKS = 7
_PUBLISHED, _BUILT = "#CC6677", "#117733"


def dimension_colors(dimensions: Sequence[int]) -> dict[int, Any]:
    """A colour for each dimension, dark for small ones, evenly spaced on the logarithm."""
    ordered = sorted(set(dimensions))
    low, high = math.log(ordered[0]), math.log(ordered[-1])
    scale = Normalize(low, high if high > low else low + 1)
    # The palest end of the map cannot be seen on white.
    return {d: matplotlib.colormaps["viridis"](0.92 * float(scale(math.log(d)))) for d in ordered}


def coherence_figures(results: Sequence[CellResult], kind: str = "optimised") -> list[Figure]:
    """Coherence against k, a panel for each d, with the bound, the best construction and the published values.

    Args:
      results: cells; those of other kinds are passed over.
      kind: `"optimised"` or `"random"`.
    Returns:
      One figure for every twelve dimensions; none without cells with k > d.
    """
    shown = [cell for cell in results if cell.kind == kind and cell.k > cell.d]  # else epsilon 0 is the answer
    dimensions = sorted({cell.d for cell in shown})
    pages = [dimensions[i : i + _PANELS] for i in range(0, len(dimensions), _PANELS)]
    return [_coherence_page(shown, page, kind) for page in pages]


def _coherence_page(shown: Sequence[CellResult], dimensions: Sequence[int], kind: str) -> Figure:
    columns = min(4, len(dimensions))
    rows = -(-len(dimensions) // columns)
    with style():
        figure = new_figure(2.6 * columns + 0.6, 2.4 * rows + 0.9)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(dimensions) :]:
            axes.set_axis_off()
        for axes, d in zip(panels.flat, dimensions):
            _coherence_panel(axes, [cell for cell in shown if cell.d == d], d)
        for row in panels:
            row[0].set_ylabel("coherence ε")
        handles = [
            Line2D([], [], color=INK, marker="o", markersize=4, label="measured" if kind == "random" else "reached"),
            Line2D([], [], color=GREY, linestyle="--", label="no arrangement is below"),
        ]
        if any(cell.construction is not None for cell in shown):
            handles.append(Line2D([], [], color=_BUILT, marker="_", linestyle="none", label="best construction"))
        if any(cell.published is not None for cell in shown):
            handles.append(_open_dot("published"))
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def _coherence_panel(axes: Axes, cells: Sequence[CellResult], d: int) -> None:
    k = np.array([cell.k for cell in cells])
    axes.set(xscale="log", title=f"d = {d:,}")
    span = np.unique(np.geomspace(max(k.min() / 1.15, d + 1), max(k.max() * 1.15, d + 2), 160).round().astype(int))
    if not cells[0].signed:
        axes.plot(span, [coherence_bound(int(n), d).value for n in span], color=GREY, linestyle="--", linewidth=1)
    else:
        axes.plot(k, [cell.bound for cell in cells], color=GREY, linestyle="--", linewidth=1)
    built = [(cell.k, cell.construction) for cell in cells if cell.construction is not None]
    if built:
        axes.plot(*zip(*built), color=_BUILT, marker="_", markersize=7, linestyle="none")
    known = [(cell.k, cell.published) for cell in cells if cell.published is not None]
    if known:
        axes.plot(*zip(*known), color=_PUBLISHED, marker="o", markersize=4.5, fillstyle="none", linestyle="none")
    axes.plot(k, [cell.epsilon for cell in cells], color=INK, marker="o", markersize=3, linewidth=1)
    top = 1.12 * max([cell.epsilon for cell in cells] + [value for _, value in known])
    axes.set_ylim(min(0.0, 1.12 * min(cell.bound for cell in cells)), max(top, 0.05))  # codes of few points lie below 0
    axes.set_xlim(span.min() / 1.05, span.max() * 1.05)
    hidden = sum(value > top for _, value in built)
    if hidden:
        axes.annotate(
            f"{hidden} construction{'s' * (hidden > 1)} above",
            (0.02, 0.98),
            xycoords="axes fraction",
            fontsize=6.5,
            color=_BUILT,
            va="top",
        )
    plain_log_axis(axes)
    axes.set_xlabel("k (log)")


def plain_log_axis(axes: Axes) -> None:
    """Label the x axis, which is logarithmic, with few round numbers written out."""
    axes.xaxis.set_major_locator(FixedLocator(round_numbers(*axes.get_xlim())))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))


def round_numbers(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones, evenly spread on a log axis; three or more where there are any."""
    powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in _LOG_STEPS:
        ticks = [step * power for power in powers for step in steps if low <= step * power <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: -(-len(ticks) // _MOST_TICKS) or 1]


def collapse_figure(results: Sequence[CellResult], laws: Sequence[Law] = ()) -> Figure | None:
    """Draw epsilon sqrt(d) against k / d, where good packings of all dimensions fall on one curve.

    Args:
      results: cells; only optimised ones of lines with k > d are drawn.
      laws: laws to draw, at the median dimension of the cells.
    Returns:
      The figure, or None without cells.
    """
    lines = [cell for cell in results if cell.kind == "optimised" and not cell.signed]
    shown = [cell for cell in lines if cell.k > cell.d and cell.epsilon > 0]
    if not shown:
        return None
    colors = dimension_colors([cell.d for cell in shown])
    published = [cell for cell in shown if cell.published]
    with style():
        figure = new_figure(9.0, 5.4)
        axes = figure.add_subplot()
        axes.set_xscale("log")
        low, high = min(cell.ratio for cell in shown) / 1.08, max(cell.ratio for cell in shown) * 1.15
        ratios = np.geomspace(max(low, 1 + 1e-6), high, 300)
        axes.plot(ratios, np.sqrt(1 - 1 / ratios), color=GREY, linestyle="--", linewidth=1.1)
        middle = float(np.median([cell.d for cell in shown]))
        dashes = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
        handles = [Line2D([], [], color=GREY, linestyle="--", label="Welch bound, large d: √(1 − d/k)")]
        for law, dash in zip(laws, dashes):
            axes.plot(ratios, law.epsilon(ratios * middle, middle) * middle**0.5, color=INK, linestyle=dash, lw=1)
            handles.append(Line2D([], [], color=INK, linestyle=dash, lw=1, label=f"{law.name}, at d = {middle:,.0f}"))
        for cell in published:
            scaled = cell.published * cell.d**0.5
            axes.plot(cell.ratio, scaled, "o", color=colors[cell.d], markersize=5.5, fillstyle="none", alpha=0.8)
        for d, color in colors.items():
            own = sorted((cell.ratio, cell.scaled) for cell in shown if cell.d == d)
            axes.plot(*zip(*own), color=color, marker="o", markersize=3.6, linewidth=0.8, alpha=0.9)
            handles.append(Line2D([], [], color=color, marker="o", markersize=4, label=f"d = {d:,}"))
        if published:
            handles.append(_open_dot("published (colour: d)", GREY))
        plain_log_axis(axes)
        axes.set(xlim=(low, high), xlabel="k / d (log)", ylabel="ε √d")
        axes.set_ylim(0, 1.08 * max([c.scaled for c in shown] + [c.published * c.d**0.5 for c in published]))
        axes.set_title("Coherence times √d against k / d")
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def random_figure(results: Sequence[CellResult]) -> Figure | None:
    """Draw what random draws reach against k, with the prediction; right: their relative difference.

    Returns:
      The figure, or None without random cells.
    """
    shown = [cell for cell in results if cell.kind == "random"]
    if not shown:
        return None
    colors = dimension_colors([cell.d for cell in shown])
    with style():
        figure = new_figure(9.6, 4.4)
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
        handles = []
        for d, color in colors.items():
            own = sorted((cell for cell in shown if cell.d == d), key=lambda cell: cell.k)
            k = np.array([cell.k for cell in own])
            left.plot(k, [cell.epsilon for cell in own], "o", color=color, markersize=4)
            expected = [(cell.k, cell.predicted) for cell in own if cell.predicted]
            if expected:
                left.plot(*zip(*expected), color=color, linewidth=1)
            told = [(cell.k, 100 * (cell.epsilon / cell.predicted - 1)) for cell in own if cell.predicted]
            if told:
                right.plot(*zip(*told), color=color, marker="o", markersize=4, linewidth=0.8)
            known = [(cell.k, cell.published) for cell in own if cell.published is not None]
            if known:
                left.plot(*zip(*known), "o", color=_PUBLISHED, markersize=6.5, fillstyle="none")
            handles.append(Line2D([], [], color=color, marker="o", markersize=4, label=f"d = {d:,}"))
        if any(cell.published is not None for cell in shown):
            handles.append(_open_dot("published"))
        right.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        for axes in (left, right):
            axes.set(xscale="log", xlabel="k (log)")
            plain_log_axis(axes)
        left.set(ylabel="coherence ε", title="Best of random draws; lines: predicted, nothing fitted")
        left.set_ylim(bottom=0)
        right.set(ylabel="measured against predicted, %", title="Difference")
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def history_figure(histories: Sequence[DescentHistory]) -> Figure | None:
    """Draw smooth maximum and coherence against the step, a panel for each history, and the bound below them."""
    if not histories:
        return None
    columns = min(3, len(histories))
    rows = -(-len(histories) // columns)
    with style():
        figure = new_figure(3.3 * columns + 0.4, 2.5 * rows + 0.8)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(histories) :]:
            axes.set_axis_off()
        for axes, history in zip(panels.flat, histories):
            axes.plot(history.step, history.coherence, color="#88CCEE", linewidth=0.8)
            axes.plot(history.step, np.minimum.accumulate(history.coherence), color=INK, linewidth=1.2)
            axes.plot(history.step, history.smooth_maximum, color="#AA4499", linewidth=1)
            axes.axhline(history.bound, color=GREY, linestyle="--", linewidth=1)
            late = history.coherence[len(history.step) // 50 :]
            gap = max(float(late.max()) - history.bound, 1e-6)
            axes.set_ylim(history.bound - 0.08 * gap, history.bound + 1.08 * gap)
            axes.set_title(f"{history.title}   (p: {history.p[0]:,.0f} to {history.p[-1]:,.0f})", fontsize=8.5)
            axes.set_xlabel("step")
        for row in panels:
            row[0].set_ylabel("coherence")
        handles = [
            Line2D([], [], color="#88CCEE", label="coherence of the step"),
            Line2D([], [], color=INK, label="best so far"),
            Line2D([], [], color="#AA4499", label="smooth maximum"),
            Line2D([], [], color=GREY, linestyle="--", label="bound"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=4)
    return figure


def _open_dot(label: str, color: str = _PUBLISHED) -> Line2D:
    return Line2D([], [], color=color, marker="o", markersize=5, fillstyle="none", linestyle="none", label=label)
