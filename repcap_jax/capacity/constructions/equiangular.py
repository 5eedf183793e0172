"""Sets that meet the Welch bound: bases, simplices, Paley frames and Steiner frames; complex phases read as real."""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np

from ._fields import hadamard, hadamard_recipe, largest_prime, quadratic_character
from .family import Family, Member, digits, prepend_identity, split


def _orthonormal_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(index), parameters[0]))
    rows[np.arange(len(index)), index] = 1.0
    return rows


ORTHONORMAL = Family(
    "orthonormal basis",
    ("d",),
    lambda d: [Member((d,), d, d, 0.0)],
    lambda d: d,
    _orthonormal_rows,
    "the standard basis",
)


def _simplex_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """Corner i of the regular simplex: e_i of R^(d+1) in the Helmert basis of the hyperplane of sum 0, rescaled."""
    (d,) = parameters
    j, i = np.arange(1, d + 1), np.asarray(index)[:, None]
    scale = np.sqrt((d + 1) / (d * j * (j + 1.0)))
    return np.where(i < j, scale, np.where(i == j, -j * scale, 0.0))


SIMPLEX = Family(
    "simplex",
    ("d",),
    lambda d: [Member((d,), d, d + 1, 1 / d)],
    lambda d: d,
    _simplex_rows,
    "regular simplex",
)


def _paley_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """The symmetric conference matrix S of order q + 1 has S^2 = q I; the lines have Gram matrix I + S / sqrt(q).

    Its range is spanned by the Fourier modes of the nonzero squares r (S has eigenvalue sqrt(q) there) and by one
    vector mixing the point at infinity with the constant, which gives the coordinates below without any factorisation.
    -1 is a square because q = 1 mod 4, so modes r and -r pair into a cosine and a sine.
    """
    (q,) = parameters
    squares = np.flatnonzero(quadratic_character(q) == 1)
    squares = squares[squares < q / 2]
    x = np.asarray(index)[:, None] - 1
    angle = 2 * np.pi * (squares * np.maximum(x, 0) % q) / q
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) * 2 / math.sqrt(q)
    rows = np.concatenate([np.full((len(index), 1), 1 / math.sqrt(q)), waves], axis=1)
    rows[np.asarray(index) == 0] = np.eye(1, rows.shape[1])
    return rows


