"""A report in one HTML file that needs nothing else: figures and tables inside, readable on a phone and on paper."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from repcap_jax.reports.report_template import TEMPLATE
from repcap_jax.reports.tables import Table
from repcap_jax.reports.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Image:
    """A figure of the workdir.

    Attributes:
      name: file name of the saved figure, without an ending.
      caption: what it shows.
    """

    name: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
      title: heading.
      text: paragraphs.
      tables: as `write_table` returns them.
      images: figures saved by `save_figure`.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    images: Sequence[Image] = ()


def write_report(
    workdir: Workdir, title: str, sections: Sequence[Section], warnings: Sequence[str] = (), name: str = "report.html"
) -> Path:
    """Write a report as one HTML file; all text is escaped, and nothing is fetched when it is read.

    Args:
      workdir: where to, and where the figures and the run record are.
      title: heading.
      sections: parts, in order.
      warnings: sentences shown at the top: failed cells, missing figures.
      name: file name.
    Returns:
      The path of the file.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    missing: list[str] = []
    parts = [{**vars(section), "images": _embed(workdir, section.images, missing)} for section in sections]
    page = environment.from_string(TEMPLATE).render(
        title=title,
        subtitle=_subtitle(workdir.run),
        warnings=[*warnings, *missing],
        sections=parts,
        record=run_summary(workdir.run),
        settings=[(key, _text(value)) for key, value in workdir.run.get("settings", {}).items()],
    )
    return workdir.write_text(name, page)


def run_summary(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a reader wants to know of a run, as names and texts."""
    git, machine = run.get("git") or {}, run.get("machine") or {}
    commit = f"{git['commit']}{' with uncommitted changes' if git.get('dirty') else ''}" if git else "unknown"
    installed = {name: version for name, version in (run.get("versions") or {}).items() if version}
    lines = {
        "experiment": run.get("experiment"),
        "started": run.get("started"),
        "starts before": len(run.get("history") or []),
        "code": commit,
        "versions": ", ".join(f"{name} {version}" for name, version in installed.items()),
        "devices": ", ".join(run.get("devices") or []),
        "machine": ", ".join(str(machine[key]) for key in ("platform", "processor") if machine.get(key)),
        "seed": run.get("seed"),
        "random generator": run.get("prng"),
        "settings digest": run.get("settings_digest"),
    }
    return [(name, _text(value)) for name, value in lines.items() if value not in (None, "")]


def _embed(workdir: Workdir, images: Sequence[Image], missing: list[str]) -> list[dict[str, str]]:
    """Figures as base64; those that are not there are named instead of ending the report."""
    embedded = []
    for image in images:
        try:
            data = workdir.path(f"{image.name}.png").read_bytes()
        except OSError as error:
            missing.append(f"The figure {image.name} is missing: {error.strerror or error}.")
            continue
        files = f"{image.name}.png, {image.name}.pdf"
        embedded.append({"caption": image.caption, "files": files, "data": base64.b64encode(data).decode()})
    return embedded


def _subtitle(run: Mapping[str, Any]) -> str:
    version = (run.get("versions") or {}).get("repcap_jax")
    made = f"repcap_jax {version}" if version else "repcap_jax"
    return f"{made}, experiment {run.get('experiment', '?')}, started {run.get('started', '?')}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
