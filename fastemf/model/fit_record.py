"""What a model file says of one fit: a header with the scalars, and arrays for the rest.

Reading checks every key, type, shape and value, so that a damaged or foreign file is an error here
and not a wrong prediction later.
"""

from __future__ import annotations

from typing import Any, Protocol

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
from fastemf.support.array_file import DamagedFileError, check_keys, require

__all__ = ["WrittenFit", "checked", "packed"]

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


def packed(fit: WrittenFit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a fit, which `checked` would take."""
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
    _check_reach(header, arrays)
    return header, arrays


def checked(
    header: dict[str, Any], version: int, arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Check what a file of some version says of a fit; return the fields of its constructor."""
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
