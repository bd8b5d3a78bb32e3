"""Checkpoints: the state of a fit on disk, from which it goes on to the same bits.

One ``.npz`` file, written atomically and read without pickle, as the model file is. It holds
everything that decides the rest of the fit, and a fingerprint of the data and settings, which
must be those of the fit that takes it up.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.solver.alternation import Point, State
from fastemf.solver.records import FIELDS, Ridge, history_of, history_table
from fastemf.solver.ridge import RidgeSchedule
from fastemf.support.whole_file import UNREADABLE, check_target, replacing

__all__ = ["Checkpoint", "CheckpointError", "check_begin"]

VERSION = 1
WHAT = "a checkpoint"  # in messages


class CheckpointError(ValueError):
    """A checkpoint that cannot be taken up: damaged, or of another fit."""


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
        Whether a file that is there is taken up; else it is an error.
    fingerprint
        Of data and settings, by name.
    """

    path: str | os.PathLike[str]
    every: int
    resume: bool
    fingerprint: dict[str, Any]

    def resumed(self, schedule: RidgeSchedule) -> State | None:
        """The state in the file, with `schedule` where it was; None where there is no file."""
        check_begin(self.path, self.resume)  # now, not after the first sweeps
        if not Path(self.path).exists():
            return None
        name = os.fspath(self.path)
        content = io.BytesIO(Path(self.path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes().decode())
                version, fingerprint = header["checkpoint"], dict(header["fingerprint"])
                if version == VERSION:
                    state = _unpacked(header, arrays)
        except UNREADABLE as error:
            raise CheckpointError(
                f"{name} is not a fastemf checkpoint: damaged, or another kind of file"
            ) from error
        if version != VERSION:
            raise CheckpointError(
                f"{name} is a checkpoint of version {version}, this fastemf reads {VERSION}"
            )
        self._check(fingerprint)
        schedule.recall(header["schedule"])
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


SCALARS = ("accepted_since", "remaining", "restarts", "best_sweep", "converged")


def _packed(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    header: dict[str, Any] = {name: getattr(state, name) for name in SCALARS}
    header["at_best"] = state.best is state.point
    arrays = {"previous": state.previous}
    for name, point in (("point", state.point), ("best", state.best)):
        if point is not None and not (name == "best" and header["at_best"]):
            arrays |= {f"{name}_X": point.X, f"{name}_Y": point.Y}
            # JSON writes floats so that the same bits are read, NaN too.
            header[name] = [*point.ridge, point.loss, point.rms, point.validation_loss]
    arrays["history"] = history_table(state.history)
    return header, arrays


def _unpacked(header: dict[str, Any], arrays: Any) -> State:
    points = {}
    for name in ("point", "best"):
        if name in header:
            ridge, rest = Ridge(*header[name][:2]), header[name][2:]
            points[name] = Point(arrays[f"{name}_X"], arrays[f"{name}_Y"], ridge, *rest)
    return State(
        point=points["point"],
        best=points["point"] if header["at_best"] else points.get("best"),
        previous=arrays["previous"],
        history=list(history_of(arrays["history"], list(FIELDS))),
        **{name: header[name] for name in SCALARS},
    )
