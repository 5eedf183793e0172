"""Concept directions from counterfactual pairs, and how far each pair projects on the direction of the others."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64

from repcap_jax.concepts.inner_product import InnerProduct, check_unembedding
from repcap_jax.concepts.pairs import TokenPairs


@dataclasses.dataclass(frozen=True)
class ConceptDirection:
    """The unembedding representation of one concept.

    Attributes:
      name, group: of the concept.
      direction: `(d,)` float64 unembedding representation, of length one under the inner product.
      whitened: `(d,)` the same after whitening, of Euclidean length one.
      left_out: `(m,)` inner product of each pair's difference with the direction of the other pairs.
      left_out_cosines: `(m,)` the same for differences of length one.
      consistency: length of the mean of the unit differences, 1 where all are parallel.
    """

    name: str
    group: str
    direction: Float64[np.ndarray, " d"]
    whitened: Float64[np.ndarray, " d"]
    left_out: Float64[np.ndarray, " m"]
    left_out_cosines: Float64[np.ndarray, " m"]
    consistency: float

    def __len__(self) -> int:
        return len(self.left_out)

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; the vectors are arrays."""
        return {
            "concept": self.name,
            "group": self.group,
            "n_pairs": len(self),
            "consistency": self.consistency,
            "mean_cosine": float(self.left_out_cosines.mean()),
        }


def concept_direction(
    unembedding: Any, concept: TokenPairs, product: InnerProduct, *, normalise: bool = True
) -> ConceptDirection:
    """Direction of a concept, and the projection of each pair on the direction of the others.

        u_i = (gamma(after_i) - gamma(before_i)) / |.|,   c = sum_i u_i / |sum_i u_i|,
        left_out_i = <gamma(after_i) - gamma(before_i), sum_{j != i} u_j / |.|>

    with lengths and inner products those of `product`.

    Args:
      unembedding: `(n, d)`, W_U.
      concept: token pairs, at least two of them.
      product: the inner product.
      normalise: give each difference the same weight; False for the paper's mean of plain differences.
    Returns:
      ConceptDirection.
    Raises:
      ValueError: fewer than two pairs have differing, finite rows; or their differences cancel.
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), section 4 and its leave-one-out check; it does not normalise.
    """
    x = check_unembedding(unembedding, product)
    rows = np.asarray(concept.rows)
    before, after = (np.asarray(x[rows[:, side]]).astype(np.float64) for side in (0, 1))
    differences = product.whiten(after - before)
    lengths = np.linalg.norm(differences, axis=1)
    good = np.isfinite(lengths) & (lengths > 0)
    if good.sum() < 2:
        raise ValueError(
            f"{concept.name}: {int(good.sum())} of {len(rows)} pairs have differing, finite rows, two are needed"
        )
    differences, lengths = differences[good], lengths[good, None]
    parts = differences / lengths if normalise else differences
    total = parts.sum(axis=0)
    others = total - parts
    sizes = np.linalg.norm(others, axis=1, keepdims=True)
    size = np.linalg.norm(total)
    if size < 1e-9 * len(parts) or (sizes < 1e-12).any():
        raise ValueError(f"{concept.name}: the differences of its pairs cancel, so they have no common direction")
    whitened = total / size
    left_out = np.sum(differences * (others / sizes), axis=1)
    return ConceptDirection(
        name=concept.name,
        group=concept.group,
        direction=product.unwhiten(whitened),
        whitened=whitened,
        left_out=left_out,
        left_out_cosines=left_out / lengths[:, 0],
        consistency=float(np.linalg.norm((differences / lengths).mean(axis=0))),
    )
