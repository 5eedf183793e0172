"""Text for hidden states: read, tokenised, cut into sequences, and the token positions drawn from them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int32

from repcap_jax.checkpoints import Checkpoint
from repcap_jax.kernels.checks import whole

DEFAULT_TEXT = "pydoc_data.topics"
_TOKENS_A_SEQUENCE = 16  # drawn from each on average, where the text has enough sequences


class Documents(NamedTuple):
    """Texts and where they are from.

    Attributes:
      names: of the files, or of the default.
      texts: the documents.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Digest of the texts."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class TokenSample:
    """Sequences of tokens and the positions drawn from them, with what they are drawn from.

    Attributes:
      sequences: `(count, seq_len)` token ids, for `extract_states`.
      positions: for each sequence the drawn positions, rising.
      text: names of the files.
      sha256: of the text.
      text_tokens: tokens of the whole text.
      text_sequences: sequences that the text makes; `sequences` are drawn from these.
      candidates: positions that were drawn from.
      skipped_first, skipped_special: positions left out for being first, or a beginning or padding token.
      bos: whether each sequence begins with the tokenizer's beginning token.
      key_data, key_impl: the random key.
    """

    sequences: Int32[np.ndarray, "count seq_len"]
    positions: tuple[np.ndarray, ...]
    text: tuple[str, ...]
    sha256: str
    text_tokens: int
    text_sequences: int
    candidates: int
    skipped_first: int
    skipped_special: int
    bos: bool
    key_data: tuple[int, ...]
    key_impl: str

    @property
    def n(self) -> int:
        """Tokens drawn."""
        return sum(len(row) for row in self.positions)

    def tokens(self) -> Int32[np.ndarray, " n"]:
        """The drawn token ids, in the order of `extract_states`."""
        return np.concatenate([row[chosen] for row, chosen in zip(self.sequences, self.positions)])

    def to_record(self) -> dict[str, Any]:
        """Everything but the tokens and positions, as valid JSON."""
        return {
            "text": list(self.text),
            "sha256": self.sha256,
            "text_tokens": self.text_tokens,
            "text_sequences": self.text_sequences,
            "sequences": len(self.sequences),
            "seq_len": self.sequences.shape[1],
            "n": self.n,
            "candidates": self.candidates,
            "skipped_first": self.skipped_first,
            "skipped_special": self.skipped_special,
            "bos": self.bos,
            "key": {"data": list(self.key_data), "impl": self.key_impl},
        }


def read_documents(files: Sequence[str | os.PathLike] | None = None) -> Documents:
    """Read text.

    Args:
      files: plain text, one document each, or JSON lines (`.jsonl`) with a `text` in each; None for the help topics
        that come with Python.
    Returns:
      The documents, empty ones left out.
    Raises:
      ValueError: no file, one that cannot be read as UTF-8 text, or a line without `text`.
    """
    if files is None:
        from pydoc_data.topics import topics

        return Documents((DEFAULT_TEXT,), tuple(topics[name] for name in sorted(topics)))
    if isinstance(files, (str, os.PathLike)) or not files:
        raise ValueError(f"files must be a list of at least one file, or None for Python's help topics, got {files!r}")
    texts: list[str] = []
    for file in files:
        try:
            content = Path(file).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}: cannot be read as text: {error}") from error
        texts += _lines(file, content) if Path(file).suffix == ".jsonl" else [content]
    return Documents(tuple(str(file) for file in files), tuple(text for text in texts if text.strip()))


def _lines(file: Any, content: str) -> list[str]:
    texts = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: expected JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise ValueError(f"{file}, line {number}: expected an object with a string under 'text'")
        texts.append(row["text"])
    return texts


