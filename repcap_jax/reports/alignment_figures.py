"""Figures of layer alignment: z by layer with its sensitivity, removal curves, dark directions, spectral metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from repcap_jax.reports.alignment_data import ModelLayers, label
from repcap_jax.reports.style import FAINT, GREY, INK, model_styles, new_figure, plain, short_name, style

_ALIGNED = "#332288"
# name in the record, title, whether its axis is logarithmic
SPECTRAL = (
    ("rankme", "RankMe", False),
    ("alpha_req", "α-ReQ", False),
    ("participation_ratio", "participation ratio", True),
    ("condition_number", "condition number", True),
    ("log_isotropy", "ln isotropy, ln I(W)", False),
    ("average_cosine", "average cosine", False),
    ("readout_variance_share", "variance share in the readout", False),
)


def overview_figure(models: Sequence[ModelLayers]) -> Figure | None:
    """Draw z by layer of all models in one axes; bands reach over k in the sensitivity table at the score's m.

    Several models share an axis of relative depth. The final norm's output stands apart, as a hollow marker.

    Returns:
      The figure, or None without models.
    """
    if not models:
        return None
    alone = len(models) == 1
    with style():
        figure = new_figure(9.2, 4.6)
        axes = figure.add_subplot()
        handles = []
        for model, (color, dash) in zip(models, model_styles([m.family for m in models])):
            x = model.layers if alone else model.depth
            inner = ~model.normed
            low, high = model.band()
            axes.fill_between(x[inner], low[inner], high[inner], color=color, alpha=0.14, linewidth=0)
            z, error = model.score("z"), model.score("z_error")
            axes.errorbar(
                x[inner], z[inner], error[inner], color=color, linestyle=dash, elinewidth=0.7, marker="o", markersize=3
            )
            axes.plot(x[~inner], z[~inner], marker="D", color=color, fillstyle="none", linestyle="none", markersize=5)
            handles.append(Line2D([], [], color=color, linestyle=dash, label=plain(short_name(model.model))))
        _zero(axes)
        handles += [
            Line2D([], [], color=GREY, marker="D", fillstyle="none", linestyle="none", label="after the final norm"),
            Line2D([], [], color=FAINT, linewidth=6, label="over k, at the same m"),
        ]
        axes.set(ylabel="z", title=f"Alignment with the readout subspace, z by layer ({label(models)})")
        axes.set_xlabel("layer (0: embedding)" if alone else "layer / number of blocks")
        if alone:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def sensitivity_figures(models: Sequence[ModelLayers]) -> list[Figure]:
    """For each model: z by layer with its Monte-Carlo error, the effect beside the null's spread, z over k and m."""
    return [_sensitivity_figure(model) for model in models]


def _sensitivity_figure(model: ModelLayers) -> Figure:
    x, inner = model.layers, ~model.normed
    table = model.table()
    with style():
        figure = new_figure(9.2, 8.2)
        top, middle, bottom = figure.subplots(3, 1, height_ratios=(1.1, 1, 1.3), sharex=True)
        low, high = model.band()
        top.fill_between(x, low, high, color=_ALIGNED, alpha=0.14, linewidth=0, label="over k, at the same m")
        z, error = model.score("z"), model.score("z_error")
        top.errorbar(
            x, z, error, color=_ALIGNED, marker="o", markersize=3, elinewidth=0.8, label="z ± Monte-Carlo error"
        )
        _zero(top)
        top.set(ylabel="z", title=f"{plain(short_name(model.model))}: {label([model])}")
        effect, spread = model.score("effect"), model.score("null_std")
        middle.fill_between(x, -2 * spread, 2 * spread, color=FAINT, alpha=0.6, linewidth=0, label="null: ± 2 std")
        middle.plot(x, effect, color=INK, marker="o", markersize=3, label="ρ less the null's mean")
        _zero(middle)
        middle.set_ylabel("effect")
        for axes in (top, middle):
            axes.legend(loc="best", fontsize=7.5)
            if not inner.all():
                axes.axvline(x[inner].max() + 0.5, color=GREY, linewidth=0.8, linestyle=":")
        _heat_map(figure, bottom, model, table)
    return figure


def _heat_map(figure: Figure, axes: Axes, model: ModelLayers, table: np.ndarray) -> None:
    rows = [(m, k) for m in model.ms for k in model.ks]
    values = np.array([table[:, model.ms.index(m), model.ks.index(k)] for m, k in rows])
    # Linear up to 3, where z says something, so that a few layers far out do not bleach the others.
    reach = max(float(np.nanmax(np.abs(values))), 3.1)
    scale = SymLogNorm(3.0, vmin=-reach, vmax=reach)
    edges = np.append(model.layers - 0.5, model.layers[-1] + 0.5)
    image = axes.pcolormesh(edges, np.arange(len(rows) + 1), values, cmap="RdBu_r", norm=scale)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [f"m = {m}, k = {k}" for m, k in rows], fontsize=6.5)
    chosen = rows.index((model.m, model.k))
    axes.axhline(chosen, color=INK, linewidth=0.9)
    axes.axhline(chosen + 1, color=INK, linewidth=0.9)
    axes.invert_yaxis()
    axes.set(
        xlabel=_layer_label(model),
        title="z over m (directions removed) and k (subspace dimension); framed: shown above",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, label="z (linear to ± 3)", pad=0.01)
    ticks = [tick for tick in (1, 3, 10, 30, 100, 300) if tick <= reach]
    bar.set_ticks(_mirrored(ticks), labels=[f"{tick:+d}" if tick else "0" for tick in _mirrored(ticks)])
    bar.ax.minorticks_off()


