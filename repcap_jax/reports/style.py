"""One look for every figure: fonts, a palette that colour-blind readers can tell apart, and how figures are saved."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from repcap_jax.reports.html import Image
from repcap_jax.reports.provenance import package_version
from repcap_jax.reports.strict_json import encoded
from repcap_jax.reports.workdir import Workdir

INK, GREY, FAINT = "#222222", "#777777", "#c8c8c8"
_DPI = 160

_STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "figure.facecolor": "white",
    "pdf.fonttype": 42,  # text stays text, and conferences refuse type 3; costs half a second a file
}

# Paul Tol's "muted" scheme, chosen to be told apart by colour-blind readers.
_PALETTE = ("#332288", "#CC6677", "#117733", "#88CCEE", "#AA4499", "#999933", "#44AA99", "#882255", "#DDCC77")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
# Families that are common enough to keep one colour in every figure that anyone makes.
_KNOWN = ("llama", "qwen", "gemma", "mistral", "phi", "deepseek", "gpt", "olmo", "glm")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
UNKNOWN_FAMILY = "other"


def family_group(model_type: str | None) -> str:
    """Return the family that a `model_type` belongs to, generations together: "qwen3_moe" is "qwen"."""
    if not model_type:
        return UNKNOWN_FAMILY
    head = re.split(r"[_.-][a-z]?\d|\d", model_type.lower())[0]
    return head.strip("_.- ") or model_type.lower()


def family_styles(families: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each family.

    Args:
      families: as `family_group` gives them.
    Returns:
      (colour, marker) by family. Well-known families always have the same; the others take the place that their name
      points at, or the next free one. Markers differ even where colours must repeat.
    """
    wanted = sorted(set(families))
    places = {family: _KNOWN.index(family) for family in wanted if family in _KNOWN}
    taken = Counter(place % len(_PALETTE) for place in places.values())
    for family in wanted:
        if family not in places:
            start = int(hashlib.sha256(encoded(family)).hexdigest(), 16)
            order = [(start + step) % len(_PALETTE) for step in range(len(_PALETTE))]
            slot = min(order, key=lambda place: taken[place])
            places[family] = slot + taken[slot] * len(_PALETTE)
            taken[slot] += 1
    return {f: (_PALETTE[p % len(_PALETTE)], _MARKERS[p % len(_MARKERS)]) for f, p in places.items()}


def model_styles(families: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return colour and line style for models, in their order: the family's colour in shades, and dashes in turn."""
    styles, sizes, seen = family_styles(families), Counter(families), Counter()
    result = []
    for family in families:
        number, seen[family] = seen[family], seen[family] + 1
        share = number / max(sizes[family] - 1, 1)
        # Families whose colour must repeat start with other dashes.
        first = sorted(f for f in styles if styles[f][0] == styles[family][0]).index(family)
        result.append((_shade(styles[family][0], share), DASHES[(number + 2 * first) % len(DASHES)]))
    return result


def _shade(color: str, share: float) -> tuple[float, float, float]:
    """From the colour itself (0) towards white (1), dark colours further than light ones."""
    red, green, blue = to_rgb(color)
    white = 0.6 * share * (1 - (0.3 * red + 0.59 * green + 0.11 * blue))
    return red + (1 - red) * white, green + (1 - green) * white, blue + (1 - blue) * white


@contextlib.contextmanager
def style() -> Any:
    """Apply the look inside a with block; matplotlib's own settings come back after it."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float | int, height: float | int) -> Figure:
    """Return an empty figure of a size in inches that is drawn without pyplot and without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(workdir: Workdir, figure: Figure, name: str) -> Path:
    """Write a figure as `<name>.png` and `<name>.pdf`.

    Args:
      workdir: where to.
      figure: the figure.
      name: file name without an ending.
    Returns:
      The path of the PNG file.
    """
    workdir.write_bytes(f"{name}.pdf", figure_bytes(figure, "pdf", name))
    return workdir.write_bytes(f"{name}.png", figure_bytes(figure, "png", name))


def save_pages(workdir: Workdir, figures: Sequence[Figure | None], name: str, caption: str) -> list[Image]:
    """Save those figures that there are, numbered where they are several, and remove pages of an earlier drawing.

    Args:
      workdir: where to.
      figures: pages of one drawing; `None` for one that could not be made.
      name: file name without an ending.
      caption: what they show.
    Returns:
      The images, for a report.
    """
    drawn = [figure for figure in figures if figure is not None]
    names = [name if len(drawn) == 1 else f"{name}_{page}" for page in range(1, len(drawn) + 1)]
    if workdir.writer:
        for old in workdir.root.glob(f"{name}*"):
            page = old.stem.removeprefix(name).lstrip("_")
            if old.suffix in (".png", ".pdf") and old.stem not in names and (page.isdigit() or not page):
                old.unlink()
    for figure, title in zip(drawn, names, strict=True):
        save_figure(workdir, figure, title)
    return [Image(title, caption) for title in names]


def figure_bytes(figure: Figure, kind: str, title: str) -> bytes:
    """Return a figure as a "png" or "pdf" file, the same bytes for the same figure."""
    program = f"repcap_jax {package_version('repcap_jax') or ''}".strip()
    metadata: dict[str, Any] = {"Title": title}
    metadata |= {"Creator": program, "CreationDate": None} if kind == "pdf" else {"Software": program}
    data = io.BytesIO()
    with style():
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # settled once, for every file: doing it again is slow and moves things
        figure.savefig(data, format=kind, dpi=_DPI, metadata=metadata)
    return data.getvalue()


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is: no mathematics in it, and not hidden from legends."""
    text = encoded(text).decode().replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def short_name(name: str, length: int = 30) -> str:
    """Return a model's name without its organisation, its middle left out where it is long."""
    name = name.rstrip("/").split("/")[-1] or name
    if len(name) <= length:
        return name
    head = (length - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"
