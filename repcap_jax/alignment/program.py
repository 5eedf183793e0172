"""The device program of the score: centre, remove, project and rank all pairs, for the readout and every null.

Subspace number 0 is the readout's, the others are the nulls. They are taken one after another, so that memory is a few
vectors of pairs however many there are. Each is projected once for all numbers of removed directions, and the Gram
matrix of a narrower subspace is the beginning of that of a wider one.

The cosines of the pairs i < j are folded into a rectangle without a hole: row i of the upper triangle, which has
n - 1 - i entries, shares a row with the i entries of row n - 1 - i. Distances 1 - cos have the reverse ranks on both
sides, so that rho is that of the cosines.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from repcap_jax.kernels.grassmann import haar_frame
from repcap_jax.kernels.placement import AXIS
from repcap_jax.kernels.precision import PRECISIONS
from repcap_jax.kernels.ranks import Products, Ranked, rank, rank_products
from repcap_jax.kernels.spectra import principal_directions


class Plan(NamedTuple):
    """What a program is compiled for.

    Attributes:
      ks: subspace dimensions, rising.
      most: the largest number of principal directions that is removed.
      remove_after: on the projected side, remove the directions of the projected states instead.
      method: of the ranks, `"sort"` or `"binned"`.
      repeats: whether some states are equal, so that their pairs must tie exactly.
      mesh: devices that share the subspaces.
    """

    ks: tuple[int, ...]
    most: int
    remove_after: bool
    method: str
    repeats: bool
    mesh: Mesh


class Sides(NamedTuple):
    """Partial sums of every correlation, and how close any state came to having no direction.

    Attributes:
      squares: `(m, s)` of the full side.
      products: `(subspaces, m, k, s)` of the projected side.
      full_share: `(m,)` least |x| after removal over |x| before.
      projected_share: `(subspaces, m, k)` least |x projected| over |x|.
    """

    squares: Float[Array, "m s"]
    products: Products
    full_share: Float[Array, " m"]
    projected_share: Float[Array, "subspaces m k"]


class _Layer(NamedTuple):
    """What all subspaces of a layer share."""

    centred: Float[Array, "n d"]
    lengths: Float[Array, " n"]
    directions: Float[Array, "d most"]
    coordinates: Float[Array, "n most"]
    masks: Float[Array, "m most"]  # ones for the directions that are removed
    first_equal: Int[Array, " n"]
    full: Ranked  # for each m


class _Gram(NamedTuple):
    """Inner products of all pairs i < j: of the first half of the rows with all, and of the last half with itself."""

    upper: Float[Array, "half n"]
    lower: Float[Array, "half half"]
    squares: Float[Array, " n"]

    @classmethod
    def of(cls, rows: Float[Array, "n c"]) -> _Gram:
        half = (len(rows) + 1) // 2
        head, tail = rows[:half], rows[::-1][:half]
        return cls(_product(head, rows.T), _product(tail, tail.T), jnp.sum(rows * rows, axis=1))

    def add(self, rows: Float[Array, "n c"]) -> _Gram:
        """The Gram matrix with more columns."""
        return jax.tree.map(jnp.add, self, _Gram.of(rows))


@functools.partial(jax.jit, static_argnames="plan")
def correlate(
    hidden: Array, first_equal: Array, readout: Array, nulls: Array, order: Array, ms: Array, *, plan: Plan
) -> Sides:
    """All correlations of one layer.

    Args:
      hidden: `(n, d)` float32 states.
      first_equal: `(n,)` int32, for each state the number of the first one that equals it.
      readout: `(d, ks[-1])` float32; its first k columns span the readout subspace of dimension k.
      nulls: `(nulls, d, ks[-1])` frames, or `(nulls,)` keys from which each frame is drawn where it is needed.
      order: `(subspaces,)` int32, 0 for the readout and i + 1 for null i; a multiple of the devices long.
      ms: `(m,)` int32 numbers of principal directions removed, at most `plan.most`.
      plan: see `Plan`.
    """
    layer, full_share = _full_side(hidden, first_equal, ms, plan)

    def local(order: Array, layer: _Layer, readout: Array, nulls: Array) -> tuple[Products, Array]:
        def one(number: Array) -> tuple[Products, Array]:
            return _projected_side(_frame(number, readout, nulls), layer, plan)

        return lax.map(one, order)

    shared = jax.shard_map(local, mesh=plan.mesh, in_specs=(P(AXIS), P(), P(), P()), out_specs=P(AXIS), check_vma=False)
    products, projected_share = shared(order, layer, readout, nulls)
    return Sides(layer.full.squares, products, full_share, projected_share)


def _full_side(hidden: Array, first_equal: Array, ms: Array, plan: Plan) -> tuple[_Layer, Array]:
    centred = hidden - jnp.mean(hidden, axis=0)
    centred = centred - jnp.mean(centred, axis=0)  # what the first mean, in float32, has missed
    centred = centred / jnp.max(jnp.abs(centred))  # cosines are free of scale, squares in float32 are not
    lengths = jnp.sqrt(jnp.sum(centred * centred, axis=1))
    directions = principal_directions(centred, plan.most)
    coordinates = _product(centred, directions)
    masks = (jnp.arange(plan.most) < ms[:, None]).astype(jnp.float32)

    def ranked(mask: Array) -> tuple[Ranked, Array]:
        kept = centred - _product(coordinates * mask, directions.T)
        gram = _Gram.of(_tied(kept, first_equal, plan))
        return rank(_fold(gram, first_equal, plan)), _least_share(gram, lengths)

    full, share = lax.map(ranked, masks)
    return _Layer(centred, lengths, directions, coordinates, masks, first_equal, full), share


def _projected_side(frame: Array, layer: _Layer, plan: Plan) -> tuple[Products, Array]:
    """The products of one subspace for each m and k, and the least share of its length that any state kept."""
    projected = _product(layer.centred, frame)
    # (X - X V V^T) F = X F - (X V)(V^T F)
    through = _product(layer.directions.T, frame)

    def for_m(given: tuple[Array, Ranked]) -> tuple[Products, Array]:
        mask, full = given
        kept = projected if plan.remove_after else projected - _product(layer.coordinates * mask, through)
        narrower, found = 0, []
        for k in plan.ks:
            if plan.remove_after:
                gram = _Gram.of(_tied(_without_own(kept[:, :k], mask), layer.first_equal, plan))
            else:
                columns = _tied(kept[:, narrower:k], layer.first_equal, plan)
                gram = gram.add(columns) if narrower else _Gram.of(columns)
            products = rank_products(_fold(gram, layer.first_equal, plan), full, method=plan.method)
            found.append((products, _least_share(gram, layer.lengths)))
            narrower = k
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

    return lax.map(for_m, (layer.masks, layer.full))


def _frame(number: Array, readout: Array, nulls: Array) -> Array:
    def null() -> Array:
        chosen = nulls[jnp.maximum(number - 1, 0)]
        return haar_frame(chosen, *readout.shape) if jnp.issubdtype(nulls.dtype, jax.dtypes.prng_key) else chosen

    return lax.cond(number == 0, lambda: readout, null)


def _without_own(rows: Array, mask: Array) -> Array:
    """Rows less their own principal directions."""
    own = principal_directions(rows, mask.shape[0])
    return rows - _product(_product(rows, own) * mask, own.T)


def _tied(rows: Array, first_equal: Array, plan: Plan) -> Array:
    """The rows of equal states made equal to the last bit, which products of matrices do not promise."""
    return rows[first_equal] if plan.repeats else rows


def _fold(gram: _Gram, first_equal: Array, plan: Plan) -> Float[Array, " pairs"]:
    """The cosines of all n (n - 1) / 2 pairs in one vector."""
    half, n = gram.upper.shape
    inverse = jnp.where(gram.squares > 0, lax.rsqrt(gram.squares), 0.0)
    back = inverse[::-1][:half]
    upper = gram.upper * inverse[:half, None] * inverse
    lower = gram.lower * back[:, None] * back
    if plan.repeats:  # a state and its equal are at distance 0, and no pair is nearer
        equal_back = first_equal[::-1][:half]
        upper = jnp.where(first_equal[:half, None] == first_equal, 1.0, jnp.minimum(upper, 1.0))
        lower = jnp.where(equal_back[:, None] == equal_back, 1.0, jnp.minimum(lower, 1.0))
    i, j = (lax.broadcasted_iota(jnp.int32, (half, half - 1), axis) for axis in (0, 1))
    # Entry j of row i is pair (i, j + 1) from i on, and before it pair (n - 1 - i, n - 1 - j).
    shared = jnp.where(j >= i, upper[:, 1:half], lower[:, : half - 1])
    # Of an odd number of rows the middle one, which comes last, shares with itself: its second half is its first.
    alone = upper[: n - half, half:]
    pairs = jnp.concatenate([shared.reshape(-1), alone.reshape(-1)])
    # Behind the barrier the pairs are read several times: without it they would be computed as often.
    return lax.optimization_barrier(pairs)


def _least_share(gram: _Gram, lengths: Array) -> Array:
    return jnp.min(jnp.sqrt(gram.squares) / lengths)


def _product(a: Array, b: Array) -> Array:
    return lax.dot(a, b, precision=PRECISIONS["highest"])
