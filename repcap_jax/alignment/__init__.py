"""Is each layer's geometry organised for prediction? Hidden states against the unembedding's readout subspace."""

from repcap_jax.alignment.readout import readout_subspace
from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.alignment.score import Sensitivity, alignment_score, default_ks, sensitivity

__all__ = [
    "AlignmentScore",
    "Sensitivity",
    "alignment_score",
    "default_ks",
    "readout_subspace",
    "sensitivity",
]
