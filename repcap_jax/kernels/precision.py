"""Matrix-product precision, and unit rows that cannot produce NaN."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

# XLA's DEFAULT means bfloat16 products on TPU and TF32 on NVIDIA GPUs, and HIGH means TF32 or three bfloat16 passes;
# only HIGHEST is float32 everywhere, so it is what results are reported with unless the caller asks for speed.
PRECISIONS = {
    "highest": jax.lax.Precision.HIGHEST,
    "high": jax.lax.Precision.HIGH,
    "default": jax.lax.Precision.DEFAULT,
}

# Below this float32 arithmetic flushes to zero; above its reciprocal the inverse of a norm does.
SMALLEST_NORMAL = 2.0**-126


def resolve_precision(precision: str | None) -> str:
    """Name of the matrix-product precision to use; `None` means `"highest"`.

    Raises:
      ValueError: for a name other than `"highest"`, `"high"` or `"default"`.
    """
    name = "highest" if precision is None else precision
    if name not in PRECISIONS:
        raise ValueError(f"precision must be one of {sorted(PRECISIONS)} or None, got {precision!r}")
    return name


def products(a: Float[Array, "r d"], b: Float[Array, "c d"], precision: str) -> Float[Array, "r c"]:
    """All inner products `a_i . b_j`, accumulated in float32."""
    return jax.lax.dot_general(
        a, b, (((1,), (1,)), ((), ())), precision=PRECISIONS[precision], preferred_element_type=jnp.float32
    )


def row_scales(values: Shaped[Array, "n d"]) -> Float[Array, " n"]:
    """The factor `1 / |x_i|` of each row, and 0 for a row that has no direction.

    A row has none when it is zero, when an entry is NaN or infinite, or when its norm is beyond what float32 can invert
    (entries all below 2^-126, or one above 2^126 / sqrt(d)). The norm is taken after dividing by the largest entry, so
    that squares neither overflow nor vanish.

    Args:
      values: `(n, d)`, any floating dtype.
    Returns:
      `(n,)` float32.
    """
    x = values.astype(jnp.float32)
    largest = jnp.max(jnp.abs(x), axis=1)
    # A maximum need not hand a NaN on, so finiteness is asked for by itself.
    limit = 1.0 / (SMALLEST_NORMAL * math.sqrt(values.shape[1]))
    usable = jnp.all(jnp.isfinite(x), axis=1) & (largest >= SMALLEST_NORMAL) & (largest <= limit)
    inverse = jnp.where(usable, 1.0 / jnp.where(usable, largest, 1.0), 0.0)
    relative = jnp.where(usable[:, None], x * inverse[:, None], 0.0)
    norm = jnp.sqrt(jnp.sum(relative * relative, axis=1))
    return inverse / jnp.where(usable, norm, 1.0)


def unit_rows(values: Shaped[Array, "n d"], scales: Float[Array, " n"]) -> Float[Array, "n d"]:
    """Rows of length one, `x_i * scales_i`, and zero rows where the scale is 0 (whatever the row holds)."""
    return jnp.where(scales[:, None] > 0, values.astype(jnp.float32) * scales[:, None], 0.0)
