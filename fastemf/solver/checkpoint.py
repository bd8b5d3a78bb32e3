"""Checkpoints: the state of a fit on disk, from which it continues as if never interrupted.

A checkpoint is one ``.npz`` file, written atomically and read without pickle. It holds the result
of the tuning, if there was one, and the state of the sweeps, so that a resumed fit is bitwise
identical to an uninterrupted one. A fingerprint identifies data and settings, which must be those
of the fit that resumes. Reading checks every key, type, shape and value, because kernels do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.solver.alternation import RENEWALS, Engine, Point, Solution, State
from fastemf.solver.records import FIELDS, Ridge, SweepRecord, pack_history, unpack_history
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.support.array_file import (
    DamagedFileError,
    check_keys,
    parse_header,
    read_arrays,
    require,
)
from fastemf.support.arrays import Array
from fastemf.support.atomic_file import check_target, replace_file

VERSION = 1
WHAT = "a checkpoint"  # in messages
TUNING_PREFIX = "tuning_"  # of the names of a tuning's arrays; all others are of the sweeps

Arrays = dict[str, Array]


class CheckpointError(ValueError):
    """A checkpoint that cannot be resumed: it is damaged, or of another fit."""


def check_checkpoint_path(path: str | os.PathLike[str], resume: bool) -> None:
    """Raise where a checkpoint cannot be written, or would overwrite another fit's."""
    check_target(path, WHAT)
    if Path(path).exists() and not resume:
        raise FileExistsError(
            f"checkpoint {os.fspath(path)} exists: resume=True continues from it; remove it to "
            "begin anew"
        )


def open_checkpoint(
    settings: Settings, data: Callable[[], list[str]], seed: int | None = None
) -> CheckpointFile | None:
    """Open the checkpoint of a fit; None where the settings name none.

    `data()` returns digests of the data; `seed` draws the validation cells of a tuning.
    """
    if settings.checkpoint is None:
        return None
    fingerprint = {"data": data()} | settings.fingerprint()
    if seed is not None and settings.reg == "auto":
        fingerprint["seed"] = seed
    path, every, resume = astuple(settings.checkpoint)
    return CheckpointFile(path, every, resume, fingerprint)


