"""The model file: one versioned ``.npz``, written atomically, read without pickle.

A JSON header holds the scalars, NumPy arrays the rest. Reading checks every
key, type, shape and value, so that a damaged or foreign file is an error here
and not a wrong prediction later.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.label_arrays import from_arrays, to_arrays
from fastemf.inputs.labels import Labels
from fastemf.solver.records import FIELDS, SweepRecord, history_of, history_table
from fastemf.support.whole_file import UNREADABLE, replacing

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
FACTORS = ("X", "Y")
INTERCEPTS = ("row_intercepts", "col_intercepts")
UNSEEN = ("unseen_rows", "unseen_cols")
LABELS = ("row_labels", "col_labels")
OFFSETS = ("row_label_offsets", "col_label_offsets")  # where each string begins


# What later versions of the format added: header fields, and fields of the history.
HEADER_SINCE = {"row_labels": 2, "col_labels": 2}
HISTORY_SINCE = {"validation_loss": 2}
MAY_BE_NAN = ("validation_loss",)


class ModelFileError(ValueError):
    """A file that is not a model, or not one this version can read."""


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a fit's fields; a reader sees the old file or the new one, never half of it."""
    _save(path, _packed(content))


def write_levels(path: str | os.PathLike[str], contents: list[dict[str, Any]]) -> None:
    """Write the fields of several fits, in order: the arrays of the first begin with ``0/``."""
    arrays = _header_array({"levels": len(contents)})
    for place, content in enumerate(contents):
        arrays |= {f"{place}/{name}": array for name, array in _packed(content).items()}
    _save(path, arrays)


def read(path: str | os.PathLike[str]) -> dict[str, Any] | list[dict[str, Any]]:
    """Read the fields of a fit, or of several, checked."""
    try:
        arrays = _arrays(path)
        header, _ = _header(arrays)
        return _checked_levels(header, arrays) if "levels" in header else _checked(arrays)
    except _MalformedError as error:
        raise ModelFileError(f"{os.fspath(path)} is not a valid fastemf model: {error}") from error


