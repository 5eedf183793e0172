"""Points on spheres as a user finds them: in processes of their own."""

import numpy as np
import pytest

from tests.processes import Experiment, records

spheres = Experiment("spherical_codes")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("spheres") / "run"
    flags = ["--k_values=4,8", "--s_values=1,40", "--codes=2:5", "--starts=16", f"--workdir={workdir}"]
    code, out, err = spheres.run(*flags)
    assert code == 0, err
    return workdir, flags, out


def test_cells_tables_and_figures(found):
    workdir, _, out = found
    cells = {record["key"]: record for record in records(workdir)}
    assert len(cells) == 5 and cells["energy d=3 s=1 k=4"]["shape"] == "tetrahedron"
    eight = cells["energy d=3 s=1 k=8"]
    assert eight["shape"] == "square antiprism" and eight["energy"] == pytest.approx(eight["published"], rel=1e-7)
    assert cells["energy d=3 s=40 k=8"]["published"] is None and cells["code d=2 k=5"]["shape"] == "pentagon"
    assert cells["energy d=3 s=40 k=8"]["smallest_angle"] > eight["smallest_angle"], "towards the best code"
    with np.load(workdir / eight["arrays"]) as arrays:
        assert arrays["vectors"].shape == (8, 3) and arrays["vectors"].dtype == np.float64
    for name in ("points", "energies", "exponents"):
        assert (workdir / f"{name}.png").stat().st_size > 5000 and (workdir / f"{name}.pdf").exists()
    assert "found by" in (workdir / "energy_table.md").read_text() and "antiprism" in out
    assert "largest cosine" in (workdir / "code_table.md").read_text() and (workdir / "report.html").exists()


@pytest.mark.slow
def test_finished_cells_are_skipped(found):
    workdir, flags, _ = found
    code, out, err = spheres.run(*flags, "--k_values=4,5")
    assert code == 0 and "3 of 5 cells were finished" in out, err
    assert len(records(workdir)) == 7


@pytest.mark.slow
def test_smoke(tmp_path):
    code, out, err = spheres.run("--smoke", f"--workdir={tmp_path / 'run'}")
    assert code == 0 and (tmp_path / "run" / "report.html").exists(), err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--k_values=8-4"], "rising ranges"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (["--k_values=1"], "at least 2 points"),
                (["--k_values=x"], "ranges like 2-32"),
                (["--s_values=-1"], "--s_values takes exponents from 0"),
                (["--codes=3x8"], "--codes takes d:k"),
                (["--codes=1:8"], "at least 2"),
                (["--k_values=", "--codes="], "nothing to do"),
                (["--d=1"], "--d"),
            )
        ),
    ],
)
def test_wrong_flags(flags, message, tmp_path):
    code, out, err = spheres.run(f"--workdir={tmp_path / 'run'}", *flags)
    assert code == 2 and message in err and "Traceback" not in err, err
    assert not (tmp_path / "run").exists()
