"""Closed forms for toy models: what the linear model can reach, and what each phase of a small model costs."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Shaped
from scipy.optimize import minimize

from repcap_jax.kernels.checks import whole
from repcap_jax.superposition.instances import check_features

_CLEARLY = 1e-6  # relative difference from which one loss is smaller than another
_NUDGE = 1e-6  # of the central differences that the search for the best antipodal pair uses
PHASES = ("ignored", "dedicated", "antipodal")
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)  # exact for the polynomials of degree 7 that occur at most


class LinearOptimum(NamedTuple):
    """The least loss of the linear model; `exact` is False where the value is only a lower bound of it."""

    loss: float
    exact: bool


def feature_moments(
    n: int, sparsity: float | int, features: str = "independent", set_size: int = 1
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n n"]]:
    """Mean and covariance of the features that `sparse_features` draws.

        mean p/2,   variance p/3 - p^2/4,   p = 1 - S
        covariance within a set p/4 - p^2/4 (correlated) or -p^2/4 (anticorrelated), 0 elsewhere

    Args:
      n: features.
      sparsity: S in [0, 1).
      features, set_size: see `sparse_features`.
    Returns:
      `(n,)` means and `(n, n)` covariance.
    Raises:
      TypeError, ValueError: for values out of range.
    """
    n = whole(n, "n")
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity S must be in [0, 1), got {sparsity}")
    check_features(features, set_size, n, np.array([sparsity]))
    p = 1 - sparsity
    together = {"independent": 0.0, "correlated": (p - p**2) / 4, "anticorrelated": -(p**2) / 4}[features]
    sets = np.arange(n) // set_size
    covariance = np.where(sets[:, None] == sets, together, 0.0)
    np.fill_diagonal(covariance, p / 3 - p**2 / 4)
    return np.full(n, p / 2), covariance


def linear_loss(
    weights: Shaped[np.ndarray, "m n"],
    biases: Shaped[np.ndarray, " n"],
    importance: Shaped[np.ndarray, " n"],
    moments: tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n n"]],
) -> float:
    """The expected loss of a linear model, exactly, from mean mu and covariance C of the features.

        sum_i I_i [(A C A^T)_ii + ((A mu)_i - b_i)^2],     A = 1 - W^T W

    Args:
      weights, biases: of one model.
      importance: I_i.
      moments: from `feature_moments`.
    Returns:
      The loss.
    """
    mean, covariance = moments
    w = np.asarray(weights, np.float64)
    missed = np.eye(w.shape[1]) - w.T @ w
    spread = np.einsum("ij,jk,ik->i", missed, covariance, missed)
    return float(np.asarray(importance, np.float64) @ (spread + (missed @ mean - biases) ** 2))


def linear_optimum(
    importance: Shaped[np.ndarray, " n"], m: int, covariance: Float64[np.ndarray, "n n"]
) -> LinearOptimum:
    """The least loss of the linear model x' = W^T W x + b with m hidden dimensions.

        sum over j > m of lambda_j,     lambda_1 >= lambda_2 >= .. the eigenvalues of D^(1/2) C D^(1/2), D = diag(I)

    The bias takes the mean away. A map of rank m cannot miss less than the tail (Eckart and Young), and W^T W, which
    is symmetric, reaches it where D and C commute: for independent features, which have one variance, it keeps the m
    most important ones and loses var (I_(m+1) + .. + I_(n)); for equal importance it is principal component analysis.

    Args:
      importance: I_i, none negative.
      m: hidden dimensions, >= 1; nothing is lost for m >= n.
      covariance: C, from `feature_moments`.
    Returns:
      LinearOptimum; not exact where D and C do not commute.
    Raises:
      TypeError, ValueError: for values out of range.
    Source: Elhage et al. 2022, "Linear Model", who describe it as PCA; Eckart and Young 1936.
    """
    m, importance = whole(m, "m"), np.asarray(importance, np.float64)
    if not (np.isfinite(importance) & (importance >= 0)).all():
        raise ValueError(f"importance must be finite and not negative, got {importance}")
    root = np.sqrt(importance)
    values = np.linalg.eigvalsh(root[:, None] * covariance * root)[::-1]
    commute = np.allclose(importance[:, None] * covariance, covariance * importance, rtol=0, atol=1e-12)
    return LinearOptimum(float(np.maximum(values[m:], 0.0).sum()), commute or m >= len(importance))


class PhaseLosses(NamedTuple):
    """Loss of each phase of one extra feature; the smallest is what training should find."""

    ignored: Float64[np.ndarray, "*cells"]
    dedicated: Float64[np.ndarray, "*cells"]
    antipodal: Float64[np.ndarray, "*cells"]

    def best(self) -> np.ndarray:
        """Places in `PHASES` of the phase with the smallest loss.

        The first one counts where others are not clearly smaller: the best antipodal pair may be one of a length that
        tends to 0, and is then the phase in which that feature is ignored.
        """
        losses = np.stack(self)
        return np.argmax(losses <= losses.min(axis=0) * (1 + _CLEARLY), axis=0)


def phase_losses(
    m: int,
    sparsity: Float[np.ndarray, "*cells"] | float | int,
    relative_importance: Float[np.ndarray, "*cells"] | float | int,
) -> PhaseLosses:
    """Losses of what n = m + 1 features in m dimensions can do, the last one of importance r, the others of 1.

        ignored:    the last feature's mean stands for it               r v,             v = p/3 - p^2/4, p = 1 - S
        dedicated:  it has a dimension to itself; one of the others is ignored, v, or, for m >= 2, two of them are an
                    antipodal pair, p^2/3
        antipodal:  it and another one are W_i = -W_j of length 1       (1 + r) p^2/6

    An antipodal pair with b = 0 is reconstructed exactly unless both are active (probability p^2), and then each lacks
    min(x_i, x_j), whose mean square is 1/6.

    Args:
      m: hidden dimensions, >= 1.
      sparsity: S in [0, 1).
      relative_importance: r > 0, of the same shape or one number.
    Returns:
      PhaseLosses of that shape.
    Raises:
      TypeError, ValueError: for values out of range.
    Source: Elhage et al. 2022, "Superposition as a Phase Change". These are the losses of plain weights and biases;
      `antipodal_optimum` is what the best ones reach.
    """
    p, r = _density_and_importance(sparsity, relative_importance)
    m = whole(m, "m")
    variance = p / 3 - p**2 / 4
    others = variance if m == 1 else np.minimum(variance, p**2 / 3)
    return PhaseLosses(*map(np.asarray, (r * variance, others, (1 + r) * p**2 / 6)))


def optimal_phase_losses(
    m: int,
    sparsity: Float[np.ndarray, "*cells"] | float | int,
    relative_importance: Float[np.ndarray, "*cells"] | float | int,
) -> PhaseLosses:
    """As `phase_losses`, with the best lengths and biases of every antipodal pair: what training can reach.

    Args:
      m, sparsity, relative_importance: see `phase_losses`.
    Returns:
      PhaseLosses.
    Raises:
      TypeError, ValueError: for values out of range.
    """
    plain = phase_losses(m, sparsity, relative_importance)
    p, r = _density_and_importance(sparsity, relative_importance)
    best = np.vectorize(lambda p, r: antipodal_optimum(1 - p, r)[0], otypes=[float])
    dedicated = plain.dedicated if whole(m, "m") == 1 else np.minimum(plain.ignored / r, best(p, np.ones_like(r)))
    return PhaseLosses(plain.ignored, np.asarray(dedicated), np.asarray(best(p, r)))


def antipodal_loss(
    sparsity: float | int,
    relative_importance: float | int,
    lengths: tuple[float | int, float | int],
    biases: tuple[float | int, float | int],
) -> float:
    """Expected loss of two features in one dimension, W = (a, -c), exactly.

        E (x_1 - max(0, a^2 x_1 - a c x_2 + b_1))^2 + r E (x_2 - max(0, c^2 x_2 - a c x_1 + b_2))^2

    The sums over which of the two are active; where both are, the square is integrated as the piecewise polynomial
    that it is.

    Args:
      sparsity: S in [0, 1).
      relative_importance: r.
      lengths: a, c >= 0.
      biases: b_1, b_2.
    Returns:
      The loss.
    """
    return float(_antipodal_losses(1 - sparsity, relative_importance, np.array([[*lengths, *biases]], np.float64))[0])


def _antipodal_losses(p: float | int, r: float | int, parameters: Float64[np.ndarray, "n 4"]) -> np.ndarray:
    a, c, *biases = parameters.T
    return _missed(p, a * a, a * c, biases[0]) + r * _missed(p, c * c, a * c, biases[1])


@functools.lru_cache(maxsize=4096)
def antipodal_optimum(sparsity: float | int, relative_importance: float | int) -> tuple[float, tuple[float, ...]]:
    """The best antipodal pair: its loss, and (a, c, b_1, b_2).

    Args:
      sparsity: S in [0, 1).
      relative_importance: r >= 0.
    Returns:
      Loss and parameters, by descent from a = c = 1, b = 0 and from there with positive biases; never worse than the
      former.
    """
    scale = float(phase_losses(1, sparsity, relative_importance).antipodal)

    nudges = _NUDGE * np.concatenate([np.zeros((1, 4)), np.eye(4), -np.eye(4)])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        values = _antipodal_losses(1 - sparsity, relative_importance, parameters + nudges) / scale
        return float(values[0]), (values[1:5] - values[5:]) / (2 * _NUDGE)

    bounds = [(0, None), (0, None), (None, None), (None, None)]
    starts = [(1.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.2, 0.2)]
    found = min(
        (minimize(loss, x, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-10}) for x in starts),
        key=lambda result: result.fun,
    )
    if found.fun > 1:
        return scale, starts[0]
    return float(found.fun * scale), tuple(float(value) for value in found.x)


def _density_and_importance(sparsity: Any, relative_importance: Any) -> tuple[np.ndarray, np.ndarray]:
    sparsity, r = np.broadcast_arrays(np.asarray(sparsity, np.float64), np.asarray(relative_importance, np.float64))
    if not ((sparsity >= 0) & (sparsity < 1)).all():
        raise ValueError("every sparsity S must be in [0, 1)")
    if not (np.isfinite(r) & (r > 0)).all():
        raise ValueError("every relative importance must be a positive number")
    return np.asarray(1 - sparsity), r


def _missed(p: float | int, own: np.ndarray, other: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """E (x - max(0, own x - other y + bias))^2 for independent sparse x and y of density p, for several at once."""
    own, other, bias = (np.asarray(values, np.float64)[:, None] for values in (own, other, bias))
    # Where the output's kink enters or leaves [0, 1], one polynomial of x gives way to another.
    slope, rise = np.where(own > 0, own, 1.0), np.where(other > 0, other, 1.0)
    enters, leaves = -bias / slope, (other - bias) / slope
    both = _integral(lambda x: _over_other(x, own * x + bias, other), enters, leaves)
    only_own = _integral(lambda x: (x - np.maximum(own * x + bias, 0.0)) ** 2, enters)
    only_other = _integral(lambda y: np.maximum(bias - other * y, 0.0) ** 2, bias / rise)
    q = 1 - p
    return q * q * np.maximum(bias[:, 0], 0.0) ** 2 + p * q * (only_own + only_other) + p * p * both


def _over_other(x: np.ndarray, z: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The integral over y in [0, 1] of (x - max(0, z - other y))^2."""
    rise = np.where(other > 0, other, 1.0)
    kink = np.clip(z / rise, 0.0, 1.0)
    sloping = ((x - z + rise * kink) ** 3 - (x - z) ** 3) / (3 * rise) + x**2 * (1 - kink)
    return np.where(other > 0, sloping, (x - np.maximum(z, 0.0)) ** 2)


def _integral(function: Any, *breaks: np.ndarray) -> np.ndarray:
    """The integrals over [0, 1] of polynomials of degree 7 at most on each piece between the breaks, one row each."""
    inside = [np.clip(value, 0.0, 1.0) for value in breaks]
    ends = np.sort(np.concatenate([np.zeros_like(breaks[0]), *inside, np.ones_like(breaks[0])], axis=1), axis=1)
    half = np.diff(ends, axis=1) / 2
    x = (ends[:, :-1] + half)[..., None] + half[..., None] * _NODES
    weights = half[..., None] * _WEIGHTS
    return (weights.reshape(len(x), -1) * function(x.reshape(len(x), -1))).sum(axis=1)
