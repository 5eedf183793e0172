"""`pack`: what it returns, that it can be stopped and continued, and what it refuses."""

import dataclasses
import json
import math
import sys

import jax
import numpy as np
import pytest

from repcap_jax.capacity import best_construction, coherence_bound, family_construction
from repcap_jax.packing import BoundViolation, exact_coherence, known_best, pack
from repcap_jax.packing.initial import resolve_init, starting_vectors

KEY = jax.random.key(7)
# One size for most tests, so that its programs are compiled once.
K, D = 14, 5
QUICK = {"steps": 60, "starts": 4}


def cosines(vectors):
    v = np.asarray(vectors, np.float64)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return (v @ v.T)[np.triu_indices(len(v), 1)]


def quick(**changes):
    return pack(KEY, K, D, **{**QUICK, **changes})


@pytest.fixture(scope="module")
def packing():
    return quick()


def test_result(packing):
    assert packing.vectors.dtype == np.float32 and packing.vectors.shape == (packing.k, packing.d) == (K, D)
    np.testing.assert_allclose(np.linalg.norm(packing.vectors, axis=1), 1.0, atol=1e-6)
    assert packing.coherence == pytest.approx(np.abs(cosines(packing.vectors)).max(), abs=1e-15)
    assert packing.bound == coherence_bound(K, D).value <= packing.coherence
    assert packing.gap == packing.coherence - packing.bound
    assert packing.completed and packing.steps_done == 60 and packing.polished
    assert packing.coherence <= packing.start_coherences.min() + 1e-7
    history = packing.history
    np.testing.assert_array_equal(history.step, np.arange(60))
    assert len(history.smooth_maximum) == len(history.coherence) == len(history.p) == 60
    assert history.p[-1] == pytest.approx(packing.settings.p_last, rel=1e-4)
    # The winner's own coherence before the polish, but for what its last step and float64 changed.
    assert np.abs(packing.start_coherences - history.coherence.min()).min() < 1e-4


def test_record_is_valid_json(packing):
    record = json.loads(json.dumps(packing.to_record(), allow_nan=False))
    assert record["k"] == K and record["coherence"] == packing.coherence and record["completed"]
    assert record["settings"]["steps"] == 60 and record["key"]["data"] == [0, 7]
    assert json.loads(json.dumps(pack(KEY, 3, 4).to_record(), allow_nan=False))["settings"] is None


def test_same_key_same_result(packing):
    again = quick()
    np.testing.assert_array_equal(again.vectors, packing.vectors)
    other = pack(jax.random.key(8), K, D, **QUICK)
    assert not np.array_equal(other.vectors, packing.vectors)


def test_raw_key(packing):
    np.testing.assert_array_equal(pack(jax.random.PRNGKey(7), K, D, **QUICK).vectors, packing.vectors)


def test_devices_share_the_tiles(mesh_of):
    """Six equiangular lines in R^3 from three devices."""
    found = pack(KEY, 6, 3, steps=300, starts=4, tile=8, mesh=mesh_of(3))
    assert found.coherence == pytest.approx(1 / math.sqrt(5), abs=1e-6)
    assert found.settings.devices == 3


@pytest.mark.parametrize(
    "objective, k, d, value",
    [
        ("lines", 2, 2, 0.0),
        ("lines", 5, 8, 0.0),
        ("lines", 9, 8, 1 / 8),
        ("lines", 7, 2, math.cos(math.pi / 7)),
        ("codes", 2, 5, -1.0),
        ("codes", 6, 5, -1 / 5),
        ("codes", 4, 5, -1 / 3),
        ("codes", 7, 5, 0.0),
        ("codes", 10, 5, 0.0),
        ("codes", 5, 2, math.cos(2 * math.pi / 5)),
    ],
)
def test_known_best_arrangements_come_at_once(objective, k, d, value):
    found = pack(KEY, k, d, objective=objective)
    assert found.settings is None and found.completed and len(found.history.step) == 0
    assert found.coherence == pytest.approx(value, abs=1e-7)
    assert found.bound == pytest.approx(value, abs=1e-12)
    assert exact_coherence(known_best(k, d, objective).vectors, objective) == pytest.approx(value, abs=1e-14)


