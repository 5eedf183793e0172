"""Tiny models of every family and variant, sized so that each switch changes the hidden states.

Windows are shorter than the sequences, lengths exceed the original context of scaled rotations, key heads are shared,
biases are not zero and norm weights not one.
"""

VOCAB, SEQ, ROWS = 40, 14, 1

_GQA = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
_MHA = {key: value for key, value in _GQA.items() if key != "num_key_value_heads"}
_GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
_WIDE = {"head_dim": 6}  # heads whose widths do not add up to d_model
_FALCON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "ffn_hidden_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_OPT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "ffn_dim": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 24,
    "pad_token_id": 1,
}
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]


def _rope(kind, theta=100.0, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **settings}}


_PHI3_LONG = _rope(
    "longrope",
    short_factor=[1.0, 1.1, 1.3, 1.6],
    long_factor=[1.0, 2.0, 4.0, 8.0],
)

# name -> config
CASES = {
    "llama": {"model_type": "llama", **_GQA},
    "llama-tied-biased": {
        "model_type": "llama",
        **_GQA,
        **_WIDE,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama-linear": {"model_type": "llama", **_GQA, **_rope("linear", factor=4.0)},
    "llama-dynamic": {"model_type": "llama", **_GQA, "max_position_embeddings": 8, **_rope("dynamic", factor=2.0)},
    "llama-llama3": {
        "model_type": "llama",
        **_GQA,
        **_rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    },
    "llama-yarn": {
        "model_type": "llama",
        **_GQA,
        **_rope("yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=2.0, beta_slow=0.1),
    },
    "llama-yarn-mscale": {
        "model_type": "llama",
        **_GQA,
        **_rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=8,
            mscale=0.7,
            mscale_all_dim=1.3,
            beta_fast=1.0,
            truncate=False,
        ),
    },
    "mistral": {"model_type": "mistral", **_GQA, "sliding_window": 5},
    "qwen2": {
        "model_type": "qwen2",
        **_GQA,
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", **_GQA, **_WIDE},
    "phi": {"model_type": "phi", **_GQA, "rope_parameters": {"partial_rotary_factor": 0.5}},
    "phi-qk-norm": {"model_type": "phi", **_MHA, "qk_layernorm": True, "hidden_act": "gelu"},
    "phi3": {
        "model_type": "phi3",
        **_GQA,
        "sliding_window": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
        "pad_token_id": None,
    },
    "phi3-short": {
        "model_type": "phi3",
        **_GQA,
        **_PHI3_LONG,
        "original_max_position_embeddings": 16,
        "pad_token_id": None,
    },
    "phi3-long": {
        "model_type": "phi3",
        **_GQA,
        **_PHI3_LONG,
        "original_max_position_embeddings": 8,
        "pad_token_id": None,
    },
    "gemma": {"model_type": "gemma", **_GQA, **_WIDE},
    "gemma2": {
        "model_type": "gemma2",
        **_GQA,
        "head_dim": 8,
        "query_pre_attn_scalar": 12,
        "sliding_window": 4,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 2.0,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **_GQA,
        **_WIDE,
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 10,
        "sliding_window": 5,
        "layer_types": _SLIDING,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    },
    "olmo": {"model_type": "olmo", **_GQA, "clip_qkv": 0.6, "pad_token_id": None},
    "olmo2": {"model_type": "olmo2", **_GQA, "pad_token_id": None},
    "olmo3": {
        "model_type": "olmo3",
        **_GQA,
        "num_hidden_layers": 3,
        "sliding_window": 5,
        "layer_types": _SLIDING,
        "pad_token_id": None,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 8,
                "rope_theta": 100.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "falcon-multi-query": {"model_type": "falcon", **_FALCON},
    "falcon-new": {
        "model_type": "falcon",
        **_FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "bias": True,
    },
    "falcon-new-one-norm": {
        "model_type": "falcon",
        **_FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "tie_word_embeddings": False,
    },
    "falcon-alibi": {
        "model_type": "falcon",
        **_FALCON,
        "hidden_size": 24,
        "num_attention_heads": 12,  # some of whose slopes bfloat16 rounds
        "alibi": True,
        "multi_query": False,
        "parallel_attn": False,
        "bias": True,
    },
    "stablelm": {
        "model_type": "stablelm",
        **_GQA,
        "use_qkv_bias": True,
        "rope_parameters": {"partial_rotary_factor": 0.5},
    },
    "stablelm-parallel": {
        "model_type": "stablelm",
        **_GQA,
        "use_parallel_residual": True,
        "qk_layernorm": True,
        "rope_parameters": {"partial_rotary_factor": 0.25},
    },
    "starcoder2": {"model_type": "starcoder2", **_GQA, "sliding_window": 5},
    "smollm3": {
        "model_type": "smollm3",
        **_GQA,
        "num_hidden_layers": 3,
        "no_rope_layer_interval": 2,
        "use_sliding_window": True,
        "sliding_window": 4,
        "pad_token_id": None,
    },
    "cohere": {"model_type": "cohere", **_GQA, "logit_scale": 0.25, "pad_token_id": None},
    "cohere-qk-norm": {
        "model_type": "cohere",
        **_GQA,
        "use_qk_norm": True,
        "attention_bias": True,
        "pad_token_id": None,
    },
    "granite": {
        "model_type": "granite",
        **_GQA,
        "embedding_multiplier": 3.0,
        "logits_scaling": 4.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
    },
    "glm4": {
        "model_type": "glm4",
        **_GQA,
        "head_dim": 8,
        "rope_parameters": {"partial_rotary_factor": 0.5},
        "pad_token_id": None,
    },
    "gpt2": {"model_type": "gpt2", **_GPT2, "n_inner": 40, "scale_attn_by_inverse_layer_idx": True},
    "gpt2-untied": {
        "model_type": "gpt2",
        **_GPT2,
        "n_inner": 40,
        "tie_word_embeddings": False,
        "activation_function": "relu",
        "scale_attn_weights": False,
    },
    "gpt_neo": {
        "model_type": "gpt_neo",
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 5,
        "max_position_embeddings": 24,
    },
    "gptj": {"model_type": "gptj", **_GPT2, "n_inner": 40, "rotary_dim": 4},
    "gpt_neox": {
        "model_type": "gpt_neox",
        **_MHA,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
    },
    "gpt_neox-sequential": {
        "model_type": "gpt_neox",
        **_MHA,
        "use_parallel_residual": False,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
    },
    "opt": {"model_type": "opt", **_OPT},
    "opt-projected": {"model_type": "opt", **_OPT, "word_embed_proj_dim": 12, "do_layer_norm_before": False},
    "bloom": {"model_type": "bloom", "vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 6},
    "bloom-post-norm": {
        "model_type": "bloom",
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "n_layer": 2,
        "n_head": 4,
        "apply_residual_connection_post_layernorm": True,
    },
}
