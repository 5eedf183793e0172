"""Question 1 on one model: similarity distributions of its matrices, epsilon, class, capacity, direction budget."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from jax.sharding import Mesh

from repcap_jax.capacity.estimate import (
    CapacityBracket,
    CapacityEstimate,
    CapacityRange,
    DirectionBudget,
    capacity_bracket,
    capacity_range,
    direction_budget,
    representational_capacity,
)
from repcap_jax.checkpoints import Checkpoint, CheckpointError
from repcap_jax.embeddings.similarity import SimilarityDistribution, corresponding_cosines, similarity_distribution
from repcap_jax.kernels.pairs import Progress

Together = Callable[[Callable[[], Any]], Any]
MATRICES = ("embedding", "unembedding")
ROWS = ("all", "tokenizer")


@dataclasses.dataclass(frozen=True)
class MatrixGeometry:
    """What one matrix says about the latent space.

    Attributes:
      distribution: cosines of all pairs of its rows.
      capacity: the law's estimate at epsilon = mu + 2 sigma.
      range: the same at mu + 1.5, 2 and 3 sigma.
      bracket: what is proven for that width and epsilon.
      budget: directions used by tokens and left for features; `None` where the capacity is indeterminate.
    """

    distribution: SimilarityDistribution
    capacity: CapacityEstimate
    range: CapacityRange
    bracket: CapacityBracket
    budget: DirectionBudget | None

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON."""
        return {
            "distribution": self.distribution.to_record(),
            "capacity": self.capacity.to_record(),
            "capacity_range": self.range.to_record(),
            "bracket": self.bracket.to_record(),
            "budget": None if self.budget is None else self.budget.to_record(),
        }


@dataclasses.dataclass(frozen=True)
class EmbeddingGeometry:
    """What a model's embedding and unembedding say about its latent space.

    Attributes:
      model: short display name.
      family: the config's model_type, or `None`.
      d_model: width.
      vocab_size: rows of the embedding as stored.
      tokenizer_size: rows that the tokenizer can address, `None` without a tokenizer.
      tied: whether one matrix serves as both.
      rows: `"all"` or `"tokenizer"`: which rows were measured.
      matrices: by name, those that were asked for and are distinct.
      correspondence: `(rows,)` cosine of each embedding row with its unembedding row, `None` if tied or not asked for.
      notes: what a reader of the numbers should know.
    """

    model: str
    family: str | None
    d_model: int
    vocab_size: int
    tokenizer_size: int | None
    tied: bool
    rows: str
    matrices: dict[str, MatrixGeometry]
    correspondence: np.ndarray | None
    notes: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """The numbers as valid JSON; histograms are in `arrays()`."""
        return {
            "model": self.model,
            "family": self.family,
            "d_model": self.d_model,
            "vocab_size": self.vocab_size,
            "tokenizer_size": self.tokenizer_size,
            "tied": self.tied,
            "rows": self.rows,
            "matrices": {name: matrix.to_record() for name, matrix in self.matrices.items()},
            "correspondence": None if self.correspondence is None else _summary(self.correspondence),
            "notes": list(self.notes),
        }

    def arrays(self, bins: int = 400) -> dict[str, np.ndarray]:
        """Histograms by name, `<matrix>_counts` and `<matrix>_edges`; empty if only moments were computed."""
        found: dict[str, np.ndarray] = {}
        for name, matrix in self.matrices.items():
            if matrix.distribution.counts is not None:
                found |= {f"{name}_counts": matrix.distribution.counts, f"{name}_edges": matrix.distribution.edges}
        if found and self.correspondence is not None:
            usable = self.correspondence[~np.isnan(self.correspondence)]
            counts, edges = np.histogram(usable, bins=bins, range=(-1.0, 1.0))
            found |= {"correspondence_counts": counts, "correspondence_edges": edges}
        return found


