"""Figures and report of toy models and of points on spheres, from records and arrays that no training made."""

import matplotlib
import numpy as np
import pytest

from repcap_jax.packing import symmetry
from repcap_jax.reports import style
from repcap_jax.reports.phase_figures import phase_figure
from repcap_jax.reports.spheres_figures import energy_figure, exponent_figure, hull, points_figures, upright
from repcap_jax.reports.spheres_report import write_spheres_report
from repcap_jax.reports.toy_data import feature_order, read_study, spread
from repcap_jax.reports.toy_figures import (
    coherence_figure,
    dimensionality_figure,
    gram_figure,
    loss_figure,
    vector_figure,
)
from repcap_jax.reports.toy_report import write_toy_report
from repcap_jax.reports.workdir import Workdir
from repcap_jax.superposition import ToyModels, cell_result, geometry_cells, ideal_polytopes, phase_cells
from repcap_jax.superposition.result import ToySettings

SHAPES = {polytope.name: polytope.vectors for polytope in ideal_polytopes()}


@pytest.fixture(autouse=True)
def quick_fonts(monkeypatch):
    monkeypatch.setitem(style._STYLE, "pdf.fonttype", 3)


def made_up(cell, weights):
    """Models with given weights, one an instance."""
    instances = cell.instances()
    count = len(instances.seed)
    settings = ToySettings(cell.n, cell.m, cell.activation, "linear", "independent", 1, 10, 8, 1e-3, 0.0)
    loss = np.linspace(0.1, 0.2, count) * (1 - cell.sparsity)
    history = np.ones((count, 2), np.float32)
    w = np.resize(weights, (count, cell.m, cell.n)).astype(np.float32)
    zeros = np.zeros((count, cell.n), np.float32)
    return ToyModels(w, zeros, loss, loss / 100, np.array([5, 10]), history, instances, settings, 1.0)


def save(workdir, cell, weights):
    record, arrays = cell_result(cell, made_up(cell, weights))
    workdir.save_arrays(f"{cell.name}.npz", **arrays)
    workdir.append({"key": cell.name, "status": "done", **record, "arrays": f"{cell.name}.npz"})


@pytest.fixture
def workdir(tmp_path):
    with Workdir.open(tmp_path, experiment="toy_superposition", settings={}, devices=["cpu"]) as opened:
        yield opened


@pytest.fixture
def filled(workdir):
    """Pentagons where it is sparse, a pair of dedicated features where it is not, and a phase diagram."""
    cells = geometry_cells(5, 2, [0.0, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99], seeds=2, activations=("relu", "linear"))
    for cell in cells:
        sparse = cell.sparsity > 0.5 and cell.activation == "relu"
        save(workdir, cell, SHAPES["pentagon"].T if sparse else np.eye(2, 5))
    for cell in phase_cells(1, 3, seeds=2):
        save(workdir, cell, np.array([[1.0, -1.0]]) if cell.sparsity > 0.5 else np.array([[1.0, 0.0]]))
    codes = {"coherence": 0.309, "bound": 0.309}
    lines = {"coherence": 0.809, "bound": 0.809}
    done = {"key": "packing k=5 m=2", "status": "done", "study": "packing", "k": 5, "m": 2}
    workdir.append({**done, "lines": lines, "codes": codes})
    workdir.failed("geometry relu n=5 m=2 S=0.5", ValueError("no luck"), study="geometry", sparsity=0.5)
    return workdir


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_study_is_read_in_order(filled):
    study = read_study(filled)
    assert [cell.activation for cell in study.geometry] == ["relu"] * 7 + ["linear"] * 7
    assert [cell.sparsity for cell in study.of("relu")][:2] == [0.0, 0.8] and len(study.phases[1]) == 3
    assert study.warnings == ["geometry relu n=5 m=2 S=0.5 failed: no luck"] and (5, 2) in study.packings
    assert sorted(feature_order(study.geometry[0])) == [0, 1, 2, 3, 4]
    assert [cell.sparsity for cell in spread(study.of("relu"), 3)] == [0.0, 0.95, 0.99]


