"""Laws that tie the coherence epsilon of k packed lines to the dimension d, their inverses and published constants.

Every law is a frozen `Law` with the same methods, vectorised over NumPy arrays:

    epsilon(k, d)             smallest |cosine| bound the law expects for k vectors in R^d; 0 for k <= d
    capacity(d, epsilon)      how many vectors fit, never fewer than d
    log_capacity(d, epsilon)  ln of the same, finite where the count itself overflows
    elasticity(d, epsilon)    d ln k / d ln epsilon

The laws are empirical fits, not theorems: `extrapolates` says whether a point lies outside the fitted range.
Sources: Guha 2026, arXiv:2606.02765, and refits of its published packing grid.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from ._values import Number, Values, check_count, check_dimension, check_epsilon, unwrap
from .fit_range import FitRange


@dataclass(frozen=True)
class Law(ABC):
    """What all laws share; subclasses supply the curve, its inverse and its slope as functions of ln k."""

    name: str = field(default="", kw_only=True)
    source: str = field(default="", kw_only=True)
    fit_range: FitRange | None = field(default=None, kw_only=True)

    form: ClassVar[str] = ""
    inverse: ClassVar[str] = "closed form"

    def __post_init__(self):
        for key, value in self.constants.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise TypeError(f"constant {key} of {type(self).__name__} must be a number, got {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"constant {key} of {type(self).__name__} must be finite and positive so that the law "
                    f"rises with k, got {value!r}"
                )

    @property
    def constants(self) -> Mapping[str, float]:
        """The constants of the form, by name."""
        shared = {"name", "source", "fit_range"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shared}

    def with_constants(
        self, *, name: str = "refit", source: str = "", fit_range: FitRange | None = None, **constants: Number
    ) -> "Law":
        """Return the same form with other constants; name, source and fitted range are replaced too."""
        return replace(self, name=name, source=source, fit_range=fit_range, **constants)

    # The three functions of a form; all take and return float64 arrays.

    @abstractmethod
    def curve(self, log_k: Values, d: Values) -> Values:
        """Return the formula at ln k as fits compare it: 0 for k <= d, save for the JL law, which goes on below d."""

    @abstractmethod
    def _inverse(self, d: Values, epsilon: Values) -> Values:
        """ln k at which the curve reaches epsilon; may lie below ln d."""

    @abstractmethod
    def _slope(self, d: Values, epsilon: Values, log_k: Values) -> Values:
        """d ln k / d ln epsilon where k > d."""

    # What users call.

    def epsilon(self, k: Any, d: Any) -> Any:
        """Return the coherence the law expects for k vectors in R^d.

        Args:
          k: number of vectors, >= 1, scalar or array.
          d: dimension, >= 1, scalar or array.

        Returns:
          epsilon, 0 where k <= d because an orthonormal set is available. May exceed 1 far outside the fitted range.

        Raises:
          ValueError: k < 1, d < 1 or NaN.
        """
        k, d = check_count(k), check_dimension(d)
        return unwrap(np.where(k > d, self.curve(np.log(k), d), 0.0))

    def log_capacity(self, d: Any, epsilon: Any) -> Any:
        """Return ln k for the number of vectors k that fit at coherence epsilon, at least ln d.

        Args:
          d: dimension, >= 1.
          epsilon: bound on |cosine|, >= 0.

        Raises:
          ValueError: epsilon negative or not finite, or d < 1.
        """
        d, epsilon = check_dimension(d), check_epsilon(epsilon)
        return unwrap(np.maximum(np.log(d), self._inverse(d, epsilon)))

    def capacity(self, d: Any, epsilon: Any) -> Any:
        """Return the number of vectors k that fit at coherence epsilon: the inverse of `epsilon`, at least d.

        Args and Raises as `log_capacity`. Returns a real number (not rounded), inf where it exceeds float64.
        """
        d, log_k = check_dimension(d), np.asarray(self.log_capacity(d, epsilon))
        with np.errstate(over="ignore"):
            grown = np.exp(log_k)
        return unwrap(np.where(log_k > np.log(d), np.maximum(d, grown), d))

    def elasticity(self, d: Any, epsilon: Any) -> Any:
        """Return d ln k / d ln epsilon: the percent by which capacity moves when epsilon moves by one percent.

        It is 0 where the capacity rests on its floor d. Args and Raises as `log_capacity`.
        """
        d, epsilon = np.broadcast_arrays(check_dimension(d), check_epsilon(epsilon))
        log_k = np.asarray(self.log_capacity(d, epsilon))
        free = log_k > np.log(d)
        slope = np.zeros(d.shape)
        slope[free] = self._slope(d[free], epsilon[free], log_k[free])
        return unwrap(slope)

    def max_vectors(self, d: Number, epsilon: Number) -> tuple[float, str]:
        """Return the whole number of vectors that fit by this law, and a note where that number means little.

        Args and Raises as `log_capacity`, scalars only.

        Returns:
          (k, note): k a whole number, or inf where it exceeds float64. The note is "" for a point that the law was
          fitted on; otherwise it says that k is the floor d, overflows, or lies outside the fitted range.
        """
        log_k, k = self.log_capacity(d, epsilon), self.capacity(d, epsilon)
        # The inverse of an integer-valued epsilon(k, d) lands within rounding of k: do not lose that vector.
        whole = k if math.isinf(k) else float(math.floor(k * (1 + 1e-12)))
        notes = []
        if k <= d:
            notes.append("the law reaches epsilon only at k <= d, so the count is that of an orthonormal basis")
        if math.isinf(k):
            notes.append(f"the count exceeds float64: ln k = {log_k:.6g}")
        return whole, "; ".join([*notes, *self.extrapolation_reasons(d, k)])

    def extrapolates(self, d: Any, k: Any) -> Any:
        """Return whether the point (d, k) lies outside the cells the law was fitted on (True if these are unknown)."""
        d, k = check_dimension(d), check_count(k)
        if self.fit_range is None:
            return True if np.ndim(d) == np.ndim(k) == 0 else np.ones(np.broadcast_shapes(d.shape, k.shape), bool)
        inside = self.fit_range.contains(d, k)
        return not inside if isinstance(inside, bool) else ~inside

    def extrapolation_reasons(self, d: Number, k: Number) -> tuple[str, ...]:
        """Return, in words, each way in which the point (d, k) leaves the fitted range; empty inside it."""
        if self.fit_range is None:
            return ("the range these constants were fitted on is not recorded",)
        return self.fit_range.reasons(float(d), float(k))

    def to_record(self) -> dict:
        """Return name, form, constants, source and fitted range as valid JSON."""
        fitted = None
        if self.fit_range is not None:
            fitted = {f.name: getattr(self.fit_range, f.name) for f in fields(FitRange)}
            fitted = {key: list(v) if isinstance(v, tuple) else v for key, v in fitted.items()}
        constants = {key: float(value) for key, value in self.constants.items()}
        return {
            "name": self.name,
            "form": self.form,
            "inverse": self.inverse,
            "constants": constants,
            "source": self.source,
            "fit_range": fitted,
        }


@dataclass(frozen=True)
class JLLaw(Law):
    """Johnson-Lindenstrauss law: epsilon = sqrt(C ln k / d), so k = exp(d epsilon^2 / C)."""

    C: Number
    form: ClassVar[str] = "sqrt(C ln k / d)"

    def curve(self, log_k, d):
        return np.sqrt(self.C * log_k / d)

    def _inverse(self, d, epsilon):
        return d * epsilon**2 / self.C

    def _slope(self, d, epsilon, log_k):
        return 2 * log_k


@dataclass(frozen=True)
class RatioLaw(Law):
    """Ratio law: epsilon = sqrt(C ln(k/d) / d), so k = d exp(d epsilon^2 / C)."""

    C: Number
    form: ClassVar[str] = "sqrt(C ln(k/d) / d)"

    def curve(self, log_k, d):
        return np.sqrt(self.C * np.maximum(log_k - np.log(d), 0) / d)

    def _inverse(self, d, epsilon):
        return np.log(d) + d * epsilon**2 / self.C

    def _slope(self, d, epsilon, log_k):
        return 2 * d * epsilon**2 / self.C


@dataclass(frozen=True)
class FourParameterLaw(Law):
    """Four-parameter law: epsilon = sqrt(C ln(k^a/d)^b / d^c), so k = (d exp((d^c epsilon^2 / C)^(1/b)))^(1/a).

    With a > 1 the curve does not pass through 0 at k = d: it starts there at sqrt(C ((a-1) ln d)^b / d^c), and any
    smaller epsilon has capacity d.
    """

    C: Number
    a: Number
    b: Number
    c: Number
    form: ClassVar[str] = "sqrt(C ln(k^a/d)^b / d^c)"

    def curve(self, log_k, d):
        excess = np.where(log_k > np.log(d), np.maximum(self.a * log_k - np.log(d), 0), 0)
        return np.sqrt(self.C * excess**self.b / d**self.c)

    def _excess(self, d, epsilon):
        """ln(k^a / d)."""
        with np.errstate(over="ignore"):
            return (d**self.c * epsilon**2 / self.C) ** (1 / self.b)

    def _inverse(self, d, epsilon):
        return (np.log(d) + self._excess(d, epsilon)) / self.a

    def _slope(self, d, epsilon, log_k):
        return 2 * self._excess(d, epsilon) / (self.a * self.b)


def log_welch(log_k: Values, d: Values) -> Values:
    """Return ln of the Welch bound sqrt((k-d) / (d (k-1))) from ln k, -inf for k <= d; safe for any k."""
    log_k, d = np.asarray(log_k, np.float64), np.asarray(d, np.float64)
    above = log_k > np.log(d)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(-np.expm1(np.log(d) - log_k)) - np.log(-np.expm1(-log_k))
    return np.where(above, 0.5 * (np.where(above, share, 0) - np.log(d)), -np.inf)


@dataclass(frozen=True)
class _WelchLaw(Law):
    """Welch bound times a growing factor of x = ln(k/d). The factor and its inverse come from the subclass.

    The inverse has no closed form. Since Welch lies between sqrt(1/(2d)) and sqrt(1/d) once k >= 2d, the root x lies
    in [0, max(ln 2, x at which the factor is epsilon sqrt(2d))], and bisection on that bracket finds it.
    """

    inverse: ClassVar[str] = "bisection in ln(k/d)"

    @abstractmethod
    def _factor(self, x):
        """The factor at x = ln(k/d)."""

    @abstractmethod
    def _factor_inverse(self, value):
        """The x at which the factor reaches value, 0 if it starts above."""

    @abstractmethod
    def _factor_slope(self, x):
        """d ln factor / dx."""

    def curve(self, log_k, d):
        return np.exp(log_welch(log_k, d)) * self._factor(np.maximum(log_k - np.log(d), 0))

    def _inverse(self, d, epsilon):
        d, epsilon = np.broadcast_arrays(d, epsilon)
        low = np.zeros(d.shape)
        high = np.maximum(math.log(2), self._factor_inverse(epsilon * np.sqrt(2 * d)))
        for _ in range(64):
            middle = 0.5 * (low + high)
            reached = self.curve(np.log(d) + middle, d) >= epsilon
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.log(d) + 0.5 * (low + high)

    def _slope(self, d, epsilon, log_k):
        x = log_k - np.log(d)
        with np.errstate(over="ignore"):
            welch = 0.5 * (1 / np.expm1(x) - 1 / np.expm1(log_k))
        return 1 / (welch + self._factor_slope(x))


@dataclass(frozen=True)
class WelchRatioLaw(_WelchLaw):
    """Welch-ratio law: epsilon = Welch(k, d) (1 + A ln(k/d)); the inverse is found by bisection in ln k."""

    A: Number
    form: ClassVar[str] = "Welch(k,d) (1 + A ln(k/d))"

    def _factor(self, x):
        return 1 + self.A * x

    def _factor_inverse(self, value):
        return np.maximum(value - 1, 0) / self.A

    def _factor_slope(self, x):
        return self.A / (1 + self.A * x)


@dataclass(frozen=True)
class WelchQuadraticLaw(_WelchLaw):
    """Welch-quadratic law: epsilon = Welch(k, d) sqrt(A + B ln(k/d)^2); the inverse is found by bisection in ln k."""

    A: Number
    B: Number
    form: ClassVar[str] = "Welch(k,d) sqrt(A + B ln(k/d)^2)"

    def _factor(self, x):
        return np.sqrt(self.A + self.B * x**2)

    def _factor_inverse(self, value):
        return np.sqrt(np.maximum(value**2 - self.A, 0) / self.B)

    def _factor_slope(self, x):
        return self.B * x / (self.A + self.B * x**2)


_PAPER = "Guha 2026, arXiv:2606.02765"
_OPTIMISED = FitRange(d=(32, 4096), k=(2000, 32000))
_RANDOM = FitRange(d=(256, 4096), k=(2000, 32000))

JL_OPTIMISED = JLLaw(
    0.7068, name="jl-optimised", source=f"{_PAPER}: JL law fitted to the optimised packings", fit_range=_OPTIMISED
)
JL_RANDOM = JLLaw(
    3.0295, name="jl-random", source=f"{_PAPER}: JL law fitted to the best of 1,000 random draws", fit_range=_RANDOM
)
RATIO = RatioLaw(
    1.293, name="ratio", source=f"{_PAPER}: ratio law fitted to the optimised packings", fit_range=_OPTIMISED
)
FOUR_PARAMETER = FourParameterLaw(
    0.45809143,
    1.0668005,
    1.44738666,
    0.97197234,
    name="four-parameter",
    source=f"{_PAPER}: four-parameter law fitted to the optimised packings; the paper's capacity table uses it",
    fit_range=_OPTIMISED,
)
WELCH_RATIO = WelchRatioLaw(
    0.302, name="welch-ratio", source=f"refit of the optimised packings published with {_PAPER}", fit_range=_OPTIMISED
)
WELCH_QUADRATIC = WelchQuadraticLaw(
    1.0762,
    0.15516,
    name="welch-quadratic",
    source="fit to the 53 cells of the package's own grid with k / d >= 1.5 and k <= d^2 / 2 (`measured_grid`)",
    fit_range=FitRange(d=(16, 1024), ratio=(1.5, 48), square=0.5),
)

LAWS: Mapping[str, Law] = {
    law.name: law for law in (JL_OPTIMISED, JL_RANDOM, RATIO, FOUR_PARAMETER, WELCH_RATIO, WELCH_QUADRATIC)
}


def get_law(law: str | Law) -> Law:
    """Return a law from its name in `LAWS` ("_" counts as "-", "jl" as "jl-optimised"), or the law itself.

    Raises:
      ValueError: unknown name (the message lists the known ones).
      TypeError: neither a name nor a Law.
    """
    if isinstance(law, Law):
        return law
    if not isinstance(law, str):
        raise TypeError(f"law must be a Law or one of {sorted(LAWS)}, got {type(law).__name__}")
    name = law.lower().replace("_", "-")
    name = "jl-optimised" if name == "jl" else name
    if name not in LAWS:
        raise ValueError(f"unknown law {law!r}; known laws: {', '.join(sorted(LAWS))}")
    return LAWS[name]