def embedding_geometry(
    checkpoint: Checkpoint,
    *,
    which: Sequence[str] = MATRICES,
    rows: str = "all",
    max_rows: int | None = None,
    moments_only: bool = False,
    bins: int = 2000,
    tile: int | None = None,
    mesh: Mesh | None = None,
    precision: str | None = None,
    progress: Callable[[str], AbstractContextManager[Progress]] | None = None,
    together: Together = lambda step: step(),
) -> EmbeddingGeometry:
    """Measure a model's token embedding and unembedding.

    Matrices are read one after the other; of an untied model both are in memory only to compare corresponding rows.

    Args:
      checkpoint: an open checkpoint.
      which: `"embedding"`, `"unembedding"` or both. A tied model has one matrix, reported as its embedding.
      rows: `"all"`, or `"tokenizer"` for the rows that the tokenizer can address (many models pad the vocabulary).
      max_rows: measure the first rows only (for a quick look); `None` for all.
      moments_only: mu, sigma and epsilon without histogram and extremes: seconds instead of minutes.
      bins, tile, mesh, precision: see `similarity_distribution`.
      progress: gives, for a matrix name, a context manager that gives the progress callback of its fold.
      together: runs a step that each process does by itself, such as reading a matrix, and gives its value once all
        processes have succeeded, or raises in all of them; see `experiments.launch.Devices.together`. Processes that
        went on alone would wait for each other at the next collective.
    Returns:
      EmbeddingGeometry.
    Raises:
      CheckpointError: (a ValueError) a matrix is missing or cannot be read.
      ValueError: an option is out of range, or a matrix has fewer than two usable rows.
    Source: Guha 2026 (arXiv:2606.02765), sections 2 and 4.
    """
    which = _check_which(which)
    if rows not in ROWS:
        raise ValueError(f"rows must be one of {', '.join(ROWS)}, got {rows!r}")
    if max_rows is not None and max_rows < 2:
        raise ValueError(f"max_rows must be at least 2, since cosines belong to pairs, got {max_rows}")
    tokenizer_size, notes = together(lambda: _tokenizer_size(checkpoint, rows))
    limit = min((size for size in (max_rows, tokenizer_size if rows == "tokenizer" else None) if size), default=None)
    tied = together(lambda: checkpoint.tied)
    names = ("embedding",) if tied else tuple(name for name in MATRICES if name in which)

    distributions: dict[str, SimilarityDistribution] = {}
    correspondence = before = None
    vocab_size = 0
    for name in names:
        matrix = together(checkpoint.embedding if name == "embedding" else checkpoint.unembedding)
        vocab_size = vocab_size or len(matrix)
        matrix = matrix[:limit]
        if before is not None:
            if before.shape == matrix.shape:
                correspondence = corresponding_cosines(before, matrix)
            else:
                notes.append("embedding and unembedding differ in shape: their rows were not compared.")
        before = matrix if len(names) == 2 and not distributions else None  # not kept longer than it is compared
        with contextlib.nullcontext() if progress is None or moments_only else progress(name) as report:
            distributions[name] = similarity_distribution(
                matrix,
                bins=bins,
                moments_only=moments_only,
                tile=tile,
                mesh=mesh,
                precision=precision,
                progress=report,
            )
    notes = list(together(lambda: checkpoint.notes)) + notes
    if tied and "unembedding" in which:
        notes.append("tied: the unembedding is the embedding, measured once.")
    if max_rows is not None and max_rows < vocab_size:
        notes.append(f"only the first {max_rows:,} of {vocab_size:,} rows were measured.")
    notes += _row_notes(distributions, tokenizer_size, vocab_size, rows)
    tokens = vocab_size if limit is None else min(vocab_size, limit)
    return EmbeddingGeometry(
        model=checkpoint.name,
        family=checkpoint.family,
        d_model=next(iter(distributions.values())).d_model,
        vocab_size=vocab_size,
        tokenizer_size=tokenizer_size,
        tied=tied,
        rows=rows,
        matrices={name: _matrix_geometry(found, tokens, tied) for name, found in distributions.items()},
        correspondence=correspondence,
        notes=tuple(notes),
    )


def _matrix_geometry(distribution: SimilarityDistribution, tokens: int, tied: bool) -> MatrixGeometry:
    d, epsilon = distribution.d_model, distribution.epsilon
    capacity = representational_capacity(d, epsilon)
    budget = None if capacity.indeterminate else direction_budget(tokens, capacity.capacity, tied)
    return MatrixGeometry(
        distribution=distribution,
        capacity=capacity,
        range=capacity_range(d, distribution.mean, distribution.std),
        bracket=capacity_bracket(d, epsilon),
        budget=budget,
    )


def _check_which(which: Sequence[str]) -> tuple[str, ...]:
    names = (which,) if isinstance(which, str) else tuple(which)
    if not names or any(name not in MATRICES for name in names):
        raise ValueError(f"which must name some of {', '.join(MATRICES)}, got {list(names)}")
    return names


def _tokenizer_size(checkpoint: Checkpoint, rows: str) -> tuple[int | None, list[str]]:
    """Rows that the tokenizer can address, and a note where that cannot be told; an error only if it is needed."""
    try:
        size = checkpoint.tokenizer_size()
    except CheckpointError as error:
        if rows == "tokenizer":
            raise
        return None, [f"the tokenizer could not be read, so rows beyond it are not told apart: {error}"]
    if size is None and rows == "tokenizer":
        raise ValueError(
            f"{checkpoint.source} has no tokenizer, so rows='tokenizer' has no meaning; use rows='all' or put the "
            "tokenizer's files beside the weights"
        )
    return size, []


def _row_notes(
    distributions: dict[str, SimilarityDistribution], tokenizer_size: int | None, vocab_size: int, rows: str
) -> list[str]:
    notes = []
    if tokenizer_size is not None and tokenizer_size < vocab_size:
        measured = "left out" if rows == "tokenizer" else "included"
        notes.append(
            f"{vocab_size - tokenizer_size:,} of {vocab_size:,} rows are beyond the tokenizer's {tokenizer_size:,} "
            f"tokens; they are {measured} (rows={rows})."
        )
    for name, found in distributions.items():
        for rows_found, what in (
            (found.zero_rows, "rows of zero norm, left out"),
            (found.nonfinite_rows, "rows with NaN, infinite or immense entries, left out"),
            (found.duplicate_rows, "rows equal to an earlier row, kept"),
        ):
            if len(rows_found):
                listed = ", ".join(map(str, rows_found[:8])) + (", .." if len(rows_found) > 8 else "")
                notes.append(f"{name}: {len(rows_found):,} {what}: {listed}.")
    return notes


def _summary(cosines: np.ndarray) -> dict[str, Any]:
    usable = cosines[~np.isnan(cosines)]
    summary: dict[str, Any] = {"n": len(usable), "excluded": len(cosines) - len(usable)}
    if not len(usable):
        return summary | {"mean": None, "std": None, "min": None, "max": None, "quantiles": {}}
    shares = (0.01, 0.05, 0.5, 0.95, 0.99)
    return summary | {
        "mean": float(usable.mean()),
        "std": float(usable.std()),
        "min": float(usable.min()),
        "max": float(usable.max()),
        "quantiles": {f"{q:g}": float(value) for q, value in zip(shares, np.quantile(usable, shares))},
    }
