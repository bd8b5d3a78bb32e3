"""`TrainingLevels`: what a fit keeps of its data, a few numbers for each row and column.

They are simple predictions, which a fit is compared with on data it has not seen, when those it
was made from are no longer at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastemf.observations.medians import median, medians_of
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.trial import shift_of

__all__ = ["TrainingLevels", "joined_levels", "new_levels", "training_levels"]

SWEEPS = 4  # of row and column levels
NEWTON_STEPS = 4  # of what keeps them at their level on new cells


@dataclass(frozen=True, eq=False)
class TrainingLevels:
    """Levels of the data that a fit was made from, in their unit.

    Attributes
    ----------
    constant : float
        The ω-expectile of all values.
    column, both, median : float
        What column levels, row + column levels and column medians predict where they know
        nothing: of an unknown column, of unknown both, of an unknown column.
    cols : (n, 3) array
        For each column what its level adds to `column`, what it adds to `both` beside the row's,
        and the median of its values.
    rows : (m,) array
        What each row adds to `both`.
    ridge : float
        The ridge λ₀ of the levels.
    """

    NAMES: ClassVar = ("constant", "column", "row + column", "column median")

    constant: float
    column: float
    both: float
    median: float
    cols: NDArray[np.float64]
    rows: NDArray[np.float64]
    ridge: float

    def predict(
        self, name: str, i: NDArray[np.integer], j: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Predict cells in one of the simple ways; -1 is what was not in the data.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> cells = np.array([0, 1]), np.array([1, -1])
        >>> fit.training.predict("column median", *cells).tolist()  # 4 and 8; 4.5 and 6
        [6.0, 5.25]
        """
        if name == "constant":
            return np.full(i.shape, self.constant)
        if name == "column":
            return np.asarray(self.column + np.where(j < 0, 0.0, self.cols[j, 0]))
        if name == "column median":
            return np.where(j < 0, self.median, self.cols[j, 2])
        rows, beside = np.where(i < 0, 0.0, self.rows[i]), np.where(j < 0, 0.0, self.cols[j, 1])
        return np.asarray(self.both + rows + beside)


def training_levels(engine: CompletionEngine, ridge: float, n_threads: int) -> TrainingLevels:
    """Find the levels of all that an engine sees."""
    even, weight = engine.with_intercepts(), Ridge(0.0, ridge)
    mu = even.observations.expectile(even.omega) if even.mu is None else even.mu
    rows, nothing = even.no_factors()
    cols = even.solve(1, nothing, rows, weight).factor
    alone, none = cols, np.zeros(rows.shape[0])
    leverages = none, even.leverage(1, cols, rows, weight)
    column = shift_of(even, (rows, cols), leverages, rounds=NEWTON_STEPS)
    for _ in range(SWEEPS):
        rows = even.solve(0, rows, cols, weight).factor
        cols = even.solve(1, cols, rows, weight).factor
    leverages = even.leverages(rows, cols, weight)
    both = shift_of(even, (rows, cols), leverages, rounds=NEWTON_STEPS)
    medians = medians_of(even.observations.by_col, n_threads)
    seen = even.masses[1] > 0
    middle = median(medians[seen], even.masses[1][seen])
    found = np.column_stack([alone[:, 0], cols[:, 0], np.where(seen, medians, middle)])
    return TrainingLevels(
        mu, mu + column, mu + both, middle, found.astype(np.float64), rows[:, 0].astype(np.float64),
        ridge,
    )  # fmt: skip


def new_levels(
    before: TrainingLevels, axis: int, engine: CompletionEngine, n_threads: int
) -> TrainingLevels:
    """Find the levels of new rows, or columns, given those of the other side.

    The engine sees the new items, and has intercepts around `before.constant`.
    """
    weight, dtype = Ridge(0.0, before.ridge), engine.dtype
    shift = before.both - before.constant
    nothing, other = (engine.no_factors()[at] for at in (axis, 1 - axis))
    fixed = before.rows if axis == 1 else before.cols[:, 1]
    beside = engine.solve(axis, nothing, (fixed + shift)[:, None].astype(dtype), weight).factor
    if axis == 0:
        return replace(before, rows=beside[:, 0].astype(np.float64))
    other += dtype.type(before.column - before.constant)
    alone = engine.solve(1, nothing, other, weight).factor
    medians = medians_of(engine.observations.by_col, n_threads)
    seen = engine.masses[1] > 0
    found = [alone[:, 0], beside[:, 0], np.where(seen, medians, before.median)]
    return replace(before, cols=np.column_stack(found).astype(np.float64))


def joined_levels(before: TrainingLevels, new: TrainingLevels, axis: int) -> TrainingLevels:
    """Put the levels of new rows, or columns, after those of a fit."""
    if axis == 0:
        return replace(before, rows=np.concatenate([before.rows, new.rows]))
    return replace(before, cols=np.concatenate([before.cols, new.cols]))
