"""Which tensor is the embedding, which the unembedding, which the final norm: rules on names, not a list of models.

A name such as ``model.language_model.embed_tokens.weight`` is read as modules and a leaf. The last module's name tells
the role, once modules inside numbered layers and inside vision, audio or multi-token-prediction subtrees are set aside.
The rules were derived from the tensors that transformers 5.24 names for some fifty architectures, the names inside GGUF
files, and the Flax leaves ``embedding``, ``kernel`` and ``scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from repcap_jax.checkpoints.store import CheckpointError, TensorStore

_EMBEDDINGS = {
    "wte", "embed_tokens", "embed_in", "word_embeddings", "tok_embeddings", "token_embd", "embeddings", "embedding",
}  # fmt: skip
_HEADS = {"lm_head", "embed_out"}
_TOP_HEADS = {"output", "head"}  # also the names of modules inside other modules, so only at the top of a file
_NORMS = {
    "ln_f", "norm", "norm_f", "final_layer_norm", "final_layernorm", "final_norm", "layer_norm", "output_norm",
}  # fmt: skip
_MATRIX_LEAVES = {"weight", "embedding", "kernel"}
_NORM_LEAVES = {"weight", "scale", "kernel"}

# Words in a module's name (split at underscores) that mark a subtree beside the language model.
_SIDE_TREES = {"vision", "visual", "vit", "image", "audio", "speech", "projector", "mtp", "talker", "code2wav"}

# Architectures whose config class ties when the config does not say; configs written by them omit the key.
TIED_BY_DEFAULT = {
    "biogpt", "bloom", "cohere", "cohere2", "ctrl", "ernie4_5", "ernie4_5_moe", "falcon", "falcon_mamba",
    "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gpt2", "gpt_bigcode", "gpt_neo", "jetmoe",
    "lfm2", "lfm2_moe", "mamba", "mpt", "openai-gpt", "opt", "recurrent_gemma", "smollm3", "starcoder2", "vaultgemma",
    "xglm", "zamba", "zamba2",
}  # fmt: skip

# Architectures whose norms multiply by 1 + weight.
_ONE_PLUS = {
    "gemma", "gemma2", "gemma3", "gemma3_text", "nemotron", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text",
    "qwen3_5_text", "qwen3_next", "recurrent_gemma", "vaultgemma",
}  # fmt: skip

# Where multimodal configs keep the language model's part.
_TEXT_PARTS = ("text_config", "language_config", "llm_config")


class RoleError(CheckpointError):
    """A role cannot be given to a tensor; whoever knows the file adds its name."""


def config_value(config: Mapping, *keys: str) -> object:
    """Return the first of several keys that a config holds, at its top level or in its language model's part."""
    parts = [config, *(config[part] for part in _TEXT_PARTS if isinstance(config.get(part), Mapping))]
    return next((part[key] for part in parts for key in keys if part.get(key) is not None), None)


def tied_flag(config: Mapping) -> bool | None:
    """Return whether the model shares one matrix, by its config or its architecture's default; None if neither says."""
    flag = config_value(config, "tie_word_embeddings")
    if isinstance(flag, bool):
        return flag
    family = config_value(config, "model_type")
    return family in TIED_BY_DEFAULT if isinstance(family, str) else None


def norm_offset(config: Mapping) -> int:
    """Return what the model adds to its norms' stored weights: 1 in the gemma family and a few others, else 0."""
    family = config_value(config, "model_type")
    return int(isinstance(family, str) and family in _ONE_PLUS)


def is_transposed(name: str) -> bool:
    """Whether a matrix is stored as (d_model, vocab): Flax Dense layers keep (in, out) under the leaf ``kernel``."""
    return name.rsplit(".", 1)[-1] == "kernel"


def find_embedding(store: TensorStore, config: Mapping) -> str:
    """Find the token embedding.

    Args:
        store: the checkpoint's tensors; shapes are looked up only for candidates.
        config: its config, possibly empty; states the expected width and vocabulary.

    Returns:
        The tensor's name.

    Raises:
        CheckpointError: none, several, or one of the wrong size.
    """
    found = _candidates(store, _is_embedding)
    if not found:
        found = lone_matrix(store)
    return _single(store, config, found, "token embedding", "embedding_tensor")


def find_head(store: TensorStore, config: Mapping) -> str | None:
    """Find the unembedding that is stored apart from the embedding.

    Args:
        store: the checkpoint's tensors.
        config: its config, possibly empty.

    Returns:
        The tensor's name, or None where the file has no head.

    Raises:
        CheckpointError: several heads, or one of the wrong size.
    """
    found = _candidates(store, _is_head)
    return _single(store, config, found, "unembedding", "unembedding_tensor") if found else None


