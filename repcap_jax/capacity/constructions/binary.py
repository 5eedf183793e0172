"""Sign vectors from quadratic forms over GF(2): Kerdock and Delsarte-Goethals sets, bent-function frames, and the
orbit of one vector under the real Heisenberg group.

The one fact behind all of them: for a quadratic form Q on GF(2)^m whose alternating bilinear form has rank rho,
|sum_x (-1)^(Q(x) + b.x)| is 0 or 2^(m - rho/2) for every b.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ._fields import MAX_FIELD_DEGREE, binary_field, parity_table
from .family import Family, Member, digits, prepend_identity, split


def _signs(forms: np.ndarray, form_of_row: np.ndarray, b: np.ndarray, m: int) -> np.ndarray:
    """Rows 2^(-m/2) (-1)^(Q(x) + b.x) over all x, Q given by a 0/1 table."""
    d = 1 << m
    bits = parity_table(m)[b.astype(np.int32)[:, None] & np.arange(d, dtype=np.int32)]
    bits ^= forms[form_of_row]
    scale = 1 / math.sqrt(d)
    rows = bits * (-2 * scale)
    rows += scale
    return rows


@lru_cache(maxsize=32)
def _kerdock_tables(m: int) -> tuple[np.ndarray, np.ndarray]:
    """On GF(2^(m-1)), m even: q(z) = sum_{i=1}^{(m-2)/2} Tr(z^(1+2^i)), and Tr(z)."""
    field = binary_field(m - 1)
    z = np.arange(field.order)
    q = np.zeros(field.order, np.int64)
    for i in range(1, (m - 2) // 2 + 1):
        q ^= field.trace[field.power(z, 1 + (1 << i))]
    return q, field.trace


def _even_forms(m: int, r: int, number: np.ndarray) -> np.ndarray:
    """Tables of Q_a(x, e) = q(ax) + e Tr(ax) + sum_{j<=r} Tr(a_j x^(1+2^j)); (a, a_1, ..) are the digits of number.

    Kerdock, r = 0, d = 2^m, m even: d (d/2 + 1) lines at 1/sqrt(d). The bilinear form of Q_a is
    Tr(a^2 x y) + Tr(ax) Tr(ay) + e Tr(ay) + f Tr(ax). If (x, e) lies in the radical of the difference of the forms of
    a and a', then Tr(ax) = Tr(a'x) (coefficient of f) and (a+a')^2 x = (a+a') s with s = Tr(ax) + e (coefficient of y):
    at most one x for each s in {0, 1}, and then e is fixed. The radical has at most 2 elements and its dimension has
    the parity of m, so it is trivial and the products are +-2^(-m/2). Equal forms, different b: product 0.

    Delsarte-Goethals, 0 < r <= (m-2)/2: 2^(2m-1+r(m-1)) + d lines at 2^r / sqrt(d). The equation for x becomes
    (a+a')^2 x + L(x) = (a+a') s where L has the powers x^(2^j), |j| <= r: raised to the power 2^r, a linearised
    polynomial of degree 2^(2r). So the radical has at most 2^(2r+1) elements, hence dimension at most 2r.
    """
    field = binary_field(m - 1)
    q, trace = _kerdock_tables(m)
    x = np.arange(field.order)
    a, *rest = (digit[:, None] for digit in digits(number, field.order, r + 1))
    scaled = field.multiply(a, x)
    table = q[scaled]
    for j, coefficient in enumerate(rest, start=1):
        table = table ^ trace[field.multiply(coefficient, field.power(x, 1 + (1 << j)))]
    return np.concatenate([table, table ^ trace[scaled]], axis=1).astype(np.int8)


def _odd_forms(m: int, r: int, number: np.ndarray) -> np.ndarray:
    """Tables of sum_{j=t-r}^{t} Tr(a_j x^(1+2^j)), t = (m-1)/2; (a_j) are the digits of number.

    Delsarte-Goethals, d = 2^m, m odd, 0 <= r < t: 2^(2m+rm) + d lines at 2^r sqrt(2/d). The forms are a linear space.
    The radical equation of one has the powers x^(2^j) for t-r <= j <= t+r+1 (as -t = t+1 mod m), which after a root
    of order 2^(t-r) is a linearised polynomial of degree 2^(2r+1): the rank is at least m - 1 - 2r.
    """
    field = binary_field(m)
    x = np.arange(field.order)
    top = (m - 1) // 2
    table = np.zeros((len(number), field.order), np.int64)
    for j, coefficient in zip(range(top - r, top + 1), digits(number, field.order, r + 1), strict=True):
        table ^= field.trace[field.multiply(coefficient[:, None], field.power(x, 1 + (1 << j)))]
    return table.astype(np.int8)


def _quadratic_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    m, r = parameters if len(parameters) == 2 else (*parameters, 0)
    forms = _even_forms if m % 2 == 0 else _odd_forms

    def rest(index):
        number, b = split(index, 1 << m)
        unique, form_of_row = np.unique(number, return_inverse=True)
        return _signs(forms(m, r, unique), form_of_row, b, m)

    return prepend_identity(index, 1 << m, rest)


def _kerdock_members(d: int) -> Iterator[Member]:
    for m in range(2, min(d.bit_length() - 1, MAX_FIELD_DEGREE + 1) + 1, 2):
        size = 1 << m
        yield Member((m,), size, size * (size // 2 + 1), 2.0 ** (-m // 2))


def _delsarte_goethals_members(d: int) -> Iterator[Member]:
    for m in range(3, min(d.bit_length() - 1, MAX_FIELD_DEGREE) + 1):
        size, even = 1 << m, m % 2 == 0
        first, last = (1, (m - 2) // 2) if even else (0, (m - 3) // 2)
        for r in range(first, last + 1):
            exponent = 2 * m - 1 + r * (m - 1) if even else 2 * m + r * m
            yield Member((m, r), size, (1 << exponent) + size, 2.0 ** (r - m // 2))


KERDOCK = Family(
    "Kerdock",
    ("m",),
    _kerdock_members,
    lambda m: 1 << m,
    _quadratic_rows,
    "Kerdock 1972; Calderbank, Cameron, Kantor and Seidel 1997 (maximal sets of real mutually unbiased bases)",
)
DELSARTE_GOETHALS = Family(
    "Delsarte-Goethals",
    ("m", "r"),
    _delsarte_goethals_members,
    lambda m, r: 1 << m,
    _quadratic_rows,
    "Delsarte and Goethals 1975, alternating bilinear forms over GF(q)",
)


def _bent_support(s: int, value: int) -> np.ndarray:
    """The y in GF(2)^(2s) at which the bent function y_1 . y_2 takes the value."""
    y = np.arange(1 << 2 * s)
    return np.flatnonzero(parity_table(s)[(y >> s) & y & ((1 << s) - 1)] == value)


def _bent_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """(-1)^(x.y) over y with f(y) = value: the sum over that set of (-1)^(x.y) is +-2^(s-1) for each x != 0."""
    s, value = parameters
    support = _bent_support(s, value)
    bits = parity_table(2 * s)[index[:, None] & support]
    return (1.0 - 2.0 * bits) / math.sqrt(len(support))


def _bent_members(d: int) -> Iterator[Member]:
    s = 2
    while (size := (1 << (s - 1)) * ((1 << s) - 1)) <= d:
        yield Member((s, 1), size, 1 << 2 * s, 1 / ((1 << s) - 1))
        if size + (1 << s) <= d:
            yield Member((s, 0), size + (1 << s), 1 << 2 * s, 1 / ((1 << s) + 1))
        s += 1


BENT = Family(
    "bent-function frame",
    ("s", "value"),
    _bent_members,
    lambda s, value: ((1 << s) + (1 if value == 0 else -1)) << max(s - 1, 0),
    _bent_rows,
    "harmonic equiangular frames from Hadamard difference sets: Ding and Feng 2007; Xia, Zhou and Giannakis 2005",
)


def _heisenberg_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """X^a Z^b v with v = (2 e_0 + sum over x of 8..15 of (-1)^(x_0 x_1 x_2) e_x) / sqrt(12), a and b in GF(2)^4.

    <v, X^a Z^b v> is 0 where a.b is odd. For a = 0 it is the character sum of v^2, +-1/3. For a with top bit 1 only the
    pair {0, a} meets the support: +-4/12. For other a it is 1/12 of a twisted sum of the derivative of the cubic
    x_0 x_1 x_2 along a, a bent function of the two remaining variables counted twice: +-4/12.
    """
    fiducial = np.zeros(16)
    fiducial[0], fiducial[8:15], fiducial[15] = 2, 1, -1
    a, b = np.asarray(index) // 16, np.asarray(index) % 16
    x = np.arange(16) ^ a[:, None]
    return fiducial[x] * (1.0 - 2.0 * parity_table(4)[x & b[:, None]]) / math.sqrt(12)


def _heisenberg_members(d: int) -> Iterator[Member]:
    if d >= 16:
        yield Member((16,), 16, 256, 1 / 3)


HEISENBERG = Family(
    "Heisenberg orbit",
    ("d",),
    _heisenberg_members,
    lambda d: d,
    _heisenberg_rows,
    "orbit under the extraspecial group 2^(1+8); meets Levenshtein's second level",
)
