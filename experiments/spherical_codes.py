"""Points on spheres: least Riesz and logarithmic energies from many starts, and spherical codes.

    python -m experiments.spherical_codes --workdir=runs/spheres                          # Thomson, N = 2 to 32
    python -m experiments.spherical_codes --k_values=2-100 --workdir=runs/spheres
    python -m experiments.spherical_codes --k_values=8 --s_values=0,1,2,6,20,100 --workdir=runs/eight

For each number of points k and exponent s: the least energy that independent starts find and how many find it, beside
the published energy of the Thomson problem (d = 3, s = 1), the distances and coordination of the points, and the
polytope that they form. For each d:k of --codes: the largest cosine that `repcap_jax.pack` reaches beside the best code
known and the bound. A cell that is finished is skipped when the run is started again. Writes records.jsonl,
points-<cell>.npz, energy_table and code_table (.csv, .md, .tex), figures (PNG and PDF) and report.html.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.workdir import Workdir, safe_name

flags.DEFINE_list("k_values", ["2-32"], "Numbers of points, and ranges like 2-32.")
flags.DEFINE_list("s_values", ["1"], "Exponents of the Riesz energy; 0 is the logarithmic energy.")
flags.DEFINE_integer("d", 3, "Dimension of the energies.", lower_bound=2)
_CODES = ["3:7", "3:8", "3:9", "3:10", "5:16", "6:27", "7:56", "8:240"]
flags.DEFINE_list("codes", _CODES, "Spherical codes to find, as d:k; empty for none.")
flags.DEFINE_integer("starts", None, "Random starts of each cell; by default chosen for each cell.", lower_bound=1)
flags.DEFINE_integer("steps", 600, "Steps of each start of an energy.", lower_bound=1)
flags.DEFINE_integer("seed", 0, "Seed of all random numbers.")


def main() -> int:
    """Run the experiment; the exit status is 1 if a cell failed."""
    if FLAGS.smoke:
        FLAGS.k_values, FLAGS.codes, FLAGS.steps, FLAGS.starts = ["4", "8"], ["3:8"], 200, FLAGS.starts or 8
    cells = _cells()
    devices = launch.start_devices()
    if devices.processes > 1:
        raise UserError("spherical_codes runs in one process: its cells are small")
    settings = {name: FLAGS[name].value for name in ("starts", "steps", "seed", "smoke")}
    with launch.open_workdir("spherical_codes", settings, devices, **launch.generator(FLAGS.seed)) as workdir:
        failed = _measure_all(cells, workdir, devices)
        from repcap_jax.reports.spheres_report import write_spheres_report

        print(f"report: {write_spheres_report(workdir)}", flush=True)
    return 1 if failed else 0


def _cells() -> list[dict[str, Any]]:
    """The cells that the flags ask for, before anything is started."""
    from repcap_jax.packing import LARGEST_S

    if FLAGS.precision != "highest":
        raise UserError("--precision has no effect here: energies are finished in float64")
    counts = [count for text in FLAGS.k_values if text.strip() for count in _range(text.strip())]
    try:
        exponents = [float(text) for text in FLAGS.s_values if text.strip()]
    except ValueError as error:
        raise UserError(f"--s_values takes numbers separated by commas: {error}") from error
    if wrong := [s for s in exponents if not 0 <= s <= LARGEST_S]:
        raise UserError(f"--s_values takes exponents from 0 to {LARGEST_S:g}, got {wrong[0]:g}")
    cells = [
        {"kind": "energy", "k": k, "d": FLAGS.d, "s": s, "key": f"energy d={FLAGS.d} s={s:.12g} k={k}"}
        for s in dict.fromkeys(exponents)
        for k in dict.fromkeys(counts)
    ]
    for text in FLAGS.codes:
        if not re.fullmatch(r"\d+:\d+", text.strip()):
            raise UserError(f"--codes takes d:k separated by commas, got {text!r}")
        d, k = map(int, text.split(":"))
        if d < 2 or k < 2:
            raise UserError(f"--codes needs d and k of at least 2, got {text}")
        cells.append({"kind": "code", "k": k, "d": d, "key": f"code d={d} k={k}"})
    if not cells:
        raise UserError("nothing to do: give --k_values and --s_values, or --codes")
    return cells


def _range(text: str) -> range:
    """ "8" or "2-32"."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise UserError(f"--k_values takes whole numbers and ranges like 2-32, got {text!r}")
    first = int(match[1])
    last = int(match[2] or first)
    if first < 2 or last < first:
        raise UserError(f"--k_values needs at least 2 points and rising ranges, got {text}")
    return range(first, last + 1)


