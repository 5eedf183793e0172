"""Decoder-only language models in Flax NNX: the residual stream of every layer, before the final norm.

``load_decoder(checkpoint)`` gives a :class:`Decoder` for the families of :data:`FAMILIES`; ``hidden_states`` runs it on
a batch and ``extract_states`` on a corpus, at chosen tokens.
"""

from repcap_jax.models.decoder import Decoder
from repcap_jax.models.families import FAMILIES, UnsupportedModel
from repcap_jax.models.language import greedy_tokens, next_token_loss, perplexity
from repcap_jax.models.loading import attention_projections, load_decoder
from repcap_jax.models.states import extract_states, hidden_states
from repcap_jax.models.text import Documents, TokenSample, read_documents, sample_tokens

__all__ = [
    "FAMILIES",
    "Decoder",
    "Documents",
    "TokenSample",
    "UnsupportedModel",
    "attention_projections",
    "extract_states",
    "greedy_tokens",
    "hidden_states",
    "load_decoder",
    "next_token_loss",
    "perplexity",
    "read_documents",
    "sample_tokens",
]
