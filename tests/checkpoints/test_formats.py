"""Every format gives the numbers that were written, as float32, and refuses what it cannot read."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b


@pytest.mark.parametrize("dtype", [np.float32, np.float16, b.BFLOAT16, np.float64], ids=str)
def test_safetensors_dtypes_come_out_as_float32(tmp_path, dtype):
    written = b.matrix(dtype=dtype)
    folder = b.write_model(tmp_path, {"wte.weight": written}, None)
    with open_checkpoint(folder) as checkpoint:
        read = checkpoint.embedding()
        assert read.dtype == np.float32 and read.flags.writeable
        np.testing.assert_array_equal(read, written.astype(np.float32))
        assert checkpoint.to_record()["tensors"]["embedding"]["dtype"] == np.dtype(dtype).name


def test_safetensors_written_by_the_library(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(b.llama_tensors(), tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))


@pytest.mark.parametrize("code", ["F8_E4M3", "I8", "F4"])
def test_safetensors_refuses_what_is_no_float(tmp_path, code):
    row = {"dtype": code, "shape": [2, 2], "data_offsets": [0, 4]}
    (tmp_path / "model.safetensors").write_bytes(b.with_header(json.dumps({"wte.weight": row}).encode(), bytes(4)))
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*wte\.weight.*float32"):
        open_checkpoint(tmp_path).embedding()


def _row(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ('{"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "a": {}}', "given twice"),
        (json.dumps({"a": _row([4], [0, 16]), "b": _row([4], [8, 24])}), "overlap"),
        (json.dumps({"a": _row([4], [16, 32])}), "outside"),
        (json.dumps({"a": _row([4], [-4, 12])}), "outside"),
        (json.dumps({"a": _row([3], [0, 16])}), "takes 12 bytes"),
        (json.dumps({"a": _row([-1], [0, 4])}), "non-negative"),
        (json.dumps({"a": _row([2**62, 0], [0, 0])}), "larger than any array"),
        (json.dumps({"a": _row([True], [0, 4])}), "non-negative"),
        (json.dumps({"a": [1]}), "expected dtype"),
        ("[]", "JSON object"),
        ("[" * 100_000, "does not parse"),
    ],
)
def test_safetensors_headers_that_lie(tmp_path, header, words):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b.with_header(header.encode(), bytes(24)))
    with pytest.raises(CheckpointError, match=words) as failure:
        open_checkpoint(path)
    assert "x.safetensors" in str(failure.value)


@pytest.mark.parametrize("chunk_bytes", [None, 24, 100])
def test_flax_msgpack_whole_and_in_chunks(tmp_path, chunk_bytes):
    (tmp_path / "flax_model.msgpack").write_bytes(b.flax_bytes(b.flax_llama(), chunk_bytes))
    b.write_config(tmp_path, b.llama_config())
    checkpoint = open_checkpoint(tmp_path)
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))  # the Dense kernel is (d_model, vocab)
    np.testing.assert_array_equal(checkpoint.final_norm().weight, b.vector())
    assert checkpoint.format == "flax" and not checkpoint.tied


def test_flax_bfloat16_and_leaves_that_are_no_arrays(tmp_path):
    tensors = {"transformer.wte.embedding": b.matrix(dtype=b.BFLOAT16), "step": np.float32(3), "transformer.names": "x"}
    (tmp_path / "flax_model.msgpack").write_bytes(b.flax_bytes(tensors))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.names() == ("transformer.wte.embedding",)
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix())


def test_flax_shards_with_an_empty_one(tmp_path):
    parts = [b.flax_llama(tied=True), {"lm_head.kernel": b.matrix(seed=3).T.copy()}]
    weight_map = {}
    for i, part in enumerate(parts, 1):
        shard = f"flax_model-{i:05}-of-00003.msgpack"
        (tmp_path / shard).write_bytes(b.flax_bytes(part))
        weight_map |= {name.replace(".", "/"): shard for name in part}
    (tmp_path / "flax_model-00003-of-00003.msgpack").write_bytes(b"\x80")
    b.write_index(tmp_path, weight_map, "flax_model.msgpack.index.json")
    checkpoint = open_checkpoint(b.write_config(tmp_path, b.llama_config()))
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=1))
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=3))
    assert open_checkpoint(tmp_path / "flax_model-00003-of-00003.msgpack").names() == ()


def _packed(*parts) -> bytes:
    import msgpack

    return b"".join(part if isinstance(part, bytes) else msgpack.packb(part) for part in parts)


def _array(shape, data, code=1):
    import msgpack

    return msgpack.ExtType(code, msgpack.packb((shape, "float32", data)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_packed({"a": _array([2], bytes(8), code=9)}), "extension code 9"),
        (_packed({"a": _array([-2], bytes(8))}), "non-negative"),
        (_packed({"a": _array([3], bytes(8))}), "takes 12 bytes"),
        (_packed({"a": _array([2**40], bytes(8))}), "takes"),
        (_packed(b"\x81\xa1a" * 200, b"\xc0"), "nested deeper"),
        (_packed(b"\xdf\xff\xff\xff\xff"), "items announced"),
        (_packed(b"\x82\xa1a\xc0\xa1a\xc0"), "given twice"),
        (_packed({}, b"\x00"), "follow the end"),
        (_packed([1]), "expected a map"),
        (_packed(b"\xc1"), "starts no msgpack object"),
        (_packed({"w": {"__msgpack_chunked_array__": True, "shape": {"0": 9}, "chunks": {"0": _array([2], bytes(8))}}}),
         "do not add up"),
        (_packed({"w": {"__msgpack_chunked_array__": True, "shape": {"0": 2}, "chunks": {"1": _array([2], bytes(8))}}}),
         "numbered from 0"),
    ],
)  # fmt: skip
def test_flax_files_that_lie(tmp_path, content, words):
    path = tmp_path / "flax_model.msgpack"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as failure:
        open_checkpoint(path)
    assert "flax_model.msgpack" in str(failure.value)


def test_npy_and_npz(tmp_path):
    written = b.matrix()
    for name, array in {"c": written, "f": np.asfortranarray(written), "half": written.astype(np.float16)}.items():
        np.save(tmp_path / f"{name}.npy", array)
        np.savez_compressed(tmp_path / f"{name}.npz", rows=array, counts=np.arange(3))
        for suffix in ("npy", "npz"):
            with open_checkpoint(tmp_path / f"{name}.{suffix}") as checkpoint:
                read = checkpoint.embedding()
                np.testing.assert_array_equal(read, written)
                assert read.dtype == np.float32 and read.flags.c_contiguous
                assert checkpoint.config == {} and checkpoint.tokenizer_size() is None and checkpoint.tied
                assert "serves as both" in checkpoint.notes[0]


def test_arrays_never_unpickle(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[object()]]), allow_pickle=True)
    np.savez(tmp_path / "a.npz", rows=np.array([[object()]]))
    with pytest.raises(CheckpointError, match=r"a\.npy"):
        open_checkpoint(tmp_path / "a.npy")
    with pytest.raises(CheckpointError, match=r"a\.npz"):
        open_checkpoint(tmp_path / "a.npz").tensor("rows")


def test_npz_with_several_matrices_asks_which(tmp_path):
    np.savez(tmp_path / "a.npz", one=b.matrix(seed=1), two=b.matrix(seed=2))
    with pytest.raises(CheckpointError, match=r"embedding_tensor=NAME.*one \(11, 8\)"):
        open_checkpoint(tmp_path / "a.npz").embedding()
    checkpoint = open_checkpoint(tmp_path / "a.npz", embedding_tensor="two", unembedding_tensor="one")
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix(seed=2))
    np.testing.assert_array_equal(checkpoint.unembedding(), b.matrix(seed=1))
    assert not checkpoint.tied


def test_lone_safetensors_ignores_its_neighbours(tmp_path):
    b.write_config(tmp_path, b.llama_config(hidden_size=999))
    (tmp_path / "vectors.safetensors").write_bytes(b.safetensors_bytes({"x": b.matrix()}))
    checkpoint = open_checkpoint(tmp_path / "vectors.safetensors")
    np.testing.assert_array_equal(checkpoint.embedding(), b.matrix())
    assert checkpoint.config == {} and checkpoint.name == "vectors"


def test_lone_model_file_takes_the_config_beside_it(tmp_path):
    b.write_model(tmp_path, b.llama_tensors(), b.llama_config())
    assert open_checkpoint(tmp_path / "model.safetensors").family == "llama"


@pytest.mark.parametrize(
    ("module", "file", "extra"), [("torch", "pytorch_model.bin", "torch"), ("gguf", "model.gguf", "gguf")]
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, file, extra):
    if module == "gguf":
        b.write_gguf(tmp_path / file, {"token_embd.weight": (b.matrix(4, 32), "Q8_0")})
        monkeypatch.setitem(sys.modules, "gguf.quants", None)
    else:
        (tmp_path / file).write_bytes(b"PK\x03\x04 whatever")
        monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CheckpointError, match=rf"pip install repcap_jax\[{extra}\]"):
        open_checkpoint(tmp_path).embedding()


def test_importing_the_package_is_light():
    import subprocess

    heavy = "transformers huggingface_hub gguf torch jax flax safetensors"
    code = f"import sys, repcap_jax.checkpoints; print([m for m in {heavy!r}.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['jax']")  # beside an eager package __init__ jax may be there already
