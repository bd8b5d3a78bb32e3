"""The temporary folder in which a store is built, and which is removed after an error.

It is next to the target, and contains a marker file and a folder of files. The marker identifies
folders of fastemf, and is locked by the process that builds there; the system releases the lock
when the process ends. A rename turns the folder of files into the store. Only marked folders that
contain nothing but known files are ever removed.
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

from fastemf.sources.store.files import ArrayFile, open_regular, sync_folder
from fastemf.sources.store.manifest import FILE_NAMES
from fastemf.support.file_locks import is_at, try_lock
from fastemf.support.warn import warn

MARK = "lock"
MARK_TEXT = b"A store of fastemf is being built here.\n"
FILES = "store"
SPILLED = frozenset(f"spill.{part}" for part in ("rows", "cols", "values", "weights", "keys"))
NAMES = FILE_NAMES | SPILLED  # of all files written by a build


class Workplace:
    """Folder of an incomplete store, and its open files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[ArrayFile] = []

    def create(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> ArrayFile:
        """Create a file in the folder."""
        assert name in NAMES  # else it would never be removed
        file = ArrayFile(self._folder / name, dtype, length)
        self._files.append(file)
        return file

    def check_space(self, needed: int) -> None:
        """Raise an error if the disk has too little space."""
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise OSError(
                f"writing the store needs {needed:,} bytes in {self._folder.parents[1]}, where "
                f"{free:,} bytes are free"
            )

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()


@contextmanager
def workplace(target: Path) -> Iterator[Workplace]:
    """Create a folder that becomes `target` at the end, or is removed after an error.

    Leftovers of a killed process are removed with a warning. A running build of the same store is
    an error. Other folders of the same name are not touched.
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
        raise FileExistsError(f"{target} exists: delete it, or choose another path")


def _publish(files: Path, target: Path) -> None:
    """Rename a complete folder, whose files are on the disk, to the target."""
    sync_folder(files)
    _refuse_existing(target)  # the rename would replace an empty folder
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


# --- ownership of the folder ---------------------------------------------------------------------


@contextmanager
def _claimed(target: Path) -> Iterator[Path]:
    """Claim a folder that is empty except for its marker, and remove it at the end."""
    folder, mark = _claim(target)
    try:
        _refuse_existing(target)  # created by a build that ended just before
        yield folder
    finally:
        _clear(folder)
        _remove_mark(folder)
        mark.close()  # after the removal: another build that locks the marker takes it over


def _claim(target: Path) -> tuple[Path, io.FileIO]:
    """Return a folder and its locked marker; try further names if others use the first one."""
    number = 0
    while True:
        _refuse_existing(target)
        folder = target.parent / f".{target.name}.partial{f'-{number}' if number else ''}"
        with suppress(FileExistsError):
            return folder, _create(folder)
        mark = _marked(folder)
        if mark is None:
            number += os.path.lexists(folder)  # else it was removed meanwhile
            continue
        with ExitStack() as undo:
            undo.callback(mark.close)
            _lock_leftover(folder, mark)
            if not is_at(folder / MARK, mark.fileno()):  # removed by the build that held it
                continue
            if not _has_only_known_files(folder):
                number += 1
                continue
            warn(f"removing {folder}, left by an interrupted build")
            _clear(folder)
            undo.pop_all()
            return folder, mark


def _create(folder: Path) -> io.FileIO:
    """Create a folder and its marker, which is locked before its text is written."""
    folder.mkdir()
    with ExitStack() as undo:
        undo.callback(_remove_mark, folder)
        mark = undo.enter_context(io.FileIO(folder / MARK, "xb"))
        locked = try_lock(mark.fileno())
        mark.write(MARK_TEXT)
        os.fsync(mark.fileno())
        undo.pop_all()
    if not locked:  # such systems may not allow removing an open file
        mark.close()
    return mark


def _marked(folder: Path) -> io.FileIO | None:
    """Open the marker of a folder created by a build; return None for other folders."""
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
    """Lock the marker of an existing folder, which fails while another build is running."""
    locked = try_lock(mark.fileno())
    if locked:
        return
    if locked is False:
        raise FileExistsError(f"{folder} is in use: another build is running")
    raise FileExistsError(
        f"{folder} exists: another build is running, or one was interrupted; delete it if none is "
        "running"
    )


def _has_only_known_files(folder: Path) -> bool:
    """Return whether a marked folder contains only files of a build."""
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
    """Remove the files of a build by name; other files stay."""
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
