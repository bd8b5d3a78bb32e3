"""Held-out observations of which some are censored, with values imputed by a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastemf.censoring.coverage import CensoredCells
from fastemf.censoring.imputation import require_imputation
from fastemf.models.bilinear import Bilinear, without_corrections

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization
    from fastemf.models.reading import CellValues


def censored_cells(
    cells: CellValues, fit: Factorization, *, is_quantile: bool
) -> CensoredCells | None:
    """Impute the censored values of observations; None if none are censored.

    Scores of quantiles need no imputed values, which are then the recorded ones if the fit has no
    imputation.
    """
    if cells.codes is None:
        return None
    recorded = cells.values.astype(np.float64)
    at, values = np.flatnonzero(cells.codes), recorded
    if at.size and not (is_quantile and fit.imputation is None):
        imputation = require_imputation(fit.imputation)
        i, j = cells.rows[at], cells.cols[at]
        predicted = Bilinear(without_corrections(fit.axes), fit.mu).predict(i, j)
        # Position -1, an unknown row or column, has the mean noise.
        noise = [
            np.append(scale, 1.0)[k] for scale, k in zip(imputation.scales, (i, j), strict=True)
        ]
        values = recorded.copy()
        values[at] = imputation.impute(
            recorded[at], cells.codes[at], predicted.astype(np.float64), noise[0] * noise[1]
        )
    return CensoredCells(recorded, cells.codes, values, cells.limit)
