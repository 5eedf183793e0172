"""Studies of toy models: which instances, in which cells, and what is recorded of each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from repcap_jax.kernels.checks import whole
from repcap_jax.superposition.geometry import feature_clusters
from repcap_jax.superposition.instances import Instances, check_features, checked_instances, instance_grid
from repcap_jax.superposition.measures import feature_measures, last_feature_phase
from repcap_jax.superposition.result import ToyModels
from repcap_jax.superposition.theory import (
    PHASES,
    feature_moments,
    linear_loss,
    linear_optimum,
    optimal_phase_losses,
    phase_losses,
)

MORE_THAN_ONE = 1.05  # features per dimension from which a model is taken to use superposition


class Cell(NamedTuple):
    """The instances of one sparsity that are recorded together.

    Attributes:
      study: `"geometry"` (n features whose importance decays) or `"phase"` (m + 1 features, the last one of another
        importance than the others).
      n, m: features and hidden dimensions.
      activation: of the output.
      sparsity: S.
      importances: decays, or relative importances of the last feature.
      seeds: random starts of each.
    """

    study: str
    n: int
    m: int
    activation: str
    sparsity: float
    importances: tuple[float, ...]
    seeds: int

    @property
    def name(self) -> str:
        """What tells the cell from the others of a run."""
        return f"{self.study} {self.activation} n={self.n} m={self.m} S={self.sparsity:.12g}"

    @property
    def program(self) -> tuple[Any, ...]:
        """Cells that agree in this can be trained together."""
        return self.study, self.n, self.m, self.activation

    def instances(self) -> Instances:
        """The instances, the seed changing fastest.

        Raises:
          ValueError: for values out of range.
        """
        if self.study == "geometry":
            return instance_grid(self.n, [self.sparsity], self.importances, self.seeds)
        relative = np.repeat(self.importances, self.seeds)
        importance = np.concatenate([np.ones((len(relative), self.n - 1)), relative[:, None]], axis=1)
        seed = np.tile(np.arange(self.seeds), len(self.importances))
        return checked_instances(np.full(len(relative), self.sparsity), importance, seed)


def geometry_cells(
    n: int,
    m: int,
    sparsities: Sequence[float | int],
    *,
    decays: Sequence[float | int] = (1.0,),
    seeds: int = 10,
    activations: Sequence[str] = ("relu",),
) -> list[Cell]:
    """A cell for each activation and sparsity; repeated values are left out.

    Raises:
      TypeError, ValueError: for values out of range.
    """
    n, m = whole(n, "n"), whole(m, "m")
    instance_grid(n, sparsities, decays, seeds)  # says what is wrong
    decays = tuple(dict.fromkeys(float(decay) for decay in decays))
    chosen = dict.fromkeys(float(sparsity) for sparsity in sparsities)
    return [
        Cell("geometry", n, m, activation, sparsity, decays, seeds)
        for activation in dict.fromkeys(activations)
        for sparsity in chosen
    ]


def phase_cells(
    m: int, side: int, *, seeds: int = 5, lowest_density: float = 0.01, largest: float | int = 10.0
) -> list[Cell]:
    """Cells of a phase diagram: `side` densities 1 - S by `side` relative importances, both geometric.

    Args:
      m: hidden dimensions, for m + 1 features.
      side: values along each axis, >= 2.
      seeds: random starts, the best of which counts.
      lowest_density: smallest 1 - S; the largest is 1.
      largest: largest relative importance; the smallest is its inverse.
    Raises:
      TypeError, ValueError: for values out of range.
    """
    m, side, seeds = whole(m, "m"), whole(side, "side", 2), whole(seeds, "seeds")
    relative = tuple(np.geomspace(1 / largest, largest, side).tolist())
    densities = np.geomspace(1.0, lowest_density, side)
    return [Cell("phase", m + 1, m, "relu", float(1 - density), relative, seeds) for density in densities]


def blocks(cells: Sequence[Cell], most: int) -> Iterator[list[Cell]]:
    """Runs of cells that are trained together: of one program, up to `most` instances, at least one cell."""
    block: list[Cell] = []
    for cell in cells:
        size = sum(len(other.importances) * other.seeds for other in [*block, cell])
        if block and (size > most or cell.program != block[0].program):
            yield block
            block = []
        block.append(cell)
    if block:
        yield block


def check_cells(cells: Sequence[Cell], features: str, set_size: int) -> None:
    """Refuse features that cannot be drawn at the cells' sparsities.

    Raises:
      ValueError: with what was expected.
    """
    for cell in cells:
        check_features(features, set_size, cell.n, np.array([cell.sparsity]))


def stored_counts(record: Mapping[str, Any]) -> list[int]:
    """How many features each of the best models represents that are in superposition at all.

    A model with one feature per dimension may rotate its directions freely, and their norms say nothing.
    """
    measures = record["measures"]
    shares = zip(measures["represented"], measures["features_per_dimension"])
    return [round(share * record["n"]) for share, per_dimension in shares if per_dimension > MORE_THAN_ONE]


def joined(cells: Sequence[Cell]) -> Instances:
    """The instances of several cells, one after another."""
    parts = [cell.instances() for cell in cells]
    return Instances(*(np.concatenate(fields) for fields in zip(*parts)))


def cell_result(cell: Cell, models: ToyModels) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is kept of a cell: a record, and arrays with one entry an instance.

    Args:
      cell: what was asked for.
      models: its instances, trained.
    Returns:
      The record, which describes the best seed of each importance, and the arrays.
    """
    measures = feature_measures(models.weights)
    best = models.best_of_seeds()
    record: dict[str, Any] = {
        "study": cell.study,
        "n": cell.n,
        "m": cell.m,
        "activation": cell.activation,
        "sparsity": cell.sparsity,
        "importances": list(cell.importances),
        "seeds": cell.seeds,
        "best": best.tolist(),
        "loss": models.loss[best].tolist(),
        "loss_error": models.loss_error[best].tolist(),
        "linear": _linear(cell, models, best),
        "measures": feature_measures(models.weights[best]).to_record(),
        "training": models.settings.to_record(),
    }
    arrays = {
        "weights": models.weights,
        "biases": models.biases,
        "loss": models.loss,
        "seed": models.instances.seed,
        "importance": models.instances.importance,
        "norms": measures.norms,
        "interference": measures.interference,
        "dimensionality": measures.dimensionality,
        "features_per_dimension": measures.features_per_dimension,
        "coherence": measures.coherence,
        "largest_cosine": measures.largest_cosine,
        "represented": measures.represented,
        "history_steps": models.history_steps,
        "history": models.history,
    }
    if cell.study == "phase":
        record["phases"] = _phases(cell, last_feature_phase(measures)[best])
    else:
        record["clusters"] = [[c.to_record() for c in feature_clusters(models.weights[place])] for place in best]
    return record, arrays


