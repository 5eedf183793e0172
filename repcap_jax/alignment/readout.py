"""The readout subspace: the directions of the residual stream that the unembedding reads most, or least."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32

from repcap_jax.kernels.checks import whole
from repcap_jax.kernels.placement import check_matrix
from repcap_jax.kernels.spectra import right_singular_vectors

PARTS = ("top", "bottom")


def readout_subspace(
    W_U: Any, k: int, *, centre: bool = False, gain: Any = None, part: str = "top"
) -> Float32[np.ndarray, "d k"]:
    """An orthonormal basis of the readout subspace, the top k right singular vectors of the unembedding.

        W_U = U S V^T,      V_k = V[:, :k]

    They come from `eigh` of the d x d matrix W_U^T W_U, summed in tiles, never from an SVD of (vocab, d). The first
    k' columns are the basis for k' < k.

    Args:
      W_U: `(vocab, d)` unembedding, tokens as rows, as in checkpoint files.
      k: dimension of the subspace, 1 .. d - 1.
      centre: subtract the mean row first. A row added to all of W_U changes no probability.
      gain: `(d,)` weight of the final norm, folded into W_U: the logits are W_U diag(gain) normed(h).
      part: `"top"`, or `"bottom"` for the k directions read least, the least first (a control).
    Returns:
      `(d, k)` float32 orthonormal columns.
    Raises:
      TypeError, ValueError: if W_U is not a matrix of finite real numbers, k or the length of gain does not fit it, or
        part is unknown.
    Source: Xu 2026 (arXiv:2605.17084), readout subspace; centring, gain and the bottom part are options of ours.
    """
    d = check_matrix(W_U, "W_U").shape[1]
    k = whole(k, "k", 1)
    if k >= d:
        raise ValueError(f"the readout subspace must be smaller than the width: k = {k}, d = {d}")
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(map(repr, PARTS))}, got {part!r}")
    found = right_singular_vectors(W_U, k, centre=centre, scale=gain, largest=part == "top")
    return found.vectors.astype(np.float32)
