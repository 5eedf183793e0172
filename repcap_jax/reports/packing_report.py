"""Table, grids, figures and report of a packing sweep, from what its workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repcap_jax.capacity import PackingGrid
from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.packing_data import CellResult, descent_histories, grid_of, sweep_results
from repcap_jax.reports.packing_figures import coherence_figures, collapse_figure, history_figure, random_figure
from repcap_jax.reports.strict_json import dump_line
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "Packings of near-orthogonal directions"
_LINES = (
    "Coherence ε (largest |cos| over all pairs) of k directions in d dimensions, beside the bound that no arrangement "
    "passes and the best explicit construction."
)
_CODES = "Largest cosine ε over all pairs of k points on the sphere in d dimensions, beside the bound below all."


def write_packing_report(workdir: Workdir, *, published: Mapping[str, PackingGrid] | None = None) -> Path:
    """Write the grids, `packing_table`, all figures and `report.html` of a packing sweep.

    Args:
      workdir: of the sweep, with the records to draw; call it again whenever there are more.
      published: grids to compare with, by kind (`"optimised"`, `"random"`).
    Returns:
      The path of report.html.
    """
    results, warnings = sweep_results(workdir, published)
    if not results:
        warnings.append("No cell has finished, so there is nothing to show.")
        return write_report(workdir, _TITLE, [], warnings)
    for kind in ("optimised", "random"):
        grid = grid_of(results, kind, _provenance(workdir.run, kind))
        if grid is None:
            workdir.path(f"grid_{kind}.json").unlink(missing_ok=True)  # of an earlier run with other settings
        else:
            workdir.write_text(f"grid_{kind}.json", dump_line(grid.to_record()) + "\n")
    figures = {
        "coherence": (
            coherence_figures(results),
            "Coherence reached against k. Dashed: no arrangement is below. Green: the best explicit construction.",
        ),
        "collapse": ([collapse_figure(results)], "Coherence times √d against k / d."),
        "random": (
            [random_figure(results)],
            "The best of random draws, with the prediction k(k−1)/2 P(|cos| > ε) = ln T for T draws.",
        ),
        "history": (
            [history_figure(descent_histories(workdir, results))],
            "How the optimiser got there: cells spread over the sweep, the winning start of each.",
        ),
    }
    images = [image for name, drawn in figures.items() for image in save_pages(workdir, drawn[0], name, drawn[1])]
    table = cell_table(workdir, "packing_table", results)
    sections = [Section("Coherence", images=images), Section("Cells", tables=[table])]
    return write_report(workdir, _TITLE, sections, warnings)


def cell_table(workdir: Workdir, name: str, results: Sequence[CellResult]) -> Table:
    """Write the table of all cells and return it for a report."""
    rows = [_row(cell) for cell in results]
    right: dict[str, Any] = {"align": "right"}
    columns = [
        Column("kind", "kind"),
        Column("d", "d", ",", "$d$", **right),
        Column("k", "k", ",", "$k$", **right),
        Column("k/d", "ratio", ".3g", "$k/d$", **right),
        Column("ε", "epsilon", ".5f", **right),
        Column("ε√d", "scaled", ".3f", r"$\varepsilon\sqrt{d}$", **right),
        Column("bound", "bound", ".5f", **right),
        Column("by", "bound_name"),
        Column("construction", "construction", ".5f", **right),
        Column("which", "construction_name"),
    ]
    optional = [
        Column("published", "published", ".5f", **right),
        Column("ε against published", "change", "+.1%", **right),
        Column("predicted", "predicted", ".5f", **right),
        Column("starts", "starts", ",", **right),
        Column("steps", "steps", ",", **right),
        Column("seconds", "seconds", ",.1f", **right),
    ]
    columns += [column for column in optional if any(row[column.name] is not None for row in rows)]
    notes = []
    packed = [row for row in rows if row["kind"] == "optimised"]
    if beaten := sum(row["construction"] is not None and row["construction"] < row["epsilon"] for row in packed):
        notes.append(f"An explicit construction is better than the optimiser in {beaten} of {len(packed)} cells.")
    return write_table(workdir, name, rows, columns, _CODES if any(cell.signed for cell in results) else _LINES, notes)


def _row(cell: CellResult) -> Row:
    settings = cell.record.get("settings") or {}
    return {
        "kind": cell.kind,
        "d": cell.d,
        "k": cell.k,
        "ratio": cell.ratio,
        "epsilon": cell.epsilon,
        "scaled": cell.scaled,
        "bound": cell.bound,
        "bound_name": cell.bound_name,
        "construction": cell.construction,
        "construction_name": cell.construction_name,
        "published": cell.published,
        "change": cell.epsilon / cell.published - 1 if cell.published else None,
        "predicted": cell.predicted,
        "starts": settings.get("starts"),
        "steps": settings.get("steps"),
        "seconds": cell.record.get("seconds"),
    }


def _provenance(run: Mapping[str, Any], kind: str) -> str:
    settings = run.get("result_settings") or {}
    version = (run.get("versions") or {}).get("repcap_jax") or "?"
    commit = ((run.get("git") or {}).get("commit") or "unknown")[:12]
    what = "repcap_jax.pack" if kind == "optimised" else "best of random draws"
    told = ", ".join(
        f"{name} = {value}" for name, value in settings.items() if value is not None and value is not False
    )
    return f"{what}, repcap_jax {version} (commit {commit}), {told}, run started {run.get('started', '?')}"
