"""Weights in: open a checkpoint of any supported format and read only the tensors asked for.

``open_checkpoint(source)`` gives a :class:`Checkpoint` whose ``embedding()``, ``unembedding()`` and ``final_norm()``
are float32 NumPy arrays. Importing this package imports neither transformers, huggingface_hub, gguf nor torch.
"""

from repcap_jax.checkpoints.checkpoint import Checkpoint, FinalNorm, open_checkpoint
from repcap_jax.checkpoints.store import CheckpointError, TensorStore

__all__ = ["Checkpoint", "CheckpointError", "FinalNorm", "TensorStore", "open_checkpoint"]
