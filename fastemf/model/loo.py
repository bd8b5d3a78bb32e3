"""`LeaveOneOut`: how well a fit describes observations that it has not seen, without refitting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.model.bilinear import Axes, tables_at
from fastemf.model.prediction import predict_cells
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge

__all__ = ["LeaveOneOut", "leave_one_out"]

LOST = 1 - 1e-8  # a leverage of one, to rounding


class LeaveOneOut(NamedTuple):
    """What a fit leaves of observations that were left out one by one; see `Factorization.loo`."""

    loss: float
    """Mean expectile loss, in squared units of the data."""
    effective_omega: float
    """The level that the predictions have."""
    lost: int
    """Observations that decide their own prediction alone: without them there is none."""
    residuals: NDArray[np.float64] | None
    """Observed minus predicted, by row, NaN for those lost; None unless asked for."""


def leave_one_out(
    axes: Axes, mu: float, shift: float, engine: CompletionEngine, ridge: Ridge
) -> LeaveOneOut:
    """Divide what the fit leaves by 1 − h of row and column, and judge the outcome.

    `engine` has observations in memory, in float64, and the fit's weighting of them.
    """
    observed = engine.observations
    assert isinstance(observed, Observations)
    plain = (_exact(axes[0]), _exact(axes[1]))
    X, Y = (axis.extended() for axis in plain)
    by_row = engine.leverage_of_each(0, X, Y, ridge)
    by_col = engine.leverage_of_each(1, Y, X, ridge)[observed.places_by_col()]
    side = observed.by_row
    fitted = predict_cells(plain, mu, side.keys, side.indices)
    r = side.values.astype(np.float64) - fitted
    lost = (by_row >= LOST) | (by_col >= LOST)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = r / ((1 - by_row) * (1 - by_col))
    left_out -= shift + tables_at(axes, side.keys, side.indices, fitted - mu)
    left_out[lost] = np.nan
    weights = observed.by_row.weights if observed.by_row.weights.size else np.ones(observed.size)
    kept, v = left_out[~lost], weights[~lost].astype(np.float64)
    loss = expectile_loss(kept, engine.omega, v) / v.sum() if kept.size else np.nan
    return LeaveOneOut(
        float(loss), effective_omega(kept, v) if kept.size else np.nan,
        int(np.count_nonzero(lost)), left_out,
    )  # fmt: skip


def _exact(axis: Axis) -> Axis:
    """Return the product's part of an axis, in float64."""
    intercepts = None if axis.intercepts is None else axis.intercepts.astype(np.float64)
    return Axis(axis.factor.astype(np.float64), intercepts)
