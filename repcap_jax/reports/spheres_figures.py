"""Figures of points on spheres: the points with their convex hulls, energies by number of points, codes by exponent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection
from scipy.spatial import ConvexHull, QhullError

from repcap_jax.reports.style import GREY, INK, new_figure, style

Record = Mapping[str, Any]
_COLUMNS, _PANELS = 5, 15
_FLAT = 1e-3  # facets whose normals differ by less are parts of one face


def points_figures(cells: Sequence[tuple[Record, np.ndarray]]) -> list[Figure]:
    """Draw the points of R^3 with the faces of their convex hull, fifteen cells a page.

    Args:
      cells: (record, vectors) of cells; those of other dimensions are passed over.
    Returns:
      The pages; none without cells of d = 3 and k >= 4.
    """
    shown = [(record, rows) for record, rows in cells if rows.shape[1] == 3 and len(rows) >= 4]
    return [_points_page(shown[first : first + _PANELS]) for first in range(0, len(shown), _PANELS)]


def _points_page(shown: Sequence[tuple[Record, np.ndarray]]) -> Figure:
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with style():
        figure = new_figure(2.2 * columns, 2.45 * rows)
        for place, (record, vectors) in enumerate(shown, start=1):
            axes = figure.add_subplot(rows, columns, place, projection="3d")
            axes.set_axis_off()
            axes.set_box_aspect((1, 1, 1), zoom=1.3)
            axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
            vectors = upright(vectors)
            faces, edges = hull(vectors)
            axes.add_collection3d(Poly3DCollection(vectors[faces], facecolor="#88CCEE", alpha=0.28, linewidth=0))
            axes.add_collection3d(Line3DCollection(vectors[edges], color="#332288", linewidth=1))
            axes.scatter(*vectors.T, color=INK, s=9, depthshade=True)
            name = record["shape"] if record["shape"] != "none" else _coordination(record)
            kind = f"s = {record['s']:g}" if record["kind"] == "energy" else "code"
            axes.view_init(elev=14, azim=-68)
            axes.set_title(f"{record['k']} points, {kind}\n{name}", fontsize=7, loc="center", y=1.0)
    return figure


def upright(vectors: np.ndarray) -> np.ndarray:
    """The points turned so that their axis of symmetry, if their second moments tell one, is upright."""
    values, axes = np.linalg.eigh(vectors.T @ vectors)
    odd = 0 if values[1] - values[0] > values[2] - values[1] else 2
    return vectors @ np.roll(axes, 2 - odd, axis=1)


def hull(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The convex hull's triangles, and its edges without those inside a flat face, as point numbers."""
    try:
        found = ConvexHull(vectors)
    except QhullError:  # points in a plane
        return np.zeros((0, 3), int), np.zeros((0, 2), int)
    normals: dict[tuple[int, int], list[np.ndarray]] = {}
    for triangle, equation in zip(found.simplices, found.equations):
        for i, j in ((0, 1), (1, 2), (0, 2)):
            pair = tuple(sorted((int(triangle[i]), int(triangle[j]))))
            normals.setdefault(pair, []).append(equation[:3])
    edges = [pair for pair, sides in normals.items() if np.linalg.norm(sides[0] - sides[-1]) > _FLAT]
    return found.simplices, np.array(edges, int).reshape(-1, 2)


def _coordination(record: Record) -> str:
    """ "neighbours: 12 × 5, 20 × 6"."""
    counts = (record.get("symmetry") or {}).get("coordination")
    if not counts:
        return ""
    return "neighbours: " + ", ".join(f"{points} × {neighbours}" for neighbours, points in counts.items())


def energy_figure(records: Sequence[Record]) -> Figure | None:
    """Draw Thomson energies against k, beyond their leading term, and how many starts found the least.

    Args:
      records: of energy cells; those of d = 3 and s = 1 are drawn.
    Returns:
      The figure, or None with fewer than two of them.
    """
    shown = sorted(
        (r for r in records if r["d"] == 3 and r["s"] == 1 and r["energy"] is not None), key=lambda r: r["k"]
    )
    if len(shown) < 2:
        return None
    k = np.array([record["k"] for record in shown])
    energy = np.array([record["energy"] for record in shown])
    known = [(r["k"], (r["published"] - r["k"] ** 2 / 2) / r["k"] ** 1.5) for r in shown if r["published"] is not None]
    with style():
        figure = new_figure(9.6, 3.8)
        left, right = figure.subplots(1, 2)
        if known:
            ring = {"marker": "o", "markersize": 7, "fillstyle": "none", "linestyle": "none"}
            left.plot(*zip(*known), color="#CC6677", **ring, label="published")
        left.plot(k, (energy - k**2 / 2) / k**1.5, color=INK, marker="o", markersize=3, linewidth=0.8, label="found")
        left.axhline(-0.55305, color=GREY, linestyle="--", linewidth=0.9, label="conjectured limit, k → ∞")
        left.set(xlabel="points k", ylabel="(E − k²/2) / k^1.5", title="Thomson energy beyond its leading term")
        left.legend()
        share = [100 * record["found"] / record["starts"] for record in shown]
        right.bar(k, share, color="#88CCEE", width=0.8)
        right.set(xlabel="points k", ylabel="starts that found it, %", ylim=(0, 104), title="How often it was found")
        for axes in (left, right):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def exponent_figure(records: Sequence[Record]) -> Figure | None:
    """Draw the smallest angle against the exponent s, a line for each k: towards the best code as s grows.

    Returns:
      The figure, or None where no k has two exponents.
    """
    counts = sorted({record["k"] for record in records})
    lines = {k: sorted((r["s"], r["smallest_angle"]) for r in records if r["k"] == k) for k in counts}
    lines = {k: line for k, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    with style():
        figure = new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(lines)))
        for (k, line), color in zip(lines.items(), colors):
            axes.plot(*zip(*line), color=color, marker="o", markersize=4, label=f"k = {k}")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=-0.1)
        axes.set(xlabel="exponent s (linear to 1, then log)", ylabel="smallest angle, degrees")
        axes.set_title("From energies to codes")
        figure.legend(loc="outside right upper")
    return figure
