"""Atomic writes: readers see the complete previous or the complete new file."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fastemf.support import file_locks
from fastemf.support.file_locks import CAREFULLY, is_at, try_lock

BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
def replace_file(path: str | os.PathLike[str], what: str = "a file") -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` once it is completely on disk.

    After an error, or if the process is killed, the previous file remains. The permissions are
    kept. The next call for the same path removes partial files of killed processes.
    """
    target = check_target(path, what)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _clear(target)
    handle, partial = _create(target, 0o666 if mode is None else 0o600)
    try:
        with _keep_lock(handle):
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if mode is not None and stat.S_IMODE(os.stat(partial).st_mode) != mode:
                os.chmod(partial, mode)
            os.replace(partial, target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk
            error.filename = os.fspath(path)
        raise


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path to write, with symbolic links resolved, in an existing folder."""
    target, failed = Path(os.path.realpath(path)), f"cannot save {what} to {os.fspath(path)}"
    if target.is_dir():
        raise IsADirectoryError(f"{failed}: it is a folder")
    if target.is_symlink():
        raise OSError(f"{failed}: its symbolic links form a loop")
    if target.exists() and not target.is_file():
        raise OSError(f"{failed}: it is not a regular file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{failed}: the folder does not exist")
    return target


# --- partial files ---------------------------------------------------------------------------
#
# A writer locks its partial file until the file has its final name. The system releases the locks
# of a process that ends in any way, so a partial file that can be locked is abandoned.


def _stem(target: Path) -> str:
    # A hash, because a longer file name may exceed the limit of the file system.
    return f".fastemf-{hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()}-"


def _create(target: Path, mode: int) -> tuple[int, Path]:
    """Create and lock a partial file; the umask applies to its mode."""
    while True:
        partial = target.with_name(f"{_stem(target)}{secrets.token_hex(4)}.partial")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | CAREFULLY | BINARY
        with suppress(FileExistsError):
            handle = os.open(partial, flags, mode)
            locked = try_lock(handle)
            # Another writer may have removed it before it was locked.
            if locked is None or (locked and is_at(partial, handle)):
                return handle, partial
            os.close(handle)


def _clear(target: Path) -> None:
    """Remove abandoned partial files of this target."""
    names = []
    with suppress(OSError), os.scandir(target.parent) as found:  # some folders cannot be listed
        names = [entry.name for entry in found if entry.name.startswith(_stem(target))]
    for partial in map(target.with_name, names):
        with suppress(OSError):  # already removed, or of another user
            handle = os.open(partial, os.O_RDWR | CAREFULLY)
            try:
                is_file = stat.S_ISREG(os.fstat(handle).st_mode)
                if is_file and try_lock(handle) and is_at(partial, handle):
                    partial.unlink()
            finally:
                os.close(handle)


@contextmanager
def _keep_lock(handle: int) -> Iterator[None]:
    """Keep the lock of a file that is closed inside the context, if locks are available."""
    held = None if file_locks.fcntl is None else os.dup(handle)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
