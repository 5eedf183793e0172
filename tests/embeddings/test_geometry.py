"""One model end to end from files that the tests write."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from repcap_jax.embeddings.geometry import embedding_geometry
from tests import oracles

V, D = 300, 16


def write_model(folder, *, tied, head=True, config=None, shift=0.05, tokens=V):
    """A llama-like checkpoint with random matrices."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    tensors = {
        "model.embed_tokens.weight": (rng.standard_normal((V, D)) + shift).astype(np.float32),
        "model.norm.weight": np.ones(D, np.float32),
    }
    if not tied and head:
        tensors["lm_head.weight"] = (rng.standard_normal((V, D)) + shift).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    stated = {"model_type": "llama", "hidden_size": D, "vocab_size": V, "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(stated if config is None else config))
    vocabulary = {f"t{number}": number for number in range(tokens)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    return tensors


def test_untied(tmp_path):
    tensors = write_model(tmp_path / "m", tied=False)
    with open_checkpoint(tmp_path / "m") as checkpoint:
        found = embedding_geometry(checkpoint, bins=500)
    assert set(found.matrices) == {"embedding", "unembedding"} and not found.tied
    assert (found.d_model, found.vocab_size, found.family, found.tokenizer_size) == (D, V, "llama", V)
    for name, tensor in (("embedding", "model.embed_tokens.weight"), ("unembedding", "lm_head.weight")):
        exact = oracles.pair_cosines(tensors[tensor])
        distribution = found.matrices[name].distribution
        assert distribution.mean == pytest.approx(exact.mean(), rel=1e-6, abs=1e-7)
        assert distribution.std == pytest.approx(exact.std(), rel=1e-6)
    assert len(found.correspondence) == V
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["correspondence"]["n"] == V and record["matrices"]["embedding"]["bracket"]
    assert set(found.arrays()) == {
        f"{name}_{part}" for name in ("embedding", "unembedding", "correspondence") for part in ("counts", "edges")
    }


def test_tied_is_measured_once(tmp_path):
    write_model(tmp_path / "m", tied=True)
    with open_checkpoint(tmp_path / "m") as checkpoint:
        found = embedding_geometry(checkpoint, which=["unembedding"], moments_only=True)
    assert list(found.matrices) == ["embedding"] and found.tied and found.correspondence is None
    assert any("measured once" in note for note in found.notes)
    assert found.arrays() == {}


def test_rows_of_the_tokenizer(tmp_path):
    tensors = write_model(tmp_path / "m", tied=True, tokens=200)
    with open_checkpoint(tmp_path / "m") as checkpoint:
        every = embedding_geometry(checkpoint, moments_only=True)
        known = embedding_geometry(checkpoint, rows="tokenizer", moments_only=True)
    assert every.matrices["embedding"].distribution.n_rows == V
    assert known.matrices["embedding"].distribution.n_rows == 200
    exact = oracles.pair_cosines(tensors["model.embed_tokens.weight"][:200])
    assert known.matrices["embedding"].distribution.std == pytest.approx(exact.std(), rel=1e-6)
    assert any("100 of 300 rows are beyond the tokenizer's 200" in note for note in every.notes)
    (tmp_path / "m" / "tokenizer.json").write_text("{")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        damaged = embedding_geometry(checkpoint, moments_only=True)
        assert damaged.tokenizer_size is None and any("tokenizer could not be read" in note for note in damaged.notes)
        with pytest.raises(CheckpointError):
            embedding_geometry(checkpoint, rows="tokenizer", moments_only=True)
    np.save(tmp_path / "x.npy", tensors["model.embed_tokens.weight"])
    with open_checkpoint(tmp_path / "x.npy") as checkpoint, pytest.raises(ValueError, match="no tokenizer"):
        embedding_geometry(checkpoint, rows="tokenizer")


def test_budget_belongs_to_determinate_capacities(tmp_path):
    near_orthogonal, crowded = (
        np.random.default_rng(0).standard_normal((64, 2048)).astype(np.float32) + shift for shift in (0.0, 1.0)
    )
    for name, matrix, indeterminate in (("a", near_orthogonal, False), ("b", crowded, True)):
        np.save(tmp_path / f"{name}.npy", matrix)
        with open_checkpoint(tmp_path / f"{name}.npy") as checkpoint:
            geometry = embedding_geometry(checkpoint, moments_only=True).matrices["embedding"]
        assert geometry.capacity.indeterminate == indeterminate
        assert (geometry.budget is None) == indeterminate
        if not indeterminate:
            assert geometry.budget.token_directions == 64
            assert geometry.range.low.capacity <= geometry.capacity.capacity <= geometry.range.high.capacity


def test_bad_input(tmp_path):
    write_model(tmp_path / "m", tied=False, head=False)
    with open_checkpoint(tmp_path / "m") as checkpoint:
        with pytest.raises(CheckpointError, match="not tied"):
            embedding_geometry(checkpoint)
        for options, says in (
            ({"which": ["head"]}, "which must name"),
            ({"which": []}, "which must name"),
            ({"rows": "some"}, "rows must be"),
            ({"max_rows": 1}, "at least 2"),
            ({"which": ["embedding"], "bins": 0}, "bins must be"),
        ):
            with pytest.raises(ValueError, match=says):
                embedding_geometry(checkpoint, **options)
        # Only what was asked for must be there.
        assert list(embedding_geometry(checkpoint, which=["embedding"], moments_only=True).matrices) == ["embedding"]
