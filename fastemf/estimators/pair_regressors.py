"""Regressors whose samples are observations of a matrix: `ExpectilePairRegressor` and others."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from fastemf.boosting.statistics import quantile
from fastemf.censoring.limits import parse_limit
from fastemf.estimators.parameters import CompletionParameters, skill
from fastemf.kernels.threads import count_threads
from fastemf.metrics import pinball_loss
from fastemf.models.quantiles import Quantiles
from fastemf.quantiles import complete_quantiles
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import Solver
from fastemf.sources.memory import Observations, observe
from fastemf.support.arrays import Array

SIDES = ("rows", "cols")  # names of the columns of X in messages


class _PairRegressor(RegressorMixin, BaseEstimator):
    """A regressor with observations of a matrix as samples: pairs in X, values in y."""

    _fitted: ClassVar[str]  # attribute that exists after a fit
    _takes_features: ClassVar[bool] = False  # whether X may have more than two columns
    n_jobs: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.regressor_tags.poor_score = True  # the checks use X of real numbers
        return tags

    def _read_training(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, censored: Any
    ) -> Observations:
        """Read labelled observations; those with a weight of 0 are left out."""
        with np.errstate(invalid="ignore"):  # the checks may add infinities of both signs
            values = validate_data(self, y=y, y_numeric=True)
        columns = self._read_pairs(X, reset=True)
        check_consistent_length(*columns, values)
        weights = None
        if sample_weight is not None:
            weights = _check_weights(sample_weight, values)
            kept = np.flatnonzero(weights)
            columns = [_safe_indexing(column, kept) for column in columns]
            values, weights = values[kept], weights[kept]
            if censored is not None and parse_limit(censored) is None:
                censored = _safe_indexing(np.asarray(censored), kept)
        return observe(
            (*columns[:2], values), weights=weights, labels=(None, None), censored=censored,
            n_threads=count_threads(self.n_jobs), features=self._features(columns[2:]),
        )  # fmt: skip

    def _features(self, columns: list[Any]) -> dict[str, Any] | None:
        """Name the further columns of X, as in a table or by position; None if there are none."""
        every = range(self.n_features_in_)
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in every])[2:]
        return dict(zip(names, columns, strict=True)) or None

    def _read_new_pairs(self, X: Any) -> list[Any]:
        """Return the columns of the pairs to predict."""
        check_is_fitted(self, self._fitted)
        return self._read_pairs(X, reset=False)

    def _read_targets(self, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Any, Any]:
        """Return the values, and their weights, that predictions are compared with."""
        with np.errstate(invalid="ignore"):
            values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return values, _check_weights(sample_weight, values)

    def _read_pairs(self, X: Any, *, reset: bool) -> list[Any]:
        """Split `X` into its columns; those of a table keep their types."""
        is_table = hasattr(X, "columns")
        dtype = None if hasattr(X, "dtype") else object  # keeps 7 and "a" in a list apart
        with np.errstate(invalid="ignore"):
            X = validate_data(self, X, reset=reset, skip_check_array=is_table, dtype=dtype)
        count = self.n_features_in_
        if count < 2 or (count > 2 and not self._takes_features):
            more = ", and further ones with side features" if self._takes_features else ""
            raise ValueError(
                f"X must have two columns, (row, column){more}, got {count} feature(s)"
            )
        columns = [_safe_indexing(X, j, axis=1) for j in range(count)]
        return [*map(_as_labels, columns[:2], SIDES), *columns[2:]]


class ExpectilePairRegressor(_PairRegressor, CompletionParameters):
    """Expectiles of the values of (row, column) pairs, as a scikit-learn regressor.

    A sample is one observation, with its pair in `X` and its value in `y`. If pairs repeat, use
    GroupKFold with the pair as the group, so that whole pairs are held out. Shuffle the folds of
    data that are sorted by row, or they hold out whole rows.

    Parameters
    ----------
    omega
        Expectile level in (0, 1).
    k
        Rank, from 1 to the smaller number of distinct rows or columns, or 0 for a model of
        intercepts only.
    reg
        Ridge: ``"auto"`` (tuned in `fit` on validation cells if there are 400 observations or
        more), ``"noise"`` (noise-adaptive) or a number.
    intercepts
        Add ``mu + a_i + c_j`` to the model. True by default, unlike in `fastemf.complete`; it is
        needed to predict pairs with a new row or column.
    init, tol, max_iter, solver, random_state, n_jobs
        As in `fastemf.complete`. Rows and columns are numbered in order of first appearance.

    Attributes
    ----------
    factorization_ : Factorization
        The fit, with labels.
    n_iter_ : int
        Number of sweeps.

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
        self, omega: float = 0.5, k: int = 2, *, reg: Any = "auto", intercepts: bool = True,
        init: Any = "spectral", tol: float = 1e-5, max_iter: int = 100,
        solver: str | Solver = "auto", random_state: Any = 0, n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        super().__init__(
            omega, k, reg=reg, intercepts=intercepts, init=init, tol=tol, max_iter=max_iter,
            solver=solver, random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, censored: Any = None
    ) -> Self:
        """Fit the values `y` of the pairs `X`.

        Parameters
        ----------
        X
            An (observations, 2) array or a table with two columns: row labels and column labels.
            Each column holds integers, strings or dates; floats must be whole numbers. A missing
            label is an error.
        y
            The values.
        sample_weight
            Weight of each observation. A weight of 2 is equivalent to repeating the observation,
            and a weight of 0 to leaving it out.
        censored
            Which values are censoring limits, as in `fastemf.complete`: a pair such as
            ``("right", 20.0)``, or a mark per observation.

        Examples
        --------
        >>> import fastemf
        >>> X = [("ann", "tea"), ("ann", "rum"), ("bob", "tea")]
        >>> fastemf.ExpectilePairRegressor(k=1).fit(X, [1.0, 2.0, 3.0]).factorization_.shape
        (2, 2)
        """
        return self._complete(self._read_training(X, y, sample_weight, censored))

    def predict(self, X: Any) -> Array:
        """Predict the expectiles of the pairs `X`, in the unit of `y`.

        A pair with a new row or column is predicted as by
        ``Factorization.predict(..., unknown="model")``: from the intercept of the other side, or
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
        rows, cols = self._read_new_pairs(X)
        return np.asarray(self.factorization_.predict(rows, cols, unknown="model"))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the expectile skill of the predictions.

        The skill is 1 − loss / loss of the ω-expectile of `y`: 1 is perfect, and 0 is no better
        than the best constant. At omega = 0.5 it is R². `sklearn.metrics.d2_pinball_score` is its
        counterpart for quantiles. It is NaN if `y` is constant.

        Examples
        --------
        >>> import fastemf
        >>> X = [("ann", "tea"), ("ann", "rum"), ("bob", "tea")]
        >>> model = fastemf.ExpectilePairRegressor(omega=0.9, k=1, reg=0).fit(X, [1.0, 2.0, 3.0])
        >>> round(model.score(X, [1.0, 2.0, 3.0]), 6)
        1.0
        """
        predicted = self.predict(X)
        values, weights = self._read_targets(y, sample_weight)
        return skill(values, predicted, self.factorization_.omega, weights)


