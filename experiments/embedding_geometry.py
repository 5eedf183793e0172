"""How many near-orthogonal directions fit in a model: cosines of its token embeddings, epsilon, class, capacity.

    python -m experiments.embedding_geometry --model=HuggingFaceTB/SmolLM2-135M --workdir=runs/smollm2

For each model: the exact distribution of the cosines of all pairs of embedding rows (and of unembedding rows, if the
model is not tied), mu, sigma, epsilon = mu + 2 sigma, the class, the representational capacity with its derivative and
its range over 1.5 to 3 sigma, and the directions left for features. Writes records.jsonl, capacity_table (.csv, .md,
.tex), histogram-<model>.npz, figures (PNG and PDF) and report.html. Finished models are skipped when the run is started
again. A vocabulary of 49,152 takes about 20 seconds on two CPU cores; --moments_only takes one, without the figures of
the distribution.

Source of the method: Guha 2026, arXiv:2606.02765.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.workdir import Workdir, safe_name

flags.DEFINE_multi_string(
    "model",
    [],
    "Model: a folder, a .gguf, .safetensors, .npy or .npz file, or a Hub id, with @revision if wanted. Repeat the flag "
    "or separate by commas.",
)
flags.DEFINE_string("models_file", None, "File with one model a line.")
flags.DEFINE_list("which", ["embedding", "unembedding"], "Matrices to measure: embedding, unembedding.")
flags.DEFINE_enum("rows", "all", ["all", "tokenizer"], "All rows, or those that the tokenizer can address.")
flags.DEFINE_boolean("moments_only", False, "Only mu, sigma and epsilon: O(n d^2) instead of O(n^2 d).")
flags.DEFINE_integer("bins", 2000, "Histogram bins on [-1, 1].", lower_bound=1, upper_bound=1_000_000)
flags.DEFINE_integer("tile", None, "Rows and columns of a tile (a power of two); by default chosen by platform.")
flags.DEFINE_string("embedding_tensor", None, "Name of the embedding tensor, where it cannot be told.")
flags.DEFINE_string("unembedding_tensor", None, "Name of the unembedding tensor, where it cannot be told.")
flags.DEFINE_string("published", None, "CSV of published points (model, d_model, epsilon) to draw behind one's own.")

_SMOKE_ROWS, _SMOKE_WIDTH = 2000, 64


def main() -> int:
    """Run the experiment; the exit status is 1 if a model failed."""
    models = _models()
    _check_flags()
    devices = launch.start_devices()
    settings = {
        name: FLAGS[name].value
        for name in ("which", "rows", "moments_only", "bins", "precision", "smoke", "embedding_tensor")
    } | {"unembedding_tensor": FLAGS.unembedding_tensor}
    published = devices.together(lambda: _published() if devices.writes else [])
    devices.together(lambda: launch.check_same_work(models, "models", devices))
    with (
        launch.open_workdir("embedding_geometry", settings, devices) as workdir,
        tempfile.TemporaryDirectory() as folder,
    ):
        sources = {model: model for model in models} or {"smoke-matrix": _smoke_model(folder)}
        failed = launch.sweep_models(
            sources,
            lambda model, source, place: _measure(model, source, place, workdir, devices),
            _summary,
            workdir,
            devices,
        )
        if devices.writes:
            _report(workdir, published)
    return 1 if failed else 0


def _models() -> list[str]:
    models = launch.listed_models(FLAGS.model, FLAGS.models_file)
    if not models and not FLAGS.smoke:
        raise UserError("name a model with --model=..., several with --models_file=..., or try --smoke")
    return models


def _check_flags() -> None:
    from repcap_jax.embeddings.geometry import MATRICES
    from repcap_jax.kernels.walk import check_tile

    wrong = [name for name in FLAGS.which if name not in MATRICES]
    if wrong or not FLAGS.which:
        raise UserError(f"--which takes {', '.join(MATRICES)} or both, separated by a comma, got {FLAGS.which}")
    try:
        check_tile(FLAGS.tile)
    except ValueError as error:
        raise UserError(f"--tile: {error}") from error


def _published() -> list[Any]:
    if not FLAGS.published:
        return []
    from repcap_jax.reports.width_figures import read_published

    try:
        return read_published(FLAGS.published)
    except ValueError as error:
        raise UserError(f"--published: {error}") from error


def _measure(model: str, source: str, place: str, workdir: Workdir, devices: Devices) -> dict[str, Any]:
    from repcap_jax.checkpoints import open_checkpoint
    from repcap_jax.embeddings.geometry import embedding_geometry

    started = time.monotonic()
    source, revision = launch.source_and_revision(source)
    tensors = {"embedding_tensor": FLAGS.embedding_tensor, "unembedding_tensor": FLAGS.unembedding_tensor}
    with contextlib.ExitStack() as stack:
        checkpoint = devices.together(lambda: stack.enter_context(open_checkpoint(source, revision, **tensors)))
        found = embedding_geometry(
            checkpoint,
            which=FLAGS.which,
            rows=FLAGS.rows,
            max_rows=_SMOKE_ROWS if FLAGS.smoke else None,
            moments_only=FLAGS.moments_only,
            bins=FLAGS.bins,
            tile=FLAGS.tile,
            mesh=devices.mesh,
            precision=FLAGS.precision,
            progress=lambda name: launch.progress(f"{place} {name}", devices),
            together=devices.together,
        )
        provenance = checkpoint.to_record()
    arrays = found.arrays()
    histogram = f"histogram-{safe_name(model)}.npz" if arrays else None
    if histogram:
        workdir.save_arrays(histogram, **arrays)
    return workdir.append(
        {
            "key": model,
            "status": "done",
            "source": source,
            "checkpoint": provenance,
            **found.to_record(),
            "histogram": histogram,
            "seconds": {"total": round(time.monotonic() - started, 3)},
        }
    )


def _summary(record: dict[str, Any]) -> str:
    parts = []
    for name, matrix in record["matrices"].items():
        found, capacity = matrix["distribution"], matrix["capacity"]
        kind = capacity["geometry_class"]
        count = "indeterminate" if capacity["indeterminate"] else f"10^{capacity['log10_capacity']:.2f}"
        parts.append(
            f"{name}: {found['n_pairs']:,} pairs, mu = {found['mean']:.5f}, sigma = {found['std']:.5f}, "
            f"epsilon = {found['epsilon']:.5f}, {kind}, capacity {count}"
        )
    return "; ".join(parts) + f" ({record['seconds']['total']:.1f} s)"


def _smoke_model(folder: str) -> str:
    """A small Gaussian matrix with a common direction: something to run on without a model."""
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((_SMOKE_ROWS, _SMOKE_WIDTH)).astype(np.float32) + 0.2
    path = os.path.join(folder, "smoke-matrix.npy")
    np.save(path, matrix)
    return path


def _report(workdir: Workdir, published: list[Any]) -> None:
    from repcap_jax.reports.embedding_report import write_embedding_report

    path = write_embedding_report(workdir, published=published)
    print(f"report: {path}", flush=True)


if __name__ == "__main__":
    launch.run(main)
