"""Training: steps against a plain float64 loop, what must not matter, and what theory says has to come out."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from repcap_jax.superposition import (
    Instances,
    feature_clusters,
    feature_measures,
    feature_moments,
    instance_grid,
    linear_loss,
    linear_optimum,
    optimal_phase_losses,
    train_toy_models,
)
from repcap_jax.superposition import training as training_module
from repcap_jax.superposition.instances import draw_uniforms

KEY = jax.random.key(5)
QUICK = {"steps": 40, "batch": 64, "rate": 0.03}
GRID = instance_grid(4, [0.3, 0.8], [0.9], seeds=3)


def quick(instances=GRID, m=2, **changes):
    return train_toy_models(KEY, instances, m, **{**QUICK, **changes})


@pytest.fixture(scope="module")
def models():
    return quick()


def forward(w, b, x, activation, hidden):
    h = w @ x
    h = np.maximum(h, 0) if hidden == "relu" else h
    out = w.T @ h + b[:, None]
    return np.maximum(out, 0) if activation == "relu" else out


def adam_in_numpy(instances, place, m, steps, batch, rate, decay, activation, hidden):
    """One instance by central differences and Adam written out, in float64, on the same random numbers."""
    start_key, data_key, _ = jax.random.split(KEY, 3)
    start = train_start(instances, m, start_key)[place].astype(np.float64)
    parameters = np.concatenate([start.ravel(), np.zeros(instances.n)])
    importance, sparsity = instances.importance[place], instances.sparsity[place]
    first, second, losses = np.zeros_like(parameters), np.zeros_like(parameters), []
    for step in range(steps):
        draw = draw_uniforms(jax.random.fold_in(data_key, step), instances.n, batch, "independent", 1)
        x = np.maximum(np.asarray(draw.gates, np.float64) - sparsity, 0) / (1 - sparsity)

        def loss(flat, x=x):
            w, b = flat[: start.size].reshape(start.shape), flat[start.size :]
            return float(importance @ ((x - forward(w, b, x, activation, hidden)) ** 2).mean(axis=1))

        nudges = 1e-6 * np.eye(len(parameters))
        gradient = np.array([(loss(parameters + e) - loss(parameters - e)) / 2e-6 for e in nudges])
        losses.append(loss(parameters))
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        direction = (first / (1 - 0.9 ** (step + 1))) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        now = rate * (1 + np.cos(np.pi * step / steps)) / 2
        parameters = parameters - now * (direction + decay * parameters)
    return parameters[: start.size].reshape(start.shape), parameters[start.size :], losses


def train_start(instances, m, key):
    settings = training_module._settings(instances, m, "relu", "linear", "independent", 1, 1, 64, 1.0, 0.0)
    program = training_module._program(settings, training_module.rows_mesh())
    seeds = np.resize(instances.seed, 8).astype(np.int32)
    state = training_module._start(key, seeds, program=program)
    return np.asarray(training_module._plain(state.params)[0])


@pytest.mark.parametrize(
    "activation, hidden", [("relu", "linear"), pytest.param("linear", "relu", marks=pytest.mark.slow)]
)
def test_steps_against_a_plain_loop(activation, hidden):
    options = {"rate": 0.05, "weight_decay": 0.1, "activation": activation, "hidden": hidden}
    found = quick(steps=12, **options)
    w, b, losses = adam_in_numpy(GRID, 4, 2, 12, 64, 0.05, 0.1, activation, hidden)
    np.testing.assert_allclose(found.weights[4], w, atol=2e-4)
    np.testing.assert_allclose(found.biases[4], b, atol=2e-4)
    np.testing.assert_allclose(found.history[4], losses, rtol=1e-3)


def test_result(models):
    assert len(models) == 6 and models.weights.shape == (6, 2, 4) and models.biases.shape == (6, 4)
    assert models.history.shape == (6, 40) and models.history_steps.tolist() == list(range(1, 41))
    assert (models.history[:, -5:].mean(axis=1) < models.history[:, :5].mean(axis=1)).all()
    rng = np.random.default_rng(0)
    x = np.maximum(rng.random((4, 400_000)) - 0.8, 0) / 0.2
    w, b = models.weights[3].astype(np.float64), models.biases[3].astype(np.float64)
    expected = 0.9 ** np.arange(4) @ ((x - forward(w, b, x, "relu", "linear")) ** 2).mean(axis=1)
    assert models.loss[3] == pytest.approx(expected, rel=0.01) and models.loss_error[3] < 0.01 * expected
    record = json.loads(json.dumps(models.to_record(), allow_nan=False))
    assert record["settings"]["m"] == 2 and len(record["loss"]) == 6
    best = models.best_of_seeds()
    assert best[0] == np.argmin(models.loss[:3]) and best[1] == 3 + np.argmin(models.loss[3:])


def test_a_diverged_run_has_a_record(models):
    broken = dataclasses.replace(models.select(slice(0, 1)), loss=np.array([np.nan]))
    assert json.loads(json.dumps(broken.to_record(), allow_nan=False))["loss"] == [None]
    seeds = dataclasses.replace(models.select(slice(0, 3)), loss=np.array([np.nan, 0.2, 0.1]))
    assert seeds.best_of_seeds().tolist() == [2]


def test_instances_do_not_depend_on_each_other(models):
    order = np.array([5, 0, 3, 3, 1])
    turned = quick(GRID.select(order))
    np.testing.assert_allclose(turned.weights, models.weights[order], atol=1e-5)
    np.testing.assert_allclose(turned.loss, models.loss[order], rtol=1e-4)


def test_devices_share_the_instances(models, mesh_of):
    found = quick(mesh=mesh_of(3))  # six instances on three devices, four places on each
    np.testing.assert_allclose(found.weights, models.weights, atol=1e-5)
    np.testing.assert_allclose(found.history, models.history, rtol=1e-4)


def test_same_key_same_result_and_no_new_program(models):
    compiled = training_module._advance._cache_size()
    again = quick()
    np.testing.assert_array_equal(again.weights, models.weights)
    assert training_module._advance._cache_size() == compiled
    assert not np.array_equal(train_toy_models(jax.random.key(6), GRID, 2, **QUICK).weights, models.weights)
    quick(steps=30, rate=0.01, weight_decay=0.1)
    assert training_module._advance._cache_size() == compiled


def test_progress():
    told = []
    quick(steps=250, progress=lambda done, steps: told.append((done, steps)))
    assert told[0] == (2, 250) and told[-1] == (250, 250) and len(told) == 125


@pytest.mark.parametrize(
    "features, set_size, m", [("correlated", 2, 2), pytest.param("anticorrelated", 4, 6, marks=pytest.mark.slow)]
)
def test_other_features_and_wide_models(features, set_size, m):
    found = quick(instance_grid(4, [0.8], seeds=2), m, features=features, set_size=set_size)
    assert np.isfinite(found.loss).all() and found.settings.features == features


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"m": 0}, ValueError, "m must be at least 1"),
        ({"m": True}, TypeError, "m must be a whole number"),
        ({"activation": "tanh"}, ValueError, "activation must be one of 'relu', 'linear'"),
        ({"hidden": "gelu"}, ValueError, "hidden must be one of"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"batch": 0}, ValueError, "batch must be at least 1"),
        ({"rate": 0.0}, ValueError, "rate must be a positive number"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay must be"),
        ({"features": "correlated", "set_size": 3}, ValueError, "divide n = 4"),
        ({"features": "anticorrelated", "set_size": 2}, ValueError, "S must be at least 0.5"),
        ({"instances": Instances(np.array([1.0]), np.ones((1, 2)), np.array([0]))}, ValueError, "S must be in"),
        ({"instances": Instances(np.array([0.5]), -np.ones((1, 2)), np.array([0]))}, ValueError, "not negative"),
    ],
)
def test_bad_values(changes, error, message):
    with pytest.raises(error, match=message):
        quick(**changes)


def test_linear_models_reach_the_closed_form():
    """Within 1 % of the optimum, never below it, and never more than one feature per dimension."""
    instances = instance_grid(6, [0.0, 0.9], [0.8], seeds=3)
    found = train_toy_models(KEY, instances, 2, activation="linear", steps=1500, batch=128, rate=2e-2)
    for place in found.best_of_seeds():
        moments = feature_moments(6, instances.sparsity[place])
        loss = linear_loss(found.weights[place], found.biases[place], instances.importance[place], moments)
        optimum = linear_optimum(instances.importance[place], 2, moments[1]).loss
        assert optimum * (1 - 1e-6) <= loss <= 1.01 * optimum
        stored = feature_measures(found.weights[place])
        assert stored.represented.tolist() == [True, True, False, False, False, False]
    assert (feature_measures(found.weights).features_per_dimension < 1.01).all()


@pytest.mark.slow
def test_pentagon():
    """Five sparse features in two dimensions: the best of some seeds is a regular pentagon, each D_i 2/5."""
    found = train_toy_models(KEY, instance_grid(5, [0.97], seeds=6), 2, steps=4000, batch=256, rate=1e-2)
    (best,) = found.best_of_seeds()
    (cluster,) = feature_clusters(found.weights[best])
    assert cluster.shape.name == "pentagon" and cluster.shape.distance < 0.03
    np.testing.assert_allclose(feature_measures(found.weights[best]).dimensionality, 0.4, atol=0.01)


@pytest.mark.slow
def test_relu_stores_more_than_m_and_in_known_shapes():
    """n = 20, m = 5: five antipodal pairs when half sparse; 16 of a sharp code, then all 20, when sparser."""
    instances = instance_grid(20, [0.7, 0.85, 0.97], seeds=6)
    found = train_toy_models(KEY, instances, 5, steps=3000, batch=256, rate=1e-2)
    best = dict(zip([0.7, 0.85, 0.97], found.best_of_seeds()))
    measures = feature_measures(found.weights)
    pairs = feature_clusters(found.weights[best[0.7]])
    assert [cluster.shape.name for cluster in pairs] == ["antipodal pair"] * 5
    np.testing.assert_allclose([cluster.dimensionality for cluster in pairs], 1 / 2, atol=0.01)
    stored = measures.represented[best[0.85]]
    assert stored.sum() >= 14
    np.testing.assert_allclose(measures.dimensionality[best[0.85]][stored], 5 / 16, atol=0.06)
    dense = instances.sparsity == 0.97
    assert (measures.represented[dense].sum(axis=1) >= 18).all()
    assert (measures.features_per_dimension[dense] > 4.5).all()
    np.testing.assert_allclose(measures.dimensionality[best[0.97]], 1 / 4, atol=0.03)


@pytest.mark.slow
def test_linear_stores_no_more_than_m():
    instances = instance_grid(20, [0.5, 0.9, 0.99], seeds=2)
    found = train_toy_models(KEY, instances, 5, activation="linear", steps=3000, batch=256, rate=1e-2)
    assert (feature_measures(found.weights).features_per_dimension < 1.01).all()
    for place in range(len(found)):
        moments = feature_moments(20, instances.sparsity[place])
        loss = linear_loss(found.weights[place], found.biases[place], instances.importance[place], moments)
        optimum = linear_optimum(instances.importance[place], 5, moments[1]).loss
        assert optimum * (1 - 1e-6) <= loss <= 1.01 * optimum


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2])
def test_small_models_reach_the_least_phase(m):
    """The best seed has the loss of the best closed form in each of its phases, to 2 % and the error of the samples."""
    relative, sparsity = np.array([0.15, 6.0, 1.0, 1.0]), np.array([0.0, 0.0, 0.8, 0.97])
    importance = np.concatenate([np.ones((4, m)), relative[:, None]], axis=1)
    seeds = np.tile(np.arange(6), 4)
    instances = Instances(np.repeat(sparsity, 6), np.repeat(importance, 6, axis=0), seeds)
    found = train_toy_models(KEY, instances, m, steps=4000, batch=512, rate=1e-2)
    places = found.best_of_seeds()
    best, error = found.loss[places], 4 * found.loss_error[places]
    theory = np.min(np.stack(optimal_phase_losses(m, sparsity, relative)), axis=0)
    if m == 1:
        assert (best + error > 0.99 * theory).all(), "the three phases are all there are"
    assert (best - error < 1.02 * theory).all()
