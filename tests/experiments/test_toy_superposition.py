"""The study of toy models as a user runs it: in processes of its own."""

import json

import numpy as np
import pytest

from tests.processes import Experiment, records

toys = Experiment("toy_superposition")
SMALL = ["--n=5", "--m=2", "--sparsities=0.7,0.95", "--decays=1,0.7", "--seeds=2", "--steps=200", "--batch=64",
         "--rate=0.02", "--phase_side=3", "--phase_seeds=2", "--phase_steps=100", "--cpu_devices=1"]  # fmt: skip


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("toys") / "run"
    code, out, err = toys.run(*SMALL, "--studies=geometry", f"--workdir={workdir}")
    assert code == 0, err
    return workdir, out


def test_study_writes_what_it_promises(studied):
    workdir, out = studied
    found = {record["key"]: record for record in records(workdir)}
    assert all(record["status"] == "done" for record in found.values())
    cell = found["geometry relu n=5 m=2 S=0.95"]
    assert len(cell["loss"]) == len(cell["clusters"]) == 2 and cell["linear"]["exact"]
    assert cell["importances"] == [1.0, 0.7] and cell["measures"]["features_per_dimension"][0] > 1
    linear = found["geometry linear n=5 m=2 S=0.7"]["linear"]
    assert linear["optimum"][0] <= linear["loss"][0] < 1.3 * linear["optimum"][0]
    with np.load(workdir / cell["arrays"]) as arrays:
        assert arrays["weights"].shape == (4, 2, 5) and arrays["seed"].tolist() == [0, 1, 0, 1]
    assert any(key.startswith("packing k=") for key in found)
    for name in ("features", "vectors", "dimensionality", "loss", "coherence"):
        assert (workdir / f"{name}.png").stat().st_size > 5000 and (workdir / f"{name}.pdf").exists()
    assert "features per dimension" in out and (workdir / "report.html").stat().st_size > 1e5
    assert len((workdir / "toy_table.csv").read_text().splitlines()) == 9


@pytest.mark.slow
def test_study_skips_finished_cells_and_adds_new_ones(studied):
    workdir, _ = studied
    before = len(records(workdir))
    more = [flag if "sparsities" not in flag else "--sparsities=0.7,0.8,0.95" for flag in SMALL]
    code, out, err = toys.run(*more, "--activations=linear", "--studies=geometry", f"--workdir={workdir}")
    assert code == 0 and "2 of 3 cells were finished" in out, err
    assert len(records(workdir)) == before + 1
    run = json.loads((workdir / "run.json").read_text())
    assert run["seed"] == 0 and run["outcome"] == "completed" and len(run["history"]) == 1


@pytest.mark.slow
def test_smoke_and_wide_models(tmp_path):
    code, out, err = toys.run("--smoke", f"--workdir={tmp_path / 'smoke'}")
    assert code == 0 and (tmp_path / "smoke" / "report.html").exists(), err
    phases = [record for record in records(tmp_path / "smoke") if record["study"] == "phase"]
    assert len(phases) == 4 and all(len(record["phases"]["found"]) == 4 for record in phases)
    assert (tmp_path / "smoke" / "phases_m_1.png").stat().st_size > 5000
    flags = ["--n=2", "--m=3", "--sparsities=0.5", "--seeds=1", "--steps=20", "--studies=geometry"]
    code, out, err = toys.run(*flags, f"--workdir={tmp_path / 'wide'}")
    assert code == 0 and "m = 3 >= n = 2" in out, err


@pytest.mark.slow
def test_training_that_diverges(tmp_path):
    flags = [
        "--studies=geometry",
        "--n=4",
        "--m=2",
        "--sparsities=0.5",
        "--activations=linear",
        "--seeds=1",
        "--steps=9",
    ]
    code, out, err = toys.run(*flags, "--rate=1e30", "--nopackings", f"--workdir={tmp_path}")
    assert code == 1 and "training diverged; choose a smaller --rate" in err and "Traceback" not in err, err


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Both share the instances, one writes; the numbers are those of a single process."""
    own = [[f"--workdir={tmp_path / '0'}"], [f"--workdir={tmp_path / '1'}"]]
    common = [flag for flag in SMALL if "cpu_devices" not in flag]
    results = toys.run_pair(own, *common, "--studies=geometry", "--activations=relu", "--nopackings")
    assert [code for code, _, _ in results] == [0, 0], results
    assert len(records(tmp_path / "0")) == 2 and not (tmp_path / "1").exists()
    code, _, err = toys.run(*SMALL, "--studies=geometry", "--activations=relu", "--nopackings",
                            f"--workdir={tmp_path / 'single'}")  # fmt: skip
    assert code == 0, err
    for pair, single in zip(records(tmp_path / "0"), records(tmp_path / "single")):
        np.testing.assert_allclose(pair["loss"], single["loss"], rtol=1e-3)


def _slow_but_first(*cases):
    return [cases[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in cases[1:])]


@pytest.mark.parametrize(
    ("flags", "message"),
    _slow_but_first(
        (["--sparsities=0.5,1"], "sparsity S must be in [0, 1)"),
        (["--sparsities=half"], "--sparsities takes numbers"),
        (["--m=0"], "m must be at least 1"),
        (["--decays=-1"], "importance decays must be positive"),
        (["--studies=shapes"], "--studies takes geometry, phase or both"),
        (["--features=correlated", "--set_size=3"], "must be at least 2 and divide n = 20"),
        (["--phase_m=0"], "m must be at least 1"),
        (["--precision=high"], "--precision has no effect"),
        (["--rate=0"], "--rate must be positive"),
    ),
)
def test_wrong_flags(flags, message, tmp_path):
    code, out, err = toys.run(f"--workdir={tmp_path / 'run'}", *flags)
    assert code == 2 and message in err and "Traceback" not in err, err
    assert not (tmp_path / "run").exists()
