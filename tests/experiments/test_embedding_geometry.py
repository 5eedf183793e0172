"""The experiment as a user runs it: in a process of its own."""

import json
import os
import signal
import time

import numpy as np
import pytest

from tests.processes import Experiment, free_port, records

experiment = Experiment("embedding_geometry")
start, run, run_pair = experiment.start, experiment.run, experiment.run_pair


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three matrices in files: near-orthogonal, shifted, and one of zeros that cannot be measured."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(1)
    np.save(folder / "flat.npy", rng.standard_normal((500, 512)).astype(np.float32))
    np.save(folder / "shifted.npy", (rng.standard_normal((400, 64)) + 0.7).astype(np.float32))
    np.save(folder / "zeros.npy", np.zeros((50, 8), np.float32))
    return folder


def test_sweep_fails_goes_on_and_resumes(models, tmp_path):
    listing = tmp_path / "models.txt"
    listing.write_text(f"# one a line\n{models / 'shifted.npy'}\n\n{models / 'zeros.npy'}  # nothing in it\n")
    published = tmp_path / "published.csv"
    published.write_text("# source: a test\nmodel,d_model,epsilon,capacity\nSome Model,1024,0.07,1e6\n")
    workdir = tmp_path / "run"
    flags = [f"--model={models / 'flat.npy'}", f"--models_file={listing}", f"--workdir={workdir}", "--cpu_devices=3"]
    code, out, err = run(*flags, f"--published={published}")
    assert code == 1, err
    assert "class 2" in out and "class 1" in out and "zeros.npy: failed: need at least two usable rows" in err
    done = {record["model"]: record for record in records(workdir) if record["status"] == "done"}
    assert set(done) == {"flat", "shifted"}
    assert done["flat"]["matrices"]["embedding"]["distribution"]["n_pairs"] == 500 * 499 // 2
    assert done["flat"]["matrices"]["embedding"]["distribution"]["devices"] == 3
    with np.load(workdir / done["flat"]["histogram"]) as arrays:
        assert arrays["embedding_counts"].sum() == 500 * 499 // 2
    state = json.loads((workdir / "run.json").read_text())
    assert state["settings"]["cpu_devices"] == 3 and len(state["devices"]) == 3 and state["versions"]["jax"]
    for name in ("capacity_table.csv", "capacity_table.md", "capacity_table.tex", "report.html"):
        assert (workdir / name).stat().st_size > 100
    for name in ("similarity_embedding", "similarity_embedding_tail", "epsilon_by_width"):
        assert (workdir / f"{name}.png").stat().st_size > 1000 and (workdir / f"{name}.pdf").stat().st_size > 1000

    # The same command again: finished models are not measured again, the failed one is tried again.
    before, later = len(records(workdir)), time.time() + 60
    os.utime(models / "flat.npy", (later, later))
    code, out, err = run(*flags)
    assert code == 1 and out.count("finished in an earlier run") == 2 and len(records(workdir)) == before + 1
    assert [line.split(":")[0][-8:] for line in out.splitlines() if "have changed since" in line] == ["flat.npy"]
    # Other settings are other results.
    code, out, err = run(f"--model={models / 'flat.npy'}", f"--workdir={workdir}", "--bins=100", "--cpu_devices=1")
    assert code == 0 and "finished in an earlier run" not in out, err


@pytest.mark.slow
def test_killed_run_restarts(models, tmp_path):
    """SIGKILL in the middle of a sweep: what was finished stays, the rest is done on the next start."""
    rng = np.random.default_rng(2)
    np.save(tmp_path / "large.npy", rng.standard_normal((30_000, 256)).astype(np.float32))
    flags = [
        f"--model={models / 'flat.npy'}",
        f"--model={tmp_path / 'large.npy'},{models / 'shifted.npy'}",
        f"--workdir={tmp_path / 'run'}",
    ]
    process = start(*flags)
    log = tmp_path / "run" / "records.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.read_text().count("\n")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [record["model"] for record in records(tmp_path / "run")] == ["flat"]

    code, out, err = run(*flags, "--moments_only=false")
    assert code == 0, err
    assert out.count("finished in an earlier run") == 1
    assert [record["model"] for record in records(tmp_path / "run")] == ["flat", "large", "shifted"]
    assert not list((tmp_path / "run").glob(".*.partial"))


def test_smoke_needs_no_model(tmp_path):
    code, out, err = run("--smoke", f"--workdir={tmp_path / 'run'}", "--moments_only")
    assert code == 0 and "smoke-matrix" in out, err
    assert (tmp_path / "run" / "report.html").exists()
    assert not any(line.startswith("I") for line in err.splitlines()), "libraries' INFO reached the terminal"


