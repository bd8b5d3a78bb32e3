"""What a search for the best candidate has found, while it is under way and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.records import Ridge
from fastemf.solver.sampling import Marks
from fastemf.solver.start import Factors
from fastemf.solver.tables import Table
from fastemf.solver.trial import Fitted
from fastemf.solver.tuning import Tuning, TuningStep
from fastemf.solver.weighting import Pair

__all__ = ["Candidate", "Lead", "Leads", "Search", "Tuned"]


@dataclass(eq=False)
class Candidate:
    """A candidate in all trials."""

    step: TuningStep
    losses: NDArray[np.float64]  # by row, in units whose squares are harmless
    fits: list[Fitted]  # none where it can no longer be chosen

    @property
    def family(self) -> str:
        """How observations and ridge are weighted."""
        return self.step.family


@dataclass(eq=False)
class Search:
    """What a search has found: one that goes on from it ends bitwise identical."""

    intercept_ridge: float
    noise: dict[str, float] = field(default_factory=dict)  # the norm where each family's path began
    tried: list[Candidate] = field(default_factory=list)


class Lead(NamedTuple):
    """Where the fit of one trial ended: from there that of a near level can begin."""

    factors: Factors
    variances: Pair
    levels: Factors  # those of the fit without factors


class Leads(NamedTuple):
    """What the tuning of a near level begins with."""

    family: str
    ratio: float  # of the ridge to the one at which noise makes a factor, in the first trial
    each: tuple[Lead, ...]  # of every trial


class Tuned(NamedTuple):
    """What to fit to all cells, and where to start."""

    family: str
    ridge: Ridge
    variances: Pair
    factors: Factors
    shift: float  # that of the first trial
    correction: float  # of the shift that leave-one-out residuals give, beside the tables
    plain_correction: float  # the same, without tables
    tables: tuple[Table, ...]
    intercept_ridge: float  # λ₀, also where the fit has no use for intercepts
    marks: Marks  # which say what cells were set aside
    tuning: Tuning
    leads: Leads | None = None  # for the next of several levels
