"""Singular vectors through the Gram matrix, against an SVD in float64."""

import jax
import ml_dtypes
import numpy as np
import pytest

from repcap_jax.kernels.spectra import gram_matrix, principal_directions, right_singular_vectors

RNG = np.random.default_rng(0)


def graded(n, d, decay=0.5, shift=3.0):
    """Rows with a falling spectrum and a large mean row, as unembeddings have."""
    return ((RNG.standard_normal((n, d)) * np.arange(1, d + 1) ** -decay) + shift).astype(np.float32)


def subspace_gap(a, b):
    """Sine of the largest angle between two subspaces."""
    return np.linalg.norm(a - b @ (b.T @ a), 2)


@pytest.mark.parametrize("n", [5, 4096, 9000])
@pytest.mark.parametrize("centre", [False, True])
def test_gram_matrix(n, centre):
    x = graded(n, 16)
    exact = x.astype(np.float64) - (x.mean(axis=0, dtype=np.float64) if centre else 0)
    scale = RNG.uniform(0.5, 2, 16)
    found, expected = gram_matrix(x, centre=centre, scale=scale), (exact * scale).T @ (exact * scale)
    np.testing.assert_allclose(found, expected, atol=3e-7 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_right_singular_vectors(dtype):
    x = graded(3000, 24).astype(dtype)
    values, vectors = np.linalg.svd(x.astype(np.float64), full_matrices=False)[1:]
    top = right_singular_vectors(x, 5)
    np.testing.assert_allclose(top.values, values[:5], rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(top.vectors * vectors[:5].T, axis=0)), 1, atol=1e-6)
    assert subspace_gap(top.vectors, vectors[:5].T) < 1e-5
    bottom = right_singular_vectors(x, 3, largest=False)
    np.testing.assert_allclose(bottom.values, values[::-1][:3], rtol=1e-5)
    assert subspace_gap(bottom.vectors, vectors[::-1][:3].T) < 1e-4
    np.testing.assert_allclose(top.all_values, values, rtol=1e-4)


def test_fewer_columns_are_the_first_ones():
    x = graded(100, 8)
    five = right_singular_vectors(x, 5).vectors
    np.testing.assert_array_equal(right_singular_vectors(x, 3).vectors, five[:, :3])
    assert (five[np.abs(five).argmax(axis=0), range(5)] > 0).all()


@pytest.mark.parametrize("shape", [(200, 24), (20, 64)])
def test_principal_directions(shape):
    x = graded(*shape, decay=1.0)
    centred = x - x.mean(axis=0, dtype=np.float64)
    exact = np.linalg.svd(centred)[2]
    found = np.asarray(jax.jit(principal_directions, static_argnums=1)(centred.astype(np.float32), 3), np.float64)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-6)
    for m in (1, 2, 3):
        assert subspace_gap(found[:, :m], exact[:m].T) < 1e-4
    assert principal_directions(jax.numpy.asarray(centred), 0).shape == (shape[1], 0)


def test_bad_input():
    x = graded(10, 4)
    x[3, 2] = np.nan
    for call, says in (
        (lambda: right_singular_vectors(x, 2), "NaN"),
        (lambda: right_singular_vectors(graded(10, 4), 5), "k = 5"),
        (lambda: right_singular_vectors(graded(10, 4), 0), "k = 0"),
        (lambda: gram_matrix(graded(10, 4), scale=np.ones(3)), "scale"),
    ):
        with pytest.raises(ValueError, match=says):
            call()


@pytest.mark.parametrize("factor", [1e-30, 1e25])
def test_scale_does_not_matter(factor):
    """Squares of such entries are beyond float32."""
    x = np.random.default_rng(3).standard_normal((40, 5)) * [5, 4, 3, 2, 1]
    plain, scaled = right_singular_vectors(x, 2), right_singular_vectors(x * factor, 2)
    np.testing.assert_allclose(scaled.vectors, plain.vectors, atol=1e-6)
    np.testing.assert_allclose(scaled.values, plain.values * factor, rtol=1e-6)
