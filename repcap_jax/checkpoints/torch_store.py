"""One ``pytorch_model.bin`` file, read by torch with ``weights_only=True`` so that no pickled code can run."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from repcap_jax.checkpoints.mapped import FLOATS, unsupported_dtype
from repcap_jax.checkpoints.store import CheckpointError, Entry, FileStore, reading


class TorchStore(FileStore):
    """The tensors of one torch file; zip files (torch >= 1.6) stay memory-mapped."""

    def __init__(self, path: Path, tensors: dict):
        entries = {
            name: Entry(tuple(value.shape), str(value.dtype).removeprefix("torch.")) for name, value in tensors.items()
        }
        super().__init__(path, entries)
        self._tensors = tensors

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        if entry.dtype not in FLOATS:
            raise unsupported_dtype(self.path, name, entry.dtype)
        import torch

        out = np.empty(entry.shape, np.float32)
        with reading(self.path, f"tensor {name!r}"):
            torch.from_numpy(out).copy_(self._tensors[name])
        return out

    def close(self) -> None:
        super().close()
        self._tensors = {}


def open_torch(path: Path) -> TorchStore:
    """Open one torch file.

    Args:
        path: the file, a mapping from names to tensors.

    Returns:
        A store of its tensors.

    Raises:
        CheckpointError: torch is missing, the file is damaged, or it pickles anything but tensors.
    """
    if not path.is_file() or path.stat().st_size == 0:
        raise CheckpointError(f"{path}: expected a file with tensors, found none or an empty one; fetch it again.")
    try:
        import torch
    except ImportError as error:
        raise CheckpointError(
            f"{path}: reading torch files needs torch; run `pip install repcap_jax[torch]`, "
            "or use a safetensors copy of the checkpoint."
        ) from error
    with reading(path, "a torch file (weights_only=True, which refuses pickled code)"):
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path}: expected a mapping from names to tensors, got {type(loaded).__name__}.")
    tensors = {name: value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise CheckpointError(
            f"{path}: the mapping holds no tensors at its top level (keys {list(loaded)[:5]}); "
            "save the state dict itself, or convert it to safetensors."
        )
    return TorchStore(path, tensors)
