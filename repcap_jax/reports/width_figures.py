"""Epsilon and capacity of models against the width of their latent space."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from repcap_jax.capacity.estimate import NEAR_ORTHOGONAL_BELOW, NOT_ORTHOGONAL_ABOVE
from repcap_jax.reports.embedding_data import ModelResult
from repcap_jax.reports.labels import Point, place_labels
from repcap_jax.reports.style import GREY, INK, family_styles, new_figure, plain, short_name, style

_WIDTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_MOST_LABELS = 40  # more names than this do not help


class Published(NamedTuple):
    """One model of a published table."""

    name: str
    d_model: int
    epsilon: float


def read_published(path: str | os.PathLike[str]) -> list[Published]:
    """Read published points from a CSV file with the columns model, d_model and epsilon; lines with # are comments.

    Raises:
      ValueError: if the file cannot be read, a column is missing, or a number is none.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(line for line in file if line.strip() and not line.startswith("#")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot read the published points {path}: {error}") from error
    try:
        points = [Published(row["model"], int(row["d_model"]), float(row["epsilon"])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected columns model, d_model, epsilon with numbers in the last two ({error!r})"
        ) from error
    if bad := [p.name for p in points if not (p.d_model >= 1 and 0 < p.epsilon <= 3)]:
        raise ValueError(f"{path}: d_model must be positive and epsilon a cosine above 0; not so for {', '.join(bad)}")
    return points


def epsilon_figure(
    results: Sequence[ModelResult],
    matrix: str = "embedding",
    published: Sequence[Published] = (),
    published_source: str = "published",
) -> Figure | None:
    """Draw epsilon against d_model, coloured by family, with the two class bands and the isotropic reference.

    Needs the moments only, no histograms. Both axes are logarithmic, so that the crowd of class 2 can be read.

    Args:
      results: models.
      matrix: "embedding" or "unembedding".
      published: points drawn behind, as small grey markers.
      published_source: their name in the legend.
    Returns:
      The figure, or None if no model has this matrix with a positive epsilon.
    """
    shown = [r for r in results if (r.distribution(matrix) or {}).get("epsilon", 0) > 0]
    if not shown:
        return None
    points = [(r.d_model, r.distribution(matrix)["epsilon"]) for r in shown]
    behind = [(p.d_model, p.epsilon) for p in published]
    with style():
        figure = new_figure(9.6, 5.6)
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log")
        _width_axis(axes, [d for d, _ in points + behind])
        epsilons = [e for _, e in points + behind] + [2 / np.sqrt(max(d for d, _ in points + behind))]
        axes.set_ylim(min(0.7 * min(epsilons), 0.07), max(1.25 * max(epsilons), 0.4))
        _class_bands(axes)
        grid = np.geomspace(*axes.get_xlim(), 200)
        axes.plot(grid, 2 / np.sqrt(grid), color=GREY, linestyle="--", linewidth=1.1)
        if behind:
            axes.scatter(*zip(*behind, strict=True), s=11, color="#a8a8a8", linewidth=0, zorder=2)
        styles = family_styles(r.family for r in shown)
        _scatter(axes, shown, points, styles)
        handles = [*_family_handles(styles), Line2D([], [], color=GREY, linestyle="--", label="isotropic: 2/√d")]
        if behind:
            handles.append(_dot("#a8a8a8", "o", 3.5, published_source))
        figure.legend(handles=handles, loc="outside right upper")
        axes.yaxis.set_major_locator(FixedLocator(_EPSILONS))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(ylabel="ε = μ + 2σ", title=f"ε of {matrix} rows against width")
        _name_points(axes, shown, points, behind + list(zip(grid, 2 / np.sqrt(grid), strict=True)))
    return figure


def capacity_figure(results: Sequence[ModelResult], matrix: str = "embedding") -> Figure | None:
    """Draw capacity against d_model; bars reach from epsilon at 1.5 sigma to epsilon at 3 sigma.

    Indeterminate models (class 1) have no capacity: they stand hollow in a strip at the top.

    Returns:
      The figure, or None if no model of this matrix has a determinate capacity.
    """
    measured = [r for r in results if r.capacities(matrix)]
    solid = [r for r in measured if not _central(r, matrix)["indeterminate"]]
    hollow = [r for r in measured if _central(r, matrix)["indeterminate"]]
    if not solid:
        return None
    logs = np.array([[e["log10_capacity"] for e in _three(r.capacities(matrix))] for r in solid])
    bottom, top = logs.min() - 0.5, logs.max() + 0.5
    strip = 0.14 * (top - bottom)
    with style():
        figure = new_figure(9.6, 5.6)
        axes = figure.add_subplot()
        axes.set_xscale("log")
        shown = solid + hollow
        _width_axis(axes, [r.d_model for r in shown])
        axes.set_ylim(bottom, top + (strip if hollow else 0))
        styles = family_styles(r.family for r in shown)
        x = _side_by_side([r.d_model for r in solid])
        for place, result, (low, _, high) in zip(x, solid, logs, strict=True):
            axes.vlines(place, low, high, color=styles[result.family][0], linewidth=1.1, alpha=0.8)
        points = list(zip(x, logs[:, 1], strict=True))
        spots = [(place, top + 0.35 * strip) for place in _side_by_side([r.d_model for r in hollow])]
        _scatter(axes, solid, points, styles)
        if hollow:
            _indeterminate_strip(axes, top, strip)
            _scatter(axes, hollow, spots, styles, hollow=True)
        handles = [*_family_handles(styles), Line2D([], [], color=GREY, linewidth=1, label="ε from 1.5σ to 3σ")]
        figure.legend(handles=handles, loc="outside right upper")
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rf"$10^{{{value:g}}}$"))
        axes.set(ylabel="capacity: directions that fit at ε", title=f"Capacity from {matrix} rows against width")
        bars = [(place, y) for place, (low, _, high) in zip(x, logs, strict=True) for y in np.linspace(low, high, 80)]
        _name_points(axes, shown, points + spots, bars)
    return figure


