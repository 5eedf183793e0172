"""The table of families: from a config.json to a decoder's switches and the names of its tensors.

Keys that a config lacks are filled in by transformers' config classes, which also read both spellings of rope settings
(`rope_scaling` and `rope_theta` of version 4, `rope_parameters` of version 5).
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from repcap_jax.models import names as where
from repcap_jax.models.names import Names
from repcap_jax.models.rope import Rope, make_rope, no_rotation
from repcap_jax.models.spec import AttentionSpec, BlockSpec, DecoderSpec, NormSpec


class Family(NamedTuple):
    """What a config describes: the decoder, and where its tensors are."""

    spec: DecoderSpec
    names: Names


class UnsupportedModel(ValueError):
    """A model whose hidden states this package cannot compute."""


def read_family(config: Mapping[str, Any]) -> Family:
    """Find out what a config.json describes.

    Args:
      config: its content, version 4 or 5.
    Returns:
      The switches and the tensors' names.
    Raises:
      UnsupportedModel: (a ValueError) no or an unknown `model_type`, or a setting that is not supported.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"model_type {family!r} is not supported; supported are {', '.join(sorted(FAMILIES))}. For any other model "
            "compute the hidden states with a framework that runs it, save one (n, d_model) array per layer, and pass "
            "them with --hidden_states=file.safetensors."
        )
    if config.get("quantization_config"):
        raise UnsupportedModel(
            f"the weights of this {family} are quantised ({_method(config)}): give those before quantisation, or a GGUF"
        )
    filled = _filled(family, config)
    if getattr(filled, "use_bidirectional_attention", None):
        raise UnsupportedModel(f"this {family} attends in both directions; only causal decoders are supported")
    try:
        spec, names = FAMILIES[family](filled)
        return Family(dataclasses.replace(spec, norms=tuple(names.norms)), names)
    except (AttributeError, TypeError, ZeroDivisionError, IndexError) as error:
        raise UnsupportedModel(f"the config of this {family} cannot be read: {error}") from error


def _method(config: Mapping[str, Any]) -> Any:
    settings = config["quantization_config"]
    return settings.get("quant_method") if isinstance(settings, Mapping) else settings


def _filled(family: str, config: Mapping[str, Any]) -> Any:
    """The config with all defaults, as transformers' class of it."""
    advice = logging.getLogger("transformers")
    level = advice.level
    advice.setLevel(logging.ERROR)  # transformers remarks that torch is missing, and on settings it does not know
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        return CONFIG_MAPPING[family](**_modern(family, config))
    except Exception as error:  # its checks raise errors of several kinds
        raise UnsupportedModel(f"transformers refuses the config of this {family}: {error}") from error
    finally:
        advice.setLevel(level)


