"""The loop of a fit with what its user sees: callback, progress bar, checkpoint and warning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import Alternation, Engine, Outcome, Solution
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.progress import reporting
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.support.warn import ConvergenceWarning, RoundingWarning, warn

__all__ = ["alternate"]


def alternate(
    engine: Engine,
    start: Callable[[], tuple[NDArray[Any], NDArray[Any]]],
    schedule: RidgeSchedule,
    settings: Settings,
    checkpoint: Checkpoint | None = None,
    held_out: Engine | None = None,
    renew: Callable[[Solution], Engine] | None = None,
) -> Outcome:
    """Run the alternation from `start()`, or from where a checkpoint says it was.

    A warning says where the sweeps allowed were too few, and where rounding ended the fit.
    """
    with reporting(settings.callback, settings.max_iter, settings.progress) as report:
        if checkpoint is None:
            loop = Alternation(engine, schedule, settings, report, held_out, renew=renew)
            end = loop.run(loop.start(*start()))
        else:
            keep = partial(checkpoint.keep, schedule)
            loop = Alternation(engine, schedule, settings, report, held_out, keep, renew)
            width = settings.k + settings.intercepts
            state = checkpoint.resumed(
                schedule, engine, width, judged=held_out is not None, renews=renew is not None
            )
            state = loop.start(*start()) if state is None else state
            done = len(state.history)
            with checkpoint.blamed_until(lambda: len(state.history) > done):
                end = loop.run(state)
    if end.spoilt:
        coarse = engine.eps > np.finfo(np.float64).eps
        warn(
            "the fit ended before it converged: a sweep raised the objective by more than the "
            f"rounding of its residuals in {'float32' if coarse else 'float64'} explains, and was "
            f"undone; {'pass float64' if coarse else 'raise reg'}, or take a constant off the data "
            "(intercepts=True does)",
            RoundingWarning,
        )
    elif not (end.converged or end.stopped):
        warn(
            f"the fit did not converge within max_iter={settings.max_iter} sweeps: the last one "
            f"lowered the objective by {end.history[-1].relative_decrease:.2g} "
            f"(tol={settings.tol:g})"
            + ("" if schedule.settled else " and the ridge was still moving")
            + "; raise max_iter"
            + (" or tol" if schedule.settled else ""),
            ConvergenceWarning,
        )
    return end
