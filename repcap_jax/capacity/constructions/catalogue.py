"""The catalogue of explicit line sets: which is best for (k, d) or (d, epsilon), and its vectors block by block."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from .._values import ROUNDING, Number, check_epsilon, check_integer
from .binary import BENT, DELSARTE_GOETHALS, HEISENBERG, KERDOCK
from .equiangular import ORTHONORMAL, PALEY, PHASES, SIMPLEX, STEINER
from .family import Family
from .lattices import EXCEPTIONAL, ROOTS

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        ORTHONORMAL,
        SIMPLEX,
        KERDOCK,
        DELSARTE_GOETHALS,
        PALEY,
        BENT,
        STEINER,
        PHASES,
        HEISENBERG,
        EXCEPTIONAL,
        ROOTS,
    )
}

# Parameters beyond this are refused by `family_construction` instead of searched for.
MAX_DIMENSION = 1 << 20


@dataclass(frozen=True)
class Construction:
    """An explicit set of k lines in R^d with coherence at most `coherence`, not yet built.

    Args:
      family: name of the family in `FAMILIES`.
      parameters: the integers that pick the member of the family.
      native_d, native_k: dimension and number of lines of that member.
      d, k: dimension and number asked for; d >= native_d is reached by zero padding, k <= native_k by taking a subset.
      coherence: largest |cosine| of the member, an upper bound for a subset.
      source: where the family comes from.
    """

    family: str
    parameters: tuple[int, ...]
    native_d: int
    native_k: int
    d: int
    k: int
    coherence: float
    source: str

    @property
    def name(self) -> str:
        """Family and parameters, e.g. "Kerdock (m = 12)"."""
        names = FAMILIES[self.family].parameter_names
        inner = ", ".join(f"{key} = {value}" for key, value in zip(names, self.parameters, strict=True))
        return f"{self.family} ({inner})"

    def rows(self, index: Any) -> Float64[np.ndarray, "n d"]:
        """Return the unit vectors with these row numbers, float64 [len(index), d].

        Raises:
          ValueError: a row number is outside 0 .. k - 1.
        """
        # Very large sets need row numbers beyond int64: Python integers in an object array.
        index = np.asarray(index, dtype=np.int64 if self.native_k < 2**62 else object).reshape(-1)
        if len(index) and not (0 <= index.min() and index.max() < self.k):
            raise ValueError(f"row numbers must lie in 0 .. {self.k - 1}, got {index.min()} .. {index.max()}")
        native = FAMILIES[self.family].rows(self.parameters, index)
        return native if self.d == self.native_d else np.pad(native, ((0, 0), (0, self.d - self.native_d)))

    def to_record(self) -> dict:
        """Return the construction as valid JSON."""
        return {
            "name": self.name,
            "family": self.family,
            "parameters": list(self.parameters),
            "native_d": self.native_d,
            "native_k": self.native_k,
            "d": self.d,
            "k": self.k,
            "coherence": self.coherence,
            "source": self.source,
        }


@lru_cache(maxsize=1024)
def constructions_in(d: Number) -> tuple[Construction, ...]:
    """Return every member of the catalogue that fits in R^d and is not beaten by another of its own family.

    Raises:
      ValueError: d is not a whole number >= 1.
    """
    d = check_integer(d, "d", 1)
    return tuple(
        Construction(family.name, m.parameters, m.d, m.k, d, m.k, m.coherence, family.source)
        for family in FAMILIES.values()
        for m in family.members(d)
        if m.coherence < 1
    )


def best_construction(k: Number, d: Number) -> Construction | None:
    """Return the construction of k lines in R^d with the smallest known coherence, without building vectors.

    Args:
      k: number of lines, a whole number >= 1.
      d: dimension, a whole number >= 1.

    Returns:
      Construction whose first k rows are the lines; subsets of larger sets and zero padding of sets in fewer dimensions
      are included. Equal coherences go to the set with most lines. None if no member of the catalogue has k lines in
      R^d.

    Raises:
      ValueError: k or d is not a whole number >= 1.
    """
    k = check_integer(k, "k", 1)
    fitting = [c for c in constructions_in(check_integer(d, "d", 1)) if c.native_k >= k]
    if not fitting:
        return None
    return replace(min(fitting, key=lambda c: (c.coherence, -c.native_k)), k=k)


def largest_construction(d: Number, epsilon: Number) -> Construction:
    """Return the construction with the most lines in R^d among those with coherence <= epsilon.

    An orthonormal basis always qualifies. A relative excess of 1e-15 of the coherence over epsilon is forgiven, so
    that rounding of epsilon = 1/sqrt(d) costs nothing.

    Args:
      d: dimension, a whole number >= 1.
      epsilon: bound on |cosine|, >= 0.

    Raises:
      ValueError: negative or non-finite epsilon, or d not a whole number >= 1.
    """
    limit = float(check_epsilon(epsilon)) * (1 + ROUNDING)
    fitting = [c for c in constructions_in(check_integer(d, "d", 1)) if c.coherence <= limit]
    return max(fitting, key=lambda c: (c.native_k, -c.coherence))


def build(construction: Construction, *, block: Number = 1024, dtype: Any = np.float32) -> Iterator[np.ndarray]:
    """Yield the unit vectors of a construction in blocks of rows, each built only when it is asked for.

    Args:
      construction: from `best_construction`, `largest_construction` or `constructions_in`.
      block: rows per block, >= 1; the last block may be shorter.
      dtype: np.float32 or np.float64.

    Yields:
      Arrays [<= block, d], in row order, construction.k rows in all.

    Raises:
      TypeError: not a Construction, or another dtype.
      ValueError: block < 1.
    """
    if not isinstance(construction, Construction):
        raise TypeError(f"build needs a Construction (see best_construction), got {type(construction).__name__}")
    block, dtype = check_integer(block, "block", 1), np.dtype(dtype)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, got {dtype}")

    def blocks():
        for start in range(0, construction.k, block):
            index = range(start, min(start + block, construction.k))
            yield construction.rows(list(index)).astype(dtype, copy=False)

    return blocks()


def family_construction(family: str, *parameters: Number) -> Construction:
    """Return one member of a family by its parameters, e.g. family_construction("Kerdock", 6).

    Raises:
      ValueError: unknown family or parameters that name no member; the message lists what exists.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; known families: {', '.join(FAMILIES)}")
    kind = FAMILIES[family]
    wanted = tuple(check_integer(value, "parameter", 0) for value in parameters)
    if len(wanted) == len(kind.parameter_names) and max(wanted) < MAX_DIMENSION:
        d = kind.dimension(*wanted)
        for c in constructions_in(d) if 1 <= d <= MAX_DIMENSION else ():
            if c.family == family and c.parameters == wanted:
                return c
    raise ValueError(
        f"the {family} family has no member with ({', '.join(kind.parameter_names)}) = {wanted}; "
        "constructions_in(d) lists those that fit in R^d"
    )
