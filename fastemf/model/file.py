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
from fastemf.model.tuning_record import record_of, tuning_of
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.level_table import AxisLevels, LevelTable
from fastemf.solver.records import FIELDS, SweepRecord, history_of, history_table
from fastemf.solver.tuning import Tuning
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays
from fastemf.support.whole_file import replacing

__all__ = ["VERSION", "ModelFileError", "read", "write", "write_levels"]

VERSION = 3

SCALARS = {
    "omega": float,
    "mu": float,
    "reg": float,
    "reg_scaling": str,
    "intercept_reg": float,
    "scale": float,
    "converged": bool,
    "shift": float,
    "family": str,
}
FAMILIES = ("even", "weighted", "ridged")
# Names of the arrays, each for rows and for columns.
FACTORS = ("X", "Y")
INTERCEPTS = ("row_intercepts", "col_intercepts")
UNSEEN = ("unseen_rows", "unseen_cols")
LABELS = ("row_labels", "col_labels")
OFFSETS = ("row_label_offsets", "col_label_offsets")  # where each string begins
NOISE = ("row_noise", "col_noise")
LEVELS = ("row_levels", "col_levels")
CENTRES = ("row_centres", "col_centres")

# What later versions of the format added: header fields, and fields of the history.
HEADER_SINCE = {
    "row_labels": 2, "col_labels": 2, "shift": 3, "family": 3, "tuning": 3, "noise": 3, "table": 3,
}  # fmt: skip
BEFORE: dict[str, Any] = {
    "shift": 0.0,
    "family": "even",
}  # what those of `SCALARS` were before they were written
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

    @property
    def tuning(self) -> Tuning | None:
        """What was tried, if something was."""


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
    header |= {"tuning": record_of(fit.tuning), "noise": None, "table": None}
    arrays: dict[str, Any] = {"history": history_table(fit.history)}
    for at, axis in enumerate(fit.axes):
        arrays |= {FACTORS[at]: axis.factor, UNSEEN[at]: axis.unseen}
        if axis.intercepts is not None:
            arrays[INTERCEPTS[at]] = axis.intercepts
        header[LABELS[at]] = None
        if axis.labels is not None:
            header[LABELS[at]], (arrays[LABELS[at]], arrays[OFFSETS[at]]) = to_arrays(axis.labels)
    noise = [axis.noise for axis in fit.axes if axis.noise is not None]
    if len(noise) == len(fit.axes):
        header["noise"] = [one.level for one in noise]
        arrays |= {name: one.variances for name, one in zip(NOISE, noise, strict=True)}
    levels = [axis.levels for axis in fit.axes if axis.levels is not None]
    if len(levels) == len(fit.axes):
        table = levels[0].table
        header["table"] = table.ridge
        arrays |= {name: one.values for name, one in zip(LEVELS, levels, strict=True)}
        arrays |= dict(zip(CENTRES, table.centres, strict=True)) | {"table": table.values}
    try:
        _check_reach(header, arrays)
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
    later = {name for name, since in HEADER_SINCE.items() if since > version}
    wanted = {"history_fields", "intercepts", *SCALARS, *HEADER_SINCE} - later
    _check_keys(header.keys(), wanted, "header field")
    header = BEFORE | header
    needed = {"header", "history", *FACTORS, *UNSEEN}
    for names in zip(LABELS, OFFSETS, strict=True):
        needed |= set(names if header.get(names[0]) is not None else ())
    with_intercepts = header["intercepts"]
    _require(type(with_intercepts) is bool, "intercepts must be bool")
    with_noise = header.get("noise") is not None
    needed |= set(NOISE if with_noise else ())
    with_table = header.get("table") is not None
    needed |= {"table", *LEVELS, *CENTRES} if with_table else set()
    _check_keys(arrays.keys(), needed | set(INTERCEPTS if with_intercepts else ()), "array")

    for name, kind in SCALARS.items():
        _require(type(header[name]) is kind, f"{name} must be {kind.__name__}")
    _require(0 < header["omega"] < 1, "omega must lie in (0, 1)")
    _require(header["reg_scaling"] in ("count", "plain"), "reg_scaling must be count or plain")
    for name in ("reg", "intercept_reg", "scale"):
        _require(0 <= header[name] < np.inf, f"{name} must be finite and not negative")
    _require(header["family"] in FAMILIES, f"family must be one of {', '.join(FAMILIES)}")
    _require(
        with_noise == (header["family"] != "even"), "noise must be there unless family is even"
    )

    X, Y = arrays["X"], arrays["Y"]
    _require(
        X.ndim == 2
        and Y.ndim == 2
        and X.shape[1] == Y.shape[1]
        and len(X) > 0
        and len(Y) > 0
        and X.shape[1] + with_intercepts > 0,
        f"X and Y must be matrices of equal rank, not empty, got shapes {X.shape} and {Y.shape}",
    )
    _require(X.dtype in (np.float32, np.float64), f"X must be float32 or float64, got {X.dtype}")
    for name in (*FACTORS, *(INTERCEPTS if with_intercepts else ())):
        _require(arrays[name].dtype == X.dtype, f"{name} must have the dtype of X")
    table = _table(header["table"], arrays) if with_table else None
    _require(with_intercepts or not with_table, "a table must have intercepts beside it")
    _check_reach(header, arrays)
    labelled = [header.get(name) is not None for name in LABELS]
    _require(labelled[0] == labelled[1], "labels must be those of rows and of columns, or none")
    return {
        **{name: header[name] for name in SCALARS},
        "rows": _axis(0, header, arrays, table),
        "cols": _axis(1, header, arrays, table),
        "history": _history(header["history_fields"], arrays["history"], version),
        "tuning": _tuning(header.get("tuning")),
    }


