"""The model file: one versioned ``.npz``, written atomically and read without pickle.

A JSON header holds the scalars, NumPy arrays hold the rest. Reading checks every
key, type, shape and value, so that a damaged or foreign file is an error here
and not a wrong prediction later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.label_arrays import from_arrays, to_arrays
from fastemf.inputs.labels import Labels
from fastemf.solver.axis import Axis
from fastemf.solver.records import FIELDS, SweepRecord, history_of, history_table
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays
from fastemf.support.whole_file import replacing

__all__ = ["VERSION", "ModelFileError", "read", "write", "write_levels"]

VERSION = 2

SCALARS = {
    "omega": float,
    "mu": float,
    "reg": float,
    "reg_scaling": str,
    "intercept_reg": float,
    "scale": float,
    "converged": bool,
}
# Names of the arrays, each for rows and for columns.
FACTORS = ("X", "Y")
INTERCEPTS = ("row_intercepts", "col_intercepts")
UNSEEN = ("unseen_rows", "unseen_cols")
LABELS = ("row_labels", "col_labels")
OFFSETS = ("row_label_offsets", "col_label_offsets")  # where each string begins


# What later versions of the format added: header fields, and fields of the history.
HEADER_SINCE = {"row_labels": 2, "col_labels": 2}
HISTORY_SINCE = {"validation_loss": 2}


class ModelFileError(ValueError):
    """A file that is not a model, or not one this version can read."""


class WrittenFit(Protocol):
    """What is written of a fit: its two axes, its history, and the `SCALARS` as attributes."""

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns."""

    @property
    def history(self) -> tuple[SweepRecord, ...]:
        """One record per sweep."""


def write(path: str | os.PathLike[str], fit: WrittenFit) -> None:
    """Write a fit; a reader sees the old file or the new one, never a part of it."""
    _save(path, _packed(path, fit))


def write_levels(path: str | os.PathLike[str], fits: Sequence[WrittenFit]) -> None:
    """Write several fits, in order: the arrays of the first begin with ``0/``."""
    arrays = _header_array({"levels": len(fits)})
    for place, fit in enumerate(fits):
        arrays |= {f"{place}/{name}": array for name, array in _packed(path, fit).items()}
    _save(path, arrays)


def read(path: str | os.PathLike[str]) -> dict[str, Any] | list[dict[str, Any]]:
    """Read the fields of a fit, under the names that its constructor has, or those of several."""
    try:
        arrays = read_arrays(path)
        header, _ = _header(arrays)
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
    header: dict[str, Any] = {name: kind(getattr(fit, name)) for name, kind in SCALARS.items()}
    header |= {"history_fields": list(FIELDS), "intercepts": fit.axes[0].has_intercepts}
    arrays: dict[str, Any] = {"history": history_table(fit.history)}
    for at, axis in enumerate(fit.axes):
        arrays |= {FACTORS[at]: axis.factor, UNSEEN[at]: axis.unseen}
        if axis.intercepts is not None:
            arrays[INTERCEPTS[at]] = axis.intercepts
        header[LABELS[at]] = None
        if axis.labels is not None:
            header[LABELS[at]], (arrays[LABELS[at]], arrays[OFFSETS[at]]) = to_arrays(axis.labels)
    try:
        _check_reach(header["mu"], arrays)
    except DamagedFileError as error:  # now, not when the file is read
        raise ValueError(f"cannot save a model to {os.fspath(path)}: {error}") from None
    return arrays | _header_array(header)


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
    _check_keys(header.keys(), {"levels"}, "header field")
    count = header["levels"]
    right = type(count) is int and 2 <= count < len(arrays)
    _require(right, "levels must be a number from 2 on, and each must have arrays")
    parts: dict[str, dict[str, NDArray[Any]]] = {str(place): {} for place in range(count)}
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        if key != "header":
            _require(place in parts and name != "", f"array {key!r:.80} is unknown")
            parts[place][name] = array
    contents = [_checked(part) for part in parts.values()]
    shapes = {(fit["rows"].size, fit["cols"].size) for fit in contents}
    _require(len(shapes) == 1, "levels must be of one matrix")
    for axis in ("rows", "cols"):
        same = all(fit[axis].labels == contents[0][axis].labels for fit in contents)
        _require(same, "levels must have the same labels")
    omegas = [fit["omega"] for fit in contents]
    _require(omegas == sorted(set(omegas)), "levels must rise")
    return contents


