"""What tests with several processes share."""

import socket


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
