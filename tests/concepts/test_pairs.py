"""Word lists: the package's own, the user's, and what is dropped and why."""

import pytest

from repcap_jax.checkpoints.words import Words
from repcap_jax.concepts.pairs import (
    TextPairs,
    built_in_concepts,
    built_in_contexts,
    read_folder,
    read_text_pairs,
    resolve,
    usable,
)
from tests.tokenizers import make_tokenizer

KNOWN = ["walk", "walked", "jump", "jumped", "go", "went"]


def test_the_packages_own_lists():
    concepts = built_in_concepts()
    assert len(concepts) >= 15 and len({concept.name for concept in concepts}) == len(concepts)
    for concept in concepts:
        assert len(concept.pairs) >= 20, concept.name
        assert all(before != after for before, after in concept.pairs), concept.name
        assert all(word == word.strip() and "\t" not in word for pair in concept.pairs for word in pair)
    assert len({concept.group for concept in concepts}) >= 8
    names = {concept.name for concept in concepts}
    for context in built_in_contexts():
        assert context.name in names and len(context.pairs) >= 10


def test_reading_a_folder(tmp_path):
    (tmp_path / "tense.tsv").write_text("# group: verbs\nwalk\twalked\n\n  go\twent \nwalk\twalked\n", encoding="utf-8")
    (tmp_path / "other.txt").write_text("\ufeffjump\tjumped\n", encoding="utf-8")
    (tmp_path / "notes.md").write_text("no list\n")
    other, tense = read_folder(tmp_path)
    assert (tense.name, tense.group, tense.pairs) == ("tense", "verbs", (("walk", "walked"), ("go", "went")))
    assert (other.name, other.group) == ("other", "other") and other.pairs == (("jump", "jumped"),)


def test_missing_columns_name_file_and_line(tmp_path):
    for bad in ("walk\twalked\nlonely\n", "walk\twalked\na\tb\tc\n", "walk\twalked\nx\t\n"):
        (tmp_path / "bad.tsv").write_text(bad)
        with pytest.raises(ValueError, match=r"bad.tsv, line 2: expected two columns"):
            read_folder(tmp_path)
    (tmp_path / "bad.tsv").write_bytes(b"caf\xe9\tx\n")
    with pytest.raises(ValueError, match="cannot be read"):
        read_text_pairs(tmp_path / "bad.tsv")
    with pytest.raises(ValueError, match="no folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "bad.tsv").unlink()
    with pytest.raises(ValueError, match="holds no .tsv"):
        read_folder(tmp_path)


@pytest.mark.parametrize("added", [{}, {"bos": True}, {"bos": True, "eos": True}], ids=["plain", "bos", "both"])
@pytest.mark.parametrize("kind", ["bytes", "pieces", "wordpiece", "words"])
def test_pairs_are_kept_and_dropped_alike_with_and_without_bos(kind, added):
    words = Words(make_tokenizer(KNOWN, kind, **added))
    concept = TextPairs("past", "verb", (("walk", "walked"), ("run", "ran"), ("go", "went"), ("go", "go")))
    found = resolve(concept, words, words.size)
    assert found.words == (("walk", "walked"), ("go", "went")) and len(found) == 2
    assert [words.text(row).strip("␣") for row in found.rows[0]] == ["walk", "walked"]
    reasons = {dropped[0]: dropped[2] for dropped in found.dropped}
    assert "tokens" in reasons["run"] or "not in the vocabulary" in reasons["run"]
    assert reasons["go"] == "both words are one token"
    assert found.to_record()["n_dropped"] == 2


def test_rows_beyond_the_matrix_and_repeats():
    words = Words(make_tokenizer(KNOWN, "words"))
    concept = TextPairs("past", "verb", (("walk", "walked"), ("jump", "went")))
    found = resolve(concept, words, words.token("went"))
    assert len(found) == 1 and "beyond" in found.dropped[0][2]


def test_unusable_concepts_are_said():
    words = Words(make_tokenizer(KNOWN))
    concepts = [
        TextPairs("past", "verb", (("walk", "walked"), ("go", "went"))),
        TextPairs("single", "verb", (("walk", "walked"),)),
        TextPairs("unknown", "verb", (("sing", "sang"), ("ring", "rang"))),
    ]
    kept, left_out = usable(concepts, words, words.size)
    assert [concept.name for concept in kept] == ["past"]
    assert left_out["single"].startswith("1 of its 1 pairs")
    assert left_out["unknown"].startswith("0 of its 2 pairs") and "sing is 4 tokens" in left_out["unknown"]
    with pytest.raises(ValueError, match="at least 2"):
        usable(concepts, words, words.size, min_pairs=1)
