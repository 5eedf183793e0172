"""Capacity theory on scalars and small arrays: laws, fits, bounds, constructions and the bracket they form.

NumPy and SciPy in float64; imports nothing else of the package.
"""

from . import bounds, constructions, estimate, fits, grids, laws
from .bounds import (
    CoherenceBound,
    VectorsBound,
    coherence_bound,
    max_vectors_bound,
    random_existence,
)
from .constructions import (
    Construction,
    best_construction,
    build,
    constructions_in,
    family_construction,
    largest_construction,
)
from .estimate import (
    CapacityBracket,
    CapacityEstimate,
    CapacityRange,
    DirectionBudget,
    capacity_bracket,
    capacity_range,
    direction_budget,
    geometry_class,
    representational_capacity,
)
from .fit_range import FitRange
from .fits import FitErrors, LawFit, fit_errors, fit_law
from .grids import PackingGrid, load_grid, measured_grid
from .isotropic import IsotropicReference
from .laws import (
    FOUR_PARAMETER,
    JL_OPTIMISED,
    JL_RANDOM,
    LAWS,
    RATIO,
    WELCH_QUADRATIC,
    WELCH_RATIO,
    FourParameterLaw,
    JLLaw,
    Law,
    RatioLaw,
    WelchQuadraticLaw,
    WelchRatioLaw,
    get_law,
)

__all__ = [
    "FOUR_PARAMETER",
    "JL_OPTIMISED",
    "JL_RANDOM",
    "LAWS",
    "RATIO",
    "WELCH_QUADRATIC",
    "WELCH_RATIO",
    "CapacityBracket",
    "CapacityEstimate",
    "CapacityRange",
    "CoherenceBound",
    "Construction",
    "DirectionBudget",
    "FitErrors",
    "FitRange",
    "FourParameterLaw",
    "IsotropicReference",
    "JLLaw",
    "Law",
    "LawFit",
    "PackingGrid",
    "RatioLaw",
    "VectorsBound",
    "WelchQuadraticLaw",
    "WelchRatioLaw",
    "best_construction",
    "bounds",
    "build",
    "capacity_bracket",
    "capacity_range",
    "coherence_bound",
    "constructions",
    "constructions_in",
    "direction_budget",
    "estimate",
    "family_construction",
    "fit_errors",
    "fit_law",
    "fits",
    "geometry_class",
    "get_law",
    "grids",
    "largest_construction",
    "laws",
    "load_grid",
    "max_vectors_bound",
    "measured_grid",
    "random_existence",
    "representational_capacity",
]
