"""`ExpectileFactorization`, a transformer of the rows of a matrix."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fastemf.estimators.parameters import CompletionParameters, skill
from fastemf.models.bilinear import Bilinear
from fastemf.models.entities import Entities
from fastemf.sources.memory import observe
from fastemf.support.arrays import Array
from fastemf.support.validation import check_dtype, check_factor


class ExpectileFactorization(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CompletionParameters
):
    """Row factors of a partly observed matrix, as a scikit-learn transformer.

    Samples are rows of the matrix, features its columns. `fit` calls `fastemf.complete`.
    `transform` calls `Factorization.fold_in`: it solves for the factors of the given rows with the
    column factors fixed.

    Parameters
    ----------
    omega
        Expectile level in (0, 1).
    k
        Rank, from 1 to min(rows, columns), or 0 with `intercepts`.
    reg
        Ridge: ``"auto"`` (tuned in `fit` on validation cells if there are 400 observations or
        more), ``"noise"`` (noise-adaptive) or a number.
    intercepts
        Add ``mu + a_i + c_j`` to the model. The row intercepts are then the last column of the
        output of `transform`.
    init, tol, max_iter, solver, random_state, n_jobs
        As in `fastemf.complete`.

    Attributes
    ----------
    factorization_ : Factorization
        The fit.
    n_iter_ : int
        Number of sweeps.

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
            A scipy sparse matrix or array, of which every stored entry is observed, or a dense
            array or table, in which NaN is missing (or masked, in a masked array).
        y
            Ignored.
        censored
            Which values are censoring limits, as in `fastemf.complete`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fastemf.ExpectileFactorization(k=1).fit(R).factorization_.shape
        (3, 3)
        """
        return self._complete(self._read_matrix(R, reset=True), censored)

    def transform(self, R: Any) -> Array:
        """Return the factors of the rows of `R`.

        With ``intercepts=True`` the last column has the row intercepts.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> model = fastemf.ExpectileFactorization(k=1, reg=0).fit(np.outer([1, 2], [3, 4]))
        >>> one, ten = model.transform([[3.0, 4.0], [30.0, np.nan]])
        >>> (ten / one).round(6).tolist()
        [10.0]
        """
        check_is_fitted(self, "factorization_")
        rows = self.factorization_.fold_in(self._read_matrix(R, reset=False), n_jobs=self.n_jobs)
        return rows.rows.extended_factor()

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Predict whole rows from the output of `transform`, as a dense (rows, columns) array.

        The correction tables of the fit are not applied, since they need more than the factors.

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
        rows = Entities.from_extended(given.astype(fit.X.dtype), fit.k)
        return Bilinear((rows, fit.cols), fit.constant).predict_rows(np.arange(count))

    def score(self, R: Any, y: None = None) -> float:
        """Return the expectile skill of the rows of `R` folded in; 1 is perfect.

        The skill is 1 − loss of the fitted values / loss of the best constant (the ω-expectile of
        `R`) over the observed entries. These entries also determine the factors of the rows, so
        the score increases with k. To choose k or reg, hold out cells with
        `ExpectilePairRegressor`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> model = fastemf.ExpectileFactorization(k=1, reg=0).fit(np.outer([1, 2], [3, 4]))
        >>> round(model.score([[30.0, 40.0]]), 6)
        1.0
        """
        check_is_fitted(self, "factorization_")
        observed = observe(self._read_matrix(R, reset=False))
        rows, side = self.factorization_.fold_in(observed, n_jobs=self.n_jobs), observed.by_row
        return skill(side.values, rows.predict(side.keys, side.indices), rows.omega)

    def _read_matrix(self, R: Any, *, reset: bool) -> Any:
        """Convert `R` to floats; `observe` checks the observed entries."""
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
