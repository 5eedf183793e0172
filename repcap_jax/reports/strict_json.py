"""JSON that every reader accepts: plain types only, and null with a reason instead of NaN or infinity."""

from __future__ import annotations

import datetime
import enum
import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

Record = dict[str, Any]


def json_ready(value: Any) -> Any:
    """Return `value` in plain JSON types.

    Args:
      value: numbers, strings, NumPy or JAX scalars and arrays, paths, enums, dates, and mappings, sequences and sets
        of them, nested as deep as you like.
    Returns:
      The same in dict, list, str, int, float, bool and None. NaN and infinities become None; inside a mapping
      `<key>_reason` then says what stood there, unless the mapping already gives a reason of its own.
    Raises:
      TypeError: if something has no JSON form (a function, bytes, a complex number), with its place in the value.
    """
    return _ready(value, "value")


def dump_line(value: Any) -> str:
    """Return `value` as strict JSON on one line, without the line break."""
    return json.dumps(json_ready(value), allow_nan=False, ensure_ascii=False, separators=(", ", ": "))


def dump_pretty(value: Any) -> str:
    """Return `value` as strict indented JSON with a final line break."""
    return json.dumps(json_ready(value), allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def parse_strict(text: str | bytes) -> Any:
    """Parse JSON, refusing the NaN and Infinity that Python's own reader lets through.

    Raises:
      ValueError: if the text is not strict JSON (or not UTF-8).
    """
    return json.loads(text, parse_constant=_refuse_constant)


def encoded(text: str) -> bytes:
    """Return UTF-8 bytes of any text: what a file name may hold but UTF-8 may not becomes an escape that JSON reads."""
    return text.encode(errors="backslashreplace")


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits that identify `value`, whatever the order of its keys."""
    text = json.dumps(json_ready(value), allow_nan=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _ready(value: Any, place: str) -> Any:
    if value is None or isinstance(value, bool | str) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return _ready(value.value, place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return _ready_mapping(value, place)
    if isinstance(value, list | tuple):
        return [_ready(item, f"{place}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return sorted((_ready(item, place) for item in value), key=repr)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if hasattr(value, "__array__"):  # NumPy and JAX scalars and arrays, ml_dtypes numbers among them
        return _ready_array(np.asarray(value), place)
    raise TypeError(f"{place} is a {type(value).__name__}, which has no JSON form: {value!r}")


def _ready_mapping(mapping: Mapping[Any, Any], place: str) -> Record:
    ready: Record = {str(key): _ready(item, f"{place}.{key}") for key, item in mapping.items()}
    for key, item in mapping.items():
        reason = f"{key}_reason"
        if item is not None and ready[str(key)] is None and ready.get(reason) is None:
            ready[reason] = f"the value was {item}"  # only a lone number turns into None: it was NaN or infinite
    return ready


def _ready_array(array: np.ndarray, place: str) -> Any:
    if array.dtype.kind in "biuU":
        return array.tolist()
    if array.dtype.kind in "fV":  # V: bfloat16 and its relatives
        return _ready(array.astype(np.float64).tolist(), place)
    if array.dtype.kind == "O":
        return _ready(array.tolist(), place)
    raise TypeError(f"{place} is an array of {array.dtype}, which has no JSON form")
