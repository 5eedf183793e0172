"""A fold holds the matrix once on the host and once on the device, and little beside it."""

import subprocess
import sys
import textwrap

import pytest

# 512 MiB of rows against a few columns: the memory of the largest walks, without their time.
_WALK = textwrap.dedent(
    """
    import resource, sys
    import numpy as np
    from repcap_jax.kernels.pairs import fold_pairs
    from repcap_jax.kernels.reducers import Histogram, NearestNeighbours

    n, d, symmetric = (int(argument) for argument in sys.argv[1:])
    x = np.zeros((n, d), np.float32)
    x[:] = np.random.default_rng(0).standard_normal(d, np.float32)
    x[:, 0] += np.arange(n)
    y = None if symmetric else x[:130].copy()
    fold_pairs(x, [Histogram(), NearestNeighbours()], y=y)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / x.nbytes, x.nbytes)
    """
)


def peak(n, d, symmetric):
    """Peak memory of the process, and the allowance, in bytes."""
    command = [sys.executable, "-c", _WALK, str(n), str(d), str(int(symmetric))]
    out = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    ratio, nbytes = (float(part) for part in out.split())
    return ratio * nbytes, 2.5 * nbytes + 2**30


def test_many_rows():
    used, allowed = peak(131_072, 1024, symmetric=False)
    assert used < allowed


@pytest.mark.slow
def test_a_symmetric_walk():
    used, allowed = peak(10_000, 8192, symmetric=True)
    assert used < allowed
