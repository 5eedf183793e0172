"""What every experiment needs to start: common flags, devices, processes, and the folder it writes to."""

from __future__ import annotations

import dataclasses
import datetime
import io
import os
import re
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging

from repcap_jax.reports.progress import Progress
from repcap_jax.reports.workdir import Workdir

FLAGS = flags.FLAGS

flags.DEFINE_string("workdir", None, "Folder for results. Started again with the same folder, a run goes on.")
flags.DEFINE_boolean("smoke", False, "Shrink everything to a run of seconds, to see that it works.")
flags.DEFINE_boolean("fail_fast", False, "Stop at the first cell that fails instead of recording it and going on.")
flags.DEFINE_enum(
    "precision",
    "highest",
    ["highest", "high", "default"],
    "Precision of matrix products: 'highest' is float32; the others use TF32 or bfloat16 on GPU and TPU.",
)
flags.DEFINE_integer("cpu_devices", None, "Split the CPU into this many devices.", lower_bound=1, upper_bound=4096)
flags.DEFINE_boolean("distributed", False, "Start as one of several processes (jax.distributed).")
flags.DEFINE_string("coordinator", None, "host:port of process 0; by default what the cluster's scheduler says.")
flags.DEFINE_integer("processes", None, "How many processes there are; by default as the scheduler says.")
flags.DEFINE_integer("process_id", None, "Number of this process; by default as the scheduler says.")
flags.DEFINE_integer("rendezvous_timeout", 300, "Seconds to wait for the other processes.", lower_bound=1)
flags.DEFINE_boolean("quiet", False, "No progress, only results and errors.")


class UserError(Exception):
    """A wrong flag or input: shown as one message, without a traceback."""


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where a run computes.

    Attributes:
      mesh: all devices of all processes.
      names: the devices in words, for the record.
      process: number of this process.
      processes: how many there are.
    """

    mesh: Any
    names: tuple[str, ...]
    process: int
    processes: int

    @property
    def writes(self) -> bool:
        """Whether this process writes results; only process 0 does."""
        return self.process == 0

    def agree(self, values: Sequence[int]) -> list[int]:
        """The values of process 0, in every process."""
        if self.processes == 1:
            return list(values)
        import numpy as np
        from jax.experimental import multihost_utils

        return multihost_utils.broadcast_one_to_all(np.asarray(values, np.int32)).tolist()

    def together(self, step: Callable[[], Any]) -> Any:
        """The value of `step`, which every process runs by itself, once all of them have succeeded.

        What a process does by itself (reading a file, say) may fail in it alone. Were it to leave the others at their
        next collective, they would wait for it until a timeout. An array must be the same in all of them: their shares
        of different ones would add up to plausible nonsense.

        Raises:
          Exception: what `step` raised here.
          UserError: it raised in another process, or gave another array there.
        """
        value, error = None, None
        try:
            value = step()
        except Exception as raised:
            error = raised
        if self.processes > 1:
            import numpy as np
            from jax.experimental import multihost_utils

            own = np.asarray([error is not None, _fingerprint(value)], np.int32)
            failed, fingerprints = multihost_utils.process_allgather(own).T
            if error is None and failed.any():
                raise UserError(f"process {int(failed.argmax())} of {self.processes} failed; its own output says why")
            if error is None and len(set(fingerprints.tolist())) > 1:
                raise UserError("the processes read different data: give all of them the same files")
        if error is not None:
            raise error
        return value


def _fingerprint(value: Any) -> int:
    """31 bits that tell arrays apart; 0 for anything else."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        return 0
    return zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data, zlib.crc32(str(value.shape).encode())) >> 1


def run(main: Callable[[], int]) -> None:
    """Parse flags, call `main`, and end with its exit status; a UserError of it is shown without a traceback."""

    def guarded(argv: Sequence[str]) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a file name may not be what the terminal can show
        if not FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # absl lets every library's INFO through
        if len(argv) > 1:
            _refuse(f"unexpected arguments {argv[1:]}: options are given as --name=value")
        try:
            status = main()
        except UserError as error:
            _refuse(str(error))
        except OSError as error:  # a full disk, say
            _refuse(f"{error}; what was finished is kept, start again with the same --workdir to go on")
        except KeyboardInterrupt:
            print("interrupted; start again with the same --workdir to go on", file=sys.stderr)
            sys.exit(130)
        sys.exit(status)

    app.run(guarded, flags_parser=_parse)


