"""The annealed descent on the sphere: schedule, Adam and tangent projection as optax transformations.

    p:              geometric from p_first (4) to p_last (2,000); sets the sharpness b of the smooth maximum
    learning rate:  geometric from rate_first (0.15 / sqrt d) to rate_last (1/200 of it)
    step:           gradient -> tangent projection -> Adam (.9, .99) -> tangent projection -> v - rate u -> unit length

Sharpness is measured against the present maximum m of the cosines, so that p is roughly the exponent of a power mean:

    lines: b = p / (2 m^2)        codes: b = p / m, m at least 1/d
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from repcap_jax.packing.objective import SmoothMaximum, Tiling, smooth_maximum

# Gradients are of the order of 1/(k sqrt d); Adam's usual 1e-8 would act as a threshold that depends on k and d.
_ADAM_EPS = 1e-20
HISTORY_CHUNK = 256  # most steps of one call


class Schedule(NamedTuple):
    """How the descent is annealed over `steps` steps; p starts at a value of each start's own.

    A tree of numbers and not a static argument, so that one compiled program serves every schedule.
    """

    steps: Any
    rate_first: Any
    rate_last: Any
    p_last: Any

    def rate(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """The learning rate at a step: an `optax.Schedule`."""
        return self._geometric(self.rate_first, self.rate_last, step)

    def power(self, p_first: Float[Array, ""], step: Int[Array, ""] | int) -> Float[Array, ""]:
        """p at a step."""
        return self._geometric(p_first, self.p_last, step)

    def _geometric(self, first: Any, last: Any, step: Any) -> Array:
        share = step / jnp.maximum(jnp.float32(self.steps) - 1.0, 1.0)
        return first * (jnp.float32(last) / first) ** share


class DescentState(NamedTuple):
    """One start's state; several starts have a leading axis.

    Attributes:
      vectors: `(k, d)` unit rows.
      moments: the state of the optax chain.
      largest: the coherence that b is tied to: that of the vectors one step before.
      best_vectors, best: the vectors of smallest coherence met so far, and that coherence.
      step: steps done.
    """

    vectors: Float[Array, "*starts k d"]
    moments: Any
    largest: Float[Array, "*starts"]
    best_vectors: Float[Array, "*starts k d"]
    best: Float[Array, "*starts"]
    step: Int[Array, "*starts"]


class StepRecord(NamedTuple):
    """What each step met: the smooth maximum in units of a cosine, the coherence, and p. Leading axis: steps."""

    smooth_maximum: Float[Array, "n *starts"]
    coherence: Float[Array, "n *starts"]
    p: Float[Array, "n *starts"]


def unit(vectors: Float[Array, "*starts k d"]) -> Float[Array, "*starts k d"]:
    """Rows brought back to the sphere."""
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def tangent_projection() -> optax.GradientTransformationExtraArgs:
    """Take from each row of the updates its part along the same row of the (unit) parameters."""

    def update(updates: Any, state: Any, params: Any = None, **_: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("tangent_projection needs the parameters: call update(gradient, state, params)")
        return jax.tree.map(_project, updates, params), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _project(update: Array, vectors: Array) -> Array:
    return update - jnp.sum(update * vectors, axis=-1, keepdims=True) * vectors


def sphere_adam(schedule: Schedule) -> optax.GradientTransformation:
    """Adam on the sphere; the caller renormalises after applying the update.

    Moments are kept in the coordinates of the surrounding space; what of Adam's direction is not tangent is removed.
    """
    return optax.chain(
        tangent_projection(),
        optax.scale_by_adam(b1=0.9, b2=0.99, eps=_ADAM_EPS),
        tangent_projection(),
        optax.scale_by_learning_rate(schedule.rate),
    )


def sharpness(objective: str, p: Array, largest: Array, d: int) -> Array:
    """b for exponent p and present maximum."""
    if objective == "lines":
        return p / (2 * jnp.maximum(largest, 1e-6) ** 2)
    return p / jnp.maximum(largest, 1 / d)


@functools.partial(jax.jit, static_argnames=("objective", "tiling"))
def start_descent(
    vectors: Float[Array, "starts k d"], objective: str, tiling: Tiling, schedule: Schedule
) -> DescentState:
    """The state before the first step."""

    def one(vectors: Array) -> DescentState:
        largest = smooth_maximum(vectors, 1.0, objective, tiling).largest
        moments = sphere_adam(schedule).init(vectors)
        return DescentState(vectors, moments, largest, vectors, largest, jnp.zeros((), jnp.int32))

    return _over_starts(one, vectors, tiling)


def _over_starts(one: Any, arguments: Any, tiling: Tiling) -> Any:
    """Starts side by side where a start is one tile; one after the other where each fills the machine by itself."""
    k = jax.tree.leaves(arguments)[0].shape[1]
    if k <= tiling.tile:
        return jax.vmap(one)(arguments)
    return jax.lax.map(one, arguments)


@functools.partial(jax.jit, static_argnames=("objective", "tiling"))
def advance(
    state: DescentState,
    p_first: Float[Array, " starts"],
    count: Int[Array, ""] | np.int32,
    *,
    objective: str,
    tiling: Tiling,
    schedule: Schedule,
) -> tuple[DescentState, StepRecord]:
    """Do `count` steps, at most 256. How a run is cut into calls does not change its numbers.

    Args:
      state: from `start_descent` or an earlier call.
      p_first: p of each start at step 0.
      count: steps to do; traced, so that every count runs the same program.
      objective, tiling, schedule: what to minimise, how to cut the pairs, how to anneal.
    Returns:
      The new state, and a StepRecord of 256 rows of which the first `count` are filled.
    """
    each = functools.partial(_one_step, objective=objective, tiling=tiling, schedule=schedule)

    def body(n: Array, carry: tuple[DescentState, StepRecord]) -> tuple[DescentState, StepRecord]:
        state, records = carry
        state, record = _over_starts(lambda both: each(*both), (state, p_first), tiling)
        return state, jax.tree.map(lambda kept, new: kept.at[n].set(new), records, record)

    empty = jnp.zeros((HISTORY_CHUNK, len(p_first)))
    return jax.lax.fori_loop(0, count, body, (state, StepRecord(empty, empty, empty)))


def _one_step(
    state: DescentState, p_first: Array, *, objective: str, tiling: Tiling, schedule: Schedule
) -> tuple[DescentState, StepRecord]:
    vectors = state.vectors
    p = schedule.power(p_first, state.step)
    b = sharpness(objective, p, state.largest, vectors.shape[-1])

    def loss(vectors: Array) -> tuple[Array, SmoothMaximum]:
        met = smooth_maximum(vectors, b, objective, tiling)
        return met.value, met

    (_, met), gradient = jax.value_and_grad(loss, has_aux=True)(vectors)
    updates, moments = sphere_adam(schedule).update(gradient, state.moments, vectors)
    better = met.largest < state.best
    state = DescentState(
        vectors=unit(optax.apply_updates(vectors, updates)),
        moments=moments,
        largest=met.largest,
        best_vectors=jnp.where(better, vectors, state.best_vectors),
        best=jnp.where(better, met.largest, state.best),
        step=state.step + 1,
    )
    smooth = jnp.sqrt(2 * met.value) if objective == "lines" else met.value
    return state, StepRecord(smooth, met.largest, p)
