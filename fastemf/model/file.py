"""The model file: one versioned ``.npz``, written atomically and read without pickle.

A JSON header holds the scalars, NumPy arrays hold the rest. Reading checks every
key, type, shape and value, so that a damaged or foreign file is an error here
and not a wrong prediction later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.label_arrays import from_arrays, to_arrays
from fastemf.inputs.labels import Labels
from fastemf.model.imputation_file import NAMES as IMPUTATION
from fastemf.model.imputation_file import imputation_from, imputation_to
from fastemf.model.measured_share import MeasuredShare, share_from, share_to
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.imputation import Imputation
from fastemf.solver.records import FIELDS, SweepRecord, history_of, history_table
from fastemf.solver.table_record import (
    array_names,
    check_numbers,
    tables_from,
    tables_named,
    tables_to,
    upgraded,
)
from fastemf.solver.tables import AxisLevels, Tables
from fastemf.solver.training import TrainingLevels
from fastemf.solver.tuning import Tuning
from fastemf.solver.tuning_record import record_of, tuning_of
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays, require
from fastemf.support.whole_file import replacing

__all__ = [
    "VERSION", "ModelFileError", "Several", "check_keys", "read", "write",
    "write_levels", "write_several",
]  # fmt: skip

VERSION = 6

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
TRAINED = ("trained_rows", "trained_cols")  # levels of the data, and medians
TRAINED_NUMBERS = ("constant", "column", "both", "median", "ridge")

# What later versions of the format added: header fields, and fields of the history.
HEADER_SINCE = {
    "row_labels": 2, "col_labels": 2, "shift": 3, "family": 3, "tuning": 3, "noise": 3, "tables": 3,
    "training": 4, "value_name": 4, "coverage": 4, "imputation": 5,
}  # fmt: skip
BEFORE: dict[str, Any] = {
    "shift": 0.0,
    "family": "even",
}  # what those of `SCALARS` were before they were written
HISTORY_SINCE = {"validation_loss": 2, "renewals": 5}


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

    @property
    def training(self) -> TrainingLevels | None:
        """Levels of the data, if they are known."""

    @property
    def value_name(self) -> str | None:
        """The column that the values came from, if it had a name."""

    @property
    def coverage(self) -> MeasuredShare | None:
        """The share at or below it, if that was measured."""

    @property
    def imputation(self) -> Imputation | None:
        """What replaces censored values, if some were."""


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
    header: dict[str, Any] = {name: kind(getattr(fit, name)) for name, kind in SCALARS.items()}
    header |= {"history_fields": list(FIELDS), "intercepts": fit.axes[0].has_intercepts}
    header |= {"tuning": record_of(fit.tuning), "noise": None, "tables": None, "training": None}
    header |= {"value_name": fit.value_name, "coverage": share_to(fit.coverage)}
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
        header["tables"], of_tables = tables_to(levels[0].tables)
        arrays |= {name: one.values for name, one in zip(LEVELS, levels, strict=True)} | of_tables
    if fit.training is not None:
        header["training"] = {name: getattr(fit.training, name) for name in TRAINED_NUMBERS}
        arrays |= dict(zip(TRAINED, (fit.training.rows, fit.training.cols), strict=True))
    header["imputation"] = None
    if fit.imputation is not None:
        header["imputation"], of_imputation = imputation_to(fit.imputation)
        arrays |= of_imputation
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


def _checked(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    header, version = _header(arrays)
    if version == 3:
        header, arrays = upgraded(header, arrays)
    later = {name for name, since in HEADER_SINCE.items() if since > version}
    wanted = {"history_fields", "intercepts", *SCALARS, *HEADER_SINCE} - later
    check_keys(header.keys(), wanted, "header field")
    header = BEFORE | header
    needed = {"header", "history", *FACTORS, *UNSEEN}
    for names in zip(LABELS, OFFSETS, strict=True):
        needed |= set(names if header.get(names[0]) is not None else ())
    with_intercepts = header["intercepts"]
    require(type(with_intercepts) is bool, "intercepts must be bool")
    with_noise = header.get("noise") is not None
    needed |= set(NOISE if with_noise else ())
    with_tables = header.get("tables") is not None
    if with_tables:
        needed |= set(LEVELS)
        for place in range(len(tables_named(header["tables"]))):
            needed |= set(array_names(place))
    needed |= set(TRAINED if header.get("training") is not None else ())
    needed |= IMPUTATION if header.get("imputation") is not None else set()
    check_keys(arrays.keys(), needed | set(INTERCEPTS if with_intercepts else ()), "array")

    for name, kind in SCALARS.items():
        require(type(header[name]) is kind, f"{name} must be {kind.__name__}")
    require(0 < header["omega"] < 1, "omega must lie in (0, 1)")
    require(header["reg_scaling"] in ("count", "plain"), "reg_scaling must be count or plain")
    for name in ("reg", "intercept_reg", "scale"):
        require(0 <= header[name] < np.inf, f"{name} must be finite and not negative")
    require(header["family"] in FAMILIES, f"family must be one of {', '.join(FAMILIES)}")
    require(with_noise or header["family"] == "even", "noise must be there unless family is even")

    X, Y = arrays["X"], arrays["Y"]
    require(
        X.ndim == 2
        and Y.ndim == 2
        and X.shape[1] == Y.shape[1]
        and len(X) > 0
        and len(Y) > 0
        and X.shape[1] + with_intercepts > 0,
        f"X and Y must be matrices of equal rank, not empty, got shapes {X.shape} and {Y.shape}",
    )
    require(X.dtype in (np.float32, np.float64), f"X must be float32 or float64, got {X.dtype}")
    for name in (*FACTORS, *(INTERCEPTS if with_intercepts else ())):
        require(arrays[name].dtype == X.dtype, f"{name} must have the dtype of X")
    tables = tables_from(header["tables"], arrays) if with_tables else None
    require(with_intercepts or not with_tables, "tables must have intercepts beside them")
    _check_reach(header, arrays)
    labelled = [header.get(name) is not None for name in LABELS]
    require(labelled[0] == labelled[1], "labels must be those of rows and of columns, or none")
    return {
        **{name: header[name] for name in SCALARS},
        "rows": _axis(0, header, arrays, tables),
        "cols": _axis(1, header, arrays, tables),
        "history": _history(header["history_fields"], arrays["history"], version),
        "tuning": _tuning(header.get("tuning")),
        "training": _training(header.get("training"), arrays, (len(X), len(Y))),
        "value_name": _value_name(header.get("value_name")),
        "coverage": _coverage(header.get("coverage")),
        "imputation": _imputation(header.get("imputation"), arrays, (len(X), len(Y))),
    }


def _check_reach(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse numbers that are not finite, or so large that what they predict might not be."""
    for name in ("mu", "shift"):
        require(bool(np.isfinite(header[name])), f"{name} must be finite")
    over = (header.get("tables") or {}).get("over", ())
    added = (*INTERCEPTS, *(array_names(place)[-1] for place in range(len(over))))
    sizes = {
        # No array as long as these is made on the way, and NaN is larger than all else.
        name: float(np.abs([arrays[name].min(initial=0), arrays[name].max(initial=0)]).max())
        for name in (*FACTORS, *added)
        if name in arrays
    }
    for name, size in sizes.items():
        require(bool(np.isfinite(size)), f"{name} must be finite")
    reach = arrays["X"].shape[1] * sizes["X"] * sizes["Y"]
    reach += abs(header["mu"]) + abs(header["shift"])
    reach += sum(sizes.get(name, 0.0) for name in added)
    limits = np.finfo(arrays["X"].dtype)
    require(reach < float(limits.max) / 2, f"its numbers must not overflow {limits.dtype}")


