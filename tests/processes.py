"""What tests share that run experiments in processes of their own."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def free_port():
    """A port of the loopback interface that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def outputs_of(processes, timeout=240):
    """Output and errors of each process once all have ended; none is left running, whatever happens."""
    try:
        return [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()


# Not ru_maxrss, in which the peak of the process that started this one lives on.
_PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
"""


def measured(script, *arguments, timeout=800):
    """The numbers that a script prints last, run in a process in which `peak()` gives its peak memory in bytes."""
    command = [sys.executable, "-c", _PEAK + textwrap.dedent(script), *map(str, arguments)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True, cwd=ROOT).stdout
    return [float(part) for part in out.splitlines()[-1].split()]


class Experiment:
    """An experiment as a user runs it: `python -m experiments.NAME` on the CPU."""

    def __init__(self, name):
        self.command = [sys.executable, "-m", f"experiments.{name}"]

    def start(self, *flags, **options):
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*self.command, *flags], env=environment, **pipes, **({"cwd": ROOT} | options))

    def run(self, *flags, timeout=240):
        """Exit status, output and errors."""
        process = self.start(*flags)
        (output,) = outputs_of([process], timeout)
        return (process.returncode, *output)

    def run_pair(self, own_flags, *common, folders=(ROOT, ROOT)):
        """Two processes of two devices each, on loopback; the exit status, output and errors of each."""
        address = f"127.0.0.1:{free_port()}"
        together = ["--cpu_devices=2", "--distributed", f"--coordinator={address}", "--processes=2"]
        processes = [
            self.start(*common, *together, f"--process_id={number}", *own_flags[number], cwd=folders[number])
            for number in range(2)
        ]
        outputs = outputs_of(processes)
        return [(process.returncode, *output) for process, output in zip(processes, outputs)]


def records(workdir):
    """The lines of a workdir's records.jsonl, which must be strict JSON."""
    lines = (workdir / "records.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]
