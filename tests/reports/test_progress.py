"""Progress: a bar on a terminal, few lines in a log, nothing when quiet."""

import io
import os
import pty
import re
import subprocess
import sys
import textwrap

import pytest

from repcap_jax.reports.progress import Progress, duration

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = textwrap.dedent(
    """
    import sys, time
    from repcap_jax.reports.progress import Progress
    with Progress("fold [a/b]", unit="pairs") as progress:
        for done in range(0, 101, 5):
            progress(done, 100)
            time.sleep(0.01)
    print("result")
    """
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def environment(**more):
    return {**os.environ, "PYTHONPATH": ROOT, "TERM": "xterm", **more}


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end():
    log, clock = io.StringIO(), Clock()
    with Progress("fold", unit="pairs", stream=log, clock=clock) as progress:
        for done in range(1000):
            clock.now += 0.1
            progress(done, 1000)
    lines = log.getvalue().splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"\d\d:\d\d:\d\d fold: 30%, 299 of 1,000 pairs, 9.97/s, 1 min 10 s left", lines[0])
    assert lines[-1].endswith("fold: done, 999 of 1,000 pairs in 1 min 40 s (9.99/s)")
    assert "\r" not in log.getvalue() and "\x1b" not in log.getvalue()


def test_what_stops_is_not_called_done():
    log = io.StringIO()
    with pytest.raises(RuntimeError):
        with Progress("fold", 10, stream=log) as progress:
            progress.advance(3)
            progress.advance()
            raise RuntimeError
    assert "stopped at 4 of 10 in" in log.getvalue()


def test_quiet_says_nothing_and_a_lost_log_ends_nothing():
    log = io.StringIO()
    with Progress("fold", 10, stream=log, quiet=True, every=0) as progress:
        progress(5, 10)
    assert log.getvalue() == ""
    log.close()
    with Progress("fold", 10, stream=log, every=0) as progress:
        progress(5, 10)


def test_no_total_and_no_work_are_fine():
    log = io.StringIO()
    with Progress("read", stream=log, every=0) as progress:
        progress.update(5)
    with Progress("nothing", 0, stream=log, every=0) as progress:
        progress(0, 0)
    assert "read: done, 5 in" in log.getvalue() and "nothing: done, 0 in" in log.getvalue()
    with pytest.raises(ValueError, match="negative"):
        Progress("x", -1)


@pytest.mark.parametrize(("seconds", "text"), [(3.21, "3.2 s"), (250, "4 min 10 s"), (7500, "2 h 05 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_gets_lines_even_where_colour_is_forced(variables):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment(**variables), timeout=60
    )
    assert done.stdout == "result\n"
    assert done.stderr.count("\n") == 1 and "fold [a/b]: done, 100 pairs" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_terminal_gets_a_bar_and_standard_output_stays_clean():
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=environment(), close_fds=True
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux says so when the other end closes
        pass
    out = child.communicate(timeout=60)[0]
    os.close(ours)
    assert out == b"result\n" and child.returncode == 0
    text = shown.decode()
    assert "\x1b" in text and "fold [a/b]" in text and "100 %" in text


def test_a_dumb_terminal_gets_lines():
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=theirs, stderr=theirs, env=environment(TERM="dumb")
    )
    child.wait(timeout=60)
    text = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert "done, 100 pairs" in text and "\x1b" not in text
