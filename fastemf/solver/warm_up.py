"""Warm-up sweeps, in float32 and with one Newton step in place of each solve.

A sweep in float32 takes half as long, and at levels other than 0.5 signs change until the fit
converges, so exact solves are wasted at first. Warm-up sweeps continue until they gain little. The
same loop then takes their state over, with momentum and history, and decides, with exact solves in
the data's type, when the fit has converged. Which sweeps are warm-up sweeps depends only on data
and settings, so a fit is bitwise identical for any number of threads and any source.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastemf.solver.engine import CompletionEngine
from fastemf.solver.settings import Settings
from fastemf.sources.mapped import BlockMap, MappedSource
from fastemf.sources.source import Arrays, Side

WORK = 1e9  # multiply-adds of a sweep: with fewer, loading other kernels takes longer
SMALLEST_SPREAD = 2.0**-7  # relative to the values: a smaller spread is lost in their rounding
KEPT = 1 << 24  # observations that are kept in both types; more are converted when read
RANGE = 1e12  # of values and weights, and of their inverses
SINGLE = np.dtype(np.float32)


def warm_up_engine(engine: CompletionEngine, settings: Settings) -> CompletionEngine | None:
    """Return the engine of warm-up sweeps; None where they would not be faster, or not safe.

    They need a ridge that does not depend on the residuals.
    """
    if not _pays(engine, settings):
        return None
    found = trial_engine(engine, settings)
    wide = engine.spread >= SMALLEST_SPREAD * engine.size
    if engine.dtype != SINGLE and wide and _is_in_range(engine):
        keep = engine.observations.size <= KEPT
        to_single = BlockMap(_convert_to_single, dtype=SINGLE, keep=keep)
        found = found.replace(observations=MappedSource(engine.observations, to_single))
    return None if found is engine else found


def trial_engine(engine: CompletionEngine, settings: Settings) -> CompletionEngine:
    """Return the engine of the trial fits of a tuning, with single Newton steps if that pays."""
    if not _pays(engine, settings) or engine.omega == 0.5 or settings.steps > 0:
        return engine
    return engine.replace(max_newton=1)


def _pays(engine: CompletionEngine, settings: Settings) -> bool:
    # The user explicitly chose exact solves, or a start.
    if settings.solver.method == "exact" or isinstance(settings.init, tuple):
        return False
    width = settings.k + settings.intercepts
    return engine.observations.size * width**2 >= WORK


def _is_in_range(engine: CompletionEngine) -> bool:
    """Return whether values, weights and their sums stay far from the limits of float32."""
    found = [part for _, part in engine.observations.by_row.each(_find_range, (), (), n_threads=1)]
    largest, lightest, heaviest = np.array(found).T
    numbers = [largest.max(), engine.size, lightest.min(), heaviest.max(), engine.mass]
    return all(1 / RANGE < number < RANGE for number in numbers)


def _find_range(block: Side, n_threads: int) -> tuple[float, float, float]:
    """Find the largest absolute value of a block, and its smallest and largest weight."""
    largest = float(np.abs(block.values).max(initial=0.0))
    weights = block.weights[block.weights > 0] if block.weights.size else np.ones(1)
    return largest, float(weights.min(initial=1.0)), float(weights.max(initial=1.0))


def _convert_to_single(block: Side, by_index: Arrays, by_row: Arrays) -> Side:
    values, weights = block.values.astype(SINGLE), block.weights.astype(SINGLE)
    return replace(block, values=values, weights=weights)
