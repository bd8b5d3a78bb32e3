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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.entries import index_dtype
from fastemf.sources.store.files import ArrayFile, header, open_regular

VERSION = 1
FORMAT = "fastemf store"
MANIFEST = "manifest.json"
LONGEST = 1 << 24  # bytes of a manifest; a valid one has a few lines per file
MOST_SEGMENTS = 1000  # a valid store has fewer, because appends merge segments
SIDES = ("rows", "cols")
DTYPES = tuple(np.dtype(name).str for name in ("f4", "f8", "i4", "i8", "u8", "u1"))
LABEL_PARTS = ("labels", "label_offsets")  # of `fastemf.inputs.label_arrays`
PARTS = ("indptr", "indices", "values", "weights", "mass", *LABEL_PARTS)


class StoreError(ValueError):
    """A folder that is not a store, is damaged, or has a version that cannot be read."""


def array_name(axis: int, part: str) -> str:
    """Return the file name of an array of the rows (axis 0) or the columns (axis 1)."""
    return f"{SIDES[axis]}.{part}.npy"


def segment_folder(number: int) -> str:
    """Return the folder name of an appended segment."""
    return f"segment-{number}"


FILE_NAMES = frozenset({MANIFEST, *(array_name(axis, part) for axis in (0, 1) for part in PARTS)})


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
    def data(self) -> int:
        """Offset at which the elements begin."""
        return len(header(np.dtype(self.dtype), self.length))

    @property
    def bytes(self) -> int:
        """Size of the whole file."""
        return self.data + self.length * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Segment:
    """Entries that were written together, by a build or an append."""

    number: int  # of its folder; 0 for a build, whose files are in the folder of the store
    shape: tuple[int, int]  # of the store with this segment
    size: int

    @property
    def folder(self) -> str:
        """Name of its folder within the folder of the store; empty for a build."""
        return segment_folder(self.number) if self.number else ""

    def file(self, name: str) -> str:
        """Return the name of a file of the segment, relative to the store."""
        return f"{self.folder}/{name}" if self.number else name


