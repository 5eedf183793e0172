"""A GGUF header's hyperparameters under the names that config.json uses."""

from __future__ import annotations

from collections.abc import Mapping

# Architectures that GGUF spells otherwise than config.json's model_type.
_MODEL_TYPES = {
    "command-r": "cohere",
    "exaone": "exaone",
    "gemma3": "gemma3_text",
    "gpt-oss": "gpt_oss",
    "gptneox": "gpt_neox",
    "phi2": "phi",
    "phimoe": "phimoe",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
}

# config.json key -> the GGUF key after the architecture's name
_KEYS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
}
_TOKEN_IDS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}


def gguf_config(metadata: Mapping[str, object], names: tuple[str, ...], rows: int | None) -> dict:
    """Describe a GGUF file's model the way a config.json would.

    Args:
        metadata: the header's key-value pairs.
        names: the file's tensor names; the model is tied where there is no ``output.weight``.
        rows: rows of the token embedding, the vocabulary's size.

    Returns:
        A dict with ``model_type``, ``hidden_size``, ``vocab_size``, ``num_hidden_layers`` and whatever else is stated.
    """
    architecture = str(metadata.get("general.architecture", "")) or None
    config: dict[str, object] = {"model_type": _MODEL_TYPES.get(architecture or "", architecture)}
    config["tie_word_embeddings"] = "output.weight" not in names
    if rows is not None:
        config["vocab_size"] = rows
    for key, suffix in _KEYS.items():
        if f"{architecture}.{suffix}" in metadata:
            config[key] = metadata[f"{architecture}.{suffix}"]
    scaling = _rope_scaling(metadata, f"{architecture}.rope.scaling")
    if scaling is not None:
        config["rope_scaling"] = scaling
    for key, stored in _TOKEN_IDS.items():
        if stored in metadata:
            config[key] = metadata[stored]
    return config


def _rope_scaling(metadata: Mapping[str, object], prefix: str) -> dict[str, object] | None:
    """The scaling of rotary positions as config.json spells it; None where there is none."""
    kind = metadata.get(f"{prefix}.type")
    if kind in (None, "none"):
        return None
    scaling = {"rope_type": kind, "factor": metadata.get(f"{prefix}.factor", 1.0)}
    original = metadata.get(f"{prefix}.original_context_length")
    return scaling if original is None else scaling | {"original_max_position_embeddings": original}
