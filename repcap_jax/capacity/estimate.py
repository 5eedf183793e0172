"""From a measured epsilon to a representational capacity, with what it is worth said alongside."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ._values import Number, as_floats, check_epsilon, check_integer, json_number
from .bounds import VectorsBound, max_vectors_bound, random_existence
from .constructions import Construction, largest_construction
from .laws import FOUR_PARAMETER, LAWS, Law, get_law

CLASS_NEAR_ORTHOGONAL = "class 2"
CLASS_NOT_ORTHOGONAL = "class 1"
CLASS_BETWEEN = "between"
NEAR_ORTHOGONAL_BELOW = 0.1
NOT_ORTHOGONAL_ABOVE = 0.2


def geometry_class(epsilon: Number) -> str:
    """Return the geometry class of a model: "class 2" for epsilon < 0.1, "class 1" for epsilon > 0.2, else "between".

    Class 2 embeddings are near-orthogonal; class 1 embeddings are not, and the paper calls their capacity
    indeterminate. Source: Guha 2026, arXiv:2606.02765.

    Raises:
      ValueError: epsilon negative or not finite.
    """
    epsilon = float(check_epsilon(epsilon))
    if epsilon < NEAR_ORTHOGONAL_BELOW:
        return CLASS_NEAR_ORTHOGONAL
    return CLASS_NOT_ORTHOGONAL if epsilon > NOT_ORTHOGONAL_ABOVE else CLASS_BETWEEN


@dataclass(frozen=True)
class CapacityEstimate:
    """How many near-orthogonal directions a law says fit in a latent space.

    Args:
      d_model: width of the latent space.
      epsilon: bound on |cosine|, mean + 2 std of the pairwise cosines in the paper.
      law: name of the law; `constants` and `source` say which one exactly.
      capacity: number of directions, not rounded; inf where it exceeds float64.
      log10_capacity: its decimal logarithm, finite for any epsilon a model can have.
      elasticity: d ln k / d ln epsilon, 0 where the capacity rests on its floor d_model.
      geometry_class: "class 2", "class 1" or "between".
      indeterminate: True where the paper gives no capacity (class 1); the law's number is still recorded.
      reason: why it is indeterminate, else "".
      extrapolation_reasons: one sentence for each way the point leaves the law's fitted range.
    """

    d_model: int
    epsilon: float
    law: str
    constants: Mapping[str, float]
    source: str
    capacity: float
    log10_capacity: float
    elasticity: float
    geometry_class: str
    indeterminate: bool
    reason: str
    extrapolation_reasons: tuple[str, ...]

    @property
    def extrapolates(self) -> bool:
        """Whether the point lies outside the cells the law was fitted on."""
        return bool(self.extrapolation_reasons)

    @property
    def bracket(self) -> "CapacityBracket":
        """What is proven about the same d_model and epsilon: see `capacity_bracket`."""
        return capacity_bracket(self.d_model, self.epsilon)

    def to_record(self) -> dict:
        """Return the estimate as valid JSON; a capacity beyond float64 is null plus its reason."""
        record = {
            "d_model": self.d_model,
            "epsilon": self.epsilon,
            "law": self.law,
            "constants": dict(self.constants),
            "source": self.source,
            "geometry_class": self.geometry_class,
            "indeterminate": self.indeterminate,
            "indeterminate_reason": self.reason or None,
            "extrapolates": self.extrapolates,
            "extrapolation_reasons": list(self.extrapolation_reasons),
        }
        json_number(record, "log10_capacity", self.log10_capacity, "exceeds float64")
        json_number(record, "elasticity", self.elasticity, "exceeds float64")
        json_number(record, "capacity", self.capacity, "exceeds float64; see log10_capacity")
        return record


def representational_capacity(d_model: Number, epsilon: Number, *, law: str | Law = FOUR_PARAMETER) -> CapacityEstimate:
    """Return the capacity of a d_model-dimensional latent space at coherence epsilon, by a packing law.

        k = law.capacity(d_model, epsilon), never below d_model

    Args:
      d_model: width of the latent space, a whole number >= 1.
      epsilon: bound on |cosine|, >= 0; the paper takes mean + 2 std of the pairwise cosines of the token embeddings.
      law: a Law or the name of one in `laws.LAWS`; the four-parameter law of the paper's table by default.

    Returns:
      CapacityEstimate.

    Raises:
      ValueError: negative, NaN or infinite epsilon; d_model < 1; unknown law.

    Source: Guha 2026, arXiv:2606.02765. The paper's own code returns fewer than d_model directions for small epsilon
    and accepts a negative one; this does neither.
    """
    d_model = check_integer(d_model, "d_model", 1)
    values = check_epsilon(epsilon)
    if values.ndim:
        raise TypeError(f"epsilon must be one number, got an array of shape {values.shape}")
    epsilon = float(values)
    law = get_law(law)
    kind = geometry_class(epsilon)
    reason = ""
    if kind == CLASS_NOT_ORTHOGONAL:
        reason = (
            f"epsilon = {epsilon:.5g} > {NOT_ORTHOGONAL_ABOVE}: the embeddings are not near-orthogonal (class 1), "
            "so a packing law says nothing about them"
        )
    capacity = law.capacity(d_model, epsilon)
    return CapacityEstimate(
        d_model=d_model,
        epsilon=epsilon,
        law=law.name or law.form,
        constants={key: float(value) for key, value in law.constants.items()},
        source=law.source,
        capacity=capacity,
        log10_capacity=law.log_capacity(d_model, epsilon) / math.log(10),
        elasticity=law.elasticity(d_model, epsilon),
        geometry_class=kind,
        indeterminate=bool(reason),
        reason=reason,
        extrapolation_reasons=law.extrapolation_reasons(d_model, capacity),
    )


@dataclass(frozen=True)
class DirectionBudget:
    """How many of a model's directions its tokens use, and what is left for features.

    Args:
      vocab_size: number of tokens V.
      tied: whether one matrix serves as embedding and unembedding.
      capacity: number of directions available (inf allowed).
      token_directions: V if tied, 2 V if not.
      features_left: capacity - token_directions; negative where the tokens alone exceed the capacity.
    """

    vocab_size: int
    tied: bool
    capacity: float
    token_directions: int
    features_left: float

    @property
    def overdrawn(self) -> bool:
        """Whether the tokens alone need more directions than the capacity offers."""
        return self.features_left < 0

    def summary(self) -> str:
        """Return the budget in one sentence."""
        formula = "V" if self.tied else "2 V"
        tokens = f"tokens use {formula} = {self.token_directions:,} directions of {self.capacity:,.4g}"
        if self.overdrawn:
            return f"{tokens}: {-self.features_left:,.4g} more than fit, so none is left for features"
        return f"{tokens}: {self.features_left:,.4g} are left for features"

    def to_record(self) -> dict:
        """Return the budget as valid JSON."""
        record = {
            "vocab_size": self.vocab_size,
            "tied": self.tied,
            "token_directions": self.token_directions,
            "overdrawn": self.overdrawn,
            "summary": self.summary(),
        }
        json_number(record, "capacity", self.capacity, "exceeds float64")
        json_number(record, "features_left", self.features_left, "the capacity exceeds float64")
        return record


def direction_budget(vocab_size: Number, capacity: Number, tied: bool) -> DirectionBudget:
    """Return how many directions tokens use and how many are left for features.

        untied: k ~ 2 V + k_features        tied: k ~ V + k_features

    Args:
      vocab_size: number of tokens V, a whole number >= 1.
      capacity: number of directions k, >= 0, inf allowed.
      tied: whether embedding and unembedding are one matrix.

    Returns:
      DirectionBudget; features_left is negative where the tokens alone exceed the capacity.

    Raises:
      ValueError: vocab_size < 1, capacity negative or NaN.

    Source: Guha 2026, arXiv:2606.02765.
    """
    vocab_size = check_integer(vocab_size, "vocab_size", 1)
    capacity = float(as_floats(capacity, "capacity"))
    if not capacity >= 0:
        raise ValueError(f"capacity must be a number of directions >= 0, got {capacity!r}")
    used = vocab_size if tied else 2 * vocab_size
    return DirectionBudget(vocab_size, bool(tied), capacity, used, capacity - used)


RANGE_MULTIPLES = (1.5, 2.0, 3.0)
_ALL_LAWS = tuple(LAWS.values())


@dataclass(frozen=True)
class CapacityRange:
    """Capacity at epsilon = mean + m std for m = 1.5, 2 and 3: how much the choice of m moves it.

    Args:
      mean, std: of the pairwise cosines.
      estimates: one CapacityEstimate for each of `RANGE_MULTIPLES`, in that order.
    """

    mean: float
    std: float
    estimates: tuple[CapacityEstimate, ...]

    @property
    def low(self) -> CapacityEstimate:
        """At mean + 1.5 std."""
        return self.estimates[0]

    @property
    def central(self) -> CapacityEstimate:
        """At mean + 2 std, the paper's choice."""
        return self.estimates[1]

    @property
    def high(self) -> CapacityEstimate:
        """At mean + 3 std."""
        return self.estimates[2]

    def to_record(self) -> dict:
        """Return the range as valid JSON."""
        cells = [{"multiple": m, **e.to_record()} for m, e in zip(RANGE_MULTIPLES, self.estimates, strict=True)]
        return {"mean": self.mean, "std": self.std, "estimates": cells}


