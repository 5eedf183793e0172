"""A file as read-only memory: the operating system pages in only the bytes of the tensor that is read."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import ml_dtypes
import numpy as np

from repcap_jax.checkpoints.store import CheckpointError, Entry, FileStore

# Stored dtypes that widen (or, for float64, round) to float32, little-endian as every supported format writes them.
FLOATS: dict[str, np.dtype] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype("<f8"),
}


class MappedFile:
    """A regular, non-empty file mapped read-only; bounds are the caller's to check against ``size``."""

    def __init__(self, path: Path):
        self.path = path
        try:
            # Looked at before it is opened: opening a named pipe would wait for a writer for ever.
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{path}: expected a file, found a folder or a device; give the path of a file.")
            if status.st_size == 0:
                raise CheckpointError(f"{path}: the file is empty; the download or copy was cut short, fetch it again.")
            with open(path, "rb") as file:
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be opened ({error.strerror or error}).") from error
        self.size = len(self.buffer)

    def floats(self, entry: Entry) -> np.ndarray:
        """Copy a tensor's spans, in order, into one new float32 array of the entry's shape."""
        stored = FLOATS[entry.dtype]
        out = np.empty(sum(items for _, items in entry.spans), np.float32)
        start = 0
        with np.errstate(over="ignore", invalid="ignore"):  # float64 beyond float32 becomes inf, which callers count
            for offset, items in entry.spans:
                if items:
                    out[start : start + items] = np.frombuffer(self.buffer, stored, items, offset)
                    start += items
        return out.reshape(entry.shape)

    def close(self) -> None:
        """Unmap the file."""
        self.buffer.close()


class MappedStore(FileStore):
    """A FileStore whose tensors are plain runs of floats in a mapped file."""

    def __init__(self, mapped: MappedFile, entries: dict[str, Entry]):
        super().__init__(mapped.path, entries)
        self._mapped = mapped

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        if entry.dtype not in FLOATS:
            raise unsupported_dtype(self.path, name, entry.dtype)
        return self._mapped.floats(entry)

    def close(self) -> None:
        super().close()
        self._mapped.close()


def unsupported_dtype(path: Path, name: str, dtype: str) -> CheckpointError:
    """Build the error for a tensor stored in a dtype whose values are not the weights themselves."""
    return CheckpointError(
        f"{path}: tensor {name!r} is stored as {dtype}; expected one of {', '.join(FLOATS)}. Quantised and integer "
        "tensors need scales kept elsewhere: use an unquantised copy of the checkpoint, or convert the tensor first."
    )
