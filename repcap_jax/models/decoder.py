"""The decoder: embeddings, a scan over the stacked blocks, and on request the final norm and the logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Float32, Int

from repcap_jax.models.attention import alibi_biases
from repcap_jax.models.layers import Block, Linear, Norm
from repcap_jax.models.rope import rotations
from repcap_jax.models.spec import DecoderSpec


class Decoder(nnx.Module):
    """A language model up to its logits, with its weights.

    Made by `load_decoder`. The residual stream, norms and softmax are float32; `dtype` is that of the matrix products'
    factors, which are accumulated in float32.

    Attributes:
      spec: what it computes.
      source: where the weights come from.
      mesh: the devices that share a batch; None for the default device.
      blocks: all layers, stacked along the first axis of each weight.
      embedding: the token embedding `(vocab, d)`.
      unembedding: the projection to logits; None where it is the embedding, or was not loaded.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        *,
        source: str,
        mesh: Mesh | None,
        embedding: Any,
        blocks: Block,
        final: Norm | None = None,
        positions: Any | None = None,
        embedding_norm: Norm | None = None,
        project_in: Linear | None = None,
        project_out: Linear | None = None,
        unembedding: Linear | None = None,
        tied: bool = True,
    ):
        self.spec, self.source, self.mesh, self.tied = spec, source, mesh, tied
        self.embedding = nnx.Param(embedding)
        self.positions = None if positions is None else nnx.Param(positions)
        self.embedding_norm, self.project_in, self.project_out = embedding_norm, project_in, project_out
        self.blocks, self.final, self.unembedding = blocks, final, unembedding

    @property
    def family(self) -> str:
        """The config's `model_type`."""
        return self.spec.family

    @property
    def n_layers(self) -> int:
        """Number of blocks; there is one hidden state more."""
        return self.spec.layers

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return self.spec.d_model

    @property
    def vocab_size(self) -> int:
        """Rows of the token embedding."""
        return self.embedding.shape[0]

    @property
    def dtype(self) -> str:
        """The dtype of the matrix products' factors."""
        return self.embedding.dtype.name

    def to_record(self) -> dict[str, Any]:
        """What computes the hidden states, as valid JSON."""
        return {
            "source": self.source,
            "family": self.family,
            "layers": self.n_layers,
            "d_model": self.d_model,
            "vocab_size": self.vocab_size,
            "dtype": self.dtype,
            "precision": self.blocks.mlp.down.precision,
            "devices": 1 if self.mesh is None else self.mesh.size,
        }

    def embed(self, tokens: Int[Array, "batch seq"]) -> Float32[Array, "batch seq d"]:
        """The residual stream as the first block gets it."""
        x = self.embedding[...][tokens].astype(jnp.float32)
        if self.project_in is not None:
            x = self.project_in(x)
        if self.spec.embedding_scale is not None:
            # Rounded as transformers rounds it, which matters in bfloat16.
            x = x * jnp.asarray(self.spec.embedding_scale, self.embedding.dtype).astype(jnp.float32)
        if self.positions is not None:
            x = x + self.positions[...][: tokens.shape[1]]
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def residuals(
        self,
        tokens: Int[Array, "batch seq"],
        lengths: Int[Array, " batch"],
        kept: Int[Array, "batch kept"] | None = None,
    ) -> tuple[Float32[Array, "layers_and_one batch kept d"], Float32[Array, "batch seq d"]]:
        """The residual stream before and after every block.

        Args:
          tokens: padded on the right, with anything.
          lengths: tokens of each row that are no padding.
          kept: for each row, the positions to return; None for all.
        Returns:
          The states at those positions, and the last one at every position.
        """
        x = self.embed(tokens)
        layer, tables = self._per_layer(), self._tables(tokens.shape[1], lengths)

        def select(x: Array) -> Array:
            return x if kept is None else jnp.take_along_axis(x, kept[:, :, None], axis=1)

        def step(x: Array, inputs: tuple[Block, dict[str, Array]]) -> tuple[Array, Array]:
            block, layer = inputs
            x = block(x, layer, tables)
            return x, select(x)

        last, states = jax.lax.scan(step, x, (self.blocks, layer))
        return jnp.concatenate([select(x)[None], states]), last

    def final_norm(self, x: Float[Array, "*rows d"]) -> Float32[Array, "*rows d"]:
        """The norm before the unembedding, applied to the last block's output; x itself where the model has none."""
        x = jnp.asarray(x, jnp.float32)
        return x if self.final is None else self.final(x)

    def logits(self, x: Float[Array, "*rows d"]) -> Float32[Array, "*rows vocab"]:
        """The logits of a last block's output, which is normalised here.

        Args:
          x: the residual stream after the last block, before the final norm.
        Returns:
          Logits with the model's scale and cap.
        Raises:
          ValueError: the unembedding was not loaded.
        """
        x = self.final_norm(x)
        if self.project_out is not None:
            x = self.project_out(x)
        if self.unembedding is not None:
            logits = self.unembedding(x)
        elif self.tied:
            logits = Linear(self.embedding[...], None, self.blocks.mlp.down.precision)(x)
        else:
            raise ValueError("the unembedding was not loaded: call load_decoder(checkpoint, head=True)")
        logits = logits * self.spec.logit_scale
        cap = self.spec.logit_softcap
        return logits if cap is None else cap * jnp.tanh(logits / cap)

    def _per_layer(self) -> dict[str, Array]:
        """In which the layers differ, as arrays to scan over."""
        spec = self.spec.attention
        everything = np.iinfo(np.int32).max // 2
        return {
            "scale": jnp.asarray(spec.scales, jnp.float32),
            "window": jnp.asarray([everything if w is None else w for w in spec.windows], jnp.int32),
            "rope": jnp.asarray(spec.rope_of or (0,) * self.spec.layers, jnp.int32),
        }

    def _tables(self, seq: int, lengths: Int[Array, " batch"]) -> dict[str, Array | None]:
        """What all layers share: rotations and linear biases."""
        spec = self.spec.attention
        cos, sin = rotations(spec.ropes, jnp.arange(seq), lengths) if spec.ropes else (None, None)
        alibi = None
        if spec.alibi is not None:
            biases = alibi_biases(spec.heads, seq, spec.alibi, spec.alibi_scale)
            alibi = jnp.asarray(biases.reshape(spec.kv_heads, -1, seq))
        return {"cos": cos, "sin": sin, "alibi": alibi}
