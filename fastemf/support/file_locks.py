"""Locks of files (flock), which the system releases when a process ends, however it ends."""

from __future__ import annotations

import importlib
import os
from typing import Any

# Flags to open a file under a guessable name: follow no link, do not block on a pipe.
CAREFULLY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def try_lock(handle: int, *, shared: bool = False) -> bool | None:
    """Try to lock an open file; return None where the system or file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


def is_at(path: str | os.PathLike[str], handle: int) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except (FileNotFoundError, NotADirectoryError):
        return False
