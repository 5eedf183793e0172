"""Toy models of superposition: trained by the hundred, measured, named by their polytopes, held against theory."""

from repcap_jax.superposition.geometry import (
    Cluster,
    Shape,
    feature_clusters,
    gram_distance,
    nearest_polytope,
)
from repcap_jax.superposition.instances import Instances, checked_instances, instance_grid, sparse_features
from repcap_jax.superposition.measures import FeatureMeasures, feature_measures, last_feature_phase
from repcap_jax.superposition.model import ToyModel, reconstruction_loss
from repcap_jax.superposition.polytopes import Polytope, ideal_polytopes
from repcap_jax.superposition.result import ToyModels, ToySettings
from repcap_jax.superposition.sweep import (
    Cell,
    blocks,
    cell_result,
    check_cells,
    geometry_cells,
    joined,
    phase_cells,
    stored_counts,
)
from repcap_jax.superposition.theory import (
    PHASES,
    LinearOptimum,
    PhaseLosses,
    antipodal_loss,
    antipodal_optimum,
    feature_moments,
    linear_loss,
    linear_optimum,
    optimal_phase_losses,
    phase_losses,
)
from repcap_jax.superposition.training import train_toy_models

__all__ = [
    "PHASES",
    "Cell",
    "Cluster",
    "FeatureMeasures",
    "Instances",
    "LinearOptimum",
    "PhaseLosses",
    "Polytope",
    "Shape",
    "ToyModel",
    "ToyModels",
    "ToySettings",
    "antipodal_loss",
    "antipodal_optimum",
    "blocks",
    "cell_result",
    "check_cells",
    "checked_instances",
    "feature_clusters",
    "feature_measures",
    "feature_moments",
    "geometry_cells",
    "gram_distance",
    "ideal_polytopes",
    "instance_grid",
    "joined",
    "last_feature_phase",
    "linear_loss",
    "linear_optimum",
    "nearest_polytope",
    "optimal_phase_losses",
    "phase_cells",
    "phase_losses",
    "reconstruction_loss",
    "sparse_features",
    "stored_counts",
    "train_toy_models",
]
