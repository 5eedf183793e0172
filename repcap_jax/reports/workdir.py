"""The folder that an experiment writes to: run record, one line per finished cell, arrays, tables and figures."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import platform
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from repcap_jax.reports.atomic import append_line, atomic_file, remove_leftovers, safe_name
from repcap_jax.reports.provenance import git_state, machine, now, versions
from repcap_jax.reports.strict_json import digest, dump_line, dump_pretty, encoded, json_ready, parse_strict

__all__ = ["Workdir", "json_ready", "safe_name"]

_RUN, _RECORDS, _LOCK = "run.json", "records.jsonl", ".lock"
_DIGEST = "settings_digest"  # in records and, as an array, in .npz files
_TRACEBACK_LINES = 12


class Workdir:
    """Results of one experiment in one folder, safe to kill and to start again.

    Open it with `Workdir.open` to write or `Workdir.read` to look; use it as a context manager so that the end of the
    run is recorded and the lock released.

    Attributes:
      root: the folder.
      writer: whether this process writes; if not, every write does nothing.
      run: what run.json holds.
      settings_digest: identifies the settings that change the numbers.
    """

    def __init__(self, root: Path, run: dict[str, Any], writer: bool, lock: int | None = None):
        self.root, self.run, self.writer, self._lock = root, run, writer, lock
        self.settings_digest: str = run.get(_DIGEST, "")
        self._records = _last_by_key(_read_records(root / _RECORDS))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        experiment: str,
        settings: Mapping[str, Any],
        result_settings: Mapping[str, Any] | None = None,
        devices: Sequence[str] = (),
        seed: int | None = None,
        prng: str | None = None,
        writer: bool = True,
    ) -> Workdir:
        """Open a folder for a run, making it if needed; an earlier run of the same experiment is continued.

        Args:
          path: a local folder.
          experiment: name of the experiment; a folder holds results of one only.
          settings: everything the run was started with (its flags), for the record.
          result_settings: the part of it that changes the numbers of a cell (not the list of models, say). A cell
            counts as finished only if it was computed with the same. All of `settings` by default.
          devices: what the run computes on, in words.
          seed: seed of the run, if it has one.
          prng: PRNG implementation, if the run uses one.
          writer: True in process 0 only. The others may not share the file system: let process 0 decide what is
            finished and broadcast it.
        Returns:
          Workdir.
        Raises:
          ValueError: if the folder cannot be made or written, is in use by another run, or belongs to another
            experiment; before any work is done.
        """
        root = _check_path(path)
        run: dict[str, Any] = {
            "experiment": experiment,
            "settings": json_ready(settings),
            "result_settings": json_ready(settings if result_settings is None else result_settings),
            "seed": seed,
            "prng": prng,
            "devices": list(devices),
            "versions": versions(),
            "git": git_state(),
            "machine": machine(),
            "started": now(),
            "finished": None,
            "outcome": "running",
        }
        run[_DIGEST] = digest(run["result_settings"])
        if not writer:
            return cls(root, {**run, "history": []}, writer=False)
        lock = _take_folder(root)
        try:
            earlier = _read_run(root / _RUN)
            if earlier.get("experiment", experiment) != experiment:
                raise ValueError(
                    f"{root} holds results of the experiment {earlier['experiment']!r}, not of {experiment!r}; "
                    "choose another workdir"
                )
            run["history"] = _history(earlier)
            remove_leftovers(root)
            _repair_last_line(root / _RECORDS)
            workdir = cls(root, run, writer=True, lock=lock)
            workdir._write_run()
        except BaseException:
            os.close(lock)
            raise
        return workdir

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Workdir:
        """Open the folder of an earlier run to look at it, or to draw its figures again, without writing.

        Raises:
          ValueError: if the folder holds no run.
        """
        root = _check_path(path)
        run = _read_run(root / _RUN)
        if not run:
            raise ValueError(f"{root} holds no {_RUN}: it is not the workdir of an experiment")
        return cls(root, run, writer=False)

    def records(self, *, any_settings: bool = False) -> list[dict[str, Any]]:
        """Return the last record of each key, in the order in which the keys first appeared.

        Args:
          any_settings: also those whose last record was computed with other settings than this run's.
        """
        return [copy.deepcopy(r) for r in self._records.values() if any_settings or self._is_current(r)]

    def finished(self, key: str) -> bool:
        """Whether the last record of `key` is done and was computed with this run's settings."""
        record = self._records.get(key)
        return record is not None and record["status"] == "done" and self._is_current(record)

    def append(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write the record of one cell: one line that is on the disk when this returns.

        Args:
          record: `key` (str) and `status` ("done" or "failed"), and anything with a JSON form. Save the cell's
            arrays first: the record is what says that the cell is complete.
        Returns:
          The record as stored, with the settings' digest and the time.
        Raises:
          ValueError: if key or status is missing or wrong.
          TypeError: if something in it has no JSON form.
        """
        stored = {**json_ready(record), _DIGEST: self.settings_digest, "written": now()}
        if not _is_record(stored):
            raise ValueError(
                'a record needs a "key" (a string) and a "status" ("done" or "failed"), '
                f"got key = {record.get('key')!r}, status = {record.get('status')!r}"
            )
        if self.writer:
            append_line(self.root / _RECORDS, dump_line(stored))
        self._records[stored["key"]] = stored
        return stored

    def failed(self, key: str, error: BaseException, **more: Any) -> dict[str, Any]:
        """Record that the cell `key` failed, with the error; it is tried again on the next start.

        Args:
          key: the cell.
          error: what went wrong.
          more: further entries of the record, for instance the model's name.
        Returns:
          The record as stored.
        """
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        shown = lines if len(lines) <= _TRACEBACK_LINES else ["...", *lines[-_TRACEBACK_LINES:]]
        cause = {"type": type(error).__name__, "message": str(error), "traceback": shown}
        return self.append({**more, "key": key, "status": "failed", "error": cause})

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder.

        Raises:
          ValueError: if the name leads out of the folder.
        """
        path = self.root if "\0" in name else (self.root / name).resolve()
        if path == self.root or not path.is_relative_to(self.root):
            raise ValueError(f"{name!r} is not the name of a file inside {self.root}; see safe_name for model names")
        return path

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file that can be made again, whole or not at all, and return its path."""
        path = self.path(name)
        if self.writer:
            with atomic_file(path, durable=False) as file:
                file.write(data)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write a UTF-8 text file whole or not at all, and return its path."""
        return self.write_bytes(name, encoded(text))

    def save_arrays(self, name: str, **arrays: Any) -> Path:
        """Write arrays to one compressed .npz file, whole or not at all.

        Args:
          name: file name; `.npz` is added where it is missing.
          arrays: by name. The settings' digest is stored with them.
        Returns:
          The path of the file.
        Raises:
          ValueError: if an array holds Python objects (they would need pickle to be read again).
        """
        path = self.path(name if name.endswith(".npz") else f"{name}.npz")
        plain = {key: np.asarray(array) for key, array in arrays.items()}
        if objects := [key for key, array in plain.items() if array.dtype.hasobject]:
            raise ValueError(f"{name}: {', '.join(objects)}: arrays of Python objects are not saved")
        if self.writer:
            with atomic_file(path) as file:
                np.savez_compressed(file, **plain, **{_DIGEST: np.array(self.settings_digest)})
        return path

    def load_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Read the arrays of one .npz file of this run.

        Raises:
          ValueError: if the file is absent, damaged, or was written under other settings than this run's.
        """
        path = self.path(name if name.endswith(".npz") else f"{name}.npz")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
        except Exception as error:  # zipfile, zlib, struct and NumPy each have their own way to say damaged
            raise ValueError(f"{path} cannot be read: {error}") from error
        if str(arrays.pop(_DIGEST, self.settings_digest)) != self.settings_digest:
            raise ValueError(f"{path} was computed with other settings than this run's; compute the cell again")
        return arrays

    def close(self, outcome: str = "completed") -> None:
        """Record the end of the run and release the folder. Closing twice does nothing."""
        if self._lock is None:
            return
        self.run.update(finished=now(), outcome=outcome)
        try:
            self._write_run()
        finally:
            os.close(self._lock)  # which also releases the lock; a killed process releases it likewise
            self._lock = None
            self.writer = False

    def __enter__(self) -> Workdir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # sys.exit() is how an absl app ends well.
        ended_well = error is None or isinstance(error, SystemExit) and not error.code
        self.close("completed" if ended_well else f"stopped by {kind.__name__ if kind else 'an error'}")

    def _is_current(self, record: Mapping[str, Any]) -> bool:
        return record.get(_DIGEST) == self.settings_digest

    def _write_run(self) -> None:
        with atomic_file(self.root / _RUN) as file:
            file.write(encoded(dump_pretty(self.run)))


def _check_path(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError("the workdir is empty; give a folder to write to, for instance --workdir=results")
    if "://" in text:
        raise ValueError(f"the workdir must be a local folder, got {text}; copy the results there when they are done")
    return Path(text).expanduser().resolve()


def _take_folder(root: Path) -> int:
    """Make the folder and take its lock; the descriptor holds the lock until it is closed or the process dies."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ValueError(
            f"cannot write to the workdir {root} ({error.strerror or error}); choose a folder that you can write to"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 200, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise ValueError(
            f"the workdir {root} is in use by another run ({owner}); wait for it or choose another folder"
        ) from None
    except OSError as error:
        warnings.warn(f"{root}: its file system has no locks ({error}); do not start two runs on it", stacklevel=3)
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {platform.node()} since {now()}".encode(), 0)
    return lock


def _read_run(path: Path) -> dict[str, Any]:
    try:
        run = parse_strict(path.read_bytes())
        if not isinstance(run, dict):
            raise ValueError("not an object")
        return run
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        warnings.warn(f"{path} cannot be read ({error}); its history is lost", stacklevel=4)
        return {}


def _history(earlier: dict[str, Any]) -> list[dict[str, Any]]:
    """All starts before this one, oldest first."""
    if not earlier:
        return []
    last = {key: value for key, value in earlier.items() if key != "history"}
    if last.get("finished") is None:  # it could not say so itself, and its lock is gone
        last["outcome"] = "killed"
    history = earlier.get("history")
    return [*(history if isinstance(history, list) else []), last]


def _is_record(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("key"), str)
        and bool(value["key"])
        and value.get("status") in ("done", "failed")
    )


def _parse_record(line: bytes) -> dict[str, Any] | None:
    try:
        value = parse_strict(line)
    except ValueError:
        return None
    return value if _is_record(value) else None


def _read_records(path: Path) -> list[dict[str, Any]]:
    """Records in the order of their lines; lines that are not records are left out with a warning."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    parsed = [(number, _parse_record(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if damaged := [str(number) for number, record in parsed if record is None]:
        warnings.warn(f"{path}: left out damaged line {', '.join(damaged)}", stacklevel=4)
    return [record for _, record in parsed if record is not None]


def _repair_last_line(path: Path) -> None:
    """Make the file end with a line break, so that the next record starts on a line of its own."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if not data or data.endswith(b"\n"):
        return
    start = data.rfind(b"\n") + 1
    with open(path, "r+b") as file:
        if _parse_record(data[start:]) is not None:  # whole but for its end: an editor took the line break away
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(start)
            warnings.warn(f"{path}: dropped a last line that an interrupted run left unfinished", stacklevel=4)
        os.fsync(file.fileno())


def _last_by_key(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["key"]: record for record in records}
