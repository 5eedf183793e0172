"""Explicit sets of lines with small coherence: a catalogue to search, and vectors built lazily in blocks.

Every coherence stated here is proved in the docstring of the family or in its source, and checked in the tests by
forming the vectors. `binary`: Kerdock, Delsarte-Goethals, bent-function frames, a Heisenberg orbit. `equiangular`:
bases, simplices, Paley and Steiner frames, polynomial phases. `lattices`: root systems, the Leech lattice and others.
"""

from .catalogue import (
    FAMILIES,
    Construction,
    best_construction,
    build,
    constructions_in,
    family_construction,
    largest_construction,
)

__all__ = [
    "FAMILIES",
    "Construction",
    "best_construction",
    "build",
    "constructions_in",
    "family_construction",
    "largest_construction",
]
