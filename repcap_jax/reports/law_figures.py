"""Figures of fitted laws: their surfaces over (k, d), and what they leave over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repcap_jax.capacity import LawFit, PackingGrid
from repcap_jax.reports.packing_figures import dimension_colors, plain_log_axis, round_numbers
from repcap_jax.reports.style import GREY, INK, new_figure, style

_COLUMNS = 3


def surface_figure(grid: PackingGrid, fits: Sequence[LawFit]) -> Figure | None:
    """Draw laws as surfaces epsilon(k, d) with the cells they were fitted to, side by side on the same axes.

    Args:
      grid: the cells; those with k > d are drawn, blue above the surface and red below it.
      fits: usually the JL law and the ratio law, the comparison of the paper.
    Returns:
      The figure, or None without cells with k > d.
    """
    above = grid.k > grid.d
    if not above.any() or not fits:
        return None
    k, d, epsilon = grid.k[above], grid.d[above], grid.epsilon[above]
    surface_k = np.geomspace(k.min(), k.max(), 40)
    surface_d = np.geomspace(d.min(), d.max(), 40)
    mesh_k, mesh_d = np.meshgrid(surface_k, surface_d)
    with style():
        figure = new_figure(5.2 * len(fits), 4.9)
        for place, fit in enumerate(fits, start=1):
            axes = figure.add_subplot(1, len(fits), place, projection="3d")
            heights = np.where(mesh_k > mesh_d, fit.law.epsilon(mesh_k, mesh_d), np.nan)
            axes.plot_surface(np.log10(mesh_k), np.log2(mesh_d), heights, cmap="Greys", alpha=0.55, linewidth=0)
            higher = epsilon > fit.law.epsilon(k, d)
            for chosen, color in ((higher, "#332288"), (~higher, "#CC6677")):
                axes.scatter(
                    np.log10(k[chosen]), np.log2(d[chosen]), epsilon[chosen], color=color, s=9, depthshade=False
                )
            axes.set(xlabel="k", ylabel="d", zlabel="ε", zlim=(0, 1.15 * epsilon.max()))
            ticks_k, ticks_d = round_numbers(k.min(), k.max()), np.unique(d)[:: -(-len(np.unique(d)) // 8)]
            axes.set_xticks(np.log10(ticks_k), [f"{tick:,.0f}" for tick in ticks_k])
            axes.set_yticks(np.log2(ticks_d), [f"{tick:,.0f}" for tick in ticks_d])
            axes.tick_params(labelsize=6.5, pad=0)
            axes.view_init(elev=24, azim=-52)
            axes.set_title(f"{fit.law.form}\nMAPE {100 * fit.above_d.mape:.1f} % on cells with k > d")
        handles = [
            Line2D([], [], color="#332288", marker="o", markersize=4, linestyle="none", label="cell above the law"),
            Line2D([], [], color="#CC6677", marker="o", markersize=4, linestyle="none", label="cell below it"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=2)
    return figure


def residual_figure(grid: PackingGrid, fits: Sequence[LawFit]) -> Figure | None:
    """Draw law / epsilon - 1 against k / d for cells with k > d, a panel for each law on one scale, coloured by d.

    Returns:
      The figure, or None without cells with k > d.
    """
    above = (grid.k > grid.d) & (grid.epsilon > 0)
    if not above.any() or not fits:
        return None
    k, d, epsilon = grid.k[above], grid.d[above], grid.epsilon[above]
    colors = dimension_colors([int(value) for value in d])
    columns = min(_COLUMNS, len(fits))
    rows = -(-len(fits) // columns)
    misfits = {fit.law.form: 100 * (fit.law.curve(np.log(k), d) / epsilon - 1) for fit in fits}
    # One law that fails must not flatten the others: it is cut off, and says so.
    ranges = sorted(float(np.abs(misfit).max()) for misfit in misfits.values())
    reach = 1.1 * min(ranges[-1], 1.5 * ranges[len(ranges) // 2])
    with style():
        figure = new_figure(3.3 * columns + 0.9, 2.7 * rows + 0.3)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in panels.flat[len(fits) :]:
            axes.set_axis_off()
        for axes, fit in zip(panels.flat, fits):
            misfit = misfits[fit.law.form]
            axes.axhline(0, color=GREY, linewidth=0.8, zorder=0)
            for value, color in colors.items():
                own = np.flatnonzero(d == value)
                own = own[np.argsort(k[own])]
                axes.plot(k[own] / value, misfit[own], color=color, marker="o", markersize=2.8, linewidth=0.7)
            axes.set(xscale="log", xlabel="k / d (log)", title=fit.law.form, ylim=(-reach, reach))
            axes.set_xlim((k / d).min() / 1.1, (k / d).max() * 1.1)
            plain_log_axis(axes)
            note = f"MAPE {100 * fit.above_d.mape:.2f} %"
            if hidden := int((np.abs(misfit) > reach).sum()):
                note += f"; {hidden} of {len(misfit)} cells beyond the axis"
            axes.annotate(note, (0.02, 0.03), xycoords="axes fraction", fontsize=7, color=INK)
        for row in panels:
            row[0].set_ylabel("law against cell, %")
        handles = [Line2D([], [], color=c, marker="o", markersize=4, label=f"d = {v:,}") for v, c in colors.items()]
        figure.legend(handles=handles, loc="outside right upper")
    return figure
