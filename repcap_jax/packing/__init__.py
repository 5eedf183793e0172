"""Vectors on the sphere: packings, what they are held against, what random directions reach, and least energies."""

from repcap_jax.packing.code_bounds import code_bound
from repcap_jax.packing.energy import LARGEST_S, EnergyMinimum, Symmetry, minimal_energy, riesz_energy, symmetry
from repcap_jax.packing.exact import KnownBest, known_best
from repcap_jax.packing.known_energies import published_code, published_thomson_energy
from repcap_jax.packing.objective import SmoothMaximum, Tiling, smooth_maximum
from repcap_jax.packing.optimiser import Schedule, sphere_adam, tangent_projection
from repcap_jax.packing.pack import default_starts, default_steps, pack
from repcap_jax.packing.polish import exact_coherence, sharpen
from repcap_jax.packing.random_baseline import RandomCoherence, predicted_random_coherence, random_coherence
from repcap_jax.packing.result import BoundViolation, History, Packing, PackSettings

__all__ = [
    "LARGEST_S",
    "BoundViolation",
    "EnergyMinimum",
    "History",
    "KnownBest",
    "PackSettings",
    "Packing",
    "RandomCoherence",
    "Schedule",
    "SmoothMaximum",
    "Symmetry",
    "Tiling",
    "code_bound",
    "default_starts",
    "default_steps",
    "exact_coherence",
    "known_best",
    "minimal_energy",
    "pack",
    "predicted_random_coherence",
    "published_code",
    "published_thomson_energy",
    "random_coherence",
    "riesz_energy",
    "sharpen",
    "smooth_maximum",
    "sphere_adam",
    "symmetry",
    "tangent_projection",
]
