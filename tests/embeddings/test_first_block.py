"""What block 0 sees, from checkpoints of several layouts, and the gains of the norms."""

import json
import shutil

import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.embeddings.first_block import (
    first_projections,
    gain_record,
    input_gain,
    norm_gains,
    projected_tokens,
    seen_through,
)
from tests import oracles
from tests.checkpoints.builders import matrix, write_model
from tests.models.parity import DATA

D = 8
LLAMA = "model.layers.{}.self_attn.{}.weight"


def parts():
    return {"query": matrix(D, D, 1), "key": matrix(4, D, 2), "value": matrix(4, D, 3)}


def checkpoint_of(folder, tensors, **config):
    return open_checkpoint(write_model(folder, {"model.embed_tokens.weight": matrix(11, D, 9), **tensors}, config))


def test_separate_projections(tmp_path):
    """Of an architecture that is known by its tensors' names alone."""
    tensors = {LLAMA.format(0, f"{part[0]}_proj"): value for part, value in parts().items()}
    tensors[LLAMA.format(1, "q_proj")] = matrix(D, D, 7)
    with checkpoint_of(tmp_path, tensors, model_type="mystery", hidden_size=D) as checkpoint:
        found = first_projections(checkpoint)
    for part, value in parts().items():
        np.testing.assert_array_equal(found[part], value)


def test_fused_in_one(tmp_path):
    """gpt2 stores (in, out), all queries first."""
    fused = np.concatenate([matrix(D, D, seed) for seed in (1, 2, 3)])
    tensors = {"h.0.attn.c_attn.weight": np.ascontiguousarray(fused.T)}
    with checkpoint_of(tmp_path, tensors, model_type="mystery", n_head=2) as checkpoint:
        found = first_projections(checkpoint)
    for seed, part in enumerate(("query", "key", "value"), start=1):
        np.testing.assert_array_equal(found[part], matrix(D, D, seed))


def by_head(rows, heads):
    """Queries, keys and values of a tensor that holds them head by head."""
    return np.split(rows.reshape(heads, 3, -1, rows.shape[1]), 3, axis=1)


@pytest.mark.parametrize(
    ("name", "tensor", "taken_apart"),
    [
        ("gpt2", "h.0.attn.c_attn.weight", lambda rows, heads: np.split(rows.T, 3)),
        ("gpt_neox", "layers.0.attention.query_key_value.weight", by_head),
        ("bloom", "h.0.self_attention.query_key_value.weight", by_head),
        (
            "falcon-multi-query",  # one key and one value for all queries
            "h.0.self_attention.query_key_value.weight",
            lambda rows, heads: np.split(rows, [rows.shape[1], rows.shape[1] + rows.shape[1] // heads]),
        ),
    ],
)
def test_fused_of_known_families(name, tensor, taken_apart):
    with open_checkpoint(DATA / name) as checkpoint:
        (stored,) = [known for known in checkpoint.names() if known.endswith(tensor)]
        heads = checkpoint.config.get("n_head") or checkpoint.config["num_attention_heads"]
        expected = taken_apart(checkpoint.tensor(stored), heads)
        found = first_projections(checkpoint)
    for part, rows in zip(("query", "key", "value"), expected, strict=True):
        np.testing.assert_array_equal(found[part], rows.reshape(found[part].shape))


def test_projections_that_contradict_the_config(tmp_path):
    config = json.loads((DATA / "llama" / "config.json").read_text())
    shutil.copytree(DATA / "llama", tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 1}))
    with open_checkpoint(tmp_path / "model") as checkpoint, pytest.raises(ValueError, match="config asks for"):
        first_projections(checkpoint)


def test_missing_projections(tmp_path):
    with checkpoint_of(tmp_path / "a", {}, model_type="mystery") as checkpoint:
        with pytest.raises(ValueError, match="no projections"):
            first_projections(checkpoint)
        assert input_gain(checkpoint) is None and norm_gains(checkpoint) == {}
    tensors = {"model.layers.0.attention.qkv_proj.weight": matrix(7, D, 1)}
    with checkpoint_of(tmp_path / "b", tensors, model_type="mystery", num_attention_heads=2) as checkpoint:
        with pytest.raises(ValueError, match="taken apart"):
            first_projections(checkpoint)


@pytest.mark.parametrize(("family", "offset"), [("llama", 0), ("gemma", 1)])
def test_gains_by_layer(tmp_path, family, offset):
    names = ("input_layernorm", "post_attention_layernorm")
    stored = {(layer, name): matrix(1, D, 10 * layer + len(name))[0] for layer in range(3) for name in names}
    tensors = {f"model.layers.{layer}.{name}.weight": value for (layer, name), value in stored.items()}
    tensors |= {"model.layers.0.self_attn.q_norm.weight": matrix(1, 4, 3)[0]}  # not in every layer: still its own row
    with checkpoint_of(tmp_path, tensors, model_type=family, hidden_size=D) as checkpoint:
        found = norm_gains(checkpoint)
        np.testing.assert_array_equal(input_gain(checkpoint), stored[0, "input_layernorm"] + offset)
    for name in names:
        np.testing.assert_array_equal(found[name], np.stack([stored[layer, name] for layer in range(3)]) + offset)
    record = gain_record(found)
    assert record["input_layernorm"]["mean"][1] == pytest.approx(found["input_layernorm"][1].mean())


def test_seen_through():
    rng = np.random.default_rng(0)
    x, w, gain = rng.standard_normal((90, D)), rng.standard_normal((5, D)), rng.standard_normal(D)
    x, w, gain = (value.astype(np.float32) for value in (x, w, gain))
    exact = (x / np.linalg.norm(x, axis=1, keepdims=True) * gain) @ w.T
    np.testing.assert_allclose(seen_through(x, w, gain), exact, atol=1e-5)
    found = projected_tokens(x, w, gain)
    cosines = oracles.cosine_matrix(exact, exact)
    np.fill_diagonal(cosines, -2)
    np.testing.assert_allclose(found.nearest.cosines[:, 0], cosines.max(axis=1), atol=1e-5)
    assert found.counts.sum() == 90 * 89 // 2 and found.mean == pytest.approx(
        oracles.pair_cosines(exact).mean(), abs=1e-5
    )
    with pytest.raises(ValueError, match="gain"):
        seen_through(x, w, gain[:3])
