"""The model file: one versioned ``.npz``, written atomically and read without pickle.

It holds one fit in the form of `fit_record.py`, or several fits in folders with a common header.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastemf.models.fit_record import Arrays, Header, pack_fit, unpack_fit
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays, require
from fastemf.support.atomic_file import replace_file

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization

VERSION = 1
KINDS = ("factorization", "levels", "quantiles", "boosted levels")
FACTORIZATION, LEVELS, QUANTILES, BOOSTED_LEVELS = KINDS


class ModelFileError(ValueError):
    """A file that is not a model, or not one this version can read."""


class StoredModel(NamedTuple):
    """The content of a model file."""

    kind: str
    header: Header
    fits: dict[str, dict[str, Any]]  # fields of the constructor of each fit
    arrays: Arrays


def write_fit(path: str | os.PathLike[str], fit: Factorization) -> None:
    """Write one fit; readers see the old file or the new one, never a part of it."""
    _save(path, _pack(path, fit, {"kind": FACTORIZATION} | _format()))


def write_model(
    path: str | os.PathLike[str],
    kind: str,
    fits: Mapping[str, Factorization],
    header: Header | None = None,
    arrays: Arrays | None = None,
) -> None:
    """Write named fits, with arrays in a folder per fit, and a common header and arrays."""
    about = _format() | {"kind": kind, "fits": list(fits)} | (header or {})
    parts = {
        f"{name}/{key}": array
        for name, fit in fits.items()
        for key, array in _pack(path, fit, {}).items()
    }
    _save(path, {"header": _header_array(about)} | parts | (arrays or {}))


def read_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read and check the fits of a model file, and return its other fields and arrays."""
    from fastemf.sources.store.manifest import MANIFEST

    if (Path(path) / MANIFEST).is_file():
        what = "Is a store, not a model; fastemf store info describes it"
        raise IsADirectoryError(errno.EISDIR, what, os.fspath(path))
    arrays = read_arrays(path)
    kind, header = _read_header(arrays)
    if kind == FACTORIZATION:
        return StoredModel(kind, {}, {"": unpack_fit(header, arrays)}, {})
    names = header.pop("fits", None)
    right = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(right and 0 < len(set(names)) == len(names), "fits must be a list of different names")
    parts: dict[str, Arrays] = {name: {} for name in names}
    others = {}
    for key, array in arrays.items():
        folder, _, name = key.rpartition("/")
        if folder in parts:
            parts[folder][name] = array
        elif key != "header":
            others[key] = array
    fits = {name: unpack_fit(_parse(part), part) for name, part in parts.items()}
    return StoredModel(kind, header, fits, others)


@contextmanager
def damage_as_model_error(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise damage found in a file as a `ModelFileError` that names the file."""
    try:
        yield
    except DamagedFileError as error:
        raise ModelFileError(f"{os.fspath(path)} is not a valid fastemf model: {error}") from error


def _save(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    with replace_file(path, "a model") as file:
        np.savez(file, **arrays)


def _format() -> Header:
    return {"format": "fastemf", "version": VERSION}


def _header_array(header: Header) -> Any:
    """Encode a header as bytes, which need no string dtype."""
    return np.frombuffer(json.dumps(header).encode(), np.uint8)


def _pack(path: str | os.PathLike[str], fit: Factorization, about: Header) -> Arrays:
    try:
        header, arrays = pack_fit(fit)
    except DamagedFileError as error:
        raise ValueError(f"cannot save a model to {os.fspath(path)}: {error}") from None
    return arrays | {"header": _header_array(about | header)}


def _parse(arrays: Arrays) -> Header:
    require("header" in arrays, "it is an .npz file without a header")
    header = parse_header(arrays["header"])
    require(isinstance(header, dict), "it is an .npz file of another program")
    return dict(header)


def _read_header(arrays: Arrays) -> tuple[str, Header]:
    """Read the header of the file: what kind of model it holds, and the other fields."""
    header = _parse(arrays)
    require("checkpoint" not in header, "it is the checkpoint of a fit, not a model")
    require(header.pop("format", None) == "fastemf", "it is an .npz file of another program")
    version = header.pop("version", None)
    require(
        type(version) is int and version == VERSION,
        f"format version {version!s:.60}, while this fastemf reads version {VERSION}; upgrade "
        "fastemf",
    )
    kind = header.pop("kind", None)
    require(kind in KINDS, f"kind must be one of {', '.join(KINDS)}")
    return str(kind), header
