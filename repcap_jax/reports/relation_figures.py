"""Figures of token relations: primary tokens, named pairs, analogies, neighbours and opposites, in-degrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from repcap_jax.reports.relation_data import RelationResult
from repcap_jax.reports.style import FAINT, GREY, INK, model_styles, new_figure, plain, short_name, style
from repcap_jax.reports.token_text import drawable, joined

_MAIN, _OTHER, _THIRD, _ABOVE = "#332288", "#CC6677", "#117733", "#DDCC77"
_BLANK = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
_PRIMARIES, _ANSWERS, _QUESTIONS_PER_PAGE, _PAIRS_PER_PAGE = 24, 20, 4, 40


def primary_figure(result: RelationResult) -> Figure | None:
    """Draw the primary tokens of a model by in-degree, with the closest of their secondary tokens.

    Args:
      result: of one model.
    Returns:
      The figure, or None if it has no primary token.
    """
    shown = (result.record.get("primary") or {}).get("tokens", [])[:_PRIMARIES]
    if not shown:
        return None
    with style():
        figure = new_figure(9.6, 1.1 + 0.26 * len(shown))
        axes, beside = figure.subplots(1, 2, width_ratios=(1, 1.35), sharey=True)
        places = np.arange(len(shown))[::-1]
        axes.barh(places, [token["in_degree"] for token in shown], color=_MAIN, height=0.72)
        axes.set_yticks(places, [drawable(token["text"]) for token in shown])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set(xlabel="tokens whose nearest neighbour it is")
        axes.set_title(plain(f"Primary tokens of {short_name(result.name)}"))
        beside.set_axis_off()
        beside.set_title("closest secondary tokens", fontsize=8, color=GREY)
        for place, token in zip(places, shown):
            text = joined(token["secondary_texts"], 64)
            beside.annotate(f"{token['cosines'][0]:.2f}", (0, place), xycoords=("axes fraction", "data"),
                            va="center", fontsize=7.5, color=GREY)  # fmt: skip
            beside.annotate(text, (0.07, place), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    return figure


def in_degree_figure(results: Sequence[RelationResult]) -> Figure | None:
    """Draw how many tokens are the nearest neighbour of at least so many others, for all models.

    Returns:
      The figure, or None if no model has neighbours.
    """
    shown = [result for result in results if (result.record.get("primary") or {}).get("in_degrees")]
    if not shown:
        return None
    with style():
        figure = new_figure(6.4, 4.2)
        axes = figure.add_subplot()
        for (color, dashes), result in zip(model_styles([r.family for r in shown]), shown):
            degrees = np.array(result.record["primary"]["in_degrees"], np.int64)
            degrees = degrees[degrees[:, 0] > 0]
            at_least = np.cumsum(degrees[::-1, 1])[::-1]
            axes.step(degrees[:, 0], at_least, where="pre", color=color, linestyle=dashes,
                      label=plain(short_name(result.name)))  # fmt: skip
            axes.plot(degrees[-1:, 0], at_least[-1:], marker="o", markersize=3, color=color)
        tau = shown[0].record["primary"]["tau"]
        axes.axvline(tau, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(f"τ = {tau}", (tau, 1), (4, -3), xycoords=("data", "axes fraction"), textcoords="offset points",
                      va="top", fontsize=8, color=GREY)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="in-degree: tokens whose nearest neighbour it is")
        axes.set(ylabel="tokens with at least that in-degree", title="Nearest neighbours gather on few tokens")
        axes.legend(loc="upper right")
    return figure


def neighbour_figures(results: Sequence[RelationResult]) -> list[Figure]:
    """Draw the distributions of all cosines, of nearest and of most opposed ones, a page for each model."""
    return [_neighbour_page(result) for result in results if result.relations and result.histogram("all")]


def _neighbour_page(result: RelationResult) -> Figure:
    looks = {"all": ("all pairs", GREY, "-"), "nearest": ("nearest neighbour of each token", _MAIN, "-"),
             "opposed": ("most opposed token of each", _OTHER, (0, (5, 1.6)))}  # fmt: skip
    relations = result.relations or {}
    with style():
        figure = new_figure(7.2, 4.0)
        axes = figure.add_subplot()
        ends = []
        for name, (label, color, dashes) in looks.items():
            counts = result.histogram(name)
            if counts is None:
                continue
            while len(counts.counts) > 250 and len(counts.counts) % 2 == 0:
                counts = counts.coarser(2)
            axes.plot(*counts.density(), color=color, linestyle=dashes, label=label)
            ends.append(counts.support(1e-4))
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        axes.set_xlim(max(low - 0.03, -1.0), min(high + 0.03, 1.005))
        axes.set_ylim(bottom=0)
        _shade_above(axes, relations["epsilon"], vertical=True)
        axes.set(xlabel="cosine similarity", ylabel="probability density")
        axes.set_title(plain(f"Neighbours and opposites in {short_name(result.name)}"))
        axes.legend(loc="upper left")
    return figure


def pair_figures(result: RelationResult) -> list[Figure]:
    """Draw the cosines of named pairs with epsilon marked, pages of at most 40."""
    pairs = [pair for pair in result.record.get("pairs") or [] if pair["cosine"] is not None]
    pages = [pairs[start : start + _PAIRS_PER_PAGE] for start in range(0, len(pairs), _PAIRS_PER_PAGE)]
    return [_pair_page(result, page) for page in pages]


def _pair_page(result: RelationResult, pairs: Sequence[Mapping[str, Any]]) -> Figure:
    pairs = sorted(pairs, key=lambda pair: -pair["cosine"])
    with style():
        figure = new_figure(6.4, 1.2 + 0.25 * len(pairs))
        axes = figure.add_subplot()
        labels = [f"{drawable(pair['first'])} – {drawable(pair['second'])}" for pair in pairs]
        _bars(axes, labels, [pair["cosine"] for pair in pairs], [_MAIN] * len(pairs))
        _mark(axes, result)
        axes.set_title(plain(f"Named pairs in {short_name(result.name)}"))
    return figure


def analogy_figures(result: RelationResult) -> list[Figure]:
    """Draw the closest answers to the analogies asked by name, with epsilon marked; pages of at most four."""
    asked = [entry for entry in result.record.get("asked") or [] if entry["answers"]]
    pages = [asked[start : start + _QUESTIONS_PER_PAGE] for start in range(0, len(asked), _QUESTIONS_PER_PAGE)]
    return [_analogy_page(result, page) for page in pages]


def _analogy_page(result: RelationResult, asked: Sequence[Mapping[str, Any]]) -> Figure:
    columns = min(2, len(asked))
    lines = -(-len(asked) // columns)
    with style():
        figure = new_figure(4.8 * columns, 0.6 + lines * (0.9 + 0.2 * _ANSWERS))
        for place, entry in enumerate(asked):
            axes = figure.add_subplot(lines, columns, place + 1)
            cosines = entry["cosines"][:_ANSWERS]
            colors = [_THIRD if entry["rank"] == rank else _MAIN for rank in range(1, len(cosines) + 1)]
            _bars(axes, [drawable(text) for text in entry["answers"][:_ANSWERS]], cosines, colors)
            _mark(axes, result)
            axes.set_title(plain(entry["question"]))
        figure.suptitle(plain(f"Analogies in {short_name(result.name)}"), fontsize=10, x=0.01, ha="left")
        handles = [Patch(color=_MAIN, label="answer"), Patch(color=_THIRD, label="expected answer")]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def score_figure(results: Sequence[RelationResult]) -> Figure | None:
    """Draw accuracy at 1 and at 10 and the mean reciprocal rank of the built-in analogies, by relation and model.

    Returns:
      The figure, or None if no model was asked.
    """
    shown = [result for result in results if (result.record.get("analogies") or {}).get("scores")]
    if not shown:
        return None
    relations = list(dict.fromkeys(name for r in shown for name in r.record["analogies"]["scores"] if name != "all"))
    relations = [*relations, "all"]
    with style():
        figure = new_figure(9.0, 1.2 + (0.26 + 0.07 * len(shown)) * len(relations))
        for number, (key, title) in enumerate(
            (("accuracy_1", "accuracy at 1"), ("accuracy_10", "accuracy at 10"), ("reciprocal_rank", "reciprocal rank"))
        ):
            axes = figure.add_subplot(1, 3, number + 1)
            height = 0.8 / len(shown)
            for place, ((color, _), result) in enumerate(zip(model_styles([r.family for r in shown]), shown)):
                scores = result.record["analogies"]["scores"]
                values = [scores[name][key] if name in scores else np.nan for name in relations]
                rows = np.arange(len(relations))[::-1] + 0.4 - height * (place + 0.5)
                axes.barh(rows, values, height=0.9 * height, color=color, label=plain(short_name(result.name)))
            axes.set_yticks(np.arange(len(relations))[::-1], relations if number == 0 else [""] * len(relations))
            axes.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1), title=title)
            axes.set_xticklabels(["0", "", "0.5", "", "1"])
            axes.grid(axis="x", color=FAINT, linewidth=0.5)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(shown), 4))
    return figure


def _bars(axes: Axes, labels: Sequence[str], values: Sequence[float], colors: Sequence[str]) -> None:
    places = np.arange(len(labels))[::-1]
    axes.barh(places, values, color=list(colors), height=0.72)
    axes.set_yticks(places, list(labels))
    axes.set_ylim(-0.6, len(labels) - 0.4)
    low, high = min(0.0, *values), max(0.0, *values)
    axes.set_xlim(low - 0.02 * (low < 0), high + 0.12 * (high - low))
    for place, value in zip(places, values):
        axes.annotate(
            f"{value:.2f}", (max(value, 0), place), (3, 0), textcoords="offset points", va="center", fontsize=7
        )
    axes.set_xlabel("cosine similarity")


def _mark(axes: Axes, result: RelationResult) -> None:
    """Shade what lies above the model's epsilon."""
    if result.relations:
        low, high = axes.get_xlim()
        axes.set_xlim(low, max(high, result.relations["epsilon"] * 1.08))
        _shade_above(axes, result.relations["epsilon"], vertical=False)


def _shade_above(axes: Axes, epsilon: float, *, vertical: bool) -> None:
    low, high = axes.get_xlim()
    axes.axvspan(epsilon, high, color=_ABOVE, alpha=0.28, linewidth=0, zorder=0)
    axes.set_xlim(low, high)
    axes.axvline(epsilon, color=INK, linewidth=0.9, zorder=0.5)
    left = epsilon > low + 0.8 * (high - low)
    axes.annotate(
        f"ε = {epsilon:.3f}",
        (epsilon, 1 if vertical else 0),
        (-3 if left else 3, -3 if vertical else 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top" if vertical else "bottom",
        fontsize=7.5,
        bbox=_BLANK,
    )
