"""Tables, figures and report of token relations, from what a workdir holds and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repcap_jax.reports.atomic import safe_name
from repcap_jax.reports.html import Image, Section, write_report
from repcap_jax.reports.matrix_figures import gain_figures, norm_figures, projection_figures, unembedding_figures
from repcap_jax.reports.relation_data import RelationResult, read_relations
from repcap_jax.reports.relation_figures import (
    analogy_figures,
    in_degree_figure,
    neighbour_figures,
    pair_figures,
    primary_figure,
    score_figure,
)
from repcap_jax.reports.style import save_pages
from repcap_jax.reports.tables import Column, Row, Table, csv_text, make_table, write_table
from repcap_jax.reports.workdir import Workdir

_TITLE = "Which tokens lie next to each other"
_RIGHT: dict[str, Any] = {"align": "right"}
_SHOWN = 30  # rows of a table in the report; files hold all of them


def write_relation_report(workdir: Workdir) -> Path:
    """Write all tables, all figures and `report.html` of a token-relation experiment.

    Args:
      workdir: of the experiment, with the records to draw; call it again whenever there are more.
    Returns:
      The path of report.html.
    """
    results, warnings = read_relations(workdir)
    sections = []
    if results:
        sections = [
            _summary(workdir, results),
            *(_primary(workdir, result, len(results)) for result in results),
            _neighbours(workdir, results),
            *(_words(workdir, result, len(results)) for result in results),
            _scores(workdir, results),
            *(_near(workdir, result, len(results)) for result in results),
            _matrices(workdir, results),
        ]
    else:
        warnings.append("No model has finished, so there is nothing to show.")
    return write_report(workdir, _TITLE, [s for s in sections if s.images or s.tables or s.text], warnings)


def _suffix(result: RelationResult, count: int) -> str:
    return "" if count == 1 else f"-{safe_name(str(result.record['key']))}"


def _named(title: str, result: RelationResult, count: int) -> str:
    return title if count == 1 else f"{title}: {result.name}"


def _summary(workdir: Workdir, results: Sequence[RelationResult]) -> Section:
    rows = [_summary_row(result) for result in results]
    columns = [
        Column("model", "model"),
        Column("matrix", "matrix"),
        Column("vocabulary", "n_rows", ",", **_RIGHT),
        Column("d", "d_model", ",", **_RIGHT),
        Column("ε", "epsilon", ".4f", **_RIGHT),
        Column("median nearest cosine", "nearest", ".4f", **_RIGHT),
        Column("median opposed cosine", "opposed", ".4f", **_RIGHT),
        Column("mutual", "mutual", ".1%", **_RIGHT),
        Column("primary tokens", "primaries", ",", **_RIGHT),
        Column("tail explained", "tail", ".2%", **_RIGHT),
        Column("near-duplicate pairs", "near", ",", **_RIGHT),
        Column("analogies at 1", "accuracy_1", ".1%", **_RIGHT),
        Column("at 10", "accuracy_10", ".1%", **_RIGHT),
        Column("reciprocal rank", "reciprocal_rank", ".3f", **_RIGHT),
    ]
    notes = [
        "Mutual: tokens that are their nearest neighbour's nearest neighbour. Tail explained: share of the pairs above "
        "ε whose tokens belong to one cluster, a primary token with its secondary tokens.",
    ]
    table = write_table(workdir, "relations_table", rows, columns, "Token relations.", notes)
    remarks = [f"{result.name}: {note}" for result in results for note in result.record.get("notes", [])]
    return Section("Summary", remarks, tables=[table])


def _summary_row(result: RelationResult) -> Row:
    record, relations = result.record, result.relations or {}
    primary, scores = record.get("primary") or {}, (record.get("analogies") or {}).get("scores") or {}
    row: dict[str, Any] = {name: record.get(name) for name in ("model", "matrix", "n_rows", "d_model")}
    row["epsilon"], row["mutual"] = relations.get("epsilon"), relations.get("mutual_share")
    for name in ("nearest", "opposed"):
        row[name] = ((relations.get(name) or {}).get("quantiles") or {}).get("0.5")
    row["primaries"], row["tail"] = primary.get("count"), (primary.get("tail") or {}).get("share")
    row["near"] = (relations.get("near_duplicates") or {}).get("total_pairs")
    return row | (scores.get("all") or {})


def _primary(workdir: Workdir, result: RelationResult, count: int) -> Section:
    primary = result.record.get("primary")
    if not primary:
        return Section("")
    rows = [{**token, "secondary": "  ".join(token["secondary_texts"][:8])} for token in primary["tokens"]]
    columns = [
        Column("token", "text"),
        Column("id", "row", **_RIGHT),
        Column("in-degree", "in_degree", ",", **_RIGHT),
        Column("mean cosine", "mean_cosine", ".3f", **_RIGHT),
        Column("closest secondary tokens", "secondary"),
    ]
    table = _table(workdir, f"primary_tokens{_suffix(result, count)}", rows, columns,
                   f"Tokens that are the nearest neighbour of more than {primary['tau']} others.")  # fmt: skip
    name = f"primary_tokens_chart{_suffix(result, count)}"
    caption = "Primary tokens by in-degree; beside them the cosine of the closest secondary token, and those tokens."
    images = save_pages(workdir, [primary_figure(result)], name, caption)
    return Section(_named("Primary tokens", result, count), [], [table] if rows else [], images)


def _neighbours(workdir: Workdir, results: Sequence[RelationResult]) -> Section:
    caption = "All cosines, those of each token's nearest neighbour, and those of its most opposed token."
    images = save_pages(workdir, neighbour_figures(results), "neighbours", caption)
    images += save_pages(workdir, [in_degree_figure(results)], "in_degrees", "Tokens by their in-degree, cumulative.")
    return Section("Neighbours and opposites", images=images)


def _words(workdir: Workdir, result: RelationResult, count: int) -> Section:
    """Named pairs and analogies asked by name."""
    suffix, tables, images = _suffix(result, count), [], []
    pairs, asked = result.record.get("pairs") or [], result.record.get("asked") or []
    if pairs:
        columns = [Column("first", "first"), Column("second", "second"), Column("cosine", "cosine", ".4f", **_RIGHT)]
        columns.append(Column("problem", "problem"))
        tables.append(write_table(workdir, f"pairs{suffix}", pairs, columns, "Named pairs."))
        caption = "Cosines of named pairs; above ε shaded."
        images += save_pages(workdir, pair_figures(result), f"pairs_chart{suffix}", caption)
    if asked:
        rows = [{**entry, "answers": "  ".join(entry["answers"][:10])} for entry in asked]
        tables.append(write_table(workdir, f"asked{suffix}", rows, _analogy_columns(), "Analogies asked."))
        caption = "Closest answers to analogies; above ε shaded."
        images += save_pages(workdir, analogy_figures(result), f"analogies_chart{suffix}", caption)
    return Section(_named("Named pairs and analogies", result, count), [], tables, images)


def _scores(workdir: Workdir, results: Sequence[RelationResult]) -> Section:
    rows, every = [], []
    for result in results:
        found = result.record.get("analogies") or {}
        rows += [
            {"model": result.name, "relation": name, **score} for name, score in (found.get("scores") or {}).items()
        ]
        every += [{"model": result.name, **entry, "answers": "  ".join(entry["answers"][:5])}
                  for entry in found.get("results") or []]  # fmt: skip
    if not every:
        return Section("")
    columns = [
        Column("model", "model"),
        Column("relation", "relation"),
        Column("asked", "n", ",", **_RIGHT),
        Column("accuracy at 1", "accuracy_1", ".1%", **_RIGHT),
        Column("accuracy at 10", "accuracy_10", ".1%", **_RIGHT),
        Column("reciprocal rank", "reciprocal_rank", ".3f", **_RIGHT),
    ]
    table = write_table(workdir, "analogy_scores", rows, columns, "Built-in analogies by relation.")
    workdir.write_text("analogy_results.csv", csv_text(every, [Column("model", "model"), *_analogy_columns()]))
    problems = [f"{entry['model']}: {entry['question']} was not asked: {entry['problem']}." for entry in every
                if entry["problem"]]  # fmt: skip
    images = save_pages(workdir, [score_figure(results)], "analogy_scores_chart", "Built-in analogies by relation.")
    return Section("Built-in analogies", problems[:_SHOWN], [table] if rows else [], images)


def _analogy_columns() -> list[Column]:
    return [
        Column("question", "question"),
        Column("relation", "relation"),
        Column("rank of the answer", "rank", ",", **_RIGHT),
        Column("closest", "answers"),
        Column("problem", "problem"),
    ]


def _near(workdir: Workdir, result: RelationResult, count: int) -> Section:
    near = (result.relations or {}).get("near_duplicates")
    norms = result.record.get("norms") or {}
    text = []
    for name, what in (("zero_rows", "rows of length zero"), ("tiny_rows", "rows of tiny length")):
        if (norms.get(name) or {}).get("count"):
            listed = ", ".join(norms[name].get("texts", [])[:20])
            text.append(f"{norms[name]['count']:,} {what}: {listed}.")
    if not near or not near["total_pairs"]:
        return Section(_named("Near-duplicate tokens", result, count), text)
    rows = [{"size": group["size"], "tokens": "  ".join(group["texts"])} for group in near["groups"]]
    columns = [Column("tokens in the group", "size", ",", **_RIGHT), Column("tokens", "tokens")]
    table = _table(workdir, f"near_duplicates{_suffix(result, count)}", rows, columns,
                   f"Tokens that cosines above {near['threshold']} connect.")  # fmt: skip
    text.insert(0, f"{near['total_pairs']:,} pairs above {near['threshold']}, of {near['tokens']:,} tokens in "
                   f"{near['n_groups']:,} groups.")  # fmt: skip
    return Section(_named("Near-duplicate tokens", result, count), text, [table])


def _matrices(workdir: Workdir, results: Sequence[RelationResult]) -> Section:
    pages: dict[str, tuple[list, str]] = {
        "norms": (norm_figures(results), "Lengths of the rows, and their quantiles by token id."),
        "unembedding": (unembedding_figures(results), "Cosines of each token's two rows, and of all rows."),
        "projections": (projection_figures(results), "Cosines of the tokens seen through W_Q, W_K, W_V of block 0."),
        "gains": (gain_figures(results), "Gains of the norms by layer."),
    }
    images: list[Image] = []
    for name, (figures, caption) in pages.items():
        images += save_pages(workdir, figures, f"{name}_chart", caption)
    rows = [
        {"model": result.name, "projection": part, **entry, **example}
        for result in results
        for part, entry in (result.record.get("projections") or {}).items()
        for example in entry.get("examples", [])
    ]
    columns = [Column("model", "model"), Column("projection", "projection"), Column("token", "token")]
    columns += [Column("nearest seen through it", "nearest"), Column("cosine", "cosine", ".3f", **_RIGHT)]
    tables = [_table(workdir, "projections", rows, columns, "Nearest tokens as block 0 sees them.")] if rows else []
    return Section("Matrices", tables=tables, images=images)


def _table(workdir: Workdir, name: str, rows: Sequence[Row], columns: Sequence[Column], caption: str) -> Table:
    """All rows in files, the first of them in the report."""
    write_table(workdir, name, rows, columns, caption)
    notes = [f"The first {_SHOWN} of {len(rows):,} rows; {name}.csv holds all of them."] if len(rows) > _SHOWN else []
    return make_table(rows[:_SHOWN], columns, caption, notes)
