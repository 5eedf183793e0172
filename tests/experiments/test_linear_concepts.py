"""The experiment as a user runs it: in a process of its own."""

import json

import numpy as np
import pytest

from tests.processes import Experiment, records

experiment = Experiment("linear_concepts")
run = experiment.run


def test_ones_own_concepts_alone(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    for name in ("one", "two"):
        (own / f"{name}.tsv").write_text("\n".join(f"{name}{number}\t{name}_{number}" for number in range(12)))
    flags = ["--smoke", "--nobuilt_in", f"--concepts={own}", f"--workdir={tmp_path / 'run'}", "--random_pairs=100"]
    code, out, err = run(*flags)
    assert code == 0 and "2 concepts" in out, err
    (record,) = records(tmp_path / "run")
    assert {entry["n_pairs"] for entry in record["products"]["causal"]["concepts"]} == {12}
    assert (tmp_path / "run" / "heat_maps.png").stat().st_size > 1000


@pytest.mark.slow
def test_smoke_with_ones_own_concepts(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    rows = [f"before{number}\tafter{number}" for number in range(12)]
    (own / "mine.tsv").write_text("\n".join(rows))
    (own / "verb_noun.tsv").write_text("one\ttwo\n")  # in place of the package's own list; one pair is too few
    workdir = tmp_path / "run"
    flags = ["--smoke", f"--concepts={own}", f"--workdir={workdir}", "--permutations=200"]
    code, out, err = run(*flags)
    assert code == 0, err
    (record,) = records(workdir)
    causal = {entry["concept"]: entry for entry in record["products"]["causal"]["concepts"]}
    assert causal["mine"]["n_pairs"] == 12 and causal["mine"]["group"] == "mine"
    assert record["left_out"]["verb_noun"].startswith("1 of its 1 pairs") and "left out: verb_noun" in out
    assert sum(entry["separation"]["auc"]["value"] > 0.8 for entry in causal.values()) >= len(causal) - 1
    assert set(record["products"]) == {"causal", "euclidean", "random"} and len(record["tests"]) == 2
    assert any("contexts were not measured" in note for note in record["notes"])
    with np.load(workdir / record["arrays"]) as arrays:
        assert arrays["causal/mine/left_out"].shape == (12,) and arrays["causal/mine/direction"].shape == (64,)
    for name in ("concept_summary", "concepts"):
        for ending in ("csv", "md", "tex"):
            assert (workdir / f"{name}.{ending}").stat().st_size > 100
    for name in ("projections", "separation", "heat_maps"):
        assert (workdir / f"{name}.png").stat().st_size > 1000 and (workdir / f"{name}.pdf").stat().st_size > 1000
    assert "verb_noun was left out" in (workdir / "report.html").read_text(encoding="utf-8")
    state = json.loads((workdir / "run.json").read_text())
    assert state["seed"] == 0 and state["prng"]
    code, out, err = run(*flags)
    assert code == 0 and "finished in an earlier run" in out, err


@pytest.mark.slow
def test_failures_are_recorded(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(9, dtype=np.float32))
    code, out, err = run(f"--model={tmp_path / 'x.npy'}", f"--workdir={tmp_path / 'run'}")
    assert code == 1 and "tokenizer" in err and "Traceback" not in err
    assert records(tmp_path / "run")[0]["status"] == "failed"


@pytest.mark.parametrize(
    ("content", "flags", "says"),
    [
        ("word\n", [], "expected two columns"),
        (None, ["--nobuilt_in"], "leaves no concept"),
    ],
)
def test_wrong_flags_are_refused_before_any_work(content, flags, says, tmp_path):
    if content is not None:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "bad.tsv").write_text(content)
        flags = [f"--concepts={tmp_path / 'own'}"]
    code, out, err = run("--smoke", *flags, f"--workdir={tmp_path / 'run'}")
    assert code == 2 and says in err and "Traceback" not in err, err
    assert not (tmp_path / "run" / "records.jsonl").exists()
