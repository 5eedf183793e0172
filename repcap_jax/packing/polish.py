"""Float64 sharpening of small packings, and coherence in float64 for any size. NumPy and SciPy, on the host."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Shaped
from scipy import sparse
from scipy.optimize import linprog

from repcap_jax.kernels.checks import one_of
from repcap_jax.packing.objective import OBJECTIVES

_FIRST_RADIUS = 2e-3
_ENOUGH = 1e-9  # no float32 vector can show less
_MAX_ROUNDS = 60


def unit_rows64(vectors: Shaped[np.ndarray, "k d"]) -> Float64[np.ndarray, "k d"]:
    """The rows in float64, of unit length.

    Raises:
      ValueError: fewer than two rows, or one that is zero or not finite.
    """
    rows = np.asarray(vectors, np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"a packing is a matrix of at least two rows, got shape {rows.shape}")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise ValueError("a packing needs rows with a direction; some are zero or not finite")
    return rows / norms


def exact_coherence(vectors: Shaped[np.ndarray, "k d"], objective: str, block: int = 1024) -> float:
    """The largest |cos| (lines) or cos (codes) over pairs of rows, in float64, a block of rows at a time.

    Args:
      vectors: `(k, d)`, rows of any non-zero length.
      objective: `"lines"` or `"codes"`.
      block: rows and columns of a block.
    Returns:
      The coherence; rows are brought to unit length in float64 first.
    Raises:
      ValueError: fewer than two rows, one that is zero or not finite, or an unknown objective.
    """
    one_of(objective, OBJECTIVES, "objective")
    rows, best = unit_rows64(vectors), -np.inf
    for i in range(0, len(rows), block):
        for j in range(i, len(rows), block):
            cosines = rows[i : i + block] @ rows[j : j + block].T
            if i == j:
                np.fill_diagonal(cosines, 0.0 if objective == "lines" else -1.0)
            largest = cosines.max()
            best = max(best, largest, -cosines.min()) if objective == "lines" else max(best, largest)
    return float(best)


def sharpen(
    vectors: Shaped[np.ndarray, "k d"], objective: str, floor: float = -1.0, rounds: int = _MAX_ROUNDS
) -> Float64[np.ndarray, "k d"]:
    """A nearby packing whose largest cosine is a local minimum: sequential linear programming in a trust region.

    Each round minimises t over tangent steps x, |x| <= r in every coordinate, subject to the linearised cosines:

        s_ij (G_ij + v_i . x_j + v_j . x_i) <= t      for the pairs that could reach the maximum within r

    with s_ij the sign of G_ij for lines and 1 for codes. A step is kept if the true maximum falls; r grows where the
    linear model held and shrinks where it did not. Best packings are nearly always rigid, which makes the solution a
    vertex of the program, and then the convergence is quadratic as in Newton's method on the pairs in contact.

    Args:
      vectors: `(k, d)`, k (d - 1) of them at most a few thousand.
      objective: `"lines"` or `"codes"`.
      floor: a coherence that cannot be beaten; reaching it ends the work.
      rounds: most programs solved.
    Returns:
      Unit rows, never of larger coherence than the given ones.
    """
    rows = unit_rows64(vectors)
    largest, radius = exact_coherence(rows, objective), _FIRST_RADIUS
    for _ in range(rounds):
        if largest <= floor + _ENOUGH or radius < _ENOUGH:
            break
        step, predicted = _linear_step(rows, objective, largest, radius)
        gain = largest - predicted
        if step is None or gain < _ENOUGH:
            break
        moved = unit_rows64(rows + step)
        reached = exact_coherence(moved, objective)
        share = (largest - reached) / gain
        if share > 0:
            rows, largest = moved, reached
        radius *= 2.0 if share > 0.75 else 0.25 if share < 0.25 else 1.0
    return rows


def _linear_step(rows: np.ndarray, objective: str, largest: float, radius: float) -> tuple[np.ndarray | None, float]:
    """The step that the linear program proposes, and the maximum it predicts."""
    k, d = rows.shape
    cosines = rows @ rows.T
    signs = np.sign(cosines) if objective == "lines" else np.ones_like(cosines)
    # No cosine moves by more than the lengths of both steps.
    near = signs * cosines >= largest - 2 * radius * np.sqrt(d - 1)
    i, j = np.nonzero(np.triu(near, 1))
    s, tangents = signs[i, j], _tangent_bases(rows)
    # Row per pair: coefficients of x_i, of x_j, and of t.
    of_i = s[:, None] * np.einsum("nab,na->nb", tangents[i], rows[j])
    of_j = s[:, None] * np.einsum("nab,na->nb", tangents[j], rows[i])
    n, m = len(i), d - 1
    columns = np.concatenate([i[:, None] * m + np.arange(m), j[:, None] * m + np.arange(m), np.full((n, 1), k * m)], 1)
    entries = np.concatenate([of_i, of_j, np.full((n, 1), -1.0)], axis=1)
    starts = np.arange(0, entries.size + 1, entries.shape[1])
    matrix = sparse.csr_matrix((entries.ravel(), columns.ravel(), starts), shape=(n, k * m + 1))
    # In units of the radius and relative to the present maximum, so that the solver's tolerances shrink with the step.
    room = (largest - s * cosines[i, j]) / radius
    cost = np.zeros(k * m + 1)
    cost[-1] = 1.0
    solution = linprog(cost, matrix, room, bounds=[(-1.0, 1.0)] * (k * m) + [(None, None)], method="highs")
    if solution.x is None:
        return None, largest
    step = np.einsum("kab,kb->ka", tangents, solution.x[:-1].reshape(k, m)) * radius
    return step, largest + radius * solution.x[-1]


def _tangent_bases(rows: np.ndarray) -> np.ndarray:
    """For each row an orthonormal basis of the hyperplane orthogonal to it, `(k, d, d - 1)`: parts of reflections."""
    k, d = rows.shape
    sign = np.where(rows[:, 0] < 0, -1.0, 1.0)
    normal = rows.copy()
    normal[:, 0] += sign  # the reflection along v + sign e_0 takes v to -sign e_0
    scale = 2.0 / np.einsum("ka,ka->k", normal, normal)
    reflection = np.eye(d) - scale[:, None, None] * normal[:, :, None] * normal[:, None, :]
    return reflection[:, :, 1:]
