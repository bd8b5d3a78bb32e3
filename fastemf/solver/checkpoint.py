"""Checkpoints: the state of a fit on disk, from which it goes on as if never interrupted.

A checkpoint is one ``.npz`` file, written atomically and read without pickle, as the model file
is. It holds everything that decides the rest of the fit, so that the result is bitwise identical,
and a fingerprint of the data and settings, which must be those of the fit that resumes. Reading
checks every key, type, shape and value against that fit: kernels trust what they are given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import Engine, Point, State
from fastemf.solver.records import FIELDS, Ridge, SweepRecord, history_of, history_table
from fastemf.solver.ridge import RidgeSchedule
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays
from fastemf.support.whole_file import check_target, replacing

__all__ = ["Checkpoint", "CheckpointError", "check_begin"]

VERSION = 2
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

    def resumed(
        self, schedule: RidgeSchedule, engine: Engine, width: int, *, judged: bool
    ) -> State | None:
        """Read the state, and put `schedule` where it was; None where there is no file.

        Parameters
        ----------
        schedule
            Ridge of the fit that resumes.
        engine
            What will solve its half-sweeps.
        width
            Columns of its factors.
        judged
            Whether its sweeps are judged by entries that are held out.
        """
        check_begin(self.path, self.resume)  # now, not after the first sweeps
        if not Path(self.path).exists():
            return None
        name = os.fspath(self.path)
        try:
            arrays = read_arrays(self.path)
            header = _header(arrays)
            self._check_version(header["checkpoint"])
            self._check(_field(header, "fingerprint", dict))
            state = _unpacked(header, arrays, engine, width, judged)
            _recall(schedule, _numbers(header, "schedule", len(schedule.memory())))
            _check_sizes(state, schedule.ridge, engine)
        except DamagedFileError as error:
            raise CheckpointError(f"{name} is not a fastemf checkpoint: {error}") from error
        return state

    @contextmanager
    def blamed_for(self, state: State) -> Iterator[None]:
        """Name the checkpoint where the sweep after the one it holds overflows."""
        sweeps = len(state.history)
        try:
            yield
        except FloatingPointError as error:
            if len(state.history) > sweeps:
                raise
            raise CheckpointError(
                f"checkpoint {os.fspath(self.path)} cannot be resumed: {error}"
            ) from error

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

    def _check_version(self, version: int) -> None:
        if version == VERSION:
            return
        raise CheckpointError(
            f"{os.fspath(self.path)} is a checkpoint of version {version}, and this fastemf reads "
            f"version {VERSION}: "
            + (
                "older ones cannot tell what data they are of; remove it to begin anew"
                if version < VERSION
                else "upgrade fastemf, or remove it to begin anew"
            )
        )

    def _check(self, found: dict[str, Any]) -> None:
        for name, now in self.fingerprint.items():
            then = found.get(name)
            if then == now:
                continue
            what = "of other data" if name == "data" else f"of a fit with {name}={then!r:.200}"
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
    header = parse_header(arrays["header"]) if "header" in arrays else None
    version = header.get("checkpoint") if isinstance(header, dict) else None
    if not isinstance(header, dict) or type(version) is not int or not 1 <= version < 1000:
        raise DamagedFileError("it is another kind of file")
    return header


def _unpacked(
    header: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    engine: Engine,
    width: int,
    judged: bool,
) -> State:
    """Rebuild the state from a file, of which nothing is taken for granted."""
    scalars = {name: _field(header, name, kind) for name, kind in SCALARS.items()}
    at_best = _field(header, "at_best", bool)
    apart = judged and not at_best  # whether the best iterate is another than the last
    fields = {"checkpoint", "fingerprint", "schedule", "at_best", "point", *SCALARS}
    _check_names("header field", header.keys(), fields | ({"best"} if apart else set()))
    names = {"header", "history", "previous", "point_X", "point_Y"}
    _check_names("array", arrays.keys(), names | ({"best_X", "best_Y"} if apart else set()))
    _require(judged or not at_best, "nothing is held out to have a best iterate by")

    point = _point("point", header, arrays, engine, width, judged)
    best = _point("best", header, arrays, engine, width, judged) if apart else None
    previous = _factor(arrays, "previous", (engine.shape[0], width), engine.dtype)
    history = _history(arrays["history"])
    state = State(
        point=point,
        best=point if at_best else best,
        previous=previous,
        history=list(history),
        **scalars,
    )
    sweeps = len(history)
    _require(0 <= state.accepted_since <= sweeps, "accepted_since must be a number of its sweeps")
    _require(0 <= state.remaining < np.inf, "remaining must be finite and not negative")
    _require(state.restarts == history[-1].restarts, "restarts must be those of its history")
    first, last = (1, sweeps) if judged else (0, 0)
    _require(first <= state.best_sweep <= last, "best_sweep must be one of its sweeps")
    return state


def _history(table: NDArray[Any]) -> tuple[SweepRecord, ...]:
    try:
        history = history_of(table, list(FIELDS))
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
    _require(len(history) > 0, "history must have a sweep")
    rejected = 0
    for number, record in enumerate(history, 1):
        _require(record.sweep == number, "history must number its sweeps from 1")
        rejected += not record.accepted
        _require(record.restarts == rejected, "history must count its restarts")
    return history


def _point(
    name: str,
    header: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    engine: Engine,
    width: int,
    judged: bool,
) -> Point:
    X, Y = (
        _factor(arrays, f"{name}_{axis}", (size, width), engine.dtype)
        for axis, size in zip("XY", engine.shape, strict=True)
    )
    *numbers, validation_loss = _numbers(header, name, 5)
    _require(all(0 <= number < np.inf for number in numbers), f"{name} must be finite, above 0")
    right = 0 <= validation_loss < np.inf if judged else np.isnan(validation_loss)
    _require(bool(right), f"{name} must have a validation loss where entries are held out")
    factors, intercepts, loss, rms = numbers
    return Point(X, Y, Ridge(factors, intercepts), loss, rms, validation_loss)


def _factor(
    arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    found = arrays[name]
    right = found.shape == shape and found.dtype == dtype
    _require(right, f"{name} must be {dtype} of shape {shape}, got {found.dtype}, {found.shape}")
    # NaN and infinities show in these two, without an array as long as the factor.
    _require(bool(np.isfinite([found.min(), found.max()]).all()), f"{name} must be finite")
    return found


def _recall(schedule: RidgeSchedule, memory: list[float]) -> None:
    right = all(0 <= number < np.inf for number in memory)
    _require(right, "schedule must be finite and not negative")
    try:
        schedule.recall(memory)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def _check_sizes(state: State, ridge: Ridge, engine: Engine) -> None:
    """Refuse numbers so large that the loss or the ridge overflow."""
    limit = float(np.finfo(engine.dtype).max)
    heaviest = max(*ridge, *state.point.ridge) * max(1.0, engine.mass)
    _require(heaviest < limit, f"its ridge must not overflow {engine.dtype}")
    X, Y = state.point.X, state.point.Y
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            engine.evaluate(X, Y)
            squares = [engine.penalty(factor, Y, Ridge(1.0, 1.0)) for factor in (X, state.previous)]
        except FloatingPointError:
            squares = [np.inf]
    _require(bool(np.isfinite(squares).all()), f"its factors must not overflow {engine.dtype}")


def _check_names(what: str, found: Iterable[str], wanted: set[str]) -> None:
    """Refuse names that are missing or unknown."""
    for name in sorted(wanted.symmetric_difference(found)):
        raise DamagedFileError(
            f"damaged, {what} {name!r:.80} is {'missing' if name in wanted else 'unknown'}"
        )


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
