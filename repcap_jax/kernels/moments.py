"""Exact mean and standard deviation of all pairwise cosines, in O(n d^2) and without forming a pair.

With unit rows u_i, their mean m = (1/n) sum_i u_i, centred rows y_i = u_i - m and a_i = y_i . m (which sum to zero),

    u_i . u_j = |m|^2 + t_ij,      t_ij = y_i . y_j + a_i + a_j.

Over all n^2 ordered pairs the t_ij sum to 0 and their squares to |Y^T Y|_F^2 + 2 n sum_i a_i^2, and the diagonal is
t_ii = 1 - |m|^2. Taking the diagonal away leaves the n (n - 1) pairs that are wanted:

    mean     = |m|^2 - (1 - |m|^2) / (n - 1)
    variance = (|Y^T Y|_F^2 + 2 n m^T (Y^T Y) m - n (1 - |m|^2)^2) / (n (n - 1)) - ((1 - |m|^2) / (n - 1))^2

Centring first is what keeps the variance exact when all cosines are close to one, where |U^T U|_F^2 - n^2 mu^2 would
cancel to nothing (and could come out negative).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from repcap_jax.kernels.counting import Counter
from repcap_jax.kernels.pairs import fold_pairs
from repcap_jax.kernels.placement import (
    AXIS,
    Placed,
    Slab,
    bucket,
    check_matrix,
    excluded_rows,
    place,
    ring_reduce,
    rows_mesh,
)
from repcap_jax.kernels.precision import PRECISIONS, resolve_precision, unit_rows
from repcap_jax.kernels.reducers import Extent, Tile

# Rows summed in float32 before the compensated sum takes over: few enough that rounding stays near 1e-7 of the part,
# many enough that the product runs at full speed.
_CHUNK = 2048
_SLAB_BYTES = 512 << 20


class CosineMoments(NamedTuple):
    """Mean and population standard deviation of the cosines of all pairs i < j.

    Attributes:
      mean: mu.
      std: sigma.
      n_pairs: number of pairs of usable rows.
      excluded_rows: row numbers left out because they are zero or not finite.
    """

    mean: float
    std: float
    n_pairs: int
    excluded_rows: np.ndarray


class _Sum(NamedTuple):
    """A float32 sum and the rounding it has lost so far; together about twice as many digits."""

    value: Array
    lost: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> _Sum:
        return cls(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))

    def add(self, term: Array) -> _Sum:
        total = self.value + term
        back = total - self.value
        return _Sum(total, self.lost + ((self.value - (total - back)) + (term - back)))

    def merge(self, other: _Sum) -> _Sum:
        joined = self.add(other.value)
        return _Sum(joined.value, joined.lost + other.lost)

    def total(self) -> np.ndarray:
        """The sum in float64, on the host."""
        total = np.asarray(self.value, np.float64)
        total += np.asarray(self.lost)
        return total


def cosine_moments(x: Any, *, mesh: Mesh | None = None, precision: str | None = None) -> CosineMoments:
    """Exact mean and population standard deviation of `<x_i, x_j> / (|x_i| |x_j|)` over all pairs i < j.

    The equations are at the head of this module. Cost is two passes over x and one d x d Gram matrix; memory on a
    device is two slabs of rows and a few d x d matrices, whatever n and the number of devices are. With fewer
    than 2 d rows the squared deviations of the pairs are summed instead, which is as fast and more exact.

    Rows are rounded to float32 units, which leaves an error of about 1e-9 in mu and sigma: far below 1e-6 of sigma
    unless all rows are nearly parallel (sigma < 1e-3).

    Args:
      x: `(n, d)` matrix of any real dtype, as for `fold_pairs`.
      mesh: devices to share the rows; `None` for the default device.
      precision: matrix-product precision, `"highest"` by default.
    Returns:
      CosineMoments.
    Raises:
      TypeError: if x is not a real-valued array.
      ValueError: if it is not a matrix, or fewer than two of its rows are usable.
    Source: the definition of mu and sigma is that of Guha 2026 (arXiv:2606.02765), section 2; the closed form is ours.
    """
    x = check_matrix(x)
    precision = resolve_precision(precision)
    mesh = rows_mesh(mesh)
    d = x.shape[1]

    sums, excluded, kept = _start((d,), mesh), [], None
    for slab, placed in _slabs(x, mesh):
        excluded.append(excluded_rows(placed, slab, mesh))
        sums = _add_rows(sums, placed, mesh=mesh)
        if slab.count == len(x):
            kept = [(slab, placed)]  # all rows are on the devices: the second pass need not copy them again
    left_out = np.concatenate(excluded)
    n = len(x) - len(left_out)
    if n < 2:
        raise ValueError(
            f"need at least two usable rows for a pair, got {n} of {len(x)} ({len(left_out)} are zero or not finite)"
        )
    mean_row = _fetch(sums, mesh) / n

    squared = float(mean_row @ mean_row)
    diagonal = 1.0 - squared
    mean = squared - diagonal / (n - 1)
    if n < 2 * d:
        # Few pairs for so large a Gram matrix, whose rounding would show: sum their squared deviations from mu instead.
        del kept, placed  # the fold places the rows itself
        variance = fold_pairs(x, [_Deviations(round(mean, 3))], mesh=mesh, precision=precision).results[0]
    else:
        gram = _start((d, d), mesh)
        centre = mean_row.astype(np.float32)
        for _, placed in kept or _slabs(x, mesh):
            gram = _add_gram(gram, placed, centre, mesh=mesh, precision=precision)
        # Rows were centred by the float32 mean. The exact one differs by `shift`, the Gram matrix by n shift shift^T.
        centred, shift = _fetch(gram, mesh), mean_row - centre
        frobenius = np.vdot(centred, centred) - 2 * n * (shift @ centred @ shift) + (n * (shift @ shift)) ** 2
        along = float(mean_row @ centred @ mean_row) - n * float(mean_row @ shift) ** 2
        all_squares = frobenius + 2 * n * along
        variance = (all_squares - n * diagonal**2) / (n * (n - 1)) - (diagonal / (n - 1)) ** 2
    return CosineMoments(mean, math.sqrt(max(float(variance), 0.0)), n * (n - 1) // 2, left_out)


@dataclasses.dataclass(frozen=True)
class _Deviations:
    """Reducer: variance of the cosines, from their first and second moments about a centre close to the mean.

    The centre is part of the compiled program, so it is given to three decimals: matrices share one, and what is left
    of the mean is too small to cancel.
    """

    centre: float

    def start(self, extent: Extent) -> tuple[Counter, _Sum, _Sum]:
        return Counter.zeros(), _Sum.zeros(()), _Sum.zeros(())

    def update(self, state: tuple[Counter, _Sum, _Sum], tile: Tile) -> tuple[Counter, _Sum, _Sum]:
        pairs, first, second = state
        deviations = jnp.where(tile.mask, tile.cosines - self.centre, 0.0)
        met = jnp.sum(jnp.sum(tile.mask, axis=1, dtype=jnp.int32))
        squares = jnp.sum(jnp.sum(deviations * deviations, axis=1))
        return pairs.add(met), first.add(jnp.sum(jnp.sum(deviations, axis=1))), second.add(squares)

    def merge(self, a: tuple[Counter, _Sum, _Sum], b: tuple[Counter, _Sum, _Sum]) -> tuple[Counter, _Sum, _Sum]:
        return a[0].merge(b[0]), a[1].merge(b[1]), a[2].merge(b[2])

    def finish(self, state: tuple[Counter, _Sum, _Sum], rows: int) -> float:
        pairs, first, second = (float(part.total()) for part in state)
        return second / pairs - (first / pairs) ** 2


def _slabs(x: np.ndarray, mesh: Mesh) -> Iterator[tuple[Slab, Placed]]:
    """The rows, a slab at a time on the mesh. Slabs have a size of few, so that a program serves many n."""
    size = max(1, _SLAB_BYTES // (x.shape[1] * 4) // _CHUNK) * _CHUNK
    size = min(size, bucket(-(-len(x) // (mesh.size * _CHUNK))) * _CHUNK)
    for start in range(0, len(x), size * mesh.size):
        count = min(size * mesh.size, len(x) - start)
        slab = Slab(start, count, -(-count // mesh.size))
        yield slab, place(x, slab, size, mesh)


def _on_shards(local: Any, mesh: Mesh, specs: tuple) -> Any:
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _start(shape: tuple[int, ...], mesh: Mesh) -> _Sum:
    return _on_shards(lambda: _Sum.zeros((1, *shape)), mesh, ())()


@functools.partial(jax.jit, static_argnames="mesh", donate_argnums=0)
def _add_rows(sums: _Sum, placed: Placed, *, mesh: Mesh) -> _Sum:
    def local(sums: _Sum, placed: Placed) -> _Sum:
        return _over_chunks(sums, placed, lambda rows, usable: jnp.sum(rows, axis=0)[None])

    return _on_shards(local, mesh, (P(AXIS), P(AXIS)))(sums, placed)


@functools.partial(jax.jit, static_argnames=("mesh", "precision"), donate_argnums=0)
def _add_gram(gram: _Sum, placed: Placed, centre: Array, *, mesh: Mesh, precision: str) -> _Sum:
    def local(gram: _Sum, placed: Placed, centre: Array) -> _Sum:
        def part(rows: Array, usable: Array) -> Array:
            centred = jnp.where(usable[:, None], rows - centre, 0.0)
            return jax.lax.dot_general(centred, centred, (((0,), (0,)), ((), ())), precision=PRECISIONS[precision])[
                None
            ]

        return _over_chunks(gram, placed, part)

    return _on_shards(local, mesh, (P(AXIS), P(AXIS), P()))(gram, placed, centre)


def _over_chunks(total: _Sum, placed: Placed, part: Any) -> _Sum:
    def add(i: Array, total: _Sum) -> _Sum:
        scales = jax.lax.dynamic_slice_in_dim(placed.scales, i * _CHUNK, _CHUNK)
        values = jax.lax.dynamic_slice_in_dim(placed.values, i * _CHUNK, _CHUNK)
        return total.add(part(unit_rows(values, scales), scales > 0))

    return jax.lax.fori_loop(0, placed.scales.shape[0] // _CHUNK, add, total)


@functools.partial(jax.jit, static_argnames="mesh")
def _joined(parts: _Sum, mesh: Mesh) -> _Sum:
    def local(parts: _Sum) -> _Sum:
        return ring_reduce(_Sum.merge, _Sum(parts.value[0], parts.lost[0]), mesh.size)

    return jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False)(parts)


def _fetch(parts: _Sum, mesh: Mesh) -> np.ndarray:
    """The devices' partial sums added up, in float64 on the host of every process."""
    return _joined(parts, mesh).total()
