"""Counterfactual word pairs: lists of words that differ in one concept, and the tokens that spell them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from repcap_jax.checkpoints.words import Words

MIN_PAIRS = 2  # leaving one out must leave one


@dataclasses.dataclass(frozen=True)
class TextPairs:
    """Pairs of words (or of contexts) that differ in one concept.

    Attributes:
      name: of the concept.
      group: concepts of one group are not taken to be causally separable (forms of a verb, two languages).
      pairs: (before, after), in the order of the file.
    """

    name: str
    group: str
    pairs: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class TokenPairs:
    """The pairs of a concept whose words are single, differing tokens.

    Attributes:
      name, group: as in `TextPairs`.
      rows: `(m, 2)` token ids.
      words: the pairs that are left, in words.
      dropped: (before, after, why) of the others.
    """

    name: str
    group: str
    rows: Int[np.ndarray, "m 2"]
    words: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, str, str], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def to_record(self) -> dict[str, Any]:
        """Counts, and what was dropped and why, as valid JSON."""
        return {
            "concept": self.name,
            "group": self.group,
            "n_pairs": len(self),
            "n_dropped": len(self.dropped),
            "dropped": [f"{before}/{after}: {why}" for before, after, why in self.dropped],
        }


def read_text_pairs(path: str | os.PathLike[str]) -> TextPairs:
    """Read a file with one `before<TAB>after` a line; `#` starts a comment, `# group: name` names the group.

    Args:
      path: the file; its name without ending names the concept, and its group where the file does not.
    Returns:
      TextPairs; repeated lines once.
    Raises:
      ValueError: the file cannot be read, or a line is not two columns; with file and line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return _parsed(text, path.stem, str(path))


def read_folder(folder: str | os.PathLike[str]) -> list[TextPairs]:
    """Read every `.tsv` and `.txt` file of a folder, by name.

    Raises:
      ValueError: it is no folder, holds no such file, or one cannot be read.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise ValueError(f"{root} is no folder; put one word<TAB>word file for each concept into one")
    paths = sorted(path for path in root.iterdir() if path.suffix in (".tsv", ".txt") and path.is_file())
    if not paths:
        raise ValueError(f"{root} holds no .tsv or .txt file; put one word<TAB>word file for each concept into it")
    return [read_text_pairs(path) for path in paths]


def built_in_concepts() -> list[TextPairs]:
    """The counterfactual word pairs that come with the package, by name."""
    return _built_in("words")


def built_in_contexts() -> list[TextPairs]:
    """Pairs of contexts that call for the first or the second word of a concept's pairs, by the concept's name."""
    return _built_in("contexts")


def resolve(concept: TextPairs, words: Words, n_rows: int) -> TokenPairs:
    """Keep the pairs whose two words are single tokens, differ, and have a row.

    Words are looked up as they appear in running text, so that a beginning-of-text token plays no part.

    Args:
      concept: the word pairs.
      words: looks them up.
      n_rows: rows of the unembedding.
    Returns:
      TokenPairs, possibly without any pair.
    """
    rows, kept, dropped = [], [], []
    for before, after in concept.pairs:
        found = words.look_up(before), words.look_up(after)
        problems = [f"{lookup.word} is {lookup.problem}" for lookup in found if lookup.problem]
        pair = tuple(lookup.token for lookup in found)
        if not problems and pair[0] == pair[1]:
            problems.append("both words are one token")
        elif not problems and max(pair) >= n_rows:
            problems.append(f"a token is beyond the unembedding's {n_rows} rows")
        elif not problems and pair in rows:
            problems.append("the tokens repeat an earlier pair")
        if problems:
            dropped.append((before, after, "; ".join(problems)))
        else:
            rows.append(pair)
            kept.append((before, after))
    return TokenPairs(concept.name, concept.group, np.array(rows, np.int64).reshape(-1, 2), tuple(kept), tuple(dropped))


def usable(
    concepts: Iterable[TextPairs], words: Words, n_rows: int, min_pairs: int = MIN_PAIRS
) -> tuple[list[TokenPairs], dict[str, str]]:
    """Resolve concepts and set those with too few pairs aside.

    Args:
      concepts: word pairs by concept.
      words: looks them up.
      n_rows: rows of the unembedding.
      min_pairs: fewest pairs of a usable concept, at least 2.
    Returns:
      The usable concepts, and for each other one why it is left out.
    Raises:
      ValueError: min_pairs is below 2.
    """
    if min_pairs < MIN_PAIRS:
        raise ValueError(f"min_pairs must be at least {MIN_PAIRS}, since each pair is left out once, got {min_pairs}")
    kept, left_out = [], {}
    for concept in concepts:
        found = resolve(concept, words, n_rows)
        if len(found) >= min_pairs:
            kept.append(found)
        else:
            reasons = f"; for instance {'/'.join(found.dropped[0][:2])}: {found.dropped[0][2]}" if found.dropped else ""
            left_out[concept.name] = (
                f"{len(found)} of its {len(concept.pairs)} pairs are single, differing tokens, min_pairs = "
                f"{min_pairs} are needed{reasons}"
            )
    return kept, left_out


def _built_in(kind: str) -> list[TextPairs]:
    folder = resources.files("repcap_jax.concepts") / "data" / kind
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".tsv")), key=lambda file: file.name)
    return [_parsed(file.read_text(encoding="utf-8"), file.name.removesuffix(".tsv"), file.name) for file in files]


def _parsed(text: str, name: str, place: str) -> TextPairs:
    group, pairs = name, {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            group = value.strip() if key.strip() == "group" and value.strip() else group
            continue
        columns = [column.strip() for column in line.split("\t")]
        if not any(columns):
            continue
        if len(columns) != 2 or not all(columns):
            raise ValueError(f"{place}, line {number}: expected two columns, word<TAB>word, got {line!r}")
        pairs[(columns[0], columns[1])] = None
    return TextPairs(name, group, tuple(pairs))
