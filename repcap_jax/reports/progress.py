"""Progress that suits where it goes: a bar on a terminal, now and then a line in a log file, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, SupportsInt

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Reports how far a task is, to standard error.

    A context manager, and a callable `progress(done, total)` of the form that the kernels take. One bar at a time: for
    a sweep of models open one Progress for each, with its place in the description.

    Args:
      description: what is being done.
      total: amount of work, or None if the first call will tell.
      unit: what is counted, for instance "pairs".
      quiet: report nothing.
      every: seconds between two lines of a log.
      stream: text file to report to; standard error by default.
      clock: seconds, rising; for tests.
    Raises:
      ValueError: if total or every is negative.
    """

    def __init__(
        self,
        description: str,
        total: SupportsInt | None = None,
        *,
        unit: str = "",
        quiet: bool = False,
        every: float | int = 30.0,
        stream: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if total is not None and int(total) < 0 or every < 0:
            raise ValueError(f"total and every must not be negative, got {total} and {every}")
        self.description, self.unit, self.quiet, self.every = description, unit, quiet, every
        self.done, self.total = 0, None if total is None else int(total)
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._started = self._spoken = clock()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        self._started = self._spoken = self._clock()
        if not self.quiet and _is_terminal(self._stream):
            self._bar = _rich_bar(self._stream)
            self._task = self._bar.add_task(self.description, total=self.total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif not self.quiet:
            self._say(self._last_line(stopped=error is not None))

    def __call__(self, done: SupportsInt, total: SupportsInt | None = None) -> None:
        self.update(done, total)

    def advance(self, amount: SupportsInt = 1) -> None:
        """Report `amount` more work done."""
        self.update(self.done + int(amount))

    def update(self, done: SupportsInt, total: SupportsInt | None = None) -> None:
        """Report the work done since the start, and the total if it is only known now."""
        self.done = int(done)  # NumPy's integers are welcome
        self.total = self.total if total is None else int(total)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, total=self.total)
        elif not self.quiet and self._clock() - self._spoken >= self.every:
            self._say(self._line())

    def _say(self, line: str) -> None:
        self._spoken = self._clock()
        # A log that has gone away is no reason to end a run of hours.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{time.strftime('%H:%M:%S')} {line}\n")
            self._stream.flush()

    def _amount(self) -> str:
        total = "" if self.total is None or self.total == self.done else f" of {self.total:,}"
        return f"{self.done:,}{total}{' ' + self.unit if self.unit else ''}"

    def _rate(self) -> float:
        elapsed = self._clock() - self._started
        return self.done / elapsed if elapsed > 0 else 0.0

    def _line(self) -> str:
        rate = self._rate()
        parts = [self._amount(), f"{rate:,.3g}/s"]
        if self.total:
            parts.insert(0, f"{min(self.done / self.total, 1):.0%}")
            if rate > 0:
                parts.append(f"{duration(max(self.total - self.done, 0) / rate)} left")
        return f"{self.description}: {', '.join(parts)}"

    def _last_line(self, stopped: bool) -> str:
        elapsed = self._clock() - self._started
        word = "stopped at" if stopped else "done,"
        return f"{self.description}: {word} {self._amount()} in {duration(elapsed)} ({self._rate():,.3g}/s)"


def duration(seconds: float | int) -> str:
    """Return a time span in words: "3.2 s", "4 min 10 s", "2 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _is_terminal(stream: Any) -> bool:
    # Not rich's own test: FORCE_COLOR in the environment would let it draw bars into a log file.
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    except (AttributeError, ValueError):
        return False


def _rich_bar(stream: Any) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream, force_terminal=True),
        # Otherwise what the program prints into a file or a pipe would be led to the terminal while a bar is shown.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=stream is sys.stderr,
    )
