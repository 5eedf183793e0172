"""The score against the float64 oracle, its controls, its invariances and its refusals."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repcap_jax import alignment_score, grassmann_frames, readout_subspace, sensitivity
from repcap_jax.alignment.program import correlate
from tests import oracles

N, D, K, NULLS = 60, 24, 6, 12
KEY = jax.random.key(0)


def unembedding(d=D, vocab=400, seed=1):
    """Rows with a falling spectrum along directions of no special orientation."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return ((rng.standard_normal((vocab, d)) * np.arange(1, d + 1) ** -0.8) @ turn).astype(np.float32)


def states(n=N, d=D, seed=2):
    rng = np.random.default_rng(seed)
    graded = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.3
    return (graded @ np.linalg.qr(rng.standard_normal((d, d)))[0] + 0.5).astype(np.float32)


READOUT = readout_subspace(unembedding(), K)


@pytest.fixture(scope="module")
def frames():
    return np.asarray(grassmann_frames(KEY, NULLS, D, K))


def oracle(hidden, frames, m, readout=READOUT, remove_after=False):
    rhos = oracles.alignment_rhos(hidden, [readout, *frames], m, remove_after)
    return rhos, (rhos[0] - rhos[1:].mean()) / rhos[1:].std(ddof=1)


@pytest.mark.parametrize("n, ms, remove_after", [(N, (0, 1, 4), False), (N + 1, (1,), False), (N, (0, 1), True)])
def test_agrees_with_the_oracle(frames, n, ms, remove_after):
    hidden = states(n)
    table = sensitivity(hidden, READOUT, None, ks=(3, K), ms=ms, frames=frames, remove_after=remove_after)
    for m in ms:
        for k in (3, K):
            found = table.at(m=m, k=k)
            rhos, z = oracle(hidden, frames[:, :, :k], m, READOUT[:, :k], remove_after)
            np.testing.assert_allclose([found.rho, *found.null_rhos], rhos, atol=1e-6 * (10 if m else 1))
            assert found.z == pytest.approx(z, abs=1e-3)


@pytest.mark.parametrize("n, m", [(3, 0), (15, 2)])
def test_few_states(frames, n, m):
    """Fewer than dimensions: the principal directions come from the n x n Gram matrix."""
    hidden = states(n)
    found = alignment_score(hidden, READOUT, None, remove=m, frames=frames)
    np.testing.assert_allclose([found.rho, *found.null_rhos], oracle(hidden, frames, m)[0], atol=1e-5)


def test_equal_states_tie(frames):
    """20 of 60 states equal others, as tokens repeat at the embedding. The oracle rounds, so that it ties too."""
    hidden = states()[np.random.default_rng(0).integers(0, 40, N)]
    found = alignment_score(hidden, READOUT, None, remove=1, frames=frames)
    kept = oracles.removed(hidden, 1)
    full = np.round(oracles.pair_cosines(kept), 10)
    for rho, basis in zip([found.rho, *found.null_rhos], [READOUT, *frames]):
        projected = np.round(oracles.pair_cosines(kept @ basis.astype(np.float64)), 10)
        assert rho == pytest.approx(oracles.spearman(full, projected), abs=5e-6)
    assert found.repeated == N - len(np.unique(hidden, axis=0)) > 10


def test_the_record(frames):
    found = alignment_score(states(), READOUT, KEY, nulls=NULLS)
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert (record["n"], record["d"], record["k"], record["m"], record["nulls"]) == (N, D, K, 1, NULLS)
    assert record["effect"] == pytest.approx(found.rho - found.null_mean)
    assert record["z"] == pytest.approx(record["effect"] / record["null_std"])
    assert record["p_above"] == (1 + sum(rho >= found.rho for rho in found.null_rhos)) / (1 + NULLS)
    assert record["p_two_sided"] == min(1, 2 * min(record["p_above"], record["p_below"]))
    assert record["key"]["data"] == [0, 0] and record["frames"] == "drawn"
    assert sum(record["methods_used"].values()) == NULLS + 1 and len(record["null_rhos"]) == NULLS
    # Nulls drawn one by one inside the program are those of grassmann_frames.
    given = alignment_score(states(), READOUT, KEY, frames=frames)
    np.testing.assert_allclose(given.null_rhos, found.null_rhos, atol=1e-6)
    assert given.to_record()["frames"] == "given"


