"""What every weight file looks like to the rest of the package: named tensors, read one at a time as float32."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np


class CheckpointError(ValueError):
    """A checkpoint cannot be read: the text says which file and tensor, what was expected, what came and what to do."""


@runtime_checkable
class TensorStore(Protocol):
    """Named tensors of one checkpoint, whatever the file format; nothing is read until it is asked for."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, dots between the path's parts."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor."""

    def known_shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape where that costs no download, else None."""

    def dtype(self, name: str) -> str:
        """Return the dtype in which the file stores one tensor, e.g. ``"bfloat16"`` or ``"Q4_K"``."""

    def read(self, name: str) -> np.ndarray:
        """Return one tensor as a float32 array of its own, allocating about that array's size and no more."""

    def close(self) -> None:
        """Release files and memory maps; arrays already read stay valid."""


@dataclass(frozen=True)
class Entry:
    """One tensor's row in a file's table of contents: shape, stored dtype, and byte spans ``(offset, items)``."""

    shape: tuple[int, ...]
    dtype: str
    spans: tuple[tuple[int, int], ...] = ()


class FileStore(ABC):
    """A TensorStore over one file whose table of contents is known when it opens."""

    def __init__(self, path: Path, entries: Mapping[str, Entry]):
        self.path = path
        self._entries = dict(entries)
        self._closed = False

    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def known_shape(self, name: str) -> tuple[int, ...] | None:
        return self.shape(name)

    def dtype(self, name: str) -> str:
        return self._entry(name).dtype

    def read(self, name: str) -> np.ndarray:
        entry = self._entry(name)
        if self._closed:
            raise CheckpointError(f"{self.path}: tensor {name!r} was asked for after closing; open the file again.")
        return self._read(name, entry)

    @abstractmethod
    def _read(self, name: str, entry: Entry) -> np.ndarray:
        """Read one known tensor as float32."""

    def close(self) -> None:
        self._closed = True

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def _entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise unknown_tensor(self.path, name, self._entries)
        return self._entries[name]


def unknown_tensor(path: Path | str, name: str, names: Mapping[str, object] | tuple[str, ...]) -> CheckpointError:
    """Build the error for a name that a file does not hold, listing the names nearest to it."""
    near = difflib.get_close_matches(str(name), list(names)[:5000], n=3, cutoff=0.5) or list(names)[:3]
    hint = f" Nearest names: {', '.join(near)}." if near else ""
    return CheckpointError(f"{path}: no tensor named {name!r} among its {len(names)} tensors.{hint}")


def item_count(shape: tuple[int, ...], where: str) -> int:
    """Return the number of items of a shape read from a file, refusing shapes that no array can have.

    Args:
        shape: the dimensions as the file states them.
        where: file and tensor, for the error's text.

    Returns:
        The product of the dimensions.

    Raises:
        CheckpointError: a dimension is not a non-negative integer, or the array could not be addressed.
    """
    if len(shape) > 32 or any(type(size) is not int or size < 0 for size in shape):
        raise CheckpointError(f"{where}: expected a shape of at most 32 non-negative integers, got {short(shape)}.")
    count, addressed = 1, 1
    for size in shape:
        count, addressed = count * size, addressed * max(size, 1)
    if addressed > 2**58:  # NumPy must be able to address 8-byte items, empty dimensions counted as one
        raise CheckpointError(f"{where}: the shape {short(shape)} is larger than any array; the file is corrupt.")
    return count


def short(value: object, limit: int = 120) -> str:
    """Return repr(value), cut to a length that fits in an error message."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Turn whatever a third-party parser raises on a damaged file into a CheckpointError naming the file."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: cannot read {what} ({type(error).__name__}: {short(str(error), 300)}); "
            "the file is damaged, or not of the kind its name says."
        ) from error
