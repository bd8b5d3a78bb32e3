"""Locks, which the system lets go of when a process ends: of who writes a store, and who reads it.

An append holds a file in the store's folder. A reader holds the segments that it reads, so that
they stay where they are when an append has merged them into another.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fastemf.store.files import open_regular
from fastemf.store.manifest import reading

__all__ = ["Hold", "appending", "is_at", "is_free", "is_locked"]

APPENDING = "append.lock"
CAREFULLY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def is_locked(file: io.FileIO, *, shared: bool = False) -> bool:
    """Try to lock a file; return False where there are no locks, and raise if another has it."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return False
    return True


def is_at(file: io.FileIO, path: Path) -> bool:
    """Tell whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except OSError:
        return False


@contextmanager
def appending(folder: Path) -> Iterator[None]:
    """Hold a store as the only one who appends to it; another one at the same time is an error."""
    path = folder / APPENDING
    file = _claim(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        file.close()  # not before: whoever gets the lock of a file that is there takes it over


def _claim(path: Path) -> io.FileIO:
    """Return the file of an append, locked; without locks it must not be there yet."""
    while True:
        try:
            file, is_new = io.FileIO(path, "xb"), True
        except FileExistsError:
            try:
                file, is_new = io.FileIO(path, "r+b", opener=_open_at_once), False
            except FileNotFoundError:
                continue
        with ExitStack() as undo:
            undo.callback(file.close)
            try:
                locked = is_locked(file)
            except BlockingIOError:
                raise FileExistsError(f"{path} is in use: another append is running") from None
            if not locked and not is_new:
                raise FileExistsError(
                    f"{path} exists: another append is running, or one was interrupted; delete it "
                    "if none is running"
                )
            if locked and not is_at(file, path):  # that append has ended, or another one begun
                continue
            undo.pop_all()
        if not locked:  # and perhaps no way to remove an open file
            file.close()
        return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | CAREFULLY)


class Hold:
    """Files of which a reader says, as long as this object lives, that they are being read."""

    def __init__(self, paths: Iterable[Path]) -> None:
        files: list[io.FileIO] = []
        weakref.finalize(self, _close, files)
        for path in paths:
            with reading(path):
                files.append(open_regular(path))
            with suppress(BlockingIOError):  # about to be removed, which who opens the store finds
                is_locked(files[-1], shared=True)


def _close(files: list[io.FileIO]) -> None:
    for file in files:
        file.close()


def is_free(path: Path) -> bool:
    """Tell whether nobody holds a file, as far as the system can tell."""
    try:
        # To write, without which some network file systems lock nothing for one alone.
        with io.FileIO(path, "r+b", opener=_open_at_once) as file:
            is_locked(file)
    except FileNotFoundError:
        return True
    except OSError:  # held, or not ours to write
        return False
    return True
