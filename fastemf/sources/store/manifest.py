"""The manifest of a store: version, shape, and size and checksum of every file."""

from __future__ import annotations

import json
import os
import reprlib
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.entries import index_dtype
from fastemf.sources.store.files import ArrayFile, header, open_regular

VERSION = 1
FORMAT = "fastemf store"
MANIFEST = "manifest.json"
LONGEST = 1 << 24  # bytes of a manifest; a valid one has a few lines per file
SIDES = ("rows", "cols")
RAW = "|V1"  # type of files that are not arrays
DTYPES = (RAW, *(np.dtype(name).str for name in ("f4", "f8", "i4", "i8", "u8", "u1")))
LABEL_PARTS = ("labels", "label_offsets")  # of `fastemf.inputs.label_arrays`
POSITIONS = "rows.positions.npy"  # of the observations of each row among the lines of the source
COLUMN_ROLES = ("rows", "cols", "values", "weights")


class StoreError(ValueError):
    """A folder that is not a store, is damaged, or has a version that cannot be read."""


def array_name(axis: int, part: str) -> str:
    """Return the file name of an array of the rows (axis 0) or the columns (axis 1)."""
    return f"{SIDES[axis]}.{part}.npy"


def columns_name(part: int) -> str:
    """Return the file name of further columns, of which each build or append writes one part."""
    return f"columns-{part}.parquet"


def data_folder(folder: Path, generation: int) -> Path:
    """Return the folder of the files of one generation; each append writes a new generation."""
    return folder / f"data-{generation}"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn system errors while a file is read into a `StoreError` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise StoreError(f"{path} is missing: the store is incomplete") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True)
class StoredArray:
    """Type, length and checksum of one file."""

    dtype: str
    length: int
    crc32: int

    @classmethod
    def of(cls, file: ArrayFile) -> StoredArray:
        """Describe a written file."""
        return cls(file.dtype.str, file.length, file.crc32)

    @property
    def header(self) -> bytes:
        """Header of the file."""
        return b"" if self.dtype == RAW else header(np.dtype(self.dtype), self.length)

    @property
    def bytes(self) -> int:
        """Size of the whole file."""
        return len(self.header) + self.length * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Manifest:
    """The properties of a store and its files."""

    generation: int
    shape: tuple[int, int]
    size: int
    dtype: str
    weighted: bool
    labels: list[dict[str, Any]]  # kind and name of row and column labels; empty without labels
    columns: dict[str, str | None]  # names of the columns of the source by role
    more: list[str]  # names of further columns
    parts: int  # files of further columns
    files: dict[str, StoredArray]

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of the indices: 32 bits if they suffice."""
        return index_dtype(self.shape)

    def expected(self) -> dict[str, tuple[str, int]]:
        """Return the expected type and length of each file."""
        found: dict[str, tuple[str, int]] = {}
        value, index, wide = (np.dtype(kind).str for kind in (self.dtype, self.index_dtype, "i8"))
        for axis, n in enumerate(self.shape):
            kinds = {"indptr": (wide, n + 1), "indices": (index, self.size)}
            kinds["values"] = (value, self.size)
            if self.weighted:
                kinds |= {"weights": (value, self.size), "mass": (np.dtype("f8").str, n)}
            found |= {array_name(axis, part): kind for part, kind in kinds.items()}
        if self.more:
            found[POSITIONS] = (wide, self.size)
        # Any length: labels and further columns are checked when they are read.
        free = [array_name(axis, part) for axis in (0, 1) for part in LABEL_PARTS if self.labels]
        free += [columns_name(part) for part in range(1, 1 + self.parts)]
        for name in free:
            stored = self.files.get(name, StoredArray(RAW, 0, 0))
            found[name] = stored.dtype, stored.length
        return found

    def text(self) -> str:
        """Return the manifest as JSON."""
        fields = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(fields | {"crc32": _checksum(fields)}, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check the manifest, and check that every file exists and has the right size."""
        path = folder / MANIFEST
        fields = _parsed(path, _content(folder))
        if fields.pop("format", None) != FORMAT:
            raise StoreError(f"{path} is damaged or not a manifest: its format is not {FORMAT!r}")
        version = fields.pop("version", None)
        if type(version) is not int or version != VERSION:
            raise StoreError(
                f"{path}: store version {reprlib.repr(version)}, while this fastemf reads version "
                f"{VERSION}; build the store again, or use the fastemf that wrote it"
            )
        for name, (is_right, what) in RULES.items():
            if not is_right(fields.get(name)):
                raise StoreError(f"{path} is damaged: {name} must be {what}")
        if odd := sorted(fields.keys() - RULES.keys()):
            raise StoreError(f"{path} is damaged: unexpected field {reprlib.repr(odd[0])}")
        checksum = fields.pop("crc32")
        given = _checksum({"format": FORMAT, "version": VERSION, **fields})
        files = {name: StoredArray(**stored) for name, stored in fields["files"].items()}
        manifest = cls(**fields | {"shape": tuple(fields["shape"]), "files": files})
        manifest._check_files(folder)
        if checksum != given:
            raise StoreError(f"{path} is damaged: its checksum does not match its content")
        return manifest

    def _check_files(self, folder: Path) -> None:
        expected = self.expected()
        if expected.keys() != self.files.keys():
            odd = sorted(expected.keys() ^ self.files.keys())[: len(expected)]
            names = (name if name in expected else reprlib.repr(name) for name in odd)
            raise StoreError(
                f"{folder / MANIFEST} is damaged: missing or unexpected files {', '.join(names)}"
            )
        for name, stored in self.files.items():
            dtype, length = expected[name]
            if (stored.dtype, stored.length) != (dtype, length):
                raise StoreError(
                    f"{folder / MANIFEST} is damaged: {name} must be {length} x {dtype}, got "
                    f"{stored.length} x {stored.dtype}"
                )
            path = data_folder(folder, self.generation) / name
            with reading(path):
                actual = path.stat()
            if not stat.S_ISREG(actual.st_mode):
                raise StoreError(f"{path} cannot be read: it is not a regular file")
            if actual.st_size != stored.bytes:
                raise StoreError(
                    f"{path} has {actual.st_size} bytes instead of {stored.bytes}: it is truncated "
                    "or was changed"
                )


