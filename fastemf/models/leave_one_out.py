"""`LeaveOneOut`: leave-one-out residuals of a fit, without refitting."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastemf.kernels.threads import count_threads
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.models.bilinear import Bilinear, corrections_at
from fastemf.models.entities import Entities
from fastemf.models.fold_in import ridge_of, weighted_engine
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Floats

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization

LOST = 1 - 1e-8  # a leverage of one, up to rounding


class LeaveOneOut(NamedTuple):
    """Leave-one-out scores of a fit; see `Factorization.loo`.

    Attributes
    ----------
    loss : float
        Mean expectile loss, in squared units of the data.
    effective_omega : float
        The level at which the leave-one-out predictions lie.
    lost : int
        Number of observations with leverage 1, which have no leave-one-out prediction.
    residuals : float64 array, or None
        Observed minus predicted, by row, NaN for those lost; None unless requested.
    """

    loss: float
    effective_omega: float
    lost: int
    residuals: Floats | None


def leave_one_out(fit: Factorization, observed: Observations) -> LeaveOneOut:
    """Divide the residuals by 1 − h of row and column, and score the result."""
    doubles = observed.astype(np.dtype(np.float64))
    engine, ridge = weighted_engine(fit, doubles, count_threads(-1)), ridge_of(fit)
    plain = (_as_doubles(fit.rows), _as_doubles(fit.cols))
    X, Y = (axis.extended_factor() for axis in plain)
    by_row = engine.leverage_of_each(0, X, Y, ridge)
    by_col = engine.leverage_of_each(1, Y, X, ridge)[doubles.places_by_col()]
    side = doubles.by_row
    fitted = Bilinear(plain, fit.mu).predict(side.keys, side.indices)
    lost = (by_row >= LOST) | (by_col >= LOST)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = (side.values.astype(np.float64) - fitted) / ((1 - by_row) * (1 - by_col))
    left_out -= fit.shift + corrections_at(fit.axes, side.keys, side.indices, fitted - fit.mu)
    left_out[lost] = np.nan
    weights = side.weights if side.weights.size else np.ones(doubles.size)
    kept, v = left_out[~lost], weights[~lost].astype(np.float64)
    loss = expectile_loss(kept, fit.omega, v) / v.sum() if kept.size else np.nan
    effective = effective_omega(kept, v) if kept.size else np.nan
    return LeaveOneOut(float(loss), effective, int(np.count_nonzero(lost)), left_out)


def _as_doubles(axis: Entities) -> Entities:
    """Return the factors and intercepts of an axis in float64."""
    intercepts = None if axis.intercepts is None else axis.intercepts.astype(np.float64)
    return Entities(axis.factor.astype(np.float64), intercepts)