def _save(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    with replacing(path, "a model") as file:
        np.savez(file, **arrays)


def _header_array(header: dict[str, Any]) -> dict[str, Any]:
    header = {"format": "fastemf", "version": VERSION} | header
    # As bytes, so that no string dtype is involved.
    return {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}


def _packed(content: dict[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = {name: kind(content[name]) for name, kind in SCALARS.items()}
    header |= {"history_fields": list(FIELDS), "intercepts": content["row_intercepts"] is not None}
    arrays = {name: content[name] for name in (*FACTORS, *UNSEEN)}
    for name, offsets in zip(LABELS, OFFSETS, strict=True):
        header[name] = None
        if content[name] is not None:
            header[name], (arrays[name], arrays[offsets]) = to_arrays(content[name])
    arrays |= {name: content[name] for name in INTERCEPTS if content[name] is not None}
    arrays["history"] = history_table(content["history"])
    return arrays | _header_array(header)


class _MalformedError(Exception):
    pass


def _arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    content = io.BytesIO(Path(path).read_bytes())
    try:
        loaded = np.load(content, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise _MalformedError("it holds a single array")
        with loaded:
            return {key: np.asarray(loaded[key]) for key in loaded.files}
    except UNREADABLE as error:
        # Not NumPy's own words: they advise unpickling what is not even an array.
        raise _MalformedError("truncated, damaged, or another kind of file") from error


def _header(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], int]:
    """The header and the version it is of."""
    if "header" not in arrays:
        raise _MalformedError("it is an .npz file without a header")
    try:
        header = json.loads(arrays["header"].tobytes().decode())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _MalformedError(f"damaged header ({error})") from error
    if isinstance(header, dict) and "checkpoint" in header:
        raise _MalformedError("it is the checkpoint of a fit, for complete(..., resume=True)")
    if not isinstance(header, dict) or header.pop("format", None) != "fastemf":
        raise _MalformedError("it is an .npz file of another program")
    version = header.pop("version", None)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise _MalformedError(
            f"format version {version}, while this fastemf reads 1 to {VERSION}; upgrade fastemf"
        )
    return header, version


def _checked_levels(
    header: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> list[dict[str, Any]]:
    _check_keys(header.keys(), {"levels"}, "header field")
    count = header["levels"]
    right = type(count) is int and 2 <= count < len(arrays)
    _require(right, "levels must be a number from 2 on, and each must have arrays")
    parts: list[dict[str, NDArray[Any]]] = [{} for _ in range(count)]
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        if key != "header":
            right = place.isdecimal() and int(place) < count and name != ""
            _require(right, f"array {key!r} is unknown")
            parts[int(place)][name] = array
    contents = [_checked(part) for part in parts]
    shapes = {(fit["X"].shape[0], fit["Y"].shape[0]) for fit in contents}
    _require(len(shapes) == 1, "levels must be of one matrix")
    for name in LABELS:
        same = all(fit[name] == contents[0][name] for fit in contents)
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
    _require(bool(np.isfinite(header["mu"])), "mu must be finite")

    X, Y = arrays["X"], arrays["Y"]
    _require(
        X.ndim == 2 and Y.ndim == 2 and X.shape[1] == Y.shape[1] and X.size > 0 and Y.size > 0,
        f"X and Y must be matrices of equal rank, not empty, got shapes {X.shape} and {Y.shape}",
    )
    _require(X.dtype in (np.float32, np.float64), f"X must be float32 or float64, got {X.dtype}")
    for name in (*FACTORS, *(INTERCEPTS if with_intercepts else ())):
        _require(arrays[name].dtype == X.dtype, f"{name} must have the dtype of X")
        _require(bool(np.isfinite(arrays[name]).all()), f"{name} must be finite")
    for i, n in enumerate((X.shape[0], Y.shape[0])):
        if with_intercepts:
            name = INTERCEPTS[i]
            _require(arrays[name].shape == (n,), f"{name} must have shape ({n},)")
        index = arrays[UNSEEN[i]]
        right = index.dtype == np.int64 and index.ndim == 1
        right = right and bool(((index >= 0) & (index < n)).all())
        _require(right, f"{UNSEEN[i]} must hold indices below {n}")

    return {
        **{name: header[name] for name in SCALARS},
        **{name: arrays[name] for name in (*FACTORS, *UNSEEN)},
        **{name: arrays.get(name) for name in INTERCEPTS},
        **_labels(header, arrays, (X.shape[0], Y.shape[0])),
        "history": _history(header["history_fields"], arrays["history"], version),
    }


def _labels(
    header: dict[str, Any], arrays: dict[str, NDArray[Any]], shape: tuple[int, int]
) -> dict[str, Labels | None]:
    abouts = [header.get(name) for name in LABELS]
    _require(abouts.count(None) != 1, "labels must be those of rows and of columns, or none")
    labels: dict[str, Labels | None] = {}
    for name, offsets, about, size in zip(LABELS, OFFSETS, abouts, shape, strict=True):
        try:
            labels[name] = (
                None if about is None else from_arrays(about, arrays[name], arrays[offsets], size)
            )
        except (TypeError, ValueError) as error:
            raise _MalformedError(f"{name}: {error}") from error
    return labels


def _history(names: Any, history: NDArray[Any], version: int) -> tuple[SweepRecord, ...]:
    wanted = [name for name in FIELDS if HISTORY_SINCE.get(name, 1) <= version]
    right = names == wanted and history.dtype == np.float64
    _require(right and history.shape[1:] == (len(wanted),), "history must have its columns")
    for name, column in zip(wanted, history.T, strict=True):
        finite = np.isfinite(column) | (np.isnan(column) & (name in MAY_BE_NAN))
        _require(bool(finite.all()), "history must be finite")
    return history_of(history, wanted)


def _check_keys(found: Any, wanted: set[str], what: str) -> None:
    if missing := sorted(wanted - set(found)):
        raise _MalformedError(f"{what} {missing[0]!r} is missing")
    if extra := sorted(set(found) - wanted):
        raise _MalformedError(f"{what} {extra[0]!r} is unknown")


def _require(right: bool, rule: str) -> None:
    if not right:
        raise _MalformedError(rule)
