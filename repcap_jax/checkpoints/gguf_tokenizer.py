"""A tokenizer built from the vocabulary inside a GGUF file.

Byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``) is rebuilt exactly: vocabulary, merges, the way text is cut before
merging (``tokenizer.ggml.pre``) and the special tokens are all in the file. Other kinds are refused: SentencePiece
vocabularies are stored without the normaliser they were trained with, so what could be built would differ in places.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from repcap_jax.checkpoints.gguf_header import Metadata
from repcap_jax.checkpoints.store import CheckpointError, reading

_MODEL, _PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
_TOKENS, _MERGES, _KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5

# How text is cut before the merges: "words" is GPT-2's pattern, "digits" the same after cutting out single digits; the
# other two patterns are those published with Llama 3 and Qwen2, which differ in how many digits stay together.
_CUTS = {
    "gpt-2": "words", "gpt2": "words", "default": "words", "olmo": "words", "phi-2": "words", "mpt": "words",
    "smollm": "digits", "starcoder": "digits", "refact": "digits", "command-r": "digits", "codeshell": "digits",
    "llama-bpe": "llama3", "llama3": "llama3", "llama-v3": "llama3", "smaug-bpe": "llama3",
    "qwen2": "qwen2", "deepseek-r1-qwen": "qwen2",
}  # fmt: skip
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS_TOGETHER = {"llama3": "{1,3}", "qwen2": ""}


def gguf_tokenizer_size(metadata: Metadata) -> int | None:
    """Count the tokens of a GGUF vocabulary, the unused ones that pad its end left out; None where there is none."""
    size, kinds = metadata.length(_TOKENS), metadata.get(_KINDS)
    if isinstance(kinds, list) and len(kinds) == size:
        while size and kinds[size - 1] == _UNUSED:
            size -= 1
    return size


def gguf_tokenizer(path: Path, metadata: Mapping[str, object]):
    """Build the tokenizer of a GGUF file.

    Args:
        path: the file, for messages.
        metadata: its key-value pairs.

    Returns:
        A ``transformers.PreTrainedTokenizerFast``.

    Raises:
        CheckpointError: no vocabulary in the file, one of a kind that cannot be rebuilt exactly, or a damaged one.
    """
    tokens, merges = metadata.get(_TOKENS), metadata.get(_MERGES)
    model, pre = metadata.get(_MODEL), metadata.get(_PRE, "default")
    if not isinstance(tokens, list) or not tokens:
        raise CheckpointError(f"{path}: the file holds no vocabulary ({_TOKENS}); load the model's own tokenizer.")
    if model != "gpt2" or pre not in _CUTS or not isinstance(merges, list):
        raise CheckpointError(
            f"{path}: a vocabulary of kind {model!r} with pre-tokenizer {pre!r} cannot be rebuilt exactly from the "
            f"file (known: 'gpt2' with {', '.join(sorted(_CUTS))}); load the model's own instead."
        )
    if len(set(tokens)) != len(tokens) or not all(isinstance(text, str) for text in (*tokens, *merges)):
        raise CheckpointError(f"{path}: the vocabulary lists a token twice or holds something other than text.")
    with reading(path, "the vocabulary"):
        core = _byte_level_bpe(tokens, merges, _CUTS[pre])
        _add_special(core, tokens, metadata.get(_KINDS))
        _add_first_token(core, tokens, metadata, _CUTS[pre])
        return _wrapped(core, tokens, metadata)


def _byte_level_bpe(tokens: list[str], merges: list[str], cut: str):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    # Llama 3 keeps a word that is a token whole even where no sequence of merges leads to it.
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=cut == "llama3"))
    core.decoder = decoders.ByteLevel()
    if cut == "words":
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif cut == "digits":
        first = pre_tokenizers.Digits(individual_digits=True)
        core.pre_tokenizer = pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        first = pre_tokenizers.Split(Regex(_PATTERN % _DIGITS_TOGETHER[cut]), behavior="isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        core.pre_tokenizer = pre_tokenizers.Sequence([first, bytes_only])
    if cut == "qwen2":
        core.normalizer = normalizers.NFC()
    return core


def _add_special(core, tokens: list[str], kinds: object) -> None:
    """Mark the tokens that text is searched for before it is cut: control tokens (special) and the user's own."""
    from tokenizers import AddedToken

    if not isinstance(kinds, list):
        return
    listed = list(zip(tokens, kinds, strict=True))
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in listed if kind == _CONTROL])
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t, kind in listed if kind == _USER_DEFINED])


def _add_first_token(core, tokens: list[str], metadata: Mapping[str, object], cut: str) -> None:
    """Put the beginning-of-text token first where the file says so; Llama 3's files leave that unsaid and mean yes."""
    from tokenizers import processors

    first = metadata.get("tokenizer.ggml.bos_token_id")
    if isinstance(first, int) and metadata.get("tokenizer.ggml.add_bos_token", cut == "llama3"):
        template = processors.TemplateProcessing(
            single="bos $A", pair="bos $A bos:1 $B:1", special_tokens=[("bos", first)]
        )
        core.post_processor = template


def _wrapped(core, tokens: list[str], metadata: Mapping[str, object]):
    from transformers import PreTrainedTokenizerFast

    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {}
    for role, key in keys.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token_id, int) and token_id < len(tokens):
            special[role] = tokens[token_id]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **special)
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        tokenizer.chat_template = template
    return tokenizer
