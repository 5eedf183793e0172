"""Each switch matters to the parity checkpoints: a decoder with one switch wrong is far from the reference."""

import dataclasses

import pytest

from repcap_jax.models import loading
from repcap_jax.models.rope import no_rotation
from tests.models.parity import DATA, differences

pytestmark = pytest.mark.slow


def attention(**changes):
    return lambda spec: dataclasses.replace(spec, attention=dataclasses.replace(spec.attention, **changes))


def block(**changes):
    return lambda spec: dataclasses.replace(spec, block=dataclasses.replace(spec.block, **changes))


def decoder(**changes):
    return lambda spec: dataclasses.replace(spec, **changes)


def scales(factor):
    """All scores multiplied by a factor."""
    return lambda spec: attention(scales=tuple(factor * scale for scale in spec.attention.scales))(spec)


def window(layer, value):
    """One layer's window changed."""

    def change(spec):
        windows = list(spec.attention.windows)
        assert windows[layer] != value
        windows[layer] = value
        return attention(windows=tuple(windows))(spec)

    return change


def rope(**changes):
    """A setting of the first rotation changed."""

    def change(spec):
        first, *others = spec.attention.ropes
        return attention(ropes=(dataclasses.replace(first, **changes), *others))(spec)

    return change


def frequency(number, factor):
    """One frequency of the first rotation changed."""

    def change(spec):
        frequencies = list(spec.attention.ropes[0].frequencies)
        frequencies[number] *= factor
        return rope(frequencies=tuple(frequencies))(spec)

    return change


def rotates_everywhere(spec):
    return attention(rope_of=(0,) * spec.layers)(spec)


def half_rotated(spec):
    """Only the faster half of the frequencies, over half of the coordinates."""
    return attention(ropes=tuple(dataclasses.replace(r, frequencies=r.frequencies[:1]) for r in spec.attention.ropes))(
        spec
    )


SWITCHES = {
    "llama-linear": frequency(1, 1.1),
    "llama-dynamic": rope(dynamic=None),
    "llama-llama3": frequency(2, 1.1),
    "llama-yarn": rope(scale=1.0),
    "llama-yarn-mscale": rope(scale=1.0),
    "mistral": window(1, 6),
    "qwen2": window(1, None),
    "qwen3": attention(qk_norm=None),
    "phi": half_rotated,
    "phi-qk-norm": attention(qk_norm=None),
    "phi3": window(0, None),
    "phi3-long": rope(long_frequencies=None),
    "phi3-short": rope(long_from=8),
    "gemma": decoder(embedding_scale=None),
    "gemma2": attention(softcap=None),
    "gemma3": rotates_everywhere,
    "olmo": attention(clip=None),
    "olmo2": attention(qk_norm=None),
    "olmo3": rotates_everywhere,
    "falcon-alibi": attention(alibi_scale=1.0),
    "stablelm": half_rotated,
    "starcoder2": window(0, 6),
    "smollm3": rotates_everywhere,
    "cohere": attention(interleaved=False),
    "cohere-qk-norm": attention(qk_norm=None),
    "granite": block(residual_scale=1.0),
    "glm4": attention(interleaved=False),
    "gpt2": scales(1.1),
    "gpt_neo": window(1, None),
    "gptj": attention(interleaved=False),
    "gpt_neox": block(parallel=False),
    "gpt_neox-sequential": block(parallel=True),
    "opt-projected": block(norm_after_add=False),
    "bloom": attention(alibi=None),
    "bloom-post-norm": block(residual_from_norm=False),
}
LOGIT_SWITCHES = {
    "gemma2": decoder(logit_softcap=None),
    "cohere": decoder(logit_scale=1.0),
    "granite": decoder(logit_scale=1.0),
}


def differences_with(monkeypatch, name, change):
    """As `differences`, for a decoder whose switches were changed."""
    real = loading.read_family

    def changed(config):
        family = real(config)
        spec = change(family.spec)
        assert spec != family.spec
        return family._replace(spec=spec)

    monkeypatch.setattr(loading, "read_family", changed)
    return differences(DATA / name)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_wrong_switch_shows(monkeypatch, name):
    states, _ = differences_with(monkeypatch, name, SWITCHES[name])
    assert states > 1e-2


@pytest.mark.parametrize("name", LOGIT_SWITCHES)
def test_a_wrong_switch_of_the_logits_shows(monkeypatch, name):
    states, logits = differences_with(monkeypatch, name, LOGIT_SWITCHES[name])
    assert states < 2e-5
    assert logits > 1e-2


def test_falcon_rounds_its_biases(monkeypatch):
    """The rounding to bfloat16 is small, but not within the tolerance."""
    states, _ = differences_with(monkeypatch, "falcon-alibi", attention(alibi="float32"))
    assert states > 1e-4


def test_no_rotation_is_none(monkeypatch):
    """A model that never rotates is what one gets from the identity everywhere."""

    def never(spec):
        return attention(ropes=(no_rotation(8),) * len(spec.attention.ropes))(spec)

    states, _ = differences_with(monkeypatch, "llama", never)
    assert states > 1e-2
