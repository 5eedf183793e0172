"""Cells of a sweep: which they are, their order, their keys, and the estimate of their time."""

import jax
import numpy as np
import pytest

from repcap_jax.packing.pack import default_starts, default_steps
from repcap_jax.packing.sweep import Cell, TimeEstimate, cell_key, cell_work, grid_cells


def test_cells_are_every_d_with_every_k_and_ratio():
    cells = grid_cells("optimised", [8, 16], k_values=[24], ratios=[1.5, 3])
    assert {(cell.k, cell.d) for cell in cells} == {(24, 8), (24, 16), (12, 8), (24, 8), (24, 16), (48, 16)}
    assert len(cells) == len(set(cells)) == 4  # 24 in R^8 and in R^16 are asked for twice
    assert cells[0].name == "optimised d=8 k=24"
    random = grid_cells("random", [8], k_values=[24], trials=10)
    assert random[0].name == "random d=8 k=24 trials=10"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "best"}, "kind must be one of"),
        ({"d_values": [1]}, "d must be at least 2"),
        ({"k_values": [1]}, "k must be at least 2"),
        ({"ratios": [0.0]}, "ratios k / d must be positive"),
        ({"ratios": [float("nan")]}, "ratios k / d must be positive"),
        ({"k_values": [], "ratios": []}, "no cells"),
        ({"kind": "random", "trials": 0}, "trials must be at least 1"),
    ],
)
def test_bad_grids(change, message):
    arguments = {"kind": "optimised", "d_values": [8], "k_values": [20], "ratios": [2.0], "trials": 5} | change
    with pytest.raises((TypeError, ValueError), match=message):
        grid_cells(arguments.pop("kind"), arguments.pop("d_values"), **arguments)


def test_work_follows_what_pack_will_do():
    assert cell_work(Cell("optimised", 16, 16)) == 0  # orthonormal, at once
    one = cell_work(Cell("optimised", 1000, 64), steps=10, starts=1)
    assert cell_work(Cell("optimised", 1000, 64), steps=20, starts=3) == 6 * one
    starts = default_starts(1000)
    assert cell_work(Cell("optimised", 1000, 64)) == pytest.approx(one / 10 * starts * default_steps(1000, 64, starts))
    assert cell_work(Cell("random", 1000, 64, 7)) == 7 * cell_work(Cell("random", 1000, 64, 1))


def test_keys_belong_to_the_cell_and_not_to_the_grid():
    key = jax.random.key(3)
    cells = [Cell("optimised", 24, 8), Cell("optimised", 8, 24), Cell("random", 24, 8, 5), Cell("optimised", 24, 9)]
    keys = {tuple(np.asarray(jax.random.key_data(cell_key(key, cell)))) for cell in cells}
    assert len(keys) == len(cells)
    again = jax.random.key_data(cell_key(key, Cell("optimised", 24, 8)))
    assert (np.asarray(again) == np.asarray(jax.random.key_data(cell_key(key, cells[0])))).all()


def test_estimate_learns_from_what_cells_took():
    times, cell = TimeEstimate(), Cell("optimised", 4000, 64)
    work = cell_work(cell)
    other = times.seconds(Cell("random", 4000, 64, 9), work)
    before = times.seconds(cell, work)
    for _ in range(12):
        times.timed(cell, work, 1000.0)
    assert times.seconds(cell, work) == pytest.approx(1000.0, rel=0.02) != before
    assert times.seconds(cell, work / 10) == pytest.approx(100.0, rel=0.05)
    assert times.seconds(Cell("random", 4000, 64, 9), work) == other