def _three(estimates: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The estimates at 1.5, 2 and 3 sigma; one alone stands for all."""
    return estimates[0], estimates[len(estimates) // 2], estimates[-1]


def _side_by_side(widths: Sequence[int]) -> list[float]:
    """Places on a log axis where models of one width stand beside each other, in their order."""
    counts, seen, places = Counter(widths), Counter(), []
    for width in widths:
        places.append(width * 1.03 ** (seen[width] - (counts[width] - 1) / 2))
        seen[width] += 1
    return places


def _indeterminate_strip(axes: Axes, bottom: float | int, height: float | int) -> None:
    axes.axhspan(bottom, bottom + height, color="#f3f3f3", zorder=0, linewidth=0)
    axes.annotate(
        "class 1: capacity indeterminate",
        (1, bottom + height),
        (-4, -3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=7.5,
        color=GREY,
        ha="right",
        va="top",
    )


def _central(result: ModelResult, matrix: str) -> dict[str, Any]:
    estimates = result.capacities(matrix)
    return dict(estimates[len(estimates) // 2])


def _width_axis(axes: Axes, widths: Sequence[int]) -> None:
    axes.set_xlim(min(widths) / 1.35, max(widths) * 1.35)
    axes.xaxis.set_major_locator(FixedLocator(_WIDTHS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("d_model (log)")


def _class_bands(axes: Axes) -> None:
    bottom, top = axes.get_ylim()
    bands = (
        (bottom, NEAR_ORTHOGONAL_BELOW, "#e4f1e8", "class 2: near-orthogonal"),
        (NEAR_ORTHOGONAL_BELOW, NOT_ORTHOGONAL_ABOVE, "#fafafa", "between"),
        (NOT_ORTHOGONAL_ABOVE, top, "#f8e9e6", "class 1: not near-orthogonal"),
    )
    for low, high, color, name in bands:
        axes.axhspan(low, high, color=color, zorder=0, linewidth=0)
        axes.annotate(
            name,
            (1, high),
            (-4, -3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=7.5,
            color=GREY,
        )


def _scatter(
    axes: Axes,
    shown: Sequence[ModelResult],
    points: Sequence[Point],
    styles: dict[str, tuple[str, str]],
    hollow: bool = False,
) -> None:
    for (x, y), result in zip(points, shown, strict=True):
        color, marker = styles[result.family]
        # A white rim keeps points that lie on each other apart.
        face, edge = ("none", color) if hollow else (color, "white")
        size, rim = (66 if marker in "PX" else 46), (1.1 if hollow else 0.5)
        axes.scatter(x, y, s=size, marker=marker, facecolor=face, edgecolor=edge, linewidth=rim, zorder=3)


def _family_handles(styles: dict[str, tuple[str, str]]) -> list[Line2D]:
    return [_dot(*styles[family], 6, plain(family)) for family in sorted(styles)]


def _dot(color: str, marker: str, size: float | int, label: str) -> Line2D:
    return Line2D([], [], color=color, marker=marker, markersize=size, linestyle="none", label=label)


def _name_points(
    axes: Axes,
    shown: Sequence[ModelResult],
    points: Sequence[Point],
    obstacles: Sequence[Point],
) -> None:
    figure = axes.figure
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    names = [plain(short_name(r.name, 26)) for r in shown[:_MOST_LABELS]]
    left_out = place_labels(axes, points[:_MOST_LABELS], names, obstacles=obstacles, obstacle_boxes=boxes)
    unnamed = len(left_out) + max(len(shown) - _MOST_LABELS, 0)
    if unnamed:
        figure.text(0.995, 0.005, f"{unnamed} not named for want of room", ha="right", fontsize=6.5, color=INK)