def _axis(
    at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]], tables: Tables | None
) -> Axis:
    """Read one side of a fit, of which the factors' shapes and types are checked already."""
    factor, unseen, intercepts = arrays[FACTORS[at]], arrays[UNSEEN[at]], arrays.get(INTERCEPTS[at])
    n = len(factor)
    if intercepts is not None:
        require(intercepts.shape == (n,), f"{INTERCEPTS[at]} must have shape ({n},)")
    right = unseen.dtype == np.int64 and unseen.ndim == 1
    right = right and bool(((unseen >= 0) & (unseen < n)).all())
    require(right, f"{UNSEEN[at]} must hold indices below {n}")
    levels = None
    if tables is not None:
        check_numbers(LEVELS[at], arrays[LEVELS[at]], n)
        levels = AxisLevels(arrays[LEVELS[at]], tables)
    return Axis(
        factor,
        intercepts,
        _labels(at, header, arrays, n),
        unseen,
        _noise(at, header, arrays, n),
        levels,
    )


def _noise(
    at: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]], size: int
) -> AxisNoise | None:
    levels = header.get("noise")
    if levels is None:
        return None
    right = isinstance(levels, list) and [type(level) for level in levels] == [float, float]
    right = right and 0 <= levels[at] < np.inf
    require(right, "noise must be two levels, finite and not negative")
    check_numbers(NOISE[at], arrays[NOISE[at]], size)
    require(bool((arrays[NOISE[at]] > 0).all()), f"{NOISE[at]} must be positive")
    return AxisNoise(arrays[NOISE[at]], levels[at])


def _training(
    numbers: Any, arrays: dict[str, NDArray[Any]], shape: tuple[int, int]
) -> TrainingLevels | None:
    if numbers is None:
        return None
    right = isinstance(numbers, dict) and set(numbers) == set(TRAINED_NUMBERS)
    require(right, f"training must have the numbers {', '.join(TRAINED_NUMBERS)}")
    right = all(type(number) is float and np.isfinite(number) for number in numbers.values())
    require(right and numbers["ridge"] > 0, "training must have finite numbers, a positive ridge")
    rows, cols = (arrays[name] for name in TRAINED)
    check_numbers(TRAINED[0], rows, shape[0])
    check_numbers(TRAINED[1], cols, shape[1], 3)
    return TrainingLevels(rows=rows, cols=cols, **numbers)


def _value_name(name: Any) -> str | None:
    require(name is None or type(name) is str, "value_name must be a string")
    return None if name is None else str(name)


def _coverage(record: Any) -> MeasuredShare | None:
    try:
        return share_from(record)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def _imputation(
    bounds: Any, arrays: dict[str, NDArray[Any]], shape: tuple[int, int]
) -> Imputation | None:
    return None if bounds is None else imputation_from(bounds, arrays, shape)


def _tuning(record: Any) -> Tuning | None:
    try:
        return tuning_of(record)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


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
    require(names == wanted, "history must have its columns")
    try:
        return history_of(table, wanted)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def check_keys(found: Any, wanted: set[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    if missing := sorted(wanted - set(found)):
        raise DamagedFileError(f"{what} {missing[0]!r:.80} is missing")
    if extra := sorted(set(found) - wanted):
        raise DamagedFileError(f"{what} {extra[0]!r:.80} is unknown")