def test_monte_carlo_error():
    """The stated error of z is the spread of z over sets of nulls."""
    frames = np.asarray(grassmann_frames(jax.random.key(9), 40 * NULLS, D, K)).reshape(40, NULLS, D, K)
    found = [alignment_score(states(), READOUT, None, frames=some) for some in frames]
    spread = np.std([score.z for score in found], ddof=1)
    assert spread == pytest.approx(np.mean([score.z_error for score in found]), rel=0.5)


def test_controls():
    d, k, n = 96, 16, 300
    W_U = unembedding(d)
    directions = np.linalg.svd(W_U.astype(np.float64))[2]
    top, bottom = readout_subspace(W_U, k), readout_subspace(W_U, k, part="bottom")
    noise = np.random.default_rng(5).standard_normal((n, d))
    frames = grassmann_frames(jax.random.key(3), 60, d, k)

    def score(hidden, readout):
        return alignment_score(hidden.astype(np.float32), readout, None, frames=frames)

    assert abs(score(noise, top).z) < 3
    graded = (noise * np.arange(1, d + 1) ** -0.2) @ directions
    aligned = score(graded, top)
    assert aligned.z > 10 and aligned.p_above == 1 / 61 and aligned.effect > 0
    opposed = score(graded, bottom)
    assert opposed.z < 0 and opposed.p_above > 0.5


@settings(max_examples=6)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-12, 3.0, 1e12]))
def test_invariances(frames, seed, scale):
    """Rotating states, readout and nulls together, scaling, shifting and permuting states change nothing."""
    rng = np.random.default_rng(seed)
    hidden = states()
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0].astype(np.float32)
    before = alignment_score(hidden, READOUT, None, frames=frames)
    turned = np.einsum("ij,bjk->bik", turn, frames)
    changes = {
        "rotation": alignment_score(hidden @ turn.T, turn @ READOUT, None, frames=turned),
        "scale": alignment_score(hidden * np.float32(scale), READOUT, None, frames=frames),
        "shift": alignment_score(hidden + rng.standard_normal(D).astype(np.float32), READOUT, None, frames=frames),
        "order": alignment_score(hidden[rng.permutation(N)], READOUT, None, frames=frames),
    }
    for what, after in changes.items():
        np.testing.assert_allclose(after.null_rhos, before.null_rhos, atol=2e-5, err_msg=what)
        assert after.z == pytest.approx(before.z, abs=5e-3), what
    mixing = np.linalg.qr(rng.standard_normal((K, K)))[0].astype(np.float32)
    other_basis = alignment_score(hidden, READOUT @ mixing, None, frames=frames)
    assert other_basis.rho == pytest.approx(before.rho, abs=2e-5)


@pytest.mark.parametrize("devices", [3, 8])
def test_devices_share_the_nulls(frames, mesh_of, devices):
    alone = alignment_score(states(), READOUT, KEY, nulls=NULLS)
    shared = alignment_score(states(), READOUT, KEY, nulls=NULLS, mesh=mesh_of(devices))
    np.testing.assert_allclose(shared.null_rhos, alone.null_rhos, atol=1e-7)
    assert shared.rho == pytest.approx(alone.rho, abs=1e-7) and shared.devices == devices


@pytest.mark.parametrize("method", ["sort", "binned"])
def test_methods_agree(frames, method):
    auto = alignment_score(states(), READOUT, None, frames=frames)
    other = alignment_score(states(), READOUT, None, frames=frames, method=method)
    np.testing.assert_allclose(other.null_rhos, auto.null_rhos, atol=1e-4 if method == "binned" else 1e-6)
    assert other.method_used == method


def test_cells_that_the_bins_cannot_tell_are_sorted(monkeypatch):
    """400 states have more pairs than bins; a tolerance between the losses makes some cells sorted and some not."""
    hidden = states(400)
    frames = np.asarray(grassmann_frames(KEY, 4, D, 2))
    by_sort = alignment_score(hidden, frames[0], None, frames=frames[1:], method="sort")
    for tolerated, used in ((1.0, {"binned": 4, "sort": 0}), (0.0, {"binned": 0, "sort": 4})):
        monkeypatch.setattr("repcap_jax.alignment.layer.TOLERATED", tolerated)
        found = alignment_score(hidden, frames[0], None, frames=frames[1:])
        assert found.methods_used == used
        tolerance = 5e-6 if tolerated else 0
        np.testing.assert_allclose(found.null_rhos, by_sort.null_rhos, atol=tolerance)
        assert found.rho == pytest.approx(by_sort.rho, abs=tolerance)
    rhos, _ = oracle(hidden, frames[1:], 1, frames[0])
    np.testing.assert_allclose([by_sort.rho, *by_sort.null_rhos], rhos, atol=1e-6)


