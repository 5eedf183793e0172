"""Toy models: seconds of a training step for all instances, beside torch with einsum over a batch of instances.

    python benchmarks/superposition.py                       # a few minutes on two cores
    python benchmarks/superposition.py --instances 60 --steps 100

Every way trains the same instances (ReLU output, n features, m dimensions, sparsities spread over the instances) with
the same batch by AdamW, and is timed over the same number of steps in one process, in turns, after steps that compile
and warm up. CPU seconds say what the work costs on a machine whose cores are busy with other work as well.

  repcap_jax            `train_toy_models`, as many CPU devices as cores
  repcap_jax, 1 device  the same on one device
  torch, own data       einsum over (batch, instances, features), a draw of its own for each instance, as the
                        notebook of Elhage et al. 2022 does; torch's threads at their default
  torch, shared data    the same with one draw for all instances, as `train_toy_models` does

Compilation is left out and named beside the table; seconds for --total steps are a step's time times their number.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from repcap_jax.kernels.placement import device_mesh  # noqa: E402
from repcap_jax.superposition import Instances, train_toy_models  # noqa: E402

RATE, WEIGHT_DECAY = 1e-3, 1e-2
CALLS = 100  # `train_toy_models` comes back to the host that often, whatever the number of steps


def spread(instances: int, n: int) -> Instances:
    """Instances whose densities 1 - S go geometrically from 1 to 0.01."""
    sparsity = 1 - np.geomspace(1.0, 0.01, instances)
    return Instances(sparsity, np.ones((instances, n)), np.arange(instances))


def ours(options: argparse.Namespace, devices: list[Any]) -> Callable[[], None]:
    """A call that trains for `options.steps` steps; the final judging of the loss is not timed."""
    instances, mesh = spread(options.instances, options.n), device_mesh(devices)

    def train(progress: Any = None, steps: int = options.steps) -> None:
        train_toy_models(
            jax.random.key(0),
            instances,
            options.m,
            steps=steps,
            batch=options.batch,
            rate=RATE,
            weight_decay=WEIGHT_DECAY,
            mesh=mesh,
            progress=progress,
        )

    train(steps=CALLS)

    def timed() -> tuple[float, float]:
        marks: list[tuple[float, float]] = []
        # The first mark comes after the first chunk of steps, so that starting the models is not timed either.
        train(lambda done, steps: marks.append((time.perf_counter(), time.process_time())))
        done = options.steps - max(1, options.steps // CALLS)
        return tuple((last - first) / done for first, last in zip(marks[0], marks[-1]))

    return timed


def torch_einsum(options: argparse.Namespace, shared: bool) -> Callable[[], tuple[float, float]]:
    """The batched model of the notebook, in torch."""
    import torch

    size, n, m, batch = options.instances, options.n, options.m, options.batch
    density = torch.tensor(1 - spread(size, n).sparsity, dtype=torch.float32)[:, None]
    importance = torch.ones(n)
    w = torch.nn.Parameter(torch.nn.init.xavier_normal_(torch.empty(size, n, m)))
    b = torch.nn.Parameter(torch.zeros(size, n))
    optimiser = torch.optim.AdamW([w, b], lr=RATE, weight_decay=WEIGHT_DECAY)

    def features() -> Any:
        draws = (batch, 1 if shared else size, n)
        return torch.where(torch.rand(draws) <= density, torch.rand(draws), torch.zeros(()))

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        x = features()
        hidden = torch.einsum("bin,inm->bim", x, w)
        out = torch.relu(torch.einsum("bim,inm->bin", hidden, w) + b)
        (importance * (x - out) ** 2).mean(0).sum().backward()
        optimiser.step()

    for _ in range(3):
        step()

    def timed() -> tuple[float, float]:
        steps = max(3, options.steps // options.torch_share)
        began = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step()
        ended = time.perf_counter(), time.process_time()
        return tuple((last - first) / steps for first, last in zip(began, ended))

    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=300)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--m", type=int, default=5)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200, help="steps of a turn, at least 100")
    parser.add_argument("--torch_share", type=int, default=8, help="torch does this part of the steps of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--total", type=int, default=10_000)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    jax.config.update("jax_num_cpu_devices", cores)
    devices = jax.devices()
    ways: dict[str, Callable[[], tuple[float, float]]] = {}
    began = time.perf_counter()
    ways[f"repcap_jax, {len(devices)} devices"] = ours(options, devices)
    compiled = time.perf_counter() - began
    ways["repcap_jax, 1 device"] = ours(options, devices[:1])
    if importlib.util.find_spec("torch") is not None:
        import torch

        ways[f"torch, own data, {torch.get_num_threads()} threads"] = torch_einsum(options, shared=False)
        ways[f"torch, shared data, {torch.get_num_threads()} threads"] = torch_einsum(options, shared=True)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(options.turns):
        for name, timed in ways.items():
            turns[name].append(timed())
    print(
        f"{options.instances} instances, n = {options.n}, m = {options.m}, batch {options.batch}, {cores} cores, "
        f"load average {os.getloadavg()[0]:.1f}, first turn with compilation {compiled:.1f} s\n"
    )
    print(f"| way | ms/step, best turn | median | CPU ms/step, median | s for {options.total:,} steps | / first |")
    print("|---|---|---|---|---|---|")
    first = None
    for name, times in turns.items():
        wall, cpu = np.array(times).T
        first = first or float(np.median(wall))
        print(
            f"| {name} | {1e3 * wall.min():.1f} | {1e3 * np.median(wall):.1f} | {1e3 * np.median(cpu):.1f} "
            f"| {options.total * np.median(wall):.0f} | {np.median(wall) / first:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