class CheckpointFile:
    """The file in which a fit stores the result of its tuning and the state of its sweeps.

    Parameters
    ----------
    path
        The file.
    every
        Number of sweeps between writes; the last sweep is always written.
    resume
        Whether to continue from an existing file; otherwise such a file is an error.
    fingerprint
        Data and settings by name, which a resumed fit must share.
    """

    def __init__(
        self, path: str | os.PathLike[str], every: int, resume: bool, fingerprint: dict[str, Any]
    ) -> None:
        check_checkpoint_path(path, resume)  # now, not after the first sweeps
        self.path = path
        self.every = every
        self.fingerprint = fingerprint
        self._tuning: tuple[dict[str, Any], Arrays] | None = None  # to write beside each state

    # --- reading -----------------------------------------------------------------------------

    def read_tuning(self) -> tuple[dict[str, Any], Arrays] | None:
        """Return header and arrays of a finished tuning; None where the file has none."""
        header, arrays = self._content
        if "tuning" not in header:
            return None
        with self.damage_as_error():
            about = read_field(header, "tuning", dict)
        own = {name: part for name, part in arrays.items() if name.startswith(TUNING_PREFIX)}
        self._tuning = about, own
        return about, {name.removeprefix(TUNING_PREFIX): part for name, part in own.items()}

    def read_state(
        self,
        schedule: RidgeSchedule,
        engines: tuple[Engine, Engine],
        width: int,
        *,
        validated: bool,
        renews: bool = False,
    ) -> State | None:
        """Read the state of the sweeps and restore `schedule`; None before the first sweep.

        Parameters
        ----------
        schedule
            Ridge of the fit that resumes.
        engines
            The engines of its warm-up sweeps and of the others.
        width
            Number of columns of its factors.
        validated
            Whether its sweeps are evaluated on validation entries.
        renews
            Whether some of its values depend on the fit.
        """
        header, arrays = self._content
        if not header:
            return None
        with self.damage_as_error():
            optional = {"state"} if self._tuning is None else {"state", "tuning"}
            known = {"checkpoint", "fingerprint"} | (optional & header.keys())
            check_keys(header, known, "header field")
            names = set() if self._tuning is None else set(self._tuning[1])
            others = {name: part for name, part in arrays.items() if name not in names}
            if "state" not in header:
                check_keys(others, set(), "array")
                return None
            state_header = read_field(header, "state", dict)
            engine = engines[0 if state_header.get("warm_up") is True else 1]
            state = _unpack_state(state_header, others, engine, width, validated, renews)
            _restore(schedule, read_floats(state_header, "schedule", len(schedule.state())))
            for ridge in (schedule.ridge, state.point.ridge):
                check_ridge(ridge, engine)
            check_overflow(state.point.X, state.point.Y, engine, state.previous)
        return state

    @cached_property
    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of the file, of the right version, data and settings."""
        if not Path(self.path).exists():
            return {}, {}
        with self.damage_as_error():
            arrays = read_arrays(self.path)
            header = _read_header(arrays)
            self._check_version(header["checkpoint"])
            self._check_fingerprint(read_field(header, "fingerprint", dict))
        del arrays["header"]
        return header, arrays

    @contextmanager
    def damage_as_error(self) -> Iterator[None]:
        """Turn the error of a damaged file into one that names the checkpoint."""
        try:
            yield
        except DamagedFileError as error:
            name = os.fspath(self.path)
            raise CheckpointError(f"{name} is not a fastemf checkpoint: {error}") from error

    @contextmanager
    def blamed_until(self, has_advanced: Callable[[], bool]) -> Iterator[None]:
        """Name the checkpoint in the error if the fit overflows before it has advanced."""
        try:
            yield
        except FloatingPointError as error:
            if has_advanced() or not self._content[0]:
                raise
            raise CheckpointError(
                f"checkpoint {os.fspath(self.path)} cannot be resumed: {error}"
            ) from error

    # --- writing -----------------------------------------------------------------------------

    def write_tuning(self, header: dict[str, Any], arrays: Arrays) -> None:
        """Write a finished tuning, which stays in the file from now on."""
        self._tuning = header, {f"{TUNING_PREFIX}{name}": part for name, part in arrays.items()}
        self._write({}, {})

    def write_state(self, schedule: RidgeSchedule, state: State, last: bool) -> None:
        """Write the state of the sweeps if it is due."""
        if not last and len(state.history) % self.every:
            return
        header, arrays = _pack_state(state)
        self._write({"state": header | {"schedule": schedule.state()}}, arrays)

    def _write(self, header: dict[str, Any], arrays: Arrays) -> None:
        header |= {"checkpoint": VERSION, "fingerprint": self.fingerprint}
        if self._tuning is not None:
            header["tuning"] = self._tuning[0]
            arrays = arrays | self._tuning[1]
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with replace_file(self.path, WHAT) as file:
            np.savez(file, **{"header": text, **arrays})  # type: ignore[arg-type]
        self._content = {}, {}  # the fit is ahead of what was read

    def _check_version(self, version: int) -> None:
        if version != VERSION:
            raise CheckpointError(
                f"{os.fspath(self.path)} is a checkpoint of version {version}, and this fastemf "
                f"reads version {VERSION}: upgrade fastemf, or remove it to begin anew"
            )

    def _check_fingerprint(self, found: dict[str, Any]) -> None:
        for name, now in self.fingerprint.items():
            then = found.get(name)
            if then == now:
                continue
            what = "of other data" if name == "data" else f"of a fit with {name}={then!r:.200}"
            ours = "" if name == "data" else f", and this one has {name}={now!r}"
            raise CheckpointError(
                f"checkpoint {os.fspath(self.path)} is {what}{ours}; remove it to begin anew"
            )


# --- fields and arrays ---------------------------------------------------------------------------


def read_field(header: dict[str, Any], name: str, kind: type) -> Any:
    """Return a header field, which must be of a type."""
    require(type(header.get(name)) is kind, f"header field {name!r} must be {kind.__name__}")
    return header[name]


def read_floats(header: dict[str, Any], name: str, count: int) -> list[float]:
    """Return a header field, which must be a list of `count` floats."""
    found: list[float] = read_field(header, name, list)
    valid = len(found) == count and all(type(number) is float for number in found)
    require(valid, f"header field {name!r} must be {count} numbers")
    return found


def read_array(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a finite array, which must be of a shape and type."""
    require(name in arrays, f"array {name!r} is missing")
    found = arrays[name]
    valid = found.shape == shape and found.dtype == dtype
    require(valid, f"{name} must be {dtype} of shape {shape}, got {found.dtype}, {found.shape}")
    if found.size:
        # Minimum and maximum show NaN and infinities without a temporary array.
        require(bool(np.isfinite([found.min(), found.max()]).all()), f"{name} must be finite")
    return found


