"""Files that a reader sees whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["check_target", "replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str], what: str = "a file") -> Iterator[IO[bytes]]:
    """Open a file to write, which takes the place of `path` when all of it is on disk.

    After an error, or a kill, the previous file is still there.
    """
    target = check_target(path, what)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=".fastemf-", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, target)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk
            error.filename = os.fspath(path)
        raise


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path to write: the target of a symbolic link, in a folder that exists."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"cannot save {what} to {os.fspath(path)}: it is a folder")
    if target.exists() and not target.is_file():
        raise OSError(f"cannot save {what} to {os.fspath(path)}: it is not a regular file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot save {what} to {os.fspath(path)}: there is no such folder")
    return target


def _umask() -> int:
    """Read the process's umask, which takes setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
