"""Figures and table of layer alignment: what they must show, and that they are drawn from whatever a workdir holds."""

import numpy as np
import pytest

from repcap_jax.reports import style
from repcap_jax.reports.alignment_data import read_layers
from repcap_jax.reports.alignment_figures import (
    migration_figure,
    overview_figure,
    removal_figures,
    sensitivity_figures,
    spectral_figure,
)
from repcap_jax.reports.alignment_report import write_alignment_report
from repcap_jax.reports.workdir import Workdir
from tests.reports.builders import texts

MS, KS = [0, 1, 5], [10, 20]


@pytest.fixture(autouse=True)
def quick_fonts(monkeypatch):
    monkeypatch.setitem(style._STYLE, "pdf.fonttype", 3)


def add_layers(workdir, model, family, blocks, *, missing=()):
    """Layers as the experiment records them, with the final norm's output as the last one."""
    rng = np.random.default_rng(blocks)
    for layer in range(blocks + 2):
        z = rng.normal(0, 4, (len(MS), len(KS)))
        cells = [[None if (layer, i, j) in missing else float(z[i, j]) for j in range(2)] for i in range(3)]
        score = {"z": cells[1][1], "z_error": 0.3, "rho": 0.7, "effect": 0.01, "null_mean": 0.69, "null_std": 0.02}
        score |= {"p_two_sided": 0.2, "n": 200, "k": 20, "m": 1, "nulls": 50}
        spectral = {"pc1_readout_share": 0.2, "pc1_variance_share": 0.4, "rankme": 60.0 + layer, "alpha_req": 1.2}
        spectral |= {"participation_ratio": 9.0, "condition_number": None if layer < 2 else 50.0, "log_isotropy": -3.0}
        name = "embedding" if layer == 0 else "final norm" if layer == blocks + 1 else f"block {layer}"
        workdir.append(
            {
                "key": f"{model} layer {layer}",
                "status": "done",
                "kind": "layer",
                "model": model,
                "family": family,
                "layer": layer,
                "name": name,
                "blocks": blocks,
                "d_model": 64,
                "score": score,
                "sensitivity": {"ms": MS, "ks": KS, "z": cells},
                "spectral": spectral | {"average_cosine": 0.3, "readout_variance_share": 0.25},
            }
        )
    workdir.append({"key": model, "status": "done", "kind": "model", "model": model})


@pytest.fixture
def workdir(tmp_path):
    with Workdir.open(tmp_path, experiment="layer_alignment", settings={}, devices=["cpu"]) as opened:
        yield opened


def test_layers_are_read_in_order_with_their_band(workdir):
    add_layers(workdir, "org/One", "llama", 4, missing={(2, 1, 1)})
    workdir.failed("org/Bad", ValueError("no tokenizer"), model="org/Bad")
    (model,), failed = read_layers(workdir)
    assert model.layers.tolist() == [0, 1, 2, 3, 4, 5] and model.normed.tolist() == [False] * 5 + [True]
    assert model.depth[4] == 1 and (model.k, model.m, model.ks, model.ms) == (20, 1, KS, MS)
    assert np.isnan(model.score("z")[2]) and np.isnan(model.spectral("condition_number")[0])
    low, high = model.band()
    table = model.table()
    assert low[2] == high[2] == table[2, 1, 0] and low[1] == table[1, 1].min() and high[1] == table[1, 1].max()
    assert failed == ["org/Bad failed: no tokenizer"]


def test_figures_of_several_models(workdir):
    add_layers(workdir, "org/One", "llama", 4)
    add_layers(workdir, "org/Two_2", "gpt2", 9, missing={(3, 1, 1)})
    models, _ = read_layers(workdir)
    overview = texts(overview_figure(models))
    assert {"One", "Two_2", "after the final norm", "layer / number of blocks"} <= set(overview)
    assert any("n = 200, k = 20, m = 1, nulls = 50" in text for text in overview)
    assert len(sensitivity_figures(models)) == len(removal_figures(models)) == 2
    assert "m = 5, k = 10" in texts(sensitivity_figures(models)[0]) and "CCR-5" in texts(removal_figures(models)[1])
    spectral = texts(spectral_figure(models))
    assert {"z", "RankMe", "α-ReQ", "condition number", "ln isotropy, ln I(W)", "average cosine"} <= set(spectral)
    assert any("k / d" in text for text in texts(migration_figure(models)))


def test_report_of_one_model_and_of_none(workdir):
    path = write_alignment_report(workdir)
    assert "nothing to show" in path.read_text()
    add_layers(workdir, "org/One", "llama", 3)
    page = write_alignment_report(workdir).read_text()
    assert page.count("<img") == 5 and "block 3" in page
    assert "| block 2 " in (workdir.root / "layer_table.md").read_text()