def _check_reach(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse numbers that are not finite, or so large that what they predict might not be."""
    for name in ("mu", "shift"):
        _require(bool(np.isfinite(header[name])), f"{name} must be finite")
    sizes = {
        # No array as long as these is made on the way, and NaN is larger than all else.
        name: float(np.abs([arrays[name].min(initial=0), arrays[name].max(initial=0)]).max())
        for name in (*FACTORS, *INTERCEPTS, "table")
        if name in arrays
    }
    for name, size in sizes.items():
        _require(bool(np.isfinite(size)), f"{name} must be finite")
    reach = arrays["X"].shape[1] * sizes["X"] * sizes["Y"]
    reach += abs(header["mu"]) + abs(header["shift"])
    reach += sum(sizes.get(name, 0.0) for name in (*INTERCEPTS, "table"))
    limits = np.finfo(arrays["X"].dtype)
    _require(reach < float(limits.max) / 2, f"its numbers must not overflow {limits.dtype}")


def _axis(
    at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]], table: LevelTable | None
) -> Axis:
    """Read one side of a fit, of which the factors' shapes and types are checked already."""
    factor, unseen, intercepts = arrays[FACTORS[at]], arrays[UNSEEN[at]], arrays.get(INTERCEPTS[at])
    n = len(factor)
    if intercepts is not None:
        _require(intercepts.shape == (n,), f"{INTERCEPTS[at]} must have shape ({n},)")
    right = unseen.dtype == np.int64 and unseen.ndim == 1
    right = right and bool(((unseen >= 0) & (unseen < n)).all())
    _require(right, f"{UNSEEN[at]} must hold indices below {n}")
    levels = None
    if table is not None:
        _check_numbers(LEVELS[at], arrays[LEVELS[at]], n)
        levels = AxisLevels(arrays[LEVELS[at]], table)
    return Axis(
        factor,
        intercepts,
        _labels(at, header, arrays, n),
        unseen,
        _noise(at, header, arrays, n),
        levels,
    )


def _table(ridge: Any, arrays: dict[str, NDArray[Any]]) -> LevelTable:
    right = type(ridge) is float and 0 <= ridge < np.inf
    _require(right, "table must be a ridge, finite and not negative")
    centres = [arrays[name] for name in CENTRES]
    for name, found in zip(CENTRES, centres, strict=True):
        _check_numbers(name, found, max(found.size, 1))
        _require(bool((found[1:] > found[:-1]).all()), f"{name} must rise")
    _check_numbers("table", arrays["table"], *(found.size for found in centres))
    return LevelTable(centres[0], centres[1], arrays["table"], ridge)


def _noise(
    at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]], size: int
) -> AxisNoise | None:
    levels = header.get("noise")
    if levels is None:
        return None
    right = isinstance(levels, list) and [type(level) for level in levels] == [float, float]
    right = right and 0 <= levels[at] < np.inf
    _require(right, "noise must be two levels, finite and not negative")
    _check_numbers(NOISE[at], arrays[NOISE[at]], size)
    _require(bool((arrays[NOISE[at]] > 0).all()), f"{NOISE[at]} must be positive")
    return AxisNoise(arrays[NOISE[at]], levels[at])


def _tuning(record: Any) -> Tuning | None:
    try:
        return tuning_of(record)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def _check_numbers(name: str, array: NDArray[Any], *shape: int) -> None:
    right = array.dtype == np.float64 and array.shape == shape
    _require(right, f"{name} must be float64 of shape {shape}")
    # So that differences are finite too.
    right = bool((np.abs(array) < np.finfo(np.float64).max / 4).all())
    _require(right, f"{name} must be finite, and not near the largest number there is")


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
