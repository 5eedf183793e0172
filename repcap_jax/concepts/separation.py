"""How well a concept's own pairs stand out from random pairs of tokens: AUC and effect size, with intervals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Int64

from repcap_jax.concepts.directions import ConceptDirection
from repcap_jax.concepts.inner_product import InnerProduct, check_unembedding
from repcap_jax.kernels.precision import PRECISIONS
from repcap_jax.kernels.projection import project_rows

_BLOCK = 4096  # pairs whose differences are in memory at a time


class Interval(NamedTuple):
    """A number and its bootstrap interval."""

    value: float
    low: float
    high: float

    def to_record(self) -> dict[str, float]:
        """As valid JSON."""
        return self._asdict()


@dataclasses.dataclass(frozen=True)
class Separation:
    """A concept's left-out pairs against random pairs.

    Attributes:
      auc: chance that a left-out pair projects further on the concept than a random pair does (ties count half).
      effect: Cohen's d, the difference of means over the root of the mean of the two variances.
      auc_cosine, effect_cosine: the same for differences of length one.
      random_pairs: how many random pairs there were.
      counts, edges: histogram of the random pairs' projections, wide enough for the left-out ones.
    """

    auc: Interval
    effect: Interval
    auc_cosine: Interval
    effect_cosine: Interval
    random_pairs: int
    counts: np.ndarray
    edges: np.ndarray

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; the histogram is an array."""
        names = ("auc", "effect", "auc_cosine", "effect_cosine")
        return {name: getattr(self, name).to_record() for name in names} | {"random_pairs": self.random_pairs}


def sample_pairs(key: Array, rows: Any, count: int) -> Int64[np.ndarray, "count 2"]:
    """Draw `count` distinct pairs of different rows, all unordered pairs being equally likely, in random order.

    Memory is a few times `count`, whatever the number of rows: pairs are drawn, and drawn again where they repeat. All
    pairs are listed only where nearly all are wanted.

    Args:
      key: random key.
      rows: `(n,)` row numbers to draw from.
      count: how many pairs; at most all n (n - 1) / 2 are given.
    Returns:
      `(count, 2)` row numbers.
    Raises:
      ValueError: fewer than two rows, or count below 1.
    """
    rows = np.asarray(rows)
    n = len(rows)
    if n < 2 or count < 1:
        raise ValueError(f"expected at least two rows and one pair, got {n} rows and {count} pairs")
    rng = _generator(key)
    total = n * (n - 1) // 2
    if total <= 4 * count:
        i, j = np.triu_indices(n, 1)
        chosen = rng.permutation(total)[: min(count, total)]
        pairs = np.stack([i[chosen], j[chosen]], axis=1)
    else:
        codes = np.empty(0, np.int64)
        while len(codes) < count:
            first = rng.integers(n, size=2 * count)
            second = rng.integers(n - 1, size=2 * count)
            second += second >= first
            drawn = np.minimum(first, second) * n + np.maximum(first, second)
            codes = np.concatenate([codes, drawn])
            _, earliest = np.unique(codes, return_index=True)
            codes = codes[np.sort(earliest)]
        pairs = np.stack(np.divmod(codes[:count], n), axis=1)
    turned = rng.integers(2, size=len(pairs), dtype=bool)
    pairs[turned] = pairs[turned, ::-1]
    return rows[pairs].astype(np.int64)


def area_under_curve(positives: Any, negatives: Any) -> float:
    """Chance that a positive exceeds a negative, ties counting half.

    Args:
      positives: `(m,)`.
      negatives: `(n,)`.
    """
    return float(_placements(np.asarray(positives), np.sort(negatives)).mean())


