"""One layer as it is reported: which cells the table has."""

import jax
import numpy as np
import pytest

from repcap_jax import grassmann_frames
from repcap_jax.alignment import layer_alignment


@pytest.mark.parametrize(
    ("k", "options", "ks", "ms"),
    [
        (6, {}, (3, 6, 12), (0, 1, 5, 10)),
        (12, {}, (6, 12), (0, 1, 5, 10)),
        (6, {"remove_after": True}, (3, 6, 12), (0, 1)),
        (6, {"remove_after": True, "remove": 4}, (6, 12), (0, 1, 4)),
        (6, {"remove_after": True, "ks": [10]}, (6, 10), (0, 1)),
        (6, {"ms": [2], "ks": []}, (6,), (1, 2)),
    ],
)
def test_the_table_fits_the_states(k, options, ks, ms):
    hidden = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    readout = np.asarray(grassmann_frames(jax.random.key(1), 1, 16, 15))[0]
    found = layer_alignment(hidden, readout, jax.random.key(0), k=k, nulls=3, **options)
    assert (found.table.ks, found.table.ms) == (ks, ms)
    assert found.table.at(m=found.score.m, k=k) == found.score


def test_bad_states():
    with pytest.raises(ValueError, match="hidden"):
        layer_alignment(np.zeros(5), np.eye(5)[:, :2], jax.random.key(0), k=2)
