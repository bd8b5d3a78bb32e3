"""`PairRegressor`: pairs and values, as scikit-learn hands them over, for the pair estimators."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.inputs.censoring import cap_of
from fastemf.kernels.threads import count_threads
from fastemf.observations.memory import Observations, observe

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import _safe_indexing, check_array
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "the estimators need scikit-learn: pip install 'fastemf[sklearn]'"
    ) from None

__all__ = ["PairRegressor"]

SIDES = ("rows", "cols")  # the columns of X, in messages


class PairRegressor(RegressorMixin, BaseEstimator):
    """A regressor whose samples are observations of a matrix: pairs in X, values in y."""

    _fitted: ClassVar[str]  # the attribute that a fit leaves
    n_jobs: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.regressor_tags.poor_score = True  # on the checks' data, whose X are measurements
        return tags

    def _observed(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, censored: Any
    ) -> Observations:
        """Read what is to be fitted, with labels; observations that weigh nothing are left out."""
        with np.errstate(invalid="ignore"):  # checks sum up what may hold both infinities
            values = validate_data(self, y=y, y_numeric=True)
        columns = self._pairs(X, reset=True)
        check_consistent_length(*columns, values)
        weights = None
        if sample_weight is not None:
            weights = _weights(sample_weight, values)
            kept = np.flatnonzero(weights)
            columns = [_safe_indexing(column, kept) for column in columns]
            values, weights = values[kept], weights[kept]
            if censored is not None and cap_of(censored) is None:
                censored = _safe_indexing(np.asarray(censored), kept)
        n_threads = count_threads(self.n_jobs)
        return observe(
            (*columns, values), weights=weights, labels=(None, None), censored=censored,
            n_threads=n_threads,
        )  # fmt: skip

    def _asked(self, X: Any) -> list[Any]:
        """Read the pairs that a fitted estimator is asked for: rows and columns."""
        check_is_fitted(self, self._fitted)
        return self._pairs(X, reset=False)

    def _judged(self, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Any, Any]:
        """Read the values, and their weights, that predictions are scored by."""
        with np.errstate(invalid="ignore"):
            values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return values, _weights(sample_weight, values)

    def _pairs(self, X: Any, *, reset: bool) -> list[Any]:
        """Split `X` into its two columns; those of a table keep their own types."""
        is_table = hasattr(X, "columns")
        dtype = None if hasattr(X, "dtype") else object  # 7 and "a" in a list stay what they are
        with np.errstate(invalid="ignore"):
            X = validate_data(self, X, reset=reset, skip_check_array=is_table, dtype=dtype)
        if self.n_features_in_ != 2:
            raise ValueError(
                f"X must have two columns, (row, column), got {self.n_features_in_} feature(s)"
            )
        return [_whole(_safe_indexing(X, j, axis=1), SIDES[j]) for j in range(2)]


def _whole(column: Any, what: str) -> Any:
    """Convert labels that are floats, as encoders write them, to the integers they stand for."""
    if isinstance(column, np.ndarray) and column.dtype == object:
        types = set(map(type, column.tolist()))
        if float in types and types <= {int, float}:  # made from a list
            column = column.astype(np.float64)
    if getattr(getattr(column, "dtype", None), "kind", "") != "f":
        return column
    numbers = np.asarray(column)
    wrong = ~((np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        got = f"{numbers[wrong][0]} at position {np.argmax(wrong)}"
        raise ValueError(f"{what} must hold labels, if floats then whole numbers, got {got}")
    return numbers.astype(np.int64)


def _weights(sample_weight: Any, values: NDArray[Any]) -> Any:
    with np.errstate(invalid="ignore"):
        return _check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
