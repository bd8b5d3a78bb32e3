"""Folders of segments within that of a store: made, let into the store, and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastemf.store.files import sync_folder
from fastemf.store.locks import is_free
from fastemf.store.manifest import FILE_NAMES, MANIFEST, Manifest, array_name, segment_folder
from fastemf.store.workplace import NAMES, Workplace
from fastemf.support.whole_file import replacing

__all__ = ["clear_unused", "publish", "segment_place"]


@contextmanager
def segment_place(folder: Path, manifest: Manifest) -> Iterator[tuple[int, Workplace]]:
    """Make the folder of a new segment; yield its number, above all others, and the place."""
    number = 1 + max(segment.number for segment in manifest.parts)
    while os.path.lexists(folder / segment_folder(number)):  # what readers or users still have
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
    """Let a store be what a manifest says, whose files are on the disk."""
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
    with replacing(path, "the manifest of a store") as file:
        file.write(content)


def clear_unused(folder: Path) -> None:
    """Remove the segments that the store does not have, and nobody reads; other files stay.

    They were merged into another, or what is to append them was killed.
    """
    used = {segment.number for segment in Manifest.read(folder).parts}
    if 0 not in used:
        _clear(folder, FILE_NAMES - {MANIFEST})
    with os.scandir(folder) as found:
        names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    for name in names:
        number = re.fullmatch(r"segment-([1-9][0-9]*)", name)
        if number and int(number[1]) not in used:
            _clear(folder / name, NAMES)
            with suppress(OSError):  # a file of someone else
                (folder / name).rmdir()


def _clear(folder: Path, names: frozenset[str]) -> None:
    """Remove files of these names, unless a reader holds them."""
    if is_free(folder / array_name(0, "indptr")):
        for name in names.intersection(os.listdir(folder)):
            with suppress(OSError):
                (folder / name).unlink()
