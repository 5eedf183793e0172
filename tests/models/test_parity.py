"""Every family against torch transformers: hidden states and logits of tiny checkpoints, see make_parity.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from repcap_jax.models import FAMILIES, hidden_states, load_decoder
from tests.models.parity_cases import CASES

DATA = Path(__file__).resolve().parents[1] / "data" / "parity"
TOLERANCE = 2e-5


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


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_and_logits(name):
    assert json.loads((DATA / name / "config.json").read_text()) == CASES[name]
    states, logits = differences(DATA / name)
    assert states < TOLERANCE, "hidden states"
    assert logits < TOLERANCE, "logits"


def test_every_family_has_a_case():
    assert {config["model_type"] for config in CASES.values()} == set(FAMILIES)


def test_data_is_small():
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 2 * 2**20
