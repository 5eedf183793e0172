"""The reducer that lists the pairs above a threshold."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from repcap_jax.kernels.counting import Counter
from repcap_jax.kernels.reducers import NO_ID, Extent, Tile

_HITS_AT_A_TIME = 8192  # enough that even a tile full of hits takes few rounds


class PairsResult(NamedTuple):
    """Pairs above a threshold, by falling cosine, then by `(i, j)`.

    Attributes:
      i, j: `(kept,)` int64 row numbers.
      cosines: `(kept,)` float32.
      total: how many pairs are above the threshold, kept or not.
    """

    i: np.ndarray
    j: np.ndarray
    cosines: np.ndarray
    total: int

    @property
    def truncated(self) -> bool:
        """Whether `cap` left pairs out; those left out have the smallest cosines."""
        return self.total > len(self.i)


class _Listed(NamedTuple):
    total: Counter
    negated: Float[Array, " cap"]  # minus the cosine, so that one rising sort orders all three keys
    i: Int[Array, " cap"]
    j: Int[Array, " cap"]


@dataclasses.dataclass(frozen=True)
class PairsAbove:
    """All pairs whose cosine is above `threshold`, at most the `cap` largest of them, and how many there are in all.

    Args:
      threshold: pairs with `cosine > threshold` are taken, in [-1, 1).
      cap: most pairs kept, 1 to 16,777,216.
    Raises:
      ValueError: for a threshold or cap outside those ranges.
    """

    threshold: float
    cap: int = 65536

    def __post_init__(self) -> None:
        if not -1.0 <= self.threshold < 1.0:
            raise ValueError(f"threshold must be a cosine in [-1, 1), got {self.threshold!r}")
        if isinstance(self.cap, bool) or not isinstance(self.cap, int | np.integer) or not 1 <= self.cap <= 1 << 24:
            raise ValueError(f"cap must be a whole number from 1 to 16,777,216, got {self.cap!r}")
        object.__setattr__(self, "threshold", float(self.threshold))
        object.__setattr__(self, "cap", int(self.cap))

    def start(self, extent: Extent) -> _Listed:
        ids = jnp.full((self.cap,), NO_ID, jnp.int32)
        return _Listed(Counter.zeros(), jnp.full((self.cap,), jnp.inf, jnp.float32), ids, ids)

    def update(self, state: _Listed, tile: Tile) -> _Listed:
        above = tile.mask & (tile.cosines > self.threshold)
        found = jnp.sum(jnp.sum(above, axis=1, dtype=jnp.int32))
        state = state._replace(total=state.total.add(found))
        return jax.lax.cond(found > 0, lambda s: self._take(s, tile, above), lambda s: s, state)

    def _take(self, state: _Listed, tile: Tile, above: Array) -> _Listed:
        """Move the tile's hits into the list, a chunk at a time in flat order, as long as one could still enter it."""
        i, j = (ids.reshape(-1) for ids in tile.pair_ids())
        negated = -tile.cosines.reshape(-1)
        size = negated.shape[0]
        chunk = min(max(_HITS_AT_A_TIME, self.cap // 4), size)

        def entering(left: Array, state: _Listed) -> Array:
            last = state.negated[-1], state.i[-1], state.j[-1]
            earlier = (i < last[1]) | ((i == last[1]) & (j < last[2]))
            return left & ((negated < last[0]) | ((negated == last[0]) & earlier))

        def step(carry: tuple[Array, _Listed]) -> tuple[Array, _Listed]:
            left, state = carry
            (where,) = jnp.nonzero(left, size=chunk, fill_value=size)
            picked = _Listed(
                state.total,
                negated.at[where].get(mode="fill", fill_value=jnp.inf),
                i.at[where].get(mode="fill", fill_value=NO_ID),
                j.at[where].get(mode="fill", fill_value=NO_ID),
            )
            state = self._best(state, picked)
            return entering(left.at[where].set(False, mode="drop"), state), state

        left = entering(above.reshape(-1), state)
        _, state = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), step, (left, state))
        return state

    def _best(self, a: _Listed, b: _Listed) -> _Listed:
        joined = [jnp.concatenate(both) for both in zip(a[1:], b[1:])]
        return _Listed(a.total, *(key[: self.cap] for key in jax.lax.sort(joined, num_keys=3)))

    def merge(self, a: _Listed, b: _Listed) -> _Listed:
        return self._best(a, b)._replace(total=a.total.merge(b.total))

    def finish(self, state: _Listed, rows: int) -> PairsResult:
        total = int(state.total.total())
        kept = min(total, self.cap)
        i, j = (np.asarray(ids)[:kept].astype(np.int64) for ids in (state.i, state.j))
        return PairsResult(i, j, -np.asarray(state.negated)[:kept], total)
