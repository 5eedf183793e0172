"""What several benchmarks measure: the time of a call, and the peak memory of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax


def seconds_of(call: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of some runs, after one to compile."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


def peak_mib() -> float:
    """Most resident memory so far, in MiB; not ru_maxrss, in which the peak of the process that started it lives on.

    Raises:
      OSError: not on Linux.
    """
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 2**10