def capacity_range(d_model: Number, mean: Number, std: Number, *, law: str | Law = FOUR_PARAMETER) -> CapacityRange:
    """Return the capacity at epsilon = mean + 1.5 std, mean + 2 std and mean + 3 std.

    Args:
      d_model: width of the latent space.
      mean, std: mean and (population) standard deviation of the pairwise cosines.
      law: as in `representational_capacity`.

    Raises:
      ValueError: std negative, either not finite, or mean + 1.5 std < 0.
    """
    mean, std = float(as_floats(mean, "mean")), float(as_floats(std, "std"))
    if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
        raise ValueError(f"mean and std must be finite with std >= 0, got mean = {mean!r}, std = {std!r}")
    if mean + RANGE_MULTIPLES[0] * std < 0:
        raise ValueError(f"mean + 1.5 std is negative, no bound on |cosine|: mean = {mean:.5g}, std = {std:.5g}")
    estimates = tuple(representational_capacity(d_model, mean + m * std, law=law) for m in RANGE_MULTIPLES)
    return CapacityRange(mean, std, estimates)


def _count(value: float) -> str:
    """A number of directions in words: digits while they are few, then powers of ten."""
    return f"{value:,.0f}" if value < 1e9 else f"{value:.3g}"


def _power(log10: float) -> str:
    return _count(10**log10) if log10 < 9 else f"10^{log10:.1f}"


