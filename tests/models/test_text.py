"""Text: read, cut, and positions drawn without the first, without special tokens, without repetition."""

import json

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from repcap_jax.checkpoints import CheckpointError, open_checkpoint
from repcap_jax.models import Documents, read_documents, sample_tokens
from tests.checkpoints.builders import llama_config, llama_tensors, write_model

BOS, PAD = 0, 1
WORDS = ["<s>", "<pad>", "?", *"abcdefghijkl"]


def write_tokenizer(folder, bos=True):
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", pad_token="<pad>", unk_token="?")
    tokenizer.save_pretrained(folder)


@pytest.fixture
def checkpoint(tmp_path):
    write_model(tmp_path, llama_tensors(), llama_config())
    write_tokenizer(tmp_path)
    with open_checkpoint(tmp_path) as opened:
        yield opened


def text(words):
    """`words` words, of which every fifth is a padding token."""
    return Documents(("words",), (" ".join("<pad>" if i % 5 == 4 else WORDS[3 + i % 12] for i in range(words)),))


def draw(checkpoint, n, seed=0, **options):
    return sample_tokens(jax.random.key(seed), checkpoint, n, **({"documents": text(70), "seq_len": 8} | options))


def test_sequences(checkpoint):
    found = draw(checkpoint, 10, sequences=100)
    assert found.sequences.shape == (10, 8) and found.text_tokens == 70 and found.text_sequences == 10
    assert (found.sequences[:, 0] == BOS).all() and found.bos
    body = found.sequences[:, 1:].reshape(-1)
    assert [WORDS[i] for i in body] == text(70).texts[0].split()


def test_positions(checkpoint):
    found = draw(checkpoint, 30)
    assert found.n == 30 and len(found.positions) == len(found.sequences)
    for row, chosen in zip(found.sequences, found.positions):
        assert (np.diff(chosen) > 0).all() and 0 not in chosen
        assert not np.isin(row[chosen], [BOS, PAD]).any()
    assert found.skipped_first == len(found.sequences)
    assert found.skipped_special == (found.sequences[:, 1:] == PAD).sum()
    assert found.candidates == found.sequences.size - found.skipped_first - found.skipped_special
    np.testing.assert_array_equal(draw(checkpoint, 30).tokens(), found.tokens())
    assert not np.array_equal(draw(checkpoint, 30, seed=1).tokens(), found.tokens())


def test_positions_are_uniform(checkpoint):
    """Every allowed position is drawn about equally often, over many keys."""
    counts = np.zeros(80)
    for seed in range(60):
        found = draw(checkpoint, 14, seed, sequences=10)
        for row, chosen in enumerate(found.positions):
            counts[row * 8 + chosen] += 1
    allowed = (found.sequences != BOS) & (found.sequences != PAD)
    assert (counts.reshape(10, 8)[~allowed] == 0).all()
    drawn = counts.reshape(10, 8)[allowed]
    assert len(drawn) == 56 and drawn.mean() == 15
    # Each count is binomial(60, 1/4), of variance 11.25.
    assert 0.6 < drawn.var() / 11.25 < 1.6


def test_first_position_on_request(tmp_path):
    """A tokenizer that adds no beginning token gives sequences whose first position is an ordinary token."""
    write_model(tmp_path, llama_tensors(), llama_config())
    write_tokenizer(tmp_path, bos=False)
    with open_checkpoint(tmp_path) as checkpoint:
        found = draw(checkpoint, 5, sequences=100, skip_first=False)
        assert not found.bos and found.skipped_first == 0
        assert found.candidates == found.sequences.size - (found.sequences == PAD).sum()
        assert draw(checkpoint, 5, sequences=100).candidates < found.candidates


def test_record(checkpoint):
    found = draw(checkpoint, 10)
    record = found.to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["n"], record["seq_len"], record["bos"], record["text"]) == (10, 8, True, ["words"])
    assert record["key"] == {"data": [0, 0], "impl": "threefry2x32"}
    assert record["sha256"] != draw(checkpoint, 10, documents=text(71)).to_record()["sha256"]


def test_files(tmp_path):
    (tmp_path / "a.txt").write_text("one text\n\nwith lines\n")
    (tmp_path / "b.jsonl").write_text('{"text": "first", "id": 3}\n\n{"text": "second\\n"}\n{"text": " "}\n')
    found = read_documents([tmp_path / "a.txt", tmp_path / "b.jsonl"])
    assert found.texts == ("one text\n\nwith lines\n", "first", "second\n")
    assert [name.rsplit("/", 1)[-1] for name in found.names] == ["a.txt", "b.jsonl"]


def test_default_text():
    found = read_documents()
    assert found.names == ("pydoc_data.topics",) and len(found.texts) > 50


def test_too_little_text(checkpoint):
    with pytest.raises(ValueError, match=r"\(words\) has 5 tokens, less than one sequence of 8"):
        draw(checkpoint, 1, documents=text(5))
    with pytest.raises(ValueError, match=r"n = 57 tokens were asked for.*have 56 to draw from"):
        draw(checkpoint, 57, sequences=100)
    assert draw(checkpoint, 56, sequences=100).n == 56


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 2.0}, {"n": 1, "seq_len": 1}, {"n": 1, "sequences": 0}])
def test_bad_numbers(checkpoint, options):
    with pytest.raises((ValueError, TypeError), match="must be|Type-check"):
        draw(checkpoint, **options)


def test_no_tokenizer(tmp_path):
    write_model(tmp_path, llama_tensors(), llama_config())
    with open_checkpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match="no tokenizer"):
        draw(checkpoint, 1)


def test_unreadable_files(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.txt: cannot be read"):
        read_documents([tmp_path / "missing.txt"])
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match="cannot be read as text"):
        read_documents([tmp_path / "bytes.txt"])
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"words": 1}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: expected an object"):
        read_documents([tmp_path / "rows.jsonl"])
    with pytest.raises(ValueError, match="at least one file"):
        read_documents([])
