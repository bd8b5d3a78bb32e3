"""Checkpoints: the state of a fit on disk, from which it goes on as if never interrupted.

A checkpoint is one ``.npz`` file, written atomically and read without pickle, as the model file
is. It holds everything that decides the rest of the fit, so that the result is bitwise identical,
and a fingerprint of the data and settings, which must be those of the fit that resumes. Reading
checks every key, type, shape and value against that fit: kernels trust what they are given.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import RENEWALS, Engine, Point, Solution, State
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.kept_fields import (
    Arrays,
    array,
    check_overflow,
    check_ridge,
    demand,
    field,
    floats_of,
    require_names,
)
from fastemf.solver.records import FIELDS, Ridge, SweepRecord, history_of, history_table
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.sampling import Marks
from fastemf.solver.search import Search, Tuned
from fastemf.solver.search_record import (
    packed_search,
    packed_tuned,
    tuned_names,
    unpacked_search,
    unpacked_tuned,
)
from fastemf.solver.settings import Settings
from fastemf.solver.trial import Trial
from fastemf.support.array_file import DamagedFileError, parse_header, read_arrays
from fastemf.support.whole_file import check_target, replacing

__all__ = ["Checkpoint", "CheckpointError", "check_begin", "checkpoint_of"]

VERSION = 4
WHAT = "a checkpoint"  # in messages
STAGES = ("search", "tuned", "fit")
ALWAYS = ("checkpoint", "fingerprint", "stage")  # in a header
SECONDS = 5.0  # between two writings of a search, whose candidates may take a millisecond each
REST = 20  # times as long as the last writing took


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


def checkpoint_of(
    settings: Settings, data: Callable[[], list[str]], seed: int | None = None
) -> Checkpoint | None:
    """Make the checkpoint that a fit is told to keep, if any.

    `data()` returns digests of the data; the `seed` is that of the cells a tuning sets aside.
    """
    if settings.checkpoint is None:
        return None
    fingerprint = {"data": data()} | settings.fingerprint()
    if seed is not None and settings.reg == "auto":
        fingerprint["seed"] = seed
    path, every = settings.checkpoint, settings.checkpoint_every
    return Checkpoint(path, every, settings.resume, fingerprint)


class Checkpoint:
    """Where a fit keeps its state: of a tuning under way, of its end, of the sweeps after it.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int,
        resume: bool,
        fingerprint: dict[str, Any],
    ) -> None:
        check_begin(path, resume)  # now, not after the first sweeps
        self.path = path
        self.every = every
        self.fingerprint = fingerprint
        self._tuned: Tuned | None = None
        self._next_time = time.monotonic() + SECONDS

    # --- reading -----------------------------------------------------------------------------

    def search(self, trials: list[Trial], k: int) -> Search | None:
        """Read a tuning that is under way; None where there is none."""
        header, arrays = self._content
        if header.get("stage") != "search":
            return None
        with self._naming():
            return unpacked_search(field(header, "search", dict), arrays, trials, k)

    def tuned(self, engine: CompletionEngine, k: int, marks: Marks) -> Tuned | None:
        """Read what a tuning chose; None where it has not yet."""
        header, arrays = self._content
        if "tuned" not in header:
            return None
        with self._naming():
            about = field(header, "tuned", dict)
            self._tuned = unpacked_tuned(about, arrays, engine, k, marks)
        return self._tuned

    def resumed(
        self,
        schedule: RidgeSchedule,
        engines: tuple[Engine, Engine],
        width: int,
        *,
        judged: bool,
        renews: bool = False,
    ) -> State | None:
        """Read the state of the sweeps, and put `schedule` where it was; None before the first.

        Parameters
        ----------
        schedule
            Ridge of the fit that resumes.
        engines
            What will solve its early half-sweeps, and the others.
        width
            Columns of its factors.
        judged
            Whether its sweeps are judged by entries that are held out.
        renews
            Whether it has values that depend on the fit.
        """
        header, arrays = self._content
        if not header:
            return None
        with self._naming():
            tuned, names = set(), set()
            if self._tuned is not None:
                tuned, names = {"tuned"}, tuned_names(header["tuned"])
            if header["stage"] != "fit":
                demand(header["stage"] == "tuned" and bool(tuned), "this fit has nothing to tune")
                require_names("array", arrays, names)
                return None
            left = {name: part for name, part in header.items() if name not in tuned}
            others = {name: part for name, part in arrays.items() if name not in names}
            left = {"early": False} | left  # older ones had no early sweeps
            engine = engines[0 if left["early"] is True else 1]
            state = _unpacked(left, others, engine, width, judged, renews)
            _recall(schedule, floats_of(header, "schedule", len(schedule.memory())))
            _check_sizes(state, schedule.ridge, engine)
        return state

    @cached_property
    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of the file, of the right version, data and settings."""
        if not Path(self.path).exists():
            return {}, {}
        with self._naming():
            arrays = read_arrays(self.path)
            header = _header(arrays)
            self._check_version(header["checkpoint"])
            self._check(field(header, "fingerprint", dict))
            stage = field(header, "stage", str)
            demand(stage in STAGES, f"its stage must be one of {', '.join(STAGES)}")
            if stage != "fit":
                require_names("header field", header, {*ALWAYS, stage})
        del arrays["header"]
        return header, arrays

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except DamagedFileError as error:
            name = os.fspath(self.path)
            raise CheckpointError(f"{name} is not a fastemf checkpoint: {error}") from error

    @contextmanager
    def blamed_until(self, is_further: Callable[[], bool]) -> Iterator[None]:
        """Name the checkpoint where what follows from it overflows, until the fit is further."""
        try:
            with self._naming():
                yield
        except FloatingPointError as error:
            if is_further() or not self._content[0]:
                raise
            raise CheckpointError(
                f"checkpoint {os.fspath(self.path)} cannot be resumed: {error}"
            ) from error

    # --- writing -----------------------------------------------------------------------------

    def keep_search(self, search: Search) -> None:
        """Write a tuning that is under way, if the last time was long enough ago."""
        began = time.monotonic()
        if began < self._next_time:
            return
        header, arrays = packed_search(search)
        self._write("search", {"search": header}, arrays)
        ended = time.monotonic()
        self._next_time = ended + max(SECONDS, REST * (ended - began))

    def keep_tuned(self, tuned: Tuned) -> None:
        """Write what a tuning chose, which stays in the file from now on."""
        self._tuned = tuned
        self._write("tuned", {}, {})

    def keep(self, schedule: RidgeSchedule, state: State, last: bool) -> None:
        """Write the state of the sweeps if it is time to."""
        if not last and len(state.history) % self.every:
            return
        header, arrays = _packed(state)
        self._write("fit", header | {"schedule": schedule.memory()}, arrays)

    def _write(self, stage: str, header: dict[str, Any], arrays: Arrays) -> None:
        header |= {"checkpoint": VERSION, "fingerprint": self.fingerprint, "stage": stage}
        if self._tuned is not None:
            header["tuned"], more = packed_tuned(self._tuned)
            arrays = arrays | more
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with replacing(self.path, WHAT) as file:
            np.savez(file, **{"header": text, **arrays})  # type: ignore[arg-type]
        self._content = {}, {}  # nothing that was read is to be gone on from

    def _check_version(self, version: int) -> None:
        if version == VERSION:
            return
        raise CheckpointError(
            f"{os.fspath(self.path)} is a checkpoint of version {version}, and this fastemf reads "
            f"version {VERSION}: "
            + (
                "older ones do not hold what a tuning has done; remove it to begin anew"
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
    "renewals": int,
    "renewed_at": int,
    "early": bool,
}


def _packed(state: State) -> tuple[dict[str, Any], Arrays]:
    header: dict[str, Any] = {name: getattr(state, name) for name in SCALARS}
    header["at_best"] = state.best is state.point
    arrays = {"previous": state.previous}
    for name, point in (("point", state.point), ("best", state.best)):
        if point is not None and not (name == "best" and header["at_best"]):
            arrays |= {f"{name}_X": point.X, f"{name}_Y": point.Y}
            # Floats read back from JSON are bitwise identical, NaN included.
            header[name] = [*point.ridge, point.loss, point.rms, point.validation_loss]
    if state.values_of is not None:
        X, Y, ridge = state.values_of
        arrays |= {"values_of_X": X, "values_of_Y": Y}
        header["values_of"] = [*ridge]
    arrays["history"] = history_table(state.history)
    return header, arrays


def _header(arrays: Arrays) -> dict[str, Any]:
    header = parse_header(arrays["header"]) if "header" in arrays else None
    version = header.get("checkpoint") if isinstance(header, dict) else None
    if not isinstance(header, dict) or type(version) is not int or not 1 <= version < 1000:
        raise DamagedFileError("it is another kind of file")
    return header


def _unpacked(
    header: dict[str, Any],
    arrays: Arrays,
    engine: Engine,
    width: int,
    judged: bool,
    renews: bool,
) -> State:
    """Rebuild the state from a file, of which nothing is taken for granted."""
    scalars = {name: field(header, name, kind) for name, kind in SCALARS.items()}
    renewed = scalars["renewals"] > 0
    demand(renews or not renewed, "this fit has no values that depend on it")
    at_best = field(header, "at_best", bool)
    apart = judged and not at_best  # whether the best iterate is another than the last
    points = ["point", *(["best"] if apart else []), *(["values_of"] if renewed else [])]
    require_names(
        "header field", header.keys(), {*ALWAYS, "schedule", "at_best", *points, *SCALARS}
    )
    names = {f"{name}_{axis}" for name in points for axis in "XY"}
    require_names("array", arrays.keys(), {"history", "previous", *names})
    demand(judged or not at_best, "nothing is held out to have a best iterate by")

    point = _point("point", header, arrays, engine, width, judged)
    best = _point("best", header, arrays, engine, width, judged) if apart else None
    previous = array(arrays, "previous", (engine.shape[0], width), engine.dtype)
    history = _history(arrays["history"])
    state = State(
        point=point,
        best=point if at_best else best,
        previous=previous,
        history=list(history),
        values_of=_solution(header, arrays, engine, width) if renewed else None,
        **scalars,
    )
    sweeps = len(history)
    demand(0 <= state.accepted_since <= sweeps, "accepted_since must be a number of its sweeps")
    demand(0 <= state.remaining < np.inf, "remaining must be finite and not negative")
    demand(state.restarts == history[-1].restarts, "restarts must be those of its history")
    first, last = (1, sweeps) if judged else (0, 0)
    demand(first <= state.best_sweep <= last, "best_sweep must be one of its sweeps")
    demand(0 <= state.renewed_at <= sweeps, "renewed_at must be one of its sweeps")
    demand(0 <= state.renewals <= RENEWALS, f"renewals must be at most {RENEWALS}")
    return state


def _history(table: NDArray[Any]) -> tuple[SweepRecord, ...]:
    try:
        history = history_of(table, list(FIELDS))
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
    demand(len(history) > 0, "history must have a sweep")
    rejected = 0
    for number, record in enumerate(history, 1):
        demand(record.sweep == number, "history must number its sweeps from 1")
        rejected += not record.accepted
        demand(record.restarts == rejected, "history must count its restarts")
    return history


def _point(
    name: str,
    header: dict[str, Any],
    arrays: Arrays,
    engine: Engine,
    width: int,
    judged: bool,
) -> Point:
    X, Y = _factors(name, arrays, engine, width)
    *parts, validation_loss = floats_of(header, name, 5)
    demand(all(0 <= part < np.inf for part in parts), f"{name} must be finite, above 0")
    right = 0 <= validation_loss < np.inf if judged else np.isnan(validation_loss)
    demand(bool(right), f"{name} must have a validation loss where entries are held out")
    factors, intercepts, loss, rms = parts
    return Point(X, Y, Ridge(factors, intercepts), loss, rms, validation_loss)


def _factors(
    name: str, arrays: Arrays, engine: Engine, width: int
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    X, Y = (
        array(arrays, f"{name}_{axis}", (size, width), engine.dtype)
        for axis, size in zip("XY", engine.shape, strict=True)
    )
    return X, Y


def _solution(header: dict[str, Any], arrays: Arrays, engine: Engine, width: int) -> Solution:
    ridge = Ridge(*floats_of(header, "values_of", 2))
    demand(all(0 <= part < np.inf for part in ridge), "values_of must be finite, not below 0")
    found = Solution(*_factors("values_of", arrays, engine, width), ridge)
    check_overflow(found.X, found.Y, engine, found.X)
    return found


def _recall(schedule: RidgeSchedule, memory: list[float]) -> None:
    right = all(0 <= number < np.inf for number in memory)
    demand(right, "schedule must be finite and not negative")
    try:
        schedule.recall(memory)
    except ValueError as error:
        raise DamagedFileError(str(error)) from error


def _check_sizes(state: State, ridge: Ridge, engine: Engine) -> None:
    """Refuse numbers so large that the loss or the ridge overflow."""
    for one in (ridge, state.point.ridge):
        check_ridge(one, engine)
    check_overflow(state.point.X, state.point.Y, engine, state.previous)
