"""What a decoder computes: switches in which the families differ, apart from its weights."""

from __future__ import annotations

import dataclasses

from repcap_jax.models.rope import Rope


@dataclasses.dataclass(frozen=True)
class NormSpec:
    """A norm over the last axis.

    Attributes:
      kind: `"rms"` divides by the root mean square, `"layer"` subtracts the mean first.
      eps: added under the root.
      affine: whether the norms have weights.
    """

    kind: str
    eps: float
    affine: bool = True


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Causal attention with shared key heads.

    Attributes:
      heads, kv_heads, head_dim: query heads, key and value heads, and their width.
      scales: per layer, the factor on q . k.
      windows: per layer, how many keys a query sees, itself included; None for all before it.
      ropes: the rotations that layers choose from; empty for none.
      rope_of: per layer, which of `ropes`.
      interleaved: rotate neighbouring coordinates instead of the two halves.
      qk_norm: normalise queries and keys over each `"head"`, over their full `"width"`, or not at all (None).
      softcap: scores become `softcap * tanh(score / softcap)`.
      clip: queries, keys and values are clipped to +-clip.
      alibi: `"float32"` or `"bfloat16"` (the slopes' arithmetic) for linear biases, else None.
      alibi_scale: the factor on those biases.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scales: tuple[float, ...]
    windows: tuple[int | None, ...]
    ropes: tuple[Rope, ...] = ()
    rope_of: tuple[int, ...] = ()
    interleaved: bool = False
    qk_norm: str | None = None
    softcap: float | None = None
    clip: float | None = None
    alibi: str | None = None
    alibi_scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class BlockSpec:
    """How attention and MLP are joined to the residual stream.

    Attributes:
      parallel: both read the block's input, x + attention + mlp, instead of one after the other.
      norm_after_add: norms follow the addition (opt-350m) instead of preceding the part.
      residual_from_norm: what is added to is the norm's output (a variant of bloom).
      residual_scale: the factor on what a part adds.
      activation: of the MLP.
      gated: whether the MLP multiplies its activation by a second projection.
    """

    parallel: bool = False
    norm_after_add: bool = False
    residual_from_norm: bool = False
    residual_scale: float = 1.0
    activation: str = "silu"
    gated: bool = True


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """A decoder without its weights.

    Attributes:
      family: the config's `model_type`.
      layers: number of blocks.
      d_model: width of the residual stream.
      norm, attention, block: see their classes.
      norms: which norms a block has: before (`_in`) and after (`_out`) its attention and its MLP.
      embedding_scale: the factor on token embeddings.
      max_positions: the longest sequence, where positions are learned; else None.
      final_norm: whether there is a norm before the unembedding.
      logit_scale, logit_softcap: applied to the logits in this order.
    """

    family: str
    layers: int
    d_model: int
    norm: NormSpec
    attention: AttentionSpec
    block: BlockSpec
    norms: tuple[str, ...] = ()
    embedding_scale: float | None = None
    max_positions: int | None = None
    final_norm: bool = True
    logit_scale: float = 1.0
    logit_softcap: float | None = None
