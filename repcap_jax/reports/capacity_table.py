"""The table of representational capacities: one row for each matrix of each model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from repcap_jax.reports.tables import Column, Row

CAPTION = (
    "Cosine similarity of token vectors and representational capacity. μ and σ are the mean and standard deviation "
    "over all pairs of rows; ε = μ + 2 σ. Capacity is the number of directions that fit at ε."
)
EXTRAPOLATED = "† An extrapolation: outside the dimensions or counts that the law was fitted on."
INDETERMINATE = "indeterminate"
_POWER_FROM = 1e6


def capacity_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of the capacity table.

    Args:
      records: of an embedding experiment; failed ones are passed over.
    Returns:
      One mapping for each matrix of each model, with flat names.
    """
    return [
        _row(record, name, matrix)
        for record in records
        if record["status"] == "done"
        for name, matrix in record["matrices"].items()
    ]


def capacity_columns() -> list[Column]:
    """Return the columns of the capacity table, for `write_table`."""
    right = {"align": "right"}
    return [
        Column("model", "model"),
        Column("family", "family"),
        Column("matrix", "matrix"),
        Column("tied", "tied"),
        Column("V", "vocab_size", ",", "$V$", **right),
        Column("d_model", "d_model", "", r"$d_{\mathrm{model}}$", **right),
        Column("pairs", "pairs", _pairs, **right),
        Column("μ", "mean", ".5f", r"$\mu$", **right),
        Column("σ", "std", ".5f", r"$\sigma$", **right),
        Column("ε", "epsilon", ".5f", r"$\varepsilon$", **right),
        Column("isotropic ε", "isotropic_epsilon", ".5f", r"$2/\sqrt{d}$", **right),
        Column("class", "class"),
        _capacity("capacity", "capacity", "capacity"),
        _capacity("at μ+1.5σ", "capacity_low", r"at $\mu+1.5\sigma$"),
        _capacity("at μ+3σ", "capacity_high", r"at $\mu+3\sigma$"),
        Column("proven: at least", "proven_at_least_log10", _proven("at_least"), **right),
        Column("at most", "proven_at_most_log10", _proven("at_most"), **right),
        Column("d ln k / d ln ε", "elasticity", ".1f", r"$\frac{d \ln k}{d \ln \varepsilon}$", **right),
        Column("left for features", "features_left", _features_left, **right),
        Column("proven by", "proven_at_least_by", raw_only=True),
        Column("bounded by", "proven_at_most_by", raw_only=True),
        Column("law", "law", raw_only=True),
        Column("law capacity", "law_capacity", raw_only=True),
        Column("log10 law capacity", "log10_law_capacity", raw_only=True),
        Column("extrapolates", "capacity_extrapolates", raw_only=True),
        Column("source", "source", raw_only=True),
        Column("rows", "rows", raw_only=True),
        Column("excluded rows", "excluded_rows", raw_only=True),
        Column("precision", "precision", raw_only=True),
    ]


def capacity_notes(rows: Sequence[Row]) -> list[str]:
    """Return the sentences that belong below the table of these rows."""
    shown = [row for row in rows for key in ("capacity", "capacity_low", "capacity_high") if _has_mark(row, key)]
    notes = [EXTRAPOLATED] if shown else []
    if any(row["capacity_indeterminate"] for row in rows):
        notes.append("Class 1 (ε above 0.2): not near-orthogonal, so that a packing law gives no capacity.")
    if any(row["proven_at_least_log10"] is not None for row in rows):
        notes.append(
            "Proven: an explicit construction or a counting argument gives at least, and a theorem at most, so many "
            "directions with all |cos| ≤ ε. Where the two are far apart, a law's number between them is an estimate."
        )
    if any(row["features_left"] is not None for row in rows):
        notes.append("Left for features: capacity less V directions for the tokens of tied models, 2 V of untied ones.")
    return notes


