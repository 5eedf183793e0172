"""Measure the geometry of language-model representations, on CPUs, GPUs, TPUs and across hosts.

    import repcap_jax as rc
    checkpoint = rc.open_checkpoint("HuggingFaceTB/SmolLM2-135M")
    found = rc.similarity_distribution(checkpoint.embedding())
    rc.representational_capacity(found.d_model, found.epsilon)

Public names are imported when they are first used, so that `import repcap_jax` is fast and touches no device.
"""

import importlib
from typing import Any

from repcap_jax._version import __version__

_MODULES = {"laws": "repcap_jax.capacity", "bounds": "repcap_jax.capacity", "constructions": "repcap_jax.capacity"}
_HOMES = {
    "repcap_jax.alignment": (
        "AlignmentScore",
        "SpectralMetrics",
        "alignment_score",
        "readout_subspace",
        "sensitivity",
        "spectral_metrics",
    ),
    "repcap_jax.capacity.estimate": (
        "capacity_bracket",
        "capacity_range",
        "direction_budget",
        "geometry_class",
        "representational_capacity",
    ),
    "repcap_jax.capacity.fits": ("fit_law",),
    "repcap_jax.checkpoints": ("Checkpoint", "CheckpointError", "open_checkpoint"),
    "repcap_jax.concepts": (
        "built_in_concepts",
        "causal_inner_product",
        "concept_direction",
        "heat_map",
        "sample_pairs",
        "separations",
    ),
    "repcap_jax.embeddings.geometry": ("EmbeddingGeometry", "embedding_geometry"),
    "repcap_jax.embeddings.primary": ("primary_tokens",),
    "repcap_jax.embeddings.relations": ("TokenRelations", "token_relations"),
    "repcap_jax.embeddings.similarity": (
        "SimilarityDistribution",
        "corresponding_cosines",
        "similarity_distribution",
    ),
    "repcap_jax.kernels.grassmann": ("grassmann_frames",),
    "repcap_jax.kernels.moments": ("cosine_moments",),
    "repcap_jax.kernels.pairs": ("fold_pairs", "nearest_neighbours", "pair_histogram"),
    "repcap_jax.kernels.placement": ("device_mesh",),
    "repcap_jax.kernels.ranks": ("spearman",),
    "repcap_jax.models": ("Decoder", "extract_states", "hidden_states", "load_decoder"),
    "repcap_jax.packing": (
        "EnergyMinimum",
        "Packing",
        "minimal_energy",
        "pack",
        "predicted_random_coherence",
        "random_coherence",
        "riesz_energy",
    ),
    "repcap_jax.kernels.listing": ("PairsAbove",),
    "repcap_jax.kernels.reducers": ("Extremes", "Histogram", "NearestNeighbours"),
    "repcap_jax.superposition": (
        "ToyModels",
        "feature_clusters",
        "feature_measures",
        "instance_grid",
        "nearest_polytope",
        "train_toy_models",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_MODULES, *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"{_MODULES[name]}.{name}")
    raise AttributeError(f"module 'repcap_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
