"""What the capacity law is worth: laws fitted to a grid of packings, beside bounds and explicit constructions.

    python -m experiments.capacity_fit --grid=runs/packing --published=published.json --workdir=runs/fit

Refits the JL, ratio, four-parameter, Welch-ratio and Welch-quadratic laws to a grid of coherences epsilon(k, d): the
grid that comes with the package (by default), a .json or .csv file with k, d and epsilon, or the workdir of
experiments.packing_sweep. Writes fits.json and fit_table (constants with confidence intervals; R2, RMSE, NRMSE, MAPE on
all cells, on k > d, and on dimensions left out), grid_table (each cell beside bound, construction and published value),
figures (PNG and PDF) and report.html. It takes seconds.

Source of the question: Guha 2026, arXiv:2606.02765.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, UserError

flags.DEFINE_string("grid", None, "Grid to fit: a .json or .csv file, or a workdir of packing_sweep; else our own.")
flags.DEFINE_enum("kind", "optimised", ["optimised", "random"], "Which grid of a workdir of packing_sweep.")
flags.DEFINE_string("published", None, "Published grid to draw and tabulate beside it.")
flags.DEFINE_list("laws", None, "Laws to fit; all forms by default.")
flags.DEFINE_float("confidence", 0.95, "Level of the confidence intervals.", lower_bound=0.5, upper_bound=0.9999)
flags.DEFINE_float("min_ratio", None, "Fit only cells with k / d of at least this.", lower_bound=0.0)
flags.DEFINE_float("max_ratio", None, "Fit only cells with k / d of at most this.", lower_bound=0.0)
flags.DEFINE_float("max_square", None, "Fit only cells with k / d^2 of at most this.", lower_bound=0.0)

_FORMS = ("jl-optimised", "ratio", "four-parameter", "welch-ratio", "welch-quadratic")


def main() -> int:
    """Run the experiment."""
    laws = _laws()
    if FLAGS.precision != "highest":
        raise UserError("--precision has no effect here: laws are fitted in float64")
    grid, published = _grid(), _read(FLAGS.published, "published") if FLAGS.published else None
    from repcap_jax.capacity import fit_law
    from repcap_jax.reports.fit_report import write_fit_report

    settings = {"grid": grid.to_record(), "laws": laws, "confidence": FLAGS.confidence}
    with launch.open_workdir("capacity_fit", settings, launch.start_devices()) as workdir:
        fits, left_out = {}, []
        for law in laws:
            try:
                fits[law] = fit_law(law, grid, confidence=FLAGS.confidence)
            except ValueError as error:
                if FLAGS.laws is not None or law == laws[-1] and not fits:
                    raise UserError(f"{law}: {error}") from error
                left_out.append(f"{law} was left out: {error}.")
                print(left_out[-1], file=sys.stderr, flush=True)
                continue
            workdir.append({"key": law, "status": "done", "fit": fits[law].to_record()})
            if not FLAGS.quiet:
                print(_summary(law, fits[law]), flush=True)
        path = write_fit_report(workdir, grid, fits, published=published, histories=_histories(), warnings=left_out)
        print(f"report: {path}", flush=True)
    return 0


def _laws() -> list[str]:
    from repcap_jax.capacity import get_law

    if FLAGS.laws is None:
        return list(_FORMS)
    try:
        found = [get_law(name.strip()).name for name in FLAGS.laws if name.strip()]
    except ValueError as error:
        raise UserError(f"--laws: {error}") from error
    if not found:
        raise UserError(f"--laws names no law; known are {', '.join(_FORMS)}")
    return list(dict.fromkeys(found))


def _grid() -> Any:
    from repcap_jax.capacity import measured_grid

    if FLAGS.grid is None:
        return _chosen(measured_grid())
    path = os.path.expanduser(FLAGS.grid)
    return _chosen(_read(os.path.join(path, f"grid_{FLAGS.kind}.json") if os.path.isdir(path) else path, "grid"))


def _chosen(grid: Any) -> Any:
    """The cells that --min_ratio, --max_ratio and --max_square leave."""
    limits = {
        "min_ratio": lambda limit: grid.k / grid.d >= limit,
        "max_ratio": lambda limit: grid.k / grid.d <= limit,
        "max_square": lambda limit: grid.k / grid.d**2 <= limit,
    }
    keep = grid.k >= 0
    for flag, inside in limits.items():
        if FLAGS[flag].value is not None:
            keep &= inside(FLAGS[flag].value)
    if not keep.any():
        raise UserError("--min_ratio, --max_ratio and --max_square leave no cell of the grid")
    return grid.select(keep)


def _read(path: str, flag: str) -> Any:
    from repcap_jax.capacity import load_grid

    try:
        return load_grid(os.path.expanduser(path))
    except (OSError, ValueError) as error:
        raise UserError(f"--{flag}: {error}") from error


def _histories() -> list[Any]:
    """Histories of the optimiser, where the grid is a workdir of packing_sweep."""
    if FLAGS.grid is None or not os.path.isdir(os.path.expanduser(FLAGS.grid)):
        return []
    from repcap_jax.reports.packing_data import descent_histories, sweep_results
    from repcap_jax.reports.workdir import Workdir

    try:
        sweep = Workdir.read(FLAGS.grid)
    except ValueError:
        return []  # a folder with a grid in it, but not a sweep's
    return descent_histories(sweep, sweep_results(sweep)[0])


def _summary(law: str, fit: Any) -> str:
    constants = ", ".join(f"{name} = {value:.5g}" for name, value in fit.constants.items())
    held_out = "" if fit.held_out_above_d is None else f", held out {fit.held_out_above_d.mape:.2%}"
    return (
        f"{law}: {constants}; all cells R2 {fit.r2:.4f}, MAPE {fit.mape:.2%}; "
        f"k > d: R2 {fit.above_d.r2:.4f}, MAPE {fit.above_d.mape:.2%}{held_out}"
    )


if __name__ == "__main__":
    launch.run(main)
