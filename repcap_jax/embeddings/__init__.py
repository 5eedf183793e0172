"""How many near-orthogonal directions fit in a model, and which tokens lie next to each other."""

from repcap_jax.embeddings.analogies import Answer, Query, Score, score, solve
from repcap_jax.embeddings.first_block import (
    ProjectedTokens,
    first_projections,
    input_gain,
    norm_gains,
    projected_tokens,
    seen_through,
)
from repcap_jax.embeddings.geometry import EmbeddingGeometry, MatrixGeometry, embedding_geometry
from repcap_jax.embeddings.lexicon import (
    Analogy,
    AnalogyResult,
    NamedPair,
    ask,
    built_in_analogies,
    named_pairs,
    parse_analogy,
    parse_pair,
    scores,
)
from repcap_jax.embeddings.norms import RowNorms, row_norms
from repcap_jax.embeddings.primary import PrimaryToken, TailShare, in_degrees, primary_tokens, tail_share
from repcap_jax.embeddings.relations import NearDuplicates, TokenRelations, token_relations
from repcap_jax.embeddings.similarity import (
    SimilarityDistribution,
    corresponding_cosines,
    duplicate_rows,
    similarity_distribution,
)
from repcap_jax.embeddings.unembedding import UnembeddingComparison, compare_unembedding

__all__ = [
    "Analogy",
    "AnalogyResult",
    "Answer",
    "EmbeddingGeometry",
    "MatrixGeometry",
    "NamedPair",
    "NearDuplicates",
    "PrimaryToken",
    "ProjectedTokens",
    "Query",
    "RowNorms",
    "Score",
    "SimilarityDistribution",
    "TailShare",
    "TokenRelations",
    "UnembeddingComparison",
    "ask",
    "built_in_analogies",
    "compare_unembedding",
    "corresponding_cosines",
    "duplicate_rows",
    "embedding_geometry",
    "first_projections",
    "in_degrees",
    "input_gain",
    "named_pairs",
    "norm_gains",
    "parse_analogy",
    "parse_pair",
    "primary_tokens",
    "projected_tokens",
    "row_norms",
    "score",
    "scores",
    "seen_through",
    "similarity_distribution",
    "solve",
    "tail_share",
    "token_relations",
]
