"""Spectral metrics against their definitions written out, and on data whose values are known."""

import json

import numpy as np
import pytest

from repcap_jax import spectral_metrics
from tests import oracles
from tests.alignment.test_score import READOUT, D, K, states

BASIS = np.eye(40, 8, dtype=np.float32)


def test_definitions():
    hidden = states(200)
    found = spectral_metrics(hidden, READOUT)
    h = hidden.astype(np.float64)
    x = h - h.mean(axis=0)
    s, directions = np.linalg.svd(x, full_matrices=False)[1:]
    variances = s**2 / (len(h) - 1)
    assert found.pc1_variance_share == pytest.approx(variances[0] / variances.sum())
    assert found.pc1_readout_share == pytest.approx(np.sum((READOUT.T @ directions[0]) ** 2), abs=1e-6)
    assert found.readout_variance_share == pytest.approx(np.trace(np.cov(h.T) @ READOUT @ READOUT.T) / variances.sum())
    raw = np.linalg.svd(h, compute_uv=False)
    p = raw / raw.sum() + 1e-7
    assert found.rankme == pytest.approx(np.exp(-np.sum(p * np.log(p))))
    assert found.condition_number == pytest.approx(s[0] / s[-1])
    assert found.participation_ratio == pytest.approx(variances.sum() ** 2 / np.sum(variances**2))
    assert found.average_cosine == pytest.approx(oracles.pair_cosines(h).mean())
    axes = np.linalg.svd(h)[2]
    partition = np.exp(np.concatenate([h @ axes.T, -h @ axes.T], axis=1)).sum(axis=0)
    assert found.isotropy == pytest.approx(partition.min() / partition.max())
    np.testing.assert_allclose(found.eigenvalues, variances, rtol=1e-9)


def test_power_law_is_found():
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.standard_normal((2000, 40)))[0]
    frame -= frame.mean(axis=0)
    hidden = np.linalg.qr(frame)[0] * np.arange(1, 41) ** -0.6  # eigenvalues i^-1.2
    found = spectral_metrics(hidden, BASIS)
    assert found.alpha_req == pytest.approx(1.2, abs=1e-3) and found.alpha_r2 > 0.999
    assert spectral_metrics(hidden, BASIS, alpha_range=(5, 20)).alpha_req == pytest.approx(1.2, abs=1e-3)
    assert found.pc1_readout_share == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match="alpha_range"):
        spectral_metrics(hidden, BASIS, alpha_range=(5, 41))


def test_isotropic_states():
    found = spectral_metrics(np.random.default_rng(0).standard_normal((20_000, 40)), BASIS)
    assert found.participation_ratio == pytest.approx(40, rel=0.01) and found.rankme == pytest.approx(40, rel=0.01)
    assert found.isotropy == pytest.approx(1, abs=0.1) and found.average_cosine == pytest.approx(0, abs=1e-3)
    assert found.readout_variance_share == pytest.approx(8 / 40, abs=0.01)
    assert found.condition_number < 1.2 and abs(found.alpha_req) < 0.1


def test_what_does_not_exist_is_null():
    low_rank = np.random.default_rng(0).standard_normal((50, 3)) @ np.random.default_rng(1).standard_normal((3, 40))
    record = json.loads(json.dumps(spectral_metrics(low_rank, BASIS).to_record(), allow_nan=False))
    assert record["condition_number"] is None and "fewer than" in record["condition_number_reason"]
    assert record["alpha_req"] is not None
    long = spectral_metrics(1e4 * states(), READOUT).to_record()
    assert long["isotropy"] == 0.0 and long["log_isotropy"] < -1e3


@pytest.mark.parametrize("n", [5, 20])
def test_fewer_states_than_dimensions(n):
    found = spectral_metrics(states(n), READOUT)
    x = oracles.removed(states(n), 0)
    s, directions = np.linalg.svd(x, full_matrices=False)[1:]
    assert found.pc1_readout_share == pytest.approx(np.sum((READOUT.T @ directions[0]) ** 2), abs=1e-6)
    assert found.condition_number == pytest.approx(s[0] / s[n - 2], rel=1e-5)
    assert (found.n, found.d, found.k) == (n, D, K)
    assert found.log_isotropy <= np.log(n)
