"""Exceptional sets: lines through the shortest vectors of lattices, their sections, and three small optimal sets."""

import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import combinations, product

import numpy as np
from scipy.linalg import null_space

from ._fields import parity_table
from .family import Family, Member


def _root_pairs(n: int) -> np.ndarray:
    """e_i + e_j and e_i - e_j for i < j: the n (n-1) lines of the root system D_n."""
    rows = []
    for i, j in combinations(range(n), 2):
        for sign in (1, -1):
            row = np.zeros(n)
            row[i], row[j] = 1, sign
            rows.append(row)
    return np.array(rows)


def _sign_patterns(length: int) -> np.ndarray:
    """All +-1 vectors of this length with an even number of -1 and first entry +1."""
    patterns = np.array([(1, *tail) for tail in product((1, -1), repeat=length - 1)])
    return patterns[patterns.prod(axis=1) == 1]


def _on_words(words: np.ndarray) -> np.ndarray:
    """The even sign patterns placed on the support of each 0/1 word (all of one weight)."""
    patterns = _sign_patterns(int(words[0].sum()))
    rows = np.zeros((len(words), len(patterns), words.shape[1]))
    for row, word in zip(rows, words, strict=True):
        row[:, np.flatnonzero(word)] = patterns
    return rows.reshape(-1, words.shape[1])


