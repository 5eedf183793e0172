"""One ``.gguf`` file: floats read straight, quantised tensors widened to float32 block of rows by block of rows.

The header is walked by :mod:`repcap_jax.checkpoints.gguf_header`, since ``gguf.GGUFReader`` decodes every token of the
vocabulary before the first tensor can be reached. That package is used for its dequantisation alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repcap_jax.checkpoints.gguf_header import TYPES, Metadata, read_header
from repcap_jax.checkpoints.mapped import FLOATS, MappedFile, MappedStore, unsupported_dtype
from repcap_jax.checkpoints.store import CheckpointError, Entry, reading

_QUANTISED = {name: (number, block, size) for number, (name, block, size) in TYPES.items() if block > 1}
_BLOCK_ITEMS = 2**16  # float32 items dequantised at a time: small beside an embedding, large beside a row


class GGUFStore(MappedStore):
    """The tensors and the metadata of one GGUF file."""

    def __init__(self, mapped: MappedFile, entries: dict[str, Entry], metadata: Metadata):
        super().__init__(mapped, entries)
        self.metadata = metadata

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        if entry.dtype in FLOATS:
            return self._mapped.floats(entry)
        if entry.dtype not in _QUANTISED:
            raise unsupported_dtype(self.path, name, entry.dtype)
        return self._dequantised(name, entry)

    def _dequantised(self, name: str, entry: Entry) -> np.ndarray:
        try:
            from gguf.constants import GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError as error:
            raise CheckpointError(
                f"{self.path}: tensor {name!r} is quantised ({entry.dtype}) and the gguf package is not installed; "
                "run `pip install repcap_jax[gguf]`."
            ) from error
        number, block, block_bytes = _QUANTISED[entry.dtype]
        ((offset, count),) = entry.spans
        out = np.empty(count, np.float32)
        if count:
            width = entry.shape[-1]
            rows_at_once = max(1, _BLOCK_ITEMS // width) * width
            with reading(self.path, f"tensor {name!r} ({entry.dtype})"), np.errstate(all="ignore"):
                for start in range(0, count, rows_at_once):
                    items = min(rows_at_once, count - start)
                    first, size = offset + start // block * block_bytes, items // block * block_bytes
                    stored = np.frombuffer(self._mapped.buffer, np.uint8, size, first)
                    rows = stored.reshape(items // width, width // block * block_bytes)
                    out[start : start + items] = dequantize(rows, GGMLQuantizationType(number)).reshape(-1)
        return out.reshape(entry.shape)


def open_gguf(path: Path) -> GGUFStore:
    """Open one GGUF file.

    Args:
        path: the file; one part of a split model is refused, since the other parts hold the rest.

    Returns:
        A store of its tensors with the file's metadata.

    Raises:
        CheckpointError: the header is damaged, or the file is one part of several.
    """
    mapped = MappedFile(path)
    try:
        metadata, entries = read_header(mapped)
        parts = metadata.get("split.count", 1)
        if parts not in (0, 1):
            raise CheckpointError(
                f"{path}: this is one of {parts} parts of a split model; join them first with llama.cpp's "
                "`llama-gguf-split --merge FIRST_PART OUTPUT`."
            )
        return GGUFStore(mapped, entries, metadata)
    except BaseException:
        mapped.close()
        raise