def _mirrored(ticks: Sequence[int]) -> list[int]:
    return [-tick for tick in reversed(ticks)] + [0, *ticks]


def removal_figures(models: Sequence[ModelLayers]) -> list[Figure]:
    """For each model: z by layer for each number m of removed principal directions, at the score's k."""
    figures = []
    for model in models:
        table = model.table()[:, :, model.ks.index(model.k)]
        with style():
            figure = new_figure(8.2, 3.9)
            axes = figure.add_subplot()
            shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(model.ms)))
            for i, (m, color) in enumerate(zip(model.ms, shades)):
                axes.plot(model.layers, table[:, i], color=color, marker="o", markersize=3, label=f"CCR-{m}")
            _zero(axes)
            axes.set(xlabel=_layer_label(model), ylabel="z")
            axes.set_title(
                f"{plain(short_name(model.model))}: z with the top m principal directions removed, k = {model.k}"
            )
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            figure.legend(loc="outside right upper")
        figures.append(figure)
    return figures


def migration_figure(models: Sequence[ModelLayers]) -> Figure | None:
    """Draw how much of PC1 lies inside the readout subspace, and PC1's share of the variance, by layer.

    Where PC1 leaves the readout subspace while it holds most of the variance, the model stores it in directions that
    the unembedding hardly reads ("dark" directions). Dotted: k / d, what a random direction has inside.

    Returns:
      The figure, or None without models.
    """
    if not models:
        return None
    alone = len(models) == 1
    with style():
        figure = new_figure(9.6, 3.9)
        left, right = figure.subplots(1, 2)
        handles = []
        for model, (color, dash) in zip(models, model_styles([m.family for m in models])):
            x = model.layers if alone else model.depth
            inside, variance = model.spectral("pc1_readout_share"), model.spectral("pc1_variance_share")
            line: dict[str, Any] = {"color": color, "linestyle": dash, "marker": "o", "markersize": 3}
            left.plot(x, inside, **line)
            left.axhline(model.k / model.d_model, color=color, linewidth=0.9, linestyle=":")
            right.plot(x, variance, **line)
            handles.append(Line2D([], [], label=plain(short_name(model.model)), **line))
        left.set(ylabel="share of PC1's squared norm", title="PC1 inside the readout subspace (dotted: k / d)")
        right.set(ylabel="share of the variance", title="Variance along PC1")
        for axes in (left, right):
            axes.set_ylim(0, 1.02)
            axes.set_xlabel(_layer_label(models[0]) if alone else "layer / number of blocks")
            if alone:
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(handles=handles, loc="outside upper left", ncols=min(4, len(handles)))
    return figure


def spectral_figure(models: Sequence[ModelLayers]) -> Figure | None:
    """Draw z and every spectral metric by layer, a panel each.

    Returns:
      The figure, or None without models.
    """
    if not models:
        return None
    alone = len(models) == 1
    shown = [entry for entry in SPECTRAL if any(np.isfinite(model.spectral(entry[0])).any() for model in models)]
    columns = 4
    rows = -(-(len(shown) + 1) // columns)
    with style():
        figure = new_figure(2.7 * columns, 2.2 * rows + 0.6)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        handles = []
        for model, (color, dash) in zip(models, model_styles([m.family for m in models])):
            x = model.layers if alone else model.depth
            for axes, values in zip(panels, [model.score("z"), *(model.spectral(name) for name, _, _ in shown)]):
                axes.plot(x, values, color=color, linestyle=dash, linewidth=1.1)
            handles.append(Line2D([], [], color=color, linestyle=dash, label=plain(short_name(model.model))))
        for axes, (title, log) in zip(panels, [("z", False), *((title, log) for _, title, log in shown)]):
            axes.set_title(title, fontsize=9)
            if log:
                axes.set_yscale("log")
        for axes in panels[len(shown) + 1 :]:
            axes.set_axis_off()
        figure.supxlabel(_layer_label(models[0]) if alone else "layer / number of blocks", fontsize=9)
        figure.legend(handles=handles, loc="outside upper left", ncols=min(4, len(handles)))
    return figure


def _layer_label(model: ModelLayers) -> str:
    end = "; last: after the final norm" if model.normed.any() else ""
    return f"layer (0: embedding{end})"


def _zero(axes: Axes) -> None:
    axes.axhline(0, color=GREY, linewidth=0.7, zorder=0)
