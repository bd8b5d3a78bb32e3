"""The manifest of a store: which version, what shape, and every file's size and checksum."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.entries import index_dtype
from fastemf.store.files import header

__all__ = ["LABEL_PARTS", "MANIFEST", "SIDES", "Manifest", "StoreError", "StoredArray"]

VERSION = 1
FORMAT = "fastemf store"
MANIFEST = "manifest.json"
SIDES = ("rows", "cols")
DTYPES = tuple(np.dtype(name).str for name in ("f4", "f8", "i4", "i8", "u8", "u1"))
LABEL_PARTS = ("labels", "label_offsets")  # of `fastemf.inputs.label_arrays`


class StoreError(ValueError):
    """A folder that is not a store, not a whole one, or not one this version can read."""


@dataclass(frozen=True)
class StoredArray:
    """Type, length and checksum of one file."""

    dtype: str
    length: int
    crc32: int

    @property
    def data(self) -> int:
        """Offset at which the elements begin."""
        return len(header(np.dtype(self.dtype), self.length))

    @property
    def bytes(self) -> int:
        """Size of the whole file."""
        return self.data + self.length * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Manifest:
    """All that a reader must know before it reads an entry."""

    shape: tuple[int, int]
    size: int
    dtype: str
    weighted: bool
    labels: list[dict[str, Any]]  # what is said of those of rows and columns, or nothing
    files: dict[str, StoredArray]

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of the indices: 32 bits where they suffice."""
        return index_dtype(self.shape)

    def expected(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Return the type and length that each file must have."""
        found: dict[str, tuple[np.dtype[Any], int]] = {}
        value = np.dtype(self.dtype)
        for side, n in zip(SIDES, self.shape, strict=True):
            found[f"{side}.indptr.npy"] = np.dtype(np.int64), n + 1
            found[f"{side}.indices.npy"] = self.index_dtype, self.size
            found[f"{side}.values.npy"] = value, self.size
            if self.weighted:
                found[f"{side}.weights.npy"] = value, self.size
                found[f"{side}.mass.npy"] = np.dtype(np.float64), n
            if self.labels:
                for part in LABEL_PARTS:  # as long as they are: read with a check of their own
                    name = f"{side}.{part}.npy"
                    stored = self.files.get(name, StoredArray("|u1", 0, 0))
                    found[name] = np.dtype(stored.dtype), stored.length
        return found

    def text(self) -> str:
        """Return the manifest as it is written."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check the manifest, and that every file is there and as long as it says."""
        path = folder / MANIFEST
        if not folder.exists():
            raise FileNotFoundError(f"{folder}: there is no such folder")
        if not path.is_file():
            raise StoreError(
                f"{folder} is not a store: it has no {MANIFEST}; build one with fastemf.store.build"
            )
        fields = _parsed(path)
        if fields.get("format") != FORMAT:
            raise StoreError(
                f"{path} is damaged, or of another program: its format is not {FORMAT!r}"
            )
        version = fields.get("version")
        if type(version) is not int or version != VERSION:
            raise StoreError(
                f"{path}: store version {version!r}, while this fastemf reads {VERSION}; "
                "build the store again, or use the fastemf that wrote it"
            )
        for name, (is_right, rule) in RULES.items():
            if not is_right(fields.get(name)):
                raise StoreError(f"{path} is damaged: {name} must be {rule}")
        manifest = cls(
            shape=(fields["shape"][0], fields["shape"][1]),
            size=fields["size"],
            dtype=fields["dtype"],
            weighted=fields["weighted"],
            labels=fields["labels"],
            files={name: StoredArray(**stored) for name, stored in fields["files"].items()},
        )
        manifest._check_files(folder)
        return manifest

    def _check_files(self, folder: Path) -> None:
        expected = self.expected()
        if expected.keys() != self.files.keys():
            odd = sorted(expected.keys() ^ self.files.keys())
            raise StoreError(f"{folder / MANIFEST} is damaged: {', '.join(odd)} does not belong")
        for name, stored in self.files.items():
            dtype, length = expected[name]
            if stored.dtype != dtype.str or stored.length != length:
                raise StoreError(
                    f"{folder / MANIFEST} is damaged: {name} must be {length} x {dtype.str}, got "
                    f"{stored.length} x {stored.dtype}"
                )
            try:
                actual = (folder / name).stat().st_size
            except FileNotFoundError:
                raise StoreError(f"{folder / name} is missing: the store is incomplete") from None
            if actual != stored.bytes:
                raise StoreError(
                    f"{folder / name} has {actual} bytes instead of {stored.bytes}: it is "
                    "truncated or was changed"
                )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_bytes())
    except (
        ValueError,
        RecursionError,
    ) as error:  # no Unicode, no JSON, a number too long, too deep
        raise StoreError(f"{path} is damaged, or of another program ({error})") from None
    if not isinstance(fields, dict):
        raise StoreError(f"{path} is damaged, or of another program: it is no JSON object")
    return fields


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= np.iinfo(np.int64).max


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value))


def _is_about_labels(value: Any) -> bool:
    """Tell whether it is what `fastemf.inputs.label_arrays` says of both sides, or nothing."""
    if not isinstance(value, list) or len(value) not in (0, 2):
        return False
    return all(isinstance(about, dict) and {"kind", "name"} == set(about) for about in value)


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(stored, dict)
        and set(stored) == {"dtype", "length", "crc32"}
        and stored["dtype"] in DTYPES
        and _is_count(stored["length"])
        and _is_count(stored["crc32"])
        for stored in value.values()
    )


# What the fields of a manifest must be.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "shape": (_is_shape, "two counts"),
    "size": (_is_count, "a count"),
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
    "weighted": (lambda value: type(value) is bool, "true or false"),
    "labels": (_is_about_labels, "a kind and a name for rows and for columns, or nothing"),
    "files": (_is_files, "a type, a length and a checksum for each file"),
}