def test_interrupted_run_continues_bit_for_bit(packing, tmp_path):
    def stop_at(step):
        def progress(done, steps):
            if done >= step:
                raise KeyboardInterrupt

        return progress

    stopped = quick(checkpoint_dir=tmp_path, progress=stop_at(3))
    assert not stopped.completed and 3 <= stopped.steps_done < 60 and len(stopped.history.step) == stopped.steps_done
    assert stopped.coherence >= packing.coherence
    assert stopped.coherence == pytest.approx(stopped.start_coherences.min(), abs=1e-6)
    further = quick(checkpoint_dir=tmp_path, progress=stop_at(20))
    assert stopped.steps_done < further.steps_done < 60
    resumed = quick(checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(resumed.vectors, packing.vectors)
    for found, expected in zip(resumed.history, packing.history):
        np.testing.assert_array_equal(found, expected)
    # A finished run is read back, not done again.
    calls = []
    np.testing.assert_array_equal(
        quick(checkpoint_dir=tmp_path, progress=lambda *at: calls.append(at)).vectors, packing.vectors
    )
    assert calls == []
    with pytest.raises(ValueError, match="another packing run .different key"):
        pack(jax.random.key(1), K, D, **QUICK, checkpoint_dir=tmp_path)


def test_construction_is_a_start_and_a_floor():
    e8 = pack(KEY, 120, 8, init="construction")
    assert e8.coherence == pytest.approx(0.5, abs=1e-7) and len(e8.history.step) == 0 and e8.completed
    lines = family_construction("exceptional set", 5, 16)
    found = pack(KEY, K, D, init=lines, steps=60)
    assert found.coherence <= lines.coherence + 1e-7 and found.settings.init == lines.name


def test_construction_in_fewer_dimensions_is_padded_and_nudged():
    lines = family_construction("exceptional set", 5, 16)
    start = resolve_init(lines, 15, 7)
    assert start.vectors.shape == (15, 7) and not start.vectors[:, 5:].any()
    nudged = np.asarray(starting_vectors(KEY, start, 1, 15, 7)[0])
    assert nudged[:, 5:].all(), "coordinates that are zero in every row would stay zero"
    assert np.abs(nudged - start.vectors).max() < 0.01


def test_given_vectors_are_refined_and_never_lost(packing):
    warm = pack(KEY, K, D, init=3.0 * packing.vectors, steps=60)
    assert warm.settings.starts == 1 and warm.settings.init == "vectors"
    assert warm.coherence <= packing.coherence + 1e-7
    unpolished = pack(KEY, K, D, init=np.random.default_rng(0).standard_normal((K, D)), steps=60)
    assert unpolished.coherence < 0.9 * unpolished.history.coherence[0]


def test_bfloat16_ends_in_float32(packing):
    found = quick(dtype="bfloat16")
    assert found.settings.float32_steps == 12
    assert found.coherence == pytest.approx(packing.coherence, rel=0.05)


def test_a_coherence_below_the_bound_is_an_internal_error(packing):
    with pytest.raises(BoundViolation, match="internal error.*below the Welch"):
        dataclasses.replace(packing, bound=packing.coherence + 1e-6, bound_name="Welch")


def test_progress_reports_steps(packing):
    calls = []
    quick(progress=lambda done, steps: calls.append((done, steps)))
    assert calls[-1] == (60, 60) and [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_interrupt_during_the_polish_returns_the_descent(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["repcap_jax.packing.pack"], "sharpen", interrupted)
    found = quick()
    assert found.steps_done == 60 and not found.completed and not found.polished


ONES = np.ones((K, D))
HOLED = np.where(np.arange(K * D).reshape(K, D) == 3 * D + 1, np.nan, 1.0)


@pytest.mark.parametrize(
    "error, match, arguments",
    [
        (ValueError, "k must be at least 2, got 1", {"k": 1}),
        (ValueError, "d must be at least 2, got 1", {"d": 1}),
        (TypeError, "14.5", {"k": 14.5}),
        (ValueError, "steps must be at least 1, got 0", {"steps": 0}),
        (ValueError, "starts must be at least 1, got 0", {"starts": 0}),
        (ValueError, "tile must be from 8 to 8192, got 4", {"tile": 4}),
        (ValueError, "objective must be one of 'lines', 'codes', got 'frames'", {"objective": "frames"}),
        (ValueError, "dtype must be one of", {"dtype": "float16"}),
        (ValueError, "init must be 'random', 'construction'", {"init": "kerdock"}),
        (TypeError, "init must be .* got object", {"init": object()}),
        (ValueError, r"shape \(14, 5\), got \(14, 4\)", {"init": ONES[:, :4]}),
        (ValueError, "1 rows without a direction .* row 3", {"init": HOLED}),
        (ValueError, "starts must be 1 when init", {"init": ONES, "starts": 2}),
        (ValueError, "it cannot start 200 vectors", {"init": best_construction(120, 8), "k": 200, "d": 8}),
        (ValueError, "no construction of 100000 lines in R", {"init": "construction", "k": 100000, "d": 4}),
    ],
)
def test_bad_input(error, match, arguments):
    arguments = {"k": K, "d": D, **arguments}
    with pytest.raises(error, match=match):
        pack(KEY, arguments.pop("k"), arguments.pop("d"), **arguments)