def find_final_norm(store: TensorStore) -> str | None:
    """Find the weight of the norm before the unembedding.

    Args:
        store: the checkpoint's tensors.

    Returns:
        The tensor's name, or None where the model has no such weight (olmo, opt-350m).

    Raises:
        CheckpointError: several candidates.
    """
    found = _candidates(store, _is_final_norm)
    if len(found) > 1:
        raise RoleError(f"expected one final norm, found {', '.join(found)}; read the right one by .tensor(NAME).")
    return found[0] if found else None


def bias_of(store: TensorStore, name: str) -> str | None:
    """Return the name of the bias beside a weight, None where there is none."""
    bias = ".".join((*name.split(".")[:-1], "bias"))
    return bias if bias in store.names() else None


def lone_matrix(store: TensorStore) -> list[str]:
    """Return the only matrix of a file, which needs no name to be the one that is meant; else an empty list."""
    found = [name for name in store.names() if len(store.known_shape(name) or ()) == 2]
    return found if len(found) == 1 else []


def check_matrix(shape: tuple[int, ...], name: str) -> None:
    """Refuse a tensor that is no matrix with rows and columns."""
    if len(shape) != 2 or 0 in shape:
        raise RoleError(f"tensor {name!r}: expected a non-empty matrix (vocab, d_model), got shape {shape}.")


def matrices(store: TensorStore) -> str:
    """List the 2-D tensors outside numbered layers, with shapes where knowing them costs no download."""
    rows = []
    for name in store.names():
        shape = store.known_shape(name) if not any(part.isdigit() for part in name.split(".")) else ()
        if shape is None or len(shape) == 2:
            rows.append(name if shape is None else f"{name} {shape}")
    return ("; ".join(rows[:20]) + (f"; and {len(rows) - 20} more" if len(rows) > 20 else "")) or "none"


def _candidates(store: TensorStore, is_role: Callable[[list[str], str], bool]) -> list[str]:
    found = []
    for name in store.names():
        *modules, leaf = name.split(".")
        if modules and is_role(modules, leaf) and not any(_beside(module) for module in modules):
            found.append(name)
    return found


def _beside(module: str) -> bool:
    """Whether a module is a numbered layer or a subtree beside the language model."""
    return module.isdigit() or not _SIDE_TREES.isdisjoint(module.lower().split("_"))


def _is_embedding(modules: list[str], leaf: str) -> bool:
    return leaf in _MATRIX_LEAVES and modules[-1] in _EMBEDDINGS


def _is_head(modules: list[str], leaf: str) -> bool:
    named = modules[-1] in _HEADS or (modules[-1] in _TOP_HEADS and modules[:-1] in ([], ["params"]))
    return leaf in _MATRIX_LEAVES and named


def _is_final_norm(modules: list[str], leaf: str) -> bool:
    return leaf in _NORM_LEAVES and modules[-1] in _NORMS


def _single(store: TensorStore, config: Mapping, found: list[str], role: str, argument: str) -> str:
    """Settle on one candidate: the only one, or the only one whose size the config allows."""
    advice = f"choose one with {argument}=NAME. Matrices in the file: "
    if not found:
        raise RoleError(f"no tensor is named as a {role}; {advice}{matrices(store)}.")
    if len(found) == 1 and not config:
        return found[0]
    problems = {name: _misfit(store.shape(name), config, is_transposed(name)) for name in found}
    fitting = [name for name, problem in problems.items() if problem is None]
    if not fitting:
        raise RoleError(f"the {role} does not fit the config: {_joined(problems)}; {advice}{matrices(store)}.")
    if len(fitting) > 1:
        raise RoleError(f"several tensors may be the {role}: {', '.join(fitting)}; {advice}{matrices(store)}.")
    return fitting[0]


def _misfit(shape: tuple[int, ...], config: Mapping, transposed: bool) -> str | None:
    """Say what is wrong with a candidate's shape, None where nothing is.

    More rows than the vocabulary are padding and allowed; opt-350m and its like embed in ``word_embed_proj_dim``.
    """
    if len(shape) != 2 or 0 in shape:
        return f"expected a non-empty matrix, got shape {shape}"
    rows, width = shape[::-1] if transposed else shape
    expected = config_value(config, "word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd", "d_model")
    vocabulary = config_value(config, "vocab_size")
    if type(expected) is int and width != expected:
        return f"expected d_model {expected}, got shape {shape}"
    if type(vocabulary) is int and rows < vocabulary:
        return f"expected at least {vocabulary} rows, got shape {shape}"
    return None


def _joined(problems: dict[str, str | None]) -> str:
    return "; ".join(f"{name}: {problem}" for name, problem in problems.items())
