"""Tables, figures and report of points on spheres, from what a workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.spheres_figures import energy_figure, exponent_figure, points_figures
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "Points on spheres"


def write_spheres_report(workdir: Workdir) -> Path:
    """Write `energy_table`, `code_table`, all figures and `report.html`.

    Args:
      workdir: of `experiments.spherical_codes`; call it again whenever there is more to draw.
    Returns:
      The path of report.html.
    """
    records = workdir.records()
    warnings = [f"{r['key']} failed: {r['error']['message']}" for r in records if r["status"] == "failed"]
    done = sorted((r for r in records if r["status"] == "done"), key=_order)
    if not done:
        warnings.append("No cell has finished, so there is nothing to show.")
        return write_report(workdir, _TITLE, [], warnings)
    cells: list[tuple[Mapping[str, Any], np.ndarray]] = []
    for record in done:
        try:
            cells.append((record, workdir.load_arrays(record["arrays"])["vectors"]))
        except ValueError as error:
            warnings.append(f"{record['key']}: {error}")
    energies = [record for record in done if record["kind"] == "energy"]
    codes = [record for record in done if record["kind"] == "code"]
    drawn = {
        "points": (points_figures(cells), "The points with the faces of their convex hull."),
        "energies": ([energy_figure(energies)], "Thomson energies, and how many of the starts found each."),
        "exponents": ([exponent_figure(energies)], "Smallest angle against the exponent of the energy."),
    }
    images = {name: save_pages(workdir, pages, name, caption) for name, (pages, caption) in drawn.items()}
    sections = [
        Section(
            "Energies",
            tables=[_energy_table(workdir, energies)] if energies else [],
            images=[*images["energies"], *images["exponents"]],
        ),
        Section("Codes", tables=[_code_table(workdir, codes)] if codes else []),
        Section("Points", images=images["points"]),
    ]
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables], warnings)


def _order(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["kind"] != "energy", record["d"], record.get("s", 0), record["k"]


def _energy_table(workdir: Workdir, records: Sequence[Mapping[str, Any]]) -> Table:
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("d", "d", ",", "$d$", **right),
        Column("s", "s", "g", "$s$", **right),
        Column("k", "k", ",", "$k$", **right),
        Column("E", "energy", ".9f", "$E$", **right),
        Column("ln E", "log_energy", ".9f", r"$\ln E$", **right),
        Column("published", "published", ".9f", **right),
        Column("relative difference", "difference", "+.1e", **right),
        Column("found by", "share"),
        Column("smallest angle", "smallest_angle", ".4f", **right),
        Column("kinds of points", "kinds", ",", **right),
        Column("neighbours", "neighbours"),
        Column("shape", "shape"),
        Column("distance", "shape_distance", ".3f", **right),
    ]
    rows = [_energy_row(record) for record in records]
    if all(row["energy"] is not None for row in rows):
        columns = [column for column in columns if column.value != "log_energy"]
    notes = [
        "Found by: starts that ended in this minimum. Kinds of points: by their distances to all others.",
        "Neighbours: how many points have how many others within 1.2 times their smallest distance.",
        "Shape: the ideal polytope nearest in Gram spectrum and cosines, with its distance.",
    ]
    return write_table(workdir, "energy_table", rows, columns, "Least energies of k points in R^d.", notes)


def _energy_row(record: Mapping[str, Any]) -> Row:
    symmetry, published = record["symmetry"], record["published"]
    counts = symmetry["coordination"].items()
    return {
        **{name: record.get(name) for name in ("d", "s", "k", "energy", "log_energy", "smallest_angle", "published")},
        "difference": None if published is None else record["energy"] / published - 1,
        "share": f"{record['found']} of {record['starts']}",
        "kinds": symmetry["kinds"],
        "neighbours": ", ".join(f"{points} × {neighbours}" for neighbours, points in counts),
        "shape": None if record["shape"] == "none" else record["shape"],
        "shape_distance": record["shape_distance"],
    }


def _code_table(workdir: Workdir, records: Sequence[Mapping[str, Any]]) -> Table:
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("d", "d", ",", "$d$", **right),
        Column("k", "k", ",", "$k$", **right),
        Column("largest cosine", "coherence", ".7f", **right),
        Column("best known", "published", ".7f", **right),
        Column("bound", "bound", ".7f", **right),
        Column("by", "bound_name"),
        Column("shape", lambda row: None if row["shape"] == "none" else row["shape"]),
        Column("seconds", "seconds", ",.1f", **right),
    ]
    notes = ["Best known: Cohn's tables of spherical codes, for those cells that are cited here."]
    return write_table(workdir, "code_table", records, columns, "Spherical codes: k points in R^d.", notes)
