"""Locks of stores: one writer at a time, and segments that readers use are not removed.

An append locks a file in the folder of the store. A reader locks the segments that it reads, so
that an append that merges them does not remove them.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fastemf.sources.store.files import open_regular
from fastemf.sources.store.manifest import reading
from fastemf.support.file_locks import CAREFULLY, is_at, try_lock

APPENDING = "append.lock"


@contextmanager
def appending(folder: Path) -> Iterator[None]:
    """Lock a store for an append; raise an error if another append is running."""
    path = folder / APPENDING
    file = _claim(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        file.close()  # after the removal: another append then locks a new file


def _claim(path: Path) -> io.FileIO:
    """Create and lock the lock file; where files cannot be locked it must not exist yet."""
    while True:
        try:
            file, is_new = io.FileIO(path, "xb"), True
        except FileExistsError:
            try:
                file, is_new = io.FileIO(path, "r+b", opener=_open_carefully), False
            except FileNotFoundError:
                continue
        with ExitStack() as undo:
            undo.callback(file.close)
            locked = try_lock(file.fileno())
            if locked is False:
                raise FileExistsError(f"{path} is in use: another append is running")
            if not locked and not is_new:
                raise FileExistsError(
                    f"{path} exists: another append is running, or one was interrupted; delete it "
                    "if none is running"
                )
            if locked and not is_at(path, file.fileno()):  # removed by the append that held it
                continue
            undo.pop_all()
        if not locked:  # such systems may not allow removing an open file
            file.close()
        return file


def _open_carefully(path: str, flags: int) -> int:
    return os.open(path, flags | CAREFULLY)


class Hold:
    """Shared locks of files, held as long as this object exists."""

    def __init__(self, paths: Iterable[Path]) -> None:
        files: list[io.FileIO] = []
        weakref.finalize(self, _close, files)
        for path in paths:
            with reading(path):
                files.append(open_regular(path))
            # If this fails, the file is about to be removed, which `hold_state` detects.
            try_lock(files[-1].fileno(), shared=True)


def _close(files: list[io.FileIO]) -> None:
    for file in files:
        file.close()


def is_free(path: Path) -> bool:
    """Return whether no reader has locked a file; True where files cannot be locked."""
    try:
        # Opened for writing, which some network file systems need for an exclusive lock.
        with io.FileIO(path, "r+b", opener=_open_carefully) as file:
            return try_lock(file.fileno()) is not False
    except FileNotFoundError:
        return True
    except OSError:  # not writable by this user
        return False
