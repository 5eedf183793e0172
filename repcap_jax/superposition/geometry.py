"""Which polytopes features form: clusters that share dimensions, and the ideal shape that each is nearest to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped
from scipy.sparse.csgraph import connected_components

from repcap_jax.superposition.measures import REPRESENTED, feature_measures
from repcap_jax.superposition.polytopes import ideal_polytopes

LINKED = 0.15  # |cos| from which two features are taken to share dimensions
TOLERANCE = 0.1  # largest distance at which a shape is given a name
NO_POLYTOPE = "none"


class Shape(NamedTuple):
    """The ideal polytope nearest to a set of vectors.

    Attributes:
      name: of the polytope; `"none"` where none of that many vectors is within the tolerance.
      distance: to the nearest polytope of that many vectors, whatever its name; infinite where there is none.
      nearest: its name; "" where there is none.
    """

    name: str
    distance: float
    nearest: str


class Cluster(NamedTuple):
    """Features that share dimensions with each other and with no other feature.

    Attributes:
      features: their numbers.
      shape: what they form.
      dimensionality: mean of their D_i.
    """

    features: tuple[int, ...]
    shape: Shape
    dimensionality: float

    def to_record(self) -> dict[str, Any]:
        """The cluster as valid JSON."""
        record: dict[str, Any] = {"features": list(self.features), "shape": self.shape.name}
        record |= {"nearest": self.shape.nearest, "dimensionality": self.dimensionality}
        if np.isfinite(self.shape.distance):
            return {**record, "distance": self.shape.distance}
        return {**record, "distance": None, "distance_reason": f"no polytope of {len(self.features)} vectors is known"}


def gram_distance(vectors: Shaped[np.ndarray, "k d"], other: Shaped[np.ndarray, "l e"]) -> float:
    """How far two sets of k unit vectors are from being the same up to rotation, reflection and order.

        max(rms difference of the sorted cosines, rms difference of the sorted Gram eigenvalues / sqrt(k - 1))

    0 for congruent sets. Cosines that change by e (rms) move the eigenvalues by at most e sqrt(k - 1), which puts both
    on one scale. Eigenvalues tell the dimension, cosines the shape: a cube and a square antiprism may share the former.

    Args:
      vectors, other: rows of any non-zero length, which are brought to length 1.
    Returns:
      The distance.
    Raises:
      ValueError: sets of different sizes.
    """
    if len(vectors) != len(other):
        raise ValueError(f"sets of {len(vectors)} and {len(other)} vectors cannot be compared")
    spectra, cosines = [], []
    for rows in (vectors, other):
        units = np.asarray(rows, np.float64)
        units = units / np.linalg.norm(units, axis=1, keepdims=True)
        gram = units @ units.T
        spectra.append(np.linalg.eigvalsh(gram))
        cosines.append(np.sort(gram[np.triu_indices(len(gram), 1)]))
    eigenvalues = _rms(spectra[0] - spectra[1]) / max(len(vectors) - 1, 1) ** 0.5
    return max(_rms(cosines[0] - cosines[1]), eigenvalues)


def nearest_polytope(vectors: Shaped[np.ndarray, "k d"], tolerance: float | int = TOLERANCE) -> Shape:
    """The ideal polytope nearest to a set of vectors, by `gram_distance`.

    Args:
      vectors: non-zero rows.
      tolerance: largest distance at which the polytope's name is given.
    Returns:
      Shape.
    Raises:
      ValueError: a row without a direction.
    """
    rows = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(rows, axis=-1)
    if rows.ndim != 2 or not (np.isfinite(norms) & (norms > 0)).all():
        raise ValueError("a polytope needs rows with a direction; leave out those that are zero or not finite")
    known = [polytope for polytope in ideal_polytopes() if len(polytope.vectors) == len(rows)]
    if not known:
        return Shape(NO_POLYTOPE, float("inf"), "")
    distances = [gram_distance(rows, polytope.vectors) for polytope in known]
    best = int(np.argmin(distances))
    name = known[best].name
    return Shape(name if distances[best] <= tolerance else NO_POLYTOPE, distances[best], name)


def feature_clusters(
    weights: Shaped[np.ndarray, "..."],
    *,
    represented: float | int = REPRESENTED,
    linked: float | int = LINKED,
    tolerance: float | int = TOLERANCE,
) -> list[Cluster]:
    """The clusters of a toy model's represented features, and the polytope that each forms.

    Two features are linked where |cos(W_i, W_j)| > `linked`; clusters are the connected components. Features in
    different clusters are nearly orthogonal, so that a shape like the octahedron, whose axes do not interfere, comes
    out as its parts: three antipodal pairs.

    Args:
      weights: `(m, n)`, W of one model; column i is the direction of feature i.
      represented: |W_i| from which a feature counts.
      linked: |cos| from which two features share dimensions.
      tolerance: see `nearest_polytope`.
    Returns:
      Clusters, the largest first.
    Raises:
      ValueError: weights that are not a finite matrix.
    Source: Elhage et al. 2022, "The Geometry of Superposition", who find the shapes by eye.
    """
    w = np.asarray(weights, np.float64)
    if w.ndim != 2:
        raise ValueError(f"weights must be of one model, shape (m, n), got shape {w.shape}")
    measures = feature_measures(w, represented=represented)
    stored = np.flatnonzero(measures.represented)
    if not len(stored):
        return []
    units = (w[:, stored] / measures.norms[stored]).T
    _, labels = connected_components(np.abs(units @ units.T) > linked, directed=False)
    clusters = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        shape = nearest_polytope(units[members], tolerance)
        mean = float(measures.dimensionality[stored[members]].mean())
        clusters.append(Cluster(tuple(stored[members].tolist()), shape, mean))
    return sorted(clusters, key=lambda cluster: (-len(cluster.features), cluster.features))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
