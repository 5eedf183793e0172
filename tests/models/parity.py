"""The parity checkpoints and how far the decoder is from their reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.models import hidden_states, load_decoder

DATA = Path(__file__).resolve().parents[1] / "data" / "parity"


def differences(folder: Path) -> tuple[float, float]:
    """The largest differences to the reference: of any hidden state, and of the logits."""
    with open_checkpoint(folder) as checkpoint:
        decoder = load_decoder(checkpoint)
    with np.load(folder / "reference.npz") as reference:
        states = hidden_states(decoder, reference["tokens"])
        logits = decoder.logits(states[-1])
        assert states.shape == reference["hidden_states"].shape
        assert logits.shape == reference["logits"].shape
        return (
            float(np.abs(states - reference["hidden_states"]).max()),
            float(np.abs(logits - reference["logits"]).max()),
        )
