"""The structure of a msgpack file with its arrays left in place: a bounded walk over the headers.

Written for files that may be damaged: every length is checked against the bytes left before anything is allocated, and
depth, number of items and size of strings have limits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from repcap_jax.checkpoints.mapped import MappedFile
from repcap_jax.checkpoints.store import CheckpointError, item_count, short

_MAX_DEPTH = 64
_MAX_ITEMS = 500_000
_MAX_STRING = 65_536

_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3  # Flax's extension codes

# First byte -> (kind, struct format of the value or of the length that follows)
_SIZED = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"),
    0xC7: ("ext", ">B"), 0xC8: ("ext", ">H"), 0xC9: ("ext", ">I"),
    0xCA: ("value", ">f"), 0xCB: ("value", ">d"),
    0xCC: ("value", ">B"), 0xCD: ("value", ">H"), 0xCE: ("value", ">I"), 0xCF: ("value", ">Q"),
    0xD0: ("value", ">b"), 0xD1: ("value", ">h"), 0xD2: ("value", ">i"), 0xD3: ("value", ">q"),
    0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
# First byte -> the whole header, for headers of one byte
_FIXED = {
    0xC0: ("value", None), 0xC2: ("value", False), 0xC3: ("value", True),
    0xD4: ("ext", 1), 0xD5: ("ext", 2), 0xD6: ("ext", 4), 0xD7: ("ext", 8), 0xD8: ("ext", 16),
}  # fmt: skip


@dataclass(frozen=True)
class ArrayLeaf:
    """An array left in the file: shape, dtype name, and where its bytes lie."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    count: int
    n_bytes: int


class _Header(NamedTuple):
    kind: str
    value: object  # a number or None for "value", else a length


def walk(mapped: MappedFile) -> object:
    """Walk a whole file.

    Args:
        mapped: the file.

    Returns:
        The root, with maps as dicts, arrays as ArrayLeaf, and lists and other leaves reduced to plain values or None.

    Raises:
        CheckpointError: the file is cut short, has bytes to spare, or breaks a limit.
    """
    walker = _Walker(mapped, 0, mapped.size)
    root = walker.node(0)
    walker.finish()
    return root


class _Walker:
    """A position in the file that only moves forward, up to ``end``."""

    def __init__(self, mapped: MappedFile, position: int, end: int):
        self.mapped, self.position, self.end = mapped, position, end
        self.items = 0

    def node(self, depth: int) -> object:
        """Walk one object and everything inside it."""
        self._count(1)
        if depth > _MAX_DEPTH:
            raise self._error(f"nested deeper than {_MAX_DEPTH} levels")
        kind, value = self._header()
        if kind == "map":
            return self._map(value, depth)
        if kind == "list":
            self._room(value)
            for _ in range(value):
                self.node(depth + 1)
            return None
        if kind == "ext":
            return self._extension(value)
        if kind in ("str", "bin"):
            self._skip(value)
            return None
        return value

    def finish(self) -> None:
        """Refuse bytes after the object."""
        if self.position != self.end:
            raise self._error(f"{self.end - self.position} bytes follow the end of the data")

    def _map(self, length: int, depth: int) -> dict:
        self._room(2 * length)
        found: dict[str, object] = {}
        for _ in range(length):
            key = self._string()
            if key in found:
                raise self._error(f"the key {short(key)} is given twice")
            found[key] = self.node(depth + 1)
        return found

    def _extension(self, length: int) -> ArrayLeaf | None:
        code = self.mapped.buffer[self._skip(1)]
        start = self._skip(length)
        if code in (_COMPLEX, _SCALAR):
            return None
        if code != _ARRAY:
            raise self._error(f"extension code {code} is none of Flax's (1, 2, 3)")
        inner = _Walker(self.mapped, start, start + length)
        leaf = inner._array()
        inner.finish()
        return leaf

    def _array(self) -> ArrayLeaf:
        self._expect("list", 3, "an array packed as [shape, dtype, bytes]")
        kind, rank = self._header()
        if kind != "list" or rank > 32:
            raise self._error("expected an array's shape as a list of at most 32 sizes")
        shape = []
        for _ in range(rank):
            kind, size = self._header()
            if kind != "value":
                raise self._error("expected an array's shape to hold integers")
            shape.append(size)
        dtype = self._string()
        kind, n_bytes = self._header()
        if kind not in ("bin", "str"):
            raise self._error(f"expected the bytes of an array, got {kind}")
        offset = self._skip(n_bytes)
        count = item_count(tuple(shape), f"{self.mapped.path}: array at byte {offset}")
        return ArrayLeaf(tuple(shape), dtype, offset, count, n_bytes)

    def _expect(self, kind: str, value: int, what: str) -> None:
        if self._header() != (kind, value):
            raise self._error(f"expected {what}")

    def _string(self) -> str:
        kind, length = self._header()
        if kind not in ("str", "bin") or length > _MAX_STRING:
            raise self._error(f"expected a name of at most {_MAX_STRING} bytes, got {kind}")
        start = self._skip(length)
        try:
            return self.mapped.buffer[start : start + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error("a name is not UTF-8") from error

    def _header(self) -> _Header:
        first = self.mapped.buffer[self._skip(1)]
        if first <= 0x7F:
            return _Header("value", first)
        if first <= 0x8F:
            return _Header("map", first & 0x0F)
        if first <= 0x9F:
            return _Header("list", first & 0x0F)
        if first <= 0xBF:
            return _Header("str", first & 0x1F)
        if first >= 0xE0:
            return _Header("value", first - 256)
        if first in _FIXED:
            return _Header(*_FIXED[first])
        if first not in _SIZED:
            raise self._error(f"the byte {first:#04x} starts no msgpack object")
        kind, layout = _SIZED[first]
        (value,) = struct.unpack_from(layout, self.mapped.buffer, self._skip(struct.calcsize(layout)))
        return _Header(kind, value)

    def _count(self, items: int) -> None:
        self.items += items
        if self.items > _MAX_ITEMS:
            raise self._error(f"more than {_MAX_ITEMS} items")

    def _room(self, items: int) -> None:
        """Refuse a container that claims more items than bytes are left (each takes at least one)."""
        if items > self.end - self.position:
            raise self._error(f"{items} items announced, {self.end - self.position} bytes left")

    def _skip(self, length: int) -> int:
        start = self.position
        if length > self.end - start:
            raise self._error(f"{length} bytes announced, {self.end - start} left")
        self.position += length
        return start

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.mapped.path}: at byte {self.position}: {what}; the file is damaged, cut short or not Flax's."
        )