def _paley_members(d: int) -> Iterator[Member]:
    q = largest_prime(2 * d - 1, 1, 4)
    if q is not None:
        yield Member((q,), (q + 1) // 2, q + 1, 1 / math.sqrt(q))


PALEY = Family(
    "Paley frame",
    ("q",),
    _paley_members,
    lambda q: (q + 1) // 2,
    _paley_rows,
    "Paley 1933; Lemmens and Seidel 1973",
)


def _triples(v: int) -> list[tuple[int, int, int]]:
    """A Steiner triple system on v points: Bose's construction for v = 3 mod 6, Skolem's for v = 1 mod 6."""
    n = v // 3
    half = n // 2
    blocks = []
    if v % 6 == 3:
        # Points (i, layer) as i + n layer; i * j = (i + j) / 2 mod n is an idempotent commutative quasigroup, n odd.
        middle = (n + 1) // 2
        blocks += [(i, i + n, i + 2 * n) for i in range(n)]
        pairs = [(i, j, (i + j) * middle % n) for i, j in combinations(range(n), 2)]
    else:
        # n even, and one more point v - 1; the quasigroup is only half-idempotent: (i + j) halved as below.
        infinity = v - 1
        blocks += [(i, i + n, i + 2 * n) for i in range(half)]
        blocks += [(infinity, half + i + layer * n, i + (layer + 1) % 3 * n) for i in range(half) for layer in range(3)]
        total = {(i, j): (i + j) % n for i, j in combinations(range(n), 2)}
        pairs = [(i, j, s // 2 if s % 2 == 0 else (s - 1) // 2 + half) for (i, j), s in total.items()]
    for layer in range(3):
        blocks += [(i + layer * n, j + layer * n, m + (layer + 1) % 3 * n) for i, j, m in pairs]
    return blocks


@lru_cache(maxsize=8)
def _steiner_blocks(v: int, block: int) -> np.ndarray:
    """For each point the blocks through it: int64 [v, r]. Blocks are all pairs (2) or a triple system (3)."""
    blocks = list(combinations(range(v), 2)) if block == 2 else _triples(v)
    through: list[list[int]] = [[] for _ in range(v)]
    for number, points in enumerate(blocks):
        for point in points:
            through[point].append(number)
    return np.array(through)


def _steiner_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """Row (point, h): row h of a Hadamard matrix of order r + 1, first entry dropped, over the r blocks of the point.

    Two rows of one point have product -+1/r (a full row product 0 less one entry). Two points share exactly one block,
    so their rows have product +-1/r.
    """
    v, block = parameters
    through = _steiner_blocks(v, block)
    r = through.shape[1]
    point, h = split(np.asarray(index), r + 1)
    rows = np.zeros((len(point), v * r // block))
    np.put_along_axis(rows, through[point], hadamard(r + 1)[h, 1:] / math.sqrt(r), axis=1)
    return rows


def _steiner_size(v: int, block: int) -> Member | None:
    """The member on v points, or None where the system or the Hadamard matrix is missing."""
    r = (v - 1) // (block - 1)
    if (block == 3 and v % 6 not in (1, 3)) or r < 2 or hadamard_recipe(r + 1) is None:
        return None
    return Member((v, block), v * r // block, v * (r + 1), 1 / r)


def _steiner_members(d: int) -> Iterator[Member]:
    for block in (2, 3):
        # d = v (v-1) / (block (block-1)): start from the largest v that fits.
        start = int((1 + math.sqrt(1 + 4.0 * d * block * (block - 1))) / 2)
        found = next((m for v in range(start, 3, -1) if (m := _steiner_size(v, block)) and m.d <= d), None)
        if found:
            yield found


STEINER = Family(
    "Steiner frame",
    ("v", "block"),
    _steiner_members,
    lambda v, block: v * (v - 1) // max(block * (block - 1), 1),
    _steiner_rows,
    "Fickus, Mixon and Tremain 2012, arXiv:1009.5730",
)


def _phase_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """Complex vectors p^(-1/2) exp(2 pi i f(x) / p), f a polynomial of degree <= n without constant, and i times each.

    Read as real vectors of R^(2p) (real parts, then imaginary parts) their products are real or imaginary parts of the
    complex ones. Those are exponential sums of a polynomial of degree 1 <= e <= n < p over p, at most (e-1)/sqrt(p) by
    Weil, with 0 for e = 1. The standard basis meets each vector in at most 1/sqrt(p). With n = 2 the sums are Gauss
    sums and the complex vectors are the p + 1 mutually unbiased bases of C^p.
    """
    p, n = parameters

    def rest(index):
        number, copy = split(index, 2)
        x = np.arange(p, dtype=np.int64)
        phase, power = np.zeros((len(number), p), np.int64), np.ones(p, np.int64)
        for coefficient in digits(number, p, n):
            power = power * x % p
            phase = (phase + coefficient[:, None] * power) % p
        angle = 2 * np.pi * phase / p + 0.5 * np.pi * copy[:, None]
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(p)

    return prepend_identity(index, 2 * p, rest)


def _phase_members(d: int) -> Iterator[Member]:
    p = largest_prime(d // 2)
    if p is None or p == 2:
        return
    for n in range(2, min(p - 1, math.isqrt(p) + 1) + 1):
        if (n - 1) ** 2 < p:
            yield Member((p, n), 2 * p, 2 * (p**n + p), (n - 1) / math.sqrt(p))


PHASES = Family(
    "polynomial phases",
    ("p", "n"),
    _phase_members,
    lambda p, n: 2 * p,
    _phase_rows,
    "Alltop 1980; Wootters and Fields 1989; Weil 1948 for n > 2",
)
