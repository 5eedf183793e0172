"""Labels beside points that do not cover each other, the points or the edge of the axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import BboxBase

# Distances in points, then directions in degrees, in the order in which they are tried: close by and right first,
# slanting where a leader is needed, since neighbours are often at the same height or width.
_DISTANCES = (6, 9, 14, 20, 28, 38, 50, 64, 80, 100, 125)
_NEAR = (0, 180, 30, -30, 90, -90, 150, -150, 60, -60, 120, -120)
_FAR = (45, -45, 135, -135, 25, -25, 155, -155, 70, -70, 110, -110, 90, -90, 10, -10, 170, -170)
_LEADER_FROM = 12  # points; a label further off is tied to its point by a thin line
_FAR_FROM = 28
_ATTEMPTS = 6
_POINT = 3.0  # half the width of a marker, in points


Point = tuple[float | int, float | int]


class _Place(NamedTuple):
    offset: tuple[float | int, float | int]  # of the label's middle from its point, in pixels
    box: np.ndarray  # of the label: left, bottom, right, top
    leader: np.ndarray  # points along the line to it, `(m, 2)`, none where the label is close by
    far: bool
    covers: bool = False  # something less important than points and labels


class _Taken:
    """What is on the axes already, in pixels: labels cover nothing, leaders cross neither labels nor points."""

    def __init__(
        self, inside: BboxBase, points: np.ndarray, obstacles: np.ndarray, boxes: Iterable[BboxBase], half: float | int
    ):
        self.inside, self.points, self.half = inside, points, half
        self.markers = np.hstack([points - half, points + half])
        self.obstacles = np.hstack([obstacles - half / 2, obstacles + half / 2])
        self.labels = np.array([box.extents for box in boxes]).reshape(-1, 4)
        self.leaders = np.empty((0, 2))

    def add(self, place: _Place) -> None:
        self.labels = np.vstack([self.labels, place.box])
        self.leaders = np.vstack([self.leaders, place.leader])

    def free(self, place: _Place, number: int, strict: bool) -> bool:
        """Whether point `number` may have its label there; obstacles may be covered if not `strict`."""
        left, bottom, right, top = place.box
        if left < self.inside.x0 or right > self.inside.x1 or bottom < self.inside.y0 or top > self.inside.y1:
            return False
        boxes = np.vstack([self.markers, self.labels, *([self.obstacles] if strict else [])])
        if np.any((boxes[:, 0] < right) & (boxes[:, 2] > left) & (boxes[:, 1] < top) & (boxes[:, 3] > bottom)):
            return False
        # A point that lies on this one cannot be crossed by its leader.
        apart = np.hypot(*(self.points - self.points[number]).T) > 2 * self.half
        crossed = np.vstack([self.labels, self.markers[apart]])
        if _any_inside(self.leaders, place.box[None]) or _any_inside(place.leader, crossed):
            return False
        gaps = np.hypot(*(place.leader[:, None] - self.leaders[None]).transpose(2, 0, 1))
        return not np.any(gaps < self.half / 2)


def place_labels(
    axes: Axes,
    points: Sequence[Point],
    texts: Sequence[str],
    *,
    size: float | int = 7,
    obstacles: Sequence[Point] = (),
    obstacle_boxes: Sequence[BboxBase] = (),
) -> list[str]:
    """Write a label beside each point, in the first free place around it.

    The layout of the figure is settled here: call this last, when limits, titles and legends are set.

    Args:
      axes: where to; its figure needs an Agg canvas.
      points: in data coordinates.
      texts: one for each point, as matplotlib will show them.
      size: of the letters, in points.
      obstacles: further points, in data coordinates, to keep clear of.
      obstacle_boxes: rectangles, in pixels, to keep clear of.
    Returns:
      The texts for which there was no room; they are not written.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # or the next drawing would move the axes from under the labels
    renderer, pixel = figure.canvas.get_renderer(), figure.dpi / 72
    centres, others = (axes.transData.transform(np.reshape(which, (-1, 2))) for which in (points, obstacles))
    notes = [
        axes.annotate(t, p, (0, 0), textcoords="offset points", fontsize=size, ha="center", va="center")
        for t, p in zip(texts, points, strict=True)
    ]
    extents = [note.get_window_extent(renderer) for note in notes]
    candidates = [list(_places(c, e.width, e.height, pixel)) for c, e in zip(centres, extents, strict=True)]
    inside, boxes = axes.get_window_extent(renderer), list(obstacle_boxes)
    plan = _plan(candidates, _crowded_first(centres), lambda: _Taken(inside, centres, others, boxes, _POINT * pixel))
    for number, note in enumerate(notes):
        if number not in plan:
            note.remove()
            continue
        place = plan[number]
        note.xyann = (float(place.offset[0] / pixel), float(place.offset[1] / pixel))
        if place.covers:
            note.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.65, "pad": 0.6})
        if len(place.leader):
            end = tuple((place.leader[-1] - centres[number]) / pixel)
            arrow = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
            axes.annotate("", points[number], end, textcoords="offset points", arrowprops=arrow, zorder=1.5)
    return [text for number, text in enumerate(texts) if number not in plan]


def _plan(candidates: Sequence[Sequence[_Place]], order: list[int], start: Callable[[], _Taken]) -> dict[int, _Place]:
    """A place for as many labels as possible: those that found none go first in the next attempt."""
    best: dict[int, _Place] = {}
    for _ in range(_ATTEMPTS):
        plan, taken = {}, start()
        for number in order:
            tries = [(place, strict) for strict in (True, False) for place in candidates[number]]
            tries.sort(key=lambda entry: entry[0].far)  # rather near and over a lesser thing than far away
            found = (p._replace(covers=not strict) for p, strict in tries if taken.free(p, number, strict))
            place = next(found, None)
            if place is not None:
                taken.add(place)
                plan[number] = place
        if not best or len(plan) > len(best):
            best = plan
        if len(plan) == len(order):
            break
        order = sorted(order, key=lambda number: number in plan)
    return best


def _crowded_first(centres: np.ndarray) -> list[int]:
    """Numbers of the points, those with close neighbours first: lonely ones have places left at the end."""
    distances = np.sort(np.hypot(*(centres[:, None] - centres[None]).transpose(2, 0, 1)), axis=1)
    return np.argsort(distances[:, :6].sum(axis=1), kind="stable").tolist()


def _places(centre: np.ndarray, width: float | int, height: float | int, pixel: float | int) -> Iterable[_Place]:
    for distance in _DISTANCES:
        for direction in _NEAR if distance < _LEADER_FROM else _FAR:
            x, y = round(math.cos(math.radians(direction)), 9), round(math.sin(math.radians(direction)), 9)
            # From the point outwards: the nearest edge of the label is `distance` away, whatever its width.
            dx = x * distance * pixel + np.sign(x) * width / 2 * min(1, 1.3 * abs(x))
            dy = y * distance * pixel + np.sign(y) * height / 2
            half = np.array([width / 2 + pixel, height / 2 + 0.4 * pixel])
            middle = centre + (dx, dy)
            leader = np.empty((0, 2))
            if distance >= _LEADER_FROM:
                leader = np.linspace(centre, np.clip(centre, middle - half, middle + half), 40)
            box = np.concatenate([middle - half, middle + half])
            yield _Place((dx, dy), box, leader, far=distance > _FAR_FROM)


def _any_inside(points: np.ndarray, boxes: np.ndarray) -> bool:
    x, y = points[:, 0, None], points[:, 1, None]
    return bool(np.any((x > boxes[:, 0]) & (x < boxes[:, 2]) & (y > boxes[:, 1]) & (y < boxes[:, 3])))
