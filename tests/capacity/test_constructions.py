"""Constructions: every family against its vectors, the algebra below them, and the catalogue's answers."""

import json
import math
import tracemalloc

import numpy as np
import pytest

from repcap_jax.capacity import (
    best_construction,
    build,
    coherence_bound,
    constructions_in,
    family_construction,
    largest_construction,
)
from repcap_jax.capacity.constructions import FAMILIES
from repcap_jax.capacity.constructions._fields import (
    binary_field,
    hadamard,
    hadamard_recipe,
    largest_prime,
    parity_table,
)
from repcap_jax.capacity.constructions.equiangular import _triples


def check_rows(construction, index):
    """Check unit norms and return max |cos| of the rows."""
    vectors = construction.rows(index)
    gram = vectors @ vectors.T
    assert np.abs(np.diag(gram) - 1).max() < 1e-12
    np.fill_diagonal(gram, 0)
    return np.abs(gram).max()


# Family, parameters, d, k, coherence: small enough to form every pair, and attained.
COMPLETE = [
    ("orthonormal basis", (5,), 5, 5, 0),
    ("simplex", (9,), 9, 10, 1 / 9),
    ("Kerdock", (2,), 4, 12, 1 / 2),
    ("Kerdock", (4,), 16, 144, 1 / 4),
    ("Kerdock", (6,), 64, 2112, 1 / 8),
    ("Delsarte-Goethals", (3, 0), 8, 72, 1 / 2),
    ("Delsarte-Goethals", (4, 1), 16, 1040, 1 / 2),
    ("Delsarte-Goethals", (5, 0), 32, 1056, 1 / 4),
    ("Paley frame", (5,), 3, 6, 1 / math.sqrt(5)),
    ("Paley frame", (13,), 7, 14, 1 / math.sqrt(13)),
    ("Paley frame", (2017,), 1009, 2018, 1 / math.sqrt(2017)),
    ("bent-function frame", (2, 1), 6, 16, 1 / 3),
    ("bent-function frame", (2, 0), 10, 16, 1 / 5),
    ("bent-function frame", (5, 1), 496, 1024, 1 / 31),
    ("bent-function frame", (5, 0), 528, 1024, 1 / 33),
    ("Steiner frame", (7, 3), 7, 28, 1 / 3),
    ("Steiner frame", (12, 2), 66, 144, 1 / 11),
    ("Steiner frame", (39, 3), 247, 780, 1 / 19),
    ("Steiner frame", (63, 3), 651, 2016, 1 / 31),
    ("polynomial phases", (7, 2), 14, 112, 1 / math.sqrt(7)),
    ("polynomial phases", (31, 2), 62, 1984, 1 / math.sqrt(31)),
    ("Heisenberg orbit", (16,), 16, 256, 1 / 3),
    ("exceptional set", (3, 7), 3, 7, 1 / math.sqrt(3)),
    ("exceptional set", (5, 10), 5, 10, 1 / 3),
    ("exceptional set", (5, 16), 5, 16, 1 / math.sqrt(5)),
    ("exceptional set", (6, 36), 6, 36, 1 / 2),
    ("exceptional set", (7, 63), 7, 63, 1 / 2),
    ("exceptional set", (8, 120), 8, 120, 1 / 2),
    ("exceptional set", (16, 2160), 16, 2160, 1 / 2),
    ("exceptional set", (23, 276), 23, 276, 1 / 5),
    ("exceptional set", (23, 2300), 23, 2300, 1 / 3),
    ("root system D_n", (5,), 5, 20, 1 / 2),
    ("root system D_n", (20,), 20, 380, 1 / 2),
]


@pytest.mark.parametrize("family, parameters, d, k, mu", COMPLETE)
def test_every_pair(family, parameters, d, k, mu):
    found = family_construction(family, *parameters)
    assert (found.d, found.k) == (d, k)
    assert found.coherence == pytest.approx(mu, rel=1e-15)
    assert check_rows(found, range(k)) == pytest.approx(mu, abs=1e-12)


