"""Table, figures and report of layer alignment, from what a workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repcap_jax.reports.alignment_data import ModelLayers, read_layers
from repcap_jax.reports.alignment_figures import (
    SPECTRAL,
    migration_figure,
    overview_figure,
    removal_figures,
    sensitivity_figures,
    spectral_figure,
)
from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "Alignment of layers with the readout subspace"
_CAPTION = (
    "Alignment of each layer with the readout subspace. ρ: Spearman's correlation of all pairs' cosine distances in "
    "the full space and in the subspace; z: ρ against random subspaces of the same dimension."
)
_DELICATE = (
    "The score is delicate: read z beside the effect ρ − null mean, the null's own spread, and how z moves with k and "
    "m. The Monte-Carlo error is that of a finite number of random subspaces; it does not cover the choice of text."
)


def write_alignment_report(workdir: Workdir) -> Path:
    """Write `layer_table`, all figures and `report.html` of a layer alignment experiment.

    Args:
      workdir: of the experiment, with the records to draw; call it again whenever there are more.
    Returns:
      The path of report.html.
    """
    models, warnings = read_layers(workdir)
    if not models:
        warnings.append("No layer has finished, so there is nothing to show.")
        return write_report(workdir, _TITLE, [], warnings)
    overview = save_pages(
        workdir, [overview_figure(models)], "z_by_layer", "z by layer; bands: over k in the sensitivity table."
    )
    sensitivity = save_pages(
        workdir, sensitivity_figures(models), "sensitivity", "z, effect and null's spread, and z over k and m."
    )
    removal = save_pages(workdir, removal_figures(models), "removal", "z with the top m principal directions removed.")
    migration = save_pages(workdir, [migration_figure(models)], "pc1_migration", "PC1 and the readout subspace.")
    spectral = save_pages(workdir, [spectral_figure(models)], "spectral", "Spectral metrics beside z.")
    sections = [
        Section("Alignment by layer", [_DELICATE, *_text_notes(models)], images=overview),
        Section("Sensitivity", images=[*sensitivity, *removal]),
        Section("Principal directions and spectra", images=[*migration, *spectral]),
        Section("Layers", tables=[layer_table(workdir, models)]),
    ]
    return write_report(workdir, _TITLE, sections, warnings)


def _text_notes(models: Sequence[ModelLayers]) -> list[str]:
    """Where the tokens of each model come from."""
    notes = dict.fromkeys(record.get("text_summary") or "" for model in models for record in model.records[:1])
    return [note for note in notes if note]


def layer_table(workdir: Workdir, models: Sequence[ModelLayers]) -> Table:
    """Write the table of all layers of all models, and return it for a report."""
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("model", "model"),
        Column("layer", "layer", **right),
        Column("state", "name"),
        Column("z", "z", "+.2f", "$z$", **right),
        Column("± (MC)", "z_error", ".2f", r"$\pm$ (MC)", **right),
        Column("ρ", "rho", ".4f", r"$\rho$", **right),
        Column("null mean", "null_mean", ".4f", **right),
        Column("null std", "null_std", ".4f", **right),
        Column("effect", "effect", "+.4f", **right),
        Column("p (two-sided)", "p_two_sided", ".3f", **right),
        Column("least z over k, m", "z_low", "+.2f", **right),
        Column("largest", "z_high", "+.2f", **right),
        Column("PC1 in readout", "pc1_readout_share", ".3f", **right),
        Column("PC1 variance", "pc1_variance_share", ".3f", **right),
        *(Column(title, name, ".4g", raw_only=True) for name, title, _ in SPECTRAL),
    ]
    rows = [row for model in models for row in _rows(model)]
    return write_table(workdir, "layer_table", rows, columns, _CAPTION)


def _rows(model: ModelLayers) -> list[Row]:
    rows: list[Row] = []
    for record in model.records:
        cells = [z for row in record["sensitivity"]["z"] for z in row if z is not None]
        rows.append(
            {
                **record["score"],
                **record["spectral"],
                "model": model.model,
                "layer": record["layer"],
                "name": record["name"],
                "z_low": min(cells, default=None),
                "z_high": max(cells, default=None),
            }
        )
    return rows
