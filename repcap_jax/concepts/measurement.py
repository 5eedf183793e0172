"""Concepts in contexts: reading them off hidden states, changing them, and comparing their two representations.

Hidden states here are what the unembedding reads: the last layer's output after the final norm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from repcap_jax.concepts.directions import ConceptDirection
from repcap_jax.concepts.inner_product import InnerProduct, check_unembedding
from repcap_jax.concepts.pairs import TokenPairs
from repcap_jax.concepts.separation import area_under_curve


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How far contexts that call for one word or the other lie apart along each concept.

    Attributes:
      contexts: name of the concept in which the contexts differ.
      concepts: names of the directions they were projected on.
      before, after: `(m, c)` projections of the contexts of either side.
    """

    contexts: str
    concepts: tuple[str, ...]
    before: Float64[np.ndarray, "m c"]
    after: Float64[np.ndarray, "m c"]

    def auc(self) -> Float64[np.ndarray, " c"]:
        """For each direction the chance that a context of the second kind projects further than one of the first."""
        return np.array([area_under_curve(a, b) for a, b in zip(self.after.T, self.before.T)])

    def effect(self) -> Float64[np.ndarray, " c"]:
        """Mean difference of paired contexts over its standard deviation, for each direction."""
        difference = self.after - self.before
        spread = difference.std(axis=0, ddof=1)
        return difference.mean(axis=0) / np.where(spread > 0, spread, np.inf)

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return {
            "contexts": self.contexts,
            "n": len(self.before),
            "concepts": list(self.concepts),
            "auc": self.auc().tolist(),
            "effect": self.effect().tolist(),
        }


@dataclasses.dataclass(frozen=True)
class Isomorphism:
    """The embedding representation of a concept, from contexts, carried to the unembedding space.

    Attributes:
      contexts: name of the concept.
      concepts: names of the unembedding representations it was compared with.
      causal: `(c,)` cosines of Cov(gamma) e with them under the causal inner product.
      euclidean: `(c,)` Euclidean cosines of e itself with them.
    """

    contexts: str
    concepts: tuple[str, ...]
    causal: Float64[np.ndarray, " c"]
    euclidean: Float64[np.ndarray, " c"]

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        names = {"contexts": self.contexts, "concepts": list(self.concepts)}
        return names | {"causal": self.causal.tolist(), "euclidean": self.euclidean.tolist()}


@dataclasses.dataclass(frozen=True)
class Intervention:
    """What adding a concept's embedding representation does to the log-odds of word pairs.

    Attributes:
      concept: the one that was added.
      alphas: `(a,)` how much of it, rising.
      measured: names of the concepts whose word pairs were looked at.
      mean, low, high: `(a, c)` mean, 5 % and 95 % quantile over contexts and pairs of the change of
        log P(after) / P(before).
    """

    concept: str
    alphas: Float64[np.ndarray, " a"]
    measured: tuple[str, ...]
    mean: Float64[np.ndarray, "a c"]
    low: Float64[np.ndarray, "a c"]
    high: Float64[np.ndarray, "a c"]

    def on_target(self) -> float | None:
        """Mean change at the largest alpha of the concept's own pairs; None where they were not measured."""
        return float(self.mean[-1, self.measured.index(self.concept)]) if self.concept in self.measured else None

    def off_target(self) -> float | None:
        """Mean absolute change at the largest alpha of the other concepts' mean log-odds; None where there are none."""
        others = [number for number, name in enumerate(self.measured) if name != self.concept]
        return float(np.abs(self.mean[-1, others]).mean()) if others else None

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("alphas", "mean", "low", "high")}
        names = {"concept": self.concept, "measured": list(self.measured)}
        return names | arrays | {"on_target": self.on_target(), "off_target": self.off_target()}


def measure(before: Any, after: Any, directions: Sequence[ConceptDirection], contexts: str = "") -> Measurement:
    """Project hidden states of paired contexts on concept directions: `lambda^T c`.

    Args:
      before, after: `(m, d)` hidden states after the final norm, of contexts that call for the first or second word.
      directions: unembedding representations.
      contexts: name of the concept in which the contexts differ.
    Returns:
      Measurement.
    Raises:
      ValueError: the states are no two finite matrices of one shape and of the directions' width.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), Theorem 2.3 and section 4.
    """
    states = _paired_states(before, after, directions)
    vectors = np.stack([concept.direction for concept in directions])
    return Measurement(contexts, tuple(c.name for c in directions), *(side @ vectors.T for side in states))


