"""Training of many toy models at once: one compiled loop over steps, every instance in it, shared over devices.

All instances see the same uniform random numbers at the same step (`instances.py`), which makes the data of hundreds of
models as cheap as those of one, and what an instance learns does not depend on which others are trained beside it. On
CPUs a few instances at a time take turns within a step, so that what they touch stays in the cache; on other devices
all of them are one batched product.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.placement import AXIS, rows_mesh, spans_processes
from repcap_jax.superposition.instances import (
    Instances,
    check_features,
    checked_instances,
    draw_uniforms,
    sparse_features,
)
from repcap_jax.superposition.model import ACTIVATIONS, ToyModel, reconstruction_loss
from repcap_jax.superposition.result import ToyModels, ToySettings

Progress = Callable[[int, int], None]  # steps done, steps in all

# Few enough that what they touch stays in the cache, more than one to spread the cost of each operation.
_AT_ONCE_ON_CPU = 4
_HISTORY = 100  # points of the loss history
_JUDGED_NUMBERS = 1 << 21  # random numbers that the final loss is a mean over, n of them a sample
_JUDGED_BATCH = 1 << 12


class _Program(NamedTuple):
    """What a compiled program is for: the model, its data, and where it runs."""

    n: int
    m: int
    activation: str
    hidden: str
    features: str
    set_size: int
    batch: int
    mesh: Mesh

    def model(self, key: Array) -> ToyModel:
        """A new model."""
        rngs = nnx.Rngs(params=key)
        return ToyModel(self.n, self.m, activation=self.activation, hidden=self.hidden, rngs=rngs)

    def split(self) -> tuple[Any, Any]:
        """The model's structure, and the shapes of its parameters."""
        return nnx.split(nnx.eval_shape(lambda: self.model(jax.random.key(0))))

    @property
    def kind(self) -> tuple[str, int]:
        """How features occur."""
        return self.features, self.set_size

    @property
    def at_once(self) -> int | None:
        """Instances of one batched product; None for all of a device's."""
        return _AT_ONCE_ON_CPU if self.mesh.devices.flat[0].platform == "cpu" else None


class _Descent(NamedTuple):
    """The optimiser's settings: numbers and not a static argument, so that one program serves them all."""

    steps: Any
    rate: Any
    weight_decay: Any

    def optimiser(self) -> optax.GradientTransformation:
        """AdamW with a rate that falls to 0 along a cosine."""

        def rate(step: Array) -> Array:
            return self.rate * 0.5 * (1 + jnp.cos(jnp.pi * step / self.steps))

        return optax.adamw(rate, weight_decay=self.weight_decay)


class _Trained(NamedTuple):
    """Models, sharded over the mesh by instance, and their common optimiser."""

    params: Any
    moments: Any


class _Given(NamedTuple):
    """What an instance is trained on, as the device sees it."""

    sparsity: Float[Array, " instances"]
    importance: Float[Array, "instances n"]


