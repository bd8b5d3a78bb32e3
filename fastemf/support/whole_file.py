"""Files that a reader sees whole or not at all."""

from __future__ import annotations

import hashlib
import importlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["check_target", "replacing"]

# Never follow a link, nor wait for the other end of a pipe, under a name that others can guess.
CAREFULLY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
BINARY = getattr(os, "O_BINARY", 0)

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


@contextmanager
def replacing(path: str | os.PathLike[str], what: str = "a file") -> Iterator[IO[bytes]]:
    """Open a file to write, which takes the place of `path` when all of it is on disk.

    After an error, or a kill, the previous file is still there. It keeps its permissions; what
    a kill left behind is removed by the next call for the same path.
    """
    target = check_target(path, what)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _clear(target)
    handle, partial = _create(target, 0o666 if mode is None else 0o600)
    try:
        with _holding(handle):
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
    """Return the path to write: the target of a symbolic link, in a folder that exists."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"cannot save {what} to {os.fspath(path)}: it is a folder")
    if target.is_symlink():
        raise OSError(f"cannot save {what} to {os.fspath(path)}: its links lead in a circle")
    if target.exists() and not target.is_file():
        raise OSError(f"cannot save {what} to {os.fspath(path)}: it is not a regular file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot save {what} to {os.fspath(path)}: there is no such folder")
    return target


# --- partial files ---------------------------------------------------------------------------
#
# A writer holds a lock on its partial file from its creation until it has its final name. The
# system lets go of the lock of a process that ends, however it ends: a partial file that can be
# locked belongs to nobody.


def _stem(target: Path) -> str:
    # The name may be too long to be part of a longer one.
    return f".fastemf-{hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()}-"


def _create(target: Path, mode: int) -> tuple[int, Path]:
    """Create and lock a partial file; the umask applies to its mode, as to that of any file."""
    while True:
        partial = target.with_name(f"{_stem(target)}{secrets.token_hex(4)}.partial")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | CAREFULLY | BINARY
        with suppress(FileExistsError):
            handle = os.open(partial, flags, mode)
            locked = _lock(handle)
            # Another writer may have found it, and removed it, before it was locked.
            if locked is None or (locked and _is_at(partial, handle)):
                return handle, partial
            os.close(handle)


def _clear(target: Path) -> None:
    """Remove the partial files of this target that no living process is writing."""
    if fcntl is None:
        return
    names = []
    with suppress(OSError), os.scandir(target.parent) as found:  # some folders cannot be listed
        names = [entry.name for entry in found if entry.name.startswith(_stem(target))]
    for partial in map(target.with_name, names):
        with suppress(OSError):  # gone meanwhile, or another user's
            handle = os.open(partial, os.O_RDWR | CAREFULLY)
            try:
                is_file = stat.S_ISREG(os.fstat(handle).st_mode)
                if is_file and _lock(handle) and _is_at(partial, handle):
                    partial.unlink()
            finally:
                os.close(handle)


def _lock(handle: int) -> bool | None:
    """Try to lock an open file; None where files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return None
    return True


def _is_at(path: Path, handle: int) -> bool:
    """Tell whether an open file still has this name."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def _holding(handle: int) -> Iterator[None]:
    """Keep the lock of a file that is closed inside, where there are locks."""
    held = None if fcntl is None else os.dup(handle)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
