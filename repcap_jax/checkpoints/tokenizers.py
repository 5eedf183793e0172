"""The tokenizer beside the weights: how many tokens it knows, and the tokenizer itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from repcap_jax.checkpoints.files import Files
from repcap_jax.checkpoints.jsonfile import load_object
from repcap_jax.checkpoints.store import CheckpointError, reading

_MAX_FILE = 256 * 2**20

# Any one of these makes a tokenizer; the others only describe it.
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")
_DESCRIPTIONS = (
    "config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip


def has_tokenizer(files: Files) -> bool:
    """Whether a folder or repository holds a tokenizer."""
    return any(name in files.names() for name in _VOCABULARIES)


def load_tokenizer(files: Files):
    """Load a tokenizer with transformers.

    Args:
        files: the folder or repository; of a repository only the tokenizer's files are downloaded.

    Returns:
        What ``AutoTokenizer.from_pretrained`` makes of the folder, custom code refused.

    Raises:
        CheckpointError: there is no tokenizer, or transformers cannot load it.
    """
    if not has_tokenizer(files):
        raise CheckpointError(
            f"{files.label}: no tokenizer beside the weights (expected one of {', '.join(_VOCABULARIES)}); load the "
            "model's own with transformers.AutoTokenizer."
        )
    present = set(files.names())
    wanted = [name for name in (*_VOCABULARIES, *_DESCRIPTIONS) if name in present]
    wanted += [name for name in present if name.endswith(".tiktoken")]
    folder = [files.path(name).parent for name in wanted][0]
    with reading(folder, "the tokenizer"):
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        try:
            return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except Exception:
            # A config.json that transformers refuses, or a class in custom code; tokenizer.json is complete without.
            if "tokenizer.json" not in present:
                raise
            return PreTrainedTokenizerFast.from_pretrained(str(folder))


def tokenizer_size(files: Files) -> int | None:
    """Count the rows that a tokenizer can address, without transformers where a JSON file says it.

    Args:
        files: the folder or repository.

    Returns:
        One more than the largest token id, so that rows ``[:size]`` hold every token and later rows are padding; None
        where there is no tokenizer.

    Raises:
        CheckpointError: the tokenizer's files are damaged.
    """
    present = files.names()
    if "tokenizer.json" in present:
        return _size_from_json(files.path("tokenizer.json"))
    if "vocab.json" in present:
        ids = list(_ids(files.path("vocab.json"), load_object(files.path("vocab.json"), _MAX_FILE).values()))
        if "added_tokens.json" in present:
            added = files.path("added_tokens.json")
            ids += _ids(added, load_object(added, _MAX_FILE).values())
        return max(ids, default=-1) + 1
    if not has_tokenizer(files):
        return None
    return max(load_tokenizer(files).get_vocab().values(), default=-1) + 1


def _size_from_json(path: Path) -> int:
    content = load_object(path, _MAX_FILE)
    model, added = content.get("model"), content.get("added_tokens") or []
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        ids = _ids(path, vocabulary.values())
    elif isinstance(vocabulary, list):  # unigram models list (token, score) in the order of their ids
        ids = range(len(vocabulary))
    else:
        raise CheckpointError(f"{path}: expected model.vocab to be a map or a list; the tokenizer file is damaged.")
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise CheckpointError(f"{path}: expected added_tokens to be a list of objects; the tokenizer file is damaged.")
    return max((*ids, *_ids(path, (token.get("id") for token in added))), default=-1) + 1


def _ids(path: Path, values: Iterable[object]) -> list[int]:
    ids = list(values)
    if not all(type(i) is int and i >= 0 for i in ids):
        raise CheckpointError(f"{path}: expected token ids to be non-negative integers; the tokenizer file is damaged.")
    return ids
