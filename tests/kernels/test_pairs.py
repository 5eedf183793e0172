"""The pair fold against float64 NumPy: every tile size, device count, dtype and way to stream gives the same answer."""

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from repcap_jax.kernels import walk
from repcap_jax.kernels.listing import PairsAbove
from repcap_jax.kernels.pairs import fold_pairs, nearest_neighbours, pair_histogram
from repcap_jax.kernels.placement import bucket
from repcap_jax.kernels.reducers import Extremes, Histogram, NearestNeighbours
from tests import oracles

N, D = 700, 24


@pytest.fixture(scope="module")
def x():
    """Shifted Gaussian rows with a zero row, a NaN row, an infinite row, duplicates and opposites."""
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((N, D)) + 0.4).astype(np.float32)
    x[5] = 0.0
    x[300, 2] = np.nan
    x[301, 0] = np.inf
    x[650] = x[17]
    x[651] = 4 * x[20]  # a power of two: the same unit row to the last bit
    x[652] = -x[18]
    return x


@pytest.fixture(scope="module")
def y():
    y = np.random.default_rng(8).standard_normal((333, D)).astype(np.float32)
    y[0] = 0.0
    return y


REDUCERS = (
    Histogram(400, strategy="scatter"),
    Histogram(400, strategy="onehot"),
    NearestNeighbours(1),
    NearestNeighbours(3),
    NearestNeighbours(1, opposed=True),
    Extremes(),
    PairsAbove(0.6, 10_000),
    PairsAbove(0.2, 50),
)


def assert_all_right(result, x, y=None):
    """Every reducer's result against the full matrix of float64 cosines."""
    cosines = oracles.pair_cosines(x, y)
    tolerance = oracles.rounding(x.shape[1])
    scatter, onehot, nearest, nearest3, opposed, extremes, above, above_capped = result.results
    assert result.n_pairs == len(cosines) == scatter.counts.sum()
    assert scatter.counts.dtype == np.int64
    np.testing.assert_array_equal(scatter.counts, onehot.counts)
    oracles.assert_counts_match(scatter.counts, scatter.edges, cosines, tolerance)

    full = oracles.cosine_matrix(x, y)
    if y is None:
        full = np.where(np.isnan(full), full.T, full)
    met = ~np.isnan(full).all(axis=1)
    ranked = -np.sort(-np.nan_to_num(full, nan=-9.0), axis=1)
    np.testing.assert_allclose(nearest3.cosines[met], ranked[met, :3], atol=tolerance)
    np.testing.assert_allclose(opposed.cosines[met, 0], np.nanmin(full[met], axis=1), atol=tolerance)
    rows = np.arange(len(x))[met]
    for neighbours in (nearest3, nearest, opposed):
        picked = full[rows[:, None], neighbours.ids[met]]
        np.testing.assert_allclose(neighbours.cosines[met], picked, atol=tolerance)
        assert np.all(neighbours.ids[~met] == -1) and np.all(np.isnan(neighbours.cosines[~met]))
    np.testing.assert_array_equal(nearest.ids[:, 0], nearest3.ids[:, 0])

    assert extremes.largest.cosine == pytest.approx(cosines.max(), abs=tolerance)
    assert extremes.smallest.cosine == pytest.approx(cosines.min(), abs=tolerance)
    upper = full if y is not None else oracles.cosine_matrix(x)
    for pair in extremes:
        assert upper[pair.i, pair.j] == pytest.approx(pair.cosine, abs=tolerance)

    assert abs(above.total - np.sum(cosines > 0.6)) <= np.sum(np.abs(cosines - 0.6) <= tolerance)
    assert not above.truncated and above_capped.truncated and len(above_capped.i) == 50
    np.testing.assert_allclose(upper[above.i, above.j], above.cosines, atol=tolerance)
    np.testing.assert_allclose(above_capped.cosines, np.sort(cosines)[::-1][:50], atol=tolerance)
    assert len(set(zip(above.i.tolist(), above.j.tolist()))) == above.total


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_symmetric_walk(x, mesh_of, devices):
    result = fold_pairs(x, REDUCERS, mesh=mesh_of(devices), tile=128)
    assert result.devices == devices
    assert_all_right(result, x)
    np.testing.assert_array_equal(result.excluded_rows, [5, 300, 301])
    assert result.results[2].ids[17, 0] == 650 and result.results[2].ids[650, 0] == 17
    assert result.results[2].ids[20, 0] == 651 and result.results[4].ids[18, 0] == 652


@pytest.mark.parametrize("devices", [1, 3])
def test_rectangular_walk(x, y, mesh_of, devices):
    result = fold_pairs(x, REDUCERS, y=y, mesh=mesh_of(devices), tile=128)
    assert_all_right(result, x, y)
    np.testing.assert_array_equal(result.excluded_columns, [0])


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_streaming_from_the_host(x, y, mesh_of, devices):
    """A device that holds four tiles of rows at a time sees the matrix slab by slab, with the same result."""
    room = 4 * 128 * (D * 4 + 4)
    whole = fold_pairs(x, REDUCERS, mesh=mesh_of(1), tile=128)
    for other in (None, y):
        result = fold_pairs(x, REDUCERS, y=other, mesh=mesh_of(devices), tile=128, device_bytes=room)
        assert_all_right(result, x, other)
        if other is None:
            np.testing.assert_array_equal(result.results[2].ids, whole.results[2].ids)


