"""`QuantilePairRegressor`: `complete_quantiles` for scikit-learn (needs the extra ``sklearn``)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.estimator_pairs import PairRegressor
from fastemf.metrics import pinball_loss
from fastemf.model.quantiles import Quantiles
from fastemf.quantiles import complete_quantiles
from fastemf.solver.records import SweepRecord
from fastemf.stacking.shrunk_quantile import quantile

__all__ = ["QuantilePairRegressor"]


class QuantilePairRegressor(PairRegressor):
    """A quantile of the values of (row, column) pairs, as a scikit-learn regressor.

    A sample is one observation: its pair in `X`, its value in `y`. Where pairs repeat, let
    GroupKFold hold out whole pairs, or the score is that of pairs already seen; else shuffle the
    folds, which hold out whole rows where data are sorted by row.

    Parameters
    ----------
    quantile
        The share of the values at or below, in (0, 1): 0.95 for p95. At least 20 cells must lie
        beyond it, so that the median takes 40 and p95 takes 400.
    k
        Rank, from 1 to the lesser number of distinct rows or columns fitted; or 0, which leaves
        intercepts alone. The default is as in `ExpectileFactorization`.
    reg, intercepts, tol, max_iter, momentum, solver, random_state, n_jobs
        As in `fastemf.complete_quantiles`. Rows and columns are numbered in the order of first
        appearance.

    Attributes
    ----------
    quantiles_ : Quantiles
        The model, with labels and with what it promises.
    n_iter_ : int
        Sweeps of all its fits together.

    Examples
    --------
    >>> import fastemf
    >>> from sklearn.model_selection import KFold, cross_val_score
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, noise=0.05, density=0.5, random_state=0).R
    >>> pairs = [*zip(*R.nonzero())]
    >>> model = fastemf.QuantilePairRegressor(quantile=0.9, k=2)
    >>> folds = KFold(3, shuffle=True, random_state=0)
    >>> bool(cross_val_score(model, pairs, R.data, cv=folds).min() > 0.3)
    True
    """

    _fitted: ClassVar[str] = "quantiles_"

    def __init__(
        self, quantile: float = 0.5, k: int = 2, *, reg: Any = "auto", intercepts: bool = True,
        tol: float = 1e-4, max_iter: int = 100, momentum: bool = True, solver: str = "auto",
        random_state: Any = 0, n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        self.quantile = quantile
        self.k = k
        self.reg = reg
        self.intercepts = intercepts
        self.tol = tol
        self.max_iter = max_iter
        self.momentum = momentum
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        censored: Any = None,
    ) -> Self:
        """Fit the values `y` observed at the pairs `X`.

        Parameters
        ----------
        X, y, sample_weight, censored
            As in `ExpectilePairRegressor.fit`.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> model = fastemf.QuantilePairRegressor(0.9).fit([*zip(*R.nonzero())], R.data)
        >>> model.quantiles_.taus, model.quantiles_.shape
        ((0.9,), (30, 20))
        """
        observed = self._observed(X, y, sample_weight, censored)
        settings = self.get_params(deep=False)
        sweeps: list[SweepRecord] = []
        self.quantiles_: Quantiles = complete_quantiles(
            observed, (settings.pop("quantile"),), callback=sweeps.append, **settings
        )
        self.n_iter_ = len(sweeps)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the quantile of the pairs `X`, in the unit of `y`.

        Pairs whose row or column was never fitted get what is known of the other side.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> model = fastemf.QuantilePairRegressor(0.9).fit([*zip(*R.nonzero())], R.data)
        >>> model.predict([(3, 7), (99, 7)]).shape
        (2,)
        """
        rows, cols = self._asked(X)
        return self.quantiles_.predict(rows, cols, unknown="model")[..., 0]

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the skill of the predictions: 1 is perfect, 0 is that of the best constant.

        It is 1 − pinball loss / pinball loss of that quantile of `y`: to quantiles what R² is to
        means, and what `sklearn.metrics.d2_pinball_score` computes. NaN where `y` is constant.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> X = [*zip(*R.nonzero())]
        >>> 0 < fastemf.QuantilePairRegressor(0.9).fit(X, R.data).score(X, R.data) < 1
        True
        """
        predicted = self.predict(X)
        values, weights = self._judged(y, sample_weight)
        (tau,) = self.quantiles_.taus
        loss = pinball_loss(values, predicted, tau, weights)
        constant = np.full(values.shape, quantile(values, tau, weights))
        simple = pinball_loss(values, constant, tau, weights)
        return 1 - loss / simple if simple > 0 else float("nan")
