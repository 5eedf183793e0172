"""A real model: its concepts are directions, and separable ones are orthogonal under the causal inner product."""

import os
from pathlib import Path

import jax
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.checkpoints.words import Words
from repcap_jax.concepts import (
    built_in_concepts,
    causal_inner_product,
    concept_direction,
    euclidean_inner_product,
    heat_map,
    permutation_test,
    separations,
    usable,
)
from repcap_jax.embeddings import ask, built_in_analogies, parse_analogy, scores

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("REPCAP_TEST_GGUF" not in os.environ, reason="REPCAP_TEST_GGUF names no SmolLM2 GGUF file"),
]

MORPHOLOGICAL = ("verb", "noun", "adjective", "derivation", "negation")


@pytest.fixture(scope="module")
def model():
    with open_checkpoint(Path(os.environ["REPCAP_TEST_GGUF"])) as checkpoint:
        return checkpoint.unembedding(), Words(checkpoint.tokenizer())


def test_concepts_stand_out_and_separable_ones_are_orthogonal(model):
    x, words = model
    concepts, left_out = usable(built_in_concepts(), words, len(x), min_pairs=10)
    assert len(concepts) >= 20 and not left_out
    causal, plain = causal_inner_product(x), euclidean_inner_product(x.shape[1])
    directions = [concept_direction(x, pairs, causal) for pairs in concepts]
    found = separations(x, directions, causal, jax.random.key(0), random_pairs=20_000, bootstraps=100)
    morphological = [s.auc.value for c, s in zip(concepts, found) if c.group in MORPHOLOGICAL]
    assert len(morphological) >= 10 and min(morphological) > 0.95
    assert min(separation.auc.value for separation in found) > 0.8
    maps = [heat_map(directions, "causal")]
    maps.append(heat_map([concept_direction(x, pairs, plain) for pairs in concepts], "euclidean"))
    test = permutation_test(*maps, jax.random.key(1), permutations=2000)
    assert maps[0].off_block < 0.1 < maps[1].off_block and test.p_value < 0.01


def test_analogies(model):
    x, words = model
    found = scores(ask(x, words, built_in_analogies()))["all"]
    assert found.n == 100 and found.accuracy_1 > 0.65 and found.accuracy_10 > 0.9
    (queen,) = ask(x, words, [parse_analogy("king-man+woman=queen")])
    assert queen.answer.rank == 1
