"""Are concepts directions, and orthogonal in which inner product? (Park, Choe, Veitch 2024, arXiv:2311.03658)"""

from repcap_jax.concepts.directions import ConceptDirection, concept_direction
from repcap_jax.concepts.heat_map import HeatMap, PermutationTest, heat_map, permutation_test, separable_pairs
from repcap_jax.concepts.inner_product import (
    InnerProduct,
    causal_inner_product,
    euclidean_inner_product,
    random_inner_product,
)
from repcap_jax.concepts.measurement import (
    Intervention,
    Isomorphism,
    Measurement,
    intervene,
    intervention,
    isomorphism,
    log_odds,
    measure,
    most_likely,
)
from repcap_jax.concepts.pairs import (
    TextPairs,
    TokenPairs,
    built_in_concepts,
    built_in_contexts,
    read_folder,
    read_text_pairs,
    resolve,
    usable,
)
from repcap_jax.concepts.separation import Interval, Separation, area_under_curve, sample_pairs, separations

__all__ = [
    "ConceptDirection",
    "HeatMap",
    "InnerProduct",
    "Intervention",
    "Interval",
    "Isomorphism",
    "Measurement",
    "PermutationTest",
    "Separation",
    "TextPairs",
    "TokenPairs",
    "area_under_curve",
    "built_in_concepts",
    "built_in_contexts",
    "causal_inner_product",
    "concept_direction",
    "euclidean_inner_product",
    "heat_map",
    "intervene",
    "intervention",
    "isomorphism",
    "log_odds",
    "measure",
    "most_likely",
    "permutation_test",
    "random_inner_product",
    "read_folder",
    "read_text_pairs",
    "resolve",
    "sample_pairs",
    "separable_pairs",
    "separations",
    "usable",
]
