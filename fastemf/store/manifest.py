"""The manifest of a store: which version, what shape, and every file's size and checksum."""

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
from fastemf.store.files import ArrayFile, header, open_regular

__all__ = [
    "FILE_NAMES", "LABEL_PARTS", "MANIFEST", "SIDES", "Manifest", "Segment", "StoreError",
    "StoredArray", "array_name", "reading", "segment_folder",
]  # fmt: skip

VERSION = 3
CHECKSUM_SINCE = 2  # the version from which on a manifest has a checksum of its own
SEGMENTS_SINCE = 3  # of stores that were appended to: others are written as the version before
FORMAT = "fastemf store"
MANIFEST = "manifest.json"
LONGEST = 1 << 24  # bytes of a manifest, which has a few lines for each file of a few segments
MOST_SEGMENTS = 1000  # that a reader believes in: an append merges them long before
SIDES = ("rows", "cols")
DTYPES = tuple(np.dtype(name).str for name in ("f4", "f8", "i4", "i8", "u8", "u1"))
LABEL_PARTS = ("labels", "label_offsets")  # of `fastemf.inputs.label_arrays`
PARTS = ("indptr", "indices", "values", "weights", "mass", *LABEL_PARTS)


class StoreError(ValueError):
    """A folder that is not a store, not a whole one, or not one this version can read."""


def array_name(axis: int, part: str) -> str:
    """Return the name of the file of a part of the rows (axis 0) or the columns (axis 1)."""
    return f"{SIDES[axis]}.{part}.npy"


def segment_folder(number: int) -> str:
    """Return the name of the folder of a segment that was appended."""
    return f"segment-{number}"


