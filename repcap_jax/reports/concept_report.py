"""Tables, figures and report of linear concepts, from what a workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repcap_jax.reports.atomic import safe_name
from repcap_jax.reports.concept_data import PRODUCTS, ConceptResult, read_concepts
from repcap_jax.reports.concept_figures import (
    heat_map_figure,
    intervention_figure,
    isomorphism_figure,
    measurement_figure,
    projection_figures,
    separation_figure,
)
from repcap_jax.reports.html import Section, write_report
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "Concepts as directions"
_CAPTION = "Counterfactual pairs against random pairs."
_RIGHT: dict[str, Any] = {"align": "right"}


def write_concept_report(workdir: Workdir) -> Path:
    """Write all tables, all figures and `report.html` of a linear-concept experiment.

    Args:
      workdir: of the experiment, with the records to draw; call it again whenever there are more.
    Returns:
      The path of report.html.
    """
    results, warnings = read_concepts(workdir)
    sections = []
    if results:
        sections.append(_summary(workdir, results))
        for result in results:
            suffix = "" if len(results) == 1 else f"-{safe_name(str(result.record['key']))}"
            of = "" if len(results) == 1 else f": {result.name}"
            sections += [
                _separation(workdir, result, suffix, of),
                _heat_maps(workdir, result, suffix, of),
                _contexts(workdir, result, suffix, of),
                _interventions(workdir, result, suffix, of),
            ]
    else:
        warnings.append("No model has finished, so there is nothing to show.")
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables], warnings)


def _summary(workdir: Workdir, results: Sequence[ConceptResult]) -> Section:
    rows: list[Row] = []
    for result in results:
        tests = {test["second"]: test for test in result.record.get("tests", [])}
        aucs = sorted(entry["separation"]["auc"]["value"] for entry in result.concepts())
        row: dict[str, Any] = {"model": result.name, "concepts": len(aucs), "d_model": result.record["d_model"]}
        row["floored"] = result.record["causal"]["floored"]
        row["condition"] = result.record["causal"]["condition"]
        row["median_auc"] = aucs[len(aucs) // 2] if aucs else None
        row["auc_above"] = sum(auc > 0.8 for auc in aucs)
        for product in PRODUCTS:
            row[f"off_{product}"] = (result.heat_map(product) or {}).get("off_block")
            row[f"p_{product}"] = (tests.get(product) or {}).get("p_value")
        rows.append(row)
    columns = [
        Column("model", "model"),
        Column("d", "d_model", ",", **_RIGHT),
        Column("concepts", "concepts", **_RIGHT),
        Column("AUC above 0.8", "auc_above", **_RIGHT),
        Column("median AUC", "median_auc", ".4f", **_RIGHT),
        Column("condition", "condition", ".3g", **_RIGHT),
        Column("floored", "floored", **_RIGHT),
        *(Column(f"off-block, {product}", f"off_{product}", ".4f", **_RIGHT) for product in PRODUCTS),
        Column("p against Euclidean", "p_euclidean", ".2g", **_RIGHT),
        Column("p against random", "p_random", ".2g", **_RIGHT),
    ]
    notes = [
        "Off-block: mean |cosine| of concepts of different groups. p: permutation test that it is smaller under the "
        "causal inner product; all concept pairs between two groups change sides together.",
        "Floored: eigenvalues of the covariance that were raised to the floor.",
    ]
    table = write_table(workdir, "concept_summary", rows, columns, "Linear concepts.", notes)
    remarks = [f"{result.name}: {note}" for result in results for note in result.record.get("notes", [])]
    return Section("Summary", remarks, tables=[table])


def _separation(workdir: Workdir, result: ConceptResult, suffix: str, of: str) -> Section:
    rows = []
    euclidean = {entry["concept"]: entry["separation"] for entry in result.concepts("euclidean")}
    for entry in result.concepts():
        found, other = entry["separation"], euclidean.get(entry["concept"])
        row = {name: entry[name] for name in ("concept", "group", "n_pairs", "n_dropped", "consistency", "mean_cosine")}
        for key in ("auc", "effect"):
            row |= {key: found[key]["value"], f"{key}_low": found[key]["low"], f"{key}_high": found[key]["high"]}
        row |= {"auc_cosine": found["auc_cosine"]["value"], "auc_euclidean": other and other["auc"]["value"]}
        rows.append(row)
    columns = [
        Column("concept", "concept"),
        Column("group", "group"),
        Column("pairs", "n_pairs", ",", **_RIGHT),
        Column("dropped", "n_dropped", ",", **_RIGHT),
        Column("AUC", "auc", ".3f", **_RIGHT),
        Column("95 %", lambda row: _range(row, "auc", ".3f"), **_RIGHT),
        Column("AUC of cosines", "auc_cosine", ".3f", **_RIGHT),
        Column("effect", "effect", ".2f", **_RIGHT),
        Column("95 % of effect", lambda row: _range(row, "effect", ".2f"), **_RIGHT),
        Column("mean cosine", "mean_cosine", ".3f", **_RIGHT),
        Column("AUC, Euclidean", "auc_euclidean", ".3f", **_RIGHT),
        *(Column(name, name, raw_only=True) for name in ("auc_low", "auc_high", "effect_low", "effect_high")),
        Column("consistency", "consistency", raw_only=True),
    ]
    notes = ["Each pair is projected on the direction of the other pairs and compared with random pairs of tokens."]
    table = write_table(
        workdir, f"concepts{suffix}", rows, columns, "Counterfactual pairs against random pairs.", notes
    )
    images = save_pages(workdir, projection_figures(result), f"projections{suffix}",
                        "Left-out pairs (steps and ticks) against random pairs (grey).")  # fmt: skip
    images += save_pages(workdir, [separation_figure(result)], f"separation{suffix}",
                         "AUC and effect size with bootstrap intervals.")  # fmt: skip
    return Section(f"Pairs against chance{of}", tables=[table] if rows else [], images=images)


def _heat_maps(workdir: Workdir, result: ConceptResult, suffix: str, of: str) -> Section:
    caption = "|cosine| between concepts; frames hold the concepts of one group, which need not be separable."
    text = [
        f"Off-block mean |cosine| is smaller by {test['difference']:.4f} under the {test['first']} inner product than "
        f"under the {test['second']} one: p = {test['p_value']:.2g} ({test['permutations']:,} exchanges of "
        f"{test['blocks']} blocks)."
        for test in result.record.get("tests", [])
    ]
    images = save_pages(workdir, [heat_map_figure(result)], f"heat_maps{suffix}", caption)
    return Section(f"Orthogonality of separable concepts{of}", text, images=images)


def _contexts(workdir: Workdir, result: ConceptResult, suffix: str, of: str) -> Section:
    caption = "Chance that a context that calls for the second word lies further along the concept; 0.5 is none."
    images = save_pages(workdir, [measurement_figure(result)], f"measurement{suffix}", caption)
    caption = "Causal cosine of Cov(γ) times the contexts' mean difference with each unembedding representation."
    images += save_pages(workdir, [isomorphism_figure(result)], f"isomorphism{suffix}", caption)
    return Section(f"Measurement in contexts{of}", images=images)


def _interventions(workdir: Workdir, result: ConceptResult, suffix: str, of: str) -> Section:
    found = result.record.get("interventions") or []
    if not found:
        return Section("")
    columns = [
        Column("concept added", "concept"),
        Column("change of its own log-odds", "on_target", ".2f", **_RIGHT),
        Column("mean |change| of others", "off_target", ".2f", **_RIGHT),
        Column("alpha", lambda row: row["alphas"][-1], "g", **_RIGHT),
    ]
    table = write_table(workdir, f"interventions{suffix}", found, columns, "Log-odds after adding a concept.")
    tables = [table]
    if examples := result.record.get("examples"):
        columns = [
            Column("context", "context"),
            Column("concept added", "concept"),
            Column("alpha", "alpha", "g", **_RIGHT),
            Column("most likely next tokens", lambda row: "  ".join(row["tokens"])),
        ]
        caption = "Next tokens as a concept is added."
        tables.append(write_table(workdir, f"next_tokens{suffix}", examples, columns, caption))
    caption = "Rows: the concept whose embedding representation is added. Columns: whose word pairs are measured."
    images = save_pages(workdir, [intervention_figure(result)], f"intervention{suffix}", caption)
    return Section(f"Intervention{of}", tables=tables, images=images)


def _range(row: Row, key: str, digits: str) -> str:
    """ "0.991 to 0.998"."""
    return f"{row[f'{key}_low']:{digits}} to {row[f'{key}_high']:{digits}}"
