"""The loop of a fit as its user sees it: a callback, a bar, a word if it did not settle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from fastemf.solver.alternation import Alternation, Engine, Outcome
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.progress import reporting
from fastemf.solver.records import SweepRecord
from fastemf.solver.ridge import RidgeSchedule
from fastemf.support.warn import ConvergenceWarning, warn

__all__ = ["alternate"]


def alternate(
    engine: Engine,
    start: Callable[[], tuple[NDArray[Any], NDArray[Any]]],
    schedule: RidgeSchedule,
    *,
    tol: float,
    max_iter: int,
    momentum: bool,
    orthogonalize: bool,
    callback: Callable[[SweepRecord], Any] | None,
    progress: bool,
    held_out: Engine | None = None,
    patience: int = 0,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Run the alternation from `start()`, or from where a checkpoint says it was.

    Warns where the sweeps allowed were too few.
    """
    state = None if checkpoint is None else checkpoint.resumed(schedule)
    with reporting(callback, max_iter, progress) as report:
        keep = None if checkpoint is None else partial(checkpoint.keep, schedule)
        loop = Alternation(tol, max_iter, momentum, orthogonalize, report, held_out, patience, keep)
        if state is None:
            state = loop.start(engine, *start(), schedule)
        end = loop.run(engine, state, schedule)
    if not (end.converged or end.stopped):
        warn(
            f"the fit did not settle within max_iter={max_iter} sweeps: the last one lowered the "
            f"objective by {end.history[-1].relative_decrease:.2g} (tol={tol:g})"
            + ("" if schedule.settled else " and the ridge was still moving")
            + "; raise max_iter"
            + (" or tol" if schedule.settled else ""),
            ConvergenceWarning,
        )
    return end
