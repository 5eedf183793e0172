"""Batches: padding, batch size, devices and positions change nothing; shapes share programs; bad input is refused."""

import json

import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.models import (
    extract_states,
    greedy_tokens,
    hidden_states,
    load_decoder,
    next_token_loss,
    perplexity,
)
from repcap_jax.models.batches import bucket, run_states
from tests.models.parity import DATA

# One with windows and two rotations, one whose rotation depends on the sequence's length, one with linear biases, one
# with learned positions.
CASES = ["gemma3", "phi3-long", "bloom", "gpt2"]
CLOSE = {"atol": 1e-5, "rtol": 0}


def ids(decoder, rows, length, seed=0):
    return np.random.default_rng(seed).integers(2, decoder.vocab_size, (rows, length))


@pytest.mark.parametrize("name", CASES)
def test_padding_and_batch_size_change_nothing(decoder_of, name):
    decoder = decoder_of(name)
    tokens = ids(decoder, 3, 16)
    whole = np.asarray(hidden_states(decoder, tokens))
    assert whole.shape == (decoder.n_layers + 1, 3, 16, decoder.d_model)
    for row in range(3):
        alone = hidden_states(decoder, tokens[row : row + 1])
        np.testing.assert_allclose(alone[:, 0], whole[:, row], **CLOSE)
    # Lengths on both sides of 8, from which on phi3-long rotates otherwise.
    rows = [tokens[0], tokens[1][:7], tokens[2][:11]]
    ragged = extract_states(decoder, rows, batch_size=2)
    at = 0
    for row in rows:
        alone = hidden_states(decoder, row[None])
        np.testing.assert_allclose(ragged[:, at : at + len(row)], alone[:, 0], **CLOSE)
        at += len(row)
    assert at == ragged.shape[1]


def test_what_follows_changes_nothing(decoder_of):
    decoder = decoder_of("gemma3")
    tokens = ids(decoder, 1, 16)
    other = tokens.copy()
    other[:, 9:] = ids(decoder, 1, 7, seed=1)
    states, changed = hidden_states(decoder, tokens), hidden_states(decoder, other)
    np.testing.assert_array_equal(states[:, :, :9], changed[:, :, :9])
    assert np.abs(states - changed)[:, :, 9:].max() > 0.1


@pytest.mark.parametrize("name", ["gemma3", "bloom"])
def test_devices_change_nothing(decoder_of, mesh_of, name):
    decoder = decoder_of(name)
    tokens = ids(decoder, 5, 16)
    expected = np.asarray(hidden_states(decoder, tokens))
    for devices in (1, 4):
        np.testing.assert_allclose(hidden_states(decoder, tokens, mesh=mesh_of(devices)), expected, **CLOSE)
    flat = expected.reshape(len(expected), -1, decoder.d_model)
    np.testing.assert_allclose(extract_states(decoder, tokens, mesh=mesh_of(4)), flat, **CLOSE)
    assert decoder.mesh is None


def test_decoder_on_a_mesh(reference_of, mesh_of):
    mesh, reference = mesh_of(4), reference_of("llama")
    with open_checkpoint(DATA / "llama") as checkpoint:
        decoder = load_decoder(checkpoint, mesh=mesh)
    assert decoder.to_record()["devices"] == 4
    states = hidden_states(decoder, np.repeat(reference["tokens"], 3, axis=0))
    np.testing.assert_allclose(states, np.repeat(reference["hidden_states"], 3, axis=1), atol=2e-5)
    assert {shard.device for shard in states.addressable_shards} <= set(mesh.devices.flat)


def test_chosen_positions(decoder_of):
    decoder = decoder_of("gemma3")
    tokens = ids(decoder, 5, 16)
    positions = [[3, 1], [], [15], [0, 5, 9], [2, 2]]
    whole = np.asarray(hidden_states(decoder, tokens))
    calls = []
    found = extract_states(
        decoder, tokens, positions, batch_size=2, progress=lambda done, total: calls.append((done, total))
    )
    expected = [whole[:, row, at] for row, chosen in enumerate(positions) for at in chosen]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), **CLOSE)
    assert calls == [(2, 5), (4, 5), (5, 5)]


