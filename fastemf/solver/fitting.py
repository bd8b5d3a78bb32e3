"""The loop of a fit with what its user sees: callback, progress bar, checkpoint and warning."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import Alternation, Engine, Outcome, Solution, State
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.early import EARLY_TOL
from fastemf.solver.progress import reporting
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.support.warn import ConvergenceWarning, RoundingWarning, warn

__all__ = ["alternate"]

_ALONE = nullcontext()


def alternate(
    engine: Engine,
    start: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]],
    schedule: RidgeSchedule,
    settings: Settings,
    checkpoint: Checkpoint | None = None,
    held_out: Engine | None = None,
    renew: Callable[[Solution], Engine] | None = None,
    early: Engine | None = None,
) -> Outcome:
    """Run the alternation from `start(engine)`, or from where a checkpoint says it was.

    With `early` its first sweeps are those of that engine. A warning says where the sweeps allowed
    were too few, and where rounding ended the fit.
    """
    with reporting(settings.callback, settings.max_iter, settings.progress) as report:
        keep = None if checkpoint is None else partial(checkpoint.keep, schedule)
        loop = Alternation(engine, schedule, settings, report, held_out, keep, renew)
        first = loop
        if early is not None:
            begun = replace(settings, tol=max(settings.tol, EARLY_TOL))
            first = Alternation(early, schedule, begun, report, keep=keep)
        state = None
        if checkpoint is not None:
            state = checkpoint.resumed(
                schedule, (first.engine, engine), settings.k + settings.intercepts,
                judged=held_out is not None, renews=renew is not None,
            )  # fmt: skip
        if state is None:
            state = first.start(*_in_type(start(first.engine), first.engine.dtype))
            state.early = early is not None
        done = len(state.history)
        with checkpoint.blamed_until(lambda: len(state.history) > done) if checkpoint else _ALONE:
            end = _run(first, loop, state)
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


def _run(first: Alternation, loop: Alternation, state: State) -> Outcome:
    """Run one loop after the other, from where a state is."""
    if not state.early:
        return loop.run(state)
    led = first.run(state)
    if not led.stopped and len(led.history) < loop.settings.max_iter:
        return loop.run(loop.taken_over(state))
    # Sweeps, or the user's patience, were too few: what is kept of the state goes on from here,
    # and what is returned is the best X, in the data's type, for the Y that was reached.
    led = led._replace(converged=False, spoilt=False)
    X, Y = _in_type((led.X, led.Y), loop.engine.dtype)
    return led._replace(X=loop.engine.solve(0, X, Y, led.ridge).factor, Y=Y)


def _in_type(factors: tuple[NDArray[Any], NDArray[Any]], dtype: np.dtype[Any]) -> Any:
    return tuple(np.ascontiguousarray(factor, dtype) for factor in factors)
