"""The experiment as a user runs it: in a process of its own."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.processes import Experiment, records
from tests.tokenizers import word_level_json

experiment = Experiment("token_relations")
run = experiment.run

WORDS = ["a", "man", "woman", "king", "queen", "東京"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untied llama with two layers of norms and projections, whose tokenizer knows a few words."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    d, n = 16, 260
    names = [*WORDS, *(f"w{number}" for number in range(n - len(WORDS) - 1))]
    rows = rng.standard_normal((n, d)).astype(np.float32)
    rows[4] = rows[3] - rows[1] + rows[2]
    rows[100:130] = rows[5] + 0.3 * rng.standard_normal((30, d))
    tensors = {"model.embed_tokens.weight": rows, "lm_head.weight": (rows + 0.1 * rng.standard_normal((n, d)))}
    for layer in range(2):
        for name, width in (("q_proj", 16), ("k_proj", 16), ("v_proj", 16)):
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = rng.standard_normal((width, d))
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = rng.random(d) + 0.5
    save_file({k: v.astype(np.float32) for k, v in tensors.items()}, folder / "model.safetensors")
    config = {"model_type": "llama", "hidden_size": d, "vocab_size": n, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(word_level_json(names))
    return folder


def test_words_alone_need_no_walk(model, tmp_path):
    workdir = tmp_path / "run"
    flags = [f"--model={model}", f"--workdir={workdir}", "--parts=norms,gains", "--pairs=king-queen,king-zebra"]
    code, out, err = run(*flags, "--analogies=king-man+woman=queen")
    assert code == 0, err
    (record,) = records(workdir)
    assert record["asked"][0]["rank"] == 1 and record["pairs"][1]["problem"] == "zebra: not in the vocabulary"
    assert "king-zebra" in record["notes"][0] and "relations" not in record
    for name in ("pairs_chart", "analogies_chart", "norms_chart", "gains_chart"):
        assert (workdir / f"{name}.png").stat().st_size > 1000 and (workdir / f"{name}.pdf").stat().st_size > 1000


@pytest.mark.slow
def test_every_part_and_its_report(model, tmp_path):
    workdir = tmp_path / "run"
    asked = ["--pairs=king-queen,king-zebra", "--analogies=king-man+woman=queen"]
    code, out, err = run(f"--model={model}", f"--workdir={workdir}", "--tau=12", *asked)
    assert code == 0, err
    (record,) = records(workdir)
    assert record["primary"]["count"] == 1 and record["primary"]["tokens"][0]["text"].strip("␣") == "東京"
    assert record["asked"][0]["rank"] == 1 and record["pairs"][1]["problem"].startswith("zebra")
    assert record["unembedding"]["own_is_nearest"] > 0.5 and set(record["projections"]) == {"query", "key", "value"}
    assert record["gains"]["input_layernorm"]["mean"] and record["norms"]["n"] == 260
    assert len(record["analogies"]["results"]) == 100  # of which this tokenizer knows few, and says so
    with np.load(workdir / record["arrays"]) as arrays:
        assert arrays["neighbour_ids"].shape == (260, 5)
    for name in ("relations_table", "primary_tokens", "pairs", "asked", "projections"):
        for ending in ("csv", "md", "tex"):
            assert (workdir / f"{name}.{ending}").stat().st_size > 40, name
    for name in ("primary_tokens_chart", "neighbours", "in_degrees", "pairs_chart", "analogies_chart", "norms_chart",
                 "unembedding_chart", "projections_chart", "gains_chart"):  # fmt: skip
        assert (workdir / f"{name}.png").stat().st_size > 1000 and (workdir / f"{name}.pdf").stat().st_size > 1000
    assert "東京" in (workdir / "primary_tokens.csv").read_text(encoding="utf-8")
    code, out, err = run(f"--model={model}", f"--workdir={workdir}", "--tau=12", *asked)
    assert code == 0 and "finished in an earlier run" in out, err


@pytest.mark.slow
def test_smoke_and_missing_tokenizer(tmp_path):
    code, out, err = run("--smoke", f"--workdir={tmp_path / 'a'}")
    assert code == 0 and "1 primary tokens" in out and "10 near-duplicate pairs" in out, err
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32))
    code, out, err = run(f"--model={tmp_path / 'x.npy'}", f"--workdir={tmp_path / 'b'}", "--pairs=cat-dog")
    assert code == 1 and "need a tokenizer" in err and "Traceback" not in err
    code, out, err = run(f"--model={tmp_path / 'x.npy'}", f"--workdir={tmp_path / 'c'}", "--parts=norms,analogies")
    assert code == 0 and "no tokenizer" in records(tmp_path / "c")[0]["notes"][0], err


@pytest.mark.parametrize(
    ("flags", "says"),
    [(["--model=a.npy", "--parts=some"], "--parts takes"), (["--model=a.npy", "--pairs=cat"], "a pair is written")],
)
def test_wrong_flags_are_refused_before_any_work(flags, says, tmp_path):
    code, out, err = run(*flags, f"--workdir={tmp_path / 'run'}")
    assert code == 2 and says in err and "Traceback" not in err, err
    assert not (tmp_path / "run" / "records.jsonl").exists()
