"""The readout subspace against an SVD of the unembedding."""

import numpy as np
import pytest

from repcap_jax import readout_subspace
from tests.alignment.test_score import D, unembedding

W_U = unembedding() + np.linspace(0, 2, D, dtype=np.float32)


def exact(matrix):
    return np.linalg.svd(np.asarray(matrix, np.float64))[2]


def gap(a, b):
    return np.linalg.norm(a - b @ (b.T @ a), 2)


@pytest.mark.parametrize("part", ["top", "bottom"])
def test_options(part):
    gain = np.linspace(0.2, 3, D)
    for options, matrix in (
        ({}, W_U),
        ({"centre": True}, W_U - W_U.mean(axis=0)),
        ({"gain": gain}, W_U * gain),
        ({"centre": True, "gain": gain}, (W_U - W_U.mean(axis=0)) * gain),
    ):
        directions = exact(matrix)
        expected = directions[:5].T if part == "top" else directions[::-1][:5].T
        found = readout_subspace(W_U, 5, part=part, **options)
        assert found.dtype == np.float32 and gap(found.astype(np.float64), expected) < 1e-4


def test_bad_input():
    for call, says in (
        (lambda: readout_subspace(W_U, D), "smaller than the width"),
        (lambda: readout_subspace(W_U, 0), "at least 1"),
        (lambda: readout_subspace(W_U, 3, part="middle"), "part must be"),
        (lambda: readout_subspace(W_U, 3, gain=np.ones(3)), "scale"),
        (lambda: readout_subspace(np.full_like(W_U, np.inf), 3), "NaN or infinite"),
        (lambda: readout_subspace(W_U[0], 3), "matrix"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
