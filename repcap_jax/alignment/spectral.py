"""Spectral metrics of one layer's hidden states, each in the form of its source. Plain NumPy in float64.

With X = H - mean, eigenvalues lambda_1 >= lambda_2 >= .. of its covariance X^T X / (n - 1), v_1 the first principal
direction, and V the readout subspace.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from repcap_jax.alignment.checks import check_basis, check_hidden

# RankMe's epsilon for float32 representations.
_RANKME_EPSILON = 1e-7
_ROUNDING = 1e-6  # singular values below this share of the largest are rounding of float32 states


@dataclasses.dataclass(frozen=True)
class SpectralMetrics:
    """Spectral metrics of one layer. A quantity that does not exist is NaN here, null with a reason in the record.

    Attributes:
      pc1_readout_share: |V^T v_1|^2, the share of PC1's squared norm inside the readout subspace; k / d by chance.
      pc1_variance_share: lambda_1 / sum_i lambda_i.
      readout_variance_share: |X V|_F^2 / |X|_F^2; k / d if isotropic.
      rankme: exp(-sum_i p_i ln p_i), p_i = sigma_i / sum_j sigma_j + 1e-7, of the singular values of H (Garrido et al.
        2023, arXiv:2210.02885, eq. 2; not of the eigenvalues, and H is not centred).
      alpha_req: alpha in lambda_i ~ i^-alpha, least squares of ln lambda_i on ln i over `alpha_range` (Agrawal et al.
        2022, NeurIPS, alpha-ReQ).
      alpha_r2: R^2 of that fit.
      alpha_range: first and last i of the fit.
      isotropy: min_c Z(c) / max_c Z(c), Z(c) = sum_i exp(c . h_i), over the eigenvectors +-c of H^T H (Mu and Viswanath
        2018, arXiv:1702.01417, I(W)); 1 if isotropic. Far below float64's range for long states: see `log_isotropy`.
      log_isotropy: its natural logarithm.
      condition_number: sigma_1 / sigma_r of X, r = min(n - 1, d).
      participation_ratio: (sum lambda)^2 / sum lambda^2 (Gao et al. 2017, bioRxiv 214262, eq. 4).
      average_cosine: mean of cos(h_i, h_j) over all pairs i < j of H, not centred (Ethayarajh 2019, arXiv:1909.00512,
        section 4.1, there over sampled pairs).
      eigenvalues: `(min(n, d),)` of the covariance, falling.
      n, d, k: states, width, dimension of the readout subspace.
    """

    pc1_readout_share: float
    pc1_variance_share: float
    readout_variance_share: float
    rankme: float
    alpha_req: float
    alpha_r2: float
    alpha_range: tuple[int, int]
    isotropy: float
    log_isotropy: float
    condition_number: float
    participation_ratio: float
    average_cosine: float
    eigenvalues: Float64[np.ndarray, " r"]
    n: int
    d: int
    k: int

    def to_record(self) -> dict[str, Any]:
        """The numbers but the eigenvalues, as valid JSON."""
        record = {name: value for name, value in dataclasses.asdict(self).items() if name != "eigenvalues"}
        record["alpha_range"] = list(self.alpha_range)
        reasons = {
            "condition_number": "the states span fewer than min(n - 1, d) dimensions",
            "alpha_req": "fewer than three eigenvalues to fit",
            "alpha_r2": "fewer than three eigenvalues to fit",
        }
        for name, reason in reasons.items():
            if not math.isfinite(record[name]):
                record |= {name: None, f"{name}_reason": reason}
        return record


def spectral_metrics(hidden: Any, readout: Any, *, alpha_range: tuple[int, int] | None = None) -> SpectralMetrics:
    """Spectral metrics of one layer's hidden states; equations and sources stand at `SpectralMetrics`.

    Args:
      hidden: `(n, d)` states as for `alignment_score`.
      readout: `(d, k)` orthonormal columns, k < d.
      alpha_range: first and last rank i of the power-law fit; `None` for 11 to a tenth below the rank of the data (the
        first few and the noisy end are off the law), or 1 .. rank where fewer than 30 are left.
    Returns:
      SpectralMetrics.
    Raises:
      TypeError, ValueError: for bad states or a bad basis, or a range outside 1 .. min(n - 1, d).
    """
    states = check_hidden(hidden).astype(np.float64)
    n, d = states.shape
    basis = check_basis(readout, "readout", d).astype(np.float64)
    centred = states - states.mean(axis=0)
    centred -= centred.mean(axis=0)
    singular, first = _singular(centred)
    eigenvalues = singular**2 / (n - 1)
    total = eigenvalues.sum()
    rank = int(np.sum(singular[: n - 1] > _ROUNDING * singular[0]))
    fit = _alpha_range(alpha_range, rank, min(n - 1, d))
    alpha, r2 = _power_law(eigenvalues, fit)
    raw, directions = _principal_axes(states)
    log_isotropy = _log_isotropy(states, directions)
    return SpectralMetrics(
        pc1_readout_share=float(np.sum((basis.T @ first) ** 2)),
        pc1_variance_share=float(eigenvalues[0] / total),
        readout_variance_share=float(np.sum((centred @ basis) ** 2) / np.sum(centred**2)),
        rankme=_rankme(raw),
        alpha_req=alpha,
        alpha_r2=r2,
        alpha_range=fit,
        isotropy=math.exp(log_isotropy),
        log_isotropy=log_isotropy,
        condition_number=float(singular[0] / singular[rank - 1]) if rank == min(n - 1, d) else math.nan,
        participation_ratio=float(total**2 / np.sum(eigenvalues**2)),
        average_cosine=_average_cosine(states),
        eigenvalues=eigenvalues,
        n=n,
        d=d,
        k=basis.shape[1],
    )


def _principal_axes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values, falling, and right singular vectors as columns, through the smaller Gram matrix."""
    n, d = x.shape
    gram = x.T @ x if d <= n else x @ x.T
    values, vectors = np.linalg.eigh(gram)
    singular = np.sqrt(np.maximum(values[::-1], 0.0))
    vectors = vectors[:, ::-1]
    if d > n:
        kept = singular > _ROUNDING * singular[0]
        vectors = (x.T @ vectors[:, kept]) / singular[kept]
    return singular, vectors


