"""A fold holds the matrix once on the host and once on the device, and once more, normalised, while it runs."""

import pytest

from tests.processes import measured

# 512 MiB of rows against a few columns: the memory of the largest walks, without their time.
_WALK = """
    import sys
    import numpy as np
    from repcap_jax.kernels.pairs import fold_pairs
    from repcap_jax.kernels.reducers import Histogram, NearestNeighbours

    n, d, symmetric = (int(argument) for argument in sys.argv[1:])
    # What the process needs whatever the matrix is: libraries, compiler, tiles.
    fold_pairs(np.ones((3, d), np.float32), [Histogram(), NearestNeighbours()])
    before = peak()
    x = np.zeros((n, d), np.float32)
    x[:] = np.random.default_rng(0).standard_normal(d, np.float32)
    x[:, 0] += np.arange(n)
    y = None if symmetric else x[:130].copy()
    fold_pairs(x, [Histogram(), NearestNeighbours()], y=y)
    print(peak() - before, x.nbytes)
"""


def added(n, d, symmetric):
    """What a walk adds to the peak memory of the process, and the size of its matrix, in bytes."""
    return measured(_WALK, n, d, int(symmetric))


def test_many_rows():
    used, nbytes = added(131_072, 1024, symmetric=False)
    assert used < 3.3 * nbytes + 128 * 2**20


@pytest.mark.slow
def test_a_symmetric_walk():
    used, nbytes = added(10_000, 8192, symmetric=True)
    assert used < 3.3 * nbytes + 128 * 2**20
