"""How orthogonal concepts are to each other, and whether the causal inner product makes separable ones more so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float64

from repcap_jax.concepts.directions import ConceptDirection


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """|cosine| of every two concepts under one inner product.

    Attributes:
      product: name of the inner product.
      names, groups: of the concepts.
      values: `(c, c)` float64, 1 on the diagonal.
    """

    product: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    values: Float64[np.ndarray, "c c"]

    @property
    def off_block(self) -> float | None:
        """Mean |cosine| of concepts of different groups; None where there is only one group."""
        return self._mean(separable_pairs(self.groups))

    @property
    def in_block(self) -> float | None:
        """Mean |cosine| of different concepts of one group; None where no group has two."""
        return self._mean(np.triu(_same_group(self.groups), 1))

    def _mean(self, chosen: np.ndarray) -> float | None:
        return float(self.values[chosen].mean()) if chosen.any() else None

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return {
            "product": self.product,
            "concepts": list(self.names),
            "groups": list(self.groups),
            "values": np.round(self.values, 6).tolist(),
            "off_block": self.off_block,
            "off_block_reason": "all concepts are of one group" if self.off_block is None else None,
            "in_block": self.in_block,
            "in_block_reason": "no group has two concepts" if self.in_block is None else None,
        }


@dataclasses.dataclass(frozen=True)
class PermutationTest:
    """Whether separable concepts are closer to orthogonal under one inner product than under another.

    Attributes:
      first, second: names of the inner products.
      difference: mean off-block |cosine| under the second less that under the first; positive where the first has
        separable concepts closer to orthogonal.
      p_value: share of the sign flips (with the data themselves) whose difference is at least as large.
      permutations: flips drawn, or all there are.
      blocks: pairs of groups that were flipped as wholes.
      exact: whether all flips were counted.
    """

    first: str
    second: str
    difference: float
    p_value: float
    permutations: int
    blocks: int
    exact: bool

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return dataclasses.asdict(self)


def heat_map(directions: Sequence[ConceptDirection], product: str) -> HeatMap:
    """|<c_i, c_j>| of unit concept directions under the inner product that they were made with.

    Args:
      directions: at least one.
      product: its name.
    Returns:
      HeatMap, concepts in their order.
    Raises:
      ValueError: no direction.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), figure 3.
    """
    if not directions:
        raise ValueError("a heat map needs at least one concept")
    vectors = np.stack([concept.whitened for concept in directions])
    values = np.clip(np.abs(vectors @ vectors.T), 0.0, 1.0)
    np.fill_diagonal(values, 1.0)
    names, groups = zip(*((concept.name, concept.group) for concept in directions))
    return HeatMap(product, names, groups, values)


def separable_pairs(groups: Sequence[str]) -> np.ndarray:
    """`(c, c)` mask of the pairs i < j whose concepts are of different groups."""
    return np.triu(~_same_group(groups), 1)


def permutation_test(first: HeatMap, second: HeatMap, key: Array, *, permutations: int = 10_000) -> PermutationTest:
    """Test whether separable concepts are closer to orthogonal under the first of two inner products.

        T = mean over pairs (i, j) of different groups of   |cos_second(i, j)| - |cos_first(i, j)|

    Were the two inner products alike in this, their names could be exchanged. All concept pairs between the same two
    groups are exchanged together, since verbs in -ing and in -s do not bear witness independently; blocks that share a
    group are still treated as independent.

    Args:
      first, second: heat maps of the same concepts.
      key: random key.
      permutations: exchanges to draw; all are counted where there are no more than that.
    Returns:
      PermutationTest.
    Raises:
      ValueError: the maps are of different concepts, or all are of one group.
    """
    if (first.names, first.groups) != (second.names, second.groups):
        raise ValueError("the two heat maps are of different concepts")
    i, j = np.nonzero(separable_pairs(first.groups))
    if not len(i):
        raise ValueError("all concepts are of one group, so no two of them are known to be separable")
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    labels = [tuple(sorted((first.groups[a], first.groups[b]))) for a, b in zip(i, j)]
    blocks = sorted(set(labels))
    sums = np.zeros(len(blocks))
    np.add.at(sums, [blocks.index(label) for label in labels], (second.values - first.values)[i, j])
    exact = len(blocks) < 31 and 2 ** len(blocks) <= permutations
    if exact:
        signs = 1 - 2 * ((np.arange(2 ** len(blocks))[:, None] >> np.arange(len(blocks))) & 1)
    else:
        signs = 2 * np.asarray(jax.random.bernoulli(key, shape=(permutations, len(blocks))), np.int8) - 1
    # A hair of slack, so that a flip that changes nothing counts however its sum is rounded.
    reached = int(np.count_nonzero(signs @ sums >= sums.sum() - 1e-12 * np.abs(sums).sum()))
    p_value = reached / len(signs) if exact else (1 + reached) / (1 + len(signs))
    difference = float(sums.sum() / len(labels))
    return PermutationTest(first.product, second.product, difference, p_value, len(signs), len(blocks), exact)


def _same_group(groups: Sequence[str]) -> np.ndarray:
    labels = np.unique(np.asarray(groups, str), return_inverse=True)[1]
    return labels[:, None] == labels[None, :]
