"""pytorch_model.bin, where torch is installed (it is no requirement of the tests)."""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b

torch = pytest.importorskip("torch")


def _state(tensors):
    return {name: torch.from_numpy(array) for name, array in tensors.items()}


@pytest.mark.parametrize("zipped", [True, False])
def test_single(tmp_path, zipped):
    path = tmp_path / "pytorch_model.bin"
    torch.save(_state(b.llama_tensors()) | {"step": 3}, path, _use_new_zipfile_serialization=zipped)
    with open_checkpoint(b.write_config(tmp_path, b.llama_config())) as checkpoint:
        assert checkpoint.format == "torch" and zipfile.is_zipfile(path) is zipped
        np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
        np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))


def test_bfloat16_and_a_stored_tie(tmp_path):
    shared = torch.from_numpy(b.matrix()).bfloat16()
    torch.save({"wte.weight": shared, "lm_head.weight": shared}, tmp_path / "pytorch_model.bin")
    checkpoint = open_checkpoint(b.write_config(tmp_path, {"model_type": "gpt2"}))
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix())
    assert checkpoint.tied and checkpoint.to_record()["tensors"]["embedding"]["dtype"] == "bfloat16"


def test_sharded(tmp_path):
    torch.save(_state(b.llama_tensors()), tmp_path / "pytorch_model-00001-of-00001.bin")
    b.write_index(
        tmp_path, dict.fromkeys(b.llama_tensors(), "pytorch_model-00001-of-00001.bin"), "pytorch_model.bin.index.json"
    )
    np.testing.assert_array_equal(open_checkpoint(tmp_path).embedding(), b.matrix(seed=1))


class _Harmful:
    def __reduce__(self):
        return os.mkdir, ("/tmp/repcap-jax-must-not-appear",)


def test_pickled_code_is_refused(tmp_path):
    for save in (
        lambda value, path: torch.save(value, path),
        lambda value, path: path.write_bytes(pickle.dumps(value)),
    ):
        save({"a": _Harmful()}, tmp_path / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*weights_only"):
            open_checkpoint(tmp_path)
    assert not os.path.exists("/tmp/repcap-jax-must-not-appear")


def test_damage(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(_state(b.llama_tensors()), path)
    content = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content[: random.integers(0, len(content) + 1)] if random.random() < 0.3 else content)
        for _ in range(3):
            if damaged:
                damaged[random.integers(len(damaged))] = random.integers(256)
        path.write_bytes(damaged)
        try:
            checkpoint = open_checkpoint(tmp_path)
            for name in checkpoint.names():
                checkpoint.tensor(name)
        except CheckpointError as error:
            assert "pytorch_model.bin" in str(error)


@pytest.mark.parametrize("value", [[1], {"model": {"a": 1}}])
def test_other_contents(tmp_path, value):
    torch.save(value, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        open_checkpoint(tmp_path)
