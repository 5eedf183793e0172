"""How features share the hidden space: norms, interference, dimensionality, and who is in superposition."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Shaped

REPRESENTED = 0.5  # |W_i| from which a feature counts as represented: halfway between ignored (0) and stored (1)
INTERFERES = 0.1  # interference from which a represented feature counts as in superposition


@dataclasses.dataclass(frozen=True)
class FeatureMeasures:
    """Measures of the features of one or more toy models (leading axes `*models`), in float64.

    Attributes:
      norms: |W_i|.
      interference: sum over j != i of (u_i . W_j)^2, u_i = W_i / |W_i|; 0 where W_i is 0.
      dimensionality: D_i, the share of a dimension that feature i has to itself.
      features_per_dimension: |W|_F^2 / m.
      represented, superposed, dedicated, ignored: which features are stored at all; stored and in the way of others;
        stored with directions of their own; not stored. The second and third make up the first.
      coherence: largest |cos| between represented features of a model, NaN with fewer than two.
      largest_cosine: largest cos between them; the output's ReLU hides interference below 0.
    """

    norms: Float64[np.ndarray, "*models n"]
    interference: Float64[np.ndarray, "*models n"]
    dimensionality: Float64[np.ndarray, "*models n"]
    features_per_dimension: Float64[np.ndarray, "*models"]
    represented: Bool[np.ndarray, "*models n"]
    superposed: Bool[np.ndarray, "*models n"]
    coherence: Float64[np.ndarray, "*models"]
    largest_cosine: Float64[np.ndarray, "*models"]

    @property
    def dedicated(self) -> np.ndarray:
        """Represented and not in superposition."""
        return self.represented & ~self.superposed

    @property
    def ignored(self) -> np.ndarray:
        """Not represented."""
        return ~self.represented

    def to_record(self) -> dict[str, Any]:
        """Means over features, one number a model, as valid JSON."""
        shares = {name: getattr(self, name).mean(axis=-1) for name in ("represented", "superposed", "dedicated")}
        values = {"features_per_dimension": self.features_per_dimension, **shares, "ignored": 1 - shares["represented"]}
        record: dict[str, Any] = {name: np.asarray(value).tolist() for name, value in values.items()}
        finite = np.isfinite(self.coherence)
        record["coherence"] = np.where(finite, self.coherence, None).tolist()
        if not finite.all():
            record["coherence_reason"] = "fewer than two features are represented"
        return record


def feature_measures(
    weights: Shaped[np.ndarray, "..."],
    *,
    represented: float | int = REPRESENTED,
    interferes: float | int = INTERFERES,
) -> FeatureMeasures:
    """Measure how features share the hidden dimensions.

        interference_i = sum over j != i of (u_i . W_j)^2,     u_i = W_i / |W_i|
        D_i = |W_i|^2 / sum over j of (u_i . W_j)^2

    Args:
      weights: `(.., m, n)`, W of one model or of several; column i is the direction of feature i.
      represented: |W_i| from which a feature counts as represented.
      interferes: interference from which a represented feature counts as in superposition.
    Returns:
      FeatureMeasures.
    Raises:
      ValueError: weights that are not finite, or not of shape (.., m, n).
    Source: Elhage et al. 2022, "Superposition as a Phase Change" (interference) and "The Geometry of Superposition"
      (features per dimension, whose inverse is their D*, and dimensionality). A W_i that is 0 has D_i = 0 here.
    """
    w = np.asarray(weights, np.float64)
    if w.ndim < 2 or not np.isfinite(w).all():
        raise ValueError(f"weights must be finite and of shape (.., m, n), got shape {w.shape}")
    norms = np.linalg.norm(w, axis=-2)
    units = w / np.where(norms > 0, norms, 1.0)[..., None, :]
    overlaps = (units.swapaxes(-1, -2) @ w) ** 2  # (u_i . W_j)^2
    total = overlaps.sum(axis=-1)
    interference = total - np.diagonal(overlaps, axis1=-2, axis2=-1)
    stored = norms >= represented
    cosines = units.swapaxes(-1, -2) @ units
    pairs = stored[..., :, None] & stored[..., None, :] & ~np.eye(w.shape[-1], dtype=bool)
    largest = [np.where(pairs, values, -np.inf).max(axis=(-1, -2)) for values in (np.abs(cosines), cosines)]
    coherence, largest_cosine = (np.where(np.isfinite(value), value, np.nan) for value in largest)
    values = {
        "norms": norms,
        "interference": np.maximum(interference, 0.0),
        "dimensionality": norms**2 / np.where(total > 0, total, 1.0),
        "features_per_dimension": (norms**2).sum(axis=-1) / w.shape[-2],
        "represented": stored,
        "superposed": stored & (interference >= interferes),
        "coherence": coherence,
        "largest_cosine": largest_cosine,
    }
    return FeatureMeasures(**{name: np.asarray(value) for name, value in values.items()})


def last_feature_phase(measures: FeatureMeasures) -> np.ndarray:
    """What became of the last feature of each model: its place in `theory.PHASES`.

    0, ignored: not represented. 1, dedicated: represented, and no other feature interferes. 2, antipodal: represented
    and in superposition.
    """
    return np.where(measures.ignored[..., -1], 0, np.where(measures.superposed[..., -1], 2, 1))
