"""Packings that are known to exist, reached with the default settings."""

import jax
import pytest

from repcap_jax.packing import pack

PROVEN = 1e-5  # the target meets a bound
FOUND = 1e-4  # best of many starts elsewhere

# d, k, largest |cos|, tolerance
LINES = [
    (3, 6, 0.4472136, PROVEN), (3, 7, 0.5773503, PROVEN), (3, 10, 0.6861407, FOUND), (3, 15, 0.7865586, FOUND),
    (4, 8, 0.4142136, FOUND), (4, 10, 0.4342586, FOUND), (4, 13, 0.5669153, FOUND), (4, 16, 0.6180340, FOUND),
    (4, 20, 0.6529859, FOUND), (5, 10, 0.3333333, PROVEN), (5, 16, 0.4472136, PROVEN), (5, 20, 0.5, FOUND),
    (6, 16, 0.3333333, PROVEN), (6, 36, 0.5, PROVEN), (7, 14, 0.2773501, PROVEN), (7, 28, 0.3333333, PROVEN),
    (7, 63, 0.5, PROVEN), (8, 20, 0.314479, FOUND), (8, 28, 0.333252, FOUND), (8, 120, 0.5, PROVEN),
]  # fmt: skip
# d, k, largest cos: Cohn's tables of spherical codes
CODES = [
    (3, 7, 0.2101383), (3, 8, 0.2612039), (3, 9, 1 / 3), (3, 10, 0.4043943), (5, 16, 0.2), (6, 27, 0.25),
    (7, 56, 1 / 3), (8, 240, 0.5),
]  # fmt: skip
# d, k, |cos| that an earlier optimiser reached from one random start; half a percent is allowed
LARGE = [(768, 2000, 0.0321)]


@pytest.mark.slow
@pytest.mark.parametrize("d, k, target, tolerance", LINES)
def test_lines(d, k, target, tolerance):
    assert pack(jax.random.key(0), k, d).coherence <= target + tolerance


@pytest.mark.slow
@pytest.mark.parametrize("d, k, target", CODES)
def test_codes(d, k, target):
    assert pack(jax.random.key(0), k, d, objective="codes").coherence <= target + FOUND


@pytest.mark.slow
@pytest.mark.parametrize("d, k, target", [(16, 144, 0.25), (16, 256, 1 / 3)])
def test_constructed_lines(d, k, target):
    assert pack(jax.random.key(0), k, d, init="construction").coherence <= target + PROVEN


@pytest.mark.slow
@pytest.mark.parametrize("d, k, reached", LARGE)
def test_large(d, k, reached):
    assert pack(jax.random.key(0), k, d).coherence <= 1.005 * reached