FILE_NAMES = frozenset({MANIFEST, *(array_name(axis, part) for axis in (0, 1) for part in PARTS)})


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says while a file of a store is read into an error that names it."""
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
        """Return what is to be said of a file that was written."""
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
    """Entries that were written together: those of a build, or of an append."""

    number: int  # of its folder; the entries of a build, which has 0, are in the store's own
    shape: tuple[int, int]  # of the store from then on
    size: int

    @property
    def folder(self) -> str:
        """Name of its folder within the store's, empty for the store's own."""
        return segment_folder(self.number) if self.number else ""

    def file(self, name: str) -> str:
        """Return the name within the store of a file in its folder."""
        return f"{self.folder}/{name}" if self.number else name


@dataclass(frozen=True)
class Manifest:
    """All that a reader must know before it reads an entry."""

    shape: tuple[int, int]
    size: int
    dtype: str
    weighted: bool
    labels: list[dict[str, Any]]  # what is said of those of rows and columns, or nothing
    files: dict[str, StoredArray]
    segments: tuple[Segment, ...] = ()  # in order, the latest last; none for a store as built

    @property
    def parts(self) -> tuple[Segment, ...]:
        """The segments, of which a store as it was built is one."""
        return self.segments or (Segment(0, self.shape, self.size),)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of the indices: 32 bits where they suffice."""
        return index_dtype(self.shape)

    def expected(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Return the type and length that each file must have."""
        found: dict[str, tuple[np.dtype[Any], int]] = {}
        value = np.dtype(self.dtype)
        for segment in self.parts:
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
                    # As long as they are: read with a check of their own.
                    stored = self.files.get(name, StoredArray("|u1", 0, 0))
                    found[name] = np.dtype(stored.dtype), stored.length
        return found

    def text(self) -> str:
        """Return the manifest as it is written."""
        fields = {"format": FORMAT, "version": VERSION, **asdict(self)}
        if not self.segments:
            del fields["segments"]
            fields["version"] = SEGMENTS_SINCE - 1
        return json.dumps(fields | {"crc32": _checksum(fields)}, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check the manifest, and that every file is there and as long as it says."""
        path = folder / MANIFEST
        fields = _parsed(path, _content(folder))
        if fields.get("format") != FORMAT:
            raise StoreError(
                f"{path} is damaged, or of another program: its format is not {FORMAT!r}"
            )
        version = fields.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise StoreError(
                f"{path}: store version {reprlib.repr(version)}, while this fastemf reads 1 to "
                f"{VERSION}; build the store again, or use the fastemf that wrote it"
            )
        since = {"crc32": CHECKSUM_SINCE, "segments": SEGMENTS_SINCE}
        rules = {name: rule for name, rule in RULES.items() if version >= since.get(name, 1)}
        for name, (is_right, what) in rules.items():
            if not is_right(fields.get(name)):
                raise StoreError(f"{path} is damaged: {name} must be {what}")
        if odd := sorted(fields.keys() - rules.keys() - {"format", "version"}):
            raise StoreError(f"{path} is damaged: {reprlib.repr(odd[0])} does not belong")
        manifest = cls(
            shape=(fields["shape"][0], fields["shape"][1]),
            size=fields["size"],
            dtype=fields["dtype"],
            weighted=fields["weighted"],
            labels=fields["labels"],
            files={name: StoredArray(**stored) for name, stored in fields["files"].items()},
            segments=tuple(
                Segment(told["number"], (told["shape"][0], told["shape"][1]), told["size"])
                for told in fields.get("segments", ())
            ),
        )
        manifest._check_segments(path)
        manifest._check_files(folder)
        if "crc32" in rules and fields.pop("crc32") != _checksum(fields):
            raise StoreError(f"{path} is damaged: its checksum is not that of its content")
        return manifest

    def _check_segments(self, path: Path) -> None:
        grows = all(
            before.number < here.number and all(map(int.__le__, before.shape, here.shape))
            for before, here in pairwise(self.parts)
        )
        if not grows or self.parts[-1].shape != self.shape:
            raise StoreError(f"{path} is damaged: segments must grow up to shape {self.shape}")
        if sum(segment.size for segment in self.parts) != self.size:
            raise StoreError(f"{path} is damaged: segments must add up to {self.size} entries")

    def _check_files(self, folder: Path) -> None:
        expected = self.expected()
        if expected.keys() != self.files.keys():
            odd = sorted(expected.keys() ^ self.files.keys())[: len(FILE_NAMES)]
            names = (
                name if name in FILE_NAMES | expected.keys() else reprlib.repr(name) for name in odd
            )
            raise StoreError(f"{folder / MANIFEST} is damaged: {', '.join(names)} does not belong")
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
        raise StoreError(f"{path} is damaged, or of another program: it has {size} bytes")
    return content


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:  # no Unicode, no JSON, too long a number, depth
        raise StoreError(f"{path} is damaged, or of another program ({error})") from None
    if not isinstance(fields, dict):
        raise StoreError(f"{path} is damaged, or of another program: it is no JSON object")
    return fields


def _checksum(fields: dict[str, Any]) -> int:
    """Return the CRC-32 of the manifest's content, whatever its layout."""
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < np.iinfo(np.int64).max


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_positive, value))


def _is_about_labels(value: Any) -> bool:
    """Tell whether it is what `fastemf.inputs.label_arrays` says of both sides, or nothing."""
    if not isinstance(value, list) or len(value) not in (0, 2):
        return False
    return all(
        isinstance(about, dict)
        and {"kind", "name"} == set(about)
        and all(isinstance(text, str) and _is_unicode(text) for text in about.values())
        for about in value
    )


def _is_unicode(text: str) -> bool:
    """Tell whether a text can be written: JSON may hold halves of characters."""
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


# What the fields of a manifest must be.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "shape": (_is_shape, "two positive counts"),
    "size": (_is_positive, "a positive count"),
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
    "weighted": (lambda value: type(value) is bool, "true or false"),
    "labels": (_is_about_labels, "a kind and a name for rows and for columns, or nothing"),
    "files": (_is_files, "a type, a length and a checksum for each file"),
    "segments": (_is_segments, "a number, a shape and a size for each segment"),
    "crc32": (_is_count, "a checksum"),
}