def test_shapes_share_programs(decoder_of):
    decoder = decoder_of("llama")
    hidden_states(decoder, ids(decoder, 3, 17))
    before = run_states._cache_size()
    for rows, length in ((3, 17), (3, 20), (3, 24)):
        hidden_states(decoder, ids(decoder, rows, length))
    assert run_states._cache_size() == before
    extract_states(decoder, ids(decoder, 7, 17), batch_size=2)
    corpus = run_states._cache_size()
    extract_states(decoder, ids(decoder, 23, 17), batch_size=2)
    assert run_states._cache_size() == corpus == before + 1


def test_bucket():
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 100, 128)] == (
        [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 16, 128, 128]
    )
    for size in range(1, 500):
        assert size <= bucket(size) < 1.5 * size + 1


def test_final_norm_is_apart(decoder_of, reference_of):
    """The last state is the residual stream; the norm comes on request."""
    decoder = decoder_of("olmo")  # a norm without weights, so rows are of unit variance
    last = hidden_states(decoder, reference_of("olmo")["tokens"])[-1]
    normed = np.asarray(decoder.final_norm(last))
    np.testing.assert_allclose(normed.std(axis=-1), 1.0, atol=1e-4)
    assert np.abs(np.asarray(last).std(axis=-1) - 1).max() > 0.05


def test_opt_without_final_norm(decoder_of, reference_of):
    decoder = decoder_of("opt-projected")
    last = hidden_states(decoder, reference_of("opt-projected")["tokens"])[-1]
    np.testing.assert_array_equal(decoder.final_norm(last), last)


def test_losses_and_greedy(decoder_of, reference_of):
    decoder, reference = decoder_of("llama"), reference_of("llama")
    tokens, logits = reference["tokens"][0], reference["logits"][0].astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -log_probabilities[np.arange(len(tokens) - 1), tokens[1:]]
    (losses, short) = next_token_loss(decoder, [tokens, tokens[:5]])
    np.testing.assert_allclose(losses, expected, atol=2e-5)
    np.testing.assert_allclose(short, expected[:4], atol=2e-5)
    assert perplexity(decoder, [tokens]) == pytest.approx(np.exp(expected.mean()), rel=1e-5)
    added = greedy_tokens(decoder, tokens[:5], 3)
    assert added[0] == logits[4].argmax()
    extended = np.concatenate([tokens[:5], added])
    again = np.asarray(decoder.logits(hidden_states(decoder, extended[None])[-1]))[0]
    np.testing.assert_array_equal(again[4:-1].argmax(axis=1), added)


def test_bfloat16(decoder_of, reference_of):
    reference = reference_of("gemma2")
    with open_checkpoint(DATA / "gemma2") as checkpoint:
        decoder = load_decoder(checkpoint, dtype="bfloat16")
    assert decoder.dtype == "bfloat16"
    states = np.asarray(hidden_states(decoder, reference["tokens"]))
    error = np.linalg.norm(states - reference["hidden_states"]) / np.linalg.norm(reference["hidden_states"])
    assert states.dtype == np.float32 and 1e-4 < error < 0.02


def test_record(decoder_of):
    record = decoder_of("llama").to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["family"], record["layers"], record["d_model"]) == ("llama", 2, 32)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, 2, 3], "must be a matrix"),
        ([[1, 2, 40]], "the model knows 0 to 39"),
        ([[-1, 2, 4]], "the model knows 0 to 39"),
        (np.zeros((0, 4), int), "at least one sequence"),
        (np.zeros((2, 0), int), "non-empty"),
        (np.zeros((1, 25), int), "24 learned positions"),
    ],
)
def test_bad_tokens(decoder_of, tokens, message):
    with pytest.raises(ValueError, match=message):
        hidden_states(decoder_of("gpt2"), tokens)


def test_bad_arguments(decoder_of):
    decoder = decoder_of("gpt2")
    tokens = ids(decoder, 2, 8)
    with pytest.raises(TypeError, match="integer token ids"):
        hidden_states(decoder, tokens / 2)
    with pytest.raises(ValueError, match="one entry for each of the 2"):
        extract_states(decoder, tokens, [[1]])
    with pytest.raises(ValueError, match="must lie within its sequence, 0 to 7"):
        extract_states(decoder, tokens, [[1], [8]])
    with pytest.raises(ValueError, match="keeps no token"):
        extract_states(decoder, tokens, [[], []])
    with pytest.raises(ValueError, match="batch_size"):
        extract_states(decoder, tokens, batch_size=0)
    with pytest.raises(ValueError, match="at least two tokens"):
        next_token_loss(decoder, [[1]])
    with pytest.raises(ValueError, match="24 learned positions"):
        greedy_tokens(decoder, tokens[0], 18)
