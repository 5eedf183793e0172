"""Table, figures and report of a study of toy models, from what its workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.phase_figures import phase_figure
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, write_table
from repcap_jax.reports.toy_data import ToyCell, ToyStudy, read_study
from repcap_jax.reports.toy_figures import (
    coherence_figure,
    dimensionality_figure,
    gram_figure,
    loss_figure,
    vector_figure,
)
from repcap_jax.reports.workdir import Workdir

_TITLE = "Superposition in toy models"
_CAPTION = "Toy models at each sparsity S: the best seed of each importance decay."


def write_toy_report(workdir: Workdir) -> Path:
    """Write `toy_table`, all figures and `report.html`.

    Args:
      workdir: of the study; call it again whenever there is more to draw.
    Returns:
      The path of report.html.
    """
    study = read_study(workdir)
    if not study.geometry and not study.phases:
        study.warnings.append("No cell has finished, so there is nothing to show.")
        return write_report(workdir, _TITLE, [], study.warnings)
    relu = study.of("relu")
    figures = {
        "features": (
            [gram_figure(relu)],
            "WᵀW of the best seed, features ordered by cluster, and their norms below, coloured by interference.",
        ),
        "vectors": ([vector_figure(relu)], "The feature vectors W_i of the best seed."),
        "dimensionality": (
            [dimensionality_figure(study)],
            "Features per dimension, and the share of a dimension that each feature has, beside ideal polytopes.",
        ),
        "loss": ([loss_figure(study)], "Loss in units of the linear model's closed form."),
        "coherence": (
            [coherence_figure(study)],
            "From toy to theory: coherence of the learned directions against dimensions per feature, and their largest "
            "cosine beside that of the best spherical code found for as many vectors.",
        ),
    }
    images = {name: save_pages(workdir, pages, name, caption) for name, (pages, caption) in figures.items()}
    phases = [
        image
        for m, cells in sorted(study.phases.items())
        for image in save_pages(
            workdir, [phase_figure(cells)], f"phases_m_{m}", f"Phases of {m + 1} features in R^{m}."
        )
    ]
    tables = [_table(workdir, study)] if study.geometry else []
    sections = [
        Section("Features and shapes", images=[*images["features"], *images["vectors"], *images["dimensionality"]]),
        Section("Against theory", images=[*images["loss"], *images["coherence"], *phases]),
        Section("Cells", tables=tables),
    ]
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables], study.warnings)


def _table(workdir: Workdir, study: ToyStudy) -> Table:
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("output", "activation"),
        Column("S", "sparsity", "g", "$S$", **right),
        Column("decay", "decay", "g", **right),
        Column("loss", "loss", ".5f", **right),
        Column("linear optimum", "optimum", ".5f", **right),
        Column("features per dimension", "features_per_dimension", ".2f", **right),
        Column("represented", "represented", ".0%", **right),
        Column("superposed", "superposed", ".0%", **right),
        Column("ε", "coherence", ".3f", **right),
        Column("ε packed", "packed", ".3f", **right),
        Column("shapes", "shapes"),
    ]
    rows = [row for cell in study.geometry for row in _rows(cell, study)]
    notes = [
        "Represented: |W_i| of 0.5 or more. Superposed: represented, with interference of 0.1 or more.",
        "ε: largest |cos| between represented features; ε packed: what repcap_jax.pack reaches for as many lines.",
        "A linear model of equal importance may rotate freely: its features per dimension count, not its norms.",
    ]
    if any(not cell.record["linear"]["exact"] for cell in study.geometry):
        notes.append("Linear optimum: a lower bound where importance and covariance do not commute.")
    return write_table(workdir, "toy_table", rows, columns, _CAPTION, notes)


def _rows(cell: ToyCell, study: ToyStudy) -> Sequence[Row]:
    record, rows = cell.record, []
    losses = record["linear"].get("loss", record["loss"])
    for which, decay in enumerate(record["importances"]):
        shapes = cell.shapes(which)
        names = sorted(set(shapes), key=lambda name: (-shapes.count(name), name))
        stored = int(np.asarray(cell.best("represented", which)).sum())
        packing = study.packings.get((stored, record["m"]))
        measures = {name: values[which] for name, values in record["measures"].items() if isinstance(values, list)}
        rows.append(
            {
                **measures,
                "activation": record["activation"],
                "sparsity": record["sparsity"],
                "decay": decay,
                "loss": losses[which],
                "optimum": record["linear"]["optimum"][which],
                "packed": packing["lines"]["coherence"] if packing else 0.0 if 1 < stored <= record["m"] else None,
                "shapes": ", ".join(f"{shapes.count(name)} {name}" for name in names),
            }
        )
    return rows
