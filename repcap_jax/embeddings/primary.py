"""Primary tokens: those that are the nearest neighbour of many others, and how much of the right tail they explain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from repcap_jax.embeddings.relations import CountAbove, TokenRelations
from repcap_jax.kernels.pairs import fold_pairs
from repcap_jax.kernels.placement import check_matrix

_ON_HOST = 2048  # members of a cluster whose cosines NumPy forms at once; larger clusters are folded


@dataclasses.dataclass(frozen=True)
class PrimaryToken:
    """A token that is the nearest neighbour of more than tau others.

    Attributes:
      row: its row number.
      secondary: rows whose nearest neighbour it is, the closest first.
      cosines: their cosines with it.
    """

    row: int
    secondary: np.ndarray
    cosines: np.ndarray

    @property
    def in_degree(self) -> int:
        """How many rows have it as their nearest neighbour."""
        return len(self.secondary)

    def to_record(self, listed: int = 12) -> dict[str, Any]:
        """The numbers as valid JSON, with the closest secondary rows."""
        return {
            "row": self.row,
            "in_degree": self.in_degree,
            "mean_cosine": float(self.cosines.mean(dtype=np.float64)),
            "secondary": self.secondary[:listed].tolist(),
            "cosines": self.cosines[:listed].tolist(),
        }


@dataclasses.dataclass(frozen=True)
class TailShare:
    """How much of the right tail lies within clusters of a primary token and its secondary tokens.

    Attributes:
      clusters: how many there are.
      tokens: rows in at least one.
      pairs: distinct pairs within clusters.
      above: those of them above epsilon.
      total_above: pairs above epsilon in all.
    """

    clusters: int
    tokens: int
    pairs: int
    above: int
    total_above: int

    @property
    def share(self) -> float | None:
        """above / total_above; None where no pair is above epsilon."""
        return self.above / self.total_above if self.total_above else None

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        reason = None if self.total_above else "no pair lies above epsilon"
        return {**dataclasses.asdict(self), "share": self.share, "share_reason": reason}


def in_degrees(nearest: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """How many rows have each row as their nearest neighbour.

    Args:
      nearest: `(n,)` row number of each row's nearest neighbour, -1 for none.
    """
    return np.bincount(nearest[nearest >= 0], minlength=len(nearest))


def primary_tokens(relations: TokenRelations, tau: int = 10) -> list[PrimaryToken]:
    """The rows that are the nearest neighbour of more than `tau` others, largest in-degree first.

    Args:
      relations: of a matrix.
      tau: threshold of the in-degree.
    Returns:
      PrimaryTokens; ties by row number.
    Raises:
      ValueError: if tau is negative.
    Source: Guha 2026 (arXiv:2606.02765), section 2.3.
    """
    if tau < 0:
        raise ValueError(f"tau is a number of tokens, 0 or more, got {tau}")
    nearest, cosines = relations.neighbours.ids[:, 0], relations.neighbours.cosines[:, 0]
    degrees = in_degrees(nearest)
    hubs = np.flatnonzero(degrees > tau)
    # One sort gives the members of every cluster: by neighbour, then by falling cosine.
    order = np.lexsort((np.arange(len(nearest)), -cosines, nearest))
    order = order[nearest[order] >= 0]
    starts = np.searchsorted(nearest[order], hubs)
    found = []
    for hub, start in zip(hubs, starts):
        members = order[start : start + degrees[hub]]
        found.append(PrimaryToken(int(hub), members, cosines[members]))
    return sorted(found, key=lambda token: (-token.in_degree, token.row))


def tail_share(x: Any, relations: TokenRelations, primaries: Sequence[PrimaryToken]) -> TailShare:
    """Count the pairs above epsilon whose two tokens belong to one cluster: a primary token and its secondary tokens.

    Two clusters share at most the pair of their primary tokens, where each is the other's nearest neighbour; it is
    counted once.

    Args:
      x: `(n, d)`, the matrix behind `relations`.
      relations: with epsilon and the count of all pairs above it.
      primaries: from `primary_tokens`.
    Returns:
      TailShare.
    Raises:
      ValueError: if x is not the matrix of `relations`.
    """
    x = check_matrix(x)
    if x.shape != (relations.n_rows, relations.d_model):
        raise ValueError(f"the relations are of a matrix {(relations.n_rows, relations.d_model)}, got {x.shape}")
    nearest, hubs = relations.neighbours.ids[:, 0], {token.row for token in primaries}
    pairs = above = 0
    members: set[int] = set()
    for token in primaries:
        rows = np.append(token.secondary, token.row)
        members.update(rows.tolist())
        pairs += len(rows) * (len(rows) - 1) // 2
        above += _count_above(x[rows], relations.epsilon)
        partner = int(nearest[token.row])
        if partner in hubs and nearest[partner] == token.row and partner < token.row:
            pairs -= 1
            above -= bool(relations.neighbours.cosines[token.row, 0] > relations.epsilon)
    return TailShare(len(primaries), len(members), pairs, above, relations.pairs_above_epsilon)


def _count_above(rows: np.ndarray, epsilon: float) -> int:
    if len(rows) > _ON_HOST:
        return fold_pairs(rows, [CountAbove(epsilon)]).results[0]
    values = rows.astype(np.float32)
    values /= np.abs(values).max(axis=1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    cosines = values @ values.T
    return int(np.count_nonzero(cosines[np.triu_indices(len(values), 1)] > np.float32(epsilon)))
