"""Checkpoints: the state of a fit on disk, from which it goes on as if never interrupted.

A checkpoint is one ``.npz`` file, written atomically and read without pickle, as the model file
is. It holds everything that decides the rest of the fit, so that the result is bitwise identical,
and a fingerprint of the data and settings, which must be those of the fit that resumes.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import Point, State
from fastemf.solver.records import FIELDS, Ridge, history_of, history_table
from fastemf.solver.ridge import RidgeSchedule
from fastemf.support.array_file import DamagedFileError, parse_json, read_arrays
from fastemf.support.whole_file import check_target, replacing

__all__ = ["Checkpoint", "CheckpointError", "check_begin"]

VERSION = 1
WHAT = "a checkpoint"  # in messages


class CheckpointError(ValueError):
    """A checkpoint that cannot be resumed: it is damaged, or of another fit."""


def check_begin(path: str | os.PathLike[str], resume: bool) -> None:
    """Raise where a fit could not write its file, or would write over another's."""
    check_target(path, WHAT)
    if Path(path).exists() and not resume:
        raise FileExistsError(
            f"checkpoint {os.fspath(path)} exists: resume=True continues from it; remove it to "
            "begin anew"
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a fit keeps its state.

    Parameters
    ----------
    path
        The file.
    every
        Sweeps between two writings; the last sweep is always written.
    resume
        Whether to go on from a file that is there; else such a file is an error.
    fingerprint
        What says which data and settings these are, by name.
    """

    path: str | os.PathLike[str]
    every: int
    resume: bool
    fingerprint: dict[str, Any]

    def resumed(self, schedule: RidgeSchedule) -> State | None:
        """Read the state, and put `schedule` where it was; None where there is no file."""
        check_begin(self.path, self.resume)  # now, not after the first sweeps
        if not Path(self.path).exists():
            return None
        name = os.fspath(self.path)
        try:
            arrays = read_arrays(self.path)
            header = _header(arrays)
            if header["checkpoint"] != VERSION:
                raise CheckpointError(
                    f"{name} is a checkpoint of version {header['checkpoint']}, "
                    f"this fastemf reads {VERSION}"
                )
            self._check(_field(header, "fingerprint", dict))
            memory = _numbers(header, "schedule", len(schedule.memory()))
            _require(bool(np.isfinite(memory).all()), "its schedule must be finite")
            state = _unpacked(header, arrays)
        except DamagedFileError as error:
            raise CheckpointError(f"{name} is not a fastemf checkpoint: {error}") from error
        schedule.recall(memory)
        return state

    def keep(self, schedule: RidgeSchedule, state: State, last: bool) -> None:
        """Write the state if it is time to."""
        if not last and len(state.history) % self.every:
            return
        header, arrays = _packed(state)
        header |= {
            "checkpoint": VERSION,
            "fingerprint": self.fingerprint,
            "schedule": schedule.memory(),
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with replacing(self.path, WHAT) as file:
            np.savez(file, **arrays)

    def _check(self, found: dict[str, Any]) -> None:
        for name, now in self.fingerprint.items():
            then = found.get(name)
            if then == now:
                continue
            what = "of other data" if name == "data" else f"of a fit with {name}={then!r}"
            ours = "" if name == "data" else f", and this one has {name}={now!r}"
            raise CheckpointError(
                f"checkpoint {os.fspath(self.path)} is {what}{ours}; remove it to begin anew"
            )


SCALARS = {
    "accepted_since": int,
    "remaining": float,
    "restarts": int,
    "best_sweep": int,
    "converged": bool,
    "stopped": bool,
    "spoilt": bool,
}


def _packed(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    header: dict[str, Any] = {name: getattr(state, name) for name in SCALARS}
    header["at_best"] = state.best is state.point
    arrays = {"previous": state.previous}
    for name, point in (("point", state.point), ("best", state.best)):
        if point is not None and not (name == "best" and header["at_best"]):
            arrays |= {f"{name}_X": point.X, f"{name}_Y": point.Y}
            # Floats read back from JSON are bitwise identical, NaN included.
            header[name] = [*point.ridge, point.loss, point.rms, point.validation_loss]
    arrays["history"] = history_table(state.history)
    return header, arrays


def _header(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    header = parse_json(arrays["header"].tobytes()) if "header" in arrays else None
    if not isinstance(header, dict) or type(header.get("checkpoint")) is not int:
        raise DamagedFileError("it is another kind of file")
    return header


def _unpacked(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> State:
    """Rebuild the state from a file, of which nothing is taken for granted."""
    header = {"stopped": False, "spoilt": False, **header}  # files of 0.1.0 do not say
    scalars = {name: _field(header, name, kind) for name, kind in SCALARS.items()}
    at_best = _field(header, "at_best", bool)
    point = _point("point", header, arrays)
    best = _point("best", header, arrays) if "best" in header else None
    previous = _array(arrays, "previous")
    pairs = [(previous, point.X)]
    if best is not None:
        pairs += [(best.X, point.X), (best.Y, point.Y)]
    same = all(one.shape == other.shape and one.dtype == other.dtype for one, other in pairs)
    _require(same, "its factors must be of one shape and type")
    try:
        history = history_of(_array(arrays, "history"), list(FIELDS))
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
    return State(
        point=point,
        best=point if at_best else best,
        previous=previous,
        history=list(history),
        **scalars,
    )


def _point(name: str, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Point:
    X, Y = _array(arrays, f"{name}_X"), _array(arrays, f"{name}_Y")
    right = X.ndim == Y.ndim == 2 and X.shape[1] == Y.shape[1] and X.dtype == Y.dtype
    right = right and X.dtype in (np.float32, np.float64)
    _require(right, f"{name} must be two matrices of floats with equal numbers of columns")
    factors, intercepts, *rest = _numbers(header, name, 5)
    return Point(X, Y, Ridge(factors, intercepts), *rest)


def _array(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[Any]:
    _require(name in arrays, f"array {name!r} is missing")
    return arrays[name]


def _field(header: dict[str, Any], name: str, kind: type) -> Any:
    _require(type(header.get(name)) is kind, f"header field {name!r} must be {kind.__name__}")
    return header[name]


def _numbers(header: dict[str, Any], name: str, count: int) -> list[float]:
    found: list[float] = _field(header, name, list)
    right = len(found) == count and all(type(number) is float for number in found)
    _require(right, f"header field {name!r} must be {count} numbers")
    return found


def _require(right: bool, rule: str) -> None:
    if not right:
        raise DamagedFileError(f"damaged, {rule}")