# Too many pairs to form: the first and last rows and a random sample, which must reach but not pass the coherence.
SAMPLED = [
    ("Kerdock", (8,), 256, 33_024, 1 / 16),
    ("Kerdock", (10,), 1024, 525_312, 1 / 32),
    ("Kerdock", (12,), 4096, 8_392_704, 1 / 64),
    ("Delsarte-Goethals", (5, 1), 32, 32_800, 1 / 2),
    ("Delsarte-Goethals", (6, 1), 64, 65_600, 1 / 4),
    ("Delsarte-Goethals", (7, 0), 128, 16_512, 1 / 8),
    ("Delsarte-Goethals", (9, 1), 512, 2**27 + 512, 1 / 8),
    ("Delsarte-Goethals", (12, 4), 4096, 2**67 + 4096, 1 / 4),
    ("bent-function frame", (6, 1), 2016, 4096, 1 / 63),
    ("polynomial phases", (383, 2), 766, 294_144, 1 / math.sqrt(383)),
    ("polynomial phases", (101, 3), 202, 2 * (101**3 + 101), 2 / math.sqrt(101)),
    ("polynomial phases", (251, 9), 502, 2 * (251**9 + 251), 8 / math.sqrt(251)),
    ("exceptional set", (24, 98_280), 24, 98_280, 1 / 2),
]


