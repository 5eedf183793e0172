"""The toy model: n features squeezed through m dimensions and read out again by the same weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from repcap_jax.kernels.precision import PRECISIONS

ACTIVATIONS = ("relu", "linear")


class ToyModel(nnx.Module):
    """An autoencoder with tied weights, for vectors in columns.

        h = W x,   or max(0, W x) with a hidden ReLU (a privileged basis)
        x' = max(0, W^T h + b),   or W^T h + b for the linear model

    Args:
      n: features.
      m: hidden dimensions; m >= n is allowed, but then nothing has to share a dimension.
      activation: of the output, `"relu"` or `"linear"`.
      hidden: of the hidden layer, `"linear"` or `"relu"`.
      rngs: where the weights come from: Xavier normal, W ~ N(0, 2/(n + m)); b starts at 0.
    Source: Elhage et al. 2022, "Toy Models of Superposition"; the hidden ReLU is their section "The Privileged Basis".
    """

    def __init__(self, n: int, m: int, *, activation: str = "relu", hidden: str = "linear", rngs: nnx.Rngs):
        self.activation, self.hidden = activation, hidden
        self.W = nnx.Param(jax.nn.initializers.glorot_normal()(rngs.params(), (m, n)))
        self.b = nnx.Param(jnp.zeros(n))

    def encode(self, x: Float[Array, "n batch"]) -> Float[Array, "m batch"]:
        """The hidden layer."""
        h = _product(self.W[...], x)
        return jax.nn.relu(h) if self.hidden == "relu" else h

    def __call__(self, x: Float[Array, "n batch"]) -> Float[Array, "n batch"]:
        """The reconstruction x'."""
        out = _product(self.W[...].T, self.encode(x)) + self.b[...][:, None]
        return jax.nn.relu(out) if self.activation == "relu" else out


def reconstruction_loss(
    model: ToyModel, x: Float[Array, "n batch"], importance: Float[Array, " n"]
) -> Float[Array, ""]:
    """The mean over the batch of sum_i I_i (x_i - x'_i)^2."""
    return jnp.sum(importance * jnp.mean((x - model(x)) ** 2, axis=1))


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=PRECISIONS["highest"])
