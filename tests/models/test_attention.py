"""Attention over sequences of several query blocks, against a float64 loop over queries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from repcap_jax.models.attention import causal_attention

KV_HEADS, GROUP, HEAD_DIM = 2, 3, 4


def oracle(q, k, v, window, softcap, bias):
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.empty_like(q)
    for at in range(q.shape[1]):
        first = 0 if window is None else max(0, at + 1 - window)
        scores = np.einsum("bkgd,bskd->bkgs", q[:, at], k[:, first : at + 1])
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        if bias is not None:
            scores = scores + bias[:, :, first : at + 1]
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[:, at] = np.einsum("bkgs,bskd->bkgd", weights, v[:, first : at + 1])
    return out


CASES = [
    # seq, window, softcap, biased
    (300, None, None, False),
    (300, 7, None, False),
    (300, 150, 2.0, True),
    (128, 1, None, False),
    (5, None, 1.0, True),
]


@pytest.mark.parametrize(("seq", "window", "softcap", "biased"), CASES)
def test_against_the_oracle(seq, window, softcap, biased):
    rng = np.random.default_rng(seq)
    q = rng.standard_normal((2, seq, KV_HEADS, GROUP, HEAD_DIM), np.float32)
    k, v = rng.standard_normal((2, 2, seq, KV_HEADS, HEAD_DIM), np.float32)
    bias = rng.standard_normal((KV_HEADS, GROUP, seq), np.float32) if biased else None
    found = causal_attention(
        jnp.asarray(q),
        jnp.asarray(k),
        jnp.asarray(v),
        window=None if window is None else jnp.asarray(window),
        softcap=softcap,
        bias=None if bias is None else jnp.asarray(bias),
        dtype=jnp.float32,
        precision=jax.lax.Precision.HIGHEST,
    )
    np.testing.assert_allclose(found, oracle(q, k, v, window, softcap, bias), atol=2e-6)
