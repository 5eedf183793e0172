"""The smooth maximum of all pairwise cosines, and its gradient, folded over tiles.

With G_ij = v_i . v_j over the pairs i < j of unit rows,

    lines:  f(V) = (1/2b) ln sum exp(b G_ij^2)      close to max G^2 / 2,   df/dV = (G * E) V / sum E
    codes:  f(V) = (1/b)  ln sum exp(b G_ij)        close to max G,         df/dV = E V / sum E

where E = exp(b G^2) or exp(b G), symmetric with a zero diagonal, and sum E runs over the pairs. The k x k matrix never
exists: tiles on or above the diagonal are visited once, and each adds to the gradient of its rows and of its columns.

The exponentials are safe for every b, without a second pass and without knowing the maximum beforehand: E is formed
relative to the tile's own maximum, and each block of the gradient keeps the exponent it is relative to, as in online
softmax. `b` is a constant of the objective; the optimiser ties it to the maximum of the step before.

On a mesh the vectors are replicated (k d numbers are little beside k^2 d work) and the tiles are dealt over the devices
in turn; the devices' sums are brought to one exponent and added.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from repcap_jax.kernels.placement import AXIS
from repcap_jax.kernels.precision import PRECISIONS

Objective = Literal["lines", "codes"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
PRODUCT_DTYPES = ("float32", "bfloat16")


class SmoothMaximum(NamedTuple):
    """Value f of the smooth maximum, and the hard maximum it stands for: of |cos| (lines) or of cos (codes)."""

    value: Float[Array, ""]
    largest: Float[Array, ""]


class Tiling(NamedTuple):
    """How the pairs are cut: `tile` rows a block, tiles dealt over `mesh`; products of `dtype`, summed in float32."""

    tile: int
    mesh: Mesh
    dtype: str = "float32"


def choose_tile(k: int, mesh: Mesh) -> int:
    """Rows of a block for k vectors: equal blocks of at most 512 rows on a CPU (its cache), 2,048 elsewhere."""
    largest = 512 if mesh.devices.flat[0].platform == "cpu" else 2048
    blocks = math.ceil(k / largest)
    if blocks > 1:  # at least two tiles a device, so that dealing them out leaves none idle for long
        blocks = max(blocks, 2 * math.isqrt(mesh.size))
    return math.ceil(k / blocks / 8) * 8


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def smooth_maximum(
    vectors: Float[Array, "k d"], b: Float[Array, ""] | float, objective: str, tiling: Tiling
) -> SmoothMaximum:
    """The smooth maximum of the cosines of all pairs of rows.

    The equations are at the head of this module. Differentiable in `vectors` through `value`; `b` is held constant and
    `largest` carries no gradient.

    Args:
      vectors: `(k, d)` float32 rows, taken to be of unit length.
      b: sharpness, > 0.
      objective: `"lines"` or `"codes"`.
      tiling: tile size, devices and dtype of the products.
    Returns:
      SmoothMaximum.
    """
    return _evaluate(vectors, b, objective, tiling, with_gradient=False)[0]


def _forward(vectors: Array, b: Any, objective: str, tiling: Tiling) -> tuple[SmoothMaximum, tuple]:
    # Value and gradient share every tile, so the gradient is formed here and only scaled on the way back.
    result, gradient = _evaluate(vectors, b, objective, tiling, with_gradient=True)
    return result, (gradient, jnp.zeros_like(b))


def _backward(objective: str, tiling: Tiling, saved: tuple, cotangent: SmoothMaximum) -> tuple:
    gradient, zero = saved
    return cotangent.value * gradient, zero


smooth_maximum.defvjp(_forward, _backward)


class _Blocks(NamedTuple):
    """The vectors in blocks, and the same transposed: three plain products a tile, none of a transposed matrix."""

    rows: Float[Array, "blocks tile d"]
    columns: Float[Array, "blocks d tile"]


class _Scaled(NamedTuple):
    """A sum of large exponentials: entry i stands for exp(exponents[i]) * values[i]."""

    values: Float[Array, "n ..."]
    exponents: Float[Array, " n"]

    def add(self, i: Any, term: Array, exponent: Array) -> _Scaled:
        """This sum plus exp(exponent) * term at entry i."""
        old = self.exponents[i]
        new = jnp.maximum(old, exponent)
        value = self.values[i] * jnp.exp(old - new) + term * jnp.exp(exponent - new)
        return _Scaled(
            jax.lax.dynamic_update_index_in_dim(self.values, value, i, 0),
            jax.lax.dynamic_update_index_in_dim(self.exponents, new, i, 0),
        )

    def relative_to(self, exponent: Array) -> Array:
        """The values, all relative to one exponent."""
        factors = jnp.exp(self.exponents - exponent)
        return self.values * factors.reshape((-1,) + (1,) * (self.values.ndim - 1))


class _Sums(NamedTuple):
    """What is summed over tiles; the last two have no entries when no gradient is asked for."""

    total: _Scaled
    largest: Float[Array, ""]  # of the scores G^2 or G
    by_rows: _Scaled
    by_columns: _Scaled


def _evaluate(
    vectors: Array, b: Any, objective: str, tiling: Tiling, with_gradient: bool
) -> tuple[SmoothMaximum, Array]:
    k, d = vectors.shape
    count = -(-k // tiling.tile)
    rows = jnp.pad(vectors, ((0, count * tiling.tile - k), (0, 0))).reshape(count, tiling.tile, d)
    local = functools.partial(_fold, objective=objective, k=k, dtype=tiling.dtype, with_gradient=with_gradient)
    on_mesh = jax.shard_map(local, mesh=tiling.mesh, in_specs=(P(), P(), P(AXIS)), out_specs=P(), check_vma=False)
    b = jnp.asarray(b, jnp.float32)
    total, exponent, largest, gradient = on_mesh(rows, b, _tile_list(count, tiling.mesh.size))
    lines = objective == "lines"
    value = (exponent + jnp.log(total)) / (2.0 * b if lines else b)
    return SmoothMaximum(value, jnp.sqrt(largest) if lines else largest), gradient[:k]


def _tile_list(blocks: int, devices: int) -> Int[np.ndarray, "tiles 2"]:
    """Block numbers (i <= j) of all tiles, device by device; filled up with (-1, -1), which is no tile."""
    tiles = np.stack(np.triu_indices(blocks), axis=1).astype(np.int32)
    each = -(-len(tiles) // devices)
    padded = np.full((each * devices, 2), -1, np.int32)
    padded[: len(tiles)] = tiles
    return padded.reshape(each, devices, 2).swapaxes(0, 1).reshape(-1, 2)


def _fold(
    rows: Array, b: Array, tiles: Array, *, objective: str, k: int, dtype: str, with_gradient: bool
) -> tuple[Array, Array, Array, Array]:
    """One device's tiles, joined with those of the others: sum of E, its exponent, largest score, gradient."""
    count, tile, d = rows.shape
    cast = rows.astype(dtype)
    blocks = _Blocks(cast, cast.swapaxes(1, 2))
    lowest = jnp.float32(0.0 if objective == "lines" else -1.0)  # no score lies below
    kept = count if with_gradient else 0
    exponents = jnp.full(kept, lowest * b)
    sums = _Sums(
        _Scaled(jnp.zeros(1), jnp.full(1, lowest * b)),
        lowest,
        _Scaled(jnp.zeros((kept, tile, d)), exponents),
        _Scaled(jnp.zeros((kept, d, tile)), exponents),
    )

    def add(n: Array, sums: _Sums) -> _Sums:
        return _add_tile(sums, blocks, b, tiles[n], objective=objective, k=k)

    sums = jax.lax.fori_loop(0, len(tiles), add, sums)
    exponent = jax.lax.pmax(sums.total.exponents[0], AXIS)
    total = jax.lax.psum(sums.total.relative_to(exponent)[0], AXIS)
    largest = jax.lax.pmax(sums.largest, AXIS)
    gradient = sums.by_rows.relative_to(exponent) + sums.by_columns.relative_to(exponent).swapaxes(1, 2)
    return total, exponent, largest, jax.lax.psum(gradient / total, AXIS).reshape(-1, d)


