"""Words of a language as tokens: which single token spells a word in running text, and what a token reads as."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

_ANCHOR = "a"  # an ordinary word before the one looked up, so that the tokenizer puts its own word-start mark on it
_SPACE = "\N{OPEN BOX}"


@dataclasses.dataclass(frozen=True)
class Lookup:
    """What a tokenizer makes of a word in running text.

    Attributes:
        word: as given.
        token: the id of the single token that spells it, None where there is none.
        pieces: the ids of the tokens that spell it.
        problem: why there is no single token, None where there is one.
    """

    word: str
    token: int | None
    pieces: tuple[int, ...]
    problem: str | None


class Words:
    """Looks words up in a tokenizer, whatever its word-start mark, and whether or not it adds a first or last token.

    A word is encoded after another one, and what stands before it is taken away, so that it is found as it appears in
    running text: ``Ġcat`` in byte-level vocabularies, ``▁cat`` in SentencePiece ones, ``cat`` in WordPiece ones.

    Args:
        tokenizer: what ``Checkpoint.tokenizer()`` returns.

    Raises:
        TypeError: it lacks the methods of a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any):
        missing = [name for name in ("encode", "decode", "get_vocab") if not callable(getattr(tokenizer, name, None))]
        if missing:
            raise TypeError(
                f"expected a transformers tokenizer, got {type(tokenizer).__name__} without {', '.join(missing)}; "
                "use checkpoint.tokenizer() or transformers.AutoTokenizer"
            )
        self._tokenizer = tokenizer
        self._raw = {number: token for token, number in tokenizer.get_vocab().items()}
        # A tokenizer.json may have an unknown token that transformers is not told about.
        names = (getattr(tokenizer, "unk_token", None), "[UNK]", "<unk>")
        self._unknown = {number for number, token in self._raw.items() if token in names}
        self._special = set(getattr(tokenizer, "all_special_ids", None) or ()) - self._unknown
        self._wordpiece = _marks_continuations(self._raw.values())
        self._head = self._encode(_ANCHOR)
        self._texts: dict[int, str] = {}

    @property
    def size(self) -> int:
        """One more than the largest token id."""
        return max(self._raw, default=-1) + 1

    def look_up(self, word: str) -> Lookup:
        """Find the token that spells a word as it appears in running text.

        A piece that is nothing but the space before the word (single digits in many vocabularies) does not count.

        Args:
            word: without spaces at its ends.

        Returns:
            A Lookup, with the reason where the word is no single token.

        Raises:
            ValueError: the word is empty or has spaces at its ends.
        """
        if not word or word != word.strip():
            raise ValueError(f"expected a word without spaces at its ends, got {word!r}")
        pieces = self._encode(f"{_ANCHOR} {word}")
        if pieces[: len(self._head)] != self._head:  # the tokenizer joined the two; the word alone has to do
            return self._judged(word, self._encode(word))
        return self._judged(word, pieces[len(self._head) :])

    def token(self, word: str) -> int | None:
        """The id of the single token that spells a word in running text, None where there is none."""
        return self.look_up(word).token

    def variants(self, word: str) -> tuple[int, ...]:
        """The single tokens that spell a word in any common case, with and without the word-start mark, rising."""
        cases = {word, word.lower(), word.upper(), word.capitalize(), word.title(), word.swapcase()}
        found = {self.token(case) for case in cases}
        found |= {self._judged(case, self._encode(case)).token for case in cases}
        return tuple(sorted(number for number in found if number is not None))

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text, with the first and last tokens that the tokenizer adds by itself, but no last one.

        Args:
            text: to be continued by a model.

        Returns:
            Token ids; a token that ends the text is taken off, so that the text can go on.

        Raises:
            ValueError: the text has no token.
        """
        ids = list(self._tokenizer.encode(text))
        while len(ids) > 1 and ids[-1] in self._special:
            ids.pop()
        if not ids:
            raise ValueError(f"expected a text with at least one token, got {text!r}")
        return ids

    def text(self, token: int | np.integer) -> str:
        """What a token reads as: spaces at its ends as ``␣``, what cannot be printed as escapes, no marks of the file.

        Args:
            token: an id; a row beyond the vocabulary reads as ``#id``.
        """
        token = int(token)
        if token not in self._texts:
            self._texts[token] = visible(self._plain(token)) if token in self._raw else f"#{token}"
        return self._texts[token]

    def texts(self, tokens: Iterable[int | np.integer]) -> list[str]:
        """What each of several tokens reads as."""
        return [self.text(token) for token in tokens]

    def _judged(self, word: str, pieces: list[int]) -> Lookup:
        while len(pieces) > 1 and not self._plain(pieces[0]).strip():
            pieces = pieces[1:]
        if not pieces or self._unknown.intersection(pieces):
            return Lookup(word, None, tuple(pieces), "not in the vocabulary")
        if len(pieces) > 1:
            return Lookup(word, None, tuple(pieces), f"{len(pieces)} tokens: {' | '.join(self.texts(pieces))}")
        return Lookup(word, pieces[0], tuple(pieces), None)

    def _encode(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [number for number in ids if number not in self._special]

    def _plain(self, token: int) -> str:
        """The token's text with the space it starts with; bytes that are no whole character as escapes."""
        raw = self._raw.get(token, "")
        if self._wordpiece and token not in self._special:
            return raw[2:] if raw.startswith("##") and len(raw) > 2 else f" {raw}"
        text = self._tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if "\N{REPLACEMENT CHARACTER}" in text:
            found = [_BYTES.get(character) for character in raw]
            return raw if None in found else bytes(found).decode("utf-8", errors="backslashreplace")
        # SentencePiece decoders drop the space of the first token.
        return f" {text}" if raw.startswith("▁") and not text.startswith(" ") else text


def _marks_continuations(tokens: Iterable[str]) -> bool:
    """Whether a vocabulary is of the WordPiece kind, which marks what continues a word and not what starts one."""
    tokens = list(tokens)
    marked = any(token.startswith(("Ġ", "▁")) for token in tokens)
    return not marked and any(token.startswith("##") and token[2:3].isalnum() for token in tokens)


def visible(text: str) -> str:
    """Text on one line, in which every character can be seen: spaces at the ends as ``␣``, the rest as escapes."""
    core = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if core else len(text)
    after = len(text) - before - len(core)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in core)
    return _SPACE * before + shown + _SPACE * after


def _byte_letters() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for: printable Latin-1 is itself, the rest is moved
    behind it in order (the published convention of GPT-2's vocabulary)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + place): byte for place, byte in enumerate(moved)}


_BYTES = _byte_letters()
