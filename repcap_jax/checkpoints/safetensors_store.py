"""One ``.safetensors`` file.

The header is parsed here and not by the safetensors library, because that library accepts a header which names a tensor
twice, and its reader holds twice the tensor in memory. Layout: eight bytes of little-endian header length, a JSON
object ``{name: {dtype, shape, data_offsets}}``, then the data that the offsets count from.
"""

from __future__ import annotations

import struct
from pathlib import Path

from repcap_jax.checkpoints.jsonfile import parse_object
from repcap_jax.checkpoints.mapped import MappedFile, MappedStore
from repcap_jax.checkpoints.store import CheckpointError, Entry, item_count, short

_MAX_HEADER = 64 * 2**20

# Stored code -> (name, bits per item). Only the floats among them can be read; the others have their span checked too.
_DTYPES = {
    "F64": ("float64", 64),
    "F32": ("float32", 32),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "I64": ("int64", 64),
    "I32": ("int32", 32),
    "I16": ("int16", 16),
    "I8": ("int8", 8),
    "U64": ("uint64", 64),
    "U32": ("uint32", 32),
    "U16": ("uint16", 16),
    "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
    "C64": ("complex64", 64),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
}


def open_safetensors(path: Path) -> MappedStore:
    """Open one ``.safetensors`` file.

    Args:
        path: the file.

    Returns:
        A store of its tensors.

    Raises:
        CheckpointError: the header is damaged, or a tensor's bytes lie outside the file or across another's.
    """
    mapped = MappedFile(path)
    try:
        return MappedStore(mapped, _entries(mapped))
    except BaseException:
        mapped.close()
        raise


def _entries(mapped: MappedFile) -> dict[str, Entry]:
    header, start = _header(mapped)
    header.pop("__metadata__", None)
    entries = {name: _entry(mapped, name, row, start) for name, row in header.items()}
    _refuse_overlap(mapped.path, header)
    return entries


def _header(mapped: MappedFile) -> tuple[dict, int]:
    if mapped.size < 8:
        raise CheckpointError(f"{mapped.path}: {mapped.size} bytes cannot hold a safetensors header; fetch it again.")
    (length,) = struct.unpack("<Q", mapped.buffer[:8])
    if length > min(_MAX_HEADER, mapped.size - 8):
        raise CheckpointError(
            f"{mapped.path}: the first eight bytes announce a header of {length} bytes, but the file has {mapped.size} "
            f"bytes and a header at most {_MAX_HEADER}; it is cut short, or not a safetensors file."
        )
    return parse_object(mapped.buffer[8 : 8 + length], f"{mapped.path} (safetensors header)"), 8 + length


def _entry(mapped: MappedFile, name: str, row: object, start: int) -> Entry:
    where = f"{mapped.path}: tensor {short(name)}"
    if not isinstance(row, dict) or not {"dtype", "shape", "data_offsets"} <= row.keys():
        raise CheckpointError(f"{where}: expected dtype, shape and data_offsets, got {short(row)}.")
    code, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(shape, list):
        raise CheckpointError(f"{where}: expected a list as shape, got {short(shape)}.")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
        raise CheckpointError(f"{where}: expected two integers as data_offsets, got {short(offsets)}.")
    count = item_count(tuple(shape), where)
    first, last = offsets
    if not 0 <= first <= last <= mapped.size - start:
        raise CheckpointError(
            f"{where}: bytes {first} to {last} lie outside the {mapped.size - start} data bytes of the file; "
            "it is cut short, fetch it again."
        )
    # A code unknown here keeps its own name; reading it says that the dtype is unsupported.
    dtype, bits = _DTYPES.get(code, (short(code), None)) if isinstance(code, str) else (short(code), None)
    if bits is not None and count * bits != 8 * (last - first):
        raise CheckpointError(
            f"{where}: {dtype} of shape {shape} takes {count * bits // 8} bytes, the header gives it {last - first}."
        )
    return Entry(tuple(shape), dtype, ((start + first, count),))


def _refuse_overlap(path: Path, header: dict) -> None:
    spans = sorted((*row["data_offsets"], name) for name, row in header.items())
    for (_, last, name), (first, end, following) in zip(spans, spans[1:], strict=False):
        if first < last and first < end:
            raise CheckpointError(f"{path}: the bytes of tensors {short(name)} and {short(following)} overlap.")