def _section(lines: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """The lines orthogonal to all normals, in an orthonormal basis of that subspace."""
    inside = lines[np.abs(lines @ normals.T).max(axis=1) < 1e-9]
    return inside @ null_space(normals)


@cache
def _e8() -> np.ndarray:
    return np.concatenate([_root_pairs(8), 0.5 * _sign_patterns(8)])


def _e7() -> np.ndarray:
    return _section(_e8(), np.eye(8)[:1] + np.eye(8)[1:2])


def _e6() -> np.ndarray:
    e = np.eye(8)
    return _section(_e8(), np.stack([e[0] + e[1], e[1] + e[2]]))


def _barnes_wall() -> np.ndarray:
    """2 (+-e_i +- e_j), and even signs on the 30 words of weight 8 of the first-order Reed-Muller code of length 16."""
    x = np.arange(16)
    words = np.array([parity_table(4)[x & b] ^ c for b in range(1, 16) for c in (0, 1)])
    return np.concatenate([2 * _root_pairs(16), _on_words(words)])


def _golay() -> np.ndarray:
    """The 4,096 words of the extended binary Golay code, from its cyclic generator polynomial."""
    generator = np.zeros(23, np.int64)
    generator[[0, 2, 4, 5, 6, 10, 11]] = 1
    basis = np.array([np.roll(generator, shift) for shift in range(12)])
    words = np.array(list(product((0, 1), repeat=12))) @ basis % 2
    return np.concatenate([words, words.sum(axis=1, keepdims=True) % 2], axis=1)


@lru_cache(maxsize=1)
def _leech() -> np.ndarray:
    """Shortest vectors of the Leech lattice times sqrt(8), up to sign: shapes (2^8, 0^16), (3, 1^23), (4^2, 0^22)."""
    code = _golay()
    octads = 2 * _on_words(code[code.sum(axis=1) == 8])
    signs = 1 - 2 * code[code[:, 0] == 0]
    odd = np.concatenate([signs * np.where(np.arange(24) == i, -3, 1) for i in range(24)])
    return np.concatenate([octads, odd, 4 * _root_pairs(24)])


def _leech_neighbours(centre: np.ndarray) -> np.ndarray:
    """x - centre/2 for the shortest x with <x, centre> = |centre|^2 / 2; x and centre - x give one line.

    With <x, y> in {0, 1, 2} (norm 4), a centre of norm 6 gives products +-1/2 against norm 5/2, a centre of norm 4
    gives 0, +-1 against norm 3.
    """
    lines = _leech().astype(np.float64)
    products = lines @ centre
    half = centre @ centre / 2
    found = np.concatenate([lines[products == half], -lines[products == -half]]) - centre / 2
    leading = found[np.arange(len(found)), np.argmax(found != 0, axis=1)]
    return np.unique(found * np.sign(leading)[:, None], axis=0) @ null_space(centre[None])


def _equiangular_276() -> np.ndarray:
    centre = np.ones(24)
    centre[0] = 5
    return _leech_neighbours(centre)


def _lines_2300() -> np.ndarray:
    centre = np.zeros(24)
    centre[:2] = 4
    return _leech_neighbours(centre)


def _balanced() -> np.ndarray:
    """The ten +-1 vectors of length 6 with sum 0, up to sign, in the hyperplane of sum 0."""
    patterns = np.array([(1, *tail) for tail in product((1, -1), repeat=5) if sum(tail) == -1])
    return patterns @ null_space(np.ones((1, 6)))


def _sixteen() -> np.ndarray:
    """The simplex of six lines (products 1/5) and the ten balanced sign vectors (1/3), at 1/sqrt(5) to each other."""
    return np.concatenate([null_space(np.ones((1, 6))), _balanced()])


def _cube() -> np.ndarray:
    """The three axes and the four diagonals of a cube."""
    return np.concatenate([np.eye(3), [(1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1)]])


_SETS: dict[tuple[int, int], tuple[float, Callable[[], np.ndarray], str]] = {
    (3, 7): (1 / math.sqrt(3), _cube, "axes and diagonals of the cube"),
    (5, 10): (1 / 3, _balanced, "balanced sign vectors"),
    (5, 16): (1 / math.sqrt(5), _sixteen, "simplex and balanced sign vectors"),
    (6, 36): (0.5, _e6, "E6"),
    (7, 63): (0.5, _e7, "E7"),
    (8, 120): (0.5, _e8, "E8"),
    (16, 2160): (0.5, _barnes_wall, "Barnes-Wall lattice"),
    (23, 276): (0.2, _equiangular_276, "Leech lattice, type-3 centre"),
    (23, 2300): (1 / 3, _lines_2300, "Leech lattice, type-2 centre"),
    (24, 98280): (0.5, _leech, "Leech lattice"),
}


@lru_cache(maxsize=16)
def _unit_lines(d: int, k: int) -> np.ndarray:
    lines = _SETS[d, k][1]().astype(np.float64)
    return lines / np.linalg.norm(lines, axis=1, keepdims=True)


def _exceptional_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    return _unit_lines(*parameters)[index]


def _exceptional_members(d: int) -> Iterator[Member]:
    for (size, count), (coherence, _, _) in _SETS.items():
        if size <= d:
            yield Member((size, count), size, count, coherence)


EXCEPTIONAL = Family(
    "exceptional set",
    ("d", "k"),
    _exceptional_members,
    lambda d, k: d,
    _exceptional_rows,
    "Conway and Sloane, Sphere Packings, Lattices and Groups; Conway, Hardin and Sloane 1996",
)


def _root_rows(parameters: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    """Row 2t + s: e_i + (-1)^s e_j for the t-th pair i < j, pairs ordered by j."""
    (n,) = parameters
    pair, sign = np.asarray(index) // 2, np.asarray(index) % 2
    # The pairs with larger member j start at j (j-1) / 2.
    j = np.floor((1 + np.sqrt(1 + 8.0 * pair)) / 2).astype(np.int64)
    i = pair - j * (j - 1) // 2
    rows, at = np.zeros((len(pair), n)), np.arange(len(pair))
    rows[at, i], rows[at, j] = math.sqrt(0.5), math.sqrt(0.5) * (1 - 2 * sign)
    return rows


def _root_members(d: int) -> Iterator[Member]:
    if d >= 3:
        yield Member((d,), d, d * (d - 1), 0.5)


ROOTS = Family(
    "root system D_n",
    ("n",),
    _root_members,
    lambda n: n,
    _root_rows,
    "Conway and Sloane, Sphere Packings, Lattices and Groups",
)
