"""What no arrangement of lines can beat: lower bounds on the coherence of k lines in R^d, and their inverses.

A line is a unit vector up to sign; the coherence mu of a set is the largest |cosine| over its pairs. Each bound here is
a theorem, so a packing below one is a bug. `coherence_bound` returns the best of them and names it;
`max_vectors_bound` answers the inverse question, how many lines a given coherence allows at most.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, betaln

from ._values import ROUNDING, Number, check_epsilon, check_integer, json_number

# Levenshtein levels above this one are not searched: the bound at this level still holds, and for so many lines in so
# few dimensions the cap-packing bound is the better one anyway.
MAX_LEVEL = 2000
MAX_WELCH_ORDER = 64
MAX_COUNT = 10**300


class CoherenceBound(NamedTuple):
    """A lower bound on the coherence of k lines, and the name of the theorem that gives it."""

    value: float
    name: str

    def to_record(self) -> dict:
        """Return the bound as valid JSON."""
        return {"coherence": self.value, "bound": self.name}


class VectorsBound(NamedTuple):
    """A bound on the number of lines: a whole number (inf if unbounded or beyond float64), its ln, its theorem."""

    value: float
    log_value: float
    name: str

    def to_record(self) -> dict:
        """Return the bound as valid JSON; an infinite count is null plus its reason."""
        record = {"bound": self.name}
        overflow = math.isfinite(self.log_value)
        json_number(record, "vectors", self.value, "exceeds float64; see log10_vectors" if overflow else self.name)
        json_number(record, "log10_vectors", self.log_value / math.log(10), self.name)
        return record


def _check(k: Number, d: Number) -> tuple[float, int]:
    k = check_integer(k, "k", 1)
    if k > MAX_COUNT:
        raise ValueError(f"k must be at most 10^300 for the bounds in float64, got about 10^{math.log10(k):.0f}")
    return float(k), check_integer(d, "d", 1)


def welch_bound(k: Number, d: Number) -> float:
    """Return the Welch bound mu >= sqrt((k - d) / (d (k - 1))), 0 for k <= d.

    Equality means an equiangular tight frame, which needs k <= d (d + 1) / 2.
    Source: Welch 1974, "Lower bounds on the maximum cross correlation of signals".
    """
    k, d = _check(k, d)
    return math.sqrt((k - d) / (d * (k - 1))) if k > d else 0.0


def _log_moments(d: int) -> np.ndarray:
    """ln E cos^(2s) of a random direction for s = 1 .. MAX_WELCH_ORDER: sum over j < s of ln((2j+1)/(d+2j))."""
    j = np.arange(MAX_WELCH_ORDER)
    return np.cumsum(np.log((2 * j + 1) / (d + 2 * j)))


def welch_order_bound(k: Number, d: Number) -> CoherenceBound:
    """Return the best Welch bound of order s = 1, 2, ..: mu^(2s) >= (k a_s - 1) / (k - 1).

        a_s = prod_{j<s} (2j + 1) / (d + 2j)

    Orders up to 64 are tried; the name says which one won. Source: Welch 1974, real form.
    """
    k, d = _check(k, d)
    if k <= d:
        return CoherenceBound(0.0, "Welch of order 1")
    surplus = np.expm1(math.log(k) + _log_moments(d)) / (k - 1)
    orders = np.arange(1, MAX_WELCH_ORDER + 1)
    values = np.where(surplus > 0, np.maximum(surplus, 1e-300) ** (0.5 / orders), 0.0)
    values[0] = welch_bound(int(k), d)  # keeps all digits next to k = d
    best = int(np.argmax(values))
    return CoherenceBound(float(values[best]), f"Welch of order {orders[best]}")


def orthoplex_bound(k: Number, d: Number) -> float:
    """Return the orthoplex bound mu >= 1 / sqrt(d) for k > d (d + 1) / 2, else 0.

    Equality needs k <= (d - 1)(d + 2). Source: Rankin 1955; Conway, Hardin and Sloane 1996.
    """
    k, d = _check(k, d)
    return 1 / math.sqrt(d) if k > d * (d + 1) / 2 else 0.0


def levenshtein_second_bound(k: Number, d: Number) -> float:
    """Return Levenshtein's second level mu >= sqrt((3k - d^2 - 2d) / ((d + 2)(k - d))).

    It holds for d (d + 1) / 2 <= k <= C(d + 2, 3); outside that range 0 is returned.
    Source: Levenshtein 1992, "Designs as maximum codes in polynomial metric spaces".
    """
    k, d = _check(k, d)
    if d == 1 or not d * (d + 1) / 2 <= k <= d * (d + 1) * (d + 2) / 6:
        return 0.0
    return math.sqrt((3 * k - d * (d + 2)) / ((d + 2) * (k - d)))


def _bukh_cox(n: Number, d: int) -> float:
    """The bound as stated, for n = k - d >= 1."""
    return n * (n + 1) / ((d + n) * (2 + (n - 1) * math.sqrt(n + 2)) - n * (n + 1))


@lru_cache(maxsize=1024)
def _bukh_cox_peak(d: int) -> int:
    """The n at which the bound is largest, by ternary search over whole numbers (n is of the order of d)."""
    low, high = 1, 8 * d + 8
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        if _bukh_cox(left, d) < _bukh_cox(right, d):
            low = left
        else:
            high = right
    return max(range(low, high + 1), key=lambda n: _bukh_cox(n, d))


def bukh_cox_bound(k: Number, d: Number) -> float:
    """Return the Bukh-Cox bound, strongest when the surplus n = k - d is at most about sqrt(2k); 0 for k <= d.

        mu >= n (n + 1) / (k (2 + (n - 1) sqrt(n + 2)) - n (n + 1))

    The formula falls again for large n. Coherence cannot fall as lines are added, so its peak is used from there on.
    Source: Bukh and Cox, arXiv:1902.00926.
    """
    k, d = _check(k, d)
    return _bukh_cox(min(k - d, _bukh_cox_peak(d)), d) if k > d else 0.0


@lru_cache(maxsize=4096)
def _log_binomial(n: int, k: int) -> float:
    # The logarithm of the exact integer: differences of lgamma would lose four digits at d = 16,384.
    return math.log(math.comb(n, k))


@lru_cache(maxsize=4096)
def _level_start(m: int, d: int) -> float:
    """|cos| at which Levenshtein's level m starts: the largest zero of the Gegenbauer polynomial C_m^(d/2)."""
    if m == 1:
        return 0.0
    n = np.arange(1, m, dtype=np.float64)
    half = d / 2
    off_diagonal = np.sqrt(n * (n + 2 * half - 1) / (4 * (n + half) * (n + half - 1)))
    zeros = eigh_tridiagonal(np.zeros(m), off_diagonal, eigvals_only=True, select="i", select_range=(m - 1, m - 1))
    return float(zeros[0])