@pytest.mark.parametrize("family, parameters, d, k, mu", SAMPLED)
def test_sampled_pairs(family, parameters, d, k, mu):
    found = family_construction(family, *parameters)
    assert (found.d, found.k) == (d, k)
    assert found.coherence == pytest.approx(mu, rel=1e-15)
    draw = np.random.default_rng(0)
    index = {int(u * k) for u in draw.random(600)} | {*range(100), *range(d, d + 100)} | {k - 1 - i for i in range(100)}
    assert 0.2 * mu < check_rows(found, sorted(index)) <= mu * (1 + 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_listed_member_of_modest_size(name):
    seen = set()
    for d in (2, 3, 4, 5, 8, 11, 16, 24, 37, 50):
        for found in constructions_in(d):
            if found.family == name and found.parameters not in seen and found.k <= 1500:
                seen.add(found.parameters)
                assert check_rows(found, range(found.k)) <= found.coherence + 1e-12, found.name
                assert coherence_bound(found.k, found.native_d).value <= found.coherence + 1e-12


STARRED = [
    (3, 6, 0.4472136), (3, 7, 0.5773503), (5, 10, 0.3333333), (5, 16, 0.4472136), (6, 16, 0.3333333), (6, 36, 0.5),
    (7, 14, 0.2773501), (7, 28, 0.3333333), (7, 63, 0.5), (8, 120, 0.5), (16, 144, 0.25), (16, 256, 0.3333333),
    (23, 276, 0.2), (24, 98280, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("d, k, mu", STARRED)
def test_known_optima_are_in_the_catalogue(d, k, mu):
    assert best_construction(k, d).coherence == pytest.approx(mu, abs=5e-8)


def test_largest_construction_example():
    found = largest_construction(4096, 1 / 64)
    assert (found.family, found.k) == ("Kerdock", 8_392_704)
    assert largest_construction(4096, math.nextafter(1 / 64, 0)).k == 8_392_704
    assert largest_construction(4096, 0.0156).family != "Kerdock"


def test_subsets_and_padding():
    found = best_construction(1000, 70)
    assert (found.family, found.native_d, found.d, found.k) == ("Kerdock", 64, 70, 1000)
    assert found.rows(range(1000)).shape == (1000, 70)
    assert not found.rows(range(1000))[:, 64:].any()
    assert check_rows(found, range(1000)) <= found.coherence


def test_limits_of_the_catalogue():
    assert best_construction(30, 50).coherence == 0
    assert best_construction(51, 50).coherence == pytest.approx(1 / 50)
    assert largest_construction(50, 0).k == 50
    assert best_construction(10**6, 3) is None
    assert largest_construction(1, 0.5).k == 1


def test_catalogue_is_monotone():
    for d in (16, 100, 512):
        coherences = [best_construction(k, d).coherence for k in (d, d + 1, 2 * d, 5 * d, d * d, d**3 // 8)]
        assert coherences == sorted(coherences)
        counts = [largest_construction(d, epsilon).k for epsilon in np.linspace(0, 0.6, 30)]
        assert counts == sorted(counts)
    assert best_construction(2000, 300).coherence >= best_construction(2000, 301).coherence


def test_against_the_published_packings(published_cells):
    cells = [cell for cell in published_cells["optimized"] if cell[0] > cell[1]]
    found = [best_construction(int(k), int(d)) for k, d, _ in cells]
    change = np.array([(c.coherence if c else 1.0) / e - 1 for c, (_, _, e) in zip(found, cells, strict=True)])
    assert len(cells) == 160 and np.sum(change < 0) >= 132
    assert np.median(change[change < 0]) == pytest.approx(-0.26, abs=0.01)
    assert change.min() == pytest.approx(-0.61, abs=0.005)
    power = np.array([d in (64, 256, 1024, 4096) for _, d, _ in cells])
    assert (change[power] < 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 7, 144, 1000])
def test_blocks(block, dtype):
    found = family_construction("Kerdock", 4)
    blocks = list(build(found, block=block, dtype=dtype))
    assert all(len(b) == block for b in blocks[:-1]) and all(b.dtype == dtype for b in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), found.rows(range(144)).astype(dtype))


def test_large_sets_are_built_lazily():
    tracemalloc.start()
    blocks = build(family_construction("Kerdock", 10), block=1024)
    total = sum(len(next(blocks)) for _ in range(4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 4096 and peak < 64 * 2**20


def test_record():
    found = largest_construction(16384, 0.5)
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["native_k"] == found.native_k > 2**64
    assert "m = 14" in family_construction("Kerdock", 14).name


def test_bad_requests():
    with pytest.raises(ValueError, match="known families"):
        family_construction("Kerdok", 4)
    for family, parameters in [
        ("Kerdock", (5,)),
        ("Kerdock", (400,)),
        ("Kerdock", ()),
        ("Paley frame", (15,)),
        ("Paley frame", (7,)),
        ("Steiner frame", (9, 3)),
        ("Steiner frame", (9, 0)),
        ("polynomial phases", (8, 2)),
        ("bent-function frame", (3, 2)),
        ("exceptional set", (3, 8)),
        ("Delsarte-Goethals", (4, 10**7)),
    ]:
        with pytest.raises(ValueError, match="no member"):
            family_construction(family, *parameters)
    found = family_construction("Kerdock", 2)
    with pytest.raises(ValueError, match="row numbers"):
        found.rows([12])
    with pytest.raises(ValueError, match="block"):
        build(found, block=0)
    with pytest.raises(TypeError, match="dtype"):
        build(found, dtype=np.int32)
    with pytest.raises(TypeError):
        build("Kerdock")
    for bad in (0, -1, 1.5, math.nan):
        with pytest.raises(ValueError, match="must be"):
            best_construction(bad, 4)
        with pytest.raises(ValueError, match="must be"):
            largest_construction(bad, 0.1)
    with pytest.raises(ValueError, match="epsilon"):
        largest_construction(4, -0.1)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8])
def test_binary_fields(m):
    field = binary_field(m)
    a, b = np.meshgrid(np.arange(field.order), np.arange(field.order))
    product = field.multiply(a, b)
    np.testing.assert_array_equal(product, product.T)
    for c in range(min(field.order, 8)):
        np.testing.assert_array_equal(field.multiply(a ^ b, c), field.multiply(a, c) ^ field.multiply(b, c))
    np.testing.assert_array_equal(field.power(a, 2), field.multiply(a, a))
    np.testing.assert_array_equal(field.trace[a ^ b], field.trace[a] ^ field.trace[b])
    assert field.trace.sum() == field.order // 2


@pytest.mark.parametrize("m", range(1, 18))
def test_field_tables_are_primitive(m):
    assert np.array_equal(np.sort(binary_field(m).powers[: (1 << m) - 1]), np.arange(1, 1 << m))


def test_hadamard_matrices():
    orders = [n for n in range(1, 129) if hadamard_recipe(n)]
    assert {1, 2, 4, 12, 20, 28, 36, 44, 76, 124} <= set(orders)
    for n in orders:
        matrix = hadamard(n).astype(int)
        np.testing.assert_array_equal(matrix @ matrix.T, n * np.eye(n, dtype=int))
    assert hadamard_recipe(92) is None and hadamard_recipe(6) is None


@pytest.mark.parametrize("v", [7, 9, 13, 15, 19, 21, 25, 27, 31, 39, 55, 63])
def test_steiner_triple_systems(v):
    pairs = {tuple(sorted(pair)) for a, b, c in _triples(v) for pair in ((a, b), (a, c), (b, c))}
    assert len(_triples(v)) == v * (v - 1) // 6
    assert len(pairs) == v * (v - 1) // 2


def test_small_helpers():
    assert parity_table(3).tolist() == [0, 1, 1, 0, 1, 0, 0, 1]
    assert largest_prime(100) == 97 and largest_prime(12, 1, 4) == 5 and largest_prime(1) is None