def test_gram_panels_and_vectors(filled):
    study = read_study(filled)
    figure = gram_figure(study.of("relu"))
    images = [axes.get_images()[0].get_array() for axes in figure.axes if axes.get_images()]
    assert len(images) == 6 and images[-1][0, 0] == pytest.approx(1)
    np.testing.assert_allclose(
        np.unique(np.round(images[-1], 3)), np.round(np.cos(2 * np.pi * np.arange(3) / 5), 3)[[2, 1, 0]]
    )
    figure = vector_figure(study.of("relu"))
    assert len(figure.axes) == 6 and any("pentagon" in text for text in texts(figure))
    assert any("2 × single" in text for text in texts(figure))


def test_dimensionality_loss_and_coherence(filled):
    study = read_study(filled)
    figure = dimensionality_figure(study)
    assert {"2/5 pentagon", "3/8 square antiprism", "1/2 antipodal pair"} <= set(texts(figure))
    shown = np.concatenate([points.get_offsets()[:, 1] for points in figure.axes[1].collections])
    assert len(shown) == 2 * 2 + 6 * 2 * 5 and shown.min() == pytest.approx(0.4)
    labels = [text for text in figure.axes[1].texts]
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in labels]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert "linear model, closed form" in texts(loss_figure(study))
    assert "pack, codes: best found" in texts(coherence_figure(study))


def test_phases(filled):
    figure = phase_figure(read_study(filled).phases[1])
    assert len(figure.axes) == 3 and any("of the trained cells agree" in text for text in texts(figure))
    assert {"not represented", "a dimension to itself", "in superposition (antipodal)"} <= set(texts(figure))
    assert phase_figure(read_study(filled).phases[1][:1]) is None


@pytest.mark.slow
def test_reports(filled, tmp_path):
    write_toy_report(filled)
    table = (tmp_path / "toy_table.md").read_text()
    assert "1 pentagon" in table and "2 single" in table and "no luck" in (tmp_path / "report.html").read_text()


def test_nothing_to_show(workdir, tmp_path):
    write_toy_report(workdir)
    assert "nothing to show" in (tmp_path / "report.html").read_text()
    write_spheres_report(workdir)
    assert "nothing to show" in (tmp_path / "report.html").read_text()


def sphere_record(name, s, vectors, energy=1.0):
    record = {
        "key": f"{name} {s}",
        "status": "done",
        "kind": "energy",
        "k": len(vectors),
        "d": vectors.shape[1],
        "s": s,
    }
    record |= {"energy": energy, "log_energy": 1.0, "published": energy, "found": 3, "starts": 4, "shape": name}
    record |= {"smallest_angle": 70.0 + s, "shape_distance": 0.0, "coherence": 0.1, "bound": 0.0, "bound_name": "a"}
    return {**record, "symmetry": symmetry(vectors).to_record(), "arrays": f"{name}-{s}.npz", "seconds": 1.0}


def test_points_on_spheres(workdir, tmp_path):
    for name in ("tetrahedron", "square antiprism", "icosahedron"):
        for s in (1.0, 12.0):
            record = sphere_record(name, s, SHAPES[name], 1.0 + len(SHAPES[name]))
            workdir.save_arrays(record["arrays"], vectors=SHAPES[name])
            workdir.append(record)
    write_spheres_report(workdir)
    assert "square antiprism" in (tmp_path / "energy_table.md").read_text()
    for name in ("points", "energies", "exponents"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_hull_leaves_out_the_diagonals_of_faces():
    assert len(hull(SHAPES["cube"])[1]) == 12 and len(hull(SHAPES["dodecahedron"])[1]) == 30
    assert (
        len(hull(SHAPES["square antiprism"])[1]) == 16
        and len(hull(np.pad(SHAPES["pentagon"], ((0, 0), (0, 1))))[1]) == 0
    )
    antiprism = next(shape.vectors for shape in ideal_polytopes() if shape.name == "square antiprism")
    turned = upright(antiprism[:, [2, 0, 1]])
    np.testing.assert_allclose(np.abs(turned[:, 2]), np.abs(antiprism[:, 2]), atol=1e-12)
    np.testing.assert_allclose(turned @ turned.T, antiprism @ antiprism.T, atol=1e-12)


def test_figures_without_cells():
    assert points_figures([]) == [] and energy_figure([]) is None and exponent_figure([]) is None
    assert gram_figure([]) is None and vector_figure([]) is None
