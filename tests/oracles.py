"""Plain float64 references: NumPy and SciPy only, written to be obviously right."""

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

EPS32 = float(np.finfo(np.float32).eps)


def unit_rows(x):
    """Unit rows in float64, and which rows have a direction."""
    x = np.asarray(x, np.float64)
    usable = np.isfinite(x).all(axis=1) & (np.abs(np.nan_to_num(x)).max(axis=1) > 0)
    safe = np.where(usable[:, None], x, 1.0)
    return safe / np.linalg.norm(safe, axis=1, keepdims=True), usable


def cosine_matrix(x, y=None):
    """All cosines; NaN where a row has no direction, and on and below the diagonal when y is None."""
    u, u_usable = unit_rows(x)
    v, v_usable = (u, u_usable) if y is None else unit_rows(y)
    cosines = np.clip(u @ v.T, -1.0, 1.0)
    cosines[~u_usable] = np.nan
    cosines[:, ~v_usable] = np.nan
    if y is None:
        cosines[np.tril_indices(len(u))] = np.nan
    return cosines


def pair_cosines(x, y=None):
    """The cosines of all pairs in one vector."""
    cosines = cosine_matrix(x, y)
    return cosines[~np.isnan(cosines)]


def rounding(d):
    """How far a float32 cosine of rows of length d may lie from the exact one: a few ulps and a random walk."""
    return EPS32 * (4.0 + np.sqrt(d))


def assert_counts_match(counts, edges, cosines, tolerance):
    """The counts are those of the exact cosines, but for pairs within `tolerance` of an edge.

    For every edge, the number of pairs below it may differ by no more than the pairs that lie that close to it.
    """
    exact, exact_edges = np.histogram(cosines, bins=len(counts), range=(edges[0], edges[-1]))
    np.testing.assert_allclose(edges, exact_edges, atol=1e-12)
    ordered = np.sort(cosines)
    near = np.searchsorted(ordered, edges + tolerance, "right") - np.searchsorted(ordered, edges - tolerance, "left")
    below = np.concatenate([[0], np.cumsum(counts)]) - np.concatenate([[0], np.cumsum(exact)])
    wrong = np.abs(below) > near
    assert not wrong.any(), f"at edges {edges[wrong]} {below[wrong]} pairs changed sides, {near[wrong]} lie close by"


def spearman(a, b):
    """Spearman's rho with average ranks for ties."""
    return float(spearmanr(a, b).statistic)


def removed(states, m):
    """Centred states less their first m principal directions."""
    centred = np.asarray(states, np.float64)
    centred = centred - centred.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:m]
    return centred - centred @ directions.T @ directions


def alignment_rhos(hidden, subspaces, m, remove_after=False):
    """rho of every subspace: cosine distances of all pairs in the full space against those after projection."""
    full = removed(hidden, m)
    states = removed(hidden, 0) if remove_after else full
    distances = pdist(full, "cosine")
    projected = [states @ np.asarray(basis, np.float64) for basis in subspaces]
    if remove_after:
        projected = [removed(rows, m) for rows in projected]
    return np.array([spearman(distances, pdist(rows, "cosine")) for rows in projected])
