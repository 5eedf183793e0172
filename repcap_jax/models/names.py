"""Where each family keeps its tensors: stems of names, to which a file adds `weight`, `kernel`, `bias` and so on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

ATTENTION_IN, ATTENTION_OUT, MLP_IN, MLP_OUT = "attention_in", "attention_out", "mlp_in", "mlp_out"


@dataclasses.dataclass(frozen=True)
class Names:
    """The tensors of one family.

    Attributes:
      layer: the start of a layer's names, with `{}` for its number.
      norms: position in the block (the constants above) -> stem; a norm that is not named does not exist.
      qkv: three stems, or one of a fused projection.
      qkv_layout: rows of a fused projection: `"concat"` for all queries, all keys, all values; `"grouped"` for each key
        head its queries, its key, its value.
      out: the attention's output projection.
      up: stems of the MLP's first projections: gate and up, one fused (gate first), or one without a gate.
      down: the MLP's second projection.
      qk_norms: stems of the norms of queries and keys; `{}` stands for the head where each has its own.
      transposed: whether `weight` matrices are stored (in, out), as gpt2 does.
      permuted: whether rows of queries and keys are in GGUF's order for llama, neighbouring coordinates paired.
      positions: learned positions, and how many rows to skip (opt: 2).
      embedding_norm, project_in, project_out: stems outside the layers.
      ignored: tensors in a layer that are no weights.
    """

    layer: str
    norms: Mapping[str, str]
    qkv: tuple[str, ...]
    out: str
    up: tuple[str, ...]
    down: str
    qkv_layout: str = "concat"
    qk_norms: tuple[str, str] | None = None
    transposed: bool = False
    permuted: bool = False
    positions: str | None = None
    skipped_positions: int = 0
    embedding_norm: str | None = None
    project_in: str | None = None
    project_out: str | None = None
    ignored: tuple[str, ...] = ("self_attn.rotary_emb.inv_freq",)


_LLAMA_NORMS = {ATTENTION_IN: "input_layernorm", MLP_IN: "post_attention_layernorm"}
_FOUR_NORMS = {
    ATTENTION_IN: "input_layernorm",
    ATTENTION_OUT: "post_attention_layernorm",
    MLP_IN: "pre_feedforward_layernorm",
    MLP_OUT: "post_feedforward_layernorm",
}
_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")

LLAMA = Names(
    layer="layers.{}.",
    norms=_LLAMA_NORMS,
    qkv=_QKV,
    out="self_attn.o_proj",
    up=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
)
QWEN3 = dataclasses.replace(LLAMA, qk_norms=_QK_NORMS)
GEMMA2 = dataclasses.replace(LLAMA, norms=_FOUR_NORMS)
GEMMA3 = dataclasses.replace(GEMMA2, qk_norms=_QK_NORMS)
OLMO2 = dataclasses.replace(
    QWEN3, norms={ATTENTION_OUT: "post_attention_layernorm", MLP_OUT: "post_feedforward_layernorm"}
)
PHI3 = dataclasses.replace(LLAMA, qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))
GLM4 = dataclasses.replace(
    LLAMA,
    norms=_LLAMA_NORMS | {ATTENTION_OUT: "post_self_attn_layernorm", MLP_OUT: "post_mlp_layernorm"},
    up=("mlp.gate_up_proj",),
)
COHERE = dataclasses.replace(LLAMA, norms={ATTENTION_IN: "input_layernorm"})
PHI = dataclasses.replace(COHERE, out="self_attn.dense", up=("mlp.fc1",), down="mlp.fc2")
STARCODER2 = dataclasses.replace(LLAMA, up=("mlp.c_fc",), down="mlp.c_proj")
GPT_NEOX = Names(
    layer="layers.{}.",
    norms=_LLAMA_NORMS,
    qkv=("attention.query_key_value",),
    qkv_layout="grouped",
    out="attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    ignored=("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"),
)
BLOOM = dataclasses.replace(
    GPT_NEOX,
    layer="h.{}.",
    qkv=("self_attention.query_key_value",),
    out="self_attention.dense",
    ignored=("self_attention.rotary_emb.inv_freq",),
    embedding_norm="word_embeddings_layernorm",
)
FALCON = dataclasses.replace(BLOOM, embedding_norm=None)
GPT2 = Names(
    layer="h.{}.",
    norms={ATTENTION_IN: "ln_1", MLP_IN: "ln_2"},
    qkv=("attn.c_attn",),
    out="attn.c_proj",
    up=("mlp.c_fc",),
    down="mlp.c_proj",
    transposed=True,
    positions="wpe",
    ignored=("attn.bias", "attn.masked_bias"),
)
GPT_NEO = dataclasses.replace(
    GPT2,
    qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
    out="attn.attention.out_proj",
    transposed=False,
    ignored=("attn.attention.bias", "attn.attention.masked_bias"),
)
GPTJ = dataclasses.replace(
    GPT2,
    norms={ATTENTION_IN: "ln_1"},
    qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
    out="attn.out_proj",
    up=("mlp.fc_in",),
    down="mlp.fc_out",
    transposed=False,
    positions=None,
)
OPT = Names(
    layer="layers.{}.",
    norms={ATTENTION_IN: "self_attn_layer_norm", MLP_IN: "final_layer_norm"},
    qkv=_QKV,
    out="self_attn.out_proj",
    up=("fc1",),
    down="fc2",
    positions="embed_positions",
    skipped_positions=2,
)

# GGUF: the same names for every architecture. Files of architecture `llama` (mistral is one, too) pair neighbouring
# coordinates; the qwen ones keep the halves.
_GGUF = Names(
    layer="blk.{}.",
    norms={ATTENTION_IN: "attn_norm", MLP_IN: "ffn_norm"},
    qkv=("attn_q", "attn_k", "attn_v"),
    out="attn_output",
    up=("ffn_gate", "ffn_up"),
    down="ffn_down",
)
GGUF = {
    "llama": dataclasses.replace(_GGUF, permuted=True),
    "qwen2": _GGUF,
    "qwen3": dataclasses.replace(_GGUF, qk_norms=("attn_q_norm", "attn_k_norm")),
}
GGUF_FREQUENCY_DIVISORS = "rope_freqs.weight"