@pytest.mark.parametrize("tile", [128, 256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("devices", [1, 2])
def test_tile_size_changes_no_count(x, mesh_of, tile, devices):
    counts, _ = pair_histogram(x, bins=400, tile=tile, mesh=mesh_of(devices))
    expected, _ = pair_histogram(x, bins=400, tile=256)
    assert counts.sum() == (N - 3) * (N - 4) // 2
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_large_tiles_of_a_larger_matrix(mesh_of, devices):
    """Several tiles of 4,096, and what is left over."""
    n = 9001
    x = np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)
    for tile in (1024, 4096):
        counts, edges = pair_histogram(x, bins=200, tile=tile, mesh=mesh_of(devices))
        assert counts.sum() == n * (n - 1) // 2
        if devices == 1:
            oracles.assert_counts_match(counts, edges, oracles.pair_cosines(x), oracles.rounding(4))


@pytest.mark.parametrize("n", [2, 3, 127, 128, 129, 255, 256, 257, 513])
def test_ragged_sizes(n, mesh_of):
    x = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
    for devices in (1, 3, 8):
        counts, edges = pair_histogram(x, bins=37, tile=128, mesh=mesh_of(devices))
        assert counts.sum() == n * (n - 1) // 2
        oracles.assert_counts_match(counts, edges, oracles.pair_cosines(x), oracles.rounding(5))


@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_dtypes(dtype):
    x = (np.random.default_rng(1).standard_normal((300, 16)) * 40 + 60).clip(1).astype(dtype)
    counts, edges = pair_histogram(x, bins=200, tile=128)
    oracles.assert_counts_match(counts, edges, oracles.pair_cosines(x), oracles.rounding(16))


def test_memory_mapped_and_jax_arrays(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = pair_histogram(x, bins=100).counts
    np.testing.assert_array_equal(pair_histogram(mapped, bins=100).counts, expected)
    np.testing.assert_array_equal(pair_histogram(jax.numpy.asarray(x), bins=100).counts, expected)


def test_range_follows_numpy(x):
    """Values outside the range are not counted, the last bin is closed, an edge belongs to the bin on its right."""
    counts, edges = pair_histogram(x, bins=50, range=(0.1, 0.6))
    cosines = oracles.pair_cosines(x)
    assert abs(counts.sum() - np.sum((cosines >= 0.1) & (cosines <= 0.6))) <= 10
    oracles.assert_counts_match(counts, edges, cosines, oracles.rounding(D))
    axes = np.eye(4, dtype=np.float32)[[0, 1, 2, 0]]
    axes = np.concatenate([axes, -axes[:1]])  # cosines 1, -1 and 0, all of them on edges
    np.testing.assert_array_equal(pair_histogram(axes, bins=4).counts, [2, 0, 7, 1])


def test_excluded_rows_meet_nobody():
    x = np.ones((4, 3), np.float32)
    x[1:] = np.nan
    result = fold_pairs(x, [Histogram(10), NearestNeighbours(2), Extremes(), PairsAbove(0.5)])
    histogram, neighbours, extremes, above = result.results
    assert result.n_pairs == 0 and histogram.counts.sum() == 0 and above.total == 0
    assert np.all(neighbours.ids == -1) and np.all(np.isnan(neighbours.cosines))
    assert extremes.largest.i == -1 and np.isnan(extremes.largest.cosine)


def test_scales_beyond_float32_squares():
    """Rows whose squares would overflow or vanish in float32 still have a direction."""
    directions = np.random.default_rng(3).standard_normal((6, 8))
    x = directions * np.array([1e-36, 1e-25, 1.0, 1e18, 1e30, 1e37])[:, None]
    result = fold_pairs(x.astype(np.float32), [NearestNeighbours(5)])
    expected = -np.sort(-oracles.cosine_matrix(x)[0, 1:])
    np.testing.assert_allclose(result.results[0].cosines[0], expected, atol=1e-6)


def test_ties_go_to_the_lowest_row(mesh_of):
    x = np.tile(np.eye(3, dtype=np.float32), (200, 1))  # row i equals rows i mod 3
    for devices in (1, 3):
        reducers = [NearestNeighbours(4), Extremes(), PairsAbove(0.5, 3)]
        (ids, cosines), extremes, above = fold_pairs(x, reducers, tile=128, mesh=mesh_of(devices)).results
        for row in (0, 1, 2, 3, 131, 599):
            same = [other for other in range(row % 3, 600, 3) if other != row][:4]
            assert ids[row].tolist() == same
        assert np.all(cosines == 1.0)
        assert extremes.largest[1:] == (0, 3) and extremes.smallest[1:] == (0, 1)
        assert list(zip(above.i, above.j)) == [(0, 3), (0, 6), (0, 9)]


def test_more_neighbours_than_rows():
    ids, cosines = nearest_neighbours(np.eye(3, dtype=np.float32) + 0.1, count=5)
    assert np.all(ids[:, 2:] == -1) and np.all(np.isnan(cosines[:, 2:])) and np.all(ids[:, :2] >= 0)


@given(seed=st.integers(0, 2**16), n=st.integers(2, 260), d=st.integers(1, 9), scale=st.floats(1e-3, 1e3))
def test_invariances(seed, n, d, scale):
    """Permuting rows, scaling them and rotating the space leave the distribution where it was."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    cosines, tolerance = oracles.pair_cosines(x), 3 * oracles.rounding(d)
    lengths = np.exp(rng.uniform(-3, 3, (n, 1)))
    for changed in (x[rng.permutation(n)], x * scale, x * lengths, x @ rotation):
        counts, edges = pair_histogram(changed, bins=64, tile=128)
        assert counts.sum() == n * (n - 1) // 2
        oracles.assert_counts_match(counts, edges, cosines, tolerance)


def test_one_program_for_a_size_bucket(mesh_of):
    """Sizes of one bucket share the compiled walk, for one device and for several."""

    def run(n, devices):
        return pair_histogram(np.ones((n, 11), np.float32), bins=61, tile=128, mesh=mesh_of(devices))

    for devices in (1, 2):
        run(18 * 128 * devices, devices)
        before = walk._fold._cache_size()
        for n in (17 * 128 * devices - 5, 17 * 128 * devices + 1, 18 * 128 * devices - 77):
            assert run(n, devices).counts[-1] == n * (n - 1) // 2
        assert walk._fold._cache_size() == before


def test_buckets_waste_at_most_an_eighth():
    sizes = [bucket(tiles) for tiles in range(1, 4000)]
    assert sizes == sorted(sizes)
    assert all(tiles <= size <= tiles * 9 / 8 for tiles, size in enumerate(sizes, start=1))
    assert len(set(sizes)) < 90


def test_progress_reaches_the_end(x, mesh_of):
    for devices, options in ((1, {}), (3, {}), (1, {"device_bytes": 4 * 128 * 100})):
        seen = []
        report = lambda done, total, seen=seen: seen.append((done, total))  # noqa: E731
        fold_pairs(x, [Histogram(10)], mesh=mesh_of(devices), tile=128, progress=report, **options)
        done = [at[0] for at in seen]
        assert done == sorted(done) and len(seen) > 3 and seen[-1] == (N * (N - 1) // 2,) * 2


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"x": np.ones(3)}, ValueError, "non-empty matrix"),
        ({"x": np.ones((0, 3))}, ValueError, "non-empty matrix"),
        ({"x": np.ones((2, 2, 2))}, ValueError, "non-empty matrix"),
        ({"x": np.array([["a"]])}, TypeError, "real numbers"),
        ({"x": np.ones((2, 2), complex)}, TypeError, "real numbers"),
        ({"x": np.ones((2, 2)), "y": np.ones((2, 3))}, ValueError, "equally long"),
        ({"x": np.ones((2, 2)), "tile": 100}, ValueError, "power of two"),
        ({"x": np.ones((2, 2)), "tile": 1 << 20}, ValueError, "power of two"),
        ({"x": np.ones((2, 2)), "precision": "double"}, ValueError, "precision"),
        ({"x": np.ones((2, 2)), "device_bytes": 10}, ValueError, "smaller tile"),
        ({"x": np.ones((2, 2)), "reducers": ["histogram"]}, TypeError, "start, update, merge"),
        ({"x": np.ones((2, 2)), "reducers": [Histogram]}, TypeError, "not its class"),
        ({"x": np.ones((2, 2)), "reducers": []}, ValueError, "at least one"),
    ],
)
def test_bad_input(arguments, error, says):
    arguments = {"reducers": [Histogram(10)]} | arguments
    # Annotations are checked in tests, and then refuse a wrong type before the function's own check does.
    with pytest.raises((error, TypeCheckError), match=f"{says}|Type-check"):
        fold_pairs(arguments.pop("x"), arguments.pop("reducers"), **arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Histogram(0),
        lambda: Histogram(2.5),
        lambda: Histogram(True),
        lambda: Histogram(10, (1.0, -1.0)),
        lambda: Histogram(10, (0.0, np.nan)),
        lambda: Histogram(10, 3.0),
        lambda: Histogram(10, strategy="sort"),
        lambda: NearestNeighbours(0),
        lambda: NearestNeighbours(1 << 20),
        lambda: PairsAbove(1.0),
        lambda: PairsAbove(float("nan")),
        lambda: PairsAbove(0.5, 0),
    ],
)
def test_impossible_reducers(make):
    with pytest.raises((ValueError, TypeCheckError), match="must be|Type-check"):
        make()
