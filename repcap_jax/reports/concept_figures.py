"""Figures of linear concepts: pairs against random pairs, AUC, heat maps, measurement and intervention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from repcap_jax.reports.concept_data import PRODUCTS, ConceptResult
from repcap_jax.reports.style import FAINT, GREY, INK, new_figure, plain, short_name, style

_OWN, _RANDOM, _OTHER = "#332288", "#BBBBBB", "#CC6677"
_PANELS_PER_PAGE, _COLUMNS = 24, 4
_MAP, _DIVERGING = "magma_r", "RdBu_r"


def projection_figures(result: ConceptResult) -> list[Figure]:
    """Draw each concept's left-out pairs against random pairs, pages of at most 24 concepts.

    Args:
      result: of one model.
    Returns:
      The pages; none where the arrays are lost.
    """
    shown = [entry for entry in result.concepts() if f"causal/{entry['concept']}/counts" in result.arrays]
    pages = [shown[start : start + _PANELS_PER_PAGE] for start in range(0, len(shown), _PANELS_PER_PAGE)]
    return [_projection_page(result, page) for page in pages]


def _projection_page(result: ConceptResult, shown: Sequence[Mapping[str, Any]]) -> Figure:
    columns = min(_COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    with style():
        figure = new_figure(2.7 * columns, 0.9 + 1.45 * lines)
        for place, entry in enumerate(shown):
            axes = figure.add_subplot(lines, columns, place + 1)
            arrays = {
                kind: result.arrays[f"causal/{entry['concept']}/{kind}"] for kind in ("left_out", "counts", "edges")
            }
            counts, edges, own = arrays["counts"], arrays["edges"], arrays["left_out"]
            density = counts / (counts.sum() * np.diff(edges))
            axes.stairs(density, edges, fill=True, color=_RANDOM)
            below = np.cumsum(counts) / counts.sum()
            low = min(edges[np.searchsorted(below, 5e-4)], own.min())
            high = max(edges[min(np.searchsorted(below, 1 - 5e-4) + 1, len(counts))], own.max())
            bins = np.linspace(own.min(), own.max() + 1e-9, max(6, min(20, len(own) // 3)))
            axes.hist(own, bins=bins, density=True, histtype="step", color=_OWN, linewidth=1.1)
            axes.plot(own, np.full(len(own), -0.06 * density.max()), "|", color=_OWN, markersize=4, alpha=0.6)
            axes.axvline(0, color=INK, linewidth=0.5)
            axes.set(xlim=(low - 0.05 * (high - low), high + 0.05 * (high - low)), yticks=[])
            axes.spines["left"].set_visible(False)
            axes.tick_params(labelsize=7)
            axes.set_title(plain(entry["concept"]), fontsize=8, pad=12)
            auc = entry["separation"]["auc"]["value"]
            axes.annotate(f"{entry['n_pairs']} pairs   AUC {auc:.3f}", (0, 1), (0, 3), xycoords="axes fraction",
                          textcoords="offset points", fontsize=7, color=GREY)  # fmt: skip
        handles = [Patch(color=_RANDOM, label="random pairs"), Line2D([], [], color=_OWN, label="left-out pairs")]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        figure.suptitle(plain(f"Projection on the direction of the other pairs, causal inner product, "
                              f"{short_name(result.name)}"), fontsize=10, x=0.01, ha="left")  # fmt: skip
    return figure


def separation_figure(result: ConceptResult) -> Figure | None:
    """Draw AUC and effect size of every concept with intervals, causal against Euclidean.

    Returns:
      The figure, or None without concepts.
    """
    shown = result.concepts()
    if not shown:
        return None
    with style():
        figure = new_figure(9.0, 1.4 + 0.22 * len(shown))
        for number, (key, title) in enumerate(
            (("auc", "AUC against random pairs"), ("effect", "effect size (Cohen's d)"))
        ):
            axes = figure.add_subplot(1, 2, number + 1)
            for offset, product, color, marker in ((0.12, "causal", _OWN, "o"), (-0.12, "euclidean", _OTHER, "s")):
                entries = {entry["concept"]: entry["separation"][key] for entry in result.concepts(product)}
                for place, entry in enumerate(reversed(shown)):
                    if (found := entries.get(entry["concept"])) is not None:
                        axes.plot([found["low"], found["high"]], [place + offset] * 2, color=color, linewidth=1)
                        axes.plot(found["value"], place + offset, marker, color=color, markersize=3.5)
            names = [plain(entry["concept"]) for entry in reversed(shown)]
            axes.set_yticks(range(len(shown)), names if number == 0 else [""] * len(shown))
            axes.set_ylim(-0.6, len(shown) - 0.4)
            axes.grid(axis="y", color=FAINT, linewidth=0.4)
            axes.axvline(0.5 if key == "auc" else 0.0, color=INK, linewidth=0.8)
            axes.set_title(title)
        handles = [Line2D([], [], color=_OWN, marker="o", markersize=4, label="causal"),
                   Line2D([], [], color=_OTHER, marker="s", markersize=4, label="Euclidean")]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def heat_map_figure(result: ConceptResult) -> Figure | None:
    """Draw |cosine| of every two concepts under each inner product, concepts of one group side by side.

    Returns:
      The figure, or None without concepts.
    """
    maps = [found for found in map(result.heat_map, PRODUCTS) if found]
    if not maps:
        return None
    order = sorted(range(len(maps[0]["concepts"])), key=lambda i: (maps[0]["groups"][i], maps[0]["concepts"][i]))
    names, groups = ([maps[0][key][i] for i in order] for key in ("concepts", "groups"))
    with style():
        size = 1.0 + 0.15 * len(order)
        figure = new_figure(1.9 + 0.9 * size * len(maps), 1.2 + size)
        rows = figure.subplots(1, len(maps), squeeze=False)[0]
        for place, (axes, found) in enumerate(zip(rows, maps)):
            values = np.array(found["values"])[np.ix_(order, order)]
            image = axes.imshow(values, cmap=_MAP, vmin=0, vmax=1)
            _label(axes, names if place == 0 else None, names)
            _block_lines(axes, groups)
            mean = "" if found["off_block"] is None else f"off-block mean {found['off_block']:.3f}"
            axes.set_title(f"{found['product']}\n{mean}", fontsize=9)
        figure.colorbar(image, ax=list(rows), shrink=0.7, label="|cosine|")
    return figure


def measurement_figure(result: ConceptResult) -> Figure | None:
    """Draw how well each concept direction tells paired contexts apart, contexts by concepts.

    Returns:
      The figure, or None if no context was measured.
    """
    found = result.record.get("measurements") or []
    if not found:
        return None
    values = np.array([entry["auc"] for entry in found])
    title = f"AUC of contexts along each concept, {short_name(result.name)}"
    return _matrix_figure(values, [e["contexts"] for e in found], found[0]["concepts"], title,
                          ("contexts that differ in", "concept direction"), (0.0, 1.0), ".2f")  # fmt: skip


def isomorphism_figure(result: ConceptResult) -> Figure | None:
    """Draw the causal cosine of each contexts' carried direction with each concept direction.

    Returns:
      The figure, or None if no context was measured.
    """
    found = result.record.get("isomorphisms") or []
    if not found:
        return None
    values = np.array([entry["causal"] for entry in found])
    reach = max(0.05, float(np.abs(values).max()))
    title = (
        f"Embedding representation carried by Cov(γ), against unembedding representations, {short_name(result.name)}"
    )
    return _matrix_figure(values, [e["contexts"] for e in found], found[0]["concepts"], title,
                          ("contexts that differ in", "concept direction"), (-reach, reach), ".2f")  # fmt: skip


def intervention_figure(result: ConceptResult) -> Figure | None:
    """Draw how the log-odds of each concept's pairs change when each concept is added.

    Returns:
      The figure, or None if there was no intervention.
    """
    found = result.record.get("interventions") or []
    if not found:
        return None
    values = np.array([entry["mean"][-1] for entry in found])
    reach, alpha = float(np.abs(values).max()) or 1.0, found[0]["alphas"][-1]
    title = f"Mean change of log P(after) / P(before) at α = {alpha:g}, {short_name(result.name)}"
    return _matrix_figure(values, [e["concept"] for e in found], found[0]["measured"], title,
                          ("concept added", "word pairs measured"), (-reach, reach), ".1f")  # fmt: skip


def _matrix_figure(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    labels: tuple[str, str],
    limits: tuple[float, float],
    number: str,
) -> Figure:
    with style():
        figure = new_figure(2.4 + 0.34 * len(columns), 2.0 + 0.28 * len(rows))
        axes = figure.add_subplot()
        axes.imshow(values, cmap=_DIVERGING, vmin=limits[0], vmax=limits[1], aspect="auto")
        middle, reach = sum(limits) / 2, (limits[1] - limits[0]) / 2
        for i, j in np.ndindex(values.shape):
            dark = abs(values[i, j] - middle) > 0.65 * reach
            own = rows[i] == columns[j]
            look = {"fontsize": 6.5, "fontweight": "bold"} if own else {"fontsize": 5.5}
            text = _signless_zero(values[i, j], number)
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else INK, **look)
        _label(axes, rows, columns)
        axes.set(ylabel=labels[0], xlabel=labels[1])
        axes.set_title(plain(title))
    return figure


def _signless_zero(value: float, number: str) -> str:
    text = format(value, number)
    return text.lstrip("-") if not float(text) else text


def _label(axes: Axes, rows: Sequence[str] | None, columns: Sequence[str]) -> None:
    axes.set_xticks(range(len(columns)), [plain(name) for name in columns], rotation=90, fontsize=6.5)
    names = columns if rows is None else rows
    axes.set_yticks(range(len(names)), [""] * len(names) if rows is None else [plain(name) for name in names],
                    fontsize=6.5)  # fmt: skip
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _block_lines(axes: Axes, groups: Sequence[str]) -> None:
    """A frame around the concepts of each group."""
    starts = [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1]]
    for start, end in zip(starts, [*starts[1:], len(groups)]):
        low, high = start - 0.5, end - 0.5
        axes.plot([low, high, high, low, low], [low, low, high, high, low], color="#44AA99", linewidth=1)
