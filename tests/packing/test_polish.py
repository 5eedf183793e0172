"""Float64 coherence in blocks, and the sharpening by linear programs."""

import math

import numpy as np
import pytest

from repcap_jax.packing import exact_coherence, sharpen


def random_rows(k, d, seed=0):
    return np.random.default_rng(seed).standard_normal((k, d))


@pytest.mark.parametrize("objective", ["lines", "codes"])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_coherence_in_blocks(objective, block):
    rows = random_rows(40, 6)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(40, 1)]
    expected = np.abs(cosines).max() if objective == "lines" else cosines.max()
    assert exact_coherence(rows, objective, block) == pytest.approx(expected, abs=1e-15)


def test_coherence_of_opposed_vectors():
    rows = np.array([[1.0, 0.0], [-2.0, 0.0]])
    assert exact_coherence(rows, "codes") == -1.0 and exact_coherence(rows, "lines") == 1.0


def test_sharpens_a_disturbed_optimum_to_float64():
    """The icosahedron: six lines of R^3 at 1/sqrt 5, and twelve points at the same cosine."""
    golden = (1 + math.sqrt(5)) / 2
    lines = np.array([row for a in (1, -1) for row in ([0, a, golden], [a, golden, 0], [golden, 0, a])])
    points = np.concatenate([lines, -lines])
    for rows, objective in [(lines, "lines"), (points, "codes")]:
        disturbed = rows + 1e-2 * random_rows(*rows.shape)
        assert exact_coherence(disturbed, objective) > 0.45
        found = sharpen(disturbed, objective)
        assert exact_coherence(found, objective) == pytest.approx(1 / math.sqrt(5), abs=2e-9)


def test_never_worse_and_stops_at_the_floor():
    rows = random_rows(9, 3)
    before = exact_coherence(rows, "lines")
    assert exact_coherence(sharpen(rows, "lines", rounds=3), "lines") < before
    np.testing.assert_allclose(exact_coherence(sharpen(rows, "lines", floor=before), "lines"), before, atol=1e-15)


@pytest.mark.parametrize("vectors", [np.eye(3)[:1], np.zeros((0, 4)), np.diag([1.0, 0, 1]), np.diag([1.0, np.nan, 1])])
def test_vectors_without_a_coherence(vectors):
    with pytest.raises(ValueError, match="a packing"):
        exact_coherence(vectors, "lines")
    with pytest.raises(ValueError, match="objective must be one of"):
        exact_coherence(np.eye(3), "Lines")