def _add_tile(sums: _Sums, blocks: _Blocks, b: Array, where: Array, *, objective: str, k: int) -> _Sums:
    tile = blocks.rows.shape[1]
    i, j = jnp.maximum(where[0], 0), jnp.maximum(where[1], 0)
    row = i * tile + jax.lax.broadcasted_iota(jnp.int32, (tile, tile), 0)
    column = j * tile + jax.lax.broadcasted_iota(jnp.int32, (tile, tile), 1)
    mask = (row < column) & (column < jnp.where(where[0] < 0, 0, k))

    lines = objective == "lines"
    cosines = _matmul(blocks.rows[i], blocks.columns[j])
    scores = cosines * cosines if lines else cosines
    # Two reductions, one axis at a time, are what XLA vectorises on CPUs.
    largest = jnp.max(jnp.max(jnp.where(mask, scores, 0.0 if lines else -1.0), axis=1))
    weights = jnp.where(mask, jnp.exp(b * (scores - largest)), 0.0)
    total = sums.total.add(0, jnp.sum(jnp.sum(weights, axis=1)), b * largest)
    sums = sums._replace(total=total, largest=jnp.maximum(sums.largest, largest))
    if len(sums.by_rows.values) == 0:
        return sums
    weights = (weights * cosines if lines else weights).astype(blocks.rows.dtype)
    by_rows = sums.by_rows.add(i, _matmul(weights, blocks.rows[j]), b * largest)
    by_columns = sums.by_columns.add(j, _matmul(blocks.columns[i], weights), b * largest)
    return sums._replace(by_rows=by_rows, by_columns=by_columns)


def _matmul(a: Array, b: Array) -> Array:
    precision = PRECISIONS["highest"] if a.dtype == jnp.float32 else None
    return jnp.matmul(a, b, precision=precision, preferred_element_type=jnp.float32)
