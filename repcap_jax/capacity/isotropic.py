"""What dimension alone gives: cosines of independent vectors of an isotropic Gaussian."""

import dataclasses
import math
from typing import Any

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class IsotropicReference:
    """What n independent vectors of an isotropic Gaussian in R^d give: structure is what departs from it.

    The cosine of two such vectors has mean 0, standard deviation 1 / sqrt(d) and density proportional to
    (1 - c^2)^((d - 3) / 2) on [-1, 1], so that epsilon = 2 / sqrt(d).

    Attributes:
      n: number of vectors.
      d: dimension.
    Source: elementary; (1 + c) / 2 has the beta distribution with both parameters (d - 1) / 2.
    """

    n: int
    d: int

    @property
    def mean(self) -> float:
        """Mean cosine of a pair, 0."""
        return 0.0

    @property
    def std(self) -> float:
        """Standard deviation of a pair's cosine, 1 / sqrt(d)."""
        return 1.0 / math.sqrt(self.d)

    @property
    def epsilon(self) -> float:
        """mean + 2 std = 2 / sqrt(d)."""
        return 2.0 / math.sqrt(self.d)

    @property
    def largest(self) -> float:
        """The cosine that one pair in n(n-1)/2 exceeds on average: about the largest that chance produces."""
        if self.d == 1:
            return 1.0
        return float(self._beta().isf(2.0 / (self.n * (self.n - 1))) * 2 - 1)

    def density(self, cosines: np.ndarray) -> np.ndarray:
        """Probability density of a cosine (d >= 2), by way of its logarithm so that far tails keep their digits."""
        return np.exp(self._beta().logpdf((np.asarray(cosines, np.float64) + 1) / 2)) / 2

    def tail(self, cosine: float) -> float:
        """Probability that a pair's cosine exceeds `cosine`."""
        if self.d == 1:  # on a line cosines are 1 or -1
            return 0.5 if -1.0 <= cosine < 1.0 else float(cosine < -1.0)
        return float(self._beta().sf((cosine + 1) / 2))

    def _beta(self) -> Any:
        return stats.beta((self.d - 1) / 2, (self.d - 1) / 2)
