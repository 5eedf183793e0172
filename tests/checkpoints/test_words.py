"""Words as tokens of every common kind of tokenizer."""

import pytest

from repcap_jax.checkpoints.words import Words, visible
from tests.tokenizers import KINDS, make_tokenizer

WORDS = ["a", "cat", "Cat", "CAT", "dog"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("added", [{}, {"bos": True}, {"bos": True, "eos": True}], ids=["plain", "bos", "both"])
def test_words_are_found_with_their_own_mark(kind, added):
    tokenizer = make_tokenizer([*WORDS, "café"], kind, **added)
    words, vocabulary = Words(tokenizer), tokenizer.get_vocab()
    mark = {"bytes": "Ġ", "pieces": "▁"}.get(kind, "")
    assert words.token("cat") == vocabulary[f"{mark}cat"]
    assert words.text(words.token("cat")).replace("␣", "") == "cat"
    assert words.text(words.token("café")).replace("␣", "") == "café"
    missing = words.look_up("zebra")
    assert missing.token is None
    assert missing.problem == "not in the vocabulary" if kind == "words" else "tokens" in missing.problem
    assert set(words.variants("cat")) >= {words.token(word) for word in ("cat", "Cat", "CAT")}
    assert words.token("dog") not in words.variants("cat")


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_word_start_shows(kind):
    words = Words(make_tokenizer(["cat"], kind))
    assert words.text(words.token("cat")) == "␣cat"


def test_a_lone_space_is_no_part_of_a_digit():
    words = Words(make_tokenizer(WORDS, "bytes"))
    found = words.look_up("7")
    assert found.token is not None and words.text(found.token) == "7" and found.problem is None
    assert words.look_up("77").token is None


def test_unreadable_bytes_and_padding_rows():
    words = Words(make_tokenizer(["日"], "bytes"))
    assert words.text(words.token("日")) == "␣日"
    byte = words._raw and next(i for i, raw in words._raw.items() if raw == "æ")  # the byte 0xE6 by itself
    assert words.text(byte) == "\\xe6"
    assert words.text(words.size + 5) == f"#{words.size + 5}"
    assert visible(" \tx\n ") == "␣\\tx\\n␣" and visible("  ") == "␣␣" and visible("\u200b") == "\\u200b"


def test_text_to_continue_keeps_the_first_and_drops_the_last_token():
    tokenizer = make_tokenizer(WORDS, "bytes", bos=True, eos=True)
    ids = Words(tokenizer).encode_text("a cat")
    assert ids[0] == tokenizer.bos_token_id and tokenizer.eos_token_id not in ids and len(ids) == 3


def test_bad_input():
    with pytest.raises(TypeError, match="transformers tokenizer"):
        Words(object())
    words = Words(make_tokenizer(WORDS))
    for bad in ("", " cat", "cat "):
        with pytest.raises(ValueError, match="without spaces"):
            words.look_up(bad)
