"""The manifest of a store: which version, what shape, and every file's size and checksum."""

from __future__ import annotations

import json
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
                    stored = self.files[f"{side}.{part}.npy"]
                    found[f"{side}.{part}.npy"] = np.dtype(stored.dtype), stored.length
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
        try:
            fields = json.loads(path.read_bytes())
            if fields.pop("format") != FORMAT:
                raise KeyError("format")
            version = fields.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{path} is damaged, or of another program ({type(error).__name__}: {error})"
            ) from None
        if version != VERSION:
            raise StoreError(
                f"{path}: store version {version!r}, while this fastemf reads {VERSION}; "
                "build the store again, or use the fastemf that wrote it"
            )
        try:
            manifest = cls(
                shape=(int(fields["shape"][0]), int(fields["shape"][1])),
                size=int(fields["size"]),
                dtype={"float32": "float32", "float64": "float64"}[fields["dtype"]],
                weighted=bool(fields["weighted"]),
                labels=list(fields["labels"]),
                files={name: StoredArray(**stored) for name, stored in fields["files"].items()},
            )
            manifest._check_files(folder)
        except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path} is damaged ({type(error).__name__}: {error})") from None
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
