"""Where a source string points: a local folder, a local file, or a repository on the Hugging Face Hub at one commit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from repcap_jax.checkpoints.files import Files, LocalFiles
from repcap_jax.checkpoints.store import CheckpointError, short

_FILE_SUFFIXES = (".safetensors", ".msgpack", ".gguf", ".bin", ".npy", ".npz", ".json")

_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def locate(source: str | os.PathLike, revision: str | None) -> tuple[Files, str | None]:
    """Find the files that a source string stands for.

    Args:
        source: a local folder or file, or a Hub id ``org/name`` or ``name``. What exists locally wins.
        revision: branch, tag or commit of a Hub repository; None for its default branch.

    Returns:
        The files, and the name of the one file where the source is a file.

    Raises:
        CheckpointError: nothing is there, or a revision was given for local files.
    """
    text = os.fspath(source)
    if not isinstance(text, str) or not text.strip():
        raise CheckpointError(f"expected a folder, a file or a Hub id such as 'org/name', got {source!r}.")
    path = Path(text).expanduser()
    if os.path.lexists(path):
        if revision is not None:
            raise CheckpointError(f"{text}: a revision ({revision!r}) belongs to a Hub repository, but this is local.")
        return _local(path, text)
    if _looks_local(text):
        raise CheckpointError(f"{text}: no such folder or file; a Hub repository is written 'org/name'.")
    if not _REPO_ID.fullmatch(text):
        raise CheckpointError(f"{short(text)}: no such folder or file, and no Hub id of the form 'org/name'.")
    return HubFiles(text, revision), None


def _local(path: Path, text: str) -> tuple[Files, str | None]:
    if path.is_dir():
        return LocalFiles(path, text, path.resolve().name or text), None
    if not os.path.exists(path):
        raise CheckpointError(f"{text}: a link to something that does not exist; restore what it points to.")
    # The usual file names say nothing of the model; its folder does.
    usual = path.stem in ("model", "pytorch_model", "flax_model")
    return LocalFiles(path.parent, text, path.resolve().parent.name if usual else path.stem), path.name


def _looks_local(text: str) -> bool:
    return text.startswith(("/", ".", "~")) or text.count("/") > 1 or "\\" in text or text.endswith(_FILE_SUFFIXES)


class HubFiles:
    """The files of a Hub repository, pinned to the commit that its revision named when it was first asked."""

    remote = True

    def __init__(self, repo_id: str, revision: str | None):
        self.label, self.name = repo_id, repo_id.rsplit("/", 1)[-1]
        # Read at each call, as HF_TOKEN is: the library itself reads it once, when it is first imported.
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        self.revision, self._names = self._list(revision)

    def names(self) -> tuple[str, ...]:
        return self._names

    def path(self, name: str) -> Path:
        from huggingface_hub import hf_hub_download

        with _hub_errors(self.label, self.revision, name):
            found = hf_hub_download(
                self.label, name, revision=self.revision, endpoint=self._endpoint, local_files_only=not self.complete
            )
        return Path(found)

    def _list(self, revision: str | None) -> tuple[str, tuple[str, ...]]:
        """Ask the Hub for the commit and its files; without a connection fall back on what the cache holds."""
        from huggingface_hub import HfApi

        self.complete = True
        try:
            with _hub_errors(self.label, revision):
                info = HfApi(endpoint=self._endpoint).model_info(self.label, revision=revision)
        except _Unreachable as error:
            snapshot = _cached_snapshot(self.label, revision)
            if snapshot is None:
                raise CheckpointError(str(error)) from error
            self.complete = False
            return snapshot.name, tuple(sorted(item.name for item in snapshot.iterdir() if item.is_file()))
        if not info.sha or not _COMMIT.fullmatch(info.sha):
            raise CheckpointError(f"{self.label}: the Hub named no commit for revision {revision!r}, got {info.sha!r}.")
        _remember(self.label, revision, info.sha)
        return info.sha, tuple(sorted(item.rfilename for item in info.siblings or () if "/" not in item.rfilename))


class _Unreachable(CheckpointError):
    """The Hub could not be asked at all."""


def _remember(repo_id: str, revision: str | None, commit: str) -> None:
    """Note in the cache which commit a branch or tag names, as the library does for downloads by branch.

    Files are downloaded by commit, so the library has no branch to note; without the note the cache could not serve
    the branch when there is no connection.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    named = revision or constants.DEFAULT_REVISION
    if _COMMIT.fullmatch(named) or ".." in Path(named).parts or Path(named).is_absolute():
        return
    note = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo_id, repo_type="model") / "refs" / named
    with suppress(OSError):  # a read-only cache serves all the same
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(commit)


def _cached_snapshot(repo_id: str, revision: str | None) -> Path | None:
    """Return the cache folder of an earlier download of this revision, None where nothing was downloaded."""
    from huggingface_hub import try_to_load_from_cache

    for known in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        found = try_to_load_from_cache(repo_id, known, revision=revision)
        if isinstance(found, str):
            return Path(found).parent
    return None


@contextmanager
def _hub_errors(repo_id: str, revision: str | None, file: str | None = None) -> Iterator[None]:
    """Say in a CheckpointError what a failed request to the Hub means and what to do about it."""
    from huggingface_hub import errors

    at = (f"{repo_id} (revision {revision!r})" if revision else repo_id) + (f", {file}" if file else "")
    try:
        yield
    except CheckpointError:
        raise
    except errors.GatedRepoError as error:  # before RepositoryNotFoundError, of which it is a subclass
        raise CheckpointError(
            f"{at}: the repository is gated; accept its terms at https://huggingface.co/{repo_id} and give a token "
            "that may read it (`hf auth login`, or HF_TOKEN)."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{at}: no such local folder, and no such repository on the Hub; check the spelling, and for a private "
            "repository give a token (`hf auth login`, or HF_TOKEN)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{repo_id}: the repository has no branch, tag or commit {revision!r}.") from error
    except errors.LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{at}: not in the local cache and the Hub cannot be reached ({short(str(error), 200)}); "
            "connect, or unset HF_HUB_OFFLINE, and try again."
        ) from error
    except errors.EntryNotFoundError as error:
        raise CheckpointError(f"{at}: no such file in the repository.") from error
    except Exception as error:  # HTTP statuses, refused connections, timeouts, offline mode, a full disk
        what = "the download failed" if file else "no such local folder, and the Hub cannot be asked"
        raise _Unreachable(
            f"{at}: {what} ({type(error).__name__}: "
            f"{short(str(error), 200)}); check the connection and HF_ENDPOINT, and unset HF_HUB_OFFLINE to go online."
        ) from error
