"""Which file of a folder or repository holds the weights, and the store that reads it.

Where several formats are present the exact ones come first, and among them those that need no extra package:
safetensors, Flax msgpack, torch, then GGUF (usually quantised), then bare arrays. Within a format the single file comes
before the index of a sharded one, as in transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from repcap_jax.checkpoints.array_store import open_npy, open_npz
from repcap_jax.checkpoints.files import Files
from repcap_jax.checkpoints.flax_store import open_flax
from repcap_jax.checkpoints.gguf_store import open_gguf
from repcap_jax.checkpoints.safetensors_store import open_safetensors
from repcap_jax.checkpoints.sharded import ShardedStore
from repcap_jax.checkpoints.store import CheckpointError, TensorStore
from repcap_jax.checkpoints.torch_store import open_torch

_INDEX = ".index.json"


class _Format(NamedTuple):
    name: str
    suffix: str
    usual: str | None  # the file name that transformers writes
    open_one: Callable[[Path], TensorStore]


_FORMATS = (
    _Format("safetensors", ".safetensors", "model.safetensors", open_safetensors),
    _Format("flax", ".msgpack", "flax_model.msgpack", open_flax),
    _Format("torch", ".bin", "pytorch_model.bin", open_torch),
    _Format("gguf", ".gguf", None, open_gguf),
    _Format("npy", ".npy", None, open_npy),
    _Format("npz", ".npz", None, open_npz),
)
# The names that a model's weights have; only beside these is a config.json or tokenizer taken to describe a lone file.
_MODEL_FILE = re.compile(r"(model|flax_model|pytorch_model)(-\d+-of-\d+)?\.\w+")


class Choice(NamedTuple):
    """A weight file (or index) and its format's name."""

    format: str
    file: str


def choose(files: Files, file: str | None) -> Choice:
    """Choose the file that holds the weights.

    Args:
        files: the folder or repository.
        file: the name of the file to read; None to choose by the order in the module's docstring.

    Returns:
        The format and the file's name.

    Raises:
        CheckpointError: nothing readable, several candidates of one format, or an unknown suffix.
    """
    present = files.names()
    if file is not None:
        if file not in present:
            raise CheckpointError(f"{files.label}: no file {file!r}; present: {_listed(present)}.")
        return Choice(_format_of(files, file).name, file)
    for kind in _FORMATS:
        usual = () if kind.usual is None else (kind.usual, kind.usual + _INDEX)
        found = [name for name in usual if name in present][:1] or [name for name in present if _holds(kind, name)]
        if len(found) > 1:
            raise CheckpointError(
                f"{files.label}: {len(found)} {kind.name} files and no way to tell which is meant; "
                f"name one with file=...: {_listed(tuple(found))}."
            )
        if found:
            return Choice(kind.name, found[0])
    raise CheckpointError(
        f"{files.label}: expected weights (model.safetensors, flax_model.msgpack, pytorch_model.bin, sharded or not, "
        f"*.gguf, *.npy or *.npz), found {_listed(present)}."
    )


def open_store(files: Files, choice: Choice) -> TensorStore:
    """Open the chosen file, or the shards behind a chosen index.

    Args:
        files: the folder or repository.
        choice: as from :func:`choose`.

    Returns:
        The tensors.

    Raises:
        CheckpointError: the file is damaged or cannot be had.
    """
    kind = _format_of(files, choice.file)
    if choice.file.endswith(_INDEX):
        return ShardedStore(files, choice.file, kind.open_one)
    return kind.open_one(files.path(choice.file))


def belongs_to_model(file: str) -> bool:
    """Whether a file's name is one that a model's weights have, so that what lies beside it describes it."""
    return file.endswith(_INDEX) or _MODEL_FILE.fullmatch(file) is not None


def _format_of(files: Files, file: str) -> _Format:
    for kind in _FORMATS:
        if file.removesuffix(_INDEX).endswith(kind.suffix):
            return kind
    known = ", ".join(kind.suffix for kind in _FORMATS)
    raise CheckpointError(f"{files.label}: {file!r} is of no known format; expected a name ending in one of {known}.")


def _holds(kind: _Format, name: str) -> bool:
    """Whether an unusually named file may hold the weights; .bin is used for much else, so it must be named in full."""
    return kind.usual != "pytorch_model.bin" and name.removesuffix(_INDEX).endswith(kind.suffix)


def _listed(names: tuple[str, ...]) -> str:
    return (", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")) or "no files"
