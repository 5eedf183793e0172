"""Inner products on the unembedding space: the causal one, the Euclidean one, and a random one of equal spectrum."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Float64

from repcap_jax.kernels.covariance import row_covariance
from repcap_jax.kernels.placement import check_matrix

FLOOR = 1e-6


@dataclasses.dataclass(frozen=True)
class InnerProduct:
    """`<u, v> = u^T S^-1 v` for a positive definite `S = V diag(variances) V^T`; Euclidean where S is the identity.

    Vectors are rows, as everywhere.

    Attributes:
      name: "causal", "euclidean" or "random".
      basis: `(d, d)` orthonormal eigenvectors V as columns; None for the identity.
      variances: `(d,)` eigenvalues of S after the floor, falling.
      floor: the least of them that was allowed, 0 where none was needed.
      floored: how many were raised to it.
      excluded_rows: rows of the unembedding that took no part.
    """

    name: str
    basis: Float64[np.ndarray, "d d"] | None
    variances: Float64[np.ndarray, " d"]
    floor: float = 0.0
    floored: int = 0
    excluded_rows: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def d_model(self) -> int:
        """Width of the vectors."""
        return len(self.variances)

    def whiten(self, x: Any) -> Float64[np.ndarray, "*rows d"]:
        """`S^-1/2 x`: Euclidean inner products of what comes out are `<u, v>` of what went in."""
        return self._power(x, -0.5)

    def unwhiten(self, z: Any) -> Float64[np.ndarray, "*rows d"]:
        """`S^1/2 z`, the inverse of `whiten`."""
        return self._power(z, 0.5)

    def to_embedding(self, direction: Any) -> Float64[np.ndarray, "*rows d"]:
        """`S^-1 c`: the embedding representation of a concept from its unembedding representation c (Theorem 3.2)."""
        return self._power(direction, -1.0)

    def to_unembedding(self, direction: Any) -> Float64[np.ndarray, "*rows d"]:
        """`S e`: the unembedding representation of a concept from its embedding representation e."""
        return self._power(direction, 1.0)

    def inner(self, u: Any, v: Any) -> Float64[np.ndarray, "*rows"] | float:
        """`u^T S^-1 v`, row by row where u and v hold several."""
        found = np.sum(self.whiten(u) * self.whiten(v), axis=-1)
        return float(found) if np.ndim(found) == 0 else found

    def to_record(self) -> dict[str, Any]:
        """Spectrum and floor as valid JSON."""
        return {
            "name": self.name,
            "d_model": self.d_model,
            "largest_variance": float(self.variances[0]),
            "smallest_variance": float(self.variances[-1]),
            "condition": float(self.variances[0] / self.variances[-1]),
            "floor": self.floor,
            "floored": self.floored,
            "excluded_rows": {"count": len(self.excluded_rows), "ids": self.excluded_rows[:1000].tolist()},
        }

    def _power(self, x: Any, exponent: float) -> np.ndarray:
        values = np.asarray(x, np.float64)
        if values.shape[-1:] != self.variances.shape:
            raise ValueError(f"expected vectors of length {self.d_model}, got shape {values.shape}")
        if self.basis is None:
            return values * self.variances**exponent
        return (values @ self.basis * self.variances**exponent) @ self.basis.T


def causal_inner_product(unembedding: Any, *, floor: float = FLOOR) -> InnerProduct:
    """`<u, v>_C = u^T Cov(gamma)^-1 v` with gamma a row of the unembedding drawn at random.

    Eigenvalues of the covariance below `floor` times the largest are raised to it, so that a rank-deficient covariance
    (padding, repeated rows, n <= d) gives finite numbers; how many were is recorded.

    Args:
      unembedding: `(n, d)`, W_U; may be memory-mapped.
      floor: least eigenvalue, as a share of the largest.
    Returns:
      InnerProduct.
    Raises:
      TypeError, ValueError: fewer than two usable rows, rows that are all the same, or a floor outside (0, 1].
    Source: Park, Choe, Veitch 2024 (arXiv:2311.03658), equation (3.3). Its code inverts the covariance without a floor.
    """
    if not 0 < floor <= 1:
        raise ValueError(f"floor is a share of the largest eigenvalue, above 0 and at most 1, got {floor}")
    found = row_covariance(unembedding)
    values, vectors = np.linalg.eigh(found.covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0:
        raise ValueError("all usable rows are the same, so their covariance is zero and gives no inner product")
    least = float(floor * values[0])
    low = values < least
    return InnerProduct("causal", vectors, np.where(low, least, values), least, int(low.sum()), found.excluded_rows)


def euclidean_inner_product(d_model: int) -> InnerProduct:
    """`<u, v> = u^T v`.

    Args:
      d_model: width of the vectors.
    """
    if d_model < 1:
        raise ValueError(f"d_model must be at least 1, got {d_model}")
    return InnerProduct("euclidean", None, np.ones(d_model))


def random_inner_product(key: Array, like: InnerProduct) -> InnerProduct:
    """An inner product with the spectrum of another one and eigenvectors drawn uniformly: what its shape alone does.

    Args:
      key: random key.
      like: whose spectrum to take.
    Returns:
      InnerProduct.
    Departs from the paper's own code, which draws a random positive definite matrix of another spectrum.
    """
    gaussian: Float[Array, "d d"] = jax.random.normal(key, (like.d_model, like.d_model))
    basis, triangle = np.linalg.qr(np.asarray(gaussian, np.float64))
    return InnerProduct("random", basis * np.sign(np.diag(triangle)), like.variances, like.floor, like.floored)


def check_unembedding(unembedding: Any, product: InnerProduct) -> np.ndarray:
    """The unembedding as a matrix of the inner product's width.

    Raises:
      TypeError, ValueError: it is none.
    """
    x = check_matrix(unembedding, "unembedding")
    if x.shape[1] != product.d_model:
        raise ValueError(f"the inner product is of width {product.d_model}, the unembedding has shape {x.shape}")
    return x
