"""Points on the sphere that repel each other: least Riesz and logarithmic energies, from many starts side by side.

    Riesz:        E_s(V) = sum over i < j of |v_i - v_j|^-s       (s = 1 in R^3 is the Thomson problem)
    logarithmic:  E_0(V) = sum over i < j of -ln |v_i - v_j|      (the limit s -> 0)

As s grows the nearest pairs decide, and the minimum tends to the best spherical code. The descent minimises ln E_s / s,
which has the same minima, is finite for every s, and equals -ln of the smallest distance in the limit. It uses the
packer's Adam on the sphere in float32; float64 L-BFGS on the host then takes each good start to its minimum.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float64, Shaped
from scipy.optimize import minimize
from scipy.special import logsumexp

from repcap_jax.kernels.checks import whole
from repcap_jax.packing.optimiser import Schedule, sphere_adam, unit
from repcap_jax.packing.polish import exact_coherence, unit_rows64

Progress = Callable[[int, int], None]  # steps done, steps in all

_CALLS = 10  # of the device, between which progress is told
# Starts whose energy, as the descent leaves it, is that much above the best one are other minima.
_POLISHED_WITHIN = 5e-4
_SAME = 1e-8  # relative difference of two float64 energies of one minimum
_CLOSEST = 1e-6  # squared distances below this are taken for this: the gradient of coinciding points stays finite
LARGEST_S = 1e4


@dataclasses.dataclass(frozen=True)
class EnergyMinimum:
    """Points of least energy, and how often independent starts found it.

    Attributes:
      vectors: `(k, d)` float64 unit rows.
      s: exponent; 0 is the logarithmic energy.
      energy: of these vectors in float64; infinite where E_s exceeds float64, see `log_energy`.
      log_energy: ln E_s; None for s = 0, whose energy may be negative.
      start_energies: `(starts,)` energies: after the polish where a start came near the best, else after the descent.
        For s > 0 in logarithms.
      found: how many starts reached this minimum.
      coherence: largest cosine between two of the points.
      gradient: length of the tangent gradient of the minimised function.
      seconds: wall time.
    """

    vectors: Float64[np.ndarray, "k d"]
    s: float
    energy: float
    log_energy: float | None
    start_energies: Float64[np.ndarray, " starts"]
    found: int
    coherence: float
    gradient: float
    seconds: float

    @property
    def smallest_angle(self) -> float:
        """Smallest angle between two points, in degrees."""
        return math.degrees(math.acos(max(-1.0, min(1.0, self.coherence))))

    def symmetry(self) -> Symmetry:
        """Distances and neighbours of the points."""
        return symmetry(self.vectors)

    def to_record(self) -> dict[str, Any]:
        """Everything but the vectors, as valid JSON."""
        k, d = self.vectors.shape
        record: dict[str, Any] = {"k": k, "d": d, "s": self.s, "energy": self.energy, "log_energy": self.log_energy}
        record |= {"starts": len(self.start_energies), "found": self.found, "coherence": self.coherence}
        record |= {"smallest_angle": self.smallest_angle, "gradient": self.gradient, "seconds": self.seconds}
        if not math.isfinite(self.energy):
            record |= {"energy": None, "energy_reason": "beyond float64; see log_energy"}
        return {**record, "symmetry": self.symmetry().to_record()}


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """What tells arrangements of points apart, whatever their rotation and order.

    Attributes:
      distances: the different distances between points, rising; those closer than the tolerance are one.
      counts: how many pairs have each.
      coordination: number of nearest neighbours of each point: those within 1.2 times its smallest distance.
      kinds: how many kinds of points there are, by their sorted distances to all others; 1 for a symmetric arrangement.
    """

    distances: Float64[np.ndarray, " n"]
    counts: np.ndarray
    coordination: np.ndarray
    kinds: int

    def to_record(self) -> dict[str, Any]:
        """The same as valid JSON, coordination as numbers of points by number of neighbours."""
        neighbours, points = np.unique(self.coordination, return_counts=True)
        return {
            "distances": self.distances.tolist(),
            "counts": self.counts.tolist(),
            "coordination": {str(n): int(p) for n, p in zip(neighbours, points)},
            "kinds": self.kinds,
        }


def minimal_energy(
    key: Array,
    k: int,
    d: int,
    *,
    s: float | int = 1.0,
    starts: int | None = None,
    steps: int = 600,
    progress: Progress | None = None,
) -> EnergyMinimum:
    """Minimise the Riesz s-energy of k points on the unit sphere of R^d from many random starts.

    The equations are at the head of this module.

    Args:
      key: a `jax.random` key.
      k: number of points, >= 2.
      d: dimension, >= 2.
      s: exponent, 0 (logarithmic energy) to 10,000; 1 is Thomson's problem, a large one finds spherical codes.
      starts: independent random starts, run side by side; `None` chooses 64, or fewer for k > 90.
      steps: steps of each start before the float64 polish.
      progress: called as `progress(steps_done, steps)`.
    Returns:
      EnergyMinimum: the best start's points. A minimum that several starts share is likely, not sure, to be the least.
    Raises:
      TypeError, ValueError: for arguments out of range.
    Source: Thomson 1904; Saff and Kuijlaars 1997, "Distributing many points on a sphere".
    """
    began = time.monotonic()
    k, d, steps = whole(k, "k", 2), whole(d, "d", 2), whole(steps, "steps", 1)
    if not (isinstance(s, numbers.Real) and 0 <= s <= LARGEST_S):
        raise ValueError(f"s must be a number from 0 to {LARGEST_S:g}, got {s!r}")
    starts = max(1, min(64, 2**19 // k**2)) if starts is None else whole(starts, "starts", 1)
    rate = 0.15 / d**0.5
    schedule = Schedule(steps, rate, rate / 2000, 1.0)
    vectors = unit(jax.random.normal(key, (starts, k, d), jnp.float32))
    state = vectors, sphere_adam(schedule).init(vectors)
    marks = np.unique(np.linspace(0, steps, _CALLS + 1).astype(np.int32))
    for first, last in zip(marks, marks[1:]):
        state = _descend(*state, first, last, np.float32(s), schedule=schedule)
        jax.block_until_ready(state[0])
        if progress is not None:
            progress(int(last), steps)
    return _best(np.asarray(state[0], np.float64), float(s), began)


def riesz_energy(vectors: Shaped[np.ndarray, "k d"], s: float | int = 1.0) -> float:
    """The energy E_s of points on the unit sphere, in float64.

    Args:
      vectors: rows of any non-zero length, which are brought to length 1.
      s: exponent >= 0; 0 is the logarithmic energy.
    Returns:
      The energy; infinite if it exceeds float64 or two points coincide.
    Raises:
      ValueError: for a negative s, or rows without a direction.
    """
    if not s >= 0:
        raise ValueError(f"s must not be negative, got {s}")
    value = _objective(unit_rows64(vectors), float(s))[0]
    pairs = len(vectors) * (len(vectors) - 1) // 2
    with np.errstate(over="ignore"):
        return float(value * pairs if s == 0 else np.exp(s * value))


def symmetry(vectors: Shaped[np.ndarray, "k d"], tolerance: float = 1e-4) -> Symmetry:
    """The distance multiset and the coordination of points on the sphere.

    Args:
      vectors: rows of any non-zero length, at least two.
      tolerance: distances that differ by less from their neighbour in order are taken for one.
    Returns:
      Symmetry.
    """
    rows = unit_rows64(vectors)
    distances = np.linalg.norm(rows[:, None] - rows, axis=-1)
    ordered = np.sort(distances[np.triu_indices(len(rows), 1)])
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > tolerance) + 1)
    others = np.sort(distances, axis=1)[:, 1:]  # without the distance 0 to itself
    kinds: list[np.ndarray] = []
    for row in others:
        if not any(np.abs(row - known).max() <= 10 * tolerance for known in kinds):
            kinds.append(row)
    return Symmetry(
        distances=np.array([group.mean() for group in groups]),
        counts=np.array([len(group) for group in groups]),
        coordination=(others <= 1.2 * others[:, :1]).sum(axis=1),
        kinds=len(kinds),
    )


@functools.partial(jax.jit, donate_argnums=(0, 1))
def _descend(
    vectors: Float[Array, "starts k d"], moments: Any, first: Array, last: Array, s: Array, *, schedule: Schedule
) -> tuple[Float[Array, "starts k d"], Any]:
    """Steps first .. last - 1, all starts side by side; Adam works number by number and needs no vmap."""
    optimiser = sphere_adam(schedule)

    def total(vectors: Array) -> Array:
        return jnp.sum(jax.vmap(_smooth_energy, (0, None))(vectors, s))

    def step(_: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        vectors, moments = carry
        updates, moments = optimiser.update(jax.grad(total)(vectors), moments, vectors)
        return unit(optax.apply_updates(vectors, updates)), moments

    return jax.lax.fori_loop(first, last, step, (vectors, moments))


def _smooth_energy(vectors: Float[Array, "k d"], s: Float[Array, ""]) -> Float[Array, ""]:
    """ln(E_s / pairs) / s, which becomes the mean of -ln distance at s = 0; float32."""
    k = vectors.shape[0]
    squared = jnp.sum((vectors[:, None] - vectors) ** 2, axis=-1)
    upper = jnp.triu(jnp.ones((k, k), bool), 1)
    closeness = -0.5 * jnp.log(jnp.where(upper, jnp.maximum(squared, _CLOSEST), 1.0))
    mean = jnp.sum(jnp.where(upper, closeness, 0.0)) / (k * (k - 1) / 2)
    spread = jnp.where(upper, s * (closeness - mean), -jnp.inf)
    pairs = k * (k - 1) / 2
    return mean + jnp.where(s > 0, (jax.nn.logsumexp(spread) - jnp.log(pairs)) / jnp.maximum(s, 1e-6), 0.0)


def _objective(rows: np.ndarray, s: float) -> tuple[float, np.ndarray]:
    """ln E_s / s, or the mean of -ln distance for s = 0, and its gradient with respect to the rows; float64."""
    i, j = np.triu_indices(len(rows), 1)
    apart = rows[i] - rows[j]
    squared = np.einsum("nd,nd->n", apart, apart)
    with np.errstate(divide="ignore"):
        closeness = -0.5 * np.log(squared)
    if s == 0:
        value, weights = float(closeness.mean()), np.full(len(i), 1 / len(i))
    else:
        value = float(logsumexp(s * closeness)) / s
        with np.errstate(invalid="ignore"):  # coinciding points: infinity less infinity
            weights = np.exp(s * (closeness - value))
    pull = (weights / np.maximum(squared, 1e-300))[:, None] * apart
    gradient = np.zeros_like(rows)
    np.add.at(gradient, i, -pull)
    np.add.at(gradient, j, pull)
    return value, gradient


def _polish(vectors: np.ndarray, s: float) -> tuple[np.ndarray, float, float]:
    """The nearby minimum in float64: unit rows, the objective, and the length of its tangent gradient."""
    shape = vectors.shape

    def on_sphere(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = flat.reshape(shape)
        lengths = np.linalg.norm(free, axis=1, keepdims=True)
        rows = free / lengths
        value, gradient = _objective(rows, s)
        tangent = (gradient - (gradient * rows).sum(axis=1, keepdims=True) * rows) / lengths
        return value, tangent.ravel()

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20}
    found = minimize(on_sphere, vectors.ravel(), jac=True, method="L-BFGS-B", options=options)
    rows = unit_rows64(found.x.reshape(shape))
    value, tangent = on_sphere(rows.ravel())
    return rows, value, float(np.linalg.norm(tangent))


def _best(vectors: Float64[np.ndarray, "starts k d"], s: float, began: float) -> EnergyMinimum:
    """The least of all starts; those that came near it are polished, to see how many found the same."""
    values = np.array([_objective(unit_rows64(rows), s)[0] for rows in vectors])
    pairs = vectors.shape[1] * (vectors.shape[1] - 1) // 2
    scale = pairs if s == 0 else s  # a change of the objective by x is one of x * scale in E_0, in ln E_s
    size = max(abs(values.min()) * pairs, 1.0) if s == 0 else 1.0
    polished: dict[int, tuple[np.ndarray, float, float]] = {}
    for number in np.argsort(values, kind="stable"):
        if (values[number] - values.min()) * scale / size > _POLISHED_WITHIN:
            break
        polished[int(number)] = _polish(vectors[number], s)
    for number, (_, value, _) in polished.items():
        values[number] = value
    winner = min(polished, key=lambda number: polished[number][1])
    rows, value, gradient = polished[winner]
    return EnergyMinimum(
        vectors=rows,
        s=s,
        energy=riesz_energy(rows, s),
        log_energy=None if s == 0 else s * value,
        start_energies=values * scale,
        found=int(((values - value) * scale / size <= _SAME).sum()),
        coherence=exact_coherence(rows, "codes"),
        gradient=gradient,
        seconds=time.monotonic() - began,
    )