def _checked(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    header, version = _header(arrays)
    added = {name for name, since in HEADER_SINCE.items() if since <= version}
    _check_keys(header.keys(), {"history_fields", "intercepts", *SCALARS, *added}, "header field")
    needed = {"header", "history", *FACTORS, *UNSEEN}
    for names in zip(LABELS, OFFSETS, strict=True):
        needed |= set(names if header.get(names[0]) is not None else ())
    with_intercepts = header["intercepts"]
    _require(type(with_intercepts) is bool, "intercepts must be bool")
    _check_keys(arrays.keys(), needed | set(INTERCEPTS if with_intercepts else ()), "array")

    for name, kind in SCALARS.items():
        _require(type(header[name]) is kind, f"{name} must be {kind.__name__}")
    _require(0 < header["omega"] < 1, "omega must lie in (0, 1)")
    _require(header["reg_scaling"] in ("count", "plain"), "reg_scaling must be count or plain")
    for name in ("reg", "intercept_reg", "scale"):
        _require(0 <= header[name] < np.inf, f"{name} must be finite and not negative")

    X, Y = arrays["X"], arrays["Y"]
    _require(
        X.ndim == 2 and Y.ndim == 2 and X.shape[1] == Y.shape[1] and X.size > 0 and Y.size > 0,
        f"X and Y must be matrices of equal rank, not empty, got shapes {X.shape} and {Y.shape}",
    )
    _require(X.dtype in (np.float32, np.float64), f"X must be float32 or float64, got {X.dtype}")
    for name in (*FACTORS, *(INTERCEPTS if with_intercepts else ())):
        _require(arrays[name].dtype == X.dtype, f"{name} must have the dtype of X")
    _check_reach(header["mu"], arrays)
    labelled = [header.get(name) is not None for name in LABELS]
    _require(labelled[0] == labelled[1], "labels must be those of rows and of columns, or none")
    return {
        **{name: header[name] for name in SCALARS},
        "rows": _axis(0, header, arrays),
        "cols": _axis(1, header, arrays),
        "history": _history(header["history_fields"], arrays["history"], version),
    }


def _check_reach(mu: float, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse numbers that are not finite, or so large that what they predict might not be."""
    _require(bool(np.isfinite(mu)), "mu must be finite")
    sizes = {
        # No array as long as these is made on the way, and NaN is larger than all else.
        name: float(np.abs([arrays[name].min(initial=0), arrays[name].max(initial=0)]).max())
        for name in (*FACTORS, *INTERCEPTS)
        if name in arrays
    }
    for name, size in sizes.items():
        _require(bool(np.isfinite(size)), f"{name} must be finite")
    reach = arrays["X"].shape[1] * sizes["X"] * sizes["Y"] + abs(mu)
    reach += sum(sizes.get(name, 0.0) for name in INTERCEPTS)
    limits = np.finfo(arrays["X"].dtype)
    _require(reach < float(limits.max) / 2, f"its numbers must not overflow {limits.dtype}")


def _axis(at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Axis:
    """Read one side of a fit, of which the factors' shapes and types are checked already."""
    factor, unseen, intercepts = arrays[FACTORS[at]], arrays[UNSEEN[at]], arrays.get(INTERCEPTS[at])
    n = len(factor)
    if intercepts is not None:
        _require(intercepts.shape == (n,), f"{INTERCEPTS[at]} must have shape ({n},)")
    right = unseen.dtype == np.int64 and unseen.ndim == 1
    right = right and bool(((unseen >= 0) & (unseen < n)).all())
    _require(right, f"{UNSEEN[at]} must hold indices below {n}")
    return Axis(factor, intercepts, _labels(at, header, arrays, n), unseen)


def _labels(
    at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]], size: int
) -> Labels | None:
    about = header.get(LABELS[at])
    if about is None:
        return None
    try:
        return from_arrays(about, arrays[LABELS[at]], arrays[OFFSETS[at]], size)
    except ValueError as error:
        raise DamagedFileError(f"{LABELS[at]}: {error}") from error


def _history(names: Any, table: NDArray[Any], version: int) -> tuple[SweepRecord, ...]:
    wanted = [name for name in FIELDS if HISTORY_SINCE.get(name, 1) <= version]
    _require(names == wanted, "history must have its columns")
    try:
        return history_of(table, wanted)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def _check_keys(found: Any, wanted: set[str], what: str) -> None:
    if missing := sorted(wanted - set(found)):
        raise DamagedFileError(f"{what} {missing[0]!r:.80} is missing")
    if extra := sorted(set(found) - wanted):
        raise DamagedFileError(f"{what} {extra[0]!r:.80} is unknown")


def _require(right: bool, rule: str) -> None:
    if not right:
        raise DamagedFileError(rule)