def _log_levenshtein(m: int, t: float, d: int) -> float:
    """ln of Levenshtein's bound of level m on the number of lines with |cos| <= t.

        L_m(t) = C(d+m-2, m-1) (1 - G'_{m-1}(t) / G_{m+1}(t))

    with G_n the Gegenbauer polynomials of R^d and G'_n those of R^(d+2), both scaled to 1 at t = 1. Derivative and
    three-term recurrence express the quotient through p = G_{m-1}(t) and q = G_m(t) alone. This is 1 over the weight at
    node 1 of the quadrature in x = 2 t^2 - 1 with weight (1-x)^((d-3)/2) (1+x)^(-1/2) and prescribed nodes 2t^2-1 and 1
    (and -1 for even m), without the cancellation of computing that tiny weight.
    """
    p, q = 1.0, t
    for n in range(1, m):
        p, q = q, ((2 * n + d - 2) * t * q - n * p) / (n + d - 2)
        if abs(p) + abs(q) < 1e-200:
            p, q = p * 1e200, q * 1e200
    quotient = (d - 1) * (p - t * q) / ((1 - t * t) * ((2 * m + d - 2) * t * q - m * p))
    # 1 - quotient >= 1 inside the level; the floor only absorbs rounding at its start.
    return _log_binomial(d + m - 2, m - 1) + math.log(max(1 - quotient, 1.0))


