"""Ideal polytopes as unit vectors: the shapes that features and points on spheres settle into."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

_POLYGONS = {3: "triangle", 4: "square", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon"}
_GOLDEN = (1 + 5**0.5) / 2
_LARGEST_SIMPLEX = 9


class Polytope(NamedTuple):
    """k unit vectors in R^d with a name.

    Attributes:
      name: of the shape; two entries of one name are two versions of it.
      vectors: `(k, d)` unit rows.
    """

    name: str
    vectors: Float64[np.ndarray, "k d"]

    @property
    def fraction(self) -> Fraction:
        """d / k, the share of a dimension that each vector has: the D_i of features in this shape."""
        return Fraction(self.vectors.shape[1], self.vectors.shape[0])


@functools.lru_cache(maxsize=1)
def ideal_polytopes() -> tuple[Polytope, ...]:
    """The catalogue.

    A single vector, the antipodal pair, regular polygons, simplices, cross-polytopes, the Platonic solids, the shapes
    of the best 5, 7, 8, 9 and 10 points on the sphere (the antiprism both with equal edges and as a tight frame), the
    24-cell, and the 5-demicube, whose 16 points in R^5 are a sharp code.
    """
    found = [Polytope("single", np.ones((1, 1))), Polytope("antipodal pair", np.array([[1.0], [-1.0]]))]
    found += [Polytope(name, _ring(k)) for k, name in _POLYGONS.items()]
    names = {4: "tetrahedron"}
    found += [Polytope(names.get(k, f"{k - 1}-simplex"), _simplex(k)) for k in range(4, _LARGEST_SIMPLEX + 1)]
    crosses = {3: "octahedron"}
    found += [
        Polytope(crosses.get(d, f"{d}-cross-polytope"), np.concatenate([np.eye(d), -np.eye(d)])) for d in range(3, 6)
    ]
    uniform = 1 / (1 + 2 * 2**0.5)  # z^2 of the square antiprism with equal edges
    found += [
        Polytope("triangular bipyramid", _with_poles(_ring(3))),
        Polytope("pentagonal bipyramid", _with_poles(_ring(5))),
        Polytope("square antiprism", _antiprism(4, uniform)),
        Polytope("square antiprism", _antiprism(4, 1 / 3)),
        Polytope("cube", _signs(1, 1, 1)),
        Polytope("tricapped trigonal prism", _tricapped_prism()),
        Polytope("gyroelongated square bipyramid", _with_poles(_antiprism(4, 0.18))),
        Polytope("icosahedron", _with_poles(_antiprism(5, 0.2))),
        Polytope("dodecahedron", _dodecahedron()),
        Polytope("24-cell", _roots_of_d4()),
        Polytope("5-demicube", _demicube(5)),
    ]
    return tuple(found)


def _ring(k: int) -> np.ndarray:
    angles = 2 * np.pi * np.arange(k) / k
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _simplex(k: int) -> np.ndarray:
    """k unit vectors of R^(k-1): the corners of the standard simplex seen from its centre."""
    centred = np.eye(k) - 1 / k
    rows = centred @ np.linalg.svd(centred)[2][:-1].T
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _with_poles(vectors: np.ndarray) -> np.ndarray:
    """The vectors (of a plane or of space) with both poles."""
    rows = np.pad(vectors, ((0, 0), (0, 3 - vectors.shape[1])))
    return np.concatenate([rows, [[0, 0, 1.0], [0, 0, -1.0]]])


def _antiprism(k: int, z2: float) -> np.ndarray:
    """Two rings of k at heights +-sqrt(z2), one turned by half a step."""
    ring, turned = _ring(k), _ring(2 * k)[1::2]
    flat = np.concatenate([ring, turned]) * np.sqrt(1 - z2)
    return np.concatenate([flat, np.repeat([z2**0.5, -(z2**0.5)], k)[:, None]], axis=1)


def _tricapped_prism() -> np.ndarray:
    """A trigonal prism with a point outside each of its rectangles, in the proportions of the best code of 9 points."""
    ring = _ring(3)
    prism = np.concatenate(
        [np.repeat(ring * 2 / 3, 2, axis=0), np.tile([5**0.5 / 3, -(5**0.5) / 3], 3)[:, None]], axis=1
    )
    return np.concatenate([prism, np.pad(-ring, ((0, 0), (0, 1)))])


def _signs(*values: float | int) -> np.ndarray:
    """All sign changes of a vector, of unit length, without repetitions."""
    rows = np.unique([np.multiply(values, s) for s in itertools.product((1, -1), repeat=len(values))], axis=0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _dodecahedron() -> np.ndarray:
    turns = [_signs(*np.roll([0, 1 / _GOLDEN, _GOLDEN], shift)) for shift in range(3)]
    return np.concatenate([_signs(1, 1, 1), *turns])


def _roots_of_d4() -> np.ndarray:
    pairs = [np.eye(4)[i] + sign * np.eye(4)[j] for i, j in itertools.combinations(range(4), 2) for sign in (1, -1)]
    return np.concatenate([pairs, np.negative(pairs)]) / 2**0.5


def _demicube(d: int) -> np.ndarray:
    """Every other vertex of the cube."""
    corners = _signs(*([1] * d))
    return corners[(corners < 0).sum(axis=1) % 2 == 0]
