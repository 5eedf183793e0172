"""The header of a GGUF file: metadata and table of tensors, walked with limits and decoded only where asked.

Versions 2 and 3, little-endian. Layout: magic, version, tensor count, metadata count; the metadata as key, type, value;
per tensor its name, sizes (fastest-varying first, the reverse of NumPy), type and offset; then the data, aligned.
A vocabulary's token list is a metadata array with one string per token: it is stepped over when the file opens and
decoded when somebody asks for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from repcap_jax.checkpoints.mapped import MappedFile
from repcap_jax.checkpoints.store import CheckpointError, Entry, item_count, short

_MAX_HEADER = 512 * 2**20
_MAX_KEYS = 65_536
_MAX_TENSORS = 65_536
_MAX_NAME = 65_535
_MAX_STRING = 16 * 2**20
_MAX_ITEMS = 8_000_000
_MAX_DIMENSIONS = 4  # as ggml itself
_MAX_ALIGNMENT = 2**20

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

# ggml type number -> (name, items per block, bytes per block)
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("float32", 1, 4), 1: ("float16", 1, 2), 30: ("bfloat16", 1, 2), 28: ("float64", 1, 8),
    24: ("int8", 1, 1), 25: ("int16", 1, 2), 26: ("int32", 1, 4), 27: ("int64", 1, 8),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip


class _Array(NamedTuple):
    """An array of the metadata, left in the file."""

    kind: int
    length: int
    offset: int


class Metadata(Mapping):
    """The key-value pairs of a GGUF header; arrays are decoded each time they are looked up."""

    def __init__(self, mapped: MappedFile, values: dict[str, object]):
        self._mapped, self._values = mapped, values

    def __getitem__(self, key: str) -> object:
        value = self._values[key]
        return _Cursor(self._mapped, value.offset).items(value) if isinstance(value, _Array) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def length(self, key: str) -> int | None:
        """Return the number of items of an array without decoding it; None where there is no such array."""
        value = self._values.get(key)
        return value.length if isinstance(value, _Array) else None


def read_header(mapped: MappedFile) -> tuple[Metadata, dict[str, Entry]]:
    """Walk the header of a GGUF file.

    Args:
        mapped: the file.

    Returns:
        The metadata, and each tensor's shape (in NumPy's order), type name and span in the file.

    Raises:
        CheckpointError: not GGUF, an unsupported version, cut short, or a limit broken.
    """
    cursor = _Cursor(mapped, 0)
    n_tensors, n_keys = cursor.start()
    values: dict[str, object] = {}
    for _ in range(n_keys):
        key = cursor.string(_MAX_NAME)
        if key in values:
            raise cursor.error(f"the key {short(key)} is given twice")
        values[key] = cursor.value()
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.error(f"general.alignment is {short(alignment)}, expected a power of two up to {_MAX_ALIGNMENT}")
    rows = [cursor.tensor() for _ in range(n_tensors)]
    data = -(-cursor.position // alignment) * alignment
    return Metadata(mapped, values), _entries(cursor, rows, data, alignment)


class _Row(NamedTuple):
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _entries(cursor: _Cursor, rows: list[_Row], data: int, alignment: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    spans = []
    for name, shape, kind, offset in rows:
        where = f"{cursor.mapped.path}: tensor {short(name)}"
        if name in entries:
            raise CheckpointError(f"{where}: listed twice.")
        if kind not in TYPES:
            raise CheckpointError(f"{where}: the type number {kind} is none known; the file is damaged, or too new.")
        dtype, block, block_bytes = TYPES[kind]
        count = item_count(shape, where)
        if shape and shape[-1] % block:
            raise CheckpointError(f"{where}: rows of {shape[-1]} items are no multiple of {dtype}'s block of {block}.")
        size = count // block * block_bytes
        if offset % alignment or offset + size > cursor.mapped.size - data:
            raise CheckpointError(
                f"{where}: {size} bytes at offset {offset} lie outside the {max(cursor.mapped.size - data, 0)} data "
                f"bytes of the file or off its alignment of {alignment}; it is cut short or damaged, fetch it again."
            )
        entries[name] = Entry(shape, dtype, ((data + offset, count),))
        spans.append((offset, offset + size, name))
    spans.sort()
    for (first, last, name), (start, end, following) in zip(spans, spans[1:], strict=False):
        if first < end and start < last and start < end:
            raise CheckpointError(
                f"{cursor.mapped.path}: the bytes of tensors {short(name)} and {short(following)} overlap."
            )
    return entries


class _Cursor:
    """A position in the header that only moves forward."""

    def __init__(self, mapped: MappedFile, position: int):
        self.mapped, self.position = mapped, position
        self.end = min(mapped.size, _MAX_HEADER)

    def start(self) -> tuple[int, int]:
        """Read magic, version and counts; return the numbers of tensors and of metadata keys."""
        if self.mapped.size < 24 or self.mapped.buffer[:4] != b"GGUF":
            raise CheckpointError(f"{self.mapped.path}: no GGUF header; the file is damaged or of another kind.")
        self.position = 4
        version = self.number("I")
        if version not in (2, 3):
            note = " (big-endian, it seems)" if version & 0xFFFF == 0 else ""
            raise CheckpointError(
                f"{self.mapped.path}: GGUF version {version}{note}; expected 2 or 3, little-endian. Convert it again."
            )
        n_tensors, n_keys = self.number("Q"), self.number("Q")
        if n_tensors > _MAX_TENSORS or n_keys > _MAX_KEYS:
            raise self.error(f"{n_tensors} tensors and {n_keys} metadata keys announced")
        return n_tensors, n_keys

    def number(self, layout: str):
        return struct.unpack_from("<" + layout, self.mapped.buffer, self.skip(struct.calcsize("<" + layout)))[0]

    def string(self, limit: int) -> str:
        length = self.number("Q")
        if length > limit:
            raise self.error(f"a string of {length} bytes announced, the limit is {limit}")
        start = self.skip(length)
        try:
            return self.mapped.buffer[start : start + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error("a string is not UTF-8") from error

    def value(self) -> object:
        """Read one metadata value; an array is stepped over and returned as its place."""
        kind = self.number("I")
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string(_MAX_STRING)
        if kind != _ARRAY:
            raise self.error(f"the metadata type {kind} is none known")
        return self._array()

    def _array(self) -> _Array:
        kind, length = self.number("I"), self.number("Q")
        if length > _MAX_ITEMS:
            raise self.error(f"an array of {length} items announced, the limit is {_MAX_ITEMS}")
        array = _Array(kind, length, self.position)
        if kind in _SCALARS:
            self.skip(length * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(length):
                self.skip(self.number("Q"))
        else:
            raise self.error(f"an array of the metadata type {kind} cannot be read")
        return array

    def items(self, array: _Array) -> list:
        """Decode an array that was stepped over."""
        if array.kind == _STRING:
            return [self.string(_MAX_STRING) for _ in range(array.length)]
        layout = f"<{array.length}{_SCALARS[array.kind]}"
        return list(struct.unpack_from(layout, self.mapped.buffer, array.offset))

    def tensor(self) -> _Row:
        name, rank = self.string(_MAX_NAME), self.number("I")
        if rank > _MAX_DIMENSIONS:
            raise self.error(f"tensor {short(name)} has {rank} dimensions, the limit is {_MAX_DIMENSIONS}")
        sizes = tuple(self.number("Q") for _ in range(rank))
        return _Row(name, sizes[::-1], self.number("I"), self.number("Q"))

    def skip(self, length: int) -> int:
        start = self.position
        if length > self.end - start:
            raise self.error(f"{length} bytes announced, {self.end - start} left of the header")
        self.position += length
        return start

    def error(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.mapped.path}: at byte {self.position} of the GGUF header: {what}; the file is cut short or damaged."
        )
