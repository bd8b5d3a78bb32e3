"""The place where a store is built, under another name, and removed if anything goes wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.store.files import ArrayFile, sync_folder
from fastemf.support.warn import warn

__all__ = ["Workplace", "workplace"]

LOCK = "lock"


class Workplace:
    """Folder of a store that is not complete yet, and the files open in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[ArrayFile] = []

    def create(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> ArrayFile:
        """Create a file in the folder."""
        file = ArrayFile(self._folder / name, dtype, length)
        self._files.append(file)
        return file

    def check_space(self, needed: int) -> None:
        """Refuse to begin what the disk cannot hold."""
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise OSError(
                f"building the store needs {needed:,} bytes in {self._folder.parent}, and "
                f"{free:,} are free there"
            )

    def close(self) -> None:
        """Close all files as they are."""
        for file in self._files:
            file.close()


@contextmanager
def workplace(target: Path) -> Iterator[Workplace]:
    """Make a new folder that becomes `target` at the end, or disappears.

    What a killed process left under the same name is removed with a warning; the lock shows
    whether a build is still running.
    """
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: delete it, or build the store elsewhere")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot build {target}: there is no folder {target.parent}")
    folder = target.parent / f".{target.name}.partial"
    if folder.exists():
        with _locked(folder):
            warn(f"removing {folder}, left behind by a build that was interrupted")
            shutil.rmtree(folder)
    folder.mkdir()
    place = Workplace(folder)
    try:
        with _locked(folder):
            yield place
            place.close()
            (folder / LOCK).unlink()
            sync_folder(folder)
            os.rename(folder, target)
        sync_folder(target.parent)
    except BaseException:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system lets go of when the process ends."""
    try:
        import fcntl
    except ImportError:  # without such locks nobody can tell: leftovers are the user's to remove
        if (folder / LOCK).exists():
            raise FileExistsError(
                f"{folder} exists: another build is running, or one was interrupted; delete it "
                "if none is running"
            ) from None
        (folder / LOCK).touch()
        yield
        return
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FileExistsError(f"{folder} is in use: another build is running") from None
        yield
