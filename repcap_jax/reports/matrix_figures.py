"""Figures of a model's matrices beside its neighbours: row lengths, embedding against unembedding, block 0, gains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from repcap_jax.reports.relation_data import RelationResult
from repcap_jax.reports.style import DASHES, GREY, INK, new_figure, plain, short_name, style

_MAIN, _OTHER, _THIRD = "#332288", "#CC6677", "#117733"
_SEEN = {"query": "#CC6677", "key": "#117733", "value": "#AA4499"}


def norm_figures(results: Sequence[RelationResult]) -> list[Figure]:
    """Draw the lengths of the rows and how they go with the token's id, a page for each model."""
    return [_norm_page(result) for result in results if result.histogram("norm") and "norm_by_id" in result.arrays]


def unembedding_figures(results: Sequence[RelationResult]) -> list[Figure]:
    """Draw the cosines of corresponding rows and of all rows of embedding and unembedding, a page for each model."""
    return [_unembedding_page(result) for result in results if result.histogram("own") and result.histogram("cross")]


def projection_figures(results: Sequence[RelationResult]) -> list[Figure]:
    """Draw the cosines of the tokens as block 0's queries, keys and values see them, a page for each model."""
    return [_projection_page(result) for result in results if any(result.histogram(part) for part in _SEEN)]


def gain_figures(results: Sequence[RelationResult]) -> list[Figure]:
    """Draw the gains of the norms by layer, mean and range, a page for each model."""
    return [_gain_page(result) for result in results if result.record.get("gains")]


def _norm_page(result: RelationResult) -> Figure:
    counts, arrays, numbers = result.histogram("norm"), result.arrays, result.record["norms"]
    with style():
        figure = new_figure(9.2, 3.6)
        left, right = figure.subplots(1, 2)
        left.stairs(counts.counts, counts.edges, fill=True, color=_MAIN, alpha=0.75)
        left.set(xlabel="length of a row", ylabel="tokens per bin", ylim=(0, None))
        left.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        left.set_title(plain(f"Row lengths of {short_name(result.name)}"))
        right.fill_between(arrays["norm_by_id"], arrays["norm_by_low"], arrays["norm_by_high"], color=_MAIN, alpha=0.2,
                           linewidth=0, label="5 % to 95 %")  # fmt: skip
        right.plot(arrays["norm_by_id"], arrays["norm_by_median"], color=_MAIN, label="median")
        right.set(xlabel="token id", ylabel="length of the row", ylim=(0, None))
        right.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        correlation = numbers["correlation_with_id"]
        rank = "" if correlation is None else f", Spearman {correlation:.2f}"
        right.set_title(f"By token id{rank}")
        right.legend(loc="lower right")
    return figure


def _unembedding_page(result: RelationResult) -> Figure:
    numbers = result.record["unembedding"]
    with style():
        figure = new_figure(7.2, 4.0)
        axes = figure.add_subplot()
        ends = []
        for name, label, color, dashes in (
            ("own", "a token's own two rows", _MAIN, "-"),
            ("cross", "any embedding row with any unembedding row", _OTHER, DASHES[1]),
            ("all", "two rows of the embedding", GREY, DASHES[2]),
        ):
            counts = result.histogram(name)
            if counts is None:
                continue
            while len(counts.counts) > 250 and len(counts.counts) % 2 == 0:
                counts = counts.coarser(2)
            axes.plot(*counts.density(), color=color, linestyle=dashes, label=label)
            ends.append(counts.support(1e-4))
        axes.set_xlim(min(low for low, _ in ends) - 0.03, min(1.005, max(high for _, high in ends) + 0.03))
        axes.set(ylim=(0, None), xlabel="cosine similarity", ylabel="probability density")
        share = numbers["own_is_nearest"]
        found = "" if share is None else f": {share:.1%} of the tokens find their own row first"
        axes.set_title(plain(f"Embedding against unembedding of {short_name(result.name)}{found}"))
        axes.legend(loc="upper right")
    return figure


def _projection_page(result: RelationResult) -> Figure:
    with style():
        figure = new_figure(7.2, 4.0)
        axes = figure.add_subplot()
        ends = []
        for place, (name, color) in enumerate({"all": GREY, **_SEEN}.items()):
            counts = result.histogram(name)
            if counts is None:
                continue
            while len(counts.counts) > 250 and len(counts.counts) % 2 == 0:
                counts = counts.coarser(2)
            label = "embedding itself" if name == "all" else f"seen by block 0's {name} projection"
            axes.plot(*counts.density(), color=color, linestyle=DASHES[place], label=label)
            ends.append(counts.support(1e-4))
        axes.set_xlim(max(-1.0, min(low for low, _ in ends) - 0.03), min(1.005, max(high for _, high in ends) + 0.03))
        axes.set(ylim=(0, None), xlabel="cosine similarity of two tokens", ylabel="probability density")
        axes.set_title(plain(f"What block 0 of {short_name(result.name)} sees of the tokens"))
        axes.legend()
    return figure


def _gain_page(result: RelationResult) -> Figure:
    gains = result.record["gains"]
    colors = (_MAIN, _OTHER, _THIRD, "#AA4499", "#44AA99", "#999933")
    with style():
        figure = new_figure(7.6, 1.0 + 2.3 * len(gains))
        for place, (norm, rows) in enumerate(gains.items()):
            axes = figure.add_subplot(len(gains), 1, place + 1)
            layers, color = np.arange(len(rows["mean"])), colors[place % len(colors)]
            mean, std = np.array(rows["mean"]), np.array(rows["std"])
            axes.fill_between(layers, rows["min"], rows["max"], color=color, alpha=0.12, linewidth=0, label="range")
            axes.fill_between(layers, mean - std, mean + std, color=color, alpha=0.3, linewidth=0, label="mean ± std")
            axes.plot(layers, mean, color=color, marker="o", markersize=2.5, label="mean")
            axes.axhline(0, color=INK, linewidth=0.5)
            axes.set(ylabel="gain", title=plain(norm))
            if place == len(gains) - 1:
                axes.set_xlabel("layer")
            if place == 0:
                axes.legend(loc="upper left", ncols=3)
        figure.suptitle(plain(f"Gains of the norms in {short_name(result.name)}"), fontsize=10, x=0.01, ha="left")
    return figure
