"""Bare arrays: ``.npy`` (memory-mapped) and ``.npz``; pickled objects are never loaded."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from repcap_jax.checkpoints.mapped import FLOATS, MappedFile, unsupported_dtype
from repcap_jax.checkpoints.store import CheckpointError, Entry, FileStore, item_count, reading

NPY_NAME = "array"  # the one tensor of a .npy file
_BLOCK_BYTES = 2**18


class _NpyStore(FileStore):
    def __init__(self, path: Path, array: np.ndarray):
        super().__init__(path, {NPY_NAME: Entry(array.shape, _dtype_name(array.dtype))})
        self._array: np.ndarray | None = array

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        if entry.dtype not in FLOATS:
            raise unsupported_dtype(self.path, name, entry.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(self._array, dtype=np.float32, order="C")

    def close(self) -> None:
        super().close()
        self._array = None  # the map goes with its last reference


class _NpzStore(FileStore):
    def __init__(self, path: Path, archive: zipfile.ZipFile, headers: dict[str, tuple[np.dtype, bool, Entry]]):
        super().__init__(path, {name: entry for name, (_, _, entry) in headers.items()})
        self._archive, self._headers = archive, headers

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        dtype, fortran_order, _ = self._headers[name]
        if entry.dtype not in FLOATS:
            raise unsupported_dtype(self.path, name, entry.dtype)
        with reading(self.path, f"array {name!r}"), self._archive.open(f"{name}.npy") as member:
            _npy_header(member)
            flat = _stream(member, dtype, item_count(entry.shape, f"{self.path}: array {name!r}"))
        return np.ascontiguousarray(flat.reshape(entry.shape[::-1]).T) if fortran_order else flat.reshape(entry.shape)

    def close(self) -> None:
        super().close()
        self._archive.close()


def open_npy(path: Path) -> FileStore:
    """Open one ``.npy`` file.

    Args:
        path: the file.

    Returns:
        A store of one tensor named ``"array"``.

    Raises:
        CheckpointError: the file is damaged, or holds pickled objects.
    """
    MappedFile(path).close()  # refuses folders, devices and empty files with the usual words
    with reading(path, "an .npy array"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise CheckpointError(f"{path}: expected one .npy array, found an archive; name it .npz.")
    return _NpyStore(path, array)


def open_npz(path: Path) -> FileStore:
    """Open one ``.npz`` archive.

    Args:
        path: the file.

    Returns:
        A store of its arrays under the names they were saved with.

    Raises:
        CheckpointError: the archive or an array's header is damaged, or holds pickled objects.
    """
    MappedFile(path).close()
    with reading(path, "an .npz archive"):
        archive = zipfile.ZipFile(path)
        try:
            headers = {}
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    name = info.filename.removesuffix(".npy")
                    headers[name] = _member_header(path, archive, info, name)
            return _NpzStore(path, archive, headers)
        except BaseException:
            archive.close()
            raise


def _member_header(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str
) -> tuple[np.dtype, bool, Entry]:
    with archive.open(info) as member:
        shape, fortran_order, dtype = _npy_header(member)
        expected = member.tell() + item_count(shape, f"{path}: array {name!r}") * dtype.itemsize
    # Checked before anything is allocated: the size a header claims must be the size the archive claims, and that can
    # exceed the compressed bytes by no more than deflate's ratio of about 1032.
    if expected != info.file_size or info.file_size > 1100 * info.compress_size:
        raise CheckpointError(
            f"{path}: array {name!r} of shape {shape} and dtype {dtype} takes {expected} bytes, but the archive holds "
            f"{info.file_size} ({info.compress_size} compressed); the file is damaged."
        )
    return dtype, fortran_order, Entry(shape, _dtype_name(dtype))


def _npy_header(member: zipfile.ZipExtFile) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    return np.lib.format.read_array_header_2_0(member)


def _stream(member: zipfile.ZipExtFile, dtype: np.dtype, count: int) -> np.ndarray:
    """Decompress ``count`` items into one float32 array, a block at a time."""
    out = np.empty(count, np.float32)
    step = _BLOCK_BYTES // dtype.itemsize
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, count, step):
            items = min(step, count - start)
            raw = member.read(items * dtype.itemsize)
            out[start : start + items] = np.frombuffer(raw, dtype, items)
    member.read(1)  # reaching the end makes zipfile compare the checksum
    return out


def _dtype_name(dtype: np.dtype) -> str:
    return dtype.name if dtype.kind in "fiub" else str(dtype)
