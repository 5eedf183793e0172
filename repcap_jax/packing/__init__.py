"""Packing near-orthogonal vectors: an annealed descent, what it is held against, and what random directions reach."""

from repcap_jax.packing.code_bounds import code_bound
from repcap_jax.packing.exact import KnownBest, known_best
from repcap_jax.packing.objective import SmoothMaximum, Tiling, smooth_maximum
from repcap_jax.packing.optimiser import Schedule, sphere_adam, tangent_projection
from repcap_jax.packing.pack import default_starts, default_steps, pack
from repcap_jax.packing.polish import exact_coherence, sharpen
from repcap_jax.packing.random_baseline import RandomCoherence, predicted_random_coherence, random_coherence
from repcap_jax.packing.result import BoundViolation, History, Packing, PackSettings

__all__ = [
    "BoundViolation",
    "History",
    "KnownBest",
    "PackSettings",
    "Packing",
    "RandomCoherence",
    "Schedule",
    "SmoothMaximum",
    "Tiling",
    "code_bound",
    "default_starts",
    "default_steps",
    "exact_coherence",
    "known_best",
    "pack",
    "predicted_random_coherence",
    "random_coherence",
    "sharpen",
    "smooth_maximum",
    "sphere_adam",
    "tangent_projection",
]
