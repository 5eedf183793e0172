"""Hidden states: of a batch as a whole, or of a corpus at the token positions asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float32

from repcap_jax.models.batches import (
    bucket,
    checked_sequences,
    devices_of,
    make_batch,
    on_mesh,
    padded_length,
    place_rows,
    run_states,
)
from repcap_jax.models.decoder import Decoder

Progress = Callable[[int, int], None]  # sequences done, sequences in all

# Tokens in a batch on each device: enough to keep matrix products busy, few enough for a laptop's memory.
_TOKENS_ON_CPU, _TOKENS_ELSEWHERE = 2048, 16384


def hidden_states(
    decoder: Decoder, token_ids: Any, *, mesh: Mesh | None = None
) -> Float32[Array, "layers_and_one batch seq d"]:
    """The residual stream of every layer at every position, before the final norm.

        h_0 = what the first block gets (token embedding, scale, learned positions, embedding norm)
        h_i = what block i gives, i = 1 .. layers

    Causal: position t depends on tokens up to t, so sequences may be padded on the right with any token; but models
    whose rotations depend on the length (rope_scaling dynamic and longrope) see padding beyond their limit. Rows and
    lengths are padded to buckets, so that calls of similar shape share one compiled program.

    Args:
      decoder: from `load_decoder`.
      token_ids: `(batch, seq)` integers.
      mesh: devices that share the batch; None for those the decoder is on.
    Returns:
      `(layers + 1, batch, seq, d_model)` float32. `decoder.final_norm(h[-1])` is what the unembedding reads.
    Raises:
      TypeError, ValueError: token ids that are not such a matrix, or not of this model.
    Departs from transformers: its `hidden_states[-1]` is normalised already for most families.
    """
    ids = np.asarray(token_ids)
    if ids.ndim != 2:
        raise ValueError(f"token_ids must be a matrix (batch, seq), got shape {ids.shape}; one sequence is ids[None]")
    rows = checked_sequences(decoder, ids, "token_ids")
    decoder = on_mesh(decoder, mesh)
    devices = devices_of(decoder)
    size = devices * bucket(-(-len(rows) // devices))
    batch = make_batch(rows, size, padded_length(decoder, ids.shape[1]))
    states = run_states(decoder, *place_rows(decoder, *batch), None, gather=jax.process_count() > 1)
    return states[:, : len(rows), : ids.shape[1]]


def extract_states(
    decoder: Decoder,
    sequences: Any,
    positions: Sequence[Any] | None = None,
    *,
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> Float32[np.ndarray, "layers_and_one n d"]:
    """The residual stream of every layer at chosen tokens of a corpus, before the final norm.

    All batches have one shape, so that one program is compiled; only the kept positions of two batches are on the
    devices at a time.

    Args:
      decoder: from `load_decoder`.
      sequences: `(count, seq)` token ids, or a list of vectors that may differ in length.
      positions: for each sequence, the positions to keep (any number, any order); None for all.
      batch_size: sequences in a batch; None for some 2,048 tokens a device on CPUs and 16,384 elsewhere.
      mesh: devices that share each batch; None for those the decoder is on.
      progress: called as `progress(sequences_done, sequences)`.
    Returns:
      `(layers + 1, n, d_model)` float32: the kept positions of the first sequence, of the second, and so on.
    Raises:
      TypeError, ValueError: sequences that are not of this model, or positions outside them.
    """
    rows = checked_sequences(decoder, sequences)
    kept = _checked_positions(rows, positions)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    decoder = on_mesh(decoder, mesh)
    n = sum(len(row) for row in kept)
    out = np.empty((decoder.n_layers + 1, n, decoder.d_model), np.float32)
    at = 0
    for first, last, states in _batches(decoder, rows, kept, batch_size):
        found = np.asarray(states)
        for i in range(first, last):
            out[:, at : at + len(kept[i])] = found[:, i - first, : len(kept[i])]
            at += len(kept[i])
        if progress is not None:
            progress(last, len(rows))
    return out


def _checked_positions(rows: list[np.ndarray], positions: Sequence[Any] | None) -> list[np.ndarray]:
    if positions is None:
        return [np.arange(len(row), dtype=np.int32) for row in rows]
    if len(positions) != len(rows):
        raise ValueError(f"positions must have one entry for each of the {len(rows)} sequences, got {len(positions)}")
    kept = []
    for i, (row, chosen) in enumerate(zip(rows, positions)):
        chosen = np.asarray(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise TypeError(f"positions[{i}] must be a vector of integers, got {chosen.dtype} {chosen.shape}")
        if chosen.size and (chosen.min() < 0 or chosen.max() >= len(row)):
            raise ValueError(
                f"positions[{i}] must lie within its sequence, 0 to {len(row) - 1}, got {chosen.min()} to "
                f"{chosen.max()}"
            )
        kept.append(chosen.astype(np.int32))
    if not any(len(chosen) for chosen in kept):
        raise ValueError("positions keeps no token; give at least one")
    return kept


def _batches(
    decoder: Decoder, rows: list[np.ndarray], kept: list[np.ndarray], batch_size: int | None
) -> Iterator[tuple[int, int, Array]]:
    """First and last sequence of each batch with its states; the next batch is started before one is handed out."""
    length = padded_length(decoder, max(map(len, rows)))
    size = _batch_size(decoder, length, len(rows), batch_size)
    width = max(map(len, kept))
    started: tuple[int, int, Array] | None = None
    for first in range(0, len(rows), size):
        last = min(first + size, len(rows))
        batch = make_batch(rows[first:last], size, length)
        chosen = np.zeros((size, width), np.int32)
        for i, row in enumerate(kept[first:last]):
            chosen[i, : len(row)] = row
        states = run_states(decoder, *place_rows(decoder, *batch, chosen), gather=jax.process_count() > 1)
        if started is not None:
            yield started
        started = (first, last, states)
    if started is not None:
        yield started


def _batch_size(decoder: Decoder, length: int, count: int, batch_size: int | None) -> int:
    """Rows in a batch, a multiple of the devices."""
    devices = devices_of(decoder)
    if batch_size is None:
        tokens = _TOKENS_ON_CPU if jax.default_backend() == "cpu" else _TOKENS_ELSEWHERE
        batch_size = devices * max(1, tokens // length)
    return devices * -(-min(batch_size, count) // devices)
