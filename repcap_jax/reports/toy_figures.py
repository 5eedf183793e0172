"""Figures of toy models: how features share dimensions, in what shapes, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from repcap_jax.reports.style import GREY, INK, new_figure, style
from repcap_jax.reports.toy_data import ToyCell, ToyStudy, feature_order, spread

_COLORS = {"relu": "#332288", "linear": "#CC6677"}
_PANELS = 6
_MORE_THAN_ONE = 1.05  # features per dimension; below, directions rotate freely and norms say nothing
_LABEL_GAP = 0.032
# D_i of features in each shape, where lines help the eye.
_LINES = (
    (Fraction(1), "dedicated"),
    (Fraction(3, 4), "tetrahedron"),
    (Fraction(2, 3), "triangle"),
    (Fraction(1, 2), "antipodal pair"),
    (Fraction(2, 5), "pentagon"),
    (Fraction(3, 8), "square antiprism"),
    (Fraction(5, 16), "5-demicube"),
    (Fraction(1, 4), "icosahedron"),
)


def gram_figure(cells: Sequence[ToyCell], which: int = 0) -> Figure | None:
    """Draw W^T W of the best seed at up to six sparsities, with the features' norms below, coloured by interference.

    Args:
      cells: of one activation.
      which: place of the importance decay.
    Returns:
      The figure, or None without cells.
    """
    shown = spread(cells, _PANELS)
    if not shown:
        return None
    interference = Normalize(0, max(1.0, *(float(cell.best("interference", which).max()) for cell in shown)))
    with style():
        figure = new_figure(2.15 * len(shown) + 0.9, 4.0)
        grid = figure.add_gridspec(2, len(shown), height_ratios=(2, 1))
        upper = [figure.add_subplot(grid[0, column]) for column in range(len(shown))]
        lower = [figure.add_subplot(grid[1, column], sharex=upper[column]) for column in range(len(shown))]
        for place, (axes, bars, cell) in enumerate(zip(upper, lower, shown)):
            order = feature_order(cell, which)
            w = cell.best("weights", which)[:, order].astype(np.float64)
            image = axes.imshow(w.T @ w, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
            axes.set_title(f"S = {cell.sparsity:g}", fontsize=9)
            axes.set_yticks([])
            axes.tick_params(labelbottom=False, bottom=False)
            colors = matplotlib.colormaps["viridis"](interference(cell.best("interference", which)[order]))
            bars.bar(np.arange(len(order)), cell.best("norms", which)[order], color=colors, width=0.85)
            bars.axhline(1, color=GREY, linewidth=0.7, linestyle=":")
            bars.set(ylim=(0, 1.45), xticks=[], xlabel="feature")
            if place:
                bars.tick_params(labelleft=False)
        upper[0].set_ylabel("feature")
        lower[0].set_ylabel(r"norm $|W_i|$")
        figure.colorbar(image, ax=upper, label=r"$W_i \cdot W_j$", fraction=0.03, aspect=14)
        scale = matplotlib.cm.ScalarMappable(interference, "viridis")
        figure.colorbar(scale, ax=lower, label="interference", fraction=0.03, aspect=7)
    return figure


def dimensionality_figure(study: ToyStudy) -> Figure | None:
    """Draw features per dimension, and the D_i of every feature with the polytopes' lines, against 1/(1 - S).

    Returns:
      The figure, or None without cells.
    """
    if not study.geometry:
        return None
    with style():
        figure = new_figure(10.2, 4.6)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
        for activation, color in _COLORS.items():
            cells = study.of(activation)
            if not cells:
                continue
            x = [1 / cell.density for cell in cells]
            values = [cell.arrays["features_per_dimension"] for cell in cells]
            label = "ReLU output" if activation == "relu" else "linear"
            left.plot(x, [value.mean() for value in values], color=color, marker="o", markersize=4, label=label)
            left.fill_between(x, *zip(*((v.min(), v.max()) for v in values)), color=color, alpha=0.18, linewidth=0)
        n, m = study.geometry[0].record["n"], study.geometry[0].record["m"]
        left.axhline(1, color=GREY, linestyle="--", linewidth=0.9)
        note = {"fontsize": 7, "ha": "right", "va": "top", "color": GREY, "textcoords": "offset points"}
        where = {"xycoords": ("axes fraction", "data"), "xytext": (0, -3)}
        left.annotate("one feature per dimension", (0.98, 1), **where, **note)
        left.set(
            ylabel=r"features per dimension $\|W\|_F^2 / m$", title=f"n = {n}, m = {m}: mean and range of all seeds"
        )
        left.set_ylim(bottom=0)
        left.legend(loc="upper left")
        _dimensionality_panel(right, study.of("relu") or study.geometry)
        for axes in (left, right):
            density_axis(axes)
    return figure


def _dimensionality_panel(axes: Axes, cells: Sequence[ToyCell]) -> None:
    rng = np.random.default_rng(0)
    place = 2.0
    for fraction, name in _LINES:
        axes.axhline(float(fraction), color=GREY, linewidth=0.7, linestyle="--", zorder=0)
        place = min(float(fraction), place - _LABEL_GAP)  # labels of near lines move apart
        axes.annotate(
            f"{fraction} {name}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            fontsize=7,
            va="center",
            color=INK,
        )
    for cell in cells:
        stored = cell.arrays["represented"]
        values = cell.arrays["dimensionality"][stored]
        x = 1 / cell.density * np.exp(rng.uniform(-0.07, 0.07, len(values)))  # side by side, to see how many
        axes.scatter(x, values, s=4, color=_COLORS.get(cell.activation, INK), alpha=0.35, linewidths=0)
    axes.set(ylabel=r"dimensionality $D_i$", ylim=(0, 1.08), title="represented features, all seeds")


def density_axis(axes: Axes) -> None:
    """A logarithmic axis of 1/(1 - S) with plain numbers."""
    axes.set(xscale="log", xlabel="1 / (1 − S)  (log)")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def vector_figure(cells: Sequence[ToyCell], which: int = 0) -> Figure | None:
    """Draw the feature vectors of the best seed where m is 2 or 3, at up to six sparsities.

    Returns:
      The figure, or None without cells of m = 2 or 3.
    """
    shown = spread(cells, _PANELS)
    if not shown or shown[0].record["m"] not in (2, 3):
        return None
    m = shown[0].record["m"]
    reach = 1.1 * max(float(cell.best("norms", which).max()) for cell in shown)
    with style():
        figure = new_figure(2.3 * len(shown) + 0.3, 2.9)
        for place, cell in enumerate(shown, start=1):
            w = cell.best("weights", which).astype(np.float64)
            options = {"projection": "3d"} if m == 3 else {}
            axes = figure.add_subplot(1, len(shown), place, **options)
            colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, w.shape[1]))
            for vector, color in zip(w.T, colors):
                axes.plot(*([0, value] for value in vector), color=color, linewidth=1.3)
                axes.plot(*([value] for value in vector), color=color, marker="o", markersize=4)
            limits = {f"{axis}lim": (-reach, reach) for axis in "xyz"[:m]}
            axes.set(**limits, **{f"{axis}ticks": [] for axis in "xyz"[:m]})
            axes.set_aspect("equal")
            shapes = cell.shapes(which)
            told = ", ".join(_counted(shapes, name) for name in dict.fromkeys(shapes)) or "nothing stored"
            axes.set_title(f"S = {cell.sparsity:g}\n{_shortened(told)}", fontsize=8)
            if m == 2:
                axes.spines[["left", "bottom"]].set_color("#dddddd")
                axes.spines[["left", "bottom"]].set_position("zero")
    return figure


def _counted(shapes: Sequence[str], name: str) -> str:
    count = shapes.count(name)
    return f"{count} × {name}" if count > 1 else name


def _shortened(text: str, length: int = 34) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def loss_figure(study: ToyStudy) -> Figure | None:
    """Draw the loss against 1/(1 - S), in units of the linear model's closed form.

    Returns:
      The figure, or None where that form is 0 (m >= n).
    """
    cells = [cell for cell in study.geometry if min(cell.record["linear"]["optimum"]) > 0]
    if not cells:
        return None
    with style():
        figure = new_figure(5.6, 3.9)
        axes = figure.add_subplot()
        for activation, color in _COLORS.items():
            own = [cell for cell in cells if cell.activation == activation]
            if not own:
                continue
            x = [1 / cell.density for cell in own]
            y = [_loss(cell) / cell.record["linear"]["optimum"][0] for cell in own]
            label = "ReLU output, best seed" if activation == "relu" else "linear model, best seed (exact loss)"
            axes.plot(x, y, color=color, marker="o", markersize=4, label=label)
        axes.axhline(1, color=GREY, linestyle="--", linewidth=0.9, label="linear model, closed form")
        axes.set(ylabel="loss / closed form of the linear model", ylim=(0, None), title="What superposition gains")
        axes.legend(loc="lower left")
        density_axis(axes)
    return figure


def _loss(cell: ToyCell) -> float:
    """The exact loss where there is one, else the mean over samples."""
    return cell.record["linear"].get("loss", cell.record["loss"])[0]


def coherence_figure(study: ToyStudy) -> Figure | None:
    """Draw the coherence of learned features against D* = m / |W|_F^2, and beside what the packer reaches.

    Returns:
      The figure, or None where no ReLU model uses superposition.
    """
    cells = study.of("relu")
    points: list[tuple[float, ...]] = []
    for cell in cells:
        for place in range(len(cell.arrays["loss"])):
            stored = int(cell.arrays["represented"][place].sum())
            row = (cell.arrays["features_per_dimension"][place], stored, *_cosines(cell, place), 1 / cell.density)
            points += [row] if stored > 1 and row[0] > _MORE_THAN_ONE else []
    if not points:
        return None
    per_dimension, stored, coherence, cosine, x = np.array(points).T
    m = cells[0].record["m"]
    with style():
        figure = new_figure(9.6, 4.2)
        left, right = figure.subplots(1, 2)
        dots: dict[str, Any] = {"c": np.log10(x), "cmap": "viridis", "s": 14, "linewidths": 0, "alpha": 0.8}
        seen = left.scatter(1 / per_dimension, coherence, **dots)
        left.set(
            xlabel=r"$D^* = m / \|W\|_F^2$  (dimensions per feature)",
            ylabel="coherence ε: largest |cos|",
            ylim=(0, 1.02),
        )
        left.set_title("Models with more than one feature per dimension")
        shift = np.random.default_rng(0).uniform(-0.12, 0.12, len(stored))
        right.scatter(stored + shift, cosine, **dots)
        right.set(xlabel="features represented k", ylabel="largest cosine", title=f"Beside spherical codes in $R^{m}$")
        known = sorted((k, packing["codes"]) for (k, size), packing in study.packings.items() if size == m)
        if known:
            counts = [k for k, _ in known]
            reached = [code["coherence"] for _, code in known]
            right.plot(counts, reached, color="#CC6677", marker="s", markersize=4, label="pack, codes: best found")
            bounds = [code["bound"] for _, code in known]
            right.plot(counts, bounds, color=GREY, linestyle="--", linewidth=1, label="no arrangement is below")
        handles = right.get_legend_handles_labels()[0]
        dot = Line2D([], [], color="#21918c", marker="o", markersize=4, linestyle="none", label="learned, all seeds")
        right.legend(handles=[dot, *handles], loc="lower right")
        ticks = np.unique(np.round(x, 6))
        ticks = ticks[np.linspace(0, len(ticks) - 1, min(5, len(ticks))).round().astype(int)]
        bar = figure.colorbar(seen, ax=[left, right], label="1 / (1 − S)", fraction=0.03)
        bar.set_ticks(np.log10(ticks), labels=[f"{tick:.3g}" for tick in ticks])
    return figure


def _cosines(cell: ToyCell, place: int) -> tuple[float, float]:
    return float(cell.arrays["coherence"][place]), float(cell.arrays["largest_cosine"][place])
