"""Checkpoints of every format give the same decoder; what cannot be loaded is refused with advice."""

import dataclasses
import json

import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.models import UnsupportedModel, hidden_states, load_decoder
from repcap_jax.models.families import read_family
from tests.checkpoints.builders import flax_bytes, write_config, write_gguf, write_model, write_sharded
from tests.models.parity import DATA, differences
from tests.models.parity_cases import CASES

FLAX_LEAVES = {
    # a parameter's module -> how Flax names its weight
    "embedding": ("wte", "wpe", "embed_tokens", "embed_positions", "word_embeddings"),
    "scale": ("ln_1", "ln_2", "ln_f", "layer_norm", "word_embeddings_layernorm", "layernorm"),
}


def tensors_of(name):
    with open_checkpoint(DATA / name) as checkpoint:
        return {key: checkpoint.tensor(key) for key in checkpoint.names()}


def as_flax(tensors, rms_scale):
    """Rename and transpose as transformers' Flax classes did."""
    found = {}
    for name, array in tensors.items():
        stem, leaf = name.rsplit(".", 1)
        module = stem.rsplit(".", 1)[-1]
        if leaf == "weight" and module in FLAX_LEAVES["embedding"]:
            leaf = "embedding"
        elif leaf == "weight" and array.ndim == 1:
            leaf = "scale" if rms_scale else "weight"
        elif leaf == "weight":
            leaf, array = "kernel", np.ascontiguousarray(array.T)
        found[f"{stem}.{leaf}"] = array
    return found


def copy_reference(name, folder):
    (folder / "reference.npz").write_bytes((DATA / name / "reference.npz").read_bytes())
    return folder


@pytest.mark.parametrize("name", ["gpt2", "gpt_neo", "gptj", "opt-projected", "bloom", "llama", "mistral", "gemma"])
def test_flax(tmp_path, name):
    """The families of which transformers had Flax classes; their RMSNorms keep the name `weight`."""
    tensors = as_flax(tensors_of(name), rms_scale=name not in ("llama", "mistral", "gemma"))
    if name == "gpt2":
        assert tensors["transformer.h.0.attn.c_attn.kernel"].shape == (96, 32)  # out, in: its Conv1D is transposed
    (tmp_path / "flax_model.msgpack").write_bytes(flax_bytes(tensors))
    write_config(tmp_path, CASES[name])
    assert max(differences(copy_reference(name, tmp_path))) < 2e-5


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def paired(rows, heads):
    """llama.cpp's order: coordinate i of a head beside i + head_dim / 2."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf_of(path, name, architecture, permute, keys=(), extra=()):
    """Convert as llama.cpp does."""
    config = CASES[name]
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for key, array in tensors_of(name).items():
        stem, leaf = key.rsplit(".", 1)
        layer = ""
        if stem.startswith("model.layers."):
            _, _, number, stem = stem.split(".", 3)
            layer = f"blk.{number}."
        renamed = GGUF_NAMES[stem]
        if permute and renamed in heads:
            array = paired(array, heads[renamed])
        tensors[f"{layer}{renamed}.{leaf}"] = (array, "F32")
    sizes = {
        f"{architecture}.block_count": config["num_hidden_layers"],
        f"{architecture}.embedding_length": config["hidden_size"],
        f"{architecture}.feed_forward_length": config["intermediate_size"],
        f"{architecture}.context_length": config["max_position_embeddings"],
        f"{architecture}.attention.head_count": heads["attn_q"],
        f"{architecture}.attention.head_count_kv": heads["attn_k"],
        f"{architecture}.attention.key_length": config.get("head_dim", 8),
    }
    return write_gguf(path, tensors | dict(extra), sizes | dict(keys), architecture)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("llama", "llama"), ("llama-tied-biased", "llama"), ("qwen3", "qwen3")],
)
def test_gguf(tmp_path, name, architecture):
    """Rows of queries and keys, and their biases, are permuted in files of architecture llama only."""
    epsilon = {f"{architecture}.attention.layer_norm_rms_epsilon": 1e-6}
    gguf_of(tmp_path / "model.gguf", name, architecture, architecture == "llama", epsilon)
    assert max(differences(copy_reference(name, tmp_path))) < 2e-5


def test_gguf_scaled_rotations(tmp_path):
    """Linear scaling is in the metadata; llama 3.1's scaling is a tensor of divisors."""
    common = {"llama.attention.layer_norm_rms_epsilon": 1e-6, "llama.rope.freq_base": 100.0}
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    (tmp_path / "linear").mkdir()
    gguf_of(tmp_path / "linear" / "model.gguf", "llama-linear", "llama", True, common | linear)
    assert max(differences(copy_reference("llama-linear", tmp_path / "linear"))) < 2e-5

    scaled = read_family(CASES["llama-llama3"]).spec.attention.ropes[0].frequencies
    plain = 100.0 ** (-np.arange(0, 8, 2) / 8)
    divisors = {"rope_freqs.weight": ((plain / scaled).astype(np.float32), "F32")}
    (tmp_path / "llama3").mkdir()
    gguf_of(tmp_path / "llama3" / "model.gguf", "llama-llama3", "llama", True, common, divisors)
    assert max(differences(copy_reference("llama-llama3", tmp_path / "llama3"))) < 2e-5


