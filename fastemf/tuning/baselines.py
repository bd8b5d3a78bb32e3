"""`TrainingBaselines`: simple predictions of the training data, a few numbers per row and column.

A model keeps them to be compared with on new data, when the training data are no longer available.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.sources.medians import group_medians, median
from fastemf.support.arrays import Floats, Indices
from fastemf.tuning.trial import find_shift, intercept_engine

SWEEPS = 4  # of row and column intercepts
NEWTON_STEPS = 4  # of the shift, the expectile of the leave-one-out residuals


@dataclass(frozen=True, eq=False)
class TrainingBaselines:
    """Baselines of the training data of a model, in the units of the data.

    Attributes
    ----------
    constant : float
        The ω-expectile of all values.
    column, both, median : float
        Predictions for unknown rows and columns of column intercepts, of row and column
        intercepts, and of column medians.
    cols : (n, 3) array
        For each column its intercept relative to `column`, its intercept relative to `both`, and
        the median of its values.
    rows : (m,) array
        The intercept of each row relative to `both`.
    ridge : float
        The ridge λ₀ of the intercepts.
    """

    NAMES: ClassVar = ("constant", "column", "row + column", "column median")

    constant: float
    column: float
    both: float
    median: float
    cols: Floats
    rows: Floats
    ridge: float

    def predict(self, name: str, i: Indices, j: Indices) -> Floats:
        """Predict cells with one of the baselines; -1 is an unknown row or column.

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


def fit_baselines(engine: CompletionEngine, ridge: float, n_threads: int) -> TrainingBaselines:
    """Fit the baselines to all observations of an engine."""
    unweighted, weight = intercept_engine(engine), Ridge(0.0, ridge)
    mu = unweighted.mu or 0.0
    rows, nothing = unweighted.no_factors()
    cols = unweighted.solve(1, nothing, rows, weight).factor
    alone, none = cols, np.zeros(rows.shape[0])
    leverages = none, unweighted.leverage(1, cols, rows, weight)
    column = find_shift(unweighted, (rows, cols), leverages, rounds=NEWTON_STEPS)
    for _ in range(SWEEPS):
        rows = unweighted.solve(0, rows, cols, weight).factor
        cols = unweighted.solve(1, cols, rows, weight).factor
    leverages = unweighted.leverages(rows, cols, weight)
    both = find_shift(unweighted, (rows, cols), leverages, rounds=NEWTON_STEPS)
    medians = group_medians(unweighted.observations.by_col, n_threads)
    seen = unweighted.masses[1] > 0
    middle = median(medians[seen], unweighted.masses[1][seen])
    found = np.column_stack([alone[:, 0], cols[:, 0], np.where(seen, medians, middle)])
    return TrainingBaselines(
        mu, mu + column, mu + both, middle, found.astype(np.float64), rows[:, 0].astype(np.float64),
        ridge,
    )  # fmt: skip


def extend_baselines(
    before: TrainingBaselines, axis: int, engine: CompletionEngine, n_threads: int
) -> TrainingBaselines:
    """Fit the baselines of new rows, or columns, given those of the other side.

    The engine has the new observations, and intercepts around `before.constant`.
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
    medians = group_medians(engine.observations.by_col, n_threads)
    seen = engine.masses[1] > 0
    found = [alone[:, 0], beside[:, 0], np.where(seen, medians, before.median)]
    return replace(before, cols=np.column_stack(found).astype(np.float64))


def join_baselines(
    before: TrainingBaselines, new: TrainingBaselines, axis: int
) -> TrainingBaselines:
    """Append the baselines of new rows, or columns."""
    if axis == 0:
        return replace(before, rows=np.concatenate([before.rows, new.rows]))
    return replace(before, cols=np.concatenate([before.cols, new.cols]))
