"""Decoders of the parity checkpoints, loaded once."""

import functools

import jax
import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.models import load_decoder
from tests.models.parity import DATA


@pytest.fixture(autouse=True, scope="package")
def quick_compilation():
    """These tests compile many programs and run each once or twice."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def decoder_of():
    """`decoder_of(case)`: the decoder of one parity checkpoint."""

    @functools.cache
    def load(name):
        with open_checkpoint(DATA / name) as checkpoint:
            return load_decoder(checkpoint)

    return load


@pytest.fixture(scope="session")
def reference_of():
    """`reference_of(case)`: tokens, hidden states and logits by torch."""

    @functools.cache
    def load(name):
        with np.load(DATA / name / "reference.npz") as file:
            return dict(file)

    return load
