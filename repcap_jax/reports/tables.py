"""One table in three forms: CSV with the numbers as they are, Markdown and LaTeX for people."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from repcap_jax.reports.workdir import Workdir

Row = Mapping[str, Any]
_ABSENT = "–"
_WIDE = 8  # columns; a LaTeX table with more is scaled to the width of the text

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "†": r"\textsuperscript{\textdagger}",
    "ε": r"$\varepsilon$",
    "μ": r"$\mu$",
    "σ": r"$\sigma$",
    "√": r"$\surd$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
}


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
      header: heading.
      value: key of the row, which also names the column in CSV, or a function of the row (and the header names it);
        gives the raw value, None where there is none.
      format: format specification for numbers (`".5f"`), or a function of the row that gives the text for readers.
      latex: heading in LaTeX, where it is not the escaped header.
      align: "left" or "right".
      raw_only: appear in CSV only.
    """

    header: str
    value: str | Callable[[Row], Any]
    format: str | Callable[[Row], str] = ""
    latex: str | None = None
    align: Literal["left", "right"] = "left"
    raw_only: bool = False

    @property
    def name(self) -> str:
        """The name in CSV, for programs to read."""
        return self.value if isinstance(self.value, str) else self.header

    def raw(self, row: Row) -> Any:
        """The value of a row; NaN counts as none."""
        value = row.get(self.value) if isinstance(self.value, str) else self.value(row)
        value = value.item() if isinstance(value, np.generic) else value
        return None if isinstance(value, float) and math.isnan(value) else value

    def text(self, row: Row) -> str:
        """The value of a row as people read it."""
        if callable(self.format):
            return self.format(row) or _ABSENT
        value = self.raw(row)
        if value is None or value == "":
            return _ABSENT
        if isinstance(value, bool):
            return "yes" if value else "no"
        return format(value, self.format) if isinstance(value, int | float) else str(value)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as people read it.

    Attributes:
      caption: what it shows.
      columns: its columns, without those that appear in CSV only.
      cells: texts, row by row.
      notes: sentences below it.
    """

    caption: str
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """The table in Markdown with aligned pipes."""
        head = [_markdown(c.header) for c in self.columns]
        body = [[_markdown(cell) for cell in row] for row in self.cells]
        widths = [max(3, *(len(row[i]) for row in [head, *body])) for i in range(len(head))]
        right = [c.align == "right" for c in self.columns]
        rule = ["-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True)]
        lines = [_pipes(row, widths, right) for row in [head, rule, *body]]
        return "\n".join([_markdown(self.caption), "", *lines, *(f"\n{_markdown(note)}" for note in self.notes)]) + "\n"

    def latex(self, label: str = "") -> str:
        """The table in LaTeX, for the package booktabs (and graphicx where it is wide)."""
        head = " & ".join(c.latex if c.latex is not None else escape_latex(c.header) for c in self.columns)
        body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in self.cells]
        letters = "".join("r" if c.align == "right" else "l" for c in self.columns)
        tabular = [
            rf"\begin{{tabular}}{{@{{}}{letters}@{{}}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
        wide = len(self.columns) > _WIDE
        if wide:
            tabular = [r"\resizebox{\textwidth}{!}{%", *tabular[:-1], tabular[-1] + "}"]
        return (
            "\n".join(
                [
                    rf"% \usepackage{{booktabs{',graphicx' if wide else ''}}}",
                    r"\begin{table*}[t]" if wide else r"\begin{table}[t]",
                    r"\centering",
                    rf"\caption{{{escape_latex(self.caption)}}}",
                    *([rf"\label{{tab:{label}}}"] if label else []),
                    *tabular,
                    *(rf"\par\smallskip{{\footnotesize {escape_latex(note)}}}" for note in self.notes),
                    r"\end{table*}" if wide else r"\end{table}",
                ]
            )
            + "\n"
        )


def write_table(
    workdir: Workdir,
    name: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    caption: str,
    notes: Sequence[str] = (),
) -> Table:
    """Write a table as `<name>.csv`, `<name>.md` and `<name>.tex`.

    Args:
      workdir: where to.
      name: file name without an ending.
      rows: one mapping for each row.
      columns: what to show of them.
      caption: what the table shows.
      notes: sentences below it, in Markdown and LaTeX.
    Returns:
      The table, for a report.
    """
    workdir.write_text(f"{name}.csv", csv_text(rows, columns))
    table = make_table(rows, columns, caption, notes)
    workdir.write_text(f"{name}.md", table.markdown())
    workdir.write_text(f"{name}.tex", table.latex(label=name.replace("_", "-")))
    return table


def make_table(rows: Sequence[Row], columns: Sequence[Column], caption: str, notes: Sequence[str] = ()) -> Table:
    """Return the table as people read it, without writing it."""
    shown = tuple(column for column in columns if not column.raw_only)
    return Table(caption, shown, tuple(tuple(c.text(row) for c in shown) for row in rows), tuple(notes))


def csv_text(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return the raw values as CSV: numbers in full, nothing where there is no value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in columns)
    # csv writes floats with repr, which gives every digit, and None as nothing.
    writer.writerows([column.raw(row) for column in columns] for row in rows)
    return out.getvalue()


def escape_latex(text: str) -> str:
    """Return text with every character that means something to LaTeX escaped, and line breaks as spaces."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_cell(text: str) -> str:
    """A cell: numbers are set as mathematics, with a power of ten where there is an exponent."""
    number, mark = (text[:-1].rstrip(), text[-1]) if text.endswith("†") else (text, "")
    match = re.fullmatch(r"([-+]?[\d.,]+)(?:e([-+]?)0*(\d+))?", number)
    if not match:
        return escape_latex(text)
    mantissa, sign, exponent = match.groups()
    mantissa = mantissa.replace(",", "{,}")
    power = f" \\times 10^{{{'-' if sign == '-' else ''}{exponent}}}" if exponent else ""
    return f"${mantissa}{power}$" + escape_latex(mark)


def _markdown(text: str) -> str:
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    # Underscores inside a word are harmless in Markdown; these are not.
    return re.sub(r"([*`<>\[\]$]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _pipes(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return f"| {' | '.join(padded)} |"
