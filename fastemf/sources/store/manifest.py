"""The manifest of a store: version, shape, and size and checksum of every file."""

from __future__ import annotations

import json
import os
import re
import reprlib
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import one_line
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
COLUMNS = "columns.parquet"  # further columns, in the order of the source
POSITIONS = "rows.positions.npy"  # of the observations of each row among the lines of the source
COLUMN_ROLES = ("rows", "cols", "values", "weights")
SURROGATE = re.compile("[\ud800-\udfff]")
# The form of each field: a type (of counts int), a list of a form, a dictionary of forms by key
# (Any for any key), or a set of values.
FIELDS: dict[str, Any] = {
    "generation": int,
    "shape": [int],
    "size": int,
    "dtype": {"float32", "float64"},
    "weighted": bool,
    "labels": [{"kind": str, "name": str}],
    "columns": dict.fromkeys(COLUMN_ROLES, str | None),
    "more": [str],
    "files": {Any: {"dtype": set(DTYPES), "length": int, "crc32": int}},
    "crc32": int,
}


class StoreError(ValueError):
    """A folder that is not a store, is damaged, or has a version that cannot be read."""


def array_name(axis: int, part: str) -> str:
    """Return the file name of an array of the rows (axis 0) or the columns (axis 1)."""
    return f"{SIDES[axis]}.{part}.npy"


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
        raise StoreError(
            f"{path} cannot be read: {error.strerror or one_line(str(error))}"
        ) from None


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


def write_array(path: Path, array: NDArray[Any]) -> StoredArray:
    """Write an array as a file, and describe the file."""
    with ArrayFile(path, array.dtype, array.size) as file:
        file.append(array)
        file.finish()
    return StoredArray.of(file)


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
    files: dict[str, StoredArray]

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of the indices: 32 bits if they suffice."""
        return index_dtype(self.shape)

    def expected(self) -> dict[str, tuple[str, int] | None]:
        """Return the type and the length of each file; None where any is possible."""
        found: dict[str, tuple[str, int] | None] = {}
        value, index, wide = (np.dtype(kind).str for kind in (self.dtype, self.index_dtype, "i8"))
        for axis, n in enumerate(self.shape):
            kinds = {"indptr": (wide, n + 1), "indices": (index, self.size)}
            kinds["values"] = (value, self.size)
            if self.weighted:
                kinds["weights"] = (value, self.size)
            found |= {array_name(axis, part): kind for part, kind in kinds.items()}
        if self.more:
            found |= {COLUMNS: None, POSITIONS: (wide, self.size)}
        # Labels and further columns are checked when they are read.
        for axis in (0, 1) if self.labels else ():
            found |= dict.fromkeys(array_name(axis, part) for part in LABEL_PARTS)
        return found

    def text(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(_signed(asdict(self)), indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check the manifest, and check that every file exists and has the right size."""
        path = folder / MANIFEST
        try:
            fields = json.loads(_content(folder))
            if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
        except (ValueError, RecursionError) as error:  # not Unicode, not JSON, too deep
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path} is damaged or not a manifest: {error}") from None
        version = fields.pop("version", None)
        if type(version) is not int or version != VERSION:
            raise StoreError(
                f"{path}: store version {reprlib.repr(version)}, while this fastemf reads version "
                f"{VERSION}; build the store again, or use the fastemf that wrote it"
            )
        for name in FIELDS | fields:
            if name not in FIELDS or not _has_form(fields.get(name), FIELDS[name]):
                raise StoreError(f"{path} is damaged: {reprlib.repr(name)} is not valid")
        is_same = _signed(fields)["crc32"] == fields.pop("crc32")
        files = {name: StoredArray(**stored) for name, stored in fields["files"].items()}
        manifest = cls(**fields | {"shape": tuple(fields["shape"]), "files": files})
        manifest._check_files(folder)
        if not is_same:
            raise StoreError(f"{path} is damaged: its checksum does not match its content")
        return manifest

    def _check_files(self, folder: Path) -> None:
        path = folder / MANIFEST
        is_sound = len(self.shape) == 2 and min(self.generation, self.size, *self.shape) > 0
        if not is_sound or len(self.labels) not in (0, 2):
            raise StoreError(f"{path} is damaged: a count is not valid")
        expected = self.expected()
        kind_of = {name: (stored.dtype, stored.length) for name, stored in self.files.items()}
        for name in sorted(expected | kind_of):
            if name not in kind_of or expected.get(name, ()) not in (None, kind_of[name]):
                shown = name if name in expected else reprlib.repr(name)
                raise StoreError(f"{path} is damaged: its entry of {shown} is not valid")
        for name, stored in self.files.items():
            path = data_folder(folder, self.generation) / name
            with reading(path):
                actual = path.stat()
            if not stat.S_ISREG(actual.st_mode):
                raise StoreError(f"{path} cannot be read: it is not a regular file")
            if actual.st_size != stored.bytes:
                found = f"{actual.st_size} bytes instead of {stored.bytes}"
                raise StoreError(f"{path} has {found}: it is truncated or was changed")


def _content(folder: Path) -> bytes:
    path = folder / MANIFEST
    if not os.path.lexists(folder):
        raise FileNotFoundError(f"{folder}: there is no such folder")
    with reading(path):
        try:
            with open_regular(path) as file:
                # As many bytes are allocated as are asked for.
                content = file.read(min(LONGEST, os.fstat(file.fileno()).st_size) + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"{folder} is not a store: it has no {MANIFEST}; build one with fastemf.store.build"
            ) from None
    if len(content) > LONGEST:
        raise StoreError(f"{path} is damaged or not a manifest: it is too long")
    return content


def _signed(fields: dict[str, Any]) -> dict[str, Any]:
    """Add the format, the version, and the CRC-32 of the content, independent of the layout."""
    fields = {"format": FORMAT, "version": VERSION, **fields}
    fields.pop("crc32", None)
    return fields | {"crc32": zlib.crc32(json.dumps(fields, sort_keys=True).encode())}


def _has_form(value: Any, form: Any) -> bool:
    """Return whether a value of JSON has one of the forms of `FIELDS`."""
    if isinstance(form, dict):
        forms = dict.fromkeys(value, form[Any]) if Any in form and type(value) is dict else form
        return isinstance(value, dict) and value.keys() == forms.keys() and all(
            _has_form(value[name], forms[name]) for name in forms
        )  # fmt: skip
    if isinstance(form, list):
        return isinstance(value, list) and all(_has_form(item, form[0]) for item in value)
    if isinstance(form, set):
        return isinstance(value, str) and value in form
    if form is int:
        return type(value) is int and 0 <= value < np.iinfo(np.int64).max
    is_text = isinstance(value, str)  # which JSON may not be able to encode
    return isinstance(value, form) and not (is_text and SURROGATE.search(value))
