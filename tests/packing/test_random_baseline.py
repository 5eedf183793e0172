"""The random baseline, measured and predicted."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from repcap_jax.packing import predicted_random_coherence, random_coherence

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "guha2026_random_packing.json"


def test_each_draw_and_the_best():
    key = jax.random.key(3)
    found = random_coherence(key, 50, 6, 4)
    for trial, coherence in enumerate(found.coherences):
        rows = np.asarray(jax.random.normal(jax.random.fold_in(key, trial), (50, 6)), np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        assert coherence == pytest.approx(np.abs((rows @ rows.T)[np.triu_indices(50, 1)]).max(), abs=1e-6)
    assert found.best == found.coherences.min()
    np.testing.assert_array_equal(random_coherence(key, 50, 6, 2).coherences, found.coherences[:2])
    json.dumps(found.to_record(), allow_nan=False)


def test_single_draw_has_no_prediction():
    found = random_coherence(jax.random.key(0), 50, 6, 1)
    assert found.predicted is None and found.to_record()["predicted_reason"]


def test_prediction_solves_its_equation():
    for k, d, trials in [(2000, 64, 1000), (32000, 4096, 1000), (10, 2, 3)]:
        epsilon = predicted_random_coherence(k, d, trials)
        tail = stats.beta(0.5, (d - 1) / 2).sf(epsilon**2)
        assert k * (k - 1) / 2 * tail == pytest.approx(np.log(trials), rel=1e-9)
    assert predicted_random_coherence(2, 3, 1000) == 0.0
    assert 0.99 < predicted_random_coherence(10**100, 20, 2) <= 1.0


def test_prediction_agrees_with_draws():
    found = random_coherence(jax.random.key(1), 50, 6, 40)
    assert found.best == pytest.approx(found.predicted, rel=0.05)


def test_published_random_grid():
    if not REFERENCE.is_file():
        pytest.skip(f"published figures not present: {REFERENCE}")
    cells = np.array(json.loads(REFERENCE.read_text())["cells"])
    predicted = np.array([predicted_random_coherence(int(k), int(d), 1000) for k, d, _ in cells])
    assert np.mean(np.abs(predicted / cells[:, 2] - 1)) < 0.0115


@pytest.mark.parametrize("k, d, trials", [(1, 3, 5), (5, 1, 5), (5, 3, 0)])
def test_bad_input(k, d, trials):
    with pytest.raises(ValueError, match="must be at least"):
        random_coherence(jax.random.key(0), k, d, trials)
    with pytest.raises(ValueError, match="trials must be at least 2"):
        predicted_random_coherence(5, 3, 1)
