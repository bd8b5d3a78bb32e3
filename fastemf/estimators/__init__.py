"""Estimators for scikit-learn (they need the extra ``sklearn``).

`ExpectileFactorization` transforms the rows of a matrix. `ExpectilePairRegressor` and
`QuantilePairRegressor` predict values of (row, column) pairs, so that cross-validation splits
observations instead of rows.
"""

from __future__ import annotations

try:
    import sklearn as _  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "the estimators need scikit-learn: pip install 'fastemf[sklearn]'"
    ) from None

from fastemf.estimators.pair_regressors import ExpectilePairRegressor as ExpectilePairRegressor
from fastemf.estimators.pair_regressors import QuantilePairRegressor as QuantilePairRegressor
from fastemf.estimators.transformer import ExpectileFactorization as ExpectileFactorization
