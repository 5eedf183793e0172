"""Several weight files with an index that says which tensor lies in which; a shard opens when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from repcap_jax.checkpoints.files import Files
from repcap_jax.checkpoints.jsonfile import load_object
from repcap_jax.checkpoints.store import CheckpointError, TensorStore, short, unknown_tensor

_MAX_INDEX = 128 * 2**20


class ShardedStore:
    """A TensorStore over the shards of one ``*.index.json``; on the Hub only the shards asked for are downloaded."""

    def __init__(self, files: Files, index: str, open_one: Callable[[Path], TensorStore]):
        self._files, self._open_one = files, open_one
        self._index = files.path(index)
        self._shard_of = _weight_map(self._index, files)
        self._open: dict[str, TensorStore] = {}
        self._closed = False

    def names(self) -> tuple[str, ...]:
        return tuple(self._shard_of)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shard(name).shape(name)

    def known_shape(self, name: str) -> tuple[int, ...] | None:
        at_hand = self._shard_of.get(name) in self._open or not self._files.remote
        return self.shape(name) if at_hand else None

    def dtype(self, name: str) -> str:
        return self._shard(name).dtype(name)

    def read(self, name: str) -> np.ndarray:
        return self._shard(name).read(name)

    def close(self) -> None:
        self._closed = True
        for store in self._open.values():
            store.close()
        self._open.clear()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def _shard(self, name: str) -> TensorStore:
        if self._closed:
            raise CheckpointError(f"{self._index}: tensor {name!r} was asked for after closing; open it again.")
        if name not in self._shard_of:
            raise unknown_tensor(self._index, name, self._shard_of)
        shard = self._shard_of[name]
        if shard not in self._open:
            self._open[shard] = self._open_one(self._files.path(shard))
        store = self._open[shard]
        if name not in store.names():
            raise CheckpointError(
                f"{self._index}: tensor {name!r} should be in {shard}, but that file does not hold it; "
                "index and shards are from different saves, fetch both again."
            )
        return store


def _weight_map(index: Path, files: Files) -> dict[str, str]:
    """Return tensor name -> shard's file name, after checking that each shard is a bare name and there."""
    weight_map = load_object(index, _MAX_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: expected a `weight_map` from tensor names to files, got {short(weight_map)}.")
    present = set(files.names())
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_bare(shard):
            raise CheckpointError(
                f"{index}: tensor {short(name)} is said to be in {short(shard)}; expected the bare name of a file "
                "in the same folder. Such an index could read anything: do not trust this checkpoint."
            )
        if files.complete and shard not in present:
            raise CheckpointError(
                f"{index}: tensor {short(name)} is said to be in {shard}, which {files.label} lacks; fetch that file."
            )
    return {name.replace("/", "."): shard for name, shard in weight_map.items()}  # Flax's index keys use slashes


def _is_bare(name: str) -> bool:
    return name not in ("", ".", "..") and not any(mark in name for mark in "/\\:\0")
