"""Folders of stores: one writer at a time, atomic publication, and locks of readers.

A writer works in a temporary folder with a marker file, which it locks; the system releases the
lock when the process ends, however it ends. A rename publishes the result. A reader locks a file of
the generation that it reads, so that an append does not remove it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fastemf.sources.store.files import open_regular, sync_folder
from fastemf.sources.store.manifest import MANIFEST, Manifest, array_name, data_folder, reading
from fastemf.support.atomic_file import replace_file
from fastemf.support.file_locks import CAREFULLY, is_at, try_lock
from fastemf.support.warn import warn

MARK = "lock"
STAGE = "store"  # folder of the files to publish
SCRATCH = "scratch"  # folder of temporary files
FILE_NAME = re.compile(r"(rows|cols)\.[a-z_]+\.npy|columns\.parquet")


@contextmanager
def workplace(folder: Path, task: str) -> Iterator[Path]:
    """Create a folder with the empty folders `STAGE` and `SCRATCH`, and remove it at the end.

    Leftovers of a killed process are removed with a warning. If another process is working in the
    folder, this is an error. A folder with other files is not touched.
    """
    mark = _claim(folder, task)
    try:
        for name in (STAGE, SCRATCH):
            (folder / name).mkdir()
        yield folder
    finally:
        _clear(folder)
        with suppress(OSError):
            (folder / MARK).unlink()
        with suppress(OSError):
            folder.rmdir()
        mark.close()  # after the removal: another process that locks the marker starts again


def _claim(folder: Path, task: str) -> io.FileIO:
    """Create a folder, or take over that of a killed process; return its locked marker."""
    while True:
        is_new = False
        with suppress(FileExistsError):
            folder.mkdir()
            is_new = True
        with ExitStack() as undo:
            try:
                is_folder = stat.S_ISDIR(folder.lstat().st_mode)
                names = set(os.listdir(folder)) if is_folder else {""}
                if not names <= {MARK, STAGE, SCRATCH} or (names and MARK not in names):
                    raise FileExistsError(f"{folder} is in the way: move it elsewhere")
                mark = io.FileIO(folder / MARK, "ab", opener=_open_carefully)
            except FileNotFoundError:  # removed meanwhile by the process that held it
                continue
            except OSError as error:  # the marker is a link or a pipe
                if isinstance(error, FileExistsError):
                    raise
                raise FileExistsError(f"{folder} is in the way: {error.strerror}") from None
            undo.callback(mark.close)
            locked = try_lock(mark.fileno())
            if locked is False:
                raise FileExistsError(f"{folder} is in use: another {task} is running")
            if not locked and not is_new:
                raise FileExistsError(
                    f"{folder} exists: another {task} is running, or one was interrupted; delete "
                    "it if none is running"
                )
            if not is_at(folder / MARK, mark.fileno()):
                continue
            if not is_new and len(os.listdir(folder)) > 1:
                warn(f"removing {folder}, left by an interrupted {task}")
                _clear(folder)
            undo.pop_all()
        if not locked:  # such systems may not allow removing an open file
            mark.close()
        return mark


def _clear(folder: Path) -> None:
    for name in (STAGE, SCRATCH):
        shutil.rmtree(folder / name, ignore_errors=True)


def _open_carefully(path: str, flags: int) -> int:
    return os.open(path, flags | CAREFULLY, 0o666)


# --- publication ------------------------------------------------------------------------------


def check_absent(target: Path) -> None:
    """Raise an error if the folder of a new store exists, or its parent does not."""
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: delete it, or choose another path")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot build {target}: there is no folder {target.parent}")


def publish_store(stage: Path, target: Path, manifest: Manifest) -> None:
    """Write the manifest, and rename a complete folder, whose files are on the disk."""
    _write_manifest(stage, manifest)
    sync_folder(data_folder(stage, manifest.generation))
    sync_folder(stage)
    check_absent(target)  # the rename would replace an empty folder
    try:
        os.rename(stage, target)
    except OSError:
        check_absent(target)
        raise
    try:
        sync_folder(target.parent)
    except OSError:
        os.rename(target, stage)
        raise


def publish_generation(stage: Path, folder: Path, manifest: Manifest) -> None:
    """Move the files of a new generation into a store, and replace its manifest."""
    sync_folder(data_folder(stage, manifest.generation))
    here = data_folder(folder, manifest.generation)
    os.rename(data_folder(stage, manifest.generation), here)
    before = (folder / MANIFEST).read_bytes()
    try:
        sync_folder(folder)
        _write_manifest(folder, manifest)
    except BaseException:  # an interrupt may arrive just after the replacement
        if (folder / MANIFEST).read_bytes() == before:
            os.rename(here, data_folder(stage, manifest.generation))
        raise
    try:
        sync_folder(folder)
    except OSError:
        with replace_file(folder / MANIFEST, "the manifest of a store") as file:
            file.write(before)
        if _is_free(here, False):
            _remove(here)
        raise


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with replace_file(folder / MANIFEST, "the manifest of a store") as file:
        file.write(manifest.text().encode())


# --- generations ------------------------------------------------------------------------------


class Hold:
    """Shared lock of a generation, held as long as this object exists."""

    def __init__(self, folder: Path, generation: int) -> None:
        path = data_folder(folder, generation) / array_name(0, "indptr")
        with reading(path):
            file = open_regular(path)
        weakref.finalize(self, file.close)
        # If this fails, the file is about to be removed, which `hold_state` detects.
        try_lock(file.fileno(), shared=True)


def generations(folder: Path) -> list[int]:
    """Return the numbers of all generations in the folder of a store."""
    found = (re.fullmatch(r"data-([1-9][0-9]{0,17})", name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def clear_unused(folder: Path, current: int) -> None:
    """Remove the generations of a store that are neither current nor read by a process."""
    others = [number for number in generations(folder) if number != current]
    complete = (n for n in others if (data_folder(folder, n) / array_name(0, "indptr")).exists())
    previous = max((number for number in complete if number < current), default=0)
    for number in others:
        if _is_free(data_folder(folder, number), number == previous):
            _remove(data_folder(folder, number))


def _remove(folder: Path) -> None:
    """Remove the files of a generation by name; other files, and what a link points to, stay."""
    if folder.is_symlink():
        return
    with suppress(OSError):
        for name in filter(FILE_NAME.fullmatch, os.listdir(folder)):
            (folder / name).unlink()
        folder.rmdir()


def _is_free(folder: Path, is_previous: bool) -> bool:
    """Return whether no process reads a generation; without locks, all but the previous are."""
    try:
        # Opened for writing, which some network file systems need for an exclusive lock.
        with io.FileIO(folder / array_name(0, "indptr"), "r+b", opener=_open_carefully) as file:
            locked = try_lock(file.fileno())
    except FileNotFoundError:
        return True
    except OSError:  # not writable by this user
        return False
    return locked or (locked is None and not is_previous)
