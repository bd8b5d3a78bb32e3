"""The place where a store is built, under another name, and removed if anything goes wrong.

It is a folder beside the store to be, which holds a mark and a folder of files. The mark says that
the place is ours, and who builds there holds its lock, which the system lets go of when the
process ends. The folder of files becomes the store by one rename. Only what bears the mark and
holds nothing but files of ours is ever removed.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.store.files import ArrayFile, open_regular, sync_folder
from fastemf.store.locks import is_at, is_locked
from fastemf.store.manifest import FILE_NAMES
from fastemf.support.warn import warn

__all__ = ["Workplace", "workplace"]

MARK = "lock"
MARK_TEXT = b"A store of fastemf is being built here.\n"
FILES = "store"
SPILLED = frozenset(f"spill.{part}" for part in ("rows", "cols", "values", "weights", "keys"))
NAMES = FILE_NAMES | SPILLED  # of all files that a build writes


class Workplace:
    """Folder of a store that is not complete yet, and the files open in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[ArrayFile] = []

    def create(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> ArrayFile:
        """Create a file in the folder."""
        assert name in NAMES  # else it would not be known as ours
        file = ArrayFile(self._folder / name, dtype, length)
        self._files.append(file)
        return file

    def check_space(self, needed: int) -> None:
        """Refuse to begin what the disk cannot hold."""
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise OSError(
                f"writing the store needs {needed:,} bytes in {self._folder.parents[1]}, and "
                f"{free:,} are free there"
            )

    def close(self) -> None:
        """Close all files as they are."""
        for file in self._files:
            file.close()


@contextmanager
def workplace(target: Path) -> Iterator[Workplace]:
    """Make a new folder that becomes `target` at the end, or disappears.

    What a killed process left is removed with a warning; a running build of the same store is
    an error. Folders of others under the name of a place are left alone.
    """
    _refuse_existing(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot build {target}: there is no folder {target.parent}")
    with _claimed(target) as folder:
        files = folder / FILES
        files.mkdir()
        place = Workplace(files)
        try:
            yield place
        finally:
            place.close()
        _publish(files, target)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: delete it, or build the store elsewhere")


def _publish(files: Path, target: Path) -> None:
    """Let a complete folder, whose files are on the disk, appear as the store."""
    sync_folder(files)
    _refuse_existing(target)  # a folder without files, which the rename would replace
    try:
        os.rename(files, target)
    except OSError:
        _refuse_existing(target)
        raise
    try:
        sync_folder(target.parent)
    except OSError:
        os.rename(target, files)
        raise


# --- whose place it is ---------------------------------------------------------------------


@contextmanager
def _claimed(target: Path) -> Iterator[Path]:
    """Hold a place, empty but for its mark, and remove it at the end."""
    folder, mark = _claim(target)
    try:
        _refuse_existing(target)  # by a build that ended just before this one claimed the place
        yield folder
    finally:
        _clear(folder)
        _remove_mark(folder)
        mark.close()  # not before: whoever gets the lock of a mark that is there takes it over


def _claim(target: Path) -> tuple[Path, io.FileIO]:
    """Return a place and its mark, locked; what is there and not ours has another name tried."""
    number = 0
    while True:
        _refuse_existing(target)
        folder = target.parent / f".{target.name}.partial{f'-{number}' if number else ''}"
        with suppress(FileExistsError):
            return folder, _made(folder)
        mark = _marked(folder)
        if mark is None:
            number += os.path.lexists(folder)  # else it is gone, and the name free
            continue
        with ExitStack() as undo:
            undo.callback(mark.close)
            _lock_leftover(folder, mark)
            if not is_at(mark, folder / MARK):  # that build has ended, or another one begun
                continue
            if not _holds_only_ours(folder):
                number += 1
                continue
            warn(f"removing {folder}, left behind by a build that was interrupted")
            _clear(folder)
            undo.pop_all()
            return folder, mark


def _made(folder: Path) -> io.FileIO:
    """Make a place and return its mark, locked before it can be told to be ours."""
    folder.mkdir()
    with ExitStack() as undo:
        undo.callback(_remove_mark, folder)
        mark = undo.enter_context(io.FileIO(folder / MARK, "xb"))
        has_locks = is_locked(mark)
        mark.write(MARK_TEXT)
        os.fsync(mark.fileno())
        undo.pop_all()
    if not has_locks:  # and perhaps no way to remove an open file
        mark.close()
    return mark


def _marked(folder: Path) -> io.FileIO | None:
    """Open the mark of a place that a build made; None for a folder of anyone else."""
    try:
        is_place = stat.S_ISDIR(folder.lstat().st_mode) and not (folder / MARK).is_symlink()
        if not is_place:
            return None
        mark = open_regular(folder / MARK)
    except OSError:
        return None
    with suppress(OSError):
        if mark.read(len(MARK_TEXT) + 1) == MARK_TEXT:
            return mark
    mark.close()
    return None


def _lock_leftover(folder: Path, mark: io.FileIO) -> None:
    """Get the lock of the mark of a place that was there: no living process has it then."""
    try:
        if is_locked(mark):
            return
    except BlockingIOError:
        raise FileExistsError(f"{folder} is in use: another build is running") from None
    raise FileExistsError(
        f"{folder} exists: another build is running, or one was interrupted; delete it if none is "
        "running"
    )


def _holds_only_ours(folder: Path) -> bool:
    """Tell whether all that is in a marked place was written by a build."""
    try:
        with os.scandir(folder) as found:
            names = {entry.name for entry in found}
        if not names <= {MARK, FILES}:
            return False
        if FILES not in names:
            return True
        if (folder / FILES).is_symlink():
            return False
        with os.scandir(folder / FILES) as found:
            return all(
                entry.name in NAMES and entry.is_file(follow_symlinks=False) for entry in found
            )
    except OSError:
        return False


def _clear(folder: Path) -> None:
    """Remove the files of a build, by name: whatever else came there stays."""
    files = folder / FILES
    with suppress(OSError):
        for name in NAMES.intersection(os.listdir(files)):
            (files / name).unlink()
        files.rmdir()


def _remove_mark(folder: Path) -> None:
    with suppress(OSError):
        (folder / MARK).unlink()
    with suppress(OSError):
        folder.rmdir()
