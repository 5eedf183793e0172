"""Damaged files of every format: a CheckpointError or a tensor of the right shape, whatever is cut off or flipped."""

from __future__ import annotations

import functools
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b

FORMATS = (
    "model.safetensors",
    "flax_model.msgpack",
    "chunked.msgpack",
    "model.gguf",
    "array.npy",
    "stored.npz",
    "deflated.npz",
)


@functools.cache
def _intact(file: str) -> bytes:
    path = Path(tempfile.mkdtemp()) / file
    if file == "model.safetensors":
        return b.safetensors_bytes(b.llama_tensors())
    if file.endswith(".msgpack"):
        return b.flax_bytes(b.flax_llama(), 100 if file == "chunked.msgpack" else None)
    if file.endswith(".gguf"):
        tensors = {"token_embd.weight": (b.matrix(6, 32), "Q8_0"), "output_norm.weight": (b.vector(32), "F32")}
        b.write_gguf(path, tensors, {"tokenizer.ggml.tokens": ["a", "b", "c"]})
    elif file.endswith(".npy"):
        np.save(path, b.matrix())
    else:
        (np.savez if file == "stored.npz" else np.savez_compressed)(path, rows=b.matrix(), more=b.vector())
    return path.read_bytes()


def _read_all(path: Path) -> None:
    """Use everything a checkpoint offers; only CheckpointError may come out."""
    try:
        with open_checkpoint(path) as checkpoint:
            for name in checkpoint.names():
                shape = checkpoint._store.shape(name)
                try:
                    tensor = checkpoint.tensor(name)
                except CheckpointError:
                    continue
                assert tensor.shape == shape and tensor.dtype == np.float32
            for use in (checkpoint.embedding, checkpoint.final_norm, checkpoint.tokenizer_size, checkpoint.to_record):
                try:
                    use()
                except CheckpointError:
                    pass
    except CheckpointError as error:
        assert path.name in str(error)


@pytest.mark.parametrize("file", FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_flipped_bytes(tmp_path_factory, file, data):
    content = bytearray(_intact(file))
    # Half of the flips go to the first bytes, where the structure is densest.
    places = st.one_of(st.integers(0, len(content) - 1), st.integers(0, min(len(content) - 1, 150)))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)):
        content[place] = value
    path = tmp_path_factory.mktemp("flip") / file
    path.write_bytes(content)
    tracemalloc.start()
    try:
        _read_all(path)
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("file", FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0, 0.999))
def test_truncated_files_are_refused(tmp_path_factory, file, share):
    content = _intact(file)
    path = tmp_path_factory.mktemp("cut") / file
    path.write_bytes(content[: int(share * len(content))])
    _read_all(path)
    if share < 0.9 and not file.endswith(".gguf"):  # a GGUF file may end in padding
        with pytest.raises(CheckpointError):
            open_checkpoint(path)


@pytest.mark.parametrize("file", FORMATS)
@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\xff" * 64, b"<!DOCTYPE html><html>404</html>", b"version https://git-lfs"]
)
def test_other_things_under_the_name(tmp_path, file, content):
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=path.name):
        open_checkpoint(path).embedding()
