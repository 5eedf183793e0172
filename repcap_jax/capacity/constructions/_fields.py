"""Arithmetic for the constructions: primes, binary fields GF(2^m), parities and Hadamard matrices."""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

# A primitive polynomial of each degree, as the bits of its coefficients; `binary_field` checks that it is one.
_PRIMITIVE = {
    m: sum(1 << e for e in (m, *terms, 0))
    for m, terms in {
        1: (),
        2: (1,),
        3: (1,),
        4: (1,),
        5: (2,),
        6: (1,),
        7: (1,),
        8: (4, 3, 2),
        9: (4,),
        10: (3,),
        11: (2,),
        12: (6, 4, 1),
        13: (4, 3, 1),
        14: (10, 6, 1),
        15: (1,),
        16: (12, 3, 1),
        17: (3,),
    }.items()
}
MAX_FIELD_DEGREE = max(_PRIMITIVE)


class BinaryField(NamedTuple):
    """GF(2^m) with elements written as integers below 2^m (bits are coordinates over GF(2)).

    Args:
      powers: powers[i] = g^i for a generator g, repeated twice so that sums of two logarithms need no reduction.
      logs: discrete logarithms; logs[0] is 0 and must not be used.
      trace: the absolute trace of each element, 0 or 1.
    """

    powers: np.ndarray
    logs: np.ndarray
    trace: np.ndarray

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.logs)

    def multiply(self, a, b) -> np.ndarray:
        """Product, elementwise."""
        a, b = np.asarray(a), np.asarray(b)
        product = self.powers[self.logs[a] + self.logs[b]]
        return np.where((a == 0) | (b == 0), 0, product)

    def power(self, a, exponent: int) -> np.ndarray:
        """a^exponent for exponent >= 1, elementwise."""
        a = np.asarray(a)
        return np.where(a == 0, 0, self.powers[self.logs[a] * exponent % (self.order - 1)])


@cache
def binary_field(m: int) -> BinaryField:
    """Return GF(2^m), 1 <= m <= 17."""
    order, polynomial = 1 << m, _PRIMITIVE[m]
    powers, logs = np.zeros(2 * order, np.int64), np.zeros(order, np.int64)
    element = 1
    for i in range(order - 1):
        powers[i], logs[element] = element, i
        element <<= 1
        if element & order:
            element ^= polynomial
    if element != 1 or len(set(powers[: order - 1].tolist())) != order - 1:
        raise ArithmeticError(f"internal table error: polynomial {polynomial:#b} is not primitive")
    powers[order - 1 : 2 * (order - 1)] = powers[: order - 1]
    field = BinaryField(powers, logs, np.zeros(order, np.int64))
    trace = np.zeros(order, np.int64)
    for i in range(m):
        trace ^= field.power(np.arange(order), 1 << i)
    return field._replace(trace=trace)


@cache
def parity_table(bits: int) -> np.ndarray:
    """Return the parity of the number of ones of each integer below 2^bits, as int8."""
    table = np.zeros(1, np.int8)
    for _ in range(bits):
        table = np.concatenate([table, 1 - table])
    return table


@lru_cache(maxsize=65536)
def is_prime(n: int) -> bool:
    """Return whether n is prime, by trial division (n stays small here)."""
    if n < 2 or (n % 2 == 0 and n != 2):
        return False
    return all(n % f for f in range(3, int(n**0.5) + 1, 2))


def largest_prime(limit: int, remainder: int = 0, modulus: int = 1) -> int | None:
    """Return the largest prime <= limit that is `remainder` modulo `modulus`, or None."""
    return next((n for n in range(limit, 1, -1) if n % modulus == remainder and is_prime(n)), None)


def quadratic_character(p: int) -> np.ndarray:
    """Return the quadratic character of 0 .. p-1 for an odd prime p: 0 at 0, 1 at squares, -1 elsewhere."""
    character = -np.ones(p, np.int64)
    character[np.arange(1, p, dtype=np.int64) ** 2 % p] = 1
    character[0] = 0
    return character


@lru_cache(maxsize=4096)
def hadamard_recipe(order: int) -> tuple[str, int] | None:
    """Return how to make a Hadamard matrix of this order: ("one"|"paley1"|"paley2"|"double", size), or None.

    Doubling applies Sylvester's step to half the order; the Paley constructions use a prime. Orders that need other
    methods (92 is the smallest multiple of 4 missed) give None, though matrices exist for them.
    """
    if order == 1:
        return ("one", 1)
    if order == 2 or (order % 4 == 0 and hadamard_recipe(order // 2) is not None):
        return ("double", order // 2)
    if order % 4 == 0 and is_prime(order - 1):
        return ("paley1", order - 1)
    if order % 4 == 0 and (order // 2 - 1) % 4 == 1 and is_prime(order // 2 - 1):
        return ("paley2", order // 2 - 1)
    return None


@lru_cache(maxsize=64)
def hadamard(order: int) -> np.ndarray:
    """Return a Hadamard matrix: entries +-1 with orthogonal rows, int8; `hadamard_recipe(order)` must not be None."""
    kind, size = hadamard_recipe(order)
    if kind == "one":
        return np.ones((1, 1), np.int8)
    if kind == "double":
        half = hadamard(size)
        return np.block([[half, half], [half, -half]])
    character = quadratic_character(size)
    jacobsthal = character[np.subtract.outer(np.arange(size), np.arange(size)) % size]
    ones = np.ones(size, np.int64)
    border = np.zeros((size + 1, size + 1), np.int64)
    border[0, 1:], border[1:, 0], border[1:, 1:] = ones, -ones if kind == "paley1" else ones, jacobsthal
    identity = np.eye(size + 1, dtype=np.int64)
    if kind == "paley1":  # the border matrix is skew with S S^T = size I, so I + S has orthogonal rows
        return (identity + border).astype(np.int8)
    # The border matrix is symmetric: put [[1,1],[1,-1]] for its +-1 entries and [[1,-1],[-1,-1]] on its diagonal.
    signs = np.array([[1, 1], [1, -1]])
    return (np.kron(border, signs) + np.kron(identity, np.array([[1, -1], [-1, -1]]))).astype(np.int8)