def separations(
    unembedding: Any,
    directions: Sequence[ConceptDirection],
    product: InnerProduct,
    key: Array,
    *,
    random_pairs: int = 100_000,
    bootstraps: int = 2000,
    confidence: float = 0.95,
    precision: str | None = None,
) -> list[Separation]:
    """Compare the left-out pairs of each concept with random pairs of tokens, the same ones for all concepts.

    A random pair (i, j) projects by `<gamma_j - gamma_i, c>`, which is a difference of two projected rows, so that only
    `(n, concepts)` numbers are formed. Intervals are percentile bootstraps over the concept's pairs, the random pairs
    held fixed: there are so many that they add next to nothing.

    Args:
      unembedding: `(n, d)`, W_U.
      directions: of the concepts, under `product`.
      product: the inner product.
      key: random key.
      random_pairs: how many pairs to draw.
      bootstraps: resamples for each interval.
      confidence: level of the intervals.
      precision: matrix-product precision.
    Returns:
      One Separation for each concept.
    Raises:
      ValueError: an option is out of range.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), figures 2 and 8, which show the histograms.
    """
    x = check_unembedding(unembedding, product)
    if bootstraps < 1 or not 0 < confidence < 1:
        raise ValueError(f"expected bootstraps >= 1 and confidence within (0, 1), got {bootstraps} and {confidence}")
    if not directions:
        return []
    covectors = product.to_embedding(np.stack([concept.direction for concept in directions]))
    projected = project_rows(x, covectors, precision=precision)
    pair_key, boot_key = jax.random.split(key)
    rng = _generator(boot_key)
    pairs = sample_pairs(pair_key, np.flatnonzero(~np.isnan(projected[:, 0])), random_pairs)
    lengths = _lengths(x, pairs, product, precision)
    found = []
    for number, concept in enumerate(directions):
        random = projected[pairs[:, 1], number].astype(np.float64) - projected[pairs[:, 0], number]
        cosines = random[lengths > 0] / lengths[lengths > 0]
        draws = rng.integers(len(concept), size=(bootstraps, len(concept)))
        auc, effect = _compared(concept.left_out, random, draws, confidence)
        auc_cosine, effect_cosine = _compared(concept.left_out_cosines, cosines, draws, confidence)
        span = max(np.abs(random).max(), np.abs(concept.left_out).max()) * 1.001
        counts, edges = np.histogram(random, bins=120, range=(-span, span))
        found.append(Separation(auc, effect, auc_cosine, effect_cosine, len(pairs), counts, edges))
    return found


def _generator(key: Array) -> np.random.Generator:
    """A generator of NumPy seeded by a key: its bounded integers are 64-bit and exactly uniform, and no shape of a draw
    has to be compiled."""
    return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), jnp.uint32)).tolist())


def _placements(positives: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Share of the ordered negatives below each positive, those equal to it counting half."""
    below, upto = (np.searchsorted(ordered, positives, side) for side in ("left", "right"))
    return (below + upto) / (2 * len(ordered))


def _compared(
    own: Float64[np.ndarray, " m"], random: Float64[np.ndarray, " n"], draws: np.ndarray, confidence: float
) -> tuple[Interval, Interval]:
    """AUC and effect size with intervals."""
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    places = _placements(own, np.sort(random))
    mean, variance = random.mean(), random.var(ddof=1)

    def effects(samples: np.ndarray) -> np.ndarray:
        return (samples.mean(axis=-1) - mean) / np.sqrt((samples.var(axis=-1, ddof=1) + variance) / 2)

    auc = Interval(float(places.mean()), *np.quantile(places[draws].mean(axis=1), tails).tolist())
    return auc, Interval(float(effects(own[None])[0]), *np.quantile(effects(own[draws]), tails).tolist())


def _lengths(x: np.ndarray, pairs: np.ndarray, product: InnerProduct, precision: str | None) -> np.ndarray:
    """Length of each pair's difference under the inner product, a block of pairs at a time."""
    root = product.whiten(np.eye(product.d_model)).astype(np.float32)
    out = np.empty(len(pairs))
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        differences = np.zeros((min(_BLOCK, len(pairs)), x.shape[1]), np.float32)
        differences[: len(block)] = np.asarray(x[block[:, 1]], np.float32) - np.asarray(x[block[:, 0]], np.float32)
        out[start : start + len(block)] = _whitened_lengths(differences, root, precision or "highest")[: len(block)]
    return out


def _whitened_lengths(differences: np.ndarray, root: np.ndarray, precision: str) -> np.ndarray:
    return np.asarray(_whitened_norms(differences, root, PRECISIONS[precision]))


@functools.partial(jax.jit, static_argnums=2)
def _whitened_norms(differences: Array, root: Array, precision: jax.lax.Precision) -> Array:
    return jnp.linalg.norm(jnp.dot(differences, root, precision=precision), axis=1)