def test_layers_share_a_program(frames):
    alignment_score(states(seed=10), READOUT, None, frames=frames)
    compiled = correlate._cache_size()
    alignment_score(states(seed=11), READOUT, None, frames=frames)
    assert correlate._cache_size() == compiled


def test_sensitivity_is_the_score_cell_by_cell():
    """A narrower cell draws the same nulls as the score with that k and key."""
    readout = readout_subspace(unembedding(), 8)
    table = sensitivity(states(), readout, KEY, ks=(8, K), ms=(3, 1), nulls=NULLS)
    assert (table.ks, table.ms, table.z.shape) == ((K, 8), (1, 3), (2, 2))
    cell, alone = table.at(m=1, k=K), alignment_score(states(), readout[:, :K], KEY, nulls=NULLS)
    np.testing.assert_allclose([cell.rho, *cell.null_rhos], [alone.rho, *alone.null_rhos], atol=2e-6)
    assert (cell.k, cell.m) == (K, 1)
    assert len(json.loads(json.dumps(table.to_record(), allow_nan=False))["cells"]) == 4
    with pytest.raises(KeyError, match="k = 5"):
        table.at(m=1, k=5)


def spoiled(row, value):
    hidden = states()
    hidden[row] = value
    return hidden


@pytest.mark.parametrize(
    "hidden, readout, options, says",
    [
        (states(2), READOUT, {}, "at least 3"),
        (spoiled((4, 2), np.nan), READOUT, {}, "NaN or infinite"),
        (spoiled(4, 0.0), READOUT, {}, r"constant along 1 row \(4\)"),
        (np.ones((9, D), np.float32), READOUT, {}, "constant along 9 rows"),
        (np.tile(np.arange(D, dtype=np.float32), (9, 1)), READOUT, {}, "all states are the same"),
        (states()[0], READOUT, {}, "matrix"),
        (states(d=D + 1), READOUT, {}, r"d = 25, but readout has shape \(24, 6\)"),
        (states(), np.eye(D), {}, "smaller than the width"),
        (states(), 2 * READOUT, {}, "orthonormal"),
        (states(), np.zeros((D, 0)), {}, "non-empty"),
        (states(), READOUT, {"remove": -1}, "at least 0"),
        (states(), READOUT, {"remove": D - 1}, "up to m = 22"),
        (states(10), READOUT, {"remove": 10}, "up to m = 8"),
        (states(), READOUT, {"remove": 5, "remove_after": True}, "at least m"),
        (states(), READOUT, {"nulls": 1}, "nulls must be at least 2"),
        (states(), READOUT, {"method": "quick"}, "method must be"),
        (states(), READOUT, {"frames": np.ones((5, D, K - 1))}, "frames must have shape"),
        (states(), READOUT, {"frames": np.ones((5, D, K), np.float32)}, "orthonormal"),
    ],
)
def test_bad_values(hidden, readout, options, says):
    traced = correlate._cache_size()
    with pytest.raises(ValueError, match=says):
        alignment_score(hidden, readout, KEY, **options)
    assert correlate._cache_size() == traced


def test_a_subspace_that_sees_nothing_of_a_state(frames):
    """Known only after the projection: a state at right angles to the readout."""
    hidden = states()
    hidden[:-1] -= hidden[:-1].mean(axis=0) - 0.0
    hidden[-1] = np.linalg.svd(READOUT.T)[2][-1] * 3  # the mean is this over n, along itself
    with pytest.raises(ValueError, match="no component in the readout subspace"):
        alignment_score(hidden, READOUT, None, remove=0, frames=frames)


def test_bad_types():
    with pytest.raises(TypeError, match="jax.random key"):
        alignment_score(states(), READOUT, None)
    with pytest.raises(TypeError, match="remove"):
        alignment_score(states(), READOUT, KEY, remove=1.5)
    with pytest.raises(ValueError, match="fewer than the largest"):
        sensitivity(states(), READOUT, KEY, ks=(3, 8))
    with pytest.raises(ValueError, match="at least one"):
        sensitivity(states(), READOUT, KEY, ks=())
