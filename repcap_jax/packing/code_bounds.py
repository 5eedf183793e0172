"""What no spherical code can beat: lower bounds on the largest cosine of k points on the sphere in R^d."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import betaincinv, roots_jacobi

from repcap_jax.capacity import CoherenceBound
from repcap_jax.kernels.checks import whole

MAX_LEVEL = 40


def code_bound(k: int, d: int) -> CoherenceBound:
    """The largest proven lower bound on the largest cosine of k points on the unit sphere of R^d, and its theorem.

    Exact for k <= 2d (simplex, cross-polytope) and in the plane; beyond that the better one of Levenshtein's bound and
    of the volume of caps. Levenshtein's bound is met by the sharp codes: 27 points in R^6 (1/4), 240 in R^8 (1/2),
    4,600 in R^23 (1/3), 196,560 in R^24 (1/2).

    Args:
      k: number of points, >= 2.
      d: dimension, >= 2.
    Returns:
      CoherenceBound(value, name).
    Raises:
      TypeError, ValueError: for numbers out of range.
    Source: Rankin 1955; Levenshtein 1992.
    """
    k, d = whole(k, "k", 2), whole(d, "d", 2)
    if d == 2:
        return CoherenceBound(math.cos(2 * math.pi / k), "regular polygon")
    if k <= d + 1:
        return CoherenceBound(-1 / (k - 1), "simplex")
    if k <= 2 * d:
        return CoherenceBound(0.0, "cross-polytope")
    candidates = [_levenshtein(k, d), CoherenceBound(_cap_packing(k, d), "cap packing")]
    return max(candidates, key=lambda bound: bound.value)


def _cap_packing(k: int, d: int) -> float:
    """Caps of half the smallest angle do not overlap: with angle theta, k times the share of a cap of theta/2 <= 1."""
    if k <= 2:
        return -1.0
    # The share of a cap of angle a <= 90 degrees is I_y((d-1)/2, 1/2) / 2 with y = sin^2 a; cos theta = 1 - 2y.
    return 1 - 2 * float(betaincinv((d - 1) / 2, 0.5, 2 / k))


def _design_size(level: int, d: int) -> int:
    """Smallest size of a spherical design of strength `level`: where that level of the bound starts."""
    half = level // 2
    if level % 2:
        return 2 * math.comb(d + half - 1, d - 1)
    return math.comb(d + half - 1, d - 1) + math.comb(d + half - 2, d - 1)


def _levenshtein(k: int, d: int) -> CoherenceBound:
    """Levenshtein's bound: level tau holds for k between the design bounds of strengths tau and tau + 1."""
    level = 3
    while level < MAX_LEVEL and _design_size(level + 1, d) < k:
        level += 1
    size = min(k, _design_size(level + 1, d))
    low, high = _level_start(level, d), _level_start(level + 1, d)

    def excess(s: float) -> float:
        return math.log(_most_points(level, s, d)) - math.log(size)

    name = f"Levenshtein level {level}"
    # Rounding alone decides at the ends of a level, where the bound is known: the level's start or end.
    inside = high - low
    low, high = low + 1e-12 * inside, high - 1e-12 * inside
    if excess(low) >= 0:
        return CoherenceBound(low, name)
    if excess(high) <= 0:
        return CoherenceBound(high, name)
    return CoherenceBound(float(brentq(excess, low, high, xtol=1e-15, rtol=1e-13)), name)


def _level_start(level: int, d: int) -> float:
    """The cosine at which a level starts: the largest zero of a Jacobi polynomial."""
    a = (d - 3) / 2
    half = level // 2
    if level % 2:  # level 2m - 1, m = half + 1: degree m - 1 with parameters (a + 1, a + 1)
        return float(roots_jacobi(half, a + 1, a + 1)[0].max()) if half else -1.0
    return float(roots_jacobi(half, a + 1, a)[0].max())  # level 2m, m = half


def _most_points(level: int, s: float, d: int) -> float:
    """Levenshtein's bound on the number of points with all cosines at most s, s inside the level.

        L_(2m-1) = C(m+d-3, m-1) [(2m+d-3)/(d-1) - (P_(m-1) - P_m) / ((1-s) P_m)]
        L_(2m)   = C(m+d-2, m)   [(2m+d-1)/(d-1) - (1+s) (P_m - P_(m+1)) / ((1-s) (P_m + P_(m+1)))]

    with P_n the Gegenbauer polynomials of R^d at s, scaled to 1 at s = 1.
    """
    m = (level + 1) // 2
    values = [1.0, s]
    for n in range(1, m + 1):
        values.append(((2 * n + d - 2) * s * values[n] - n * values[n - 1]) / (n + d - 2))
    before, here, after = values[m - 1], values[m], values[m + 1]
    if level % 2:
        factor = (2 * m + d - 3) / (d - 1) - (before - here) / ((1 - s) * here)
        return math.comb(m + d - 3, m - 1) * factor
    factor = (2 * m + d - 1) / (d - 1) - (1 + s) * (here - after) / ((1 - s) * (here + after))
    return math.comb(m + d - 2, m) * factor
