"""What a fit leaves of new rows or columns that were folded into it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastemf.model.factorization import Factorization
from fastemf.model.prediction import residuals
from fastemf.observations.memory import Observations
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge
from fastemf.stacking.left_out import left_out_of
from fastemf.stacking.sampled import in_memory

__all__ = ["left_of_new"]


def left_of_new(
    fit: Factorization, axis: int, observed: Observations, n_threads: int
) -> NDArray[np.float64]:  # fmt: skip
    """Compute residuals by row, as if each observation had had no part in its new row or column.

    In the other side it had none.
    """
    engine = CompletionEngine(
        observed, fit.omega, mu=fit.mu if fit.rows.has_intercepts else None, scale=fit.scale,
        n_threads=n_threads,
    )  # fmt: skip
    if fit.rows.noise is not None and fit.cols.noise is not None:
        variances = fit.rows.noise.variances, fit.cols.noise.variances
        engine = engine.view(weighting=weighting_of(fit.family, engine, variances))
    this, other = (
        side.extended().astype(observed.dtype) for side in (fit.axes[axis], fit.axes[1 - axis])
    )
    own = engine.leverage(axis, this, other, Ridge(fit.reg, fit.intercept_reg))
    return left_out_of(
        residuals(fit.axes, fit.mu, observed), fit.omega, in_memory(observed),
        engine.weighting.observations, (own, None) if axis == 0 else (None, own),
    )  # fmt: skip