def _row(record: Mapping[str, Any], name: str, matrix: Mapping[str, Any]) -> Row:
    distribution, capacity = matrix["distribution"], matrix["capacity"]
    budget = matrix.get("budget") or {}
    low, _, high = (matrix.get("capacity_range") or {}).get("estimates") or (None, None, None)
    excluded = [distribution.get(kind, {}).get("count", 0) for kind in ("zero_rows", "nonfinite_rows")]
    row = {
        "model": record["model"],
        "source": record.get("source"),
        "family": record.get("family"),
        "matrix": name,
        "tied": record["tied"],
        "vocab_size": record["vocab_size"],
        "d_model": record["d_model"],
        "pairs": distribution["n_pairs"],
        "mean": distribution["mean"],
        "std": distribution["std"],
        "epsilon": distribution["epsilon"],
        "isotropic_epsilon": distribution["isotropic_epsilon"],
        "class": capacity["geometry_class"],
        "elasticity": capacity["elasticity"],
        "features_left": None if capacity["indeterminate"] else budget.get("features_left"),
        "law": capacity["law"],
        "law_capacity": capacity["capacity"],
        "log10_law_capacity": capacity["log10_capacity"],
        "rows": record.get("rows"),
        "excluded_rows": sum(excluded),
        "precision": distribution["precision"],
    }
    row |= _bracket_entries(matrix.get("bracket") or {})
    for key, estimate in (("capacity", capacity), ("capacity_low", low), ("capacity_high", high)):
        row |= _capacity_entries(key, estimate)
    return row


def _capacity_entries(key: str, estimate: Mapping[str, Any] | None) -> Row:
    """The number of one estimate; none where the class makes it meaningless, which a second entry tells."""
    if estimate is None:
        return {key: None, f"{key}_log10": None, f"{key}_indeterminate": False, f"{key}_extrapolates": None}
    return {
        key: None if estimate["indeterminate"] else estimate["capacity"],
        f"{key}_log10": estimate["log10_capacity"],
        f"{key}_indeterminate": estimate["indeterminate"],
        f"{key}_extrapolates": estimate["extrapolates"],
    }


def _bracket_entries(bracket: Mapping[str, Any]) -> Row:
    """What is proven, as decimal logarithms; none where epsilon >= 1 excludes nothing, or on an old record."""
    return {
        "proven_at_least_log10": bracket.get("guaranteed_log10"),
        "proven_at_least_by": bracket.get("guaranteed_by"),
        "proven_at_most_log10": bracket.get("upper_log10"),
        "proven_at_most_by": (bracket.get("upper") or {}).get("bound"),
    }


def _proven(side: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        log10 = row[f"proven_{side}_log10"]
        return "" if log10 is None else count_text(log10)

    return text


def _capacity(header: str, key: str, latex: str) -> Column:
    def text(row: Row) -> str:
        if row[f"{key}_indeterminate"]:
            return INDETERMINATE
        if row[f"{key}_log10"] is None:
            return ""
        return count_text(row[f"{key}_log10"]) + ("†" if row[f"{key}_extrapolates"] else "")

    return Column(header, key, text, latex, align="right")


def count_text(log10: float | int) -> str:
    """Return a number of directions, given by its decimal logarithm: digits while few, then three figures."""
    if log10 < math.log10(_POWER_FROM):
        return f"{10**log10:,.0f}"
    exponent = math.floor(log10)
    mantissa = f"{10 ** (log10 - exponent):.2f}"
    return f"1.00e{exponent + 1}" if mantissa == "10.00" else f"{mantissa}e{exponent}"


def _number_text(value: float | int | None) -> str:
    if value is None:
        return ""
    sign = "-" if value < 0 else ""
    return sign + (count_text(math.log10(abs(value))) if abs(value) >= 1 else "0")


def _pairs(row: Row) -> str:
    return f"{row['pairs']:,}"


def _features_left(row: Row) -> str:
    value = row["features_left"]
    return "none" if value is not None and value <= 0 else _number_text(value)


def _has_mark(row: Row, key: str) -> bool:
    return bool(row[f"{key}_extrapolates"]) and not row[f"{key}_indeterminate"]