def _modern(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config's keys, with what transformers 5 misreads in version 4's spelling put right."""
    # transformers writes into the dicts that it is given
    keys = {key: value for key, value in copy.deepcopy(dict(config)).items() if key != "model_type"}
    scaling = keys.get("rope_scaling")
    if isinstance(scaling, Mapping) and "type" in scaling:
        # Where rotations differ by layer it overlooks the older name.
        keys["rope_scaling"] = {"rope_type": scaling["type"], **{k: v for k, v in scaling.items() if k != "type"}}
    if family == "olmo3" and "rope_theta" in keys and not keys.get("rope_parameters"):
        # It takes the theta for one of the two kinds of layers only.
        plain = {"rope_type": "default", "rope_theta": keys.pop("rope_theta")}
        keys["rope_parameters"] = {"full_attention": plain, "sliding_attention": dict(plain)}
    return keys


def _rms(c: Any) -> NormSpec:
    return NormSpec("rms", float(c.rms_norm_eps))


def _layer(eps: float) -> NormSpec:
    return NormSpec("layer", float(eps))


def _head_dim(c: Any) -> int:
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def _attention(c: Any, *, rope: bool = True, same_window: bool = False, **changes: Any) -> AttentionSpec:
    """Attention as most configs describe it; `same_window`: `sliding_window` holds for every layer."""
    layers, heads, head_dim = c.num_hidden_layers, c.num_attention_heads, _head_dim(c)
    types = list(getattr(c, "layer_types", None) or ["full_attention"] * layers)
    window = getattr(c, "sliding_window", None)
    windows = tuple(window if same_window or types[i] == "sliding_attention" else None for i in range(layers))
    ropes, rope_of = _ropes(c, types, head_dim) if rope else ((), ())
    spec = AttentionSpec(
        heads=heads,
        kv_heads=getattr(c, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        scales=(head_dim**-0.5,) * layers,
        windows=windows,
        ropes=ropes,
        rope_of=rope_of,
    )
    return dataclasses.replace(spec, **changes)


def _ropes(c: Any, types: list[str], head_dim: int) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """The rotations of a config and which layer uses which: one for all, or one for each type of layer."""
    settings = c.rope_parameters or {}
    nested = {kind: settings[kind] for kind in dict.fromkeys(types) if isinstance(settings.get(kind), Mapping)}
    by_type = nested or {kind: settings for kind in dict.fromkeys(types)}
    try:
        ropes = {kind: _rope(c, by_type[kind], head_dim) for kind in by_type}
    except ValueError as error:
        raise UnsupportedModel(f"the rope settings of this {c.model_type}: {error}") from error
    different = tuple(dict.fromkeys(ropes.values()))
    return different, tuple(different.index(ropes[kind]) for kind in types)


def _rope(c: Any, settings: Mapping[str, Any], head_dim: int) -> Rope:
    partial = settings.get("partial_rotary_factor") or 1.0
    return make_rope(settings, int(head_dim * partial), c.max_position_embeddings)


def _decoder(c: Any, norm: NormSpec, attention: AttentionSpec, block: BlockSpec, **changes: Any) -> DecoderSpec:
    return DecoderSpec(c.model_type, c.num_hidden_layers, c.hidden_size, norm, attention, block, **changes)


def _gated(c: Any, **changes: Any) -> BlockSpec:
    return BlockSpec(activation=getattr(c, "hidden_activation", None) or c.hidden_act, **changes)


def _llama(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c), _gated(c)), where.LLAMA)


def _mistral(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c, same_window=True), _gated(c)), where.LLAMA)


def _qwen3(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c, qk_norm="head"), _gated(c)), where.QWEN3)


def _phi3(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c, same_window=True), _gated(c)), where.PHI3)


def _smollm3(c: Any) -> Family:
    attention = _attention(c)
    (rope,) = attention.ropes
    none = no_rotation(2 * len(rope.frequencies))
    rope_of = tuple(0 if uses else 1 for uses in c.no_rope_layers)  # 1 in that list means that there is a rotation
    windows = attention.windows if c.use_sliding_window else (None,) * c.num_hidden_layers
    attention = dataclasses.replace(attention, ropes=(rope, none), rope_of=rope_of, windows=windows)
    return Family(_decoder(c, _rms(c), attention, _gated(c)), where.LLAMA)


def _gemma_scales(c: Any) -> tuple[float, ...]:
    return (c.query_pre_attn_scalar**-0.5,) * c.num_hidden_layers


def _gemma(c: Any) -> Family:
    spec = _decoder(c, _rms(c), _attention(c), _gated(c), embedding_scale=math.sqrt(c.hidden_size))
    return Family(spec, where.LLAMA)


def _gemma2(c: Any) -> Family:
    attention = _attention(c, scales=_gemma_scales(c), softcap=c.attn_logit_softcapping)
    spec = _decoder(
        c,
        _rms(c),
        attention,
        _gated(c),
        embedding_scale=math.sqrt(c.hidden_size),
        logit_softcap=c.final_logit_softcapping,
    )
    return Family(spec, where.GEMMA2)


def _gemma3(c: Any) -> Family:
    spec, _ = _gemma2(c)
    attention = dataclasses.replace(spec.attention, qk_norm="head")
    return Family(dataclasses.replace(spec, attention=attention), where.GEMMA3)


def _olmo(c: Any) -> Family:
    norm = NormSpec("layer", 1e-5, affine=False)
    return Family(_decoder(c, norm, _attention(c, clip=c.clip_qkv), _gated(c)), where.LLAMA)


def _olmo2(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c, qk_norm="width"), _gated(c)), where.OLMO2)


def _granite(c: Any) -> Family:
    attention = _attention(c, scales=(float(c.attention_multiplier),) * c.num_hidden_layers)
    block = _gated(c, residual_scale=float(c.residual_multiplier))
    spec = _decoder(
        c,
        _rms(c),
        attention,
        block,
        embedding_scale=float(c.embedding_multiplier),
        logit_scale=1.0 / c.logits_scaling,
    )
    return Family(spec, where.LLAMA)


def _glm4(c: Any) -> Family:
    return Family(_decoder(c, _rms(c), _attention(c, interleaved=True), _gated(c)), where.GLM4)


def _cohere(c: Any) -> Family:
    attention = _attention(c, interleaved=True, qk_norm="head" if c.use_qk_norm else None)
    scale = 1.0 if c.logit_scale is None else float(c.logit_scale)
    spec = _decoder(c, _layer(c.layer_norm_eps), attention, _gated(c, parallel=True), logit_scale=scale)
    names = dataclasses.replace(where.COHERE, qk_norms=where.QWEN3.qk_norms) if c.use_qk_norm else where.COHERE
    return Family(spec, names)


def _phi(c: Any) -> Family:
    attention = _attention(c, qk_norm="head" if c.qk_layernorm else None)
    block = _gated(c, parallel=True, gated=False)
    names = where.PHI
    if c.qk_layernorm:
        names = dataclasses.replace(names, qk_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"))
    return Family(_decoder(c, _layer(c.layer_norm_eps), attention, block), names)


def _stablelm(c: Any) -> Family:
    attention = _attention(c, qk_norm="head" if c.qk_layernorm else None)
    block = _gated(c, parallel=c.use_parallel_residual)
    names = where.COHERE if c.use_parallel_residual else where.LLAMA
    if c.qk_layernorm:
        norms = ("self_attn.q_layernorm.norms.{}", "self_attn.k_layernorm.norms.{}")
        names = dataclasses.replace(names, qk_norms=norms)
    return Family(_decoder(c, _layer(c.layer_norm_eps), attention, block), names)


def _starcoder2(c: Any) -> Family:
    attention = _attention(c, same_window=True)
    return Family(_decoder(c, _layer(c.norm_epsilon), attention, _gated(c, gated=False)), where.STARCODER2)


def _gpt2(c: Any) -> Family:
    plain = _head_dim(c) ** -0.5 if c.scale_attn_weights else 1.0
    divisors = [i + 1 if c.scale_attn_by_inverse_layer_idx else 1 for i in range(c.num_hidden_layers)]
    attention = _attention(c, rope=False, scales=tuple(plain / divisor for divisor in divisors))
    block = BlockSpec(activation=c.activation_function, gated=False)
    norm = _layer(c.layer_norm_epsilon)
    return Family(_decoder(c, norm, attention, block, max_positions=c.max_position_embeddings), where.GPT2)


def _gpt_neo(c: Any) -> Family:
    windows = tuple(c.window_size if kind == "local" else None for kind in c.attention_layers)
    attention = _attention(c, rope=False, scales=(1.0,) * c.num_hidden_layers, windows=windows)
    block = BlockSpec(activation=c.activation_function, gated=False)
    norm = _layer(c.layer_norm_epsilon)
    return Family(_decoder(c, norm, attention, block, max_positions=c.max_position_embeddings), where.GPT_NEO)


def _gptj(c: Any) -> Family:
    rope = make_rope({}, c.rotary_dim or _head_dim(c), c.max_position_embeddings)
    rope_of = (0,) * c.num_hidden_layers
    attention = _attention(c, rope=False, ropes=(rope,), rope_of=rope_of, interleaved=True)
    block = BlockSpec(activation=c.activation_function, gated=False, parallel=True)
    return Family(_decoder(c, _layer(c.layer_norm_epsilon), attention, block), where.GPTJ)


def _gpt_neox(c: Any) -> Family:
    block = _gated(c, gated=False, parallel=c.use_parallel_residual)
    return Family(_decoder(c, _layer(c.layer_norm_eps), _attention(c), block), where.GPT_NEOX)


def _opt(c: Any) -> Family:
    norm = NormSpec("layer", 1e-5, affine=c.layer_norm_elementwise_affine)
    block = BlockSpec(activation=c.activation_function, gated=False, norm_after_add=not c.do_layer_norm_before)
    spec = _decoder(
        c,
        norm,
        _attention(c, rope=False),
        block,
        max_positions=c.max_position_embeddings,
        final_norm=c.do_layer_norm_before and not c._remove_final_layer_norm,
    )
    names = where.OPT
    if c.word_embed_proj_dim != c.hidden_size:
        names = dataclasses.replace(names, project_in="project_in", project_out="project_out")
    return Family(spec, names)


def _bloom(c: Any) -> Family:
    attention = _attention(c, rope=False, alibi="float32")
    block = BlockSpec(activation="gelu_new", gated=False, residual_from_norm=c.apply_residual_connection_post_layernorm)
    return Family(_decoder(c, _layer(c.layer_norm_epsilon), attention, block), where.BLOOM)


def _falcon(c: Any) -> Family:
    heads = c.num_attention_heads
    kv_heads = c.num_kv_heads if c.new_decoder_architecture or not c.multi_query else 1
    # Falcon adds its biases before it divides by sqrt(head_dim), and computes them in bfloat16.
    changes = {"alibi": "bfloat16", "alibi_scale": _head_dim(c) ** -0.5} if c.alibi else {}
    attention = _attention(c, rope=not c.alibi, kv_heads=kv_heads, **changes)
    if not c.new_decoder_architecture and not c.multi_query and c.num_kv_heads != heads:
        raise UnsupportedModel(f"this falcon has {c.num_kv_heads} key heads of {heads} without the new architecture")
    parallel = bool(c.new_decoder_architecture or c.parallel_attn)
    norms_in_parallel = c.num_ln_in_parallel_attn or (2 if c.new_decoder_architecture else 1)
    norms = dict(where.FALCON.norms)
    if c.new_decoder_architecture and norms_in_parallel == 2:
        norms = {where.ATTENTION_IN: "ln_attn", where.MLP_IN: "ln_mlp"}
    elif c.parallel_attn:
        norms = {where.ATTENTION_IN: "input_layernorm"}
    elif c.new_decoder_architecture:
        raise UnsupportedModel("this falcon has the new architecture without parallel attention")
    block = BlockSpec(activation=c.activation, gated=False, parallel=parallel)
    spec = _decoder(c, _layer(c.layer_norm_epsilon), attention, block)
    return Family(spec, dataclasses.replace(where.FALCON, norms=norms))


FAMILIES: dict[str, Callable[[Any], Family]] = {
    "bloom": _bloom,
    "cohere": _cohere,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm4": _glm4,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "granite": _granite,
    "llama": _llama,
    "mistral": _mistral,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmo3": _olmo2,
    "opt": _opt,
    "phi": _phi,
    "phi3": _phi3,
    "qwen2": _llama,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
