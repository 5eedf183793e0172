"""The sweep and the fit as a user runs them: in processes of their own."""

import json
import shutil
import signal
import time

import numpy as np
import pytest

from repcap_jax.capacity import LAWS, load_grid
from tests.processes import Experiment, records

sweep, fit = Experiment("packing_sweep"), Experiment("capacity_fit")
SMALL = ["--d_values=4,24", "--k_values=20,30", "--ratios=4", "--steps=60", "--starts=2", "--trials=5"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A small sweep of both kinds, with a published grid to compare with."""
    folder = tmp_path_factory.mktemp("sweep")
    published = folder / "published.csv"
    published.write_text("# source: a test\nd,k,epsilon\n4,16,0.7\n24,96,0.3\n24,96,0.25\n")
    flags = [*SMALL, "--kinds=optimised,random", f"--workdir={folder / 'run'}", f"--compare={published}"]
    code, out, err = sweep.run(*flags, "--save_vectors")
    assert code == 0, err
    return folder / "run", published, flags, out


def test_sweep_writes_what_it_promises(swept):
    workdir, _, _, out = swept
    done = {(record["kind"], record["k"], record["d"]): record for record in records(workdir)}
    assert len(done) == 12 and all(record["status"] == "done" for record in done.values())
    order = [record["key"] for record in records(workdir)]
    assert order.index("random d=24 k=96 trials=5") > order.index("random d=4 k=16 trials=5"), "cheap cells come first"
    assert done["optimised", 20, 24]["epsilon"] == 0 and done["optimised", 20, 24]["history"] is None
    cell = done["optimised", 96, 24]
    assert cell["bound"] < cell["epsilon"] < 1 and cell["random_key"]["data"] and cell["steps_done"] == 60
    assert "published 0.25000" in out and "about" in out
    with np.load(workdir / cell["history"]) as history:
        assert len(history["coherence"]) == 60
    grid = load_grid(workdir / "grid_optimised.json")
    assert len(grid) == 6 and grid.at(96, 24) == cell["epsilon"] and "repcap_jax.pack" in grid.source
    assert len(load_grid(workdir / "grid_random.json")) == 6
    for name in ("coherence", "collapse", "random", "history"):
        assert (workdir / f"{name}.png").stat().st_size > 5000 and (workdir / f"{name}.pdf").exists()
    table = (workdir / "packing_table.md").read_text()
    assert "Welch" in table and "published" in table and (workdir / "report.html").stat().st_size > 1e5
    (vectors,) = workdir.glob("vectors-optimised_d_24_k_96-*.npz")
    with np.load(vectors) as arrays:
        rows = arrays["vectors"].astype(np.float64)
    cosines = np.abs(rows @ rows.T)[np.triu_indices(96, 1)]
    assert cosines.max() == pytest.approx(cell["epsilon"], abs=1e-6)


@pytest.mark.slow
def test_sweep_skips_finished_cells(swept):
    workdir, _, flags, _ = swept
    before = len(records(workdir))
    code, out, err = sweep.run(*flags, "--trials=6")  # random cells of other trials are other cells
    assert code == 0 and "6 of 12 cells were finished" in out, err
    assert len(records(workdir)) == before + 6


@pytest.mark.slow
def test_killed_cell_goes_on(tmp_path):
    """Killed within a long cell, the sweep starts again at its checkpoint or at the cell, and ends."""
    flags = ["--d_values=8", "--k_values=60,700", "--steps=400", "--starts=1", f"--workdir={tmp_path / 'run'}"]
    process = sweep.start(*flags)
    log = tmp_path / "run" / "records.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.read_text().count("\n")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    code, out, err = sweep.run(*flags)
    assert code == 0 and "1 of 2 cells were finished" in out, err
    assert [record["k"] for record in records(tmp_path / "run")] == [60, 700]


@pytest.mark.slow
def test_fit_of_a_sweep_and_of_a_file(swept, tmp_path):
    workdir, published, _, _ = swept
    flags = [f"--published={published}", f"--workdir={tmp_path / 'fit'}", "--laws=jl,ratio,welch_quadratic"]
    code, out, err = fit.run(f"--grid={workdir}", *flags)
    assert code == 0 and "welch-quadratic: A = " in out, err
    fits = json.loads((tmp_path / "fit" / "fits.json").read_text())
    assert set(fits) == {"jl-optimised", "ratio", "welch-quadratic"}
    assert "MAPE held out" in (tmp_path / "fit" / "fit_table.md").read_text()
    for name in ("collapse", "residuals", "surfaces", "coherence", "history"):
        assert (tmp_path / "fit" / f"{name}.png").stat().st_size > 5000
    shutil.rmtree(tmp_path / "fit")
    code, out, err = fit.run(f"--grid={workdir / 'grid_random.json'}", *flags)
    assert code == 0 and not (tmp_path / "fit" / "history.png").exists(), err


@pytest.mark.slow
def test_smoke_and_shipped_grid(tmp_path):
    code, out, err = sweep.run("--smoke", f"--workdir={tmp_path / 'sweep'}")
    assert code == 0 and (tmp_path / "sweep" / "report.html").exists(), err
    code, out, err = fit.run(f"--workdir={tmp_path / 'fit'}", "--min_ratio=1.5", "--max_square=0.5")
    assert code == 0 and "four-parameter: C = " in out, err
    law = LAWS["welch-quadratic"]
    assert f"welch-quadratic: A = {law.A:.5g}, B = {law.B:.5g};" in out, "the law's constants are this fit"


@pytest.mark.slow
def test_sweep_of_codes(tmp_path):
    """Points, not lines: cosines below 0, and no grid for the laws, which are about lines."""
    flags = ["--objective=codes", "--d_values=4", "--k_values=5,8", "--steps=100", "--starts=4"]
    code, out, err = sweep.run(*flags, f"--workdir={tmp_path}")
    assert code == 0 and (tmp_path / "report.html").exists(), err
    assert [record["epsilon"] for record in records(tmp_path)] == pytest.approx([-0.25, 0], abs=1e-5)
    assert not (tmp_path / "grid_optimised.json").exists()
    assert "Largest cosine" in (tmp_path / "packing_table.md").read_text()


def _slow_but_first(*cases, first=2):
    """Each case is a process of its own: only the first ones belong to the quick tests."""
    return [*cases[:first], *(pytest.param(*case, marks=pytest.mark.slow) for case in cases[first:])]


@pytest.mark.parametrize(
    ("flags", "message"),
    _slow_but_first(
        (["--kinds=best"], "--kinds takes optimised, random"),
        (["--d_values=8,x"], "--d_values takes whole numbers"),
        (["--d_values=1"], "d must be at least 2"),
        (["--k_values=1"], "k must be at least 2"),
        (["--ratios=-2"], "ratios k / d must be positive"),
        (["--tile=4"], "--tile"),
        (["--objective=codes", "--kinds=random"], "about lines"),
        (["--objective=codes", "--compare=grid.json"], "grids of lines"),
        (["--compare=absent.json"], "no packing grid at absent.json"),
        (["--precision=default"], "--precision has no effect here"),
        (["--steps=0"], "--steps"),
    ),
)
def test_wrong_flags_of_the_sweep(flags, message, tmp_path):
    code, out, err = sweep.run(f"--workdir={tmp_path / 'run'}", *flags)
    assert code == 2 and message in err and "Traceback" not in err, err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    _slow_but_first(
        ("a,b\n1,2\n", [], "lacks the columns k, d, epsilon"),
        ("k,d,epsilon\n20,8,0.4\n", ["--laws=four-parameter"], "has 4 constants, but the grid has 1 cells"),
        ("k,d,epsilon\n4,8,0\n5,8,0\n6,8,0\n7,8,0\n", [], "no cell with k > d"),
        ("k,d,epsilon\n20,8,nan\n", [], "expected [k, d, epsilon]"),
        ("k,d,epsilon\n20,8,0.4\n", ["--laws=cubic"], "unknown law 'cubic'"),
        ("k,d,epsilon\n20,8,0.4\n", ["--laws="], "names no law"),
        ("k,d,epsilon\n20,8,0.4\n", ["--min_ratio=3"], "leave no cell"),
    ),
)
def test_wrong_flags_of_the_fit(content, flags, message, tmp_path):
    (tmp_path / "grid.csv").write_text(content)
    code, out, err = fit.run(f"--grid={tmp_path / 'grid.csv'}", f"--workdir={tmp_path / 'run'}", *flags)
    assert code == 2 and message in err and "Traceback" not in err, err


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Both share the pairs of every cell, one writes; other cells in one of them are refused."""
    common = ["--d_values=16", "--ratios=4,24", "--steps=80", "--kinds=optimised,random", "--trials=3"]
    own = [[f"--workdir={tmp_path / '0'}"], [f"--workdir={tmp_path / '1'}"]]
    results = sweep.run_pair(own, *common)
    assert [code for code, _, _ in results] == [0, 0], results
    assert len(records(tmp_path / "0")) == 4 and not (tmp_path / "1").exists()
    devices = {record["settings"]["devices"] for record in records(tmp_path / "0") if record["kind"] == "optimised"}
    assert devices == {4}
    own[1].append("--ratios=5")
    results = sweep.run_pair(own, *common)
    assert [code for code, _, _ in results] == [2, 2] and "other cells or settings" in results[1][2]
