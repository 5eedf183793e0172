"""What a toy model is trained on: sparse features of some importance, and grids of such settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from repcap_jax.kernels.checks import whole

FEATURES = ("independent", "correlated", "anticorrelated")


class Instances(NamedTuple):
    """The settings of several toy models, one entry each.

    Attributes:
      sparsity: S, the probability that a feature is zero.
      importance: I_i of each feature.
      seed: which random start it takes; instances of one seed start from the same weights.
    """

    sparsity: Float[np.ndarray, " instances"]
    importance: Float[np.ndarray, "instances n"]
    seed: Int[np.ndarray, " instances"]

    @property
    def n(self) -> int:
        """Number of features."""
        return self.importance.shape[1]

    def select(self, chosen: Any) -> Instances:
        """Some of the instances, by a slice or an array of places."""
        return Instances(*(np.asarray(field)[chosen] for field in self))


def instance_grid(
    n: int, sparsities: Iterable[float | int], decays: Iterable[float | int] = (1.0,), seeds: int = 1
) -> Instances:
    """Every sparsity with every importance decay and every seed.

        I_i = decay^i,   i = 0 .. n - 1

    Args:
      n: features, >= 1.
      sparsities: values of S in [0, 1).
      decays: positive factors from one feature's importance to the next one's.
      seeds: random starts of each combination, >= 1.
    Returns:
      Instances, the seed changing fastest.
    Raises:
      TypeError, ValueError: for values out of range, or a grid without instances.
    """
    n, seeds = whole(n, "n"), whole(seeds, "seeds")
    sparsities, decays = list(sparsities), list(decays)
    if not sparsities or not decays:
        raise ValueError("the grid has no instances: give at least one sparsity and one importance decay")
    if bad := [decay for decay in decays if not (math.isfinite(decay) and decay > 0)]:
        raise ValueError(f"importance decays must be positive numbers, got {bad}")
    rows = [(s, decay, seed) for s in sparsities for decay in decays for seed in range(seeds)]
    sparsity, decay, seed = map(np.array, zip(*rows))
    return checked_instances(sparsity, decay[:, None] ** np.arange(n), seed)


def checked_instances(sparsity: Any, importance: Any, seed: Any) -> Instances:
    """The fields as Instances.

    Args:
      sparsity: `(instances,)` values of S in [0, 1).
      importance: `(instances, n)`, none negative and in each instance one above 0.
      seed: `(instances,)` whole numbers from 0.
    Raises:
      ValueError: for values out of range or shapes that do not fit, naming the first wrong instance.
    """
    sparsity, importance = np.asarray(sparsity, np.float64), np.asarray(importance, np.float64)
    seed = np.asarray(seed, np.int64)
    if importance.ndim != 2 or 0 in importance.shape:
        raise ValueError(f"importance must have shape (instances, n), got {importance.shape}")
    for name, field in (("sparsity", sparsity), ("seed", seed)):
        if field.shape != (len(importance),):
            raise ValueError(f"{name} must have shape ({len(importance)},) as importance says, got {field.shape}")
    if len(bad := np.flatnonzero(~((sparsity >= 0) & (sparsity < 1)))):
        raise ValueError(f"sparsity S must be in [0, 1): at 1 no feature is ever active; got {sparsity[bad[0]]:g}")
    if len(bad := np.flatnonzero(~(np.isfinite(importance) & (importance >= 0)).all(axis=1))):
        raise ValueError(f"importance must be finite and not negative, instance {bad[0]} has {importance[bad[0]]}")
    if len(bad := np.flatnonzero(~(importance > 0).any(axis=1))):
        raise ValueError(f"no feature of instance {bad[0]} has an importance above 0, so there is nothing to learn")
    if len(bad := np.flatnonzero((seed < 0) | (seed >= 2**31))):
        raise ValueError(f"seeds must be from 0 to 2^31 - 1, got {seed[bad[0]]}")
    return Instances(sparsity, importance, seed)


def check_features(features: str, set_size: int, n: int, sparsity: Float[np.ndarray, " instances"]) -> None:
    """Raise where features cannot be drawn: sets that do not divide n, or more than one active feature a set.

    Raises:
      ValueError: with what was expected.
    """
    if features not in FEATURES:
        raise ValueError(f"features must be one of {', '.join(map(repr, FEATURES))}, got {features!r}")
    if features == "independent":
        if set_size != 1:
            raise ValueError(f"set_size is for correlated or anticorrelated features, got {set_size}; leave it at 1")
    elif set_size < 2 or n % set_size:
        raise ValueError(f"set_size must be at least 2 and divide n = {n} for {features} features, got {set_size}")
    if features == "anticorrelated" and (lowest := float(sparsity.min())) < 1 - 1 / set_size - 1e-9:
        raise ValueError(
            f"of {set_size} anticorrelated features at most one is active, so that S must be at least "
            f"{1 - 1 / set_size:g}, got {lowest:g}"
        )


class Draw(NamedTuple):
    """Uniform numbers that become features once a sparsity is given."""

    gates: Float[Array, "n batch"]
    values: Float[Array, "n batch"]


def draw_uniforms(key: Array, n: int, batch: int, features: str, set_size: int, stratified: bool = False) -> Draw:
    """The random numbers of one batch, which do not depend on the sparsity: all instances share them.

    Stratified ones (a Latin hypercube) hold one number from each of `batch` equal intervals, feature by feature, so
    that how often a feature is active does not vary from batch to batch.
    """
    uniform = _strata if stratified else jax.random.uniform
    gate_key, value_key = jax.random.split(key)
    gates = uniform(gate_key, (n // set_size, batch))
    gates = gates if set_size == 1 else jnp.repeat(gates, set_size, axis=0)
    return Draw(gates, uniform(value_key, (n, batch)) if features == "correlated" else gates)


def _strata(key: Array, shape: tuple[int, int]) -> Array:
    order_key, within_key = jax.random.split(key)
    order = jnp.argsort(jax.random.uniform(order_key, shape), axis=1)
    return (order + jax.random.uniform(within_key, shape)) / shape[1]


def sparse_features(
    draw: Draw, sparsity: Float[Array, ""] | float, features: str = "independent", set_size: int = 1
) -> Float[Array, "n batch"]:
    """Features: zero with probability S, else uniform on [0, 1].

    One uniform number u is gate and value at once: (u - S)/(1 - S) is uniform on [0, 1] given that u >= S.

        independent:     x_i = max(0, u_i - S) / (1 - S)
        correlated:      a set of features is active together (u of the set >= S), each with a value of its own
        anticorrelated:  the j-th feature of a set is active where u of the set lies in [j, j + 1) (1 - S): never two

    In all three a single feature has the same distribution.

    Args:
      draw: from `draw_uniforms` for the same n, features and set_size.
      sparsity: S in [0, 1); at least 1 - 1/set_size for anticorrelated features.
      features: `"independent"`, `"correlated"` or `"anticorrelated"`.
      set_size: features of a set; sets are of consecutive features.
    Returns:
      `(n, batch)` float32.
    Source: Elhage et al. 2022, sections "Demonstrating Superposition" and "Correlated Features"; there anticorrelated
      features are active in turn without a set's number of them being held to the same density.
    """
    density = 1 - sparsity
    if features == "independent":
        return jax.nn.relu(draw.gates - sparsity) / density
    if features == "correlated":
        return jnp.where(draw.gates >= sparsity, draw.values, 0.0)
    place = jnp.arange(draw.gates.shape[0])[:, None] % set_size
    value = draw.gates / density - place
    return jnp.where((value >= 0) & (value < 1), value, 0.0)
