"""How near to orthogonal k directions in R^d can be: optimised packings and random draws over a grid of (d, k).

    python -m experiments.packing_sweep --d_values=32,64,128 --ratios=2,4,8,16,32 --workdir=runs/packing

For each cell: the coherence (largest |cos|) of the best packing that the optimiser finds, or of the best of --trials
random draws (--kinds=optimised,random), beside the bound that no packing can pass, the best explicit construction and
the published value (--compare=FILE). Cells are done in the order of their cost, with an estimate of the time each will
take; a cell that is finished is skipped when the run is started again, and one that was interrupted goes on from its
checkpoint. Writes records.jsonl, history-<cell>.npz, grid_optimised.json and grid_random.json (for
experiments.capacity_fit), packing_table (.csv, .md, .tex), figures (PNG and PDF) and report.html.

Source of the question: Guha 2026, arXiv:2606.02765.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.progress import duration
from repcap_jax.reports.workdir import Workdir, safe_name

flags.DEFINE_list("kinds", ["optimised"], "What to measure: optimised, random, or both separated by a comma.")
flags.DEFINE_list("d_values", ["16", "32", "64"], "Dimensions.")
flags.DEFINE_list("k_values", [], "Numbers of vectors, combined with every dimension.")
flags.DEFINE_list("ratios", [], "Values of k / d, with every dimension. Without k_values 1.5,2,4,8.")
flags.DEFINE_enum("objective", "lines", ["lines", "codes"], "Minimise the largest |cos| (lines) or cos (codes).")
flags.DEFINE_integer("seed", 0, "Seed of all random numbers.")
flags.DEFINE_integer("steps", None, "Steps of each start; by default chosen for each cell.", lower_bound=1)
flags.DEFINE_integer("starts", None, "Starts of each cell; by default chosen for each cell.", lower_bound=1)
flags.DEFINE_enum("init", "random", ["random", "construction"], "Where the optimiser starts.")
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Products of the optimiser; see repcap_jax.pack.")
flags.DEFINE_integer("tile", None, "Rows of a block; by default by platform.", lower_bound=8, upper_bound=8192)
flags.DEFINE_integer("trials", 1000, "Random draws of a cell of the kind random.", lower_bound=1)
flags.DEFINE_float("max_cell_seconds", None, "Leave out cells that are estimated to take longer.", lower_bound=0.0)
flags.DEFINE_string("compare", None, "Published grid of optimised packings (.json or .csv with k, d, epsilon).")
flags.DEFINE_string("compare_random", None, "Published grid of random draws, in the same form.")
flags.DEFINE_boolean("save_vectors", False, "Also write the vectors of each packing, vectors-<cell>.npz.")

_DEFAULT_RATIOS = (1.5, 2.0, 4.0, 8.0)
_CHECKPOINTS = "checkpoints"
_CHECKPOINT_FROM = 120.0  # estimated seconds of a cell that is worth checkpoints


def main() -> int:
    """Run the experiment; the exit status is 1 if a cell failed."""
    cells = _cells()
    published = _published()
    devices = launch.start_devices()
    if FLAGS.smoke:
        FLAGS.steps, FLAGS.starts = FLAGS.steps or 200, FLAGS.starts or 4
    names = ("objective", "seed", "steps", "starts", "init", "dtype", "smoke")
    settings = {name: FLAGS[name].value for name in names}
    asked = [*(cell.name for cell in cells), str(settings)]
    devices.together(lambda: launch.check_same_work(asked, "cells or settings", devices))
    with launch.open_workdir("packing_sweep", settings, devices, **launch.generator(FLAGS.seed)) as workdir:
        failed = _measure_all(cells, published, workdir, devices)
        if devices.writes:
            from repcap_jax.reports.packing_report import write_packing_report

            path = write_packing_report(workdir, published=published)
            print(f"report: {path}", flush=True)
    return 1 if failed else 0


def _cells() -> list[Any]:
    """The cells that the flags ask for, before anything is started."""
    from repcap_jax.packing.sweep import KINDS, grid_cells

    if FLAGS.precision != "highest":
        raise UserError("--precision has no effect here; --dtype=bfloat16 is what makes the optimiser faster")
    d_values = launch.numbers("d_values", int)
    k_values, ratios = launch.numbers("k_values", int), launch.numbers("ratios", float)
    kinds = list(dict.fromkeys(FLAGS.kinds))
    trials = FLAGS.trials
    if FLAGS.smoke:
        d_values, k_values, ratios, trials = [4, 32], [], [1.5, 4.0], min(trials, 20)
    if not k_values and not ratios:
        ratios = list(_DEFAULT_RATIOS)
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        raise UserError(f"--kinds takes {', '.join(KINDS)} or both, separated by a comma, got {', '.join(wrong)}")
    if FLAGS.objective == "codes" and "random" in kinds:
        raise UserError("--objective=codes goes with --kinds=optimised: the random baseline is about lines")
    if FLAGS.init == "construction" and (FLAGS.starts or 1) > 1:
        raise UserError("--init=construction is one start: leave --starts out")
    if FLAGS.objective == "codes" and (FLAGS.compare or FLAGS.compare_random):
        raise UserError("--compare and --compare_random take grids of lines: leave them out with --objective=codes")
    try:
        grids = [grid_cells(k, d_values, k_values=k_values, ratios=ratios, trials=trials) for k in kinds]
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error
    return [cell for grid in grids for cell in grid]


def _published() -> dict[str, Any]:
    """Published grids by kind."""
    from repcap_jax.capacity import load_grid

    found = {}
    for kind, flag in (("optimised", "compare"), ("random", "compare_random")):
        if FLAGS[flag].value:
            try:
                found[kind] = load_grid(os.path.expanduser(FLAGS[flag].value))
            except (OSError, ValueError) as error:
                raise UserError(f"--{flag}: {error}") from error
    return found


def _work(cell: Any) -> float:
    from repcap_jax.packing.sweep import cell_work

    starts = 1 if FLAGS.init == "construction" else FLAGS.starts
    return cell_work(cell, objective=FLAGS.objective, steps=FLAGS.steps, starts=starts)


def _measure_all(cells: list[Any], published: dict[str, Any], workdir: Workdir, devices: Devices) -> list[str]:
    """Measure every cell that is not finished yet, cheap ones first; returns those that failed."""
    from repcap_jax.packing.sweep import TimeEstimate

    finished = devices.agree([_finished(cell, workdir) for cell in cells])
    left = [cell for cell, done in zip(cells, finished) if not done]
    if len(left) < len(cells):
        launch.tell(devices, f"{len(cells) - len(left)} of {len(cells)} cells were finished in an earlier run")
    times = TimeEstimate()
    # Processes time their devices differently; the order must be that of process 0 in all of them.
    order = sorted(range(len(left)), key=lambda number: times.seconds(left[number], _work(left[number])))
    left = [left[number] for number in devices.agree(order)] if left else []
    limit = math.inf if FLAGS.max_cell_seconds is None else FLAGS.max_cell_seconds
    expectations = [times.seconds(cell, _work(cell)) for cell in left]
    total = sum(seconds for seconds in expectations if seconds <= limit)
    launch.tell(devices, f"{len(left)} cells to do, about {duration(total)}")
    failed, too_long = [], []
    for number, cell in enumerate(left, start=1):
        work = _work(cell)
        expected = times.seconds(cell, work)
        if devices.agree([expected > limit])[0]:
            too_long.append(cell)
            continue
        place = f"[{number}/{len(left)}] {cell.name}"
        launch.tell(devices, f"{place}: about {duration(expected)} ...")
        began = time.monotonic()
        try:
            record = _measure(cell, place, expected, workdir, devices)
        except Exception as error:
            failed.append(cell.name)
            workdir.failed(cell.name, error, kind=cell.kind, k=cell.k, d=cell.d)
            print(f"{place}: failed: {error}", file=sys.stderr, flush=True)
            if FLAGS.fail_fast:
                break
            continue
        times.timed(cell, work, time.monotonic() - began)
        launch.tell(devices, f"{place}: {_summary(cell, record, published)}")
    if too_long:
        names = ", ".join(cell.name for cell in too_long)
        launch.tell(devices, f"left out, because of --max_cell_seconds={limit:g}: {names}")
    return failed


def _finished(cell: Any, workdir: Workdir) -> bool:
    """Whether a cell is done, with its vectors if they are asked for."""
    lacks = FLAGS.save_vectors and cell.kind == "optimised" and not workdir.path(_vectors_file(cell)).exists()
    return workdir.finished(cell.name) and not lacks


def _vectors_file(cell: Any) -> str:
    return f"vectors-{safe_name(cell.name)}.npz"


def _measure(cell: Any, place: str, expected: float, workdir: Workdir, devices: Devices) -> dict[str, Any]:
    import jax

    from repcap_jax.packing.sweep import cell_key

    began = time.monotonic()
    key = cell_key(jax.random.key(FLAGS.seed), cell)
    measure = _packing if cell.kind == "optimised" else _random_draws
    found = measure(cell, key, place, expected, workdir, devices)
    seconds = round(time.monotonic() - began, 3)
    return workdir.append({"key": cell.name, "status": "done", "kind": cell.kind, **found, "seconds": seconds})


def _packing(cell: Any, key: Any, place: str, expected: float, workdir: Workdir, devices: Devices) -> dict[str, Any]:
    import repcap_jax as rc

    name = safe_name(cell.name)
    checkpoints = workdir.path(f"{_CHECKPOINTS}/{workdir.settings_digest}-{name}")
    kept = devices.processes == 1 and (expected > _CHECKPOINT_FROM or checkpoints.exists())
    with launch.progress(place, devices, unit="steps") as progress:
        packing = rc.pack(
            key,
            cell.k,
            cell.d,
            objective=FLAGS.objective,
            steps=FLAGS.steps,
            starts=FLAGS.starts,
            init=FLAGS.init,
            dtype=FLAGS.dtype,
            tile=FLAGS.tile,
            mesh=devices.mesh,
            checkpoint_dir=checkpoints if kept else None,
            progress=progress,
        )
    if not packing.completed:
        raise KeyboardInterrupt  # pack keeps the best so far; the sweep has its checkpoint to go on from
    arrays = {f"history-{name}.npz": packing.history._asdict()} if packing.steps_done else {}
    if FLAGS.save_vectors:
        arrays[_vectors_file(cell)] = {"vectors": packing.vectors}
    for file, content in arrays.items():
        workdir.save_arrays(file, **content)
    if devices.writes and checkpoints.exists():
        shutil.rmtree(checkpoints)
    record = packing.to_record()
    del record["seconds"]  # of the last start only; the cell's own are recorded
    record["random_key"] = record.pop("key")
    return {**record, "epsilon": packing.coherence, "history": next(iter(arrays), None) if packing.steps_done else None}


def _random_draws(
    cell: Any, key: Any, place: str, expected: float, workdir: Workdir, devices: Devices
) -> dict[str, Any]:
    import repcap_jax as rc

    with launch.progress(place, devices, unit="draws") as progress:
        found = rc.random_coherence(key, cell.k, cell.d, cell.trials, mesh=devices.mesh, progress=progress)
    return {**found.to_record(), "epsilon": found.best}


def _summary(cell: Any, record: dict[str, Any], published: dict[str, Any]) -> str:
    parts = [f"epsilon = {record['epsilon']:.5f}"]
    if cell.kind == "optimised":
        parts.append(f"bound {record['bound']:.5f} ({record['bound_name']})")
    elif record["predicted"] is not None:
        parts.append(f"predicted {record['predicted']:.5f}")
    if cell.kind in published:
        known = published[cell.kind].at(cell.k, cell.d)
        if known:
            parts.append(f"published {known:.5f} ({record['epsilon'] / known - 1:+.1%})")
    return f"{', '.join(parts)} ({record['seconds']:.1f} s)"


if __name__ == "__main__":
    launch.run(main)
