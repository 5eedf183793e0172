"""The tiled smooth maximum and its hand-written gradient against plain float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from repcap_jax.kernels.placement import rows_mesh
from repcap_jax.packing.objective import Tiling, choose_tile, smooth_maximum


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def random_rows(k, d, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((k, d))).astype(np.float32)


def oracle(v, b, objective):
    """Value, hard maximum and gradient in float64, with the whole matrix of cosines."""
    v = np.asarray(v, np.float64)
    i, j = np.triu_indices(len(v), 1)
    g = (v @ v.T)[i, j]
    scores, power = (g * g, 2.0) if objective == "lines" else (g, 1.0)
    e = np.exp(b * (scores - scores.max()))
    value = (b * scores.max() + np.log(e.sum())) / (power * b)
    weights = np.zeros((len(v), len(v)))
    weights[i, j] = e * (g if objective == "lines" else 1.0) / e.sum()
    weights += weights.T
    return value, (np.abs(g) if objective == "lines" else g).max(), weights @ v


def value_and_gradient(v, b, objective, tiling):
    def loss(v):
        met = smooth_maximum(v, b, objective, tiling)
        return met.value, met.largest

    return jax.value_and_grad(loss, has_aux=True)(v)


compiled = jax.jit(value_and_gradient, static_argnums=(2, 3))


def evaluate(v, b, objective, tiling, call=compiled):
    (value, largest), gradient = call(jnp.asarray(v), jnp.float32(b), objective, tiling)
    return float(value), float(largest), np.asarray(gradient)


def assert_matches(found, exact, b):
    value, largest, gradient = found
    assert value == pytest.approx(exact[0], abs=2e-6)
    assert largest == pytest.approx(exact[1], abs=1e-6)
    # A cosine is known to about 1e-7, so its weight to b times that.
    scale = np.abs(exact[2]).max()
    np.testing.assert_allclose(gradient, exact[2], atol=scale * (1e-5 + 4e-7 * b))


@pytest.mark.parametrize("objective", ["lines", "codes"])
@pytest.mark.parametrize(
    "k, d, tile, devices",
    [(2, 3, 8, 1), (50, 6, 16, 3), (50, 6, 64, 8), (300, 20, 77, 1)],
)
@pytest.mark.parametrize("b", [0.5, 40.0, 2e4])
def test_against_float64(objective, k, d, tile, devices, b, mesh_of):
    v = random_rows(k, d)
    assert_matches(evaluate(v, b, objective, Tiling(tile, mesh_of(devices))), oracle(v, b, objective), b)


def test_jit_changes_nothing():
    v, tiling = random_rows(14, 5), Tiling(16, rows_mesh())
    assert_matches(evaluate(v, 30.0, "lines", tiling, call=value_and_gradient), oracle(v, 30.0, "lines"), 30.0)


@pytest.mark.parametrize("objective", ["lines", "codes"])
def test_gradient_is_the_slope_of_the_value(objective):
    """Central differences of the float64 value along random directions."""
    v, b = random_rows(30, 4).astype(np.float64), 25.0
    gradient = evaluate(v.astype(np.float32), b, objective, Tiling(8, rows_mesh()))[2]
    rng = np.random.default_rng(1)
    for _ in range(5):
        direction = rng.standard_normal(v.shape)
        slope = (oracle(v + 1e-5 * direction, b, objective)[0] - oracle(v - 1e-5 * direction, b, objective)[0]) / 2e-5
        assert np.sum(gradient * direction) == pytest.approx(slope, abs=1e-5)


def test_safe_for_any_sharpness_and_order_of_tiles():
    """The largest cosine in the first or the last tile, exponents far beyond float32."""
    for pair in [(0, 1), (62, 63), (3, 60)]:
        v = random_rows(64, 8)
        v[pair[1]] = unit(v[pair[0]] + 1e-3 * v[pair[1]])
        value, largest, gradient = evaluate(v, 1e7, "lines", Tiling(8, rows_mesh()))
        assert np.isfinite(gradient).all() and value == pytest.approx(largest**2 / 2, abs=1e-6)
        moved = np.flatnonzero(np.abs(gradient).max(axis=1) > 1e-6)
        np.testing.assert_array_equal(moved, sorted(pair))


def test_cotangent_scales_and_b_is_constant():
    v, tiling = jnp.asarray(random_rows(20, 4)), Tiling(8, rows_mesh())

    @jax.jit
    def slopes(v, b, scale):
        return jax.grad(lambda v, b: scale * smooth_maximum(v, b, "lines", tiling).value, argnums=(0, 1))(v, b)

    one, slope = slopes(v, jnp.float32(9.0), 1.0)
    three, _ = slopes(v, jnp.float32(9.0), 3.0)
    np.testing.assert_allclose(three, 3 * one, rtol=1e-6)
    assert float(slope) == 0.0


def test_rotation_permutation_and_sign():
    v, tiling = random_rows(60, 5), Tiling(16, rows_mesh())
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    order, signs = rng.permutation(60), rng.choice([-1.0, 1.0], 60)[:, None]
    value, largest, gradient = evaluate(v, 50.0, "lines", tiling)
    moved = (signs * v @ rotation)[order].astype(np.float32)
    value2, largest2, gradient2 = evaluate(moved, 50.0, "lines", tiling)
    assert value2 == pytest.approx(value, abs=1e-6) and largest2 == pytest.approx(largest, abs=1e-6)
    np.testing.assert_allclose(gradient2, (signs * gradient @ rotation)[order], atol=1e-5)


def test_vmap_over_starts():
    v, tiling = np.stack([random_rows(12, 4, seed) for seed in range(3)]), Tiling(16, rows_mesh())
    b = jnp.array([5.0, 50.0, 500.0])
    values = jax.jit(jax.vmap(lambda v, b: smooth_maximum(v, b, "codes", tiling).value))(jnp.asarray(v), b)
    np.testing.assert_allclose(values, [oracle(x, float(y), "codes")[0] for x, y in zip(v, b)], atol=2e-6)


def test_bfloat16_products_are_near():
    v = random_rows(200, 32)
    tiling = Tiling(64, rows_mesh(), "bfloat16")
    value, _, gradient = evaluate(v, 20.0, "lines", tiling)
    exact = oracle(v, 20.0, "lines")
    assert value == pytest.approx(exact[0], rel=2e-2)
    assert np.linalg.norm(gradient - exact[2]) < 0.05 * np.linalg.norm(exact[2])


def test_never_holds_k_by_k():
    """Temporary memory of a compiled value and gradient at k = 8,192, d = 16: far below one k x k matrix (256 MiB)."""
    tiling = Tiling(512, rows_mesh())
    call = jax.jit(jax.grad(lambda v: smooth_maximum(v, 9.0, "lines", tiling).value))
    compiled = call.lower(jax.ShapeDtypeStruct((8192, 16), jnp.float32)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 24 << 20


@pytest.mark.parametrize("k, devices", [(2, 1), (9, 1), (512, 1), (513, 1), (5000, 1), (5000, 8)])
def test_chosen_tile(k, devices, mesh_of):
    tile = choose_tile(k, mesh_of(devices))
    assert tile % 8 == 0 and tile <= 512
    padded = -(-k // tile) * tile
    assert padded - k <= max(8, 0.05 * k)