def check_ridge(ridge: Ridge, engine: Engine, largest: float = 1.0) -> None:
    """Refuse a ridge that overflows; `largest` multiplies it beside the observations."""
    limit = float(np.finfo(engine.dtype).max)
    valid = all(0 <= part * max(1.0, engine.mass) * largest < limit for part in ridge)
    require(valid, f"its ridge must not overflow {engine.dtype}")


def check_overflow(X: Array, Y: Array, engine: Engine, *others: Any) -> None:
    """Refuse factors at which loss or penalty overflow; `others` are alternatives to X."""
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            half = engine.evaluate(X, Y)
            squares = [engine.penalty(factor, Y, Ridge(1.0, 1.0)) for factor in (X, *others)]
            squares += [half.above, half.below]
        except FloatingPointError:
            squares = [np.inf]
    require(bool(np.isfinite(squares).all()), f"its factors must not overflow {engine.dtype}")


def _read_header(arrays: Arrays) -> dict[str, Any]:
    header = parse_header(arrays["header"]) if "header" in arrays else None
    version = header.get("checkpoint") if isinstance(header, dict) else None
    if not isinstance(header, dict) or type(version) is not int or not 1 <= version < 1000:
        raise DamagedFileError("it is another kind of file")
    return header


# --- the state of the sweeps ---------------------------------------------------------------------

SCALARS = {
    "accepted_since": int,
    "contraction": float,
    "restarts": int,
    "best_sweep": int,
    "converged": bool,
    "stopped": bool,
    "stalled": bool,
    "renewals": int,
    "renewed_at": int,
    "warm_up": bool,
}


def _pack_state(state: State) -> tuple[dict[str, Any], Arrays]:
    header: dict[str, Any] = {name: getattr(state, name) for name in SCALARS}
    header["at_best"] = state.best is state.point
    arrays = {"previous": state.previous, "history": pack_history(state.history)}
    for name, point in (("point", state.point), ("best", state.best)):
        if point is not None and not (name == "best" and header["at_best"]):
            arrays |= {f"{name}_X": point.X, f"{name}_Y": point.Y}
            # Floats read back from JSON are bitwise identical, NaN included.
            header[name] = [*point.ridge, point.loss, point.rms, point.validation_loss]
    if state.values_from is not None:
        X, Y, ridge = state.values_from
        arrays |= {"values_from_X": X, "values_from_Y": Y}
        header["values_from"] = [*ridge]
    return header, arrays


