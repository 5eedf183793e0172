"""The score of one layer: seconds beside SciPy and a float32 NumPy variant, the floor, the parts, and peak memory.

    python benchmarks/alignment.py                 # about two minutes on two cores
    python benchmarks/alignment.py --baseline_nulls 100   # every null of the baselines measured: about 40 minutes

Three tables, all from one run on one machine:

  layer   one layer of n states and all nulls, compilation and the drawing of the frames left out of every row:
          `alignment_score`; the float64 SciPy way (pdist + spearmanr's ranks, the full side ranked once); the same in
          float32 NumPy (matrix product of unit rows, argsort, ranks without averaging ties); and the floor, the matrix
          products alone on the same device. The two baselines do `--baseline_nulls` nulls, taken in turn with
          each other and with ours so that all meet the same machine, and their seconds are scaled to all nulls.
  parts   what a layer costs once, and a null each: eigh, exact ranks of the full side, projection, cosines, bins.
  memory  peak resident memory of a process that scores one layer, libraries and compiler included, against n.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import peak_mib, seconds_of  # noqa: E402
from repcap_jax import alignment_score, grassmann_frames  # noqa: E402
from repcap_jax.kernels.ranks import rank, rank_products  # noqa: E402
from repcap_jax.kernels.spectra import principal_directions  # noqa: E402


def data(n: int, d: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States with a falling spectrum, and a readout."""
    rng = np.random.default_rng(seed)
    hidden = (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.5).astype(np.float32)
    return hidden, np.linalg.qr(rng.standard_normal((d, k)))[0].astype(np.float32)


def without_first(hidden: np.ndarray) -> np.ndarray:
    centred = hidden - hidden.mean(axis=0)
    first = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    return centred - np.outer(centred @ first, first)


def scipy_layer(hidden: np.ndarray, frames: np.ndarray) -> tuple[float, float, list[float]]:
    """Seconds of the full side, of one null, and the rhos: float64, ties averaged."""
    began = time.perf_counter()
    states = without_first(hidden.astype(np.float64))
    full = rankdata(pdist(states, "cosine"))
    full -= full.mean()
    once, rhos, began = time.perf_counter() - began, [], time.perf_counter()
    for frame in frames.astype(np.float64):
        ranks = rankdata(pdist(states @ frame, "cosine"))
        ranks -= ranks.mean()
        rhos.append(float(full @ ranks / np.sqrt((full @ full) * (ranks @ ranks))))
    return once, (time.perf_counter() - began) / len(frames), rhos


def numpy_layer(hidden: np.ndarray, frames: np.ndarray) -> tuple[float, float, list[float]]:
    """The same in float32, ranks by argsort."""
    above = np.triu_indices(len(hidden), 1)
    centre = np.float32((len(above[0]) - 1) / 2)

    def ranks(rows: np.ndarray) -> np.ndarray:
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = (units @ units.T)[above]
        found = np.empty(len(cosines), np.float32)
        found[np.argsort(cosines)] = np.arange(len(cosines), dtype=np.float32)
        return found - centre

    began = time.perf_counter()
    states = without_first(hidden)
    full = ranks(states)
    once, rhos, began = time.perf_counter() - began, [], time.perf_counter()
    for frame in frames:
        found = ranks(states @ frame)
        rhos.append(float(full @ found / np.sqrt((full @ full) * (found @ found))))
    return once, (time.perf_counter() - began) / len(frames), rhos


def products_alone(hidden: Any, frames: Any) -> Callable[[], Any]:
    """The projections and the inner products of all pairs i < j (three quarters of the Gram matrix), nothing else."""

    @jax.jit
    def run(hidden: Any, frames: Any) -> Any:
        half = (len(hidden) + 1) // 2

        def one(frame: Any) -> Any:
            rows = jnp.dot(hidden, frame, precision="highest")
            upper = jnp.dot(rows[:half], rows.T, precision="highest")
            lower = jnp.dot(rows[half:], rows[half:].T, precision="highest")
            return upper[0, 0] + lower[0, 0], upper[:1], lower[:1]

        return jax.lax.map(one, frames)

    return lambda: run(hidden, frames)


