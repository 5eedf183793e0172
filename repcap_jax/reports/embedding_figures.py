"""Distributions of cosine similarity: all models together, the right tail of each, embedding against unembedding.

Every function takes models read by `embedding_data.read_results` and returns figures; models without a histogram are
passed over, and where none is left the answer is None or an empty list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from repcap_jax.capacity.isotropic import IsotropicReference
from repcap_jax.reports.embedding_data import Counts, ModelResult, with_histogram
from repcap_jax.reports.style import FAINT, GREY, INK, model_styles, new_figure, plain, short_name, style

PANELS_PER_PAGE = 12
PAIRS_PER_PAGE = 4
_LEGEND_BELOW = 3  # models; the legend of more stands beside the axes
_MEASURED, _OTHER, _ABOVE = "#332288", "#CC6677", "#DDCC77"
_COSINE, _DENSITY = "cosine similarity of two rows", "probability density"


def overview_figure(results: Sequence[ModelResult], matrix: str = "embedding") -> Figure | None:
    """Draw the cosine distributions of all models in one axes.

    Args:
      results: models in the order of the legend.
      matrix: "embedding" or "unembedding".
    Returns:
      The figure, or None if no model has a histogram of this matrix.
    """
    shown = with_histogram(results, matrix)
    if not shown:
        return None
    with style():
        wide = len(shown) > _LEGEND_BELOW
        figure = new_figure(10.5 if wide else 7.2, max(4.8, 1.0 + 0.152 * len(shown)))
        axes = figure.add_subplot()
        drawn = [_display(result, matrix) for result in shown]
        for (color, dashes), counts in zip(model_styles([r.family for r in shown]), drawn, strict=True):
            axes.plot(*counts.density(), color=color, linestyle=dashes)
        ends = [counts.support(1e-4) for counts in drawn]
        _limit(axes, min(low for low, _ in ends), max(high for _, high in ends))
        axes.set_ylim(bottom=0)
        axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
        axes.set(xlabel=_COSINE, ylabel=_DENSITY, title=f"Cosine similarity of all pairs of {matrix} rows")
        _legend_table(figure, axes, shown, matrix)
    return figure


def tail_figures(results: Sequence[ModelResult], matrix: str = "embedding") -> list[Figure]:
    """Draw, on a log axis, the right shift and the right tail of each model against an isotropic Gaussian matrix.

    Args:
      results: models, one panel each.
      matrix: "embedding" or "unembedding".
    Returns:
      Pages of at most 12 panels.
    """
    shown = with_histogram(results, matrix)
    return [
        _tail_page(shown[start : start + PANELS_PER_PAGE], matrix) for start in range(0, len(shown), PANELS_PER_PAGE)
    ]


def comparison_figures(results: Sequence[ModelResult]) -> list[Figure]:
    """Draw embedding against unembedding for each untied model, and the cosines of their corresponding rows.

    Returns:
      Pages of at most four models.
    """
    shown = [r for r in with_histogram(results, "embedding") if "unembedding" in r.histograms]
    return [_comparison_page(shown[start : start + PAIRS_PER_PAGE]) for start in range(0, len(shown), PAIRS_PER_PAGE)]


def _display(result: ModelResult, matrix: str) -> Counts:
    """The histogram with bins as wide as the eye can use: an eighth of sigma."""
    counts, std = result.histograms[matrix], result.distribution(matrix)["std"]
    wanted = std / 8 / (counts.edges[1] - counts.edges[0])
    fitting = [factor for factor in (1, 2, 4, 5, 8, 10, 20, 25, 40) if factor <= wanted]
    return counts.coarser(fitting[-1] if fitting else 1)


def _limit(axes: Axes, low: float, high: float) -> None:
    margin = 0.04 * max(high - low, 0.02)
    axes.set_xlim(max(low - margin, -1.005), min(high + margin, 1.005))


def _legend_table(figure: Figure, axes: Axes, shown: Sequence[ModelResult], matrix: str) -> None:
    """A legend outside the axes whose entries line up as a table of mu, sigma and epsilon."""
    names = [short_name(result.name, 28) for result in shown]
    width = max(len("model"), *map(len, names))
    rows = []
    for name, result in zip(names, shown, strict=True):
        numbers = result.distribution(matrix)
        values = "".join(f" {numbers[key]:7.4f}" for key in ("mean", "std", "epsilon"))
        rows.append(plain(name.ljust(width) + values))
    # The heading is an entry of its own, so that it lines up with the others.
    heading = "model".ljust(width) + "".join(f" {letter:>7}" for letter in "μσε")
    legend = figure.legend(
        [Line2D([], [], linestyle="none"), *axes.get_lines()[: len(rows)]],
        [heading, *rows],
        loc="outside lower center" if len(rows) <= _LEGEND_BELOW else "outside right upper",
        prop={"family": "DejaVu Sans Mono", "size": 7},
        handlelength=3,
        labelspacing=0.35,
    )
    legend.get_texts()[0].set_weight("bold")


def _tail_page(shown: Sequence[ModelResult], matrix: str) -> Figure:
    columns = min(len(shown), 3)
    lines = math.ceil(len(shown) / columns)
    with style():
        figure = new_figure(7.2 if columns == 1 else 4.0 * columns, 4.6 if columns == 1 else 0.7 + 2.75 * lines)
        for place, result in enumerate(shown):
            axes = figure.add_subplot(lines, columns, place + 1)
            _tail_panel(axes, result, matrix)
            if place % columns == 0:
                axes.set_ylabel(f"{_DENSITY} (log)")
            if place >= len(shown) - columns:
                axes.set_xlabel(_COSINE)
        figure.legend(
            handles=[
                Line2D([], [], color=_MEASURED, label=f"{matrix} rows"),
                Line2D([], [], color=GREY, linestyle="--", label="isotropic Gaussian of the same d"),
                Line2D([], [], color=INK, linewidth=1, label="ε = μ + 2σ"),
                Patch(color=_ABOVE, alpha=0.45, linewidth=0, label="above ε"),
            ],
            loc="outside lower center",
            ncols=4,
        )
    return figure


def _tail_panel(axes: Axes, result: ModelResult, matrix: str) -> None:
    numbers, counts = result.distribution(matrix), _display(result, matrix)
    epsilon, d = numbers["epsilon"], numbers["d_model"]
    left = min(numbers["mean"] - 2 * numbers["std"], -2 / math.sqrt(d))  # the reference in view, and so the shift
    largest = (numbers.get("largest") or {}).get("cosine")
    right = counts.support()[1] if largest is None else largest
    axes.set_yscale("log")
    one_pair = 1 / (counts.counts.sum() * (counts.edges[1] - counts.edges[0]))
    x, density = counts.density()
    density = np.maximum(density, one_pair / 10)  # a log axis has no zero: empty bins fall below its lower end
    axes.plot(x, density, color=_MEASURED)
    above = np.append(epsilon, x[x > epsilon])
    axes.fill_between(above, np.interp(above, x, density), one_pair / 10, color=_ABOVE, alpha=0.45, linewidth=0)
    _limit(axes, left, right)
    grid = np.linspace(*axes.get_xlim(), 800)
    reference = np.maximum(IsotropicReference(numbers["n_rows"], d).density(grid), one_pair / 10)
    axes.plot(grid, reference, color=GREY, linestyle="--", linewidth=1.1)
    axes.set_ylim(one_pair / 2, 8 * max(density.max(), reference.max()))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    _mark_epsilon(axes, epsilon)
    share = numbers.get("share_above_epsilon")
    detail = f"d = {d:,}   μ = {numbers['mean']:.4f}   σ = {numbers['std']:.4f}"
    detail += "" if share is None else f"   {100 * share:.2g} % above ε"
    axes.set_title(plain(short_name(result.name, 40)), pad=17)
    _subtitle(axes, detail)


def _mark_epsilon(axes: Axes, epsilon: float) -> None:
    """A line at epsilon with its value beside it, on the side that has room."""
    low, high = axes.get_xlim()
    on_left = epsilon > low + 0.72 * (high - low)
    axes.axvline(epsilon, color=INK, linewidth=1)
    axes.annotate(
        f"ε = {epsilon:.4f}",
        (epsilon, 1),
        (-4 if on_left else 4, -3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if on_left else "left",
        va="top",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )


def _comparison_page(shown: Sequence[ModelResult]) -> Figure:
    with style():
        figure = new_figure(9.6, 0.6 + 2.7 * len(shown))
        grid = figure.add_gridspec(len(shown), 2, width_ratios=(1.25, 1))
        for row, result in enumerate(shown):
            left, right = figure.add_subplot(grid[row, 0]), figure.add_subplot(grid[row, 1])
            _both_matrices(left, result)
            _corresponding_rows(right, result)
            if row == len(shown) - 1:
                left.set_xlabel(_COSINE)
                right.set_xlabel("cosine of a token's two rows")
        figure.legend(
            handles=[
                Line2D([], [], color=_MEASURED, label="embedding"),
                Line2D([], [], color=_OTHER, linestyle=(0, (5, 1.6)), label="unembedding"),
                Line2D([], [], color=GREY, linewidth=0.9, linestyle=":", label="ε of each"),
            ],
            loc="outside lower center",
            ncols=3,
        )
    return figure


def _both_matrices(axes: Axes, result: ModelResult) -> None:
    looks: dict[str, Any] = {"embedding": (_MEASURED, "-"), "unembedding": (_OTHER, (0, (5, 1.6)))}
    ends, epsilons = [], []
    for matrix, (color, dashes) in looks.items():
        counts, epsilon = _display(result, matrix), result.distribution(matrix)["epsilon"]
        axes.plot(*counts.density(), color=color, linestyle=dashes)
        axes.axvline(epsilon, color=color, linewidth=0.9, linestyle=":")
        ends.append(counts.support(1e-4))
        epsilons.append(f"{matrix} {epsilon:.4f}")
    _limit(axes, min(low for low, _ in ends), max(high for _, high in ends))
    axes.set_ylim(bottom=0)
    axes.set_ylabel(_DENSITY)
    axes.set_title(plain(short_name(result.name, 44)), pad=17)
    _subtitle(axes, f"ε: {', '.join(epsilons)}")


def _corresponding_rows(axes: Axes, result: ModelResult) -> None:
    summary, counts = result.record.get("correspondence"), result.histograms.get("correspondence")
    if summary is None or counts is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "corresponding rows not compared", ha="center", color=GREY, transform=axes.transAxes)
        return
    while len(counts.counts) % 2 == 0 and (counts.edges[1] - counts.edges[0]) < summary["std"] / 6:
        counts = counts.coarser(2)
    axes.stairs(counts.counts, counts.edges, fill=True, color="#44AA99", alpha=0.75, linewidth=0)
    axes.axvline(summary["mean"], color=INK, linewidth=1)
    low, high = counts.support(5e-4)
    _limit(axes, min(low, 0.0), max(high, 0.0))
    axes.set_ylim(0, 1.06 * counts.counts.max())
    axes.set_ylabel("tokens per bin")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _subtitle(axes, f"{summary['n']:,} tokens   mean = {summary['mean']:.4f}   std = {summary['std']:.4f}")


def _subtitle(axes: Axes, text: str) -> None:
    """A line of numbers between the title and the axes."""
    place = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(text, (0, 1), (0, 5), **place, fontsize=7.5, color=GREY)