def _singular(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values, falling, and the first right singular vector."""
    singular, vectors = _principal_axes(x)
    return singular, vectors[:, 0]


def _rankme(singular: np.ndarray) -> float:
    p = singular / singular.sum() + _RANKME_EPSILON
    return float(np.exp(-np.sum(p * np.log(p))))


def _alpha_range(given: tuple[int, int] | None, rank: int, largest: int) -> tuple[int, int]:
    if given is None:
        last = int(0.9 * rank)
        return (11, last) if last - 11 >= 30 else (1, rank)
    first, last = given
    if not 1 <= first < last <= largest:
        raise ValueError(f"alpha_range must lie in 1 .. {largest} = min(n - 1, d), first below last, got {given}")
    return int(first), min(int(last), rank)


def _power_law(eigenvalues: np.ndarray, fit: tuple[int, int]) -> tuple[float, float]:
    """alpha and R^2 of ln lambda_i = c - alpha ln i; NaN for fewer than three points."""
    first, last = fit
    if last - first < 2:
        return math.nan, math.nan
    x, y = np.log(np.arange(first, last + 1)), np.log(eigenvalues[first - 1 : last])
    slope, intercept = np.polyfit(x, y, 1)
    spread = np.sum((y - y.mean()) ** 2)
    residual = np.sum((y - slope * x - intercept) ** 2)
    return float(-slope), float(1 - residual / spread) if spread > 0 else math.nan


def _log_isotropy(states: np.ndarray, directions: np.ndarray) -> float:
    projected = states @ directions
    along = []
    for sign in (1.0, -1.0):
        peak = (sign * projected).max(axis=0)
        along.append(peak + np.log(np.exp(sign * projected - peak).sum(axis=0)))
    if directions.shape[1] < states.shape[1]:  # the other eigenvectors are at right angles to every state
        along.append(np.array([np.log(len(states))]))
    both = np.concatenate(along)
    return float(both.min() - both.max())


def _average_cosine(states: np.ndarray) -> float:
    units = states / np.linalg.norm(states, axis=1, keepdims=True)
    n = len(units)
    return float((np.sum(units.sum(axis=0) ** 2) - n) / (n * (n - 1)))