def layer(n: int, d: int, k: int, nulls: int, baseline_nulls: int, repeats: int, seed: int) -> None:
    hidden, readout = data(n, d, k, seed)
    frames = grassmann_frames(jax.random.key(seed), nulls, d, k)
    some = np.asarray(frames[: max(1, baseline_nulls // repeats)])

    def ours() -> Any:
        return alignment_score(hidden, readout, None, frames=frames)

    score = ours()  # compiles
    floor = products_alone(jnp.asarray(hidden), frames)
    jax.block_until_ready(floor())
    times: dict[str, list[float]] = {"ours": [], "scipy": [], "numpy": [], "floor": []}
    for _ in range(repeats):
        began = time.perf_counter()
        ours()
        times["ours"].append(time.perf_counter() - began)
        for name, baseline in (("scipy", scipy_layer), ("numpy", numpy_layer)):
            once, each, rhos = baseline(hidden, some)
            times[name].append(once + (nulls + 1) * each)
            gap = np.abs(np.array(rhos) - score.null_rhos[: len(rhos)]).max()
            assert gap < 1e-5, f"{name} disagrees by {gap}"
        began = time.perf_counter()
        jax.block_until_ready(floor())
        times["floor"].append(time.perf_counter() - began)
    best = {name: min(found) for name, found in times.items()}
    print(f"\n## layer: n = {n}, d = {d}, k = {k}, {nulls} nulls, ranks {score.method_used}, best of {repeats}\n")
    print("| way | seconds | ours is faster by |\n|---|---|---|")
    scaled = f"{len(some)} nulls measured, scaled"
    for name, label in (
        ("ours", "alignment_score"),
        ("scipy", f"SciPy float64 ({scaled})"),
        ("numpy", f"NumPy float32 argsort ({scaled})"),
        ("floor", "matrix products alone"),
    ):
        print(f"| {label} | {best[name]:.2f} | {best[name] / best['ours']:.2f} |", flush=True)


def parts(n: int, d: int, k: int, repeats: int, seed: int) -> None:
    hidden, readout = (jnp.asarray(part) for part in data(n, d, k, seed))
    cosines = jnp.asarray(np.random.default_rng(seed).standard_normal(n * (n - 1) // 2).astype(np.float32))
    ranked = jax.jit(rank)(cosines)
    calls = {
        "eigh, once": (jax.jit(lambda h: principal_directions(h, 1)), (hidden,)),
        "exact ranks of the full side, once": (jax.jit(rank), (cosines,)),
        "projection": (jax.jit(lambda h, v: jnp.dot(h, v, precision="highest")), (hidden, readout)),
        "Gram matrix, all of it": (jax.jit(lambda y: jnp.dot(y, y.T, precision="highest")), (hidden @ readout,)),
        "ranks by bins": (jax.jit(lambda c, r: rank_products(c, r, method="binned")), (cosines, ranked)),
        "ranks by sort": (jax.jit(lambda c, r: rank_products(c, r, method="sort")), (cosines, ranked)),
    }
    print(f"\n## parts: n = {n}, d = {d}, k = {k}\n\n| part | ms |\n|---|---|")
    for name, (call, arguments) in calls.items():
        # Bound as defaults: each lambda is called before the next is made, but says what it means.
        seconds = seconds_of(lambda call=call, arguments=arguments: call(*arguments), repeats)
        print(f"| {name} | {1e3 * seconds:.1f} |", flush=True)


def memory(d: int, k: int, sizes: list[int], nulls: int) -> None:
    """One process for each n: the peak of a process never falls."""
    print(f"\n## memory: d = {d}, k = {k}, {nulls} nulls\n\n| n | pairs | peak resident, MiB |\n|---|---|---|")
    for n in sizes:
        command = [sys.executable, __file__, "--peak_of", f"{n}:{d}:{k}:{nulls}"]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"| {n} | {n * (n - 1) // 2:,} | {peak:.0f} |", flush=True)


def print_peak(n: int, d: int, k: int, nulls: int) -> None:
    alignment_score(*data(n, d, k, 0), jax.random.key(0), nulls=nulls)
    print(peak_mib())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--d", type=int, default=576)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--nulls", type=int, default=100)
    parser.add_argument("--baseline_nulls", type=int, default=9, help="nulls of each baseline, over all repeats")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory_n", type=int, nargs="*", default=[1000, 2000, 4000])
    parser.add_argument("--memory_nulls", type=int, default=10)
    parser.add_argument("--peak_of", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.peak_of:
        print_peak(*map(int, flags.peak_of.split(":")))
        return
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, numpy {np.__version__}, seed {flags.seed}")
    layer(flags.n, flags.d, flags.k, flags.nulls, flags.baseline_nulls, flags.repeats, flags.seed)
    parts(flags.n, flags.d, flags.k, flags.repeats, flags.seed)
    memory(flags.d, flags.k, flags.memory_n, flags.memory_nulls)


if __name__ == "__main__":
    main()
