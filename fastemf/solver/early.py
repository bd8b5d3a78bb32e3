"""Early sweeps, which only lead the way: in float32, with a Newton step in the place of a solve.

Half the bytes and twice the lanes make a sweep in float32 take half as long, and at levels other
than 0.5 signs move until a fit converges, so that solving each row exactly for signs that will move
again is wasted. Early sweeps go on until they gain little; the same loop then takes their state
over, with momentum and history, and it alone, exact and in the data's type, decides when the fit
has converged. Which sweeps are early depends on data and settings and on nothing else: the bits of
a fit are those of any number of threads, and of any source.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastemf.observations.changed import BlockChange, ChangedSource
from fastemf.observations.source import Side
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.settings import Settings

__all__ = ["EARLY_TOL", "early_engine", "trial_engine"]

EARLY_TOL = 1e-5  # relative decrease of F, which float32 tells from rounding
WORK = 1e9  # multiply-adds of a sweep: less is not worth kernels for another type
SHARE = 2.0**-7  # of the values' size: a smaller spread is lost in their rounding
KEPT = 1 << 24  # observations that are kept in both types; others are turned as they are read
RANGE = 1e12  # of values and weights, either way
SINGLE = np.dtype(np.float32)


def early_engine(engine: CompletionEngine, settings: Settings) -> CompletionEngine | None:
    """Return the engine of early sweeps; None where they would be no faster, or not safe.

    They are for a ridge that is known. One that follows the residuals on the way must see those of
    rows that are solved, and in the type in which it comes to rest.
    """
    if not _pays(engine, settings):
        return None
    found = trial_engine(engine, settings)
    if engine.dtype != SINGLE and engine.spread >= SHARE * engine.size and _is_in_range(engine):
        keeps = engine.observations.size <= KEPT
        change = BlockChange(_single, ((), ()), dtype=SINGLE, keeps=keeps)
        found = found.on(ChangedSource(engine.observations, change)).in_type(SINGLE)
    return None if found is engine else found


def trial_engine(engine: CompletionEngine, settings: Settings) -> CompletionEngine:
    """Return the engine of fits that are tried on the way to a ridge: all of them are early."""
    if not _pays(engine, settings) or engine.omega == 0.5 or settings.steps > 0:
        return engine
    return engine.stepping()


def _pays(engine: CompletionEngine, settings: Settings) -> bool:
    if settings.solver == "exact" or isinstance(settings.init, tuple):  # what a user insists on
        return False
    width = settings.k + settings.intercepts
    return engine.observations.size * width**2 >= WORK


def _is_in_range(engine: CompletionEngine) -> bool:
    """Tell whether values, weights and their sums stay far from the ends of float32's range."""
    found = [part for _, part in engine.observations.by_row.each(_ends, (), (), n_threads=1)]
    largest, lightest, heaviest = np.array(found).T
    numbers = [largest.max(), engine.size, lightest.min(), heaviest.max(), engine.mass]
    return all(1 / RANGE < number < RANGE for number in numbers)


def _ends(block: Side, n_threads: int) -> tuple[float, float, float]:
    """Find the largest value of a block, and its smallest and largest weight."""
    largest = float(np.abs(block.values).max(initial=0.0))
    weights = block.weights[block.weights > 0] if block.weights.size else np.ones(1)
    return largest, float(weights.min(initial=1.0)), float(weights.max(initial=1.0))


def _single(block: Side, by_index: tuple[()], by_row: tuple[()]) -> Side:
    values, weights = block.values.astype(SINGLE), block.weights.astype(SINGLE)
    return replace(block, values=values, weights=weights)