def isomorphism(
    before: Any, after: Any, directions: Sequence[ConceptDirection], product: InnerProduct, contexts: str = ""
) -> Isomorphism:
    """Carry the mean difference of paired contexts to the unembedding space and compare it with concept directions.

        e = mean_i (lambda(after_i) - lambda(before_i)),     cos_C(Cov(gamma) e, c)

    Args:
      before, after: `(m, d)`, as in `measure`.
      directions: unembedding representations under `product`.
      product: the causal inner product.
      contexts: name of the concept in which the contexts differ.
    Returns:
      Isomorphism.
    Raises:
      ValueError: as `measure`; or the two kinds of contexts have one mean.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), Theorem 3.2: Cov(gamma) maps one representation to the other.
    """
    first, second = _paired_states(before, after, directions)
    difference = (second - first).mean(axis=0)
    if not np.linalg.norm(difference) > 0:
        raise ValueError(f"{contexts or 'the contexts'}: both kinds have the same mean state, so there is no direction")
    carried = product.whiten(product.to_unembedding(difference))
    vectors = np.stack([concept.direction for concept in directions])
    causal = np.stack([concept.whitened for concept in directions]) @ carried / np.linalg.norm(carried)
    euclidean = vectors @ difference / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(difference))
    return Isomorphism(contexts, tuple(concept.name for concept in directions), causal, euclidean)


def log_odds(states: Any, unembedding: Any, pairs: Any) -> Float64[np.ndarray, "n m"]:
    """`log P(after) / P(before) = lambda^T (gamma_after - gamma_before)` of each state for each pair of tokens.

    The normaliser of the softmax cancels, and so do biases in a change. Caps and scales of logits are not applied.

    Args:
      states: `(n, d)` hidden states after the final norm.
      unembedding: `(v, d)`.
      pairs: `(m, 2)` token ids.
    """
    x, pairs = np.asarray(unembedding), np.asarray(pairs)
    differences = x[pairs[:, 1]].astype(np.float64) - x[pairs[:, 0]]
    return np.asarray(states, np.float64) @ differences.T


def intervene(states: Any, direction: ConceptDirection, product: InnerProduct, alpha: float) -> np.ndarray:
    """`lambda + alpha Cov(gamma)^-1 c`: hidden states with some of a concept's embedding representation added.

    Args:
      states: `(n, d)` hidden states after the final norm.
      direction: the concept's unembedding representation under `product`.
      product: the causal inner product.
      alpha: how much; at 1 the log-odds of a pair change by its difference's projection on the concept.
    Returns:
      `(n, d)` float64.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), equation (4.2).
    """
    return np.asarray(states, np.float64) + alpha * product.to_embedding(direction.direction)


def intervention(
    states: Any,
    unembedding: Any,
    direction: ConceptDirection,
    concepts: Mapping[str, TokenPairs],
    product: InnerProduct,
    alphas: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
) -> Intervention:
    """Add a concept to hidden states and report how the log-odds of its own and of other concepts' pairs change.

    Args:
      states: `(n, d)` hidden states after the final norm.
      unembedding: `(v, d)`, W_U.
      direction: the concept to add.
      concepts: by name, the token pairs to measure.
      product: the causal inner product.
      alphas: how much to add; they are put in rising order.
    Returns:
      Intervention.
    Raises:
      ValueError: states, unembedding and inner product do not fit each other, or nothing is to be measured.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), section 4, figure 6.
    """
    x = check_unembedding(unembedding, product)
    states = np.asarray(states, np.float64)
    if states.ndim != 2 or states.shape[1] != product.d_model or not len(states) or not np.isfinite(states).all():
        raise ValueError(f"expected finite hidden states (n, {product.d_model}), got shape {states.shape}")
    alphas = np.unique(np.asarray(alphas, np.float64))
    if not np.isfinite(alphas).all():
        raise ValueError(f"alphas must be finite, got {alphas.tolist()}")
    if not concepts or not len(alphas):
        raise ValueError("an intervention needs concepts to measure and at least one alpha")
    summary = np.empty((3, len(alphas), len(concepts)))
    bases = {name: log_odds(states, x, pairs.rows) for name, pairs in concepts.items()}
    for row, alpha in enumerate(alphas):
        changed = intervene(states, direction, product, alpha)
        for column, (name, pairs) in enumerate(concepts.items()):
            change = log_odds(changed, x, pairs.rows) - bases[name]
            summary[:, row, column] = change.mean(), *np.quantile(change, (0.05, 0.95))
    return Intervention(direction.name, alphas, tuple(concepts), *summary)


def most_likely(states: Any, unembedding: Any, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """The `count` tokens of largest logit for each state, and their logits.

    Args:
      states: `(n, d)` hidden states after the final norm.
      unembedding: `(v, d)`.
      count: how many.
    Returns:
      `(n, count)` token ids and logits, the largest first.
    """
    logits = np.asarray(states, np.float32) @ np.asarray(unembedding, np.float32).T
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return ids, np.take_along_axis(logits, ids, axis=1)


def _paired_states(before: Any, after: Any, directions: Sequence[ConceptDirection]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if not directions:
        raise ValueError("expected at least one concept direction")
    width = len(directions[0].direction)
    if first.shape != second.shape or first.ndim != 2 or first.shape[1] != width or not len(first):
        raise ValueError(f"expected paired states, two matrices (m, {width}), got {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("the states hold NaN or infinite entries; a projection needs finite ones")
    return first, second