def _parse(argv: Sequence[str]) -> Sequence[str]:
    try:
        return FLAGS(argv)
    except flags.Error as error:
        if "--help" in argv or "--helpfull" in argv:
            raise
        _refuse(f"{error}\nSee --help for the flags.")


def _refuse(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def start_devices() -> Devices:
    """Set JAX up as the flags say; call it before anything computes.

    Raises:
      UserError: the devices or the other processes cannot be had.
    """
    import jax

    if FLAGS.cpu_devices is not None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", FLAGS.cpu_devices)
    if FLAGS.distributed:
        _join_processes()
    elif any(value is not None for value in (FLAGS.coordinator, FLAGS.processes, FLAGS.process_id)):
        raise UserError("--coordinator, --processes and --process_id go with --distributed")
    from repcap_jax.kernels.placement import device_mesh

    try:
        devices = jax.devices()
    except RuntimeError as error:
        raise UserError(f"JAX finds no device: {error}") from error
    names = tuple(f"{device.platform}:{device.id} {device.device_kind}" for device in devices)
    return Devices(device_mesh(devices), names, jax.process_index(), jax.process_count())


def _join_processes() -> None:
    import jax

    where = FLAGS.coordinator or "the scheduler's coordinator"
    which = "?" if FLAGS.process_id is None else FLAGS.process_id
    total = "?" if FLAGS.processes is None else FLAGS.processes
    if FLAGS.coordinator and FLAGS.process_id:
        _wait_for(FLAGS.coordinator, which)
    print(f"process {which} of {total} joins {where} (waits {FLAGS.rendezvous_timeout} s)", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(
            coordinator_address=FLAGS.coordinator,
            num_processes=FLAGS.processes,
            process_id=FLAGS.process_id,
            initialization_timeout=FLAGS.rendezvous_timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"process {which} could not join {where}: {error}. Give --coordinator=host:port, --processes and "
            "--process_id where no scheduler sets them, and start all processes within --rendezvous_timeout."
        ) from error


def _wait_for(coordinator: str, process: int) -> None:
    """Wait until the coordinator listens: jax.distributed would end the process without a word that helps."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--coordinator takes host:port, got {coordinator}")
    deadline = time.monotonic() + FLAGS.rendezvous_timeout
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"process {process} found nobody at {coordinator} within {FLAGS.rendezvous_timeout} s ({error}); "
                    "start process 0 there, or raise --rendezvous_timeout"
                ) from error
            time.sleep(0.5)


def open_workdir(experiment: str, result_settings: Mapping[str, Any], devices: Devices, **options: Any) -> Workdir:
    """Open --workdir for an experiment, with all flags on record.

    Args:
      experiment: its name.
      result_settings: the settings that change the numbers; cells computed with others are computed again.
      devices: where it computes.
      options: see `Workdir.open`.
    Raises:
      UserError: there is no --workdir, or it cannot be used.
    """
    if not FLAGS.workdir:
        raise UserError("--workdir is required: the folder for results, for instance --workdir=runs/embedding")

    def open_here() -> Workdir:
        try:
            return Workdir.open(
                FLAGS.workdir,
                experiment=experiment,
                settings=_own_flags(),
                result_settings=result_settings,
                devices=devices.names,
                writer=devices.writes,
                **options,
            )
        except ValueError as error:
            raise UserError(str(error)) from error

    return devices.together(open_here)


def generator(seed: int) -> dict[str, Any]:
    """Seed and PRNG of a run, for `open_workdir`."""
    import jax

    return {"seed": seed, "prng": str(jax.config.jax_default_prng_impl)}


def check_same_work(names: Sequence[str], what: str, devices: Devices) -> None:
    """Refuse a run whose processes were given different work; call it through `Devices.together`.

    Raises:
      UserError: this process was given other work than process 0.
    """
    own = zlib.crc32("\n".join(names).encode(errors="backslashreplace")) >> 1
    if devices.agree([own]) != [own]:
        raise UserError(f"process {devices.process} was given other {what} than process 0: {', '.join(names)}")


def progress(description: str, devices: Devices, unit: str = "pairs") -> Progress:
    """A progress report in process 0."""
    return Progress(description, unit=unit, quiet=FLAGS.quiet or not devices.writes)


def listed_models(models: Sequence[str], models_file: str | None) -> list[str]:
    """Model sources from a repeatable, comma-separated flag and a file with one a line (`#` starts a comment).

    Raises:
      UserError: the file cannot be read.
    """
    found: list[str] = []
    for value in models:
        # A path that exists is taken whole, even if there is a comma in it.
        found += [value] if os.path.exists(value) else value.split(",")
    if models_file:
        try:
            lines = Path(models_file).expanduser().read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--models_file: {models_file} cannot be read: {error}") from error
        found += [re.split(r"(?:^|\s)#", line, maxsplit=1)[0] for line in lines]
    return list(dict.fromkeys(source.strip() for source in found if source.strip()))


def numbers(flag: str, kind: type) -> list[Any]:
    """The values of a comma-separated flag, as int or float.

    Raises:
      UserError: one of them is no such number.
    """
    try:
        return [kind(text) for text in FLAGS[flag].value if text.strip()]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise UserError(f"--{flag} takes {what} separated by commas: {error}") from error


def say(devices: Devices, text: str) -> None:
    """Print a result, in process 0."""
    if devices.writes:
        print(text, flush=True)


def tell(devices: Devices, text: str) -> None:
    """Print what --quiet leaves out, in process 0."""
    if not FLAGS.quiet:
        say(devices, text)


def sweep_models(
    sources: Mapping[str, str],
    measure: Callable[[str, str, str], Mapping[str, Any]],
    summary: Callable[[Mapping[str, Any]], str],
    workdir: Workdir,
    devices: Devices,
) -> list[str]:
    """Measure every model that is not finished yet; one that fails is recorded, and the sweep goes on.

    Args:
      sources: where each model is, by the key of its record.
      measure: called as `measure(model, source, place)`, with its place in the sweep in words; records it and returns
        the record.
      summary: a record in one line.
      workdir: where the records are.
      devices: all processes take the same way.
    Returns:
      The models that failed.
    """
    finished = devices.agree([workdir.finished(model) for model in sources])
    failed: list[str] = []
    for number, ((model, source), done) in enumerate(zip(sources.items(), finished), start=1):
        place = f"[{number}/{len(sources)}] {model}"
        if done:
            told = f"{place}: finished in an earlier run"
            if devices.writes and source == model and _changed(source, workdir, model):  # smoke models are made anew
                told += ", but its files have changed since: measure it again in another --workdir"
            say(devices, told)
            continue
        try:
            say(devices, f"{place}: {summary(measure(model, source, place))}")
        except Exception as error:
            failed.append(model)
            workdir.failed(model, error, model=model)
            print(f"{place}: failed: {error}", file=sys.stderr, flush=True)
            if FLAGS.fail_fast:
                break
    return failed


def _changed(source: str, workdir: Workdir, model: str) -> bool:
    """Whether a local model is newer than its record."""
    path = Path(source).expanduser()
    files = [path] if path.is_file() else list(path.glob("*"))
    (record,) = [record for record in workdir.records() if record["key"] == model]
    written = datetime.datetime.fromisoformat(record["written"]).timestamp() + 1  # it is cut to the second
    return any(file.stat().st_mtime > written for file in files)


def source_and_revision(model: str) -> tuple[str, str | None]:
    """Split `org/name@revision`; a path that exists is taken as it is."""
    if os.path.exists(os.path.expanduser(model)) or "@" not in model:
        return model, None
    source, revision = model.rsplit("@", 1)
    return source, revision or None


def _own_flags() -> dict[str, Any]:
    """Values of the flags that this project defines; absl's own are left out."""
    theirs = ("absl.", "jax", "tensorflow")
    return {
        flag.name: flag.value
        for module, defined in FLAGS.flags_by_module_dict().items()
        if not module.startswith(theirs)
        for flag in defined
    }
