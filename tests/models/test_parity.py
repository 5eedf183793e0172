"""Every family against torch transformers: hidden states and logits of tiny checkpoints, see make_parity.py."""

import json

import pytest

from repcap_jax.models import FAMILIES
from tests.models.parity import DATA, differences
from tests.models.parity_cases import CASES

TOLERANCE = 2e-5


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
