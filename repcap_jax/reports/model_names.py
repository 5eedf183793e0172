"""Names of models that tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def source_of(record: Mapping[str, Any]) -> str:
    """Where the model of a record is, as the user gave it: the record's key, less the layer of a layer's record."""
    return str(record["key"]).removesuffix(f" layer {record.get('layer')}")


def tell_apart(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records in which no two models have the same name.

    Models that share a name, as the steps of a training run do, get the end of their source that they do not share:
    `pythia-70m@step1000`, or the folder in brackets, `final (run-2)`.
    """
    records = list(records)
    sources: dict[str, set[str]] = {}
    for record in records:
        sources.setdefault(str(record.get("model", record["key"])), set()).add(source_of(record))

    def named(record: Mapping[str, Any]) -> Mapping[str, Any]:
        alike = sources[str(record.get("model", record["key"]))]
        return record if len(alike) == 1 else {**record, "model": _own_end(source_of(record), alike)}

    return [named(record) for record in records]


def _own_end(source: str, alike: set[str]) -> str:
    parts, others = source.rstrip("/").split("/"), [other.rstrip("/").split("/") for other in alike - {source}]
    for depth in range(1, len(parts) + 1):
        end = parts[-depth:]
        if all(other[-depth:] != end for other in others):
            # Figures show what follows the last slash.
            return end[-1] if depth == 1 else f"{end[-1]} ({', '.join(end[:-1])})"
    return source