def _linear(cell: Cell, models: ToyModels, best: np.ndarray) -> dict[str, Any]:
    """The linear model's least loss, and for linear models the exact loss of the best seed."""
    settings = models.settings
    moments = feature_moments(cell.n, cell.sparsity, settings.features, settings.set_size)
    importance = models.instances.importance[best]
    optima = [linear_optimum(row, cell.m, moments[1]) for row in importance]
    found = {"optimum": [optimum.loss for optimum in optima], "exact": all(optimum.exact for optimum in optima)}
    if cell.activation == "linear" and settings.hidden == "linear":
        models = models.select(best)
        exact = map(linear_loss, models.weights, models.biases, importance, [moments] * len(best))
        return {**found, "loss": list(exact)}
    return found


def _phases(cell: Cell, found: np.ndarray) -> dict[str, Any]:
    """The phase of the last feature at each importance, beside the losses that theory gives each phase."""
    relative = np.array(cell.importances)
    plain = phase_losses(cell.m, np.full_like(relative, cell.sparsity), relative)
    optimal = optimal_phase_losses(cell.m, np.full_like(relative, cell.sparsity), relative)
    return {
        "names": list(PHASES),
        "found": found.tolist(),
        "predicted": plain.best().tolist(),
        "predicted_optimal": optimal.best().tolist(),
        "losses": {name: values.tolist() for name, values in plain._asdict().items()},
        "optimal_losses": {name: values.tolist() for name, values in optimal._asdict().items()},
    }
