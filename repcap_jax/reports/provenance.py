"""What a result depends on besides its settings: versions, the commit of the code, the machine, the time."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import repcap_jax

PACKAGES = (
    "repcap_jax",
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
    "ml_dtypes",
    "flax",
    "optax",
    "transformers",
    "safetensors",
    "gguf",
    "matplotlib",
)


def now() -> str:
    """Return the time in UTC, to the second, in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def package_version(package: str) -> str | None:
    """Return the version of an installed package without importing it, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that can change a number; None for those not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    found |= {name: package_version(name) for name in PACKAGES}
    found["repcap_jax"] = found["repcap_jax"] or getattr(repcap_jax, "__version__", None)  # run from a checkout
    return found


def machine() -> dict[str, Any]:
    """Return the name of this machine, its operating system and processor, and how the program was started."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "command": sys.argv,
    }


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Return the commit that the code was run from, and whether files differ from it.

    Args:
      folder: folder of the code; this package by default.
    Returns:
      {"commit": str, "dirty": bool}, or None where the code is not under version control (or git is absent). A
      package installed below somebody else's checkout does not count as part of it.
    """
    folder = Path(__file__).parent.parent if folder is None else folder
    if not _git(folder, "ls-files", "."):
        return None
    # Files that git does not know count where they are code, not where they are results lying about.
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    added = _git(folder, "ls-files", "--others", "--exclude-standard", ".")
    return {"commit": commit, "dirty": bool(changed or added)} if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    # No optional locks: looking must not get in the way of someone who is committing.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
