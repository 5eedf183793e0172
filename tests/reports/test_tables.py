"""Tables: numbers in full for programs, escaped text for people."""

import csv
import io
import math

import numpy as np
import pytest

from repcap_jax.reports.capacity_table import capacity_columns, capacity_notes, capacity_rows, count_text
from repcap_jax.reports.tables import Column, csv_text, escape_latex, make_table, write_table
from repcap_jax.reports.workdir import Workdir
from tests.reports.builders import THIRTEEN, add_model, add_thirteen

AWKWARD = "a_b & 50% | $x^2$ #1 {~} <i> \\cmd*\n2"
COLUMNS = [
    Column("model", "model"),
    Column("ε", "epsilon", ".3f", align="right"),
    Column("twice", lambda row: row.get("epsilon") and 2 * row["epsilon"], ".1e", align="right"),
    Column("tied", "tied"),
    Column("digits", "epsilon", raw_only=True),
]
ROWS = [
    {"model": AWKWARD, "epsilon": np.float64(0.1) + 0.2, "tied": True},
    {"model": "none", "epsilon": None, "tied": False},
    {"model": "nan", "epsilon": math.nan},
]


@pytest.fixture
def workdir(tmp_path):
    with Workdir.open(tmp_path, experiment="test", settings={}, devices=[]) as opened:
        yield opened


def test_csv_has_every_digit_and_nothing_for_null():
    rows = list(csv.reader(io.StringIO(csv_text(ROWS, COLUMNS))))
    assert rows[0] == ["model", "epsilon", "twice", "tied", "epsilon"]
    assert rows[1] == [AWKWARD, "0.30000000000000004", "0.6000000000000001", "True", "0.30000000000000004"]
    assert rows[2] == ["none", "", "", "False", ""] and rows[3][1] == "" and rows[3][3] == ""


def test_markdown_lines_up_and_keeps_its_columns():
    table = make_table(ROWS, COLUMNS, "A caption | with a bar", ["A note."])
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 5 and len({len(line) for line in lines}) == 1
    for line in lines:
        assert line.replace("\\|", "").count("|") == 5
    assert lines[1].split("|")[2].strip().endswith(":") and "–" in lines[3] and "0.300" in lines[2]
    assert "\\<i\\>" in lines[2] and "a_b" in lines[2] and "A note." in table.markdown()


def test_latex_is_escaped_and_numbers_are_set_as_mathematics():
    text = make_table(ROWS, COLUMNS, "100% of ε", ["† see §2"]).latex("my-table")
    expected = (
        r"a\_b \& 50\% \textbar{} \$x\textasciicircum{}2\$ \#1 \{\textasciitilde{}\} "
        r"\textless{}i\textgreater{} \textbackslash{}cmd*2"
    ).replace("cmd*2", "cmd* 2")
    assert expected in text
    assert r"$0.300$ & $6.0 \times 10^{-1}$ & yes \\" in text and "none & -- & -- & no" in text
    assert r"\caption{100\% of $\varepsilon$}" in text and r"\toprule" in text and r"\label{tab:my-table}" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert "resizebox" not in text


def test_every_special_character_of_latex_is_escaped():
    assert escape_latex("\\{}") == r"\textbackslash{}\{\}"
    assert "  " not in escape_latex("a\n\n b")


def test_an_empty_table_is_a_table(workdir):
    write_table(workdir, "empty", [], COLUMNS, "Nothing")
    assert (workdir.root / "empty.csv").read_text().count("\n") == 1
    assert "| model |" in (workdir.root / "empty.md").read_text()


def test_the_capacity_table_of_thirteen_models(workdir):
    add_thirteen(workdir, moments_only=True)
    workdir.failed("broken", ValueError("x"))
    rows = capacity_rows(workdir.records())
    table = write_table(workdir, "capacity_table", rows, capacity_columns(), "Caption", capacity_notes(rows))
    untied = sum(entry[-1] is not None for entry in THIRTEEN)
    assert len(table.cells) == len(THIRTEEN) + untied
    parsed = {
        (r["model"], r["matrix"]): r
        for r in csv.DictReader(io.StringIO((workdir.root / "capacity_table.csv").read_text()))
    }
    small = parsed["SmolLM2-135M-Instruct", "embedding"]
    assert small["class"] == "class 1" and small["capacity"] == "" and float(small["log10_law_capacity"]) > 30
    assert float(small["isotropic_epsilon"]) == 2 / math.sqrt(576) and int(small["pairs"]) == 32_000 * 31_999 // 2
    llama = parsed["meta/Llama 3.1 8B", "embedding"]
    low, middle, high = (float(llama[key]) for key in ("capacity_low", "capacity", "capacity_high"))
    assert low < middle < high and math.isclose(float(llama["features_left"]), middle - 64_000)
    assert math.log10(middle) < float(llama["proven_at_least_log10"]) < float(llama["proven_at_most_log10"])
    assert llama["proven_at_least_by"] and llama["proven_at_most_by"]
    shown = dict(
        zip(
            [c.header for c in table.columns],
            table.cells[[c[0] for c in table.cells].index("meta/Llama 3.1 8B")],
            strict=True,
        )
    )
    assert shown["capacity"] == "6.35e6†" and shown["tied"] == "no" and shown["left for features"] == "6.28e6"
    text = " ".join(table.notes)
    assert "extrapolation" in text and "Class 1" in text and "2 V" in text
    latex = (workdir.root / "capacity_table.tex").read_text()
    assert r"\resizebox{\textwidth}" in latex and r"$6.35 \times 10^{6}$\textsuperscript{\textdagger}" in latex


def test_a_record_without_range_or_budget_still_has_a_row(workdir):
    record = add_model(workdir, "m", None, 576, 0.01, 0.02, moments_only=True)
    del record["matrices"]["embedding"]["capacity_range"]
    del record["matrices"]["embedding"]["bracket"]
    record["matrices"]["embedding"]["budget"] = None
    (row,) = capacity_rows([record])
    cells = make_table([row], capacity_columns(), "c").cells[0]
    assert row["capacity"] >= 576 and row["capacity_low"] is None and cells[-1] == "–"


@pytest.mark.parametrize(
    ("log10", "text"),
    [(0, "1"), (math.log10(576), "576"), (5.5, "316,228"), (6.0, "1.00e6"), (8.99999, "1.00e9"), (400.5, "3.16e400")],
)
def test_counts_stay_readable_at_any_size(log10, text):
    assert count_text(log10) == text