@dataclass(frozen=True)
class CapacityBracket:
    """What is known about the largest number of lines in R^d with |cosine| <= epsilon.

    Args:
      d: dimension.
      epsilon: bound on |cosine|.
      construction: the largest explicit set in the catalogue; it can be built.
      existence: how many lines exist by a random argument, without a construction.
      estimates: what each law says, with its fitted range and whether this extrapolates.
      upper: what no arrangement can pass.
    """

    d: int
    epsilon: float
    construction: Construction
    existence: VectorsBound
    estimates: tuple[CapacityEstimate, ...]
    upper: VectorsBound

    @property
    def guaranteed_log10(self) -> float:
        """log10 of the number of lines proven to exist."""
        return max(math.log10(self.construction.k), self.existence.log_value / math.log(10))

    @property
    def guaranteed(self) -> float:
        """Number of lines proven to exist: the larger of construction and random argument; inf beyond float64."""
        built = float(self.construction.k) if self.construction.k < 10**308 else math.inf
        return max(built, self.existence.value)

    @property
    def guaranteed_by(self) -> str:
        """Name of the construction, or of the argument, behind `guaranteed`."""
        explicit = math.log10(self.construction.k) >= self.existence.log_value / math.log(10)
        return self.construction.name if explicit else self.existence.name

    @property
    def upper_log10(self) -> float:
        """log10 of the upper bound, inf where there is none (epsilon >= 1)."""
        return self.upper.log_value / math.log(10)

    @property
    def decades(self) -> float:
        """Width of the bracket in powers of ten."""
        if math.isinf(self.guaranteed_log10):
            return 0.0
        return self.upper_log10 - self.guaranteed_log10

    @property
    def wide(self) -> bool:
        """Whether the proven bounds differ by more than a factor of ten."""
        return self.decades > 1

    def summary(self) -> str:
        """Return the bracket in plain words."""
        if math.isinf(self.guaranteed_log10):
            return f"epsilon = {self.epsilon:.5g} >= 1 excludes nothing: any number of directions fits"
        head = (
            f"R^{self.d} at epsilon = {self.epsilon:.5g}: at least {_power(self.guaranteed_log10)} directions "
            f"({self.guaranteed_by}), at most {_power(self.upper_log10)} ({self.upper.name})."
        )
        if self.wide:
            width = (
                f" The bracket is wide, a factor of 10^{self.decades:.1f}: "
                "what is proven does not settle the capacity, and a law's number in between is an estimate, not a fact."
            )
        elif self.decades < 1e-9:
            width = " The two agree: the capacity is known."
        else:
            width = f" The two agree within a factor of {10**self.decades:.3g}."
        return head + width + "".join(f" {sentence}" for sentence in self._about_laws())

    def _about_laws(self) -> list[str]:
        """One sentence for each way in which the estimates go wrong."""
        low = [e.law for e in self.estimates if e.log10_capacity < self.guaranteed_log10 - 1e-9]
        high = [e.law for e in self.estimates if e.log10_capacity > self.upper_log10 + 1e-9]
        outside = [e.law for e in self.estimates if e.extrapolates]
        sentences = []
        if low:
            sentences.append(f"Below what is proven to exist: {', '.join(low)}.")
        if high:
            sentences.append(f"Above what any arrangement can reach: {', '.join(high)}.")
        if outside:
            sentences.append(f"Outside their fitted range: {', '.join(outside)}.")
        reason = self.estimates[0].reason if self.estimates else ""
        return [*sentences, f"Indeterminate for a model: {reason}."] if reason else sentences

    def to_record(self) -> dict:
        """Return the bracket as valid JSON."""
        record = {
            "d": self.d,
            "epsilon": self.epsilon,
            "guaranteed_by": self.guaranteed_by,
            "construction": self.construction.to_record(),
            "existence": self.existence.to_record(),
            "estimates": [estimate.to_record() for estimate in self.estimates],
            "upper": self.upper.to_record(),
            "wide": self.wide,
            "summary": self.summary(),
        }
        json_number(record, "guaranteed", self.guaranteed, "exceeds float64; see guaranteed_log10")
        json_number(record, "guaranteed_log10", self.guaranteed_log10, self.existence.name)
        json_number(record, "upper_log10", self.upper_log10, self.upper.name)
        json_number(record, "decades", self.decades, self.upper.name)
        return record


def capacity_bracket(d: Number, epsilon: Number, *, laws: Iterable[str | Law] = _ALL_LAWS) -> CapacityBracket:
    """Return proven lower and upper bounds on the capacity of R^d at coherence epsilon, and the laws' estimates.

        largest construction or random argument  <=  capacity  <=  Welch, orthoplex, Levenshtein, ..

    Args:
      d: dimension, a whole number >= 1.
      epsilon: bound on |cosine|, >= 0.
      laws: the laws to quote, all of `laws.LAWS` by default.

    Returns:
      CapacityBracket; `summary()` says in words how wide it is and which laws leave it.

    Raises:
      ValueError: negative, NaN or infinite epsilon; d not a whole number >= 1; unknown law.
    """
    d, epsilon = check_integer(d, "d", 1), float(check_epsilon(epsilon))
    return CapacityBracket(
        d=d,
        epsilon=epsilon,
        construction=largest_construction(d, epsilon),
        existence=random_existence(d, epsilon),
        estimates=tuple(representational_capacity(d, epsilon, law=law) for law in laws),
        upper=max_vectors_bound(d, epsilon),
    )
