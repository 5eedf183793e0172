"""Rotary positions: the settings of a config, in both their spellings, made into angles.

    angle(position, i) = position * f_i,   f_i = theta^(-2i / rotary_dim) before scaling

The scalings are those of the `rope_type` names in transformers: `linear`, `dynamic` (NTK), `yarn` (Peng et al. 2023,
arXiv:2309.00071), `llama3` (Llama 3.1) and `longrope` (Ding et al. 2024, arXiv:2402.13753).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


@dataclasses.dataclass(frozen=True)
class Rope:
    """One rotation, as a function of position and, for two of the scalings, of the sequence's length.

    Attributes:
      frequencies: radians per position for each pair of coordinates, half the rotary width long.
      scale: the factor on cosines and sines.
      long_frequencies: those of sequences longer than `long_from` tokens (longrope), else None.
      long_from: see there.
      dynamic: `(theta, factor, max_positions)` of a base that grows with the length (dynamic NTK), else None.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0
    long_frequencies: tuple[float, ...] | None = None
    long_from: int = 0
    dynamic: tuple[float, float, int] | None = None

    @property
    def needs_lengths(self) -> bool:
        """Whether angles depend on how long the sequence is."""
        return self.long_frequencies is not None or self.dynamic is not None


def no_rotation(rotary_dim: int) -> Rope:
    """The identity, for layers that know no positions."""
    return Rope((0.0,) * (rotary_dim // 2))


def make_rope(settings: Mapping[str, Any], rotary_dim: int, max_positions: int) -> Rope:
    """Read one set of rope parameters.

    Args:
      settings: `rope_type`, `rope_theta` and what the type needs, as in transformers 5.
      rotary_dim: how many coordinates of a head are rotated.
      max_positions: the config's `max_position_embeddings`.
    Returns:
      The rotation.
    Raises:
      ValueError: an unknown type, or one whose settings are missing.
    """
    kind = settings.get("rope_type") or settings.get("type") or "default"
    makers = {"linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "llama3": _llama3, "longrope": _longrope}
    theta = float(settings.get("rope_theta") or 10_000.0)
    plain = theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    if kind == "default":
        return Rope(_floats(plain))
    if kind not in makers:
        raise ValueError(f"rope_type must be one of {', '.join(KINDS)}, got {kind!r}")
    try:
        return makers[kind](dict(settings, rope_theta=theta), plain, max_positions)
    except KeyError as error:
        raise ValueError(f"rope_type {kind!r} needs {error.args[0]!r} in the config's rope settings") from None


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _linear(settings: dict, plain: np.ndarray, max_positions: int) -> Rope:
    return Rope(_floats(plain / settings["factor"]))


def _dynamic(settings: dict, plain: np.ndarray, max_positions: int) -> Rope:
    return Rope(_floats(plain), dynamic=(settings["rope_theta"], float(settings["factor"]), max_positions))


def _llama3(settings: dict, plain: np.ndarray, max_positions: int) -> Rope:
    """Slow rotations are slowed by `factor`, fast ones kept, those between interpolated by their wavelength."""
    factor, low, high = (float(settings[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = settings.get("original_max_position_embeddings", max_positions) * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return Rope(_floats(plain * (kept + (1 - kept) / factor)))


def _yarn(settings: dict, plain: np.ndarray, max_positions: int) -> Rope:
    """As llama3, but interpolated along the coordinates, and with cosines and sines scaled."""
    original = settings.get("original_max_position_embeddings") or max_positions
    factor = float(settings.get("factor") or max_positions / original)
    dim, theta = 2 * len(plain), settings["rope_theta"]

    def coordinate(turns: float) -> float:
        """Where the frequency is that turns so often within the original length."""
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    fast, slow = float(settings.get("beta_fast") or 32), float(settings.get("beta_slow") or 1)
    first, last = coordinate(fast), coordinate(slow)
    if settings.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    slowed = np.clip((np.arange(len(plain)) - first) / (last - first if last != first else 1e-3), 0.0, 1.0)
    scale = settings.get("attention_factor")
    if scale is None:
        mscale, all_dim = settings.get("mscale"), settings.get("mscale_all_dim")
        over = _yarn_scale(factor, float(mscale)) / _yarn_scale(factor, float(all_dim)) if mscale and all_dim else None
        scale = _yarn_scale(factor, 1.0) if over is None else over
    return Rope(_floats(plain * (1 - slowed + slowed / factor)), float(scale))


def _yarn_scale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _longrope(settings: dict, plain: np.ndarray, max_positions: int) -> Rope:
    """Each frequency has its own divisor, of which there are two sets: for short and for long sequences."""
    original = settings.get("original_max_position_embeddings") or max_positions
    factor = settings.get("factor") or max_positions / original
    scale = settings.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (np.asarray(settings[key], np.float64) for key in ("short_factor", "long_factor"))
    if not short.shape == long.shape == plain.shape:
        raise ValueError(
            f"longrope needs {len(plain)} short and long factors, one a pair, got {short.size}, {long.size}"
        )
    return Rope(_floats(plain / short), float(scale), _floats(plain / long), int(original))


def rotations(
    ropes: tuple[Rope, ...], positions: Int[Array, " seq"], lengths: Int[Array, " batch"]
) -> tuple[Float[Array, "ropes rows seq pairs"], Float[Array, "ropes rows seq pairs"]]:
    """Cosines and sines of every rotation at every position.

    Args:
      ropes: rotations of one width.
      positions: `(seq,)`.
      lengths: `(batch,)` tokens of each sequence, padding left out.
    Returns:
      Cosines and sines, `(ropes, rows, seq, rotary_dim / 2)`; one row stands for all sequences where lengths do not
      matter.
    """
    if not any(rope.needs_lengths for rope in ropes):
        lengths = lengths[:1]
    frequencies = jnp.stack([_frequencies(rope, lengths) for rope in ropes])
    scales = jnp.asarray([rope.scale for rope in ropes], jnp.float32)[:, None, None, None]
    angles = frequencies[:, :, None, :] * positions.astype(jnp.float32)[None, None, :, None]
    return jnp.cos(angles) * scales, jnp.sin(angles) * scales


def _frequencies(rope: Rope, lengths: Int[Array, " rows"]) -> Float[Array, "rows pairs"]:
    plain = jnp.broadcast_to(jnp.asarray(rope.frequencies, jnp.float32), (len(lengths), len(rope.frequencies)))
    if rope.long_frequencies is not None:
        long = jnp.asarray(rope.long_frequencies, jnp.float32)
        return jnp.where(lengths[:, None] > rope.long_from, long, plain)
    if rope.dynamic is not None:
        theta, factor, max_positions = rope.dynamic
        dim = 2 * len(rope.frequencies)
        longest = jnp.maximum(lengths, max_positions).astype(jnp.float32)[:, None]
        stretch = factor * longest / max_positions - (factor - 1)
        # theta grows by stretch^(dim / (dim - 2)): the last frequency is divided by `stretch`, the first kept.
        exponents = jnp.arange(0, dim, 2, dtype=jnp.float32) / dim * (dim / (dim - 2))
        return plain * stretch**-exponents
    return plain


def rotate(
    x: Float[Array, "batch seq *heads head_dim"],
    cos: Float[Array, "rows seq pairs"],
    sin: Float[Array, "rows seq pairs"],
    interleaved: bool,
) -> Float[Array, "batch seq *heads head_dim"]:
    """Turn the first `2 * pairs` coordinates of each head; the rest are left as they are."""
    pairs = cos.shape[-1]
    middle = (1,) * (x.ndim - 3)
    cos, sin = (t.reshape(*t.shape[:2], *middle, pairs) for t in (cos, sin))
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        paired = turned.reshape(*turned.shape[:-1], pairs, 2)
        a, b = paired[..., 0], paired[..., 1]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(turned.shape)
        return jnp.concatenate([turned, rest], axis=-1)
    a, b = turned[..., :pairs], turned[..., pairs:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)
