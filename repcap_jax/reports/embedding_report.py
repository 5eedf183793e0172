"""Tables, figures and report of embedding geometry, from what a workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repcap_jax.reports.capacity_table import CAPTION, capacity_columns, capacity_notes, capacity_rows
from repcap_jax.reports.embedding_data import ModelResult, read_results, with_histogram
from repcap_jax.reports.embedding_figures import comparison_figures, overview_figure, tail_figures
from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import write_table
from repcap_jax.reports.width_figures import Published, capacity_figure, epsilon_figure
from repcap_jax.reports.workdir import Workdir

_TITLE = "Geometry of token embeddings"
_TAIL = (
    "The distribution on a log axis, from below its mean to its largest cosine, against an isotropic Gaussian matrix "
    "of the same width: how far it is shifted to the right, and how long its right tail is."
)


def write_embedding_report(
    workdir: Workdir, *, published: Sequence[Published] = (), published_source: str = "published models"
) -> Path:
    """Write `capacity_table`, all figures and `report.html` of an embedding experiment.

    Args:
      workdir: of the experiment, with the records to draw; call it again whenever there are more.
      published: points for the figure of epsilon against width.
      published_source: their name in its legend.
    Returns:
      The path of report.html.
    """
    results, warnings = read_results(workdir)
    sections = []
    if results:
        sections.append(_table_section(workdir, results))
        sections.append(_width_section(workdir, results, published, published_source))
        sections += [_distribution_section(workdir, results, matrix) for matrix in ("embedding", "unembedding")]
        sections.append(_comparison_section(workdir, results))
        warnings += _left_out(results)
    else:
        warnings.append("No model has finished, so there is nothing to show.")
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables], warnings)


def _table_section(workdir: Workdir, results: Sequence[ModelResult]) -> Section:
    rows = capacity_rows(result.record for result in results)
    table = write_table(workdir, "capacity_table", rows, capacity_columns(), CAPTION, capacity_notes(rows))
    remarks = [f"{result.name}: {note}" for result in results for note in result.record.get("notes", [])]
    return Section("Representational capacity", [*remarks, *_proven(results)], tables=[table])


def _proven(results: Sequence[ModelResult]) -> list[str]:
    """What is proven about the capacity of each matrix, in words."""
    return [
        f"{result.name}, {matrix}: {found['bracket']['summary']}"
        for result in results
        for matrix, found in result.record["matrices"].items()
        if found.get("bracket")
    ]


def _width_section(
    workdir: Workdir, results: Sequence[ModelResult], published: Sequence[Published], source: str
) -> Section:
    images = []
    for matrix in ("embedding", "unembedding"):
        suffix = "" if matrix == "embedding" else "_unembedding"
        points = published if matrix == "embedding" else ()  # what is published is about embeddings
        epsilon = epsilon_figure(results, matrix, points, source)
        images += save_pages(workdir, [epsilon], f"epsilon_by_width{suffix}", f"ε of {matrix} rows against d_model.")
        capacity = capacity_figure(results, matrix)
        caption = f"Capacity from {matrix} rows against d_model; bars reach from ε at 1.5 σ to ε at 3 σ."
        images += save_pages(workdir, [capacity], f"capacity_by_width{suffix}", caption)
    return Section("Across models", images=images)


def _distribution_section(workdir: Workdir, results: Sequence[ModelResult], matrix: str) -> Section:
    caption = f"Cosine similarity of all pairs of {matrix} rows."
    images = save_pages(workdir, [overview_figure(results, matrix)], f"similarity_{matrix}", caption)
    images += save_pages(
        workdir, tail_figures(results, matrix), f"similarity_{matrix}_tail", f"{matrix.title()}: {_TAIL}"
    )
    return Section(f"Distributions: {matrix}", images=images)


def _comparison_section(workdir: Workdir, results: Sequence[ModelResult]) -> Section:
    caption = "Left: cosines within each matrix. Right: cosine of each token's embedding row with its unembedding row."
    return Section(
        "Embedding against unembedding",
        images=save_pages(workdir, comparison_figures(results), "embedding_against_unembedding", caption),
    )


def _left_out(results: Sequence[ModelResult]) -> list[str]:
    """Say which figures could not be drawn, and why."""
    sentences = []
    for matrix in ("embedding", "unembedding"):
        drawn = {result.name for result in with_histogram(results, matrix)}
        bare = [r.name for r in results if r.distribution(matrix) and r.name not in drawn]
        if bare:
            sentences.append(
                f"Only moments were computed, so the figures of {matrix} distributions leave out {', '.join(bare)}."
            )
    estimates = [estimate for r in results for estimate in r.capacities()[1:2] or r.capacities()]
    if estimates and all(estimate["indeterminate"] for estimate in estimates):
        sentences.append("Every model is class 1: capacity is indeterminate, and is not drawn against width.")
    return sentences
