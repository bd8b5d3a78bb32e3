"""Matrices in files: text or ``.npz``, possibly in a directory or a zip archive."""

from __future__ import annotations

import fnmatch
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.support.arrays import Floats

# Errors of zipfile for files that it cannot read; RuntimeError for encrypted ones.
NOT_AN_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class Found(NamedTuple):
    """A file on disk, or a member of an archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """Name in messages."""
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    @property
    def is_npz(self) -> bool:
        """Whether it is an NPZ file."""
        return (self.member or self.path.name).endswith(".npz")

    def open(self) -> IO[bytes]:
        """Open it in binary mode."""
        if self.member is None:
            return self.path.open("rb")
        with _archive(self.path) as archive:
            return io.BytesIO(archive.read(self.member))


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except NOT_AN_ARCHIVE as error:
        raise ValueError(f"{path}: expected a zip archive, not encrypted: {error}") from None


def find_matrices(path: str | os.PathLike[str], patterns: tuple[str, ...]) -> list[Found]:
    """Find the file itself, or the files in a directory or zip archive.

    The first pattern with a match in the directory or its subdirectories applies. Files are sorted
    with numbers in numeric order.
    """
    path = Path(path)
    if path.is_dir():
        candidates = [
            Found(file) for file in [*path.glob("*"), *path.glob("*/*")] if file.is_file()
        ]
    elif not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file or directory; expected {_words(patterns)}, or a directory or "
            "zip archive that contains it"
        )
    elif zipfile.is_zipfile(path) and path.suffix != ".npz":
        with _archive(path) as archive:
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX")]
        candidates = [Found(path, name) for name in names]
    else:
        return [Found(path)]
    for pattern in patterns:
        found = [
            one
            for one in candidates
            if fnmatch.fnmatch((one.member or one.path.name).rsplit("/", 1)[-1], pattern)
        ]
        if found:
            return sorted(found, key=lambda one: _by_number(one.name))
    raise FileNotFoundError(f"{path}: contains no {_words(patterns)}")


def read_text(found: Found) -> Floats:
    """Read a matrix of numbers separated by tabs or blanks, one row per line."""
    rows: list[Floats] = []
    with found.open() as file:
        lines = file.read().decode("utf-8", errors="replace").rstrip().splitlines()
    for number, line in enumerate(lines, 1):
        fields = line.split()
        try:
            row = np.array(fields, dtype=np.float64)
        except ValueError:
            column, field = next(
                (j, field) for j, field in enumerate(fields, 1) if not _is_number(field)
            )
            raise ValueError(
                f"{found.name}: line {number}, column {column}: expected a number, got {field!r}"
            ) from None
        if rows and row.size != rows[0].size:
            raise ValueError(
                f"{found.name}: line {number}: expected {rows[0].size} columns as in line 1, "
                f"got {row.size}"
            )
        if not np.isfinite(row).all():
            column = int(np.argmin(np.isfinite(row)))
            raise ValueError(
                f"{found.name}: line {number}, column {column + 1}: expected a finite number, "
                f"got {fields[column]!r}"
            )
        rows.append(row)
    if not rows or rows[0].size == 0:
        raise ValueError(f"{found.name}: line 1: expected a row of numbers, got an empty file")
    return np.stack(rows)


def read_npz(found: Found, keys: tuple[str, ...]) -> dict[str, NDArray[np.generic]]:
    """Read all arrays of a file, which must include `keys`."""
    try:
        with found.open() as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # NumPy, zipfile and zlib raise many types
        raise ValueError(f"{found.name}: expected an .npz file of arrays: {error}") from None
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise ValueError(
            f"{found.name}: expected the arrays {', '.join(keys)}, got {', '.join(arrays)}"
        )
    return arrays


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _words(patterns: tuple[str, ...]) -> str:
    return " or ".join(patterns)


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