def _content(folder: Path) -> bytes:
    path = folder / MANIFEST
    try:
        os.stat(folder)
    except (FileNotFoundError, ValueError):  # ValueError: no path at all
        raise FileNotFoundError(f"{folder}: there is no such folder") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from None
    with reading(path):
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.readall() if size <= LONGEST else b""
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"{folder} is not a store: it has no {MANIFEST}; build one with fastemf.store.build"
            ) from None
    if size > LONGEST:
        raise StoreError(f"{path} is damaged or not a manifest: it has {size} bytes")
    return content


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:  # not Unicode, not JSON, too deep
        raise StoreError(f"{path} is damaged or not a manifest ({error})") from None
    if not isinstance(fields, dict):
        raise StoreError(f"{path} is damaged or not a manifest: it is not a JSON object")
    return fields


def _checksum(fields: dict[str, Any]) -> int:
    """Return the CRC-32 of the content, independent of the layout."""
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < np.iinfo(np.int64).max


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_positive, value))


def _is_text(value: Any) -> bool:
    """Return whether this is a string that can be encoded: JSON may contain lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_labels(value: Any) -> bool:
    """Return whether this describes the labels of both sides, or is empty."""
    return isinstance(value, list) and len(value) in (0, 2) and all(
        isinstance(about, dict) and {"kind", "name"} == set(about)
        and all(map(_is_text, about.values()))
        for about in value
    )  # fmt: skip


def _is_columns(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == set(COLUMN_ROLES) and all(
        name is None or _is_text(name) for name in value.values()
    )  # fmt: skip


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(stored, dict)
        and set(stored) == {"dtype", "length", "crc32"}
        and stored["dtype"] in DTYPES
        and _is_count(stored["length"])
        and _is_count(stored["crc32"])
        for stored in value.values()
    )


# Fields of a manifest: check, and rule for the message.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "generation": (_is_positive, "a positive count"),
    "shape": (_is_shape, "two positive counts"),
    "size": (_is_positive, "a positive count"),
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
    "weighted": (lambda value: type(value) is bool, "true or false"),
    "labels": (_is_labels, "a kind and a name for rows and for columns, or empty"),
    "columns": (_is_columns, "the names of the columns of rows, cols, values and weights"),
    "more": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "names"),
    "parts": (lambda value: _is_count(value) and value < 10_000, "a count"),
    "files": (_is_files, "a type, a length and a checksum for each file"),
    "crc32": (_is_count, "a checksum"),
}