@pytest.mark.slow
def test_two_processes(models, tmp_path):
    """One set of results, written by process 0; a model that one process cannot read fails in both, and both go on."""
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
    np.save(folders[0] / "half.npy", np.eye(9, dtype=np.float32))
    half = tmp_path / "half.npy"
    half.symlink_to("/proc/self/cwd/half.npy")  # there is such a file for process 0 only
    names = [f"--model={models / 'flat.npy'}", f"--model={half}", f"--model={models / 'shifted.npy'}"]
    own = [[f"--workdir={tmp_path / '0'}"], [f"--workdir={tmp_path / '1'}"]]
    results = run_pair(own, *names, "--moments_only", folders=folders)
    assert [code for code, _, _ in results] == [1, 1], results
    assert "process 1 of 2 failed" in results[0][2]
    (failed,) = [record for record in records(tmp_path / "0") if record["status"] == "failed"]
    assert failed["model"] == str(half)
    done = [record for record in records(tmp_path / "0") if record["status"] == "done"]
    assert [record["model"] for record in done] == ["flat", "shifted"]
    assert done[0]["matrices"]["embedding"]["distribution"]["devices"] == 4
    assert not (tmp_path / "1").exists()


@pytest.mark.slow
def test_processes_fail_together(models, tmp_path):
    """What stops one process stops the other, with a message and without a hang."""
    (tmp_path / "file").write_text("not a folder")
    blocked = [[f"--workdir={tmp_path / 'file'}"], [f"--workdir={tmp_path / 'other'}"]]
    results = run_pair(blocked, f"--model={models / 'flat.npy'}")
    assert [code for code, _, _ in results] == [2, 2]
    assert "cannot write" in results[0][2] and "process 0 of 2 failed" in results[1][2]

    lists = [[f"--model={models / name}", f"--workdir={tmp_path / 'run'}"] for name in ("flat.npy", "shifted.npy")]
    results = run_pair(lists)
    assert [code for code, _, _ in results] == [2, 2]
    assert "other models than process 0" in results[1][2]

    for number in range(2):
        (tmp_path / str(number)).mkdir()
        np.save(tmp_path / str(number) / "m.npy", np.random.default_rng(number).standard_normal((60, 8)))
    link = tmp_path / "m.npy"  # one name, other contents in each process
    link.symlink_to("/proc/self/cwd/m.npy")
    results = run_pair(
        [[f"--workdir={tmp_path / 'mixed'}"]] * 2, f"--model={link}", folders=[tmp_path / "0", tmp_path / "1"]
    )
    assert [code for code, _, _ in results] == [1, 1]
    assert "different data" in results[0][2] and "different data" in results[1][2]

    results = run_pair([[f"--workdir={tmp_path / 'smoke'}"]] * 2, "--smoke", "--moments_only")
    assert [code for code, _, _ in results] == [0, 0], results


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "name a model"),
        (["--model=a.npy"], "--workdir is required"),
        (["--model=a.npy", "--which=head"], "--which takes"),
        (["--model=a.npy", "--rows=some"], "rows"),
        (["--model=a.npy", "--bins=0"], "bins"),
        (["--model=a.npy", "--tile=1000"], "power of two"),
        (["--model=a.npy", "--precision=double"], "precision"),
        (["--model=a.npy", "--cpu_devices=0"], "cpu_devices"),
        (["--model=a.npy", "--colour=red"], "colour"),
        (["--model=a.npy", "stray"], "unexpected arguments"),
        (["--models_file=/nowhere/list.txt"], "cannot be read"),
        (["--model=a.npy", "--published=/nowhere/points.csv"], "--published"),
        (["--model=a.npy", "--workdir=/proc/nowhere/run"], "workdir"),
        (["--model=a.npy", "--process_id=1"], "--distributed"),
    ],
)
def test_wrong_flags_are_refused_before_any_work(flags, says, tmp_path):
    given = any(flag.startswith("--workdir") for flag in flags) or "required" in says
    code, out, err = experiment.run(*flags, *([] if given else [f"--workdir={tmp_path / 'run'}"]))
    assert code == 2 and says in err, err
    assert "Traceback" not in err
    assert not (tmp_path / "run" / "records.jsonl").exists()


@pytest.mark.slow
def test_names_that_are_no_utf8(models, tmp_path):
    """A Latin-1 file name is a name like any other, and so is one with a hash."""
    strange = [os.fsencode(tmp_path) + name for name in (b"/caf\xe9.npy", b"/C#.npy")]
    for path in strange:
        with open(path, "wb") as file:
            np.save(file, np.random.default_rng(0).standard_normal((50, 8)))
    listing = tmp_path / "models.txt"
    listing.write_bytes(b"\xef\xbb\xbf" + strange[1] + b"  # a comment\r\n")
    code, out, err = run(
        b"--model=" + strange[0], f"--models_file={listing}", f"--workdir={tmp_path / 'run'}", "--moments_only"
    )
    assert code == 0, err
    assert len(records(tmp_path / "run")) == 2


@pytest.mark.slow
def test_absent_coordinator(tmp_path):
    flags = [f"--coordinator=127.0.0.1:{free_port()}", "--processes=2", "--process_id=1", "--rendezvous_timeout=2"]
    code, out, err = run("--smoke", "--distributed", *flags, f"--workdir={tmp_path / 'run'}")
    assert code == 2 and "found nobody at" in err and "Traceback" not in err


def test_missing_model_is_a_recorded_failure(tmp_path):
    code, out, err = run("--model=/nowhere/model", f"--workdir={tmp_path / 'run'}")
    assert code == 1 and "/nowhere/model" in err and "Traceback" not in err
    (record,) = records(tmp_path / "run")
    assert record["status"] == "failed" and record["error"]["message"]
