"""The files of a checkpoint in a local folder, and the interface that a Hub repository shares with it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from repcap_jax.checkpoints.store import CheckpointError


@runtime_checkable
class Files(Protocol):
    """Named files of one checkpoint; ``path`` brings a file to this machine where it is not here yet."""

    label: str  # what the user gave, for messages and records
    name: str  # a short display name
    revision: str | None  # the commit the files belong to, where there is one
    remote: bool  # True where path() may download
    complete: bool  # False where names() lists only what an earlier download left in the cache

    def names(self) -> tuple[str, ...]:
        """Return the names of the files at the top level."""

    def path(self, name: str) -> Path:
        """Return the local path of one file."""


class LocalFiles:
    """The files of a local folder."""

    remote = False
    complete = True
    revision = None

    def __init__(self, folder: Path, label: str, name: str):
        self.folder, self.label, self.name = folder, label, name
        try:
            # Folders are left out; a dangling link is kept, so that opening it can say what is wrong.
            self._names = tuple(sorted(item.name for item in folder.iterdir() if not item.is_dir()))
        except OSError as error:
            raise CheckpointError(f"{folder}: the folder cannot be listed ({error.strerror or error}).") from error

    def names(self) -> tuple[str, ...]:
        return self._names

    def path(self, name: str) -> Path:
        return self.folder / name


class LoneFile:
    """One local file by itself: what lies beside it need not describe it."""

    remote = False
    complete = True
    revision = None

    def __init__(self, path: Path, label: str, name: str):
        self._path, self.label, self.name = path, label, name

    def names(self) -> tuple[str, ...]:
        return (self._path.name,)

    def path(self, name: str) -> Path:
        return self._path
