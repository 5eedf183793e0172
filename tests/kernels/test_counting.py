"""Counters that outgrow 32 bits, and the two ways to count."""

import jax.numpy as jnp
import numpy as np
import pytest

from repcap_jax.kernels.counting import Counter
from repcap_jax.kernels.pairs import pair_histogram


@pytest.mark.parametrize("strategy", ["auto", "scatter", "onehot"])
@pytest.mark.parametrize("bins", [1, 2, 3, 63, 64, 2000])
@pytest.mark.parametrize("shape", [(1,), (7, 13), (600, 700)])
def test_both_strategies_are_exact(strategy, bins, shape):
    index = np.random.default_rng(bins).integers(0, bins, shape).astype(np.int32)
    counter = Counter.zeros((bins,)).count(jnp.asarray(index), strategy)
    np.testing.assert_array_equal(counter.total(), np.bincount(index.ravel(), minlength=bins))


def test_one_full_bin_is_exact_beyond_float32_integers():
    """Twenty million equal entries: a float32 count would stop at 16,777,216."""
    index = jnp.zeros(20_000_000, jnp.int32)
    for strategy in ("scatter", "onehot"):
        assert Counter.zeros((3,)).count(index, strategy).total().tolist() == [20_000_000, 0, 0]


def test_counting_carries():
    """A bin on the verge of 2^32 moves on to the second limb."""
    full = Counter(jnp.array([2**32 - 2, 5], jnp.uint32), jnp.array([1, 0], jnp.uint32))
    index = jnp.array([0, 0, 0, 1], jnp.int32)
    for strategy in ("scatter", "onehot"):
        assert full.count(index, strategy).total().tolist() == [2**33 + 1, 6]


def test_counter_carries():
    counter = Counter.zeros((2,))
    step = np.array([2**31 - 1, 1], np.int32)
    for _ in range(9):
        counter = counter.add(jnp.asarray(step))
    assert counter.total().tolist() == [9 * (2**31 - 1), 9]
    doubled = counter.merge(counter)
    assert doubled.total().tolist() == [18 * (2**31 - 1), 18]
    assert doubled.total().dtype == np.int64


@pytest.mark.slow
def test_more_pairs_than_32_bits_count():
    """100,000 equal rows: 4,999,950,000 pairs in one bin."""
    n = 100_000
    x = np.ones((n, 2), np.float32)
    counts, _ = pair_histogram(x, bins=8, tile=1024)
    assert counts.tolist() == [0] * 7 + [n * (n - 1) // 2]
