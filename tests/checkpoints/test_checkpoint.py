"""open_checkpoint on folders: ties, shards, configs, tokenizers, records, and sources that are not there."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b


def test_untied_llama(tmp_path):
    with open_checkpoint(b.write_model(tmp_path / "tiny-llama", b.llama_tensors(), b.llama_config())) as checkpoint:
        np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
        np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))
        norm = checkpoint.final_norm()
        np.testing.assert_array_equal(norm.weight, b.vector())
        assert norm.bias is None and norm.offset == 0 and norm.name == "model.norm.weight"
        assert (checkpoint.tied, checkpoint.name, checkpoint.family) == (False, "tiny-llama", "llama")
        assert (checkpoint.format, checkpoint.revision, checkpoint.notes) == ("safetensors", None, ())
        checkpoint.tensor("model.layers.0.self_attn.q_proj.weight")
        record = json.loads(json.dumps(checkpoint.to_record(), allow_nan=False))
        assert record["tensors"]["unembedding"] == {"tensor": "lm_head.weight", "dtype": "float32", "shape": [11, 8]}
        assert record["other_tensors"] == {"float32": 1}
        assert record["tied"] is False and record["source"] == str(tmp_path / "tiny-llama")


def test_closed_checkpoints_say_so_and_keep_arrays_valid(tmp_path):
    checkpoint = open_checkpoint(b.write_model(tmp_path, b.llama_tensors(), b.llama_config()))
    with checkpoint:
        read = checkpoint.embedding()
    np.testing.assert_array_equal(read, b.matrix(seed=1))
    with pytest.raises(CheckpointError, match="closing"):
        checkpoint.tensor("model.norm.weight")
    checkpoint.close()


@pytest.mark.parametrize("config", [b.llama_config(tie_word_embeddings=True), {"model_type": "gpt_neo"}])
def test_tied_by_config_or_by_default(tmp_path, config):
    checkpoint = open_checkpoint(b.write_model(tmp_path, b.llama_tensors(tied=True), config))
    assert checkpoint.tied
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=1))


@pytest.mark.parametrize("config", [b.llama_config(), {"model_type": "llama"}, {"model_type": "unheard-of"}, None])
def test_a_missing_head_is_never_a_silent_tie(tmp_path, config):
    checkpoint = open_checkpoint(b.write_model(tmp_path, b.llama_tensors(tied=True), config) / "model.safetensors")
    np.testing.assert_array_equal(
        open_checkpoint(tmp_path, embedding_tensor="model.embed_tokens.weight").embedding(), b.matrix(seed=1)
    )
    with pytest.raises(
        CheckpointError, match=r"no unembedding.*unembedding_tensor=NAME.*embed_tokens\.weight \(11, 8\)"
    ):
        checkpoint.unembedding()
    assert "no unembedding" in checkpoint.notes[0]
    json.dumps(checkpoint.to_record())
    stated = open_checkpoint(tmp_path, unembedding_tensor="model.embed_tokens.weight")
    assert stated.tied
    np.testing.assert_array_equal(stated.unembedding(), b.matrix(seed=1))


def test_tied_config_with_a_head_in_the_file(tmp_path):
    config = b.llama_config(tie_word_embeddings=True)
    differs = open_checkpoint(b.write_model(tmp_path / "a", b.llama_tensors(), config))
    assert not differs.tied and "the file's head is used" in differs.notes[0]
    np.testing.assert_array_equal(differs.unembedding(), b.matrix(seed=3))
    copy = b.llama_tensors(tied=True) | {"lm_head.weight": b.matrix(seed=1)}
    assert open_checkpoint(b.write_model(tmp_path / "b", copy, config)).tied
    (tmp_path / "c").mkdir()
    kernel = b.flax_llama(tied=True) | {"lm_head.kernel": b.matrix(seed=1).T.copy()}
    (tmp_path / "c" / "flax_model.msgpack").write_bytes(b.flax_bytes(kernel))
    assert open_checkpoint(b.write_config(tmp_path / "c", config)).tied


def test_head_bias_and_norm_bias_and_offset(tmp_path):
    tensors = b.llama_tensors() | {"lm_head.bias": b.vector(b.VOCAB), "model.norm.bias": b.vector(seed=9)}
    checkpoint = open_checkpoint(b.write_model(tmp_path, tensors, b.llama_config(model_type="nemotron")))
    np.testing.assert_array_equal(checkpoint.unembedding_bias(), b.vector(b.VOCAB))
    np.testing.assert_array_equal(checkpoint.final_norm().bias, b.vector(seed=9))
    assert checkpoint.final_norm().offset == 1 and "lm_head.bias" in checkpoint.notes[0]


def test_explicit_tensors_and_their_orientation(tmp_path):
    tensors = {"in": b.matrix(), "out": b.matrix(seed=3).T.copy()}
    folder = b.write_model(tmp_path, tensors, None)
    checkpoint = open_checkpoint(folder, embedding_tensor="in", unembedding_tensor="out")
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))
    with pytest.raises(CheckpointError, match="no tensor named 'inn'.*Nearest names: in"):
        open_checkpoint(folder, embedding_tensor="inn").embedding()


def test_a_file_of_a_head_alone(tmp_path):
    folder = b.write_model(tmp_path, {"lm_head.weight": b.matrix(), "odd.thing": b.matrix(3, 3)}, None)
    for checkpoint in (open_checkpoint(folder), open_checkpoint(folder, unembedding_tensor="lm_head.weight")):
        np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix())
        assert not checkpoint.tied


def test_sharded(tmp_path):
    tensors = b.llama_tensors()
    head = {"lm_head.weight": tensors.pop("lm_head.weight")}
    checkpoint = open_checkpoint(b.write_sharded(tmp_path, [tensors, head], b.llama_config()))
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))
    checkpoint.close()
    with pytest.raises(CheckpointError, match="closing"):
        checkpoint.embedding()


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/passwd", "a\\b", "sub/x.safetensors", "..", "", 3, None]
)
def test_an_index_may_only_name_files_beside_it(tmp_path, shard):
    folder = b.write_sharded(tmp_path, [b.llama_tensors()])
    (tmp_path.parent / "secret.safetensors").write_bytes(b.safetensors_bytes(b.llama_tensors()))
    b.write_index(folder, {"model.embed_tokens.weight": shard})
    with pytest.raises(CheckpointError, match=r"index\.json.*model\.embed_tokens\.weight.*bare name"):
        open_checkpoint(folder).embedding()


def test_an_index_that_names_what_is_absent(tmp_path):
    folder = b.write_sharded(tmp_path, [b.llama_tensors()])
    b.write_index(folder, {"model.embed_tokens.weight": "model-00009-of-00009.safetensors"})
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight.*model-00009-of-00009\.safetensors.*lacks"):
        open_checkpoint(folder)
    b.write_index(folder, {"wte.weight": "model-00001-of-00001.safetensors"})
    with pytest.raises(CheckpointError, match=r"wte\.weight.*model-00001-of-00001\.safetensors.*does not hold it"):
        open_checkpoint(folder).embedding()


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"weight_map": {}}', '{"weight_map": [1]}', '{"a": 1, "a": 2}', "null"]
)
def test_damaged_index(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"llama"', b"[" * 50_000, b'{"a": ' * 50_000])
def test_damaged_config(tmp_path, content):
    b.write_model(tmp_path, b.llama_tensors(), None)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "config", [{"tie_word_embeddings": "yes", "model_type": 3, "hidden_size": "8", "vocab_size": [1], "text_config": 7}]
)
def test_config_values_of_odd_types_are_no_crash(tmp_path, config):
    checkpoint = open_checkpoint(b.write_model(tmp_path, b.llama_tensors(), config))
    assert checkpoint.family is None and checkpoint.embedding().shape == (b.VOCAB, b.WIDTH)
    assert not checkpoint.tied


def test_formats_in_one_folder(tmp_path):
    b.write_gguf(tmp_path / "model-q8.gguf", {"token_embd.weight": (b.matrix(4, 32), "Q8_0")})
    assert open_checkpoint(tmp_path).format == "gguf"
    (tmp_path / "flax_model.msgpack").write_bytes(b.flax_bytes(b.flax_llama()))
    assert open_checkpoint(tmp_path).format == "flax"
    b.write_model(tmp_path, b.llama_tensors(), None)
    assert open_checkpoint(tmp_path).format == "safetensors"
    assert open_checkpoint(tmp_path, file="model-q8.gguf").format == "gguf"
    with pytest.raises(CheckpointError, match=r"no file 'nothing\.gguf'; present: flax_model\.msgpack"):
        open_checkpoint(tmp_path, file="nothing.gguf")
    with pytest.raises(CheckpointError, match="no known format"):
        (tmp_path / "weights.h5").write_bytes(b"x")
        open_checkpoint(tmp_path, file="weights.h5")


def test_several_unnamed_files_ask_which(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"file=.*a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "source", ["/nowhere/at/all", "./nope", "../nope", "~/nope-nope", "a/b/c", "x.safetensors", "x.gguf"]
)
def test_missing_local_sources_do_not_ask_the_hub(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # would fail otherwise, and differently
    with pytest.raises(CheckpointError, match="no such folder or file"):
        open_checkpoint(source)


@pytest.mark.parametrize("source", ["", "  ", "bad name!", "org/na me", "\0", "x" * 5000 + "!", "-org/x"])
def test_sources_that_are_nothing(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        open_checkpoint(source)


def test_folders_that_hold_nothing_or_oddities(tmp_path):
    with pytest.raises(CheckpointError, match="found no files"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="found no files"):
        open_checkpoint(tmp_path)
    dangling = tmp_path / "x.safetensors"
    dangling.symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"x\.safetensors.*link to something"):
        open_checkpoint(dangling)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        open_checkpoint(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(CheckpointError, match="loop"):
        open_checkpoint(loop)
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(CheckpointError, match=r"pipe\.npy.*expected a file"):
        open_checkpoint(tmp_path / "pipe.npy")


def test_links_to_real_files_are_followed(tmp_path):
    b.write_model(tmp_path / "blobs", b.llama_tensors(), b.llama_config())
    (tmp_path / "snapshot").mkdir()
    for name in ("model.safetensors", "config.json"):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / name)
    (tmp_path / "link").symlink_to(tmp_path / "snapshot")
    np.testing.assert_array_equal(open_checkpoint(tmp_path / "link").embedding(), b.matrix(seed=1))


def test_a_revision_of_a_local_folder_is_refused(tmp_path):
    b.write_model(tmp_path, b.llama_tensors(), None)
    with pytest.raises(CheckpointError, match="revision"):
        open_checkpoint(tmp_path, "main")


def _write_tokenizer(folder) -> None:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    core = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens([AddedToken("<eos>", special=True)])
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def test_tokenizer_and_its_size(tmp_path):
    folder = b.write_model(tmp_path, b.llama_tensors(), {"model_type": "unheard-of"})
    _write_tokenizer(folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tokenizer_size() == 4
    assert checkpoint.tokenizer()("hello world")["input_ids"] == [1, 2]


def test_tokenizer_size_from_older_files(tmp_path):
    folder = b.write_model(tmp_path, b.llama_tensors(), None)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tokenizer_size() is None
    with pytest.raises(CheckpointError, match="no tokenizer beside the weights"):
        checkpoint.tokenizer()
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": 5}))
    assert open_checkpoint(folder).tokenizer_size() == 6


@pytest.mark.parametrize(
    "content", ["{}", '{"model": {"vocab": 3}}', '{"model": {"vocab": {"a": "0"}}}', "[", '{"model": 1}']
)
def test_damaged_tokenizer(tmp_path, content):
    folder = b.write_model(tmp_path, b.llama_tensors(), None)
    (folder / "tokenizer.json").write_text(content)
    checkpoint = open_checkpoint(folder)
    with pytest.raises(CheckpointError, match="tokenizer"):
        checkpoint.tokenizer_size()
    with pytest.raises(CheckpointError, match="tokenizer"):
        checkpoint.tokenizer()
