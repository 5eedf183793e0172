"""Is each layer's geometry organised for prediction? Hidden states against the unembedding's readout subspace."""

from repcap_jax.alignment.layers import LayerAlignment, layer_alignment
from repcap_jax.alignment.readout import readout_subspace
from repcap_jax.alignment.result import AlignmentScore
from repcap_jax.alignment.score import Sensitivity, alignment_score, default_ks, sensitivity
from repcap_jax.alignment.spectral import SpectralMetrics, spectral_metrics

__all__ = [
    "AlignmentScore",
    "LayerAlignment",
    "Sensitivity",
    "SpectralMetrics",
    "alignment_score",
    "default_ks",
    "layer_alignment",
    "readout_subspace",
    "sensitivity",
    "spectral_metrics",
]
