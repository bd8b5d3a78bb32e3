"""The model file: one versioned ``.npz``, written atomically and read without pickle.

It holds one fit, as `fit_record.py` has it, or several, and of quantiles more besides.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.model.fit_record import WrittenFit, checked, packed
from fastemf.store.manifest import MANIFEST
from fastemf.support.array_file import (
    DamagedFileError,
    check_keys,
    parse_header,
    read_arrays,
    require,
)
from fastemf.support.whole_file import replacing

__all__ = [
    "VERSION", "ModelFileError", "Several", "read", "write",
    "write_levels", "write_several",
]  # fmt: skip

VERSION = 6


class ModelFileError(ValueError):
    """A file that is not a model, or not one this version can read."""


class Several(NamedTuple):
    """What a file of several fits and of more holds: see `write_several`."""

    header: dict[str, Any]
    fits: dict[str, dict[str, Any]]
    arrays: dict[str, NDArray[Any]]


def write(path: str | os.PathLike[str], fit: WrittenFit) -> None:
    """Write a fit; a reader sees the old file or the new one, never a part of it."""
    _save(path, _packed(path, fit))


def write_levels(path: str | os.PathLike[str], fits: Sequence[WrittenFit]) -> None:
    """Write several fits, in order: the arrays of the first begin with ``0/``."""
    arrays = _header_array({"levels": len(fits)})
    for place, fit in enumerate(fits):
        arrays |= {f"{place}/{name}": array for name, array in _packed(path, fit).items()}
    _save(path, arrays)


def write_several(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    fits: dict[str, WrittenFit],
    arrays: dict[str, NDArray[Any]],
) -> None:
    """Write fits by name, whose arrays begin with it and a ``/``, and arrays beside them."""
    parts = {
        f"{name}/{part}": array
        for name, fit in fits.items()
        for part, array in _packed(path, fit).items()
    }
    _save(path, _header_array(header | {"fits": list(fits)}) | parts | arrays)


def read(path: str | os.PathLike[str]) -> dict[str, Any] | list[dict[str, Any]] | Several:
    """Read the fields of a fit, under the names that its constructor has, or those of several."""
    if (Path(path) / MANIFEST).is_file():
        what = "Is a store, and no model; fastemf store info describes it"
        raise IsADirectoryError(errno.EISDIR, what, os.fspath(path))
    try:
        arrays = read_arrays(path)
        header, _ = _header(arrays)
        if "fits" in header:
            return _checked_several(header, arrays)
        return _checked_levels(header, arrays) if "levels" in header else _checked(arrays)
    except DamagedFileError as error:
        raise ModelFileError(f"{os.fspath(path)} is not a valid fastemf model: {error}") from error


def _save(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    with replacing(path, "a model") as file:
        np.savez(file, **arrays)


def _header_array(header: dict[str, Any]) -> dict[str, Any]:
    header = {"format": "fastemf", "version": VERSION} | header
    # It is written as bytes, so that no string dtype is involved.
    return {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}


def _packed(path: str | os.PathLike[str], fit: WrittenFit) -> dict[str, Any]:
    try:
        header, arrays = packed(fit)
    except DamagedFileError as error:  # now, not when the file is read
        raise ValueError(f"cannot save a model to {os.fspath(path)}: {error}") from None
    return arrays | _header_array(header)


def _checked(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    header, version = _header(arrays)
    return checked(header, version, arrays)


def _header(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], int]:
    """Read the header and its version."""
    if "header" not in arrays:
        raise DamagedFileError("it is an .npz file without a header")
    header = parse_header(arrays["header"])
    if isinstance(header, dict) and "checkpoint" in header:
        raise DamagedFileError("it is the checkpoint of a fit, for complete(..., resume=True)")
    if not isinstance(header, dict) or header.pop("format", None) != "fastemf":
        raise DamagedFileError("it is an .npz file of another program")
    version = header.pop("version", None)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise DamagedFileError(
            f"format version {version!s:.60}, while this fastemf reads 1 to {VERSION}; upgrade "
            "fastemf"
        )
    return header, version


def _checked_levels(
    header: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> list[dict[str, Any]]:
    check_keys(header.keys(), {"levels"}, "header field")
    count = header["levels"]
    right = type(count) is int and 2 <= count < len(arrays)
    require(right, "levels must be a number from 2 on, and each must have arrays")
    parts: dict[str, dict[str, NDArray[Any]]] = {str(place): {} for place in range(count)}
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        if key != "header":
            require(place in parts and name != "", f"array {key!r:.80} is unknown")
            parts[place][name] = array
    contents = [_checked(part) for part in parts.values()]
    shapes = {(fit["rows"].size, fit["cols"].size) for fit in contents}
    require(len(shapes) == 1, "levels must be of one matrix")
    for axis in ("rows", "cols"):
        same = all(fit[axis].labels == contents[0][axis].labels for fit in contents)
        require(same, "levels must have the same labels")
    omegas = [fit["omega"] for fit in contents]
    require(omegas == sorted(set(omegas)), "levels must rise")
    return contents


def _checked_several(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Several:
    names = header.pop("fits")
    right = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(right and 0 < len(set(names)) == len(names), "fits must be different names")
    parts: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in names}
    rest = {}
    for key, array in arrays.items():
        place, _, name = key.rpartition("/")
        if place in parts:
            parts[place][name] = array
        elif key != "header":
            rest[key] = array
    return Several(header, {name: _checked(part) for name, part in parts.items()}, rest)
