"""Hub repositories, served by a fake Hub: what is downloaded, from which commit, and what errors say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b
from tests.checkpoints.fake_hub import FakeHub

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A fake Hub that this process talks to, with a cache of its own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_XET_CACHE", str(tmp_path / "xet"))
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.chdir(tmp_path)
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def _sharded(folder: Path, seed: int = 1) -> Path:
    parts = [
        {"model.embed_tokens.weight": b.matrix(seed=seed)},
        {"model.layers.0.self_attn.q_proj.weight": b.matrix(8, 8)},
        {"model.norm.weight": b.vector(), "lm_head.weight": b.matrix(seed=3)},
    ]
    b.write_sharded(folder, parts, b.llama_config())
    (folder / "README.md").write_text("x")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"x")
    return folder


def test_only_the_shards_asked_for_are_downloaded(hub, tmp_path):
    commit = hub.add("org/tiny", "main", _sharded(tmp_path / "served"))
    checkpoint = open_checkpoint("org/tiny")
    assert hub.downloaded() == {"config.json"}
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
    index, first = "model.safetensors.index.json", "model-00001-of-00003.safetensors"
    assert hub.downloaded() == {"config.json", index, first}
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))
    checkpoint.final_norm()
    assert hub.downloaded() == {"config.json", index, first, "model-00003-of-00003.safetensors"}
    assert checkpoint.revision == commit == checkpoint.to_record()["revision"]
    assert checkpoint.name == "tiny" and checkpoint.source == "org/tiny"


def test_revisions_are_honoured_and_pinned(hub, tmp_path):
    hub.add("org/tiny", "main", _sharded(tmp_path / "new", seed=1))
    old = hub.add("org/tiny", "v1", _sharded(tmp_path / "old", seed=5))
    checkpoint = open_checkpoint("org/tiny", "v1")
    hub.add("org/tiny", "v1", tmp_path / "new")  # the tag moves while the checkpoint is open
    hub.repos["org/tiny"]["v1"] = hub.repos["org/tiny"]["main"]
    hub.repos["org/tiny"][old] = (old, tmp_path / "old")
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=5))
    assert checkpoint.revision == old
    np.testing.assert_array_equal(open_checkpoint("org/tiny", old).embedding(), b.matrix(seed=5))
    np.testing.assert_array_equal(open_checkpoint("org/tiny").embedding(), b.matrix(seed=1))


def test_a_name_without_an_organisation_and_a_chosen_file(hub, tmp_path):
    folder = tmp_path / "served"
    b.write_model(folder, b.llama_tensors(), b.llama_config())
    b.write_gguf(folder / "tiny.gguf", {"token_embd.weight": (b.matrix(4, 32), "F32")})
    hub.add("tiny", "main", folder)
    assert open_checkpoint("tiny").embedding().shape == (b.VOCAB, b.WIDTH)
    with open_checkpoint("tiny", file="tiny.gguf") as checkpoint:
        assert "tiny.gguf" not in hub.downloaded()
        assert checkpoint.embedding().shape == (4, 32) and checkpoint.family == "llama"


def test_tokenizer_files_alone_are_fetched_for_the_tokenizer(hub, tmp_path):
    folder = _sharded(tmp_path / "served")
    vocabulary = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}}
    rest = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary | rest | {"added_tokens": []}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    hub.add("org/tiny", "main", folder)
    checkpoint = open_checkpoint("org/tiny")
    assert checkpoint.tokenizer_size() == 2
    assert checkpoint.tokenizer()("b")["input_ids"] == [1]
    assert hub.downloaded() == {"config.json", "tokenizer.json", "tokenizer_config.json"}


def test_an_unknown_layout_is_listed_without_downloads(hub, tmp_path):
    b.write_sharded(tmp_path / "served", [{"strange.table": b.matrix()}, {"other": b.matrix()}], {"model_type": "x"})
    hub.add("org/odd", "main", tmp_path / "served")
    with pytest.raises(CheckpointError, match=r"strange\.table; other.*|other; strange\.table"):
        open_checkpoint("org/odd").embedding()
    assert not any(name.endswith(".safetensors") for name in hub.downloaded())


@pytest.mark.parametrize(
    ("source", "revision", "words"),
    [
        ("org/secret", None, "gated.*accept its terms.*token"),
        ("org/nothing", None, "no such repository.*spelling"),
        ("org/tiny", "v9", "no branch, tag or commit 'v9'"),
        ("org/empty", None, "expected weights"),
    ],
)
def test_refusals(hub, tmp_path, source, revision, words):
    hub.gated.add("org/secret")
    hub.add("org/tiny", "main", _sharded(tmp_path / "served"))
    (tmp_path / "empty").mkdir()
    hub.add("org/empty", "main", tmp_path / "empty")
    with pytest.raises(CheckpointError, match=words) as failure:
        open_checkpoint(source, revision)
    assert source in str(failure.value)


def test_an_index_on_the_hub_cannot_point_elsewhere(hub, tmp_path):
    folder = _sharded(tmp_path / "served")
    b.write_index(folder, {"model.embed_tokens.weight": "../../secret"})
    hub.add("org/tiny", "main", folder)
    with pytest.raises(CheckpointError, match="bare name"):
        open_checkpoint("org/tiny").embedding()


def test_without_a_connection_the_cache_serves(hub, tmp_path, monkeypatch):
    commit = hub.add("org/tiny", "main", _sharded(tmp_path / "served"))
    open_checkpoint("org/tiny").embedding()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for revision in (None, commit):
        checkpoint = open_checkpoint("org/tiny", revision)
        np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
        assert checkpoint.revision == commit
    with pytest.raises(CheckpointError, match="model-00003-of-00003"):
        open_checkpoint("org/tiny").unembedding()
    with pytest.raises(CheckpointError, match="org/never.*cannot be asked.*connection"):
        open_checkpoint("org/never")


def test_offline_mode_in_a_fresh_process(tmp_path):
    """The environment as users set it; huggingface_hub reads most of it when it is imported."""
    with FakeHub() as hub:
        hub.add("org/tiny", "main", _sharded(tmp_path / "served"))
        code = (
            "from repcap_jax.checkpoints import open_checkpoint; print(open_checkpoint('org/tiny').embedding().shape)"
        )
        env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": ""}
        online = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert online.stdout.strip() == "(11, 8)", online.stderr
        served = len(hub.requested)
        offline = env | {"HF_HUB_OFFLINE": "1"}
        again = subprocess.run([sys.executable, "-c", code], env=offline, capture_output=True, text=True)
        assert again.stdout.strip() == "(11, 8)", again.stderr
        assert len(hub.requested) == served
        nothing = code.replace("org/tiny", "org/never")
        failed = subprocess.run([sys.executable, "-c", nothing], env=offline, capture_output=True, text=True)
        assert "CheckpointError: org/never" in failed.stderr and "HF_HUB_OFFLINE" in failed.stderr
