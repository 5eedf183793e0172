"""Figures of embedding geometry: what they must name, and that they can be drawn from whatever a workdir holds."""

import re

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PathCollection

from repcap_jax.reports import style
from repcap_jax.reports.embedding_data import Counts, ModelResult, as_histograms, read_results
from repcap_jax.reports.embedding_figures import comparison_figures, overview_figure, tail_figures
from repcap_jax.reports.embedding_report import write_embedding_report
from repcap_jax.reports.style import (
    family_group,
    family_styles,
    figure_bytes,
    model_styles,
    new_figure,
    plain,
    save_figure,
    short_name,
)
from repcap_jax.reports.width_figures import Published, capacity_figure, epsilon_figure, read_published
from repcap_jax.reports.workdir import Workdir
from tests.reports.builders import EDGES, THIRTEEN, add_model, add_thirteen, made_up_counts, texts


@pytest.fixture(scope="module")
def thirteen(tmp_path_factory):
    path = tmp_path_factory.mktemp("thirteen")
    with Workdir.open(path, experiment="embedding_geometry", settings={}, devices=["cpu"]) as workdir:
        add_thirteen(workdir)
        workdir.failed("bad", ValueError("no <tensor>"), model="org/bad")
    return read_results(Workdir.read(path))


@pytest.fixture(autouse=True)
def quick_fonts(monkeypatch):
    """Embedding fonts as outlines takes a fifth of the time; what is drawn is the same."""
    monkeypatch.setitem(style._STYLE, "pdf.fonttype", 3)


@pytest.fixture
def workdir(tmp_path):
    with Workdir.open(tmp_path, experiment="embedding_geometry", settings={}, devices=["cpu"]) as opened:
        yield opened


def boxes_overlap(texts_shown, renderer):
    boxes = [text.get_window_extent(renderer) for text in texts_shown]
    return [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]


def test_models_are_read_in_the_order_of_the_figures(thirteen):
    results, notes = thirteen
    assert len(results) == 13 and [r.family for r in results] == sorted(r.family for r in results)
    assert len(notes) == 1 and "org/bad failed: ValueError: no <tensor>" in notes[0]


