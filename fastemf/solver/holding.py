"""What one level's tuning found, held while the level moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastemf.solver.blocks import EVERYTHING
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.growth import noise_norm
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry
from fastemf.solver.sampling import CellSample
from fastemf.solver.search import Tuned
from fastemf.solver.settings import Settings
from fastemf.solver.trial import swept
from fastemf.solver.tuner import INTERCEPT_SWEEPS, INTERCEPT_TOL
from fastemf.solver.tuning import Tuning

__all__ = ["Following", "Holding", "carried"]


class Holding:
    """A tuning of the first level asked for, which the other levels of the same data take over.

    Family, noise scales and the correction of the shift stay; tables, which are of one level, do
    not. λ stays the same multiple of the
    ridge at which noise alone would make a factor, and λ₀ of 4 ω (1 − ω).
    """

    def __init__(self) -> None:
        self.found: Tuned | Tuning | None = None  # what that tuning found
        self._first: CompletionEngine | None = None  # of the level that was tuned

    def tuned(
        self,
        engine: CompletionEngine,
        settings: Settings,
        tune: Callable[[Tuned | None], Tuned | Tuning],
    ) -> Tuned | Tuning:
        """Tune the first level; find the ridges of any other by those of the first.

        What is called to `tune` takes what a near level was tuned to.
        """
        if self.found is None or self._first is None:
            self.found, self._first = tune(None), engine
            return self.found
        if isinstance(self.found, Tuning):
            return self.found
        found = carried(self.found, self._first, engine, settings)
        return found._replace(tables=(), correction=found.plain_correction)


class Following(Holding):
    """Tunings of one level after the other, each of which begins where the last one ended."""

    def tuned(
        self,
        engine: CompletionEngine,
        settings: Settings,
        tune: Callable[[Tuned | None], Tuned | Tuning],
    ) -> Tuned | Tuning:
        """Tune a level, given what the one before was tuned to."""
        self.found = tune(self.found if isinstance(self.found, Tuned) else None)
        return self.found


def carried(
    found: Tuned, tuned: CompletionEngine, engine: CompletionEngine, settings: Settings
) -> Tuned:
    """Take what one engine was `tuned` to over to another, of more cells or of another level."""
    factors, before = found.ridge
    intercepts = before * asymmetry(engine.omega) / asymmetry(tuned.omega)
    noise = _noise(tuned, found, before, settings)
    if noise > 0:
        factors *= _noise(engine, found, intercepts, settings) / noise
    return found._replace(ridge=Ridge(factors, intercepts))


def _noise(
    engine: CompletionEngine, found: Tuned, intercepts: float, settings: Settings
) -> float:  # fmt: skip
    """Find the ridge at which noise alone would make a factor beside the intercepts."""
    engine = engine.view(CellSample(found.marks, EVERYTHING))  # the marks have the random signs
    engine = engine.view(weighting=weighting_of(found.family, engine, found.variances))
    simple, _ = swept(
        engine, engine.no_factors(), Ridge(0.0, intercepts), settings, INTERCEPT_SWEEPS,
        INTERCEPT_TOL,
    )  # fmt: skip
    return noise_norm(engine, simple, np.random.default_rng(0))
