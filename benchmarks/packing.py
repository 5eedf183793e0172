"""Packing: coherence against seconds beside the paper's recipe, cost of a step, and peak memory.

    python benchmarks/packing.py                              # about 5 minutes on two cores
    python benchmarks/packing.py --cells 64:1000 --steps 100  # a minute

Three tables, all from one run on one machine:

  reached   for each cell, the coherence reached and the seconds it took: `repcap_jax.pack` at several numbers of steps
            (each its own annealing), and Adam on ln sum |G|^p with p = int(60 / ln d), the recipe of Guha 2026
            (arXiv:2606.02765), in plain JAX and, where it can be imported, in torch, at the same numbers of steps.
            Compilation is left out of all of them. `--paper_rate` is the learning rate of all its cells: 0.02 was the
            best of 0.002, 0.005, 0.01, 0.02 and 0.05 after 400 steps at d = 64, k = 1,000.
  step      one step of the descent against its three matrix products alone, in tiles of the same size.
  memory    peak resident memory of a process that does two steps, against k.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import peak_mib, seconds_of  # noqa: E402
from repcap_jax.kernels.placement import rows_mesh  # noqa: E402
from repcap_jax.packing import Schedule, Tiling, exact_coherence, pack  # noqa: E402
from repcap_jax.packing.objective import choose_tile  # noqa: E402
from repcap_jax.packing.optimiser import advance, start_descent, unit  # noqa: E402


def paper_power(d: int) -> int:
    """The exponent with which the published cells come out."""
    return int(60 / math.log(d))


def ours(k: int, d: int, steps: list[int], seed: int) -> Iterator[tuple[float, float]]:
    """(seconds, coherence) of `pack` from one random start, one run for each number of steps."""
    pack(jax.random.key(seed), k, d, steps=1, starts=1)  # compiles
    for count in steps:
        found = pack(jax.random.key(seed), k, d, steps=count, starts=1)
        yield found.seconds, found.coherence


def paper_in_jax(k: int, d: int, steps: list[int], seed: int, rate: float) -> Iterator[tuple[float, float]]:
    """(seconds, coherence) of Adam on ln sum |G|^p, as one would write it in JAX: all cosines at once."""
    p, optimiser = paper_power(d), optax.adam(rate)

    def loss(vectors: Any) -> Any:
        v = unit(vectors)
        cosines = jnp.abs(v @ v.T)
        powers = jnp.where(jnp.eye(k, dtype=bool), 0.0, cosines**p)
        return jnp.log(jnp.sum(powers)) / p

    @jax.jit
    def step(vectors: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(jax.grad(loss)(vectors), state)
        return optax.apply_updates(vectors, updates), state

    vectors = unit(jax.random.normal(jax.random.key(seed), (k, d)))
    state = optimiser.init(vectors)
    jax.block_until_ready(step(vectors, state))
    seconds, done = 0.0, 0
    for count in steps:
        began = time.perf_counter()
        for _ in range(count - done):
            vectors, state = step(vectors, state)
        jax.block_until_ready(vectors)
        seconds, done = seconds + time.perf_counter() - began, count
        yield seconds, exact_coherence(np.asarray(vectors), "lines")


def paper_in_torch(k: int, d: int, steps: list[int], seed: int, rate: float) -> Iterator[tuple[float, float]]:
    """The same in torch."""
    import torch

    p = paper_power(d)
    vectors = torch.randn(k, d, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    optimiser = torch.optim.Adam([vectors], lr=rate)
    seconds, done = 0.0, 0
    for count in steps:
        began = time.perf_counter()
        for _ in range(count - done):
            optimiser.zero_grad()
            v = vectors / vectors.norm(dim=1, keepdim=True)
            powers = (v @ v.T).abs().fill_diagonal_(0.0) ** p
            (powers.sum().log() / p).backward()
            optimiser.step()
        seconds, done = seconds + time.perf_counter() - began, count
        yield seconds, exact_coherence(vectors.detach().numpy(), "lines")


def reached(cells: list[tuple[int, int]], steps: list[int], seed: int, rate: float) -> None:
    print("\n## reached\n\n| d | k | steps | method | seconds | coherence |\n|---|---|---|---|---|---|")
    methods: dict[str, Any] = {
        "pack": lambda k, d: ours(k, d, steps, seed),
        "paper, JAX": lambda k, d: paper_in_jax(k, d, steps, seed, rate),
    }
    if importlib.util.find_spec("torch") is not None:
        methods["paper, torch"] = lambda k, d: paper_in_torch(k, d, steps, seed, rate)
    for d, k in cells:
        for name, method in methods.items():
            try:
                for count, (seconds, coherence) in zip(steps, method(k, d), strict=True):
                    print(f"| {d} | {k} | {count} | {name} | {seconds:.2f} | {coherence:.4f} |", flush=True)
            except ImportError as error:  # a torch without all it needs
                print(f"| {d} | {k} | - | {name} | - | {error} |", flush=True)


def some_steps(k: int, d: int, count: int) -> Any:
    """A call that does `count` steps of the descent from a fixed state."""
    mesh = rows_mesh()
    tiling = Tiling(choose_tile(k, mesh), mesh)
    rate = 0.15 / d**0.5
    schedule = Schedule(300, rate, rate / 200, 2000.0)
    state = start_descent(unit(jax.random.normal(jax.random.key(0), (1, k, d))), "lines", tiling, schedule)
    p_first = jnp.full(1, 4.0)
    return lambda: (
        advance(state, p_first, np.int32(count), objective="lines", tiling=tiling, schedule=schedule)[0].vectors
    )


def products_alone(k: int, d: int) -> Any:
    """A call that does the three products of every tile, and nothing else."""
    tile = choose_tile(k, rows_mesh())
    blocks = math.ceil(k / tile)

    @jax.jit
    def run(rows: Any) -> Any:
        def one(_: Any, sums: tuple[Any, Any]) -> tuple[Any, Any]:
            # Each tile depends on the one before, so that none is left out as a repetition.
            cosines = (rows + 1e-9 * sums[0]) @ rows.T
            return cosines @ rows, rows.T @ cosines

        return jax.lax.fori_loop(0, blocks * (blocks + 1) // 2, one, (rows, rows.T))

    rows = unit(jax.random.normal(jax.random.key(0), (tile, d)))
    return lambda: run(rows)


def step_cost(cells: list[tuple[int, int]]) -> None:
    print("\n## step\n\n| d | k | step, ms | products alone, ms | ratio |\n|---|---|---|---|---|")
    for d, k in cells:
        step = seconds_of(some_steps(k, d, 2)) / 2
        products = seconds_of(products_alone(k, d))
        print(f"| {d} | {k} | {1e3 * step:.0f} | {1e3 * products:.0f} | {step / products:.2f} |", flush=True)


def memory(d: int, sizes: list[int]) -> None:
    """One process for each k: the peak of a process never falls."""
    print("\n## memory\n\n| d | k | peak resident, MiB | k x k float32, MiB |\n|---|---|---|---|")
    for k in sizes:
        command = [sys.executable, __file__, "--peak_of", f"{d}:{k}"]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"| {d} | {k} | {peak:.0f} | {4 * k * k / 2**20:.0f} |", flush=True)


def print_peak(d: int, k: int) -> None:
    jax.block_until_ready(some_steps(k, d, 2)())
    print(peak_mib())


def cell(text: str) -> tuple[int, int]:
    """ "64:2000" -> (64, 2000)."""
    d, k = text.split(":")
    return int(d), int(k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=cell, nargs="+", default=[(64, 2000), (256, 2000)], metavar="D:K")
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--paper_rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step_cells", type=cell, nargs="*", default=[(64, 4000), (512, 2000), (512, 4000)])
    parser.add_argument("--memory_d", type=int, default=64)
    parser.add_argument("--memory_k", type=int, nargs="*", default=[1000, 4000, 16000])
    parser.add_argument("--peak_of", type=cell, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.peak_of:
        print_peak(*flags.peak_of)
        return
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, seed {flags.seed}")
    reached(flags.cells, sorted(flags.steps), flags.seed, flags.paper_rate)
    step_cost(flags.step_cells)
    memory(flags.memory_d, flags.memory_k)


if __name__ == "__main__":
    main()
