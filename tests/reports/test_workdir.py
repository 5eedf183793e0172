"""The workdir: whole files, resumed runs, one run at a time."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from repcap_jax.reports.provenance import git_state
from repcap_jax.reports.workdir import Workdir, safe_name

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def open_workdir(path, settings=None, **options):
    defaults = {"experiment": "test", "settings": settings or {"bins": 10}, "devices": ["cpu:0"], "seed": 3}
    return Workdir.open(path, **(defaults | options))


def spawn(code, *arguments):
    program = textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )


def test_the_run_record_says_what_was_run_on_what(tmp_path):
    with open_workdir(tmp_path / "a" / "b", {"bins": 10, "model": ("x",)}, prng="threefry2x32"):
        run = json.loads((tmp_path / "a/b/run.json").read_text())
        assert run["finished"] is None and run["outcome"] == "running"
    run = json.loads((tmp_path / "a/b/run.json").read_text())
    assert run["experiment"] == "test" and run["settings"] == {"bins": 10, "model": ["x"]}
    assert run["devices"] == ["cpu:0"] and run["seed"] == 3 and run["prng"] == "threefry2x32"
    assert {"python", "jax", "jaxlib", "numpy", "scipy", "repcap_jax"} <= run["versions"].keys()
    assert run["outcome"] == "completed" and run["started"] <= run["finished"] and run["history"] == []
    assert run["git"] is None or set(run["git"]) == {"commit", "dirty"}


def test_the_commit_is_that_of_the_code_and_null_elsewhere(tmp_path):
    assert git_state(tmp_path) is None

    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/code.py").write_text("1")
    (tmp_path / "mine.py").write_text("1")
    git("add", "mine.py")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m")
    assert git_state(tmp_path / "installed") is None  # in the folder of a checkout, yet no part of it
    git("add", ".")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m")
    clean = git_state(tmp_path / "installed")
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "result.txt").write_text("1")
    assert git_state(tmp_path / "installed")["dirty"] is False
    (tmp_path / "installed/new.py").write_text("1")
    assert git_state(tmp_path / "installed")["dirty"] is True


def test_a_second_start_keeps_the_history_and_skips_what_is_finished(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done", "x": np.float32(0.5)})
        workdir.failed("b", ValueError("no tensor"), model="b/b")
        assert workdir.finished("a") and not workdir.finished("b") and not workdir.finished("c")
    with open_workdir(tmp_path) as workdir:
        assert workdir.finished("a") and not workdir.finished("b")
        workdir.append({"key": "b", "status": "done"})
        assert [(r["key"], r["status"]) for r in workdir.records()] == [("a", "done"), ("b", "done")]
        assert len(workdir.run["history"]) == 1 and workdir.run["history"][0]["outcome"] == "completed"
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[1])["error"]["message"] == "no tensor"


def test_results_of_other_settings_are_not_taken_for_finished(tmp_path):
    with open_workdir(tmp_path, {"bins": 10, "models": "a"}, result_settings={"bins": 10}) as workdir:
        workdir.append({"key": "a", "status": "done"})
        workdir.save_arrays("h", x=np.arange(3))
    with open_workdir(tmp_path, {"bins": 10, "models": "a,b"}, result_settings={"bins": 10}) as workdir:
        assert workdir.finished("a") and workdir.load_arrays("h")["x"].tolist() == [0, 1, 2]
    with open_workdir(tmp_path, {"bins": 20}) as workdir:
        assert not workdir.finished("a") and workdir.records() == []
        assert len(workdir.records(any_settings=True)) == 1
        with pytest.raises(ValueError, match="other settings"):
            workdir.load_arrays("h")
        workdir.append({"key": "a", "status": "done"})
    # The last record counts: its arrays have replaced those of the first run.
    with open_workdir(tmp_path, {"bins": 10, "models": "a"}, result_settings={"bins": 10}) as workdir:
        assert not workdir.finished("a")


def test_a_failure_keeps_type_message_and_a_short_traceback(tmp_path):
    def deep(n):
        return deep(n - 1) if n else 1 / 0

    with open_workdir(tmp_path) as workdir:
        try:
            deep(40)
        except ZeroDivisionError as error:
            record = workdir.failed("k", error)
    assert record["status"] == "failed" and record["error"]["type"] == "ZeroDivisionError"
    assert len(record["error"]["traceback"]) <= 13 and "division" in record["error"]["traceback"][-1]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"key": "a"},
        {"status": "done"},
        {"key": 3, "status": "done"},
        {"key": "", "status": "done"},
        {"key": "a", "status": "finished"},
    ],
)
def test_a_record_without_key_or_status_is_refused(tmp_path, record):
    with open_workdir(tmp_path) as workdir:
        with pytest.raises(ValueError, match='"key"'):
            workdir.append(record)
    assert not (tmp_path / "records.jsonl").exists()


def test_records_are_strict_json(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a\nb", "status": "done", "x": float("nan"), "y": [np.inf], "text": "ü\u2028\n"})
        with pytest.raises(TypeError):
            workdir.append({"key": "b", "status": "done", "x": object()})

    def refuse(name):
        raise AssertionError(name)

    (line,) = (tmp_path / "records.jsonl").read_text().split("\n")[:-1]
    assert json.loads(line, parse_constant=refuse)["x_reason"] == "the value was nan"
    assert [r["key"] for r in Workdir.read(tmp_path).records()] == ["a\nb"]


def test_a_torn_last_line_is_dropped_with_a_warning_and_the_next_record_is_whole(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done"})
        workdir.append({"key": "b", "status": "done"})
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="unfinished"):
        workdir = open_workdir(tmp_path)
    with workdir:
        assert workdir.finished("a") and not workdir.finished("b")
        workdir.append({"key": "c", "status": "done"})
    assert [r["key"] for r in Workdir.read(tmp_path).records()] == ["a", "c"]


def test_a_whole_last_line_without_its_end_is_kept(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done"})
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "b", "status": "done"})
    assert [r["key"] for r in Workdir.read(tmp_path).records()] == ["a", "b"]


def test_a_damaged_line_in_the_middle_costs_only_itself(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done"})
    with open(tmp_path / "records.jsonl", "ab") as file:
        file.write(b'\x00\x00\n{"key": "n", "status": "done", "x": NaN}\n[]\n')
    with pytest.warns(UserWarning, match="damaged line 2, 3, 4"):
        assert [r["key"] for r in Workdir.read(tmp_path).records()] == ["a"]


def test_a_run_that_is_killed_while_it_appends_goes_on_where_it_stopped(tmp_path):
    child = spawn(
        """
        import sys
        from repcap_jax.reports.workdir import Workdir
        workdir = Workdir.open(sys.argv[1], experiment="test", settings={"bins": 10}, devices=[])
        for number in range(10**9):
            workdir.append({"key": str(number), "status": "done", "filling": "x" * 20_000})
            print(number, flush=True)
        """,
        tmp_path,
    )
    told = [int(child.stdout.readline()) for _ in range(20)]
    child.send_signal(signal.SIGKILL)
    told += [int(line) for line in child.stdout.read().split()]
    child.wait()
    with open_workdir(tmp_path) as workdir:  # the lock died with its owner
        keys = [int(record["key"]) for record in workdir.records()]
        assert keys == list(range(len(keys))) and all(workdir.finished(str(number)) for number in told)
        assert workdir.run["history"][0]["outcome"] == "killed"
        workdir.append({"key": "next", "status": "done"})
    for line in (tmp_path / "records.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_file_is_whole_or_absent_when_the_process_is_killed_in_the_middle(tmp_path):
    child = spawn(
        """
        import os, sys, time
        from pathlib import Path
        from repcap_jax.reports.atomic import atomic_file
        with atomic_file(Path(sys.argv[1]) / "table.csv") as file:
            file.write(b"half")
            file.flush()
            print("half", flush=True)
            time.sleep(60)
        """,
        tmp_path,
    )
    child.stdout.readline()
    child.kill()
    child.wait()
    assert not (tmp_path / "table.csv").exists() and len(list(tmp_path.iterdir())) == 1
    with open_workdir(tmp_path) as workdir:
        workdir.write_text("table.csv", "whole")
    assert (tmp_path / "table.csv").read_text() == "whole" and not list(tmp_path.glob(".table*"))


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.save_arrays("a", x=np.arange(3))
        with pytest.raises(ValueError, match="Python objects"):
            workdir.save_arrays("a", x=np.array([object()]))
        assert workdir.load_arrays("a.npz")["x"].tolist() == [0, 1, 2]
        (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:50])
        for name in ("a", "absent"):
            with pytest.raises(ValueError, match="cannot be read"):
                workdir.load_arrays(name)


def test_two_runs_on_one_folder_are_refused_and_a_killed_one_lets_go(tmp_path):
    with open_workdir(tmp_path):
        with pytest.raises(ValueError, match="in use by another run"):
            open_workdir(tmp_path)
    child = spawn(
        """
        import sys, time
        from repcap_jax.reports.workdir import Workdir
        workdir = Workdir.open(sys.argv[1], experiment="test", settings={}, devices=[])
        print("open", flush=True)
        time.sleep(60)
        """,
        tmp_path,
    )
    child.stdout.readline()
    with pytest.raises(ValueError, match=f"process {child.pid}"):
        open_workdir(tmp_path)
    child.kill()
    child.wait()
    open_workdir(tmp_path).close()


def test_another_experiment_does_not_get_the_folder(tmp_path):
    open_workdir(tmp_path).close()
    with pytest.raises(ValueError, match="choose another workdir"):
        open_workdir(tmp_path, experiment="other")
    open_workdir(tmp_path).close()


def test_an_unwritable_place_is_refused_with_advice(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc/no/such", "gs://bucket/x", ""):
        with pytest.raises(ValueError, match="choose a folder|local folder|give a folder"):
            open_workdir(path)
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        with pytest.raises(ValueError, match="choose a folder"):
            open_workdir(locked)


def test_other_processes_write_nothing(tmp_path):
    workdir = open_workdir(tmp_path / "w", writer=False)
    workdir.append({"key": "a", "status": "done"})
    workdir.failed("b", ValueError("x"))
    workdir.save_arrays("h", x=np.zeros(1))
    workdir.write_text("t.md", "x")
    workdir.close()
    assert not (tmp_path / "w").exists() and workdir.finished("a")


def test_the_end_of_a_run_is_recorded(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with open_workdir(tmp_path):
            raise KeyboardInterrupt
    assert Workdir.read(tmp_path).run["outcome"] == "stopped by KeyboardInterrupt"
    with pytest.raises(SystemExit):
        with open_workdir(tmp_path):
            raise SystemExit(0)
    assert Workdir.read(tmp_path).run["outcome"] == "completed"


def test_reading_needs_a_run_and_a_damaged_record_of_it_is_survived(tmp_path):
    with pytest.raises(ValueError, match="not the workdir"):
        Workdir.read(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.warns(UserWarning, match="history is lost"):
        open_workdir(tmp_path).close()
    assert Workdir.read(tmp_path).run["outcome"] == "completed"


@pytest.mark.parametrize("name", ["", ".", "../x", "/etc/x", "a/../../x", "a\0b"])
def test_names_do_not_lead_out_of_the_folder(tmp_path, name):
    with open_workdir(tmp_path) as workdir:
        with pytest.raises(ValueError, match="inside"):
            workdir.write_text(name, "x")


def test_model_names_become_file_names(tmp_path):
    assert safe_name("SmolLM2-135M_v0.2") == "SmolLM2-135M_v0.2"
    names = ["a/b", "a_b", "a\\b", "../a", "..", ".", "", "a b", "/abs", "x" * 300, "x" * 301, "ü", "a/b\0", "-rf"]
    made = [safe_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        assert 0 < len(name) < 100 and name[0] not in ".-" and "/" not in name
        (tmp_path / name).write_text("")


def test_records_are_not_shared_with_the_caller(tmp_path):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done", "x": [1]})
        workdir.records()[0]["x"].append(2)
        assert workdir.records()[0]["x"] == [1]


def test_a_short_write_is_taken_back(tmp_path, monkeypatch):
    with open_workdir(tmp_path) as workdir:
        workdir.append({"key": "a", "status": "done"})
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        with pytest.raises(OSError, match="disk full"):
            workdir.append({"key": "b", "status": "done"})
        monkeypatch.undo()
        assert not workdir.finished("b")
        workdir.append({"key": "c", "status": "done"})
    assert [r["key"] for r in Workdir.read(tmp_path).records()] == ["a", "c"]


def test_opening_does_not_import_jax():
    child = spawn(
        "import sys; import repcap_jax.reports.embedding_report; "
        "print([m for m in ('jax', 'absl', 'matplotlib.pyplot') if m in sys.modules])"
    )
    out, err = child.communicate(timeout=60)
    assert out.strip() == "[]", err