@dataclass(frozen=True)
class Manifest:
    """The properties of a store and its files."""

    shape: tuple[int, int]
    size: int
    dtype: str
    weighted: bool
    labels: list[dict[str, Any]]  # kind and name of row and column labels; empty without labels
    files: dict[str, StoredArray]
    segments: tuple[Segment, ...]  # in the order in which they were written

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of the indices: 32 bits if they suffice."""
        return index_dtype(self.shape)

    def expected(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Return the expected type and length of each file."""
        found: dict[str, tuple[np.dtype[Any], int]] = {}
        value = np.dtype(self.dtype)
        for segment in self.segments:
            for axis, n in enumerate(segment.shape):
                kinds = {
                    "indptr": (np.dtype(np.int64), n + 1),
                    "indices": (index_dtype(segment.shape), segment.size),
                    "values": (value, segment.size),
                }
                if self.weighted:
                    kinds |= {"weights": (value, segment.size), "mass": (np.dtype(np.float64), n)}
                found |= {
                    segment.file(array_name(axis, part)): kind for part, kind in kinds.items()
                }
                for part in LABEL_PARTS if self.labels else ():
                    name = segment.file(array_name(axis, part))
                    # Any length: labels are checked when they are read.
                    stored = self.files.get(name, StoredArray("|u1", 0, 0))
                    found[name] = np.dtype(stored.dtype), stored.length
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
        if fields.get("format") != FORMAT:
            raise StoreError(f"{path} is damaged or not a manifest: its format is not {FORMAT!r}")
        version = fields.get("version")
        if type(version) is not int or version != VERSION:
            raise StoreError(
                f"{path}: store version {reprlib.repr(version)}, while this fastemf reads version "
                f"{VERSION}; build the store again, or use the fastemf that wrote it"
            )
        for name, (is_right, what) in RULES.items():
            if not is_right(fields.get(name)):
                raise StoreError(f"{path} is damaged: {name} must be {what}")
        if odd := sorted(fields.keys() - RULES.keys() - {"format", "version"}):
            raise StoreError(f"{path} is damaged: unexpected field {reprlib.repr(odd[0])}")
        manifest = cls(
            shape=(fields["shape"][0], fields["shape"][1]),
            size=fields["size"],
            dtype=fields["dtype"],
            weighted=fields["weighted"],
            labels=fields["labels"],
            files={name: StoredArray(**stored) for name, stored in fields["files"].items()},
            segments=tuple(
                Segment(one["number"], (one["shape"][0], one["shape"][1]), one["size"])
                for one in fields["segments"]
            ),
        )
        manifest._check_segments(path)
        manifest._check_files(folder)
        if fields.pop("crc32") != _checksum(fields):
            raise StoreError(f"{path} is damaged: its checksum does not match its content")
        return manifest

    def _check_segments(self, path: Path) -> None:
        grows = all(
            before.number < here.number and all(map(int.__le__, before.shape, here.shape))
            for before, here in pairwise(self.segments)
        )
        if not grows or self.segments[-1].shape != self.shape:
            raise StoreError(f"{path} is damaged: segments must grow up to shape {self.shape}")
        if sum(segment.size for segment in self.segments) != self.size:
            raise StoreError(f"{path} is damaged: segments must add up to {self.size} entries")

    def _check_files(self, folder: Path) -> None:
        expected = self.expected()
        if expected.keys() != self.files.keys():
            odd = sorted(expected.keys() ^ self.files.keys())[: len(FILE_NAMES)]
            names = (
                name if name in FILE_NAMES | expected.keys() else reprlib.repr(name) for name in odd
            )
            raise StoreError(
                f"{folder / MANIFEST} is damaged: missing or unexpected files {', '.join(names)}"
            )
        for name, stored in self.files.items():
            dtype, length = expected[name]
            if stored.dtype != dtype.str or stored.length != length:
                raise StoreError(
                    f"{folder / MANIFEST} is damaged: {name} must be {length} x {dtype.str}, got "
                    f"{stored.length} x {stored.dtype}"
                )
            with reading(folder / name):
                actual = (folder / name).stat()
            if not stat.S_ISREG(actual.st_mode):
                raise StoreError(f"{folder / name} cannot be read: it is not a regular file")
            if actual.st_size != stored.bytes:
                raise StoreError(
                    f"{folder / name} has {actual.st_size} bytes instead of {stored.bytes}: it is "
                    "truncated or was changed"
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
    except (
        ValueError,
        RecursionError,
    ) as error:  # not Unicode, not JSON, too many digits, too deep
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


def _is_labels(value: Any) -> bool:
    """Return whether this describes the labels of both sides, or is empty."""
    if not isinstance(value, list) or len(value) not in (0, 2):
        return False
    return all(
        isinstance(about, dict)
        and {"kind", "name"} == set(about)
        and all(isinstance(text, str) and _is_unicode(text) for text in about.values())
        for about in value
    )


def _is_unicode(text: str) -> bool:
    """Return whether a string can be encoded: JSON may contain lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(stored, dict)
        and set(stored) == {"dtype", "length", "crc32"}
        and stored["dtype"] in DTYPES
        and _is_count(stored["length"])
        and _is_count(stored["crc32"])
        for stored in value.values()
    )


def _is_segments(value: Any) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_SEGMENTS:
        return False
    return all(
        isinstance(segment, dict)
        and set(segment) == {"number", "shape", "size"}
        and _is_count(segment["number"])
        and _is_shape(segment["shape"])
        and _is_positive(segment["size"])
        for segment in value
    )


# Fields of a manifest: check, and rule for the message.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "shape": (_is_shape, "two positive counts"),
    "size": (_is_positive, "a positive count"),
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
    "weighted": (lambda value: type(value) is bool, "true or false"),
    "labels": (_is_labels, "a kind and a name for rows and for columns, or empty"),
    "files": (_is_files, "a type, a length and a checksum for each file"),
    "segments": (_is_segments, "a number, a shape and a size for each segment"),
    "crc32": (_is_count, "a checksum"),
}
