"""Bounds for points on a sphere: exact on the sharp codes, rising with k, below everything that is known to exist."""

import math

import pytest

from repcap_jax.packing import code_bound

SHARP = [
    (5, 16, 1 / 5), (6, 27, 1 / 4), (7, 56, 1 / 3), (8, 240, 1 / 2), (21, 162, 1 / 7), (22, 100, 1 / 11),
    (22, 275, 1 / 6), (22, 891, 1 / 4), (23, 552, 1 / 5), (23, 4600, 1 / 3), (24, 196560, 1 / 2),
    (3, 12, 1 / math.sqrt(5)), (4, 5, -1 / 4), (4, 7, 0.0), (4, 8, 0.0), (2, 9, math.cos(2 * math.pi / 9)),
]  # fmt: skip


@pytest.mark.parametrize("d, k, cosine", SHARP)
def test_sharp_codes_meet_it(d, k, cosine):
    bound = code_bound(k, d)
    assert cosine - 1e-9 < bound.value <= cosine + 1e-14


@pytest.mark.parametrize("d, k, cosine", [(3, 7, 0.2101383), (3, 10, 0.4043943), (4, 120, (1 + math.sqrt(5)) / 4)])
def test_below_the_best_known(d, k, cosine):
    assert 0 < code_bound(k, d).value < cosine


@pytest.mark.parametrize("d", [3, 4, 10, 64])
def test_does_not_fall_with_k(d):
    values = [code_bound(k, d).value for k in range(2, 4000, 41)]
    assert all(a <= b + 1e-12 for a, b in zip(values, values[1:], strict=False))
    assert all(-1 <= value < 1 for value in values)


def test_very_many_points():
    """Beyond the last level the volume of caps takes over: cos theta -> 1 as k^(-2/(d-1))."""
    bound = code_bound(10**7, 3)
    assert bound.name == "cap packing" and 1 - 2e-6 < bound.value < 1


@pytest.mark.parametrize(("k", "d"), [(1, 3), (5, 1), (30.0, 3)])
def test_bad_input(k, d):
    with pytest.raises(Exception, match="k must be|d must be|Type-check"):
        code_bound(k, d)