def sample_tokens(
    key: Array,
    checkpoint: Checkpoint,
    n: int,
    *,
    documents: Documents | None = None,
    seq_len: int = 256,
    sequences: int | None = None,
    skip_first: bool = True,
) -> TokenSample:
    """Draw token positions uniformly, without replacement, from a text cut into sequences.

    The documents are tokenised one after another and cut into pieces of equal length; the rest is dropped. Where the
    tokenizer puts a beginning token first, every sequence starts with it. Then sequences are drawn, and from their
    positions `n`. The first position is left out because models use it as an attention sink, with a norm tens of times
    the median.

    Args:
      key: a `jax.random` key.
      checkpoint: whose tokenizer is used.
      n: positions to draw.
      documents: from `read_documents`; None for Python's help topics.
      seq_len: tokens in a sequence, at least 2.
      sequences: how many sequences to draw from; None for one for every 16 positions, or more where these are too few.
      skip_first: leave out position 0 of every sequence.
    Returns:
      The sample.
    Raises:
      CheckpointError: (a ValueError) the checkpoint has no tokenizer.
      ValueError: a text shorter than one sequence, or fewer positions than asked for.
    """
    n, seq_len = whole(n, "n", 1), whole(seq_len, "seq_len", 2)
    sequences = None if sequences is None else whole(sequences, "sequences", 1)
    tokenizer = checkpoint.tokenizer()
    documents = read_documents() if documents is None else documents
    ids = tokenise(tokenizer, documents)
    first = first_token(tokenizer)
    rows = _cut(ids, seq_len, first, documents)
    plain, special = _candidates(rows, tokenizer, skip_first)
    draw_rows, draw_positions = jax.random.split(key)
    order = np.asarray(jax.random.permutation(draw_rows, len(rows)))
    if sequences is None:
        enough = np.searchsorted(np.cumsum(plain[order].sum(axis=1)), n) + 1
        sequences = max(-(-n // _TOKENS_A_SEQUENCE), int(enough))
    chosen = np.sort(order[:sequences])
    drawn, allowed = rows[chosen], plain[chosen]
    count = int(allowed.sum())
    if n > count:
        raise ValueError(
            f"n = {n} tokens were asked for, but {len(drawn)} of the text's {len(rows)} sequences of {seq_len} tokens "
            f"have {count} to draw from: give more text or sequences, or a smaller n"
        )
    places = np.flatnonzero(allowed)[np.asarray(jax.random.permutation(draw_positions, count))[:n]]
    row_of, position_of = np.divmod(np.sort(places), seq_len)
    data = np.asarray(jax.random.key_data(key)).reshape(-1)
    return TokenSample(
        sequences=drawn,
        positions=tuple(position_of[row_of == i].astype(np.int32) for i in range(len(drawn))),
        text=documents.names,
        sha256=documents.sha256,
        text_tokens=len(ids),
        text_sequences=len(rows),
        candidates=count,
        skipped_first=len(drawn) if skip_first else 0,
        skipped_special=int(special[chosen].sum()),
        bos=first is not None,
        key_data=tuple(int(word) for word in data),
        key_impl=str(jax.random.key_impl(key)),
    )


def tokenise(tokenizer: Any, documents: Documents) -> Int32[np.ndarray, " tokens"]:
    """Tokenise documents one after another, an empty line between them, without special tokens."""
    ids: list[int] = []
    for text in documents.texts:
        ids += tokenizer(text + "\n\n", add_special_tokens=False, verbose=False)["input_ids"]
    return np.asarray(ids, np.int32)


def first_token(tokenizer: Any) -> int | None:
    """The token that the tokenizer puts before every text; None where it puts none."""
    bos, ids = tokenizer.bos_token_id, tokenizer("a")["input_ids"]
    return bos if bos is not None and ids and ids[0] == bos else None


def _cut(ids: np.ndarray, seq_len: int, first: int | None, documents: Documents) -> np.ndarray:
    """Sequences of `seq_len` tokens, the beginning token included."""
    body = seq_len - (first is not None)
    count = len(ids) // body
    if not count:
        raise ValueError(
            f"the text ({', '.join(documents.names)}) has {len(ids)} tokens, less than one sequence of {seq_len}: "
            "give more text or a smaller seq_len"
        )
    rows = ids[: count * body].reshape(count, body)
    return rows if first is None else np.insert(rows, 0, first, axis=1)


def _candidates(rows: np.ndarray, tokenizer: Any, skip_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which positions may be drawn, and which would be but for their beginning or padding token."""
    tokens = [token for token in (tokenizer.bos_token_id, tokenizer.pad_token_id) if token is not None]
    considered = np.ones(rows.shape, bool)
    considered[:, 0] = not skip_first
    special = np.isin(rows, tokens)
    return considered & ~special, considered & special