def levenshtein_bound(k: Number, d: Number) -> CoherenceBound:
    """Return Levenshtein's universal bound on the coherence of k lines in R^d, and its level.

    The level m is that with C(d+m-1, m) <= k <= C(d+m, m+1); level 1 is the Welch bound. Levels stop at 2,000, where
    the bound for fewer lines is returned. Source: Levenshtein 1992.
    """
    k, d = _check(k, d)
    if k <= d:
        return CoherenceBound(0.0, "Levenshtein level 1")
    if d == 1:
        return CoherenceBound(1.0, "Levenshtein level 1")
    m, end = 1, d * (d + 1) / 2
    while end < k and m < MAX_LEVEL:
        m += 1
        end *= (d + m) / (m + 1)
    name = f"Levenshtein level {m}"
    if m <= 2:  # in closed form, which keeps all digits next to k = d
        return CoherenceBound(welch_bound(k, d) if m == 1 else levenshtein_second_bound(k, d), name)
    low, high = _level_start(m, d), _level_start(m + 1, d)
    target = math.log(min(k, end))

    def excess(t):
        return _log_levenshtein(m, t, d) - target

    if excess(low) >= 0:
        return CoherenceBound(low, name)
    if excess(high) <= 0:
        return CoherenceBound(high, name)
    return CoherenceBound(float(brentq(excess, low, high, xtol=1e-18, rtol=1e-14)), name)


def cap_packing_bound(k: Number, d: Number) -> float:
    """Return the volume bound: caps of half the smallest angle around +-x_i do not overlap; 0 for k <= d.

        mu >= 1 - 2y,   I_y((d-1)/2, 1/2) = 1/k   (regularised incomplete beta function)

    Weak in high dimension, but useful for very many lines in few dimensions.
    """
    k, d = _check(k, d)
    if k <= d:
        return 0.0
    if d == 1:
        return 1.0
    return max(0.0, 1 - 2 * float(betaincinv((d - 1) / 2, 0.5, 1 / k)))


def _log_cap_share(y: float, d: int) -> tuple[float, float]:
    """ln P(cos^2 > 1 - y) for a random direction in R^d, as an interval.

    It is a point unless the probability underflows; then y^a / (a B(a, 1/2)), times 1 and times (1 - y)^(-1/2), are
    its ends.
    """
    a = (d - 1) / 2
    share = float(betainc(a, 0.5, y))
    if share > 1e-290:
        return math.log(share), math.log(share)
    low = a * math.log(y) - math.log(a) - float(betaln(a, 0.5))
    return low, low - 0.5 * math.log1p(-y)


def random_existence(d: Number, epsilon: Number) -> VectorsBound:
    """Return how many lines with coherence <= epsilon are known to exist by a random argument, with no construction.

        k lines exist if (k - 1) P(|cos| > epsilon) < 1,   P = I_{1 - epsilon^2}((d-1)/2, 1/2)

    Adding directions greedily cannot get stuck before the caps around them cover the sphere. This is a lower bound on
    the best count, weak at small epsilon, and the best one known for epsilon of order one.

    Args and Raises as `max_vectors_bound`.
    """
    d, epsilon = check_integer(d, "d", 1), float(check_epsilon(epsilon))
    if epsilon >= 1:
        return VectorsBound(math.inf, math.inf, "none: epsilon >= 1 allows any number of lines")
    if d == 1 or epsilon == 0:
        return VectorsBound(float(d), math.log(d), "random argument")
    log_count = -_log_cap_share(1 - epsilon * epsilon, d)[1]
    if log_count > 709:
        return VectorsBound(math.inf, log_count, "random argument")
    # Round 1/P down before adding the last line, so that rounding never promises one too many.
    count = max(float(d), math.floor(math.exp(log_count) * (1 - 1e-12)) + 1.0)
    return VectorsBound(count, math.log(count), "random argument")


def coherence_bound(k: Number, d: Number) -> CoherenceBound:
    """Return the largest proven lower bound on the coherence of k lines in R^d, and which theorem gives it.

    Args:
      k: number of lines, a whole number >= 1.
      d: dimension, a whole number >= 1.

    Returns:
      CoherenceBound(value, name): value 0 named "orthonormal" for k <= d. Among equal bounds the simplest is named.
      The value does not decrease with k.

    Raises:
      ValueError: k or d is not a whole number >= 1, or k > 10^300.
    """
    d, k = check_integer(d, "d", 1), check_integer(k, "k", 1)
    _check(k, d)
    if k <= d:
        return CoherenceBound(0.0, "orthonormal")
    if d == 2:
        # Lines in a plane are spread best at equal angles pi/k.
        return CoherenceBound(math.cos(math.pi / k), "equal angles in the plane")
    candidates = [
        CoherenceBound(welch_bound(k, d), "Welch"),
        CoherenceBound(orthoplex_bound(k, d), "orthoplex"),
        CoherenceBound(levenshtein_second_bound(k, d), "Levenshtein level 2"),
        CoherenceBound(bukh_cox_bound(k, d), "Bukh-Cox"),
        levenshtein_bound(k, d),
        welch_order_bound(k, d),
        CoherenceBound(cap_packing_bound(k, d), "cap packing"),
    ]
    best = max(bound.value for bound in candidates)
    return next(bound for bound in candidates if bound.value >= best * (1 - 1e-12))


