"""Estimators for scikit-learn around `complete` (they need the extra ``sklearn``).

`ExpectileFactorization` transforms the rows of a matrix; `ExpectilePairRegressor` predicts
values of (row, column) pairs, so that cross-validation splits observations, not rows.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.completion import complete
from fastemf.estimator_pairs import PairRegressor
from fastemf.loss import expectile
from fastemf.metrics import expectile_skill
from fastemf.model.bilinear import Bilinear
from fastemf.model.factorization import Factorization
from fastemf.observations.memory import observe
from fastemf.solver.axis import Axis
from fastemf.support.validation import check_dtype, check_factor

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "the estimators need scikit-learn: pip install 'fastemf[sklearn]'"
    ) from None

__all__ = ["ExpectileFactorization", "ExpectilePairRegressor"]


class _Completion(BaseEstimator):
    """The parameters of `complete` that an estimator has, under their names there."""

    def __init__(
        self, omega: float = 0.5, k: int = 2, *, reg: Any = "auto", reg_scaling: str = "count",
        intercepts: bool = False, init: Any = "spectral", tol: float = 1e-5, max_iter: int = 100,
        momentum: bool = True, anneal: bool = True, solver: str = "auto", random_state: Any = 0,
        n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        self.omega = omega
        self.k = k
        self.reg = reg
        self.reg_scaling = reg_scaling
        self.intercepts = intercepts
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.momentum = momentum
        self.anneal = anneal
        self.solver = solver
        self.random_state = random_state
        self.n_jobs: Any = n_jobs

    def _complete(self, R: Any, censored: Any = None) -> Self:
        settings = self.get_params(deep=False)
        self.factorization_: Factorization = complete(R, censored=censored, **settings)
        self.n_iter_ = self.factorization_.n_iter
        return self


class ExpectileFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Completion):
    """Row factors of a partly observed matrix, as a scikit-learn transformer.

    Samples are rows of the matrix, features its columns. `fit` is `fastemf.complete`,
    `transform` is `Factorization.fold_in`: it solves for the factors of the rows given, be they
    new or those of the fit, with the columns' factors held fixed.

    Parameters
    ----------
    omega
        Expectile level in (0, 1).
    k
        Rank, from 1 to min(rows, columns); or 0 with `intercepts`. The default is small, because an
        estimator must fit small data too; the shell has 5, of which a tuned fit uses what helps.
    intercepts
        Add ``mu + a_i + c_j``. False, as in `fastemf.complete`: the paper's model. With True
        the rows' intercepts a are the last column of what `transform` returns.
    reg
        Ridge: ``"auto"`` is tuned in `fit`, on cells that are set aside and fitted again, where
        there are 400 observations or more; ``"noise"`` follows the residuals; or a number.
    reg_scaling, init, tol, max_iter, momentum, anneal, solver, random_state, n_jobs
        As in `fastemf.complete`.

    Attributes
    ----------
    factorization_ : Factorization
        The fit: factors, history, predictions.
    n_iter_ : int
        Sweeps done.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R.tocsr()
    >>> model = fastemf.ExpectileFactorization(omega=0.1, k=2).fit(R[:50])
    >>> X = model.transform(R[50:])
    >>> X.shape, model.inverse_transform(X).shape
    ((10, 2), (10, 40))
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        fit = self.factorization_
        return fit.k + fit.rows.has_intercepts

    def fit(self, R: Any, y: None = None, censored: Any = None) -> Self:
        """Fit both factors to the observed entries of `R`.

        Parameters
        ----------
        R
            A scipy sparse matrix or array (every stored entry is observed), or a dense
            array or table (NaN is missing; in a masked array what is masked). `y` is ignored.
        censored
            Which values are limits that the truth was beyond, as in `fastemf.complete`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fastemf.ExpectileFactorization(k=1).fit(R).factorization_.shape
        (3, 3)
        """
        return self._complete(self._matrix(R, reset=True), censored)

    def transform(self, R: Any) -> NDArray[Any]:
        """Compute the factors of the rows of `R`, which has the columns of the fit: (rows, k).

        With intercepts the rows' own are one more column, the last.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> model = fastemf.ExpectileFactorization(k=1, reg=0).fit(np.outer([1, 2], [3, 4]))
        >>> one, ten = model.transform([[3.0, 4.0], [30.0, np.nan]])
        >>> (ten / one).round(6).tolist()
        [10.0]
        """
        check_is_fitted(self, "factorization_")
        rows = self.factorization_.fold_in(self._matrix(R, reset=False), n_jobs=self.n_jobs)
        return rows.rows.extended()

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Predict whole rows from what `transform` returned: (rows, columns), dense.

        A fit's table over levels is left out: what `transform` returns does not have them.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> model = fastemf.ExpectileFactorization(k=1, reg=0).fit(np.outer([1, 2], [3, 4]))
        >>> model.inverse_transform(model.transform([[30.0, np.nan]])).round(6).tolist()
        [[30.0, 40.0]]
        """
        check_is_fitted(self, "factorization_")
        fit, count = self.factorization_, np.shape(X)[0]
        given = check_factor(X, "X", (count, self._n_features_out), fit.X.dtype)
        rows = Axis.split(given.astype(fit.X.dtype), fit.k)
        return Bilinear((rows, fit.cols), fit.constant).rows(np.arange(count))

    def score(self, R: Any, y: None = None) -> float:
        """Compute the expectile skill of the rows of `R` folded in: greater is better, 1 perfect.

        It is 1 − loss of the fitted values / loss of the best constant (the ω-expectile of `R`),
        over the observed entries. The rows' factors have seen these entries, so this says how
        much of new rows k numbers keep and grows with k; to choose k or reg, hold out single
        cells with `ExpectilePairRegressor`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> model = fastemf.ExpectileFactorization(k=1, reg=0).fit(np.outer([1, 2], [3, 4]))
        >>> round(model.score([[30.0, 40.0]]), 6)
        1.0
        """
        check_is_fitted(self, "factorization_")
        observed = observe(self._matrix(R, reset=False))
        rows, side = self.factorization_.fold_in(observed, n_jobs=self.n_jobs), observed.by_row
        return _skill(side.values, rows.predict(side.keys, side.indices), rows.omega)

    def _matrix(self, R: Any, *, reset: bool) -> Any:
        """Convert `R` to floats; `observe` checks what of it is observed and finite."""
        if isinstance(R, tuple):
            raise TypeError(
                "R must be a matrix, got a tuple; put (rows, cols, values) into "
                "scipy.sparse.coo_array((values, (rows, cols))), or use ExpectilePairRegressor"
            )
        if isinstance(R, np.ma.MaskedArray):
            R = np.ma.filled(R.astype(check_dtype(R.dtype, "R")), np.nan)
        return validate_data(
            self, R, reset=reset, accept_sparse=True, dtype=[np.float64, np.float32],
            ensure_all_finite=False,
        )  # fmt: skip


class ExpectilePairRegressor(PairRegressor, _Completion):
    """Expectiles of the values of (row, column) pairs, as a scikit-learn regressor.

    A sample is one observation: its pair in `X`, its value in `y`. KFold, GridSearchCV and
    pipelines therefore hold out cells of the matrix, and pairs may repeat. Shuffle the folds
    where data are sorted by row, or they hold out whole rows.

    Parameters
    ----------
    omega
        Expectile level in (0, 1).
    k
        Rank, from 1 to the lesser number of distinct rows or columns fitted; or 0, which leaves
        intercepts alone. The default is as in `ExpectileFactorization`.
    intercepts
        Add ``mu + a_i + c_j``. True here, as this class is for predicting, also pairs whose
        row or column is new; `fastemf.complete` has False, the paper's model.
    reg
        Ridge: ``"auto"`` is tuned in `fit`, on cells that are set aside and fitted again, where
        there are 400 observations or more, so that there is no need to search for one;
        ``"noise"`` follows the residuals; or a number.
    reg_scaling, init, tol, max_iter, momentum, anneal, solver, random_state, n_jobs
        As in `fastemf.complete`. Rows and columns are numbered in the order of first appearance.

    Attributes
    ----------
    factorization_ : Factorization
        The fit, with labels: factors, history, predictions.
    n_iter_ : int
        Sweeps done.

    Examples
    --------
    >>> import fastemf
    >>> from sklearn.model_selection import KFold, cross_val_score
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, noise=0.05, density=0.5, random_state=0).R
    >>> pairs = [*zip(*R.nonzero())]
    >>> model = fastemf.ExpectilePairRegressor(omega=0.1, k=2)
    >>> folds = KFold(3, shuffle=True, random_state=0)
    >>> bool(cross_val_score(model, pairs, R.data, cv=folds).min() > 0.5)
    True
    """

    _fitted: ClassVar[str] = "factorization_"

    def __init__(
        self, omega: float = 0.5, k: int = 2, *, reg: Any = "auto", reg_scaling: str = "count",
        intercepts: bool = True, init: Any = "spectral", tol: float = 1e-5, max_iter: int = 100,
        momentum: bool = True, anneal: bool = True, solver: str = "auto", random_state: Any = 0,
        n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        super().__init__(
            omega, k, reg=reg, reg_scaling=reg_scaling, intercepts=intercepts, init=init, tol=tol,
            max_iter=max_iter, momentum=momentum, anneal=anneal, solver=solver,
            random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip

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
        X
            An (observations, 2) array or a table with two columns: labels of rows and
            of columns. They are integers, strings or dates, one type in each column; floats
            must be whole numbers. A missing label is an error.
        y
            The values observed.
        sample_weight
            Weight of each observation: two is the observation twice, zero leaves it out.
        censored
            Which values are limits that the truth was beyond, as in `fastemf.complete`: a pair
            such as ``("right", 20.0)``, or a mark for each observation.

        Examples
        --------
        >>> import fastemf
        >>> X = [("ann", "tea"), ("ann", "rum"), ("bob", "tea")]
        >>> fastemf.ExpectilePairRegressor(k=1).fit(X, [1.0, 2.0, 3.0]).factorization_.shape
        (2, 2)
        """
        return self._complete(self._observed(X, y, sample_weight, censored))

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the expectiles of the pairs `X`, in the unit of `y`.

        Pairs whose row or column was never fitted are predicted as by
        ``Factorization.predict(..., unknown="model")``: from what is known of the other side, and
        as NaN without intercepts.

        Examples
        --------
        >>> import fastemf
        >>> X = [("ann", "tea"), ("ann", "rum"), ("bob", "tea")]
        >>> model = fastemf.ExpectilePairRegressor(k=1).fit(X, [1.0, 2.0, 3.0])
        >>> known, new = model.predict([("bob", "rum"), ("eve", "gin")])
        >>> bool(new == model.factorization_.mu == 2.0)
        True
        """
        rows, cols = self._asked(X)
        return self.factorization_.predict(rows, cols, unknown="model")

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the expectile skill of the predictions: 1 is perfect, 0 is that of a constant.

        It is 1 − loss / loss of the best constant, the ω-expectile of `y`: to the expectile loss
        what R² is to squares (and R² itself at omega = 0.5) and
        `sklearn.metrics.d2_pinball_score` to quantiles. R² would rank fits by their distance
        from the mean. NaN where `y` is constant.

        Examples
        --------
        >>> import fastemf
        >>> X = [("ann", "tea"), ("ann", "rum"), ("bob", "tea")]
        >>> model = fastemf.ExpectilePairRegressor(omega=0.9, k=1, reg=0).fit(X, [1.0, 2.0, 3.0])
        >>> round(model.score(X, [1.0, 2.0, 3.0]), 6)
        1.0
        """
        predicted = self.predict(X)
        values, weights = self._judged(y, sample_weight)
        return _skill(values, predicted, self.factorization_.omega, weights)


def _skill(values: NDArray[Any], predicted: Any, omega: float, weights: Any = None) -> float:
    return expectile_skill(values, predicted, omega, expectile(values, omega, weights), weights)
