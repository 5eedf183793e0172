"""Heat maps and the permutation test between two inner products."""

import itertools
import json

import jax
import numpy as np
import pytest

from repcap_jax.concepts.directions import concept_direction
from repcap_jax.concepts.heat_map import HeatMap, heat_map, permutation_test, separable_pairs
from repcap_jax.concepts.inner_product import causal_inner_product, euclidean_inner_product
from tests.concepts.builders import planted


def made_up(values, groups, product="p"):
    return HeatMap(product, tuple(f"c{i}" for i in range(len(groups))), tuple(groups), np.asarray(values, float))


def test_planted_concepts_are_closer_to_orthogonal_under_the_causal_product():
    x, _, concepts = planted(n_concepts=8, d=24, pairs=30)
    concepts = [type(c)(c.name, f"g{i}", c.rows, c.words, c.dropped) for i, c in enumerate(concepts)]
    causal, plain = causal_inner_product(x), euclidean_inner_product(24)
    maps = [
        heat_map([concept_direction(x, pairs, product) for pairs in concepts], product.name)
        for product in (causal, plain)
    ]
    assert maps[0].off_block < maps[1].off_block
    found = permutation_test(maps[0], maps[1], jax.random.key(0), permutations=4000)
    assert found.p_value < 0.01 and found.difference > 0 and not found.exact and found.blocks == 28
    back = permutation_test(maps[1], maps[0], jax.random.key(0), permutations=4000)
    assert back.p_value > 0.9 and back.difference == pytest.approx(-found.difference)
    json.dumps([found.to_record(), maps[0].to_record()], allow_nan=False)


def test_means_by_block():
    values = np.eye(4) + 0.1 * (1 - np.eye(4))
    values[0, 1] = values[1, 0] = 0.9
    found = made_up(values, "aabc")
    assert found.off_block == pytest.approx(0.1) and found.in_block == pytest.approx(0.9)
    assert separable_pairs(tuple("aabc")).sum() == 5
    lonely = made_up(values, "aaaa")
    assert lonely.off_block is None and lonely.to_record()["off_block_reason"]
    assert made_up(values, "abcd").in_block is None


def test_exact_enumeration():
    """Three blocks: the p-value is the share of the eight exchanges that reach the observed difference."""
    rng = np.random.default_rng(0)
    groups = tuple("aabc")
    first, second = (made_up(np.triu(rng.random((4, 4)), 1), groups, name) for name in ("x", "y"))
    found = permutation_test(first, second, jax.random.key(0), permutations=100)
    i, j = np.nonzero(separable_pairs(groups))
    gaps = (second.values - first.values)[i, j]
    blocks = [groups[a] + groups[b] for a, b in zip(i, j)]
    names = sorted(set(blocks))
    reached = 0
    for signs in itertools.product((1, -1), repeat=3):
        flipped = sum(gap * signs[names.index(block)] for gap, block in zip(gaps, blocks))
        reached += flipped >= gaps.sum() - 1e-12
    assert found.exact and found.permutations == 8 and found.p_value == reached / 8


def test_no_difference_is_not_significant():
    same = made_up(np.full((4, 4), 0.3), "abcd")
    assert permutation_test(same, same, jax.random.key(0), permutations=50).p_value == 1.0


def test_bad_input():
    a, b = made_up(np.eye(3), "abc"), made_up(np.eye(3), "aab")
    with pytest.raises(ValueError, match="different concepts"):
        permutation_test(a, b, jax.random.key(0))
    with pytest.raises(ValueError, match="one group"):
        permutation_test(made_up(np.eye(2), "aa"), made_up(np.eye(2), "aa"), jax.random.key(0))
    with pytest.raises(ValueError, match="permutations"):
        permutation_test(a, a, jax.random.key(0), permutations=0)
    with pytest.raises(ValueError, match="at least one"):
        heat_map([], "causal")
