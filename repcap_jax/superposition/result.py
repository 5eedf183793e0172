"""What training toy models returns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int

from repcap_jax.superposition.instances import Instances


@dataclasses.dataclass(frozen=True)
class ToySettings:
    """Everything beside the key and the instances that decides the numbers; see `train_toy_models`."""

    n: int
    m: int
    activation: str
    hidden: str
    features: str
    set_size: int
    steps: int
    batch: int
    rate: float
    weight_decay: float

    def to_record(self) -> dict[str, Any]:
        """The settings as valid JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class ToyModels:
    """Trained toy models, one entry an instance.

    Attributes:
      weights: W of each; column i is the direction of feature i.
      biases: b of each.
      loss, loss_error: the loss on fresh samples, and its standard error.
      history_steps, history: mean training loss of the steps up to each mark.
      instances: what they were trained on.
      settings: how.
      seconds: wall time.
    """

    weights: Float32[np.ndarray, "instances m n"]
    biases: Float32[np.ndarray, "instances n"]
    loss: Float[np.ndarray, " instances"]
    loss_error: Float[np.ndarray, " instances"]
    history_steps: Int[np.ndarray, " marks"]
    history: Float32[np.ndarray, "instances marks"]
    instances: Instances
    settings: ToySettings
    seconds: float

    def __len__(self) -> int:
        return len(self.weights)

    def select(self, chosen: Any) -> ToyModels:
        """Some of the models, by a slice or an array of places; `seconds` stays that of all."""
        names = ("weights", "biases", "loss", "loss_error", "history")
        fields = {name: getattr(self, name)[chosen] for name in names}
        return dataclasses.replace(self, **fields, instances=self.instances.select(chosen))

    def best_of_seeds(self) -> np.ndarray:
        """Places of the instances with the smallest loss among those that differ in their seed only."""
        alike: dict[bytes, int] = {}
        for place in range(len(self)):
            kind = self.instances.sparsity[place].tobytes() + self.instances.importance[place].tobytes()
            if kind not in alike or not self.loss[place] >= self.loss[alike[kind]]:  # anything is better than NaN
                alike[kind] = place
        return np.array(list(alike.values()))

    def to_record(self) -> dict[str, Any]:
        """Settings, seconds and losses as valid JSON; a loss that is not finite is null, with a reason."""
        finite = np.isfinite(self.loss)
        record = {
            "settings": self.settings.to_record(),
            "instances": len(self),
            "loss": [float(loss) if ok else None for loss, ok in zip(self.loss, finite)],
            "seconds": self.seconds,
        }
        return record if finite.all() else {**record, "loss_reason": "training diverged; use a smaller rate"}
