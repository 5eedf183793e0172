"""All pairwise cosines of one matrix, in one process: the fold against what one would otherwise run.

    python benchmarks/pairs.py                                # n = 49,152, d = 576, about six minutes on two cores
    python benchmarks/pairs.py --rows=12288 --repeats=5       # a look
    python benchmarks/pairs.py --matrix=model.gguf            # a real embedding

Prints the median time of each way and its ratio to the floor, the time of the matrix products alone over the same
tiles. Ways are run in turns, so that a noisy minute touches all of them.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import fold_pairs
from repcap_jax.kernels.placement import device_mesh
from repcap_jax.kernels.reducers import Extremes, Histogram, NearestNeighbours

FLAGS = flags.FLAGS
flags.DEFINE_integer("rows", 49_152, "Rows n of the matrix.", lower_bound=2)
flags.DEFINE_integer("width", 576, "Width d of the matrix.", lower_bound=1)
flags.DEFINE_string("matrix", None, "Use the embedding of this checkpoint or array file instead of a random matrix.")
flags.DEFINE_integer("repeats", 3, "Timed runs of each way.", lower_bound=1)
flags.DEFINE_integer("bins", 2000, "Bins of the histogram.", lower_bound=1)
flags.DEFINE_integer("tile", None, "Tile size; by default what the fold chooses.")
flags.DEFINE_list("only", [], "Names of the ways to run (the floor always is).")


@dataclasses.dataclass(frozen=True)
class ProductsOnly:
    """A reducer that needs every product and does next to nothing with it: the floor."""

    def start(self, extent: Any) -> jax.Array:
        return jnp.float32(0)

    def update(self, state: jax.Array, tile: Any) -> jax.Array:
        # The barrier asks for the whole tile, so that the compiler cannot narrow the product to the entry that is used.
        return state + jax.lax.optimization_barrier(tile.cosines)[0, 0]

    def merge(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return a + b

    def finish(self, state: jax.Array, rows: int) -> float:
        return float(state)


def ways(x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    mesh = device_mesh()

    def fold(*reducers: Any) -> Callable[[], Any]:
        return lambda: fold_pairs(x, reducers, tile=FLAGS.tile, mesh=mesh)

    found = {
        "products only (floor)": fold(ProductsOnly()),
        "fold: histogram": fold(Histogram(FLAGS.bins)),
        "fold: histogram, one-hot": fold(Histogram(FLAGS.bins, strategy="onehot")),
        "fold: histogram, extremes": fold(Histogram(FLAGS.bins), Extremes()),
        "fold: histogram, neighbours": fold(Histogram(FLAGS.bins), NearestNeighbours()),
        "moments": lambda: cosine_moments(x, mesh=mesh),
        "NumPy (blocks, np.histogram)": lambda: numpy_histogram(x),
    }
    if mesh.devices.flat[0].platform == "cpu":
        del found["fold: histogram, one-hot"]  # for accelerators; on a CPU it only costs minutes
    if importlib.util.find_spec("torch"):
        found["torch (matmul + histc)"] = lambda: torch_histogram(x)
    else:
        print("torch is not installed: left out")
    wanted = {"products only (floor)", *FLAGS.only}
    return {name: way for name, way in found.items() if not FLAGS.only or name in wanted}


def numpy_histogram(x: np.ndarray, block: int = 2048) -> np.ndarray:
    """Blocks of rows against all later rows."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    counts = np.zeros(FLAGS.bins, np.int64)
    for start in range(0, len(unit), block):
        rows = unit[start : start + block]
        products = np.clip(rows @ unit[start:].T, -1, 1)
        i, j = np.triu_indices(len(rows), 1)
        counts += np.histogram(products[i, j], FLAGS.bins, (-1, 1))[0]
        counts += np.histogram(products[:, len(rows) :], FLAGS.bins, (-1, 1))[0]
    return counts


def torch_histogram(x: np.ndarray, block: int = 2048) -> np.ndarray:
    """The same with torch: matmul and histc."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    unit = torch.nn.functional.normalize(torch.from_numpy(x).to(device), dim=1)
    counts = torch.zeros(FLAGS.bins, dtype=torch.float64, device=device)
    for start in range(0, len(unit), block):
        rows = unit[start : start + block]
        products = (rows @ unit[start:].T).clamp_(-1, 1)
        upper = torch.triu(torch.ones(len(rows), len(rows), dtype=torch.bool, device=device), 1)
        counts += torch.histc(products[:, : len(rows)][upper], FLAGS.bins, -1, 1).double()
        if start + len(rows) < len(unit):
            counts += torch.histc(products[:, len(rows) :], FLAGS.bins, -1, 1).double()
    return counts.cpu().numpy()


def measure(timed: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of each way, run in turns; what JAX compiles runs once more beforehand, not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(FLAGS.repeats + 1):
        for name, way in timed.items():
            if turn == 0 and name.startswith(("NumPy", "torch")):
                continue
            gc.collect()
            started = time.perf_counter()
            way()
            took = time.perf_counter() - started
            print(f"turn {turn} of {FLAGS.repeats}: {name}: {took:.3f} s", file=sys.stderr, flush=True)
            if turn:
                seconds[name].append(took)
    return seconds


def main(argv: list[str]) -> None:
    if FLAGS.matrix:
        from repcap_jax.checkpoints import open_checkpoint

        x = open_checkpoint(FLAGS.matrix).embedding()
    else:
        x = (np.random.default_rng(0).standard_normal((FLAGS.rows, FLAGS.width)) + 0.5).astype(np.float32)
    pairs = len(x) * (len(x) - 1) // 2
    devices = jax.devices()
    where = f"{len(devices)} x {devices[0].device_kind}, jax {jax.__version__}"
    print(f"n = {len(x):,}, d = {x.shape[1]:,}, {pairs:,} pairs, {where}")
    seconds = measure(ways(x))
    floor = statistics.median(seconds["products only (floor)"])
    print(f"floor: {2 * pairs * x.shape[1] / floor / 1e9:,.0f} GFLOP/s")
    print(f"{'':32s} {'median s':>9s} {'min s':>8s} {'/ floor':>8s}  {'pairs/s':>9s}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:32s} {median:9.3f} {min(times):8.3f} {median / floor:8.2f}  {pairs / median:9.2e}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory: {peak:.2f} GiB, matrix {x.nbytes / 2**30:.2f} GiB")


if __name__ == "__main__":
    app.run(main)
