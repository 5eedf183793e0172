"""Memory of a layer: under 1 GiB for 1,000 states and 100 nulls, and 4,000 states go through."""

import pytest

from tests.processes import measured

_SCORE = """
    import sys
    import jax, numpy as np
    from repcap_jax import alignment_score
    n, d, k, nulls = (int(argument) for argument in sys.argv[1:])
    rng = np.random.default_rng(0)
    readout = np.linalg.qr(rng.standard_normal((d, k)))[0]
    hidden = rng.standard_normal((n, d), np.float32)
    found = alignment_score(hidden, readout, jax.random.key(0), nulls=nulls)
    assert abs(found.z) < 5 and found.method_used == "binned", (found.z, found.method_used)
    print(peak())
"""


def peak_of_a_layer(*arguments):
    """Peak memory of a process that scores one layer, libraries and compiler included, in bytes."""
    return measured(_SCORE, *arguments)[0]


@pytest.mark.slow
def test_a_thousand_states_and_a_hundred_nulls():
    assert peak_of_a_layer(1000, 576, 100, 100) < 2**30


@pytest.mark.slow
def test_four_thousand_states():
    assert peak_of_a_layer(4000, 256, 32, 3) < 2**31
