"""JSON objects from files that may be damaged or hostile: bounded size, no duplicate keys, errors naming the file."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from pathlib import Path

from repcap_jax.checkpoints.store import CheckpointError, short


def parse_object(raw: bytes, where: str) -> dict:
    """Parse one JSON object.

    Args:
        raw: UTF-8 text.
        where: the file (and part of it), for the error's text.

    Returns:
        The object as a dict.

    Raises:
        CheckpointError: not JSON, not an object, or a key given twice.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(f"{where}: the key {short(twice)} is given twice, so its meaning is unclear.")
        return found

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: expected JSON, but it does not parse ({short(str(error), 200)}).") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected a JSON object, got {type(value).__name__} {short(value)}.")
    return value


def load_object(path: Path, limit: int) -> dict:
    """Load a JSON object from a file of at most ``limit`` bytes.

    Args:
        path: the file.
        limit: size in bytes above which the file is refused unread.

    Returns:
        The object as a dict.

    Raises:
        CheckpointError: unreadable, too large, or not a JSON object.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path}: expected a JSON file, found a folder or a device.")
        if status.st_size > limit:
            raise CheckpointError(f"{path}: expected a JSON file of at most {limit} bytes, got {status.st_size}.")
        raw = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error}).") from error
    return parse_object(raw, str(path))