class QuantilePairRegressor(_PairRegressor):
    """A quantile of the values of (row, column) pairs, as a scikit-learn regressor.

    A sample is one observation, with its pair in `X` and its value in `y`. Further columns of `X`
    are side features of the observations: numbers, strings, categories or dates. If pairs repeat,
    use GroupKFold with the pair as the group, so that whole pairs are held out. Shuffle the folds
    of data that are sorted by row, or they hold out whole rows.

    Parameters
    ----------
    quantile
        Quantile in (0, 1), 0.95 for p95. At least 20 cells must be expected beyond it: the median
        needs 40 cells, p95 needs 400.
    k
        Rank, from 1 to the smaller number of distinct rows or columns, or 0 for models of
        intercepts only.
    reg, intercepts, tol, max_iter, solver, random_state, n_jobs
        As in `fastemf.complete_quantiles`. Rows and columns are numbered in order of first
        appearance.

    Attributes
    ----------
    quantiles_ : Quantiles
        The model, with labels and its coverage report.
    n_iter_ : int
        Number of sweeps of all its fits.

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
    _takes_features: ClassVar[bool] = True

    def __init__(
        self, quantile: float = 0.5, k: int = 2, *, reg: Any = "auto", intercepts: bool = True,
        tol: float = 1e-4, max_iter: int = 100, solver: str | Solver = "auto",
        random_state: Any = 0, n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        self.quantile = quantile
        self.k = k
        self.reg = reg
        self.intercepts = intercepts
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, censored: Any = None
    ) -> Self:
        """Fit the values `y` of the pairs `X`.

        Parameters
        ----------
        X, y, sample_weight, censored
            As in `ExpectilePairRegressor.fit`; columns of `X` after the second are side features.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> model = fastemf.QuantilePairRegressor(0.9).fit([*zip(*R.nonzero())], R.data)
        >>> model.quantiles_.taus, model.quantiles_.shape
        ((0.9,), (30, 20))
        """
        observed = self._read_training(X, y, sample_weight, censored)
        parameters = self.get_params(deep=False)
        sweeps: list[SweepRecord] = []
        self.quantiles_: Quantiles = complete_quantiles(
            observed, (parameters.pop("quantile"),), callback=sweeps.append, **parameters
        )
        self.n_iter_ = len(sweeps)
        return self

    def predict(self, X: Any) -> Array:
        """Predict the quantile of the pairs `X`, in the unit of `y`.

        A pair with a new row or column is predicted from the other side.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> model = fastemf.QuantilePairRegressor(0.9).fit([*zip(*R.nonzero())], R.data)
        >>> model.predict([(3, 7), (99, 7)]).shape
        (2,)
        """
        rows, cols, *more = self._read_new_pairs(X)
        given = self._features(more)
        predicted = self.quantiles_.predict(rows, cols, unknown="model", features=given)
        return np.asarray(predicted[..., 0])

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the skill of the predictions; 1 is perfect, 0 is no better than the best constant.

        The skill is 1 − pinball loss / pinball loss of the same quantile of `y`, as
        `sklearn.metrics.d2_pinball_score` computes it. It is NaN if `y` is constant.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> X = [*zip(*R.nonzero())]
        >>> 0 < fastemf.QuantilePairRegressor(0.9).fit(X, R.data).score(X, R.data) < 1
        True
        """
        predicted = self.predict(X)
        values, weights = self._read_targets(y, sample_weight)
        (tau,) = self.quantiles_.taus
        loss = pinball_loss(values, predicted, tau, weights)
        constant = np.full(values.shape, quantile(values, tau, weights))
        simple = pinball_loss(values, constant, tau, weights)
        return 1 - loss / simple if simple > 0 else float("nan")


def _as_labels(column: Any, name: str) -> Any:
    """Convert float labels, which encoders produce, to integers."""
    if isinstance(column, np.ndarray) and column.dtype == object:
        types = set(map(type, column.tolist()))
        if float in types and types <= {int, float}:  # from a list
            column = column.astype(np.float64)
    if getattr(getattr(column, "dtype", None), "kind", "") != "f":
        return column
    numbers = np.asarray(column)
    wrong = ~((np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        got = f"{numbers[wrong][0]} at position {np.argmax(wrong)}"
        raise ValueError(f"{name} must hold labels, if floats then whole numbers, got {got}")
    return numbers.astype(np.int64)


def _check_weights(sample_weight: Any, values: Array) -> Any:
    with np.errstate(invalid="ignore"):
        return _check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