def _measure_all(cells: list[dict[str, Any]], workdir: Workdir, devices: Devices) -> list[str]:
    """Measure every cell that is not finished yet; returns those that failed."""
    left = [cell for cell in cells if not workdir.finished(cell["key"])]
    if len(left) < len(cells):
        _say(f"{len(cells) - len(left)} of {len(cells)} cells were finished in an earlier run")
    failed = []
    for number, cell in enumerate(left, start=1):
        place = f"[{number}/{len(left)}] {cell['key']}"
        began = time.monotonic()
        try:
            with launch.progress(place, devices, unit="steps") as progress:
                measure = _energy if cell["kind"] == "energy" else _code
                record, vectors = measure(cell, progress)
        except Exception as error:
            failed.append(cell["key"])
            workdir.failed(cell["key"], error, **{name: cell[name] for name in ("kind", "k", "d")})
            print(f"{place}: failed: {error}", file=sys.stderr, flush=True)
            if FLAGS.fail_fast:
                break
            continue
        file = f"points-{safe_name(cell['key'])}.npz"
        workdir.save_arrays(file, vectors=vectors)
        seconds = round(time.monotonic() - began, 3)
        workdir.append({**cell, **record, "status": "done", "arrays": file, "seconds": seconds})
        _say(f"{place}: {_summary(record)} ({seconds:.1f} s)")
    return failed


def _energy(cell: dict[str, Any], progress: Any) -> tuple[dict[str, Any], Any]:
    import repcap_jax as rc
    from repcap_jax.packing import published_thomson_energy

    options = {"s": cell["s"], "starts": FLAGS.starts, "steps": FLAGS.steps, "progress": progress}
    found = rc.minimal_energy(_key(cell), cell["k"], cell["d"], **options)
    thomson = cell["d"] == 3 and cell["s"] == 1
    published = published_thomson_energy(cell["k"]) if thomson else None
    return {**found.to_record(), "published": published, **_shape(found.vectors)}, found.vectors


def _code(cell: dict[str, Any], progress: Any) -> tuple[dict[str, Any], Any]:
    import repcap_jax as rc
    from repcap_jax.packing import published_code

    options = {"objective": "codes", "starts": FLAGS.starts, "progress": progress}
    found = rc.pack(_key(cell), cell["k"], cell["d"], **options)
    if not found.completed:
        raise KeyboardInterrupt
    record = {"coherence": found.coherence, "bound": found.bound, "bound_name": found.bound_name}
    return {**record, "published": published_code(cell["k"], cell["d"]), **_shape(found.vectors)}, found.vectors


def _shape(vectors: Any) -> dict[str, Any]:
    """Name of the polytope that the points form, and how far they are from it."""
    import math

    import repcap_jax as rc

    shape = rc.nearest_polytope(vectors)
    if math.isfinite(shape.distance):
        return {"shape": shape.name, "nearest": shape.nearest, "shape_distance": shape.distance}
    return {"shape": shape.name, "shape_distance": None, "shape_distance_reason": "no polytope of so many points"}


def _key(cell: dict[str, Any]) -> Any:
    """The random key of a cell, which does not depend on the other cells."""
    import jax

    key = jax.random.fold_in(jax.random.key(FLAGS.seed), ("energy", "code").index(cell["kind"]))
    return jax.random.fold_in(jax.random.fold_in(key, cell["d"]), cell["k"])


def _summary(record: dict[str, Any]) -> str:
    shape = "" if record["shape"] == "none" else f", {record['shape']}"
    published = record["published"]
    if "found" not in record:
        known = "" if published is None else f", best known {published:.7f}"
        return f"largest cosine {record['coherence']:.7f}{known}, bound {record['bound']:.7f}{shape}"
    energy = record["log_energy"] if record["energy"] is None else record["energy"]
    name = "ln E" if record["energy"] is None else "E"
    against = "" if published is None else f" (published {published:.9f}: {energy / published - 1:+.1e})"
    return f"{name} = {energy:.9f}{against}, found by {record['found']} of {record['starts']} starts{shape}"


def _say(text: str) -> None:
    if not FLAGS.quiet:
        print(text, flush=True)


if __name__ == "__main__":
    launch.run(main)
