"""Layer alignment as a user runs it: in a process of its own, on a tiny model with a tokenizer."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.models.test_text import write_tokenizer
from tests.processes import Experiment, records

experiment = Experiment("layer_alignment")
DATA = Path(__file__).parent.parent / "data" / "parity"
SMALL = ["--n=40", "--seq_len=16", "--k=4", "--nulls=6", "--table_ms=0,1"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two tiny decoders of 32 dimensions that have a tokenizer, one that has none, and a text."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("qwen2", "gpt2-untied"):
        shutil.copytree(DATA / name, folder / name)
        write_tokenizer(folder / name, bos=name == "qwen2")
    shutil.copytree(DATA / "gptj", folder / "mute")
    words = np.random.default_rng(0).choice(list("abcdefghijkl"), 600)
    (folder / "text.txt").write_text(" ".join(words))
    (folder / "short.txt").write_text("a b c")
    return folder


@pytest.mark.slow
def test_models_are_scored_layer_by_layer_and_resumed(models, tmp_path):
    names = ["qwen2", "mute", "gpt2-untied"]
    flags = [f"--model={models / name}" for name in names]
    flags += [*SMALL, f"--text={models / 'text.txt'}", f"--workdir={tmp_path / 'run'}"]
    code, out, err = experiment.run(*flags)
    assert code == 1 and "mute: failed:" in err and "tokenizer" in err, err
    cells = [record for record in records(tmp_path / "run") if record.get("kind") == "layer"]
    assert [(cell["model"], cell["name"]) for cell in cells] == [
        (model, state)
        for model in ("qwen2", "gpt2-untied")
        for state in ("embedding", "block 1", "block 2", "final norm")
    ]
    cell = cells[2]
    score, table = cell["score"], cell["sensitivity"]
    assert (score["n"], score["k"], score["m"], score["nulls"]) == (40, 4, 1, 6)
    assert table["ks"] == [2, 4, 8] and table["ms"] == [0, 1]
    assert table["z"][1][1] == score["z"] and cell["spectral"]["rankme"] > 1
    assert cell["text"]["skipped_first"] > 0 and cell["text"]["bos"] and cell["text"]["sha256"]
    for name in ("z_by_layer", "sensitivity_1", "sensitivity_2", "removal_1", "pc1_migration", "spectral"):
        assert (tmp_path / "run" / f"{name}.png").stat().st_size > 5000
    assert "final norm" in (tmp_path / "run" / "layer_table.md").read_text()

    # A layer that is missing is done again, and nothing else.
    log = tmp_path / "run" / "records.jsonl"
    kept = [line for line in log.read_text().splitlines() if json.loads(line)["key"] not in (flags[0][8:],)]
    log.write_text("\n".join(line for line in kept if not json.loads(line)["key"].endswith("qwen2 layer 1")) + "\n")
    before = len(records(tmp_path / "run"))
    code, out, err = experiment.run(*flags)
    assert code == 1 and "gpt2-untied: finished in an earlier run" in out, err
    added = records(tmp_path / "run")[before:]
    assert [record["key"].split("/")[-1] for record in added if record["status"] == "done"] == [
        "qwen2 layer 1",
        "qwen2",
    ]
    again = next(record for record in added if record.get("layer") == 1)
    assert again["score"]["rho"] == cells[1]["score"]["rho"], "the same seed gives the same score"


@pytest.mark.slow
def test_given_states(tmp_path):
    """States of any framework, with a matrix as unembedding; layer_10 comes after layer_2."""
    rng = np.random.default_rng(1)
    np.save(tmp_path / "unembedding.npy", rng.standard_normal((60, 12)).astype(np.float32))
    states = {f"layer_{i}": rng.standard_normal((30, 12)).astype(np.float32) + i for i in (10, 2, 0)}
    save_file(states, tmp_path / "states.safetensors")
    flags = [f"--model={tmp_path / 'unembedding.npy'}", f"--hidden_states={tmp_path / 'states.safetensors'}"]
    flags += ["--k=3", "--nulls=5", "--table_ks=3", "--table_ms=1"]
    code, out, err = experiment.run(*flags, f"--workdir={tmp_path / 'run'}")
    assert code == 0 and "3 layers" in out, err
    cells = [record for record in records(tmp_path / "run") if record.get("kind") == "layer"]
    means = [states[name].mean() for name in ("layer_0", "layer_2", "layer_10")]
    assert np.argsort(means).tolist() == [0, 1, 2] and [cell["layer"] for cell in cells] == [0, 1, 2]
    cosines = [cell["spectral"]["average_cosine"] for cell in cells]
    assert cosines == sorted(cosines), "states further from the origin point more the same way"

    save_file({"layer_0": states["layer_0"][:, :8]}, tmp_path / "states.safetensors")
    code, out, err = experiment.run(*flags, f"--workdir={tmp_path / 'run'}")  # the same name, but not the same states
    assert code == 1 and "d = 8, but the unembedding" in err and "has 12" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--k=32"], "k must be smaller than the width d = 32"),
        (["--text=short.txt"], "less than one sequence of 16"),
        pytest.param(["--n=4000"], "give more text or sequences", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_fit_the_model_fails_before_it_runs(flags, message, models, tmp_path):
    text = [] if any(flag.startswith("--text") for flag in flags) else [f"--text={models / 'text.txt'}"]
    flags = [flag.replace("=short", f"={models}/short") for flag in flags]
    code, out, err = experiment.run(
        f"--model={models / 'qwen2'}", *SMALL, *text, *flags, f"--workdir={tmp_path / 'run'}"
    )
    assert code == 1 and message in err and "forward" not in err, err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "name a model"),
        (["--model=x", "--text=absent.txt"], "absent.txt: cannot be read"),
        pytest.param(["--model=x", "--m=39"], "up to n - 2 = 38", marks=pytest.mark.slow),
        pytest.param(
            ["--model=x", "--table_ks=4,0"], "--table_ks takes whole numbers of at least 1", marks=pytest.mark.slow
        ),
        pytest.param(["--model=x,y", "--hidden_states=z"], "name one --model", marks=pytest.mark.slow),
        pytest.param(["--model=x", "--hidden_states=setup.cfg"], "choose tokens of a text", marks=pytest.mark.slow),
        pytest.param(["--model=x", "--hidden_states=z"], "there is no file z", marks=pytest.mark.slow),
        pytest.param(["--model=x", "--n=2"], "--n", marks=pytest.mark.slow),
    ],
)
def test_wrong_flags(flags, message, tmp_path):
    code, out, err = experiment.run(*SMALL, *flags, f"--workdir={tmp_path / 'run'}")
    assert code == 2 and message in err and "Traceback" not in err, err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_smoke(tmp_path):
    code, out, err = experiment.run("--smoke", f"--workdir={tmp_path}")
    assert code == 0 and "5 layers" in out and (tmp_path / "report.html").exists(), err


@pytest.mark.slow
def test_two_processes(models, tmp_path):
    own = [[f"--workdir={tmp_path / '0'}"], [f"--workdir={tmp_path / '1'}"]]
    results = experiment.run_pair(own, f"--model={models / 'qwen2'}", *SMALL, f"--text={models / 'text.txt'}")
    assert [code for code, _, _ in results] == [0, 0], results
    cells = [record for record in records(tmp_path / "0") if record.get("kind") == "layer"]
    assert len(cells) == 4 and not (tmp_path / "1").exists()
    assert {cell["score"]["devices"] for cell in cells} == {4}
