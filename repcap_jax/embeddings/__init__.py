"""How many near-orthogonal directions fit in a model, measured on its token embeddings."""

from repcap_jax.embeddings.geometry import EmbeddingGeometry, MatrixGeometry, embedding_geometry
from repcap_jax.embeddings.similarity import (
    SimilarityDistribution,
    corresponding_cosines,
    duplicate_rows,
    similarity_distribution,
)

__all__ = [
    "EmbeddingGeometry",
    "MatrixGeometry",
    "SimilarityDistribution",
    "corresponding_cosines",
    "duplicate_rows",
    "embedding_geometry",
    "similarity_distribution",
]
