"""What a decoder says of text: losses, perplexity, and its likeliest continuation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from repcap_jax.models.batches import checked_sequences, make_batch, padded_length
from repcap_jax.models.decoder import Decoder

_POSITIONS_AT_ONCE = 256  # whose logits over the vocabulary are in memory at a time


def next_token_loss(decoder: Decoder, sequences: Any) -> list[Float32[np.ndarray, " predicted"]]:
    """Negative log-likelihoods of every token given those before it.

        loss_t = -log softmax(logits_t)[token_(t+1)]

    Args:
      decoder: from `load_decoder`, with its head.
      sequences: `(count, seq)` token ids, or a list of vectors of at least two tokens that may differ in length.
    Returns:
      For each sequence one loss less than it has tokens, in nats.
    Raises:
      TypeError, ValueError: sequences that are not of this model, or shorter than two tokens.
    """
    rows = checked_sequences(decoder, sequences)
    if min(map(len, rows)) < 2:
        raise ValueError("each sequence needs at least two tokens: one to start from and one to predict")
    length = padded_length(decoder, max(map(len, rows)))
    found = []
    for row in rows:
        losses = np.asarray(_losses(decoder, *make_batch([row], 1, length)))
        found.append(losses[0, : len(row) - 1])
    return found


def perplexity(decoder: Decoder, sequences: Any) -> float:
    """exp of the mean loss over all predicted tokens, see `next_token_loss`."""
    losses = np.concatenate(next_token_loss(decoder, sequences))
    return float(np.exp(losses.astype(np.float64).mean()))


def greedy_tokens(decoder: Decoder, token_ids: Any, count: int) -> Int32[np.ndarray, " count"]:
    """The likeliest next token, `count` times; everything is computed anew for each.

    Args:
      decoder: from `load_decoder`, with its head.
      token_ids: `(seq,)` the start.
      count: tokens to add, at least 1.
    Returns:
      The added tokens.
    Raises:
      TypeError, ValueError: ids that are not of this model, or a count below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    start = np.asarray(token_ids)
    (row,) = checked_sequences(decoder, [start], "token_ids")
    checked_sequences(decoder, [np.resize(row, len(row) + count - 1)], "token_ids with what is added")
    length = padded_length(decoder, len(row) + count - 1)
    for _ in range(count):
        following = int(_likeliest(decoder, *make_batch([row], 1, length))[0])
        row = np.append(row, np.int32(following))
    return row[-count:]


def _last_state(decoder: Decoder, tokens: Array, lengths: Array) -> Array:
    nothing = jnp.zeros((tokens.shape[0], 0), jnp.int32)
    return decoder.residuals(tokens, lengths, nothing)[1]


@jax.jit
def _losses(decoder: Decoder, tokens: Array, lengths: Array) -> Array:
    """`(batch, seq)` losses; a row's last one, and those of padding, mean nothing."""
    x = _last_state(decoder, tokens, lengths)
    targets = jnp.roll(tokens, -1, axis=1)
    block = min(_POSITIONS_AT_ONCE, x.shape[1])
    blocks = -(-x.shape[1] // block)
    missing = blocks * block - x.shape[1]
    x = jnp.pad(x, ((0, 0), (0, missing), (0, 0))).reshape(x.shape[0] * blocks, block, -1)
    wanted = jnp.pad(targets, ((0, 0), (0, missing))).reshape(-1, block)

    def some(inputs: tuple[Array, Array]) -> Array:
        states, wanted = inputs
        logits = decoder.logits(states)
        chosen = jnp.take_along_axis(logits, wanted[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    return jax.lax.map(some, (x, wanted)).reshape(tokens.shape[0], -1)[:, : tokens.shape[1]]


@jax.jit
def _likeliest(decoder: Decoder, tokens: Array, lengths: Array) -> Array:
    x = _last_state(decoder, tokens, lengths)
    last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]
    return jnp.argmax(decoder.logits(last), axis=-1)
