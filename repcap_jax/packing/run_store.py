"""Checkpoints of a packing run, through orbax: the descent state, its history, and the settings they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp


class RunStore:
    """The checkpoints of one run in one folder; a context manager.

    A checkpoint belongs to the identity it was saved with (settings, key, size and starting vectors): opening the
    folder for another run is an error, and never mixes two runs.

    Args:
      folder: where the checkpoints are; made if it is absent.
      identity: what makes the run the same run, valid JSON.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any]):
        # Through JSON and back, so that tuples and lists compare equal.
        self._identity = json.loads(json.dumps(identity))
        self._folder = Path(folder).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *error: Any) -> None:
        self._manager.close()

    def save(self, step: int, tree: Any) -> None:
        """Write a checkpoint; the one before is kept until this one is complete."""
        if self._manager.latest_step() == step:
            return
        host = jax.tree.map(np.asarray, tree)
        saved = ocp.args.Composite(tree=ocp.args.StandardSave(host), identity=ocp.args.JsonSave(self._identity))
        self._manager.save(step, args=saved)
        self._manager.wait_until_finished()

    def restore(self, like: Any) -> Any | None:
        """The latest complete checkpoint as NumPy arrays in the structure of `like`; None if there is none.

        Raises:
          ValueError: if it belongs to another run.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        found = self._manager.restore(step, args=ocp.args.Composite(identity=ocp.args.JsonRestore()))["identity"]
        if found != self._identity:
            differing = sorted(
                name for name in {*found, *self._identity} if found.get(name) != self._identity.get(name)
            )
            raise ValueError(
                f"{self._folder} holds a checkpoint of another packing run (different {', '.join(differing)}); "
                "use another checkpoint_dir, or the same arguments to continue that run"
            )
        target = jax.tree.map(np.asarray, like)
        restored = self._manager.restore(step, args=ocp.args.Composite(tree=ocp.args.StandardRestore(target)))
        return restored["tree"]
