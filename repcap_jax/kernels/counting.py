"""Exact counting on device: bin counts of a tile, and totals beyond 32 bits without x64."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer, UInt

CountingStrategy = Literal["auto", "scatter", "onehot"]

# Entries turned into one-hot rows at a time. float32 holds integers exactly up to 2^24, far above it.
_ONEHOT_CHUNK = 1 << 18


class Counter(NamedTuple):
    """An unsigned 64-bit total in two 32-bit limbs: `high * 2^32 + low`."""

    low: UInt[Array, "..."]
    high: UInt[Array, "..."]

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> Counter:
        return cls(jnp.zeros(shape, jnp.uint32), jnp.zeros(shape, jnp.uint32))

    def add(self, counts: Integer[Array, "..."]) -> Counter:
        """This total plus non-negative 32-bit `counts`, with the carry."""
        return self._carried(self.low + counts.astype(jnp.uint32))

    def count(self, index: Int[Array, "..."], strategy: CountingStrategy = "auto") -> Counter:
        """This total plus how often each of `0 .. bins-1` occurs in `index`, for a counter of shape `(bins,)`.

        Two exact strategies. `"scatter"` adds one to a bin per entry: about 2 ns an entry on a CPU, but on accelerators
        thousands of threads then wait for the same few hundred addresses. `"onehot"` writes the bin number as
        `high * L + low` and takes `counts[high, low] = sum_e onehot_high[e] onehot_low[e]`, a product for the matrix
        unit. `"auto"` picks by the platform the program is compiled for.

        Args:
          index: integers in `0 .. bins-1`, any shape, fewer than 2^31 entries.
          strategy: `"auto"`, `"scatter"` or `"onehot"`.
        """
        if strategy == "scatter":
            return self._scattered(index)
        if strategy == "onehot":
            return self.add(_count_by_onehot(index, self.low.shape[0]))
        return jax.lax.platform_dependent(
            index,
            cpu=lambda i: self.count(i, "scatter"),
            default=lambda i: self.count(i, "onehot"),
        )

    def merge(self, other: Counter) -> Counter:
        """The sum of two totals, with the carry."""
        summed = self.add(other.low)
        return Counter(summed.low, summed.high + other.high)

    def total(self) -> np.ndarray:
        """The totals as int64, on the host."""
        high, low = (np.asarray(limb).astype(np.int64) for limb in (self.high, self.low))
        return np.asarray((high << 32) + low)

    def _scattered(self, index: Int[Array, "..."]) -> Counter:
        # Straight into the total: a bin gains fewer than 2^31, so that it wrapped exactly if it is smaller now.
        return self._carried(self.low.at[index].add(jnp.uint32(1), mode="promise_in_bounds"))

    def _carried(self, low: UInt[Array, "..."]) -> Counter:
        return Counter(low, self.high + (low < self.low).astype(jnp.uint32))


def _count_by_onehot(index: Int[Array, "..."], bins: int) -> Int[Array, " bins"]:
    low_size = math.ceil(math.sqrt(bins))
    high_size = math.ceil(bins / low_size)
    flat = index.reshape(-1)
    chunk = min(_ONEHOT_CHUNK, flat.size)
    # A high part beyond the last one has an all-zero one-hot row, so that padding counts nowhere.
    flat = jnp.pad(flat, (0, -flat.size % chunk), constant_values=low_size * high_size)

    def add_chunk(counts: Array, part: Array) -> tuple[Array, None]:
        high = jax.nn.one_hot(part // low_size, high_size, dtype=jnp.bfloat16)
        low = jax.nn.one_hot(part % low_size, low_size, dtype=jnp.bfloat16)
        # Zeros and ones are exact in bfloat16, and their sums over a chunk are exact in the float32 accumulator.
        part_counts = jax.lax.dot_general(high, low, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return counts + part_counts.astype(jnp.int32), None

    counts, _ = jax.lax.scan(add_chunk, jnp.zeros((high_size, low_size), jnp.int32), flat.reshape(-1, chunk))
    return counts.reshape(-1)[:bins]