@pytest.mark.parametrize(("matrix", "count"), [("embedding", 13), ("unembedding", 8)])
def test_the_overview_names_every_model_with_its_numbers(thirteen, matrix, count):
    figure = overview_figure(thirteen[0], matrix)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == count + 1 and re.split(r" +", legend[0])[1:] == ["μ", "σ", "ε"]
    assert all(len(re.findall(r"\d\.\d{4}", line)) == 3 for line in legend[1:])
    (axes,) = figure.axes
    assert "cosine" in axes.get_xlabel() and "density" in axes.get_ylabel() and matrix in axes.get_title(loc="left")
    lines = axes.get_lines()[:count]
    assert len({(str(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines}) == count
    area = [np.trapezoid(line.get_ydata(), line.get_xdata()) for line in lines]
    np.testing.assert_allclose(area, 1, atol=1e-3)


def test_the_legend_of_forty_models_fits_on_the_page(thirteen):
    (result,) = [r for r in thirteen[0] if r.name == "Qwen/Qwen3-0.6B"]
    forty = [
        ModelResult(
            {**result.record, "model": f"org/model-{n}-with-a-long-name-instruct", "family": f"f{n % 8}"},
            result.histograms,
        )
        for n in range(40)
    ]
    figure = overview_figure(forty)
    figure.draw_without_rendering()
    legend, page = figure.legends[0].get_window_extent(), figure.bbox
    assert len(figure.legends[0].get_texts()) == 41
    assert page.y0 <= legend.y0 and legend.y1 <= page.y1 and legend.x1 <= page.x1
    assert legend.x0 >= figure.axes[0].get_window_extent().x1


def test_tails_mark_epsilon_and_the_isotropic_reference(thirteen):
    pages = tail_figures(thirteen[0])
    assert [len(page.axes) for page in pages] == [12, 1]
    result, axes = thirteen[0][0], pages[0].axes[0]
    numbers = result.distribution()
    assert axes.get_yscale() == "log"
    low, high = axes.get_xlim()
    assert low < numbers["mean"] - 2 * numbers["std"] and high > numbers["largest"]["cosine"]
    assert f"ε = {numbers['epsilon']:.4f}" in texts(axes) and any("above ε" in text for text in texts(axes))
    assert any(line.get_linestyle() == "--" for line in axes.get_lines()) and axes.collections
    shaded = axes.collections[0].get_paths()[0].vertices[:, 0]
    assert shaded.min() == pytest.approx(numbers["epsilon"])
    legend = [text.get_text() for text in pages[0].legends[0].get_texts()]
    assert legend == ["embedding rows", "isotropic Gaussian of the same d", "ε = μ + 2σ", "above ε"]


def test_untied_models_are_compared(thirteen):
    pages = comparison_figures(thirteen[0])
    assert [len(page.axes) for page in pages] == [8, 8]
    left, right = pages[0].axes[:2]
    assert "unembedding" in " ".join(texts(pages[0].legends[0])) and "tokens per bin" in right.get_ylabel()
    assert any("mean = " in text for text in texts(right)) and any("ε: embedding" in text for text in texts(left))


def test_epsilon_against_width_has_bands_reference_and_names_that_do_not_overlap(thirteen):
    behind = [Published("a", 1024, 0.25), Published("b", 7168, 0.06)]
    figure = epsilon_figure(thirteen[0], published=behind, published_source="Guha 2026")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and "d_model" in axes.get_xlabel() and "ε" in axes.get_ylabel()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"llama", "qwen", "gemma", "isotropic: 2/√d", "Guha 2026"} <= set(legend)
    shown = texts(axes)
    assert {"class 1: not near-orthogonal", "between", "class 2: near-orthogonal"} <= set(shown)
    names = [plain(short_name(entry[0], 26)) for entry in THIRTEEN]
    assert set(names) <= set(shown)
    figure.draw_without_rendering()
    labels = [text for text in axes.texts if text.get_text() in names]
    assert not boxes_overlap(labels, figure.canvas.get_renderer())


def test_capacity_against_width_sets_the_indeterminate_apart(thirteen):
    figure = capacity_figure(thirteen[0])
    (axes,) = figure.axes
    assert "class 1: capacity indeterminate" in texts(axes) and "capacity" in axes.get_ylabel()
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    hollow = [c for c in points if len(c.get_facecolor()) == 0]
    assert len(points) == len(THIRTEEN)
    assert len(hollow) == sum(mean + 2 * std > 0.2 for _, _, _, mean, std, _ in THIRTEEN)


def test_all_models_indeterminate_means_no_figure_of_capacity(workdir):
    add_model(workdir, "m", "llama", 576, 0.44, 0.14, moments_only=True)
    results, _ = read_results(workdir)
    assert capacity_figure(results) is None and epsilon_figure(results) is not None
    assert capacity_figure([]) is None and epsilon_figure([]) is None


def test_a_report_of_moments_draws_what_it_can_and_says_so(workdir):
    add_model(workdir, "only moments", "llama", 576, 0.02, 0.03, moments_only=True)
    write_embedding_report(workdir)
    files = {path.name for path in workdir.root.iterdir()}
    assert {"epsilon_by_width.png", "epsilon_by_width.pdf", "capacity_table.tex", "report.html"} <= files
    assert not any(name.startswith("similarity") for name in files)
    assert "Only moments were computed" in (workdir.root / "report.html").read_text()


def test_a_report_of_failures_only_and_of_a_lost_histogram(workdir):
    workdir.failed("bad", ValueError("no tensor"), model="bad")
    write_embedding_report(workdir)
    page = (workdir.root / "report.html").read_text()
    assert "bad failed: ValueError: no tensor" in page and "nothing to show" in page
    record = add_model(workdir, "lost", "llama", 576, 0.02, 0.03)
    (workdir.root / record["histogram"]).unlink()
    results, notes = read_results(workdir)
    assert results[0].histograms == {} and any("lost: no histogram" in note for note in notes)


def test_a_report_is_redrawn_from_the_workdir_alone_and_old_pages_go(tmp_path):
    options = {"experiment": "embedding_geometry", "settings": {}, "devices": ["cpu"]}
    with Workdir.open(tmp_path, **options) as workdir:
        add_model(workdir, "one/model", "llama", 576, 0.02, 0.03)
        for page in (1, 2):
            workdir.write_text(f"similarity_embedding_tail_{page}.png", "old")
        write_embedding_report(workdir)
    names = {path.name for path in tmp_path.glob("*.p*")}
    expected = ("epsilon_by_width", "capacity_by_width", "similarity_embedding", "similarity_embedding_tail")
    assert {f"{n}.{kind}" for n in expected for kind in ("png", "pdf")} <= names
    assert len(names) == 8  # nothing of the unembedding, which a tied model does not have
    first = (tmp_path / "similarity_embedding.png").read_bytes()
    assert first.startswith(b"\x89PNG") and (tmp_path / "similarity_embedding.pdf").read_bytes().startswith(b"%PDF")
    with Workdir.open(tmp_path, **options) as workdir:
        save_figure(workdir, overview_figure(read_results(workdir)[0]), "similarity_embedding")
    assert (tmp_path / "similarity_embedding.png").read_bytes() == first


def test_saving_leaves_matplotlib_alone_and_gives_the_same_bytes_again():
    before = dict(matplotlib.rcParams)
    figure = new_figure(2, 2)
    figure.add_subplot().plot([0, 1])
    for kind in ("png", "pdf"):
        assert figure_bytes(figure, kind, "t") == figure_bytes(figure, kind, "t")
    assert dict(matplotlib.rcParams) == before


def test_histograms_belong_to_their_edges():
    counts = made_up_counts(0, 0.1)
    assert set(as_histograms({"a_counts": counts, "a_edges": EDGES, "b_counts": np.zeros(0)})) == {"a"}
    assert as_histograms({"a_counts": np.zeros(2, int), "a_edges": np.arange(3.0)}) == {}
    for arrays in ({"a_counts": counts}, {"a_counts": counts, "a_edges": EDGES[1:]}):
        with pytest.raises(ValueError, match="edges"):
            as_histograms(arrays)
    whole = Counts(counts, EDGES)
    assert whole.coarser(8).counts.sum() == counts.sum() and len(whole.coarser(8).counts) == 250
    assert whole.coarser(7) is whole
    assert Counts(np.array([0, 3, 0, 1, 0]), np.arange(6.0)).support() == (1.0, 4.0)


def test_families_keep_their_colour_and_no_two_look_the_same():
    for model_type, family in [
        ("qwen3_moe", "qwen"), ("gemma3_text", "gemma"), ("deepseek_v3", "deepseek"), ("gpt_oss", "gpt_oss"),
        ("gpt2", "gpt"), ("kimi_k2", "kimi"), ("llama", "llama"), (None, "other"), ("", "other"), ("3d", "3d"),
    ]:  # fmt: skip
        assert family_group(model_type) == family
    few = family_styles(["llama", "qwen"])
    many = family_styles([f"family {n}" for n in range(30)] + ["llama", "qwen"])
    assert many["llama"] == few["llama"] and many["qwen"] == few["qwen"]
    assert len(set(many.values())) == len(many)
    assert len({str(style) for style in model_styles(["qwen"] * 13)}) == 13


def test_names_are_shown_as_they_are():
    assert plain("$a_1$") == r"\$a_1\$" and plain("_x") == " _x"
    assert short_name("org/model") == "model" and short_name("org/") == "org"
    assert len(short_name("x" * 99, 20)) == 20 and short_name("x" * 10 + "-end", 11).endswith("end")


def test_published_points_are_read_and_checked(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("# source\nmodel,d_model,epsilon,capacity\nA,576,0.1,1e9\n")
    assert read_published(path) == [Published("A", 576, 0.1)]
    for text in ("model,epsilon\nA,1\n", "model,d_model,epsilon\nA,x,0.1\n", "model,d_model,epsilon\nA,5,nan\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="p.csv"):
            read_published(path)
    with pytest.raises(ValueError, match="cannot read"):
        read_published(tmp_path / "absent")