def test_sharded_and_without_prefix(tmp_path):
    """Base models are saved without the prefix of the model with a head."""
    tensors = {key.removeprefix("transformer."): array for key, array in tensors_of("gpt2").items()}
    names = sorted(tensors)
    shards = [{name: tensors[name] for name in names[i::3]} for i in range(3)]
    write_sharded(tmp_path, shards, CASES["gpt2"])
    assert max(differences(copy_reference("gpt2", tmp_path))) < 2e-5


def test_progress_and_head(tmp_path):
    calls = []
    with open_checkpoint(DATA / "llama") as checkpoint:
        decoder = load_decoder(checkpoint, head=False, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
    states = hidden_states(decoder, [[1, 2, 3]])
    with pytest.raises(ValueError, match="head=True"):
        decoder.logits(states[-1])


def load(folder):
    with open_checkpoint(folder) as checkpoint:
        return load_decoder(checkpoint)


def changed(tmp_path, name, tensors=(), config=(), without=()):
    kept = {key: array for key, array in tensors_of(name).items() if key not in without}
    return write_model(tmp_path, kept | dict(tensors), CASES[name] | dict(config))


def test_unknown_family(tmp_path):
    with pytest.raises(UnsupportedModel, match=r"'rwkv' is not supported; supported are bloom.*--hidden_states=file"):
        load(changed(tmp_path, "llama", config={"model_type": "rwkv"}))


def test_no_config(tmp_path):
    with pytest.raises(UnsupportedModel, match="no config.json"):
        load(write_model(tmp_path, tensors_of("llama"), None))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"without": ["model.layers.1.mlp.up_proj.weight"]}, r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"),
        ({"without": ["model.layers.0.self_attn.o_proj.weight"]}, r"expected one tensor named .*o_proj"),
        ({"without": ["model.norm.weight"]}, "no final norm"),
        ({"tensors": {"model.layers.1.self_attn.q_norm.weight": np.ones(8, np.float32)}}, "q_norm.* would not be used"),
        ({"tensors": {"model.layers.1.mlp.up_proj.bias": np.ones(40, np.float32)}}, "layer 1 does not have"),
        ({"config": {"num_key_value_heads": 4}}, r"qkv.kernel has shape \(64, 32\).*asks for \(96, 32\)"),
        ({"config": {"hidden_act": "softsign"}}, "activation 'softsign'"),
        ({"config": {"quantization_config": {"quant_method": "gptq"}}}, r"quantised \(gptq\)"),
        ({"config": {"rope_scaling": {"rope_type": "linear"}}}, "'factor'"),
    ],
)
def test_what_does_not_fit(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load(changed(tmp_path, "llama", **change))


def test_other_gguf(tmp_path):
    gguf_of(tmp_path / "model.gguf", "llama", "starcoder2", False)
    with pytest.raises(UnsupportedModel, match="GGUF files are read for llama, qwen2, qwen3"):
        load(tmp_path)


def test_bad_arguments():
    with open_checkpoint(DATA / "llama") as checkpoint:
        with pytest.raises(ValueError, match="dtype must be"):
            load_decoder(checkpoint, dtype="float16")
        with pytest.raises(ValueError, match="precision must be"):
            load_decoder(checkpoint, precision="double")


def v4(config):
    """The same config with version 4's spelling of rope settings."""
    old = {key: value for key, value in config.items() if key != "rope_parameters"}
    settings = dict(config["rope_parameters"])
    if "full_attention" in settings:
        local, settings = settings["sliding_attention"], dict(settings["full_attention"])
        old["rope_local_base_freq"] = local["rope_theta"]
    for new, old_key in (("rope_theta", "rope_theta"), ("partial_rotary_factor", "partial_rotary_factor")):
        if new in settings:
            old[old_key] = settings.pop(new)
    if config["model_type"] == "gpt_neox":
        old["rotary_pct"], old["rotary_emb_base"] = old.pop("partial_rotary_factor"), old.pop("rope_theta")
    if settings.get("rope_type", "default") != "default":
        settings["type"] = settings.pop("rope_type")
        old["rope_scaling"] = settings
    return old


@pytest.mark.parametrize("name", [name for name in CASES if "rope_parameters" in CASES[name]])
def test_both_spellings_of_rope_settings(name):
    old = v4(json.loads(json.dumps(CASES[name])))
    assert "rope_parameters" not in old
    assert read_family(old).spec == read_family(CASES[name]).spec


def test_configs_stay_as_they_are():
    config = json.loads(json.dumps(CASES["gemma3"]))
    read_family(config)
    assert config == CASES["gemma3"]


def test_specs_are_values():
    """Equal configs share compiled programs."""
    one, other = (read_family(CASES["gemma3"]).spec for _ in range(2))
    assert one == other and hash(one) == hash(other)
    assert dataclasses.replace(one, layers=5) != one