def _unpack_state(
    header: dict[str, Any],
    arrays: Arrays,
    engine: Engine,
    width: int,
    validated: bool,
    renews: bool,
) -> State:
    """Rebuild the state from the untrusted content of a file."""
    scalars = {name: read_field(header, name, kind) for name, kind in SCALARS.items()}
    renewed = scalars["renewals"] > 0
    require(renews or not renewed, "this fit has no values that depend on it")
    at_best = read_field(header, "at_best", bool)
    require(validated or not at_best, "there is no best iterate without validation entries")
    has_best = validated and not at_best  # and the best iterate is not the last one
    points = ["point", *(["best"] if has_best else []), *(["values_from"] if renewed else [])]
    check_keys(header, {"schedule", "at_best", *points, *SCALARS}, "header field")
    names = {f"{name}_{axis}" for name in points for axis in "XY"}
    check_keys(arrays, {"history", "previous", *names}, "array")

    point = _unpack_point("point", header, arrays, engine, width, validated)
    best = _unpack_point("best", header, arrays, engine, width, validated) if has_best else None
    previous = read_array(arrays, "previous", (engine.shape[0], width), engine.dtype)
    history = _unpack_history(arrays["history"])
    state = State(
        point=point,
        best=point if at_best else best,
        previous=previous,
        history=list(history),
        values_from=_unpack_solution(header, arrays, engine, width) if renewed else None,
        **scalars,
    )
    sweeps = len(history)
    require(0 <= state.accepted_since <= sweeps, "accepted_since must be a number of its sweeps")
    require(0 <= state.contraction < np.inf, "contraction must be finite and not negative")
    require(state.restarts == history[-1].restarts, "restarts must be those of its history")
    first, last = (1, sweeps) if validated else (0, 0)
    require(first <= state.best_sweep <= last, "best_sweep must be one of its sweeps")
    require(0 <= state.renewed_at <= sweeps, "renewed_at must be one of its sweeps")
    require(0 <= state.renewals <= RENEWALS, f"renewals must be at most {RENEWALS}")
    return state


def _unpack_history(table: Array) -> tuple[SweepRecord, ...]:
    try:
        history = unpack_history(table, list(FIELDS))
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
    require(len(history) > 0, "history must have a sweep")
    rejected = 0
    for number, record in enumerate(history, 1):
        require(record.sweep == number, "history must number its sweeps from 1")
        rejected += not record.accepted
        require(record.restarts == rejected, "history must count its restarts")
    return history


def _unpack_point(
    name: str, header: dict[str, Any], arrays: Arrays, engine: Engine, width: int, validated: bool
) -> Point:
    X, Y = _unpack_factors(name, arrays, engine, width)
    *parts, validation_loss = read_floats(header, name, 5)
    require(all(0 <= part < np.inf for part in parts), f"{name} must be finite, not below 0")
    valid = 0 <= validation_loss < np.inf if validated else np.isnan(validation_loss)
    require(bool(valid), f"{name} must have a validation loss if there are validation entries")
    factors, intercepts, loss, rms = parts
    return Point(X, Y, Ridge(factors, intercepts), loss, rms, validation_loss)


def _unpack_factors(name: str, arrays: Arrays, engine: Engine, width: int) -> tuple[Array, Array]:
    X, Y = (
        read_array(arrays, f"{name}_{axis}", (size, width), engine.dtype)
        for axis, size in zip("XY", engine.shape, strict=True)
    )
    return X, Y


def _unpack_solution(
    header: dict[str, Any], arrays: Arrays, engine: Engine, width: int
) -> Solution:
    ridge = Ridge(*read_floats(header, "values_from", 2))
    require(all(0 <= part < np.inf for part in ridge), "values_from must be finite, not below 0")
    found = Solution(*_unpack_factors("values_from", arrays, engine, width), ridge)
    check_overflow(found.X, found.Y, engine, found.X)
    return found


def _restore(schedule: RidgeSchedule, numbers: list[float]) -> None:
    valid = all(0 <= number < np.inf for number in numbers)
    require(valid, "schedule must be finite and not negative")
    try:
        schedule.restore(numbers)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
