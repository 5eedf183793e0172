"""When does a network store more features than dimensions, and in what shapes? Toy models of superposition.

    python -m experiments.toy_superposition --workdir=runs/toys                       # some ten minutes on two cores
    python -m experiments.toy_superposition --n=5 --m=2 --studies=geometry --workdir=runs/pentagons
    python -m experiments.toy_superposition --studies=phase --phase_m=1,2 --workdir=runs/phases

The study `geometry` trains n features in m dimensions at each sparsity, with ReLU and without, and reports norms,
interference, features per dimension, the dimensionality D_i of each feature, the polytopes that features form, the loss
beside the linear model's closed form, and the coherence beside what `repcap_jax.pack` reaches for as many directions.
The study `phase` trains m + 1 features of which the last has another importance, over density x importance, beside the
closed-form losses of each phase. All instances of a block are trained at once, shared over the devices (on CPUs one for
each core). A sparsity that is finished is skipped when the run is started again. Writes records.jsonl,
models-<cell>.npz, toy_table (.csv, .md, .tex), figures (PNG and PDF) and report.html.

Source of the question: Elhage et al. 2022, "Toy Models of Superposition".
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.workdir import Workdir, safe_name

flags.DEFINE_list("studies", ["geometry", "phase"], "What to study: geometry, phase, or both separated by a comma.")
flags.DEFINE_integer("n", 20, "Features.")
flags.DEFINE_integer("m", 5, "Hidden dimensions.")
_SPARSITIES = ["0", "0.5", "0.7", "0.8", "0.85", "0.9", "0.95", "0.97", "0.98", "0.99"]
flags.DEFINE_list("sparsities", _SPARSITIES, "Probabilities S that a feature is zero, in [0, 1).")
flags.DEFINE_list("decays", ["1"], "Importance decays: feature i has importance decay^i.")
flags.DEFINE_integer("seeds", 15, "Random starts of each sparsity and decay.")
flags.DEFINE_list("activations", ["relu", "linear"], "Output activations: relu, linear, or both.")
flags.DEFINE_enum("hidden", "linear", ["linear", "relu"], "Hidden layer; relu makes its basis privileged.")
_FEATURES = ["independent", "correlated", "anticorrelated"]
flags.DEFINE_enum("features", "independent", _FEATURES, "How features occur; sets of --set_size for the last two.")
flags.DEFINE_integer("set_size", 1, "Features of a set that occur together, or never together.")
flags.DEFINE_integer("steps", 10_000, "Steps of the optimiser.", lower_bound=1)
flags.DEFINE_integer("batch", 512, "Samples of a step.", lower_bound=1)
flags.DEFINE_float("rate", 3e-3, "Learning rate of the first step; it falls to 0.")
flags.DEFINE_float("weight_decay", 0.0, "Weight decay of AdamW.")
flags.DEFINE_integer("seed", 0, "Seed of all random numbers.")
flags.DEFINE_integer("block", 400, "Instances that are trained at once.", lower_bound=1)
flags.DEFINE_list("phase_m", ["1"], "Hidden dimensions of the phase diagrams: 1 for n = 2, 2 for n = 3.")
flags.DEFINE_integer("phase_side", 12, "Densities, and importances, of a phase diagram.", lower_bound=2)
flags.DEFINE_integer("phase_seeds", 4, "Random starts of each point of a phase diagram.", lower_bound=1)
flags.DEFINE_integer("phase_steps", 5000, "Steps for each phase diagram.", lower_bound=1)
flags.DEFINE_boolean("packings", True, "Pack as many directions as were learned, to compare with.")


def main() -> int:
    """Run the experiment; the exit status is 1 if a block failed."""
    if FLAGS.smoke:
        FLAGS.sparsities, FLAGS.seeds, FLAGS.steps, FLAGS.batch = ["0", "0.7", "0.95"], 2, 300, 256
        FLAGS.rate = 2e-2
        FLAGS.n, FLAGS.m, FLAGS.phase_side, FLAGS.phase_seeds, FLAGS.phase_steps = 5, 2, 4, 2, 300
    cells = _cells()
    if FLAGS.cpu_devices is None and not FLAGS.distributed:
        _one_device_per_core()
    devices = launch.start_devices()
    settings = _result_settings()
    asked = [*(cell.name for cell in cells), str(settings), str(FLAGS.block)]
    devices.together(lambda: launch.check_same_work(asked, "cells or settings", devices))
    with launch.open_workdir("toy_superposition", settings, devices, **launch.generator(FLAGS.seed)) as workdir:
        failed = _train_all(cells, workdir, devices)
        if FLAGS.packings and not failed:
            _pack_all(cells, workdir, devices)
        if devices.writes:
            from repcap_jax.reports.toy_report import write_toy_report

            print(f"report: {write_toy_report(workdir)}", flush=True)
    return 1 if failed else 0


def _one_device_per_core() -> None:
    """A step of small models keeps one core busy; as many CPU devices as cores share the instances."""
    import jax

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def _result_settings() -> dict[str, Any]:
    names = ("hidden", "features", "set_size", "decays", "seeds", "steps", "batch", "rate", "weight_decay", "seed")
    phase = ("phase_side", "phase_seeds", "phase_steps")
    return {name: FLAGS[name].value for name in (*names, *phase)}


def _cells() -> list[Any]:
    """The cells that the flags ask for, checked before anything is started."""
    from repcap_jax.superposition import check_cells, geometry_cells, phase_cells

    if FLAGS.precision != "highest":
        raise UserError("--precision has no effect here: toy models are trained in float32")
    for flag, known in (("studies", ("geometry", "phase")), ("activations", ("relu", "linear"))):
        if not FLAGS[flag].value or set(FLAGS[flag].value) - set(known):
            raise UserError(
                f"--{flag} takes {', '.join(known)} or both, got {','.join(FLAGS[flag].value) or 'nothing'}"
            )
    sparsities, decays = launch.numbers("sparsities", float), launch.numbers("decays", float)
    cells: list[Any] = []
    try:
        if "geometry" in FLAGS.studies:
            options = {"decays": decays, "seeds": FLAGS.seeds, "activations": FLAGS.activations}
            cells += geometry_cells(FLAGS.n, FLAGS.m, sparsities, **options)
            check_cells(cells, FLAGS.features, FLAGS.set_size)
        if "phase" in FLAGS.studies:
            for m in dict.fromkeys(launch.numbers("phase_m", int)):
                cells += phase_cells(m, FLAGS.phase_side, seeds=FLAGS.phase_seeds)
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error
    if FLAGS.m >= FLAGS.n and "geometry" in FLAGS.studies:
        print(f"note: m = {FLAGS.m} >= n = {FLAGS.n}, so that every feature can have a dimension of its own")
    if not FLAGS.rate > 0 or not FLAGS.weight_decay >= 0:
        raise UserError("--rate must be positive and --weight_decay not negative")
    return cells


def _train_all(cells: list[Any], workdir: Workdir, devices: Devices) -> list[str]:
    """Train the cells that are not finished yet, a block at a time; returns those that failed."""
    from repcap_jax.superposition import blocks

    finished = devices.agree([workdir.finished(cell.name) for cell in cells])
    left = [cell for cell, done in zip(cells, finished) if not done]
    if len(left) < len(cells):
        launch.tell(devices, f"{len(cells) - len(left)} of {len(cells)} cells were finished in an earlier run")
    failed: list[str] = []
    for block in blocks(left, FLAGS.block):
        try:
            _train_block(block, workdir, devices)
        except Exception as error:
            lost = [cell for cell in block if not workdir.finished(cell.name)]
            failed += [cell.name for cell in lost]
            for cell in lost:
                workdir.failed(cell.name, error, study=cell.study, sparsity=cell.sparsity)
            print(f"{', '.join(cell.name for cell in lost)}: failed: {error}", file=sys.stderr, flush=True)
            if FLAGS.fail_fast:
                break
    return failed


def _train_block(block: list[Any], workdir: Workdir, devices: Devices) -> None:
    """Train the instances of some cells together, and record each cell."""
    import jax
    import numpy as np

    from repcap_jax.superposition import cell_result, joined, train_toy_models

    first, geometry = block[0], block[0].study == "geometry"
    instances = joined(block)
    what = f"{first.study} {first.activation} n={first.n} m={first.m}, {len(instances.seed)} instances"
    with launch.progress(what, devices, unit="steps") as progress:
        models = train_toy_models(
            jax.random.key(FLAGS.seed),
            instances,
            first.m,
            activation=first.activation,
            hidden=FLAGS.hidden if geometry else "linear",
            features=FLAGS.features if geometry else "independent",
            set_size=FLAGS.set_size if geometry else 1,
            steps=FLAGS.steps if geometry else FLAGS.phase_steps,
            batch=FLAGS.batch,
            rate=FLAGS.rate,
            weight_decay=FLAGS.weight_decay,
            mesh=devices.mesh,
            progress=progress,
        )
    launch.tell(devices, f"{what}: {models.seconds:.1f} s")
    if not np.isfinite(models.weights).all():
        raise ValueError(f"{what}: training diverged; choose a smaller --rate than {FLAGS.rate:g}")
    done = 0
    for cell in block:
        size = len(cell.importances) * cell.seeds
        record, arrays = cell_result(cell, models.select(slice(done, done + size)))
        done += size
        file = f"models-{safe_name(cell.name)}.npz"
        workdir.save_arrays(file, **arrays)
        share = round(models.seconds * size / len(models), 3)
        workdir.append({"key": cell.name, "status": "done", **record, "arrays": file, "seconds": share})
        launch.tell(devices, f"  {cell.name}: {_summary(record)}")


def _summary(record: dict[str, Any]) -> str:
    if record["study"] == "phase":
        phases = record["phases"]
        agree = sum(a == b for a, b in zip(phases["found"], phases["predicted_optimal"]))
        return f"{agree} of {len(phases['found'])} importances in the predicted phase"
    loss = record["linear"].get("loss", record["loss"])[0]
    measures, shapes = record["measures"], [cluster["shape"] for cluster in record["clusters"][0]]
    told = ", ".join(f"{shapes.count(name)} {name}" for name in dict.fromkeys(shapes))
    return (
        f"loss {loss:.5f} (linear optimum {record['linear']['optimum'][0]:.5f}), "
        f"{measures['features_per_dimension'][0]:.2f} features per dimension, shapes: {told or 'none'}"
    )


def _pack_all(cells: list[Any], workdir: Workdir, devices: Devices) -> None:
    """Pack as many directions as the best ReLU models store, in as many dimensions."""
    import jax

    import repcap_jax as rc
    from repcap_jax.superposition import stored_counts

    names = {cell.name for cell in cells if cell.study == "geometry" and cell.activation == "relu"}
    records = [record for record in workdir.records() if record["key"] in names and record["status"] == "done"]
    wanted = sorted({(k, record["m"]) for record in records for k in stored_counts(record)})
    wanted = [(k, m) for k, m in wanted if k > m >= 2]
    finished = devices.agree([workdir.finished(f"packing k={k} m={m}") for k, m in wanted])
    for (k, m), done in zip(wanted, finished):
        if done:
            continue
        began = time.monotonic()
        key = jax.random.fold_in(jax.random.key(FLAGS.seed), k)
        quick = {"steps": 300, "starts": 8} if FLAGS.smoke else {}
        reached = {name: rc.pack(key, k, m, objective=name, **quick) for name in ("lines", "codes")}
        if not all(packing.completed for packing in reached.values()):
            raise KeyboardInterrupt
        record = {name: {"coherence": p.coherence, "bound": p.bound} for name, p in reached.items()}
        seconds = round(time.monotonic() - began, 3)
        cell = {"key": f"packing k={k} m={m}", "status": "done", "study": "packing", "k": k, "m": m}
        workdir.append({**cell, **record, "seconds": seconds})
        launch.tell(devices, f"packing of {k} in {m}: lines {reached['lines'].coherence:.4f} ({seconds:.1f} s)")


if __name__ == "__main__":
    launch.run(main)
