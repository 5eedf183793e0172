"""Schedule, tangent steps, and runs that do not depend on how they are cut."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from repcap_jax.kernels.placement import rows_mesh
from repcap_jax.packing.objective import Tiling
from repcap_jax.packing.optimiser import (
    Schedule,
    StepRecord,
    advance,
    sphere_adam,
    start_descent,
    tangent_projection,
    unit,
)

SCHEDULE = Schedule(steps=60, rate_first=0.05, rate_last=0.00025, p_last=2000.0)


def vectors(starts, k, d):
    return unit(jax.random.normal(jax.random.key(0), (starts, k, d)))


def run(v, counts, *, objective="lines", tile=16, mesh=None, schedule=SCHEDULE):
    tiling = Tiling(tile, rows_mesh(mesh))
    state = start_descent(v, objective, tiling, schedule)
    p_first, records = jnp.full(len(v), 4.0), []
    for count in counts:
        state, record = advance(state, p_first, np.int32(count), objective=objective, tiling=tiling, schedule=schedule)
        records.append([np.asarray(leaf)[:count] for leaf in record])
    return state, StepRecord(*(np.concatenate(parts) for parts in zip(*records)))


def test_schedule_is_geometric():
    assert float(SCHEDULE.rate(0)) == pytest.approx(0.05)
    assert float(SCHEDULE.rate(59)) == pytest.approx(0.00025, rel=1e-5)
    powers = [float(SCHEDULE.power(jnp.float32(4.0), step)) for step in (0, 1, 2, 59)]
    assert powers[0] == pytest.approx(4.0) and powers[3] == pytest.approx(2000.0, rel=1e-5)
    assert powers[1] / powers[0] == pytest.approx(powers[2] / powers[1], rel=1e-5)


def test_projection_is_tangent_and_needs_parameters():
    v = vectors(1, 9, 4)[0]
    projection = tangent_projection()
    updates, _ = projection.update(jnp.ones_like(v), projection.init(v), v)
    np.testing.assert_allclose(jnp.sum(updates * v, axis=1), 0.0, atol=1e-6)
    with pytest.raises(ValueError, match="needs the parameters"):
        projection.update(v, projection.init(v))


def test_update_is_a_tangent_adam_step():
    """The first Adam step is the sign of the projected gradient, made tangent, times the learning rate."""
    v, gradient = vectors(1, 9, 4)[0], jax.random.normal(jax.random.key(5), (9, 4))
    chain = sphere_adam(SCHEDULE)
    updates, _ = jax.jit(chain.update)(gradient, jax.jit(chain.init)(v), v)
    tangent = gradient - jnp.sum(gradient * v, axis=1, keepdims=True) * v
    direction = jnp.sign(tangent)
    direction -= jnp.sum(direction * v, axis=1, keepdims=True) * v
    np.testing.assert_allclose(updates, -0.05 * direction, atol=1e-6)
    assert isinstance(chain, optax.GradientTransformation)


@pytest.mark.parametrize("k, tile", [(14, 16), (40, 16)])
def test_cutting_into_calls_changes_no_bit(k, tile):
    """Starts side by side (one tile) and in turn (several)."""
    v = vectors(2, k, 5)
    whole, whole_record = run(v, [60], tile=tile)
    parts, parts_record = run(v, [1, 7, 40, 12], tile=tile)
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    jax.tree.map(np.testing.assert_array_equal, whole_record, parts_record)


def test_another_count_or_schedule_does_not_recompile():
    v = vectors(2, 14, 5)
    run(v, [3])
    compiled = advance._cache_size()
    run(v, [5, 2], schedule=Schedule(90, 0.1, 0.01, 500.0))
    assert advance._cache_size() == compiled


def test_descends_and_keeps_the_best():
    state, record = run(vectors(2, 40, 5), [60])
    np.testing.assert_allclose(np.linalg.norm(state.vectors, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(state.best, record.coherence.min(axis=0))
    assert np.all(record.coherence[-1] < 0.9 * record.coherence[0])
    # The smooth maximum bounds the coherence from above and closes in on it as p grows.
    assert np.all(record.smooth_maximum > record.coherence - 1e-6)
    np.testing.assert_allclose(record.smooth_maximum[-1], record.coherence[-1], rtol=0.01)


def test_first_steps_do_not_depend_on_tiles_or_devices(mesh_of):
    v = vectors(2, 40, 5)
    reference, record = run(v, [10])
    other, other_record = run(v, [10], tile=8, mesh=mesh_of(8))
    np.testing.assert_allclose(other_record.smooth_maximum, record.smooth_maximum, rtol=1e-4)
    np.testing.assert_allclose(other.vectors, reference.vectors, atol=2e-3)
