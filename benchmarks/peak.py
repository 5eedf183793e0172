"""Peak memory of this process."""

from __future__ import annotations


def peak_mib() -> float:
    """Most resident memory so far, in MiB; not ru_maxrss, in which the peak of the process that started it lives on.

    Raises:
      OSError: not on Linux.
    """
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 2**10
