"""Where a descent starts: random vectors, an explicit construction, or vectors that the caller has."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from repcap_jax.capacity import Construction, best_construction
from repcap_jax.packing.optimiser import unit

# Enough to leave a subspace or a saddle that a construction lies in, little beside the first steps.
_NUDGE = 1e-3


class Start(NamedTuple):
    """What to start from: `vectors` is None for random starts; `warm` vectors are to be refined, not annealed anew."""

    name: str
    vectors: np.ndarray | None
    warm: bool


def resolve_init(init: Any, k: int, d: int) -> Start:
    """Check `init` and look up its vectors.

    Args:
      init: `"random"`; `"construction"`, the best of the catalogue; a `Construction`, of which the first k lines are
        taken, padded with zeros to d coordinates; or `(k, d)` vectors of any non-zero length.
      k, d: number of vectors and dimension.
    Returns:
      Start; its vectors are float64 unit rows.
    Raises:
      TypeError, ValueError: for anything else, or vectors that do not fit.
    """
    if isinstance(init, str):
        if init == "random":
            return Start("random", None, False)
        if init != "construction":
            raise ValueError(
                f"init must be 'random', 'construction', a Construction or an array of ({k}, {d}), got {init!r}"
            )
        found = best_construction(k, d)
        if found is None:
            raise ValueError(f"the catalogue has no construction of {k} lines in R^{d}; use init='random'")
        return resolve_init(found, k, d)
    if isinstance(init, Construction):
        if init.native_k < k or init.native_d > d:
            raise ValueError(
                f"{init.name} has {init.native_k} lines in R^{init.native_d}: it cannot start {k} vectors in R^{d}"
            )
        lines = dataclasses.replace(init, k=k, d=d)
        return Start(init.name, lines.rows(np.arange(k)), True)
    return Start("vectors", _checked_vectors(init, k, d), True)


def _checked_vectors(init: Any, k: int, d: int) -> np.ndarray:
    try:
        vectors = np.asarray(init).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"init must be 'random', 'construction', a Construction or an array of ({k}, {d}), "
            f"got {type(init).__name__}"
        ) from error
    if vectors.shape != (k, d):
        raise ValueError(f"init must hold one vector a row, shape ({k}, {d}), got {vectors.shape}")
    norms = np.linalg.norm(vectors, axis=1)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise ValueError(
            f"init has {len(bad)} rows without a direction (zero, NaN or infinite), the first is row {bad[0]}; "
            "remove or replace them"
        )
    return vectors / norms[:, None]


def starting_vectors(key: Array, start: Start, starts: int, k: int, d: int) -> Float[Array, "starts k d"]:
    """Unit rows to start from, float32. A construction is nudged, because its zero coordinates would stay zero."""
    noise = jax.random.normal(key, (starts, k, d), jnp.float32)
    if start.vectors is None:
        return unit(noise)
    given = jnp.asarray(start.vectors, jnp.float32)[None]
    return unit(given if start.name == "vectors" else given + _NUDGE / np.sqrt(d) * noise)
