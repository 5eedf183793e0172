"""The phase diagram of a toy model's last feature: what training found beside what closed forms predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from repcap_jax.reports.style import new_figure, style
from repcap_jax.reports.toy_data import ToyCell

_COLORS = ("#dddddd", "#332288", "#CC6677")  # ignored, dedicated, antipodal
_LABELS = ("not represented", "a dimension to itself", "in superposition (antipodal)")
_TITLES = {
    "found": "Trained, best seed",
    "predicted": "Least of the plain closed forms",
    "predicted_optimal": "Least with the best weights and biases",
}


def phase_figure(cells: Sequence[ToyCell]) -> Figure | None:
    """Draw the phases over density and relative importance.

    Args:
      cells: of one m, one density each, with the same importances.
    Returns:
      The figure, or None with fewer than two densities.
    """
    if len(cells) < 2:
        return None
    densities = np.array([cell.density for cell in cells])
    importances = np.array(cells[0].record["importances"])
    with style():
        figure = new_figure(10.4, 3.9)
        panels = figure.subplots(1, 3, sharey=True)
        found = np.array([cell.record["phases"]["found"] for cell in cells])
        for axes, (name, title) in zip(panels, _TITLES.items()):
            phases = np.array([cell.record["phases"][name] for cell in cells])
            if name != "found":
                title += f"\n{(phases == found).mean():.0%} of the trained cells agree"
            _panel(axes, densities, importances, phases, title)
        panels[0].set_ylabel("importance of the last feature (log)")
        handles = [Patch(color=color, label=label) for color, label in zip(_COLORS, _LABELS)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        m = cells[0].record["m"]
        figure.suptitle(f"n = {m + 1}, m = {m}: what becomes of the last feature", x=0.01, ha="left", fontsize=10)
    return figure


def _panel(axes: Axes, densities: np.ndarray, importances: np.ndarray, phases: np.ndarray, title: str) -> None:
    axes.pcolormesh(
        _edges(densities), _edges(importances), phases.T, cmap=ListedColormap(_COLORS), vmin=-0.5, vmax=2.5, linewidth=0
    )
    axes.set(xscale="log", yscale="log", xlabel="density 1 − S (log)")
    axes.set_xlim(_edges(densities)[0], _edges(densities)[-1])  # dense first, as in the paper
    axes.set_title(title, fontsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders halfway, on the logarithm, between values that are geometric."""
    logs = np.log(values)
    steps = np.diff(logs) / 2
    return np.exp(np.concatenate([[logs[0] - steps[0]], logs[:-1] + steps, [logs[-1] + steps[-1]]]))
