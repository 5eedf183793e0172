"""Tiny tokenizers of the common kinds, each of which knows the same words."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

KINDS = ("bytes", "pieces", "wordpiece", "words")


def make_tokenizer(words, kind="bytes", *, bos=False, eos=False):
    """A transformers tokenizer.

    Args:
      words: each a single token where it starts a word; letters spell everything else.
      kind: "bytes" (byte-level BPE), "pieces" (SentencePiece-like), "wordpiece" or "words" (whole words only).
      bos, eos: whether a first or last token is added to every text.
    """
    from transformers import PreTrainedTokenizerFast

    letters = [chr(number) for number in range(33, 127)]
    if kind == "bytes":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = _numbered([*alphabet, *(_byte_level(f" {word}") for word in words)])
        core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
    elif kind == "pieces":
        vocabulary = _numbered(["<unk>", "▁", *letters, *(f"▁{word}" for word in words)])
        core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", ignore_merges=True))
        core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        core.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    elif kind == "wordpiece":
        vocabulary = _numbered(["[UNK]", *letters, *(f"##{letter}" for letter in letters), *words])
        core = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
        core.pre_tokenizer = pre_tokenizers.Whitespace()
        core.decoder = decoders.WordPiece()
    else:
        core = Tokenizer(models.WordLevel(vocab=_numbered(["[UNK]", "a", *words]), unk_token="[UNK]"))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>" if kind == "pieces" else "[UNK]"} if kind != "bytes" else {}
    if bos or eos:
        core.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
        single = f"{'<s> ' if bos else ''}$A{' </s>' if eos else ''}"
        ids = [(name, core.token_to_id(name)) for name in ("<s>", "</s>")]
        core.post_processor = processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=ids)
        names |= {"bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **names)


def word_level_json(words):
    """The tokenizer.json of whole words, row i for word i, an unknown one last."""
    vocabulary = {word: number for number, word in enumerate(words)} | {"[UNK]": len(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    cut = {"type": "WhitespaceSplit"}
    return json.dumps({"version": "1.0", "model": model, "added_tokens": [], "pre_tokenizer": cut})


def _numbered(tokens):
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _byte_level(text):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]
