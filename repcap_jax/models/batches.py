"""Token sequences in padded batches of few shapes, and the compiled programs that run over them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int32

from repcap_jax.kernels.placement import AXIS, rows_mesh
from repcap_jax.models.decoder import Decoder

_SHORTEST = 16  # tokens


class Batch(NamedTuple):
    """Rows of tokens, padded on the right with zeros.

    Attributes:
      tokens: `(batch, seq)`.
      lengths: `(batch,)` tokens that are no padding; 1 for rows that are all padding.
    """

    tokens: Int32[np.ndarray, "batch seq"]
    lengths: Int32[np.ndarray, " batch"]


def bucket(size: int, shortest: int = 1) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, .. that is at least `size` and `shortest`.

    At most half is added, and sizes up to n share about 2 log2(n) compiled programs.
    """
    size = max(size, shortest)
    power = 1 << (size - 1).bit_length()
    return 3 * power // 4 if power >= 4 and size <= 3 * power // 4 else power


def padded_length(decoder: Decoder, longest: int) -> int:
    """The length to which sequences are padded, no longer than learned positions reach."""
    limit = decoder.spec.max_positions
    length = bucket(longest, _SHORTEST)
    return length if limit is None else min(length, limit)


def checked_sequences(decoder: Decoder, sequences: Any, name: str = "sequences") -> list[np.ndarray]:
    """Token ids as a list of int32 vectors.

    Args:
      decoder: whose vocabulary and positions bound them.
      sequences: a matrix, or a list of vectors that may differ in length.
      name: for errors.
    Returns:
      The vectors.
    Raises:
      TypeError: ids that are no integers.
      ValueError: no or an empty sequence, an id outside the vocabulary, a sequence longer than learned positions reach.
    """
    rows = [np.asarray(row) for row in sequences]
    if not rows:
        raise ValueError(f"{name} must hold at least one sequence of token ids")
    limit = decoder.spec.max_positions
    for i, row in enumerate(rows):
        if row.dtype.kind not in "iu" and row.size:
            raise TypeError(f"{name}[{i}] must hold integer token ids, got {row.dtype}")
        if row.ndim != 1 or not row.size:
            raise ValueError(f"{name}[{i}] must be a non-empty vector of token ids, got shape {row.shape}")
        if row.min() < 0 or row.max() >= decoder.vocab_size:
            raise ValueError(
                f"{name}[{i}] holds token ids from {row.min()} to {row.max()}; the model knows 0 to "
                f"{decoder.vocab_size - 1}. Was it tokenised for another model?"
            )
        if limit is not None and row.size > limit:
            raise ValueError(f"{name}[{i}] has {row.size} tokens; this {decoder.family} has {limit} learned positions")
    return [row.astype(np.int32) for row in rows]


def make_batch(rows: Sequence[np.ndarray], size: int, length: int) -> Batch:
    """Pad rows to `length`, and add rows of padding up to `size`."""
    tokens = np.zeros((size, length), np.int32)
    lengths = np.ones(size, np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
        lengths[i] = len(row)
    return Batch(tokens, lengths)


def on_mesh(decoder: Decoder, mesh: Mesh | None) -> Decoder:
    """The decoder on the devices of `mesh`; itself where it is there already, or None is asked for."""
    if mesh is None or (decoder.mesh is not None and rows_mesh(decoder.mesh) == rows_mesh(mesh)):
        return decoder
    moved = jax.device_put(decoder, NamedSharding(rows_mesh(mesh), P()))
    moved.mesh = mesh
    return moved


def devices_of(decoder: Decoder) -> int:
    """How many devices share a batch."""
    return 1 if decoder.mesh is None else decoder.mesh.size


def place_rows(decoder: Decoder, *arrays: np.ndarray) -> tuple[Array, ...]:
    """Arrays with one row for each sequence, on the decoder's devices."""
    if decoder.mesh is None:
        return tuple(jnp.asarray(array) for array in arrays)
    sharding = NamedSharding(rows_mesh(decoder.mesh), P(AXIS))
    return tuple(jax.device_put(array, sharding) for array in arrays)


@functools.partial(jax.jit, static_argnames="gather")
def run_states(decoder: Decoder, tokens: Array, lengths: Array, kept: Array | None, gather: bool = False) -> Array:
    """The residual stream at the kept positions (None for all), `(layers + 1, batch, kept, d)`.

    Each device runs its own rows; `gather` gives every device (and so every process) all of them at the end.
    """

    def local(decoder: Decoder, tokens: Array, lengths: Array, kept: Array | None) -> Array:
        return decoder.residuals(tokens, lengths, kept)[0]

    if decoder.mesh is None:
        return local(decoder, tokens, lengths, kept)
    mesh, rows = rows_mesh(decoder.mesh), P(AXIS)
    run = jax.shard_map(local, mesh=mesh, in_specs=(P(), rows, rows, rows), out_specs=P(None, AXIS), check_vma=False)
    states = run(decoder, tokens, lengths, kept)
    return jax.lax.with_sharding_constraint(states, NamedSharding(mesh, P())) if gather else states
