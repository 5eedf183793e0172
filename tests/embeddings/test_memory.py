"""A vocabulary of 262,144: everything that one walk keeps is per row, never per pair of rows."""

import pytest

from tests.processes import measured

# A rectangular walk: all rows of the largest vocabulary against a few, with the reducers of token_relations.
_WALK = """
    import numpy as np
    from repcap_jax.embeddings.relations import CountAbove
    from repcap_jax.kernels.pairs import fold_pairs
    from repcap_jax.kernels.listing import PairsAbove
    from repcap_jax.kernels.reducers import Histogram, NearestNeighbours

    n, d, others = 262_144, 32, 2048
    reducers = [Histogram(2000), NearestNeighbours(5), NearestNeighbours(1, opposed=True), PairsAbove(0.99, 4096)]
    reducers.append(CountAbove(0.5))
    small = np.ones((3, d), np.float32)
    fold_pairs(small, reducers, y=small)
    before = peak()
    x = np.random.default_rng(0).standard_normal((n, d), np.float32)
    found = fold_pairs(x, reducers, y=x[:others])
    assert found.n_pairs == n * others and found.results[1].ids.shape == (n, 5)
    assert (found.results[1].ids[:others, 0] == np.arange(others)).all()
    print(peak() - before, x.nbytes, n * others * 4)
"""


@pytest.mark.slow
def test_the_largest_vocabulary():
    used, matrix, pairs = measured(_WALK)
    assert used < 3 * matrix + 256 * 2**20 < pairs / 4
