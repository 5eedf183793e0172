"""Files that are either whole or absent, whenever the process dies."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from repcap_jax.reports.strict_json import encoded

_TEMPORARY = ".partial"


@contextlib.contextmanager
def atomic_file(path: Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary neighbour of `path` for writing; on success it takes the place of `path`, else it vanishes.

    Args:
      path: the file to write. Missing folders are made.
      durable: bring it to the disk before it takes its place, so that it survives a loss of power as well. This can
        wait long for a busy disk; what can be made again does without.
    Returns:
      A context manager giving a binary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are private to the user, and results are for colleagues to read.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed process left in `folder`."""
    for path in folder.glob(f".*{_TEMPORARY}"):
        path.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, and bring it to the disk before returning.

    Args:
      path: the file, made if it is absent.
      line: text without line breaks.
    Raises:
      ValueError: if the line contains a line break.
      OSError: if it could not be written whole (the disk is full); what was written of it is taken back.
    """
    if "\n" in line:
        raise ValueError("a line cannot contain a line break")
    data = encoded(line) + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        written = os.write(descriptor, data)
        if written != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(f"{path}: only {written} of {len(data)} bytes could be written; is the disk full?")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def safe_name(name: str) -> str:
    """Return a file name for a model's name: no slashes, no leading dot, at most about 90 characters.

    Args:
      name: for instance a Hub id, `organisation/model`.
    Returns:
      The name itself where it is harmless, otherwise its harmless part and a digest that keeps different names apart.
    """
    clean = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:80]
    if name and clean == name:
        return name
    return f"{clean or 'model'}-{hashlib.sha256(encoded(name)).hexdigest()[:8]}"
