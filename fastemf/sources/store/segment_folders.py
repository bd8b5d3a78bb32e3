"""Folders of segments within the folder of a store: created, published, and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastemf.sources.store.files import sync_folder
from fastemf.sources.store.locks import is_free
from fastemf.sources.store.manifest import (
    FILE_NAMES,
    MANIFEST,
    Manifest,
    array_name,
    segment_folder,
)
from fastemf.sources.store.workplace import NAMES, Workplace
from fastemf.support.atomic_file import replace_file


@contextmanager
def segment_place(folder: Path, manifest: Manifest) -> Iterator[tuple[int, Workplace]]:
    """Create the folder of a new segment; yield its number and the place for its files."""
    number = 1 + max(segment.number for segment in manifest.segments)
    while os.path.lexists(folder / segment_folder(number)):  # still in use by readers or users
        number += 1
    files = folder / segment_folder(number)
    files.mkdir()
    place = Workplace(files)
    try:
        yield number, place
    finally:
        place.close()
    sync_folder(files)


def publish(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store; the files are on the disk already."""
    sync_folder(folder)
    path = folder / MANIFEST
    before = path.read_bytes()
    _replace(path, manifest.text().encode())
    try:
        sync_folder(folder)
    except OSError:
        _replace(path, before)
        raise


def _replace(path: Path, content: bytes) -> None:
    with replace_file(path, "the manifest of a store") as file:
        file.write(content)


def clear_unused(folder: Path) -> None:
    """Remove segments that are neither part of the store nor in use by a reader.

    They were merged into another, or their append was killed. Other files stay.
    """
    used = {segment.number for segment in Manifest.read(folder).segments}
    if 0 not in used:
        _clear(folder, FILE_NAMES - {MANIFEST})
    with os.scandir(folder) as found:
        names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    for name in names:
        number = re.fullmatch(r"segment-([1-9][0-9]*)", name)
        if number and int(number[1]) not in used:
            _clear(folder / name, NAMES)
            with suppress(OSError):  # it contains other files
                (folder / name).rmdir()


def _clear(folder: Path, names: frozenset[str]) -> None:
    """Remove files of these names, unless a reader uses them."""
    if is_free(folder / array_name(0, "indptr")):
        for name in names.intersection(os.listdir(folder)):
            with suppress(OSError):
                (folder / name).unlink()