def _log_welch_orders(t: float, d: int) -> float:
    """ln of the smallest (1 - t^2s) / (a_s - t^2s) over the orders s at which it bounds anything, else inf."""
    orders = np.arange(1, MAX_WELCH_ORDER + 1)
    # Relative to a_s, so that neither term underflows: 1 - t^2s / a_s > 0.
    log_moments = _log_moments(d)
    log_powers = 2 * orders * math.log(t)
    margin = -np.expm1(log_powers - log_moments)
    bounded = margin > 1e-13
    if not bounded.any():
        return math.inf
    logs = np.log(-np.expm1(log_powers[bounded])) - log_moments[bounded] - np.log(margin[bounded])
    return float(logs.min())


def _bukh_cox_inverse(t: float, d: int) -> float:
    """Most lines the Bukh-Cox bound allows at coherence t: one fewer than the first count it rules out, else inf."""
    low, high = 0, _bukh_cox_peak(d)
    if _bukh_cox(high, d) <= t:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _bukh_cox(middle, d) <= t else (low, middle)
    return float(d + low)


def _log_levenshtein_inverse(t: float, d: int) -> tuple[float, str]:
    """ln of Levenshtein's bound at the level that t falls in, and its name; inf above the last level."""
    if _level_start(MAX_LEVEL + 1, d) < t:
        return math.inf, ""
    low, high = 1, 2
    while _level_start(high, d) < t:
        low, high = high, min(2 * high, MAX_LEVEL + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _level_start(middle, d) < t else (low, middle)
    return _log_levenshtein(low, t, d), f"Levenshtein level {low}"


def max_vectors_bound(d: Number, epsilon: Number) -> VectorsBound:
    """Return the largest number of lines in R^d that the bounds allow at coherence <= epsilon, and the theorem used.

    Args:
      d: dimension, a whole number >= 1.
      epsilon: bound on |cosine|, >= 0.

    Returns:
      VectorsBound(value, log_value, name). The value is whole; it is inf with a finite log_value where the count
      exceeds float64, and inf with an infinite log_value, the name saying so, where no bound applies: epsilon >= 1
      excludes nothing.

    Raises:
      ValueError: epsilon negative or not finite, d not a whole number >= 1.
    """
    d, epsilon = check_integer(d, "d", 1), float(check_epsilon(epsilon))
    if epsilon >= 1:
        return VectorsBound(math.inf, math.inf, "none: epsilon >= 1 allows any number of lines")
    if d == 1:
        return VectorsBound(1.0, 0.0, "one line in R^1")
    # A count that holds for a slightly larger epsilon holds for this one: rounding of epsilon must not cost a line.
    t = min(max(epsilon * (1 + 2 * ROUNDING), 1e-150), 1 - 1e-15)
    if d == 2:
        return _whole(math.log(math.pi / math.acos(t)), "equal angles in the plane", d)
    candidates = [(_log_welch_orders(t, d), "Welch")]
    if t * t * d < 1:
        candidates.append((math.log(d * (d + 1) / 2), "orthoplex"))
    candidates.append((math.log(_bukh_cox_inverse(t, d)), "Bukh-Cox"))
    candidates.append(_log_levenshtein_inverse(t, d))
    candidates.append((-_log_cap_share((1 - t) / 2, d)[0], "cap packing"))
    best = min(value for value, _ in candidates)
    return _whole(*next((value, name) for value, name in candidates if value <= best + 1e-12), d)


def _whole(log_count: float, name: str, d: int) -> VectorsBound:
    """Round a bound down to a whole count, forgiving rounding errors; never below the orthonormal d."""
    if log_count > 709:
        return VectorsBound(math.inf, log_count, name)
    count = max(float(d), float(math.floor(math.exp(log_count) * (1 + 1e-12))))
    return VectorsBound(count, math.log(count), name)