def train_toy_models(
    key: Array,
    instances: Instances,
    m: int,
    *,
    activation: str = "relu",
    hidden: str = "linear",
    features: str = "independent",
    set_size: int = 1,
    steps: int = 10_000,
    batch: int = 512,
    rate: float | int = 3e-3,
    weight_decay: float | int = 0.0,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> ToyModels:
    """Train a toy model of superposition for each instance, all of them at once.

        minimise  E sum_i I_i (x_i - x'_i)^2,     x' = max(0, W^T W x + b)     (x' = W^T W x + b for the linear model)

    by AdamW in float32, on fresh features at every step, with a learning rate that falls to 0 along a cosine.

    Args:
      key: a `jax.random` key; it decides the data and, with an instance's seed, where the instance starts.
      instances: from `instance_grid`, or `Instances` of one's own.
      m: hidden dimensions, >= 1; with m >= n no dimension has to be shared.
      activation: of the output, `"relu"` or `"linear"`.
      hidden: of the hidden layer, `"linear"` or `"relu"` (a privileged basis).
      features, set_size: `"independent"`; or `"correlated"` or `"anticorrelated"` in sets of `set_size`, which must
        divide n; see `sparse_features`.
      steps: steps of the optimiser.
      batch: samples of a step.
      rate: learning rate of the first step.
      weight_decay: of AdamW, on W and b.
      mesh: devices to share the instances; `None` for the default device. The numbers do not depend on it but for
        float32 rounding.
      progress: called as `progress(steps_done, steps)`.
    Returns:
      ToyModels.
    Raises:
      TypeError, ValueError: for arguments out of range.
    Source: Elhage et al. 2022, "Toy Models of Superposition". Its notebook draws other data for each instance and keeps
      the learning rate at 1e-3; here instances share their random numbers and the rate falls, so that what remains at
      the end is no noise of the last batches.
    """
    began = time.monotonic()
    instances = checked_instances(*instances)
    settings = _settings(
        instances, m, activation, hidden, features, set_size, steps, batch, float(rate), float(weight_decay)
    )
    program = _program(settings, rows_mesh(mesh))
    descent = _Descent(np.float32(settings.steps), np.float32(settings.rate), np.float32(settings.weight_decay))
    count = len(instances.sparsity)
    # Devices get equal shares of whole blocks; places beyond the last instance repeat it.
    share = program.mesh.size * (program.at_once or 1)
    padded = instances.select(np.minimum(np.arange(-(-count // share) * share), count - 1))
    given = _Given(padded.sparsity.astype(np.float32), padded.importance.astype(np.float32))
    start_key, data_key, judge_key = jax.random.split(key, 3)
    state = _start(start_key, padded.seed.astype(np.int32), program=program)
    history, marks = [], []
    chunk, done = max(1, settings.steps // _HISTORY), 0
    while done < settings.steps:
        count_now = min(chunk, settings.steps - done)
        reach = np.int32(done), np.int32(count_now)
        state, losses = _advance(state, given, data_key, *reach, descent, program=program)
        jax.block_until_ready(losses)
        done += count_now
        history.append(losses)
        marks.append(done)
        if progress is not None:
            progress(done, settings.steps)
    loss, error = _judge(state.params, given, judge_key, program=program)
    fetched = _on_host((_plain(state.params), loss, error, history), program.mesh)
    (weights, biases), loss, error, history = jax.tree.map(lambda array: array[:count], fetched)
    return ToyModels(
        weights=weights,
        biases=biases,
        loss=loss.astype(np.float64),
        loss_error=error.astype(np.float64),
        history_steps=np.array(marks),
        history=np.stack(history, axis=1),
        instances=instances,
        settings=settings,
        seconds=time.monotonic() - began,
    )


def _settings(instances: Instances, m: Any, activation: str, hidden: str, *rest: Any) -> ToySettings:
    features, set_size, steps, batch, rate, weight_decay = rest
    for name, value, known in (("activation", activation, ACTIVATIONS), ("hidden", hidden, ("linear", "relu"))):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be a positive number, got {rate}")
    if not (np.isfinite(weight_decay) and weight_decay >= 0):
        raise ValueError(f"weight_decay must be a number that is not negative, got {weight_decay}")
    set_size = whole(set_size, "set_size")
    check_features(features, set_size, instances.n, instances.sparsity)
    return ToySettings(
        n=instances.n,
        m=whole(m, "m"),
        activation=activation,
        hidden=hidden,
        features=features,
        set_size=set_size,
        steps=whole(steps, "steps"),
        batch=whole(batch, "batch"),
        rate=rate,
        weight_decay=weight_decay,
    )


def _program(settings: ToySettings, mesh: Mesh) -> _Program:
    names = [name for name in _Program._fields if name != "mesh"]
    return _Program(**{name: getattr(settings, name) for name in names}, mesh=mesh)


def _plain(params: Any) -> tuple[Array, Array]:
    return params["W"][...], params["b"][...]


def _on_host(tree: Any, mesh: Mesh) -> Any:
    """The arrays as NumPy, in every process."""
    if not spans_processes(mesh):
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


@functools.partial(jax.jit, static_argnames="program")
def _start(key: Array, seeds: Int[Array, " instances"], *, program: _Program) -> _Trained:
    def one(seed: Array) -> Any:
        return nnx.state(program.model(jax.random.fold_in(key, seed)), nnx.Param)

    def local(seeds: Array) -> _Trained:
        params = jax.vmap(one)(seeds)
        return _Trained(params, _Descent(1.0, 1.0, 0.0).optimiser().init(params))

    return _on_mesh(local, program, P(AXIS), _state_specs(program))(seeds)


def _state_specs(program: _Program) -> _Trained:
    """Arrays are sharded by instance, the optimiser's counts are the same everywhere."""

    def state(params: Any) -> _Trained:
        return _Trained(params, _Descent(1.0, 1.0, 0.0).optimiser().init(params))

    return jax.tree.map(lambda leaf: P(AXIS) if leaf.ndim else P(), jax.eval_shape(state, program.split()[1]))


def _on_mesh(local: Any, program: _Program, in_specs: Any, out_specs: Any) -> Any:
    return jax.shard_map(local, mesh=program.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


@functools.partial(jax.jit, static_argnames="program", donate_argnums=0)
def _advance(
    state: _Trained, given: _Given, key: Array, first: Array, count: Array, descent: _Descent, *, program: _Program
) -> tuple[_Trained, Float[Array, " instances"]]:
    """Do steps first .. first + count - 1; also each instance's mean loss over them."""
    graphdef = program.split()[0]

    def loss(params: Any, given: _Given, draw: Any) -> Array:
        x = sparse_features(draw, given.sparsity, *program.kind)
        return reconstruction_loss(nnx.merge(graphdef, params), x, given.importance)

    def local(
        state: _Trained, given: _Given, key: Array, first: Array, count: Array, descent: _Descent
    ) -> tuple[_Trained, Array]:
        def step(number: Array, carry: tuple[_Trained, Array]) -> tuple[_Trained, Array]:
            state, total = carry
            draw = draw_uniforms(jax.random.fold_in(key, number), program.n, program.batch, *program.kind)
            both = state.params, given
            losses, gradient = _each(lambda both: jax.value_and_grad(loss)(*both, draw), both, program)
            # Adam works number by number: one update for all instances.
            updates, moments = descent.optimiser().update(gradient, state.moments, state.params)
            return _Trained(optax.apply_updates(state.params, updates), moments), total + losses

        zero = jnp.zeros(given.sparsity.shape)
        state, total = jax.lax.fori_loop(first, first + count, step, (state, zero))
        return state, total / count

    held = _state_specs(program)
    on_mesh = _on_mesh(local, program, (held, P(AXIS), P(), P(), P(), P()), (held, P(AXIS)))
    return on_mesh(state, given, key, first, count, descent)


def _each(one: Any, arguments: Any, program: _Program) -> Any:
    """All instances at once, or a few at a time in turn."""
    if program.at_once is None:
        return jax.vmap(one)(arguments)
    return jax.lax.map(one, arguments, batch_size=program.at_once)


@functools.partial(jax.jit, static_argnames="program")
def _judge(params: Any, given: _Given, key: Array, *, program: _Program) -> tuple[Array, Array]:
    """Loss of each instance on fresh stratified samples, the same for all, and its standard error."""
    graphdef = program.split()[0]
    batches = max(8, _JUDGED_NUMBERS // (program.n * _JUDGED_BATCH))

    def one(params: Any, given: _Given, draw: Any) -> Array:
        x = sparse_features(draw, given.sparsity, *program.kind)
        return reconstruction_loss(nnx.merge(graphdef, params), x, given.importance)

    def local(params: Any, given: _Given, key: Array) -> tuple[Array, Array]:
        def losses(number: Array) -> Array:
            batch_key = jax.random.fold_in(key, number)
            draw = draw_uniforms(batch_key, program.n, _JUDGED_BATCH, *program.kind, stratified=True)
            return _each(lambda both: one(*both, draw), (params, given), program)

        found = jax.lax.map(losses, jnp.arange(batches))
        return jnp.mean(found, axis=0), jnp.std(found, axis=0, ddof=1) / batches**0.5

    return _on_mesh(local, program, (P(AXIS), P(AXIS), P()), P(AXIS))(params, given, key)
