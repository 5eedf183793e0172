"""The demo's real model: SmolLM2-135M-Instruct, as `make test` fetches it."""

import os
from pathlib import Path

import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.embeddings.geometry import embedding_geometry
from repcap_jax.models import greedy_tokens, load_decoder, perplexity, read_documents
from repcap_jax.models.text import tokenise

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("REPCAP_TEST_GGUF" not in os.environ, reason="REPCAP_TEST_GGUF names no SmolLM2 GGUF file"),
]


@pytest.fixture(scope="module")
def found(mesh_of):
    with open_checkpoint(Path(os.environ["REPCAP_TEST_GGUF"])) as checkpoint:
        return embedding_geometry(checkpoint, mesh=mesh_of(2))


def test_published_numbers(found):
    distribution = found.matrices["embedding"].distribution
    assert (found.vocab_size, found.d_model, found.tied, found.family) == (49_152, 576, True, "llama")
    assert distribution.n_pairs == distribution.counts.sum() == 1_207_934_976
    assert round(distribution.mean, 5) == 0.44231
    assert round(distribution.std, 5) == 0.14318
    assert round(distribution.epsilon, 5) == 0.72868
    assert found.matrices["embedding"].capacity.geometry_class == "class 1"
    assert found.matrices["embedding"].capacity.indeterminate


def test_moments_agree_with_the_histogram(found):
    """Two independent ways to mu and sigma: the Gram matrix and 1.2 billion binned pairs."""
    distribution = found.matrices["embedding"].distribution
    centres, density = distribution.density()
    weights = density / density.sum()
    mean = float((weights * centres).sum())
    assert distribution.mean == pytest.approx(mean, abs=2e-6)
    assert distribution.std == pytest.approx(float((weights * (centres - mean) ** 2).sum()) ** 0.5, abs=2e-6)


@pytest.fixture(scope="module")
def language_model():
    """The decoder and its tokenizer."""
    with open_checkpoint(Path(os.environ["REPCAP_TEST_GGUF"])) as checkpoint:
        return load_decoder(checkpoint), checkpoint.tokenizer()


def test_it_knows_the_capital(language_model):
    decoder, tokenizer = language_model
    start = tokenizer("The capital of France is")["input_ids"]
    assert tokenizer.decode(greedy_tokens(decoder, start, 4)).strip().startswith("Paris")


def test_perplexity_of_prose(language_model):
    """Rotations, permuted rows and the tokenizer must all be right for this."""
    decoder, tokenizer = language_model
    ids = tokenise(tokenizer, read_documents())
    rows = ids[: len(ids) // 128 * 128].reshape(-1, 128)[:: len(ids) // 128 // 8][:8]
    assert 15 < perplexity(decoder, rows) < 45
