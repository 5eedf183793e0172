"""One ``flax_model.msgpack`` file, indexed by walking its headers and never unpacked as a whole.

``flax.serialization.msgpack_restore`` builds every array of the file before one can be used. Here only the structure is
walked, over a memory map: maps with string keys whose leaves are msgpack extension 1, itself a packed
``[shape, dtype name, bytes]``. Arrays above 2**30 bytes are maps marked ``__msgpack_chunked_array__`` whose chunks cut
the flattened array anywhere.
"""

from __future__ import annotations

import math
from pathlib import Path

from repcap_jax.checkpoints.mapped import FLOATS, MappedFile, MappedStore
from repcap_jax.checkpoints.msgpack_walk import ArrayLeaf, walk
from repcap_jax.checkpoints.store import CheckpointError, Entry, short

_CHUNK_MARK = "__msgpack_chunked_array__"


def open_flax(path: Path) -> MappedStore:
    """Open one Flax msgpack file.

    Args:
        path: the file; a shard holding only an empty map is a store without tensors.

    Returns:
        A store of its arrays, named by their keys joined with dots.

    Raises:
        CheckpointError: the structure is damaged, too deep, or holds something that is no Flax parameter tree.
    """
    mapped = MappedFile(path)
    try:
        tree = walk(mapped)
        if not isinstance(tree, dict):
            raise CheckpointError(f"{path}: expected a map of parameters at the root, got {type(tree).__name__}.")
        entries: dict[str, Entry] = {}
        _flatten(path, tree, (), entries)
        return MappedStore(mapped, entries)
    except BaseException:
        mapped.close()
        raise


def _flatten(path: Path, tree: dict, keys: tuple[str, ...], entries: dict[str, Entry]) -> None:
    """Collect the arrays of a walked tree; counters, strings and lists beside them are no weights and are left out."""
    for key, node in tree.items():
        name = ".".join((*keys, key)).replace("/", ".")
        if isinstance(node, ArrayLeaf):
            entry = _checked(path, name, node.shape, (node,))
        elif isinstance(node, dict) and _CHUNK_MARK in node:
            entry = _chunked(path, name, node)
        elif isinstance(node, dict):
            _flatten(path, node, (*keys, key), entries)
            continue
        else:
            continue
        if name in entries:
            raise CheckpointError(f"{path}: two arrays are named {short(name)}.")
        entries[name] = entry


def _chunked(path: Path, name: str, node: dict) -> Entry:
    shape, chunks = _ordered(node.get("shape")), _ordered(node.get("chunks"))
    if not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"{path}: array {short(name)}: expected sizes as the chunked shape, got {short(shape)}.")
    if not chunks or not all(isinstance(chunk, ArrayLeaf) for chunk in chunks):
        raise CheckpointError(f"{path}: array {short(name)}: expected its chunks to be arrays numbered from 0.")
    if len({chunk.dtype for chunk in chunks}) != 1:
        raise CheckpointError(f"{path}: array {short(name)}: its chunks differ in dtype.")
    return _checked(path, name, tuple(shape), tuple(chunks))


def _ordered(numbered: object) -> list:
    """Return the values of ``{"0": a, "1": b, ...}`` in order; empty where the keys are anything else."""
    if not isinstance(numbered, dict) or set(numbered) != {str(i) for i in range(len(numbered))}:
        return []
    return [numbered[str(i)] for i in range(len(numbered))]


def _checked(path: Path, name: str, shape: tuple[int, ...], leaves: tuple[ArrayLeaf, ...]) -> Entry:
    """Make an entry after checking that the bytes of each leaf, and of all together, fit the shapes."""
    dtype = leaves[0].dtype
    if dtype in FLOATS:
        size = FLOATS[dtype].itemsize
        for leaf in leaves:
            if leaf.count * size != leaf.n_bytes:
                raise CheckpointError(
                    f"{path}: array {short(name)}: {dtype} of shape {leaf.shape} takes {leaf.count * size} bytes, "
                    f"got {leaf.n_bytes}."
                )
    if math.prod(shape) != sum(leaf.count for leaf in leaves):
        raise CheckpointError(f"{path}: array {short(name)}: its chunks do not add up to the shape {short(shape)}.")
    return Entry(shape, dtype, tuple((leaf.offset, leaf.count) for leaf in leaves))
