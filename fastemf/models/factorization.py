"""`Factorization`, the fit at one expectile level."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.censoring.imputation import (
    Imputation,
    has_censored,
    impute_observations,
    require_imputation,
)
from fastemf.features.schema import NOT_GIVEN, SideFeatures
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.models.bilinear import Bilinear, Predicts, as_product, residuals, without_corrections
from fastemf.models.entities import Entities
from fastemf.models.fold_in import append_fit, fold_in_fit, impute_new, ridge_of, weighted_engine
from fastemf.models.model import Model
from fastemf.models.reading import CellValues
from fastemf.models.similarity import distances_from
from fastemf.models.topk_screen import Screen
from fastemf.solver.records import SweepRecord
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Array, Floats, Indices, Ints
from fastemf.support.terminal import escape_control
from fastemf.support.validation import check_clip, check_integer
from fastemf.tuning.baselines import TrainingBaselines
from fastemf.tuning.corrections import Correction
from fastemf.tuning.record import Tuning

if TYPE_CHECKING:
    from fastemf.models.evaluation import Evaluation
    from fastemf.models.explanation import Explanation
    from fastemf.models.held_out import DriftReport
    from fastemf.models.leave_one_out import LeaveOneOut


@dataclass(frozen=True, eq=False, repr=False)
class Factorization(Model):
    """A fitted ω-expectile factorization ``M̂ = X Yᵀ`` (``+ mu + a 1ᵀ + 1 cᵀ`` with intercepts).

    Attributes
    ----------
    rows, cols : Entities
        The two sides. Each has ``factor``, ``unseen`` (items without observations),
        ``intercepts`` and ``labels``; the last two may be None. The attributes below refer to the
        same arrays.
    X : (m, k) array
        Row factors.
    Y : (n, k) array
        Column factors.
    omega : float
        The expectile level.
    mu : float
        The ω-expectile of the data, in their unit; 0 without intercepts.
    shift : float
        Constant that a tuned fit adds to ``mu`` to calibrate its level on new cells.
    corrections : tuple of Correction
        Correction tables over the effects and the noise of rows and columns, which a tuned fit
        with intercepts adds to its predictions if they reduce the cross-validated loss; otherwise
        empty.
    row_intercepts, col_intercepts : (m,) and (n,) arrays, or None
        a and c, in the units of the data.
    reg : float
        The final ridge λ.
    reg_scaling : {"count", "plain"}
        Whether the ridge of a row is λ times its number of observations, or λ.
    intercept_reg : float
        The ridge λ₀ on the intercepts.
    scale : float
        Root mean square of the training data, around mu.
    converged : bool
        Whether the fit stopped before the maximum number of sweeps: it reached the tolerance or,
        with validation, ran out of patience.
    family : str
        Weighting of observations and ridge: ``"equal"``, ``"weighted"`` or ``"ridged"`` (see
        `Tuning`). The noise scales are stored in `rows` and `cols`.
    tuning : Tuning, or None
        The candidates that ``reg="auto"`` compared, and their validation losses.
    training : TrainingBaselines, or None
        Baselines of the training data, a few numbers per row and column, for `evaluate`.
    value_name : str, or None
        Name of the data column that held the values.
    imputation : Imputation, or None
        Imputation model of censored values, if the training data had any.
    censored : (str, float), or None
        The censoring limit of the training data, such as ``("right", 20.0)``. Methods that take
        data use it by default.
    weighted : bool
        Whether the training data had weights other than 1.
    drift : DriftReport, or None
        Effective omega and loss in the latest tenth of the time, for a model fitted with ``time=``.
    history : tuple of SweepRecord
        One record per sweep. The factors are those of the last accepted sweep or, with validation,
        of the first sweep with the lowest ``validation_loss``.
    unseen_rows, unseen_cols : int64 arrays
        Rows and columns without observations; their factors are zero.
    row_labels, col_labels : Labels, or None
        Labels of rows and columns, in index order, if the data had labels. Methods then take
        labels instead of indices, even if the labels are integers.
    """

    rows: Entities
    cols: Entities
    omega: float
    mu: float
    reg: float
    reg_scaling: str
    intercept_reg: float
    scale: float
    converged: bool
    history: tuple[SweepRecord, ...]
    shift: float = 0.0
    family: str = "equal"
    tuning: Tuning | None = None
    training: TrainingBaselines | None = None
    value_name: str | None = None
    imputation: Imputation | None = None
    censored: tuple[str, float] | None = None
    weighted: bool = False
    drift: DriftReport | None = None

    # --- parts -----------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Entities, Entities]:
        """Rows and columns, indexed by axis."""
        return self.rows, self.cols

    @property
    def X(self) -> Array:  # noqa: N802
        """Row factors."""
        return self.rows.factor

    @property
    def Y(self) -> Array:  # noqa: N802
        """Column factors."""
        return self.cols.factor

    @property
    def row_intercepts(self) -> Array | None:
        """Row intercepts, in the units of the data; None without intercepts."""
        return self.rows.intercepts

    @property
    def col_intercepts(self) -> Array | None:
        """Column intercepts, in the units of the data; None without intercepts."""
        return self.cols.intercepts

    @property
    def constant(self) -> float:
        """The constant of all predictions: ``mu + shift``."""
        return self.mu + self.shift

    @property
    def corrections(self) -> tuple[Correction, ...]:
        """Correction tables of a tuned fit, added to its predictions."""
        return () if self.rows.effects is None else self.rows.effects.corrections.each

    @property
    def k(self) -> int:
        """The rank."""
        return self.rows.k

    @property
    def n_iter(self) -> int:
        """Number of sweeps, including rejected ones."""
        return len(self.history)

    @property
    def _content(self) -> str:
        m, n = self.shape
        end = "converged" if self.converged else "not converged"
        end = f"{end} in {self.n_iter} sweeps" if self.history else "folded in"
        intercepts = ", intercepts" if self.rows.has_intercepts else ""
        labels = ""
        if self.rows.labels is not None:
            names = [escape_control(axis.name or "") for axis in self.axes]
            labels = f", labels {' x '.join(names)}" if all(names) else ", labels"
        return (
            f"Factorization {m} x {n}, k={self.k}, omega={self.omega:g}{intercepts}{labels}, "
            f"reg={self.reg:.3g}, {self.X.dtype}, {end}"
        )

    def _details(self) -> list[str]:
        return [] if self.tuning is None else [self.tuning.verdict()]

    # --- predictions -----------------------------------------------------------------------

    @cached_property
    def _bilinear(self) -> Bilinear:
        return Bilinear(self.axes, self.constant)

    def _predict_cell(self, i: int, j: int) -> Any:
        return self._bilinear.predict_cell(i, j)

    def _predict_cells(self, i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
        return self._bilinear.predict(i, j)

    def _predict_rows(self, i: Ints, given: SideFeatures = NOT_GIVEN) -> Array:
        return self._bilinear.predict_rows(i)

    def _make_screen(self) -> Screen:
        return self._bilinear.make_screen()

    @property
    def _fits(self) -> tuple[Factorization, ...]:
        return (self,)

    @property
    def _fitted(self) -> tuple[float, ...]:
        return (self.omega,)

    def _select(self, omega: Any, tau: Any) -> tuple[float, Predicts]:
        if omega is not None or tau is not None:
            super()._select(omega, tau)  # check them
        return self.omega, self._predict_cells

    def _evaluate_cells(self, cells: CellValues) -> Evaluation:
        from fastemf.models.evaluation import Evaluation, evaluate_level

        predicted = self._predict_cells(cells.rows, cells.cols)
        scores = evaluate_level(
            cells, self.omega, predicted, self.training, self._censored_cells(cells)
        )
        return Evaluation(tuple(scores), cells.values.size, censored=cells.n_censored)

    def _imputing_fit(self, omega: float | None = None) -> Factorization:
        return self

    def _distances(self, axis: int, item: int) -> Floats:
        return distances_from(self.axes, axis, item)

    def explain(self, row: Any, col: Any) -> Explanation:
        """Decompose the prediction of one cell into its terms, in the units of the data.

        Parameters
        ----------
        row, col
            Indices, or labels if the model has them.

        Returns
        -------
        Explanation
            ``parts`` are the terms ``mu`` (the ω-expectile of the data), ``shift`` (the calibration
            constant of a tuned fit), ``row`` and ``column`` (intercepts), ``factors`` (the product
            of the factors) and ``corrections`` (the sum of the correction tables). Their sum
            ``value`` equals `predict` up to rounding.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.add.outer([0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 7.0, 7.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, intercepts=True)
        >>> found = fit.explain(0, 3)
        >>> found.parts["row"] < 0 < found.parts["column"]
        True
        >>> bool(abs(found.value - fit.predict(0, 3)) < 1e-9)
        True
        """
        from fastemf.models.explanation import explain_cell, limit_notes

        i, j = self._position(0, row), self._position(1, col)
        found = explain_cell(self.axes, self.omega, self.mu, self.shift, i, j)
        return replace(found, notes=limit_notes(found.value, self._limits))

    def to_dense(self, *, max_bytes: int = 1 << 30, clip: Any = None) -> Array:
        """Predict every cell, as an (m, n) array of at most `max_bytes` (1 GiB).

        `clip` is as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> fit.to_dense().round(6).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        bounds = check_clip(clip, self.X.dtype)
        m, n = self.shape
        size = m * n * self.X.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {m} x {n} matrix takes {size:,} bytes, above max_bytes={max_bytes:,}; "
                "use predict or predict_block, or raise max_bytes"
            )
        dense = self._predict_rows(np.arange(m))
        return np.asarray(np.clip(dense, *bounds, out=dense))

    def measure(self, A: Any, *, shape: tuple[int, int] | None = None) -> Array:
        """Compute the measurements <A_i, M̂>, with `A` in any form that `fastemf.sense` accepts.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> total = fastemf.operators.Dense(np.ones((1, 2, 2)))
        >>> fit.measure(total).round(6).tolist()
        [21.0]
        """
        from fastemf.operators.conversion import as_operator

        operator = as_operator(A, shape)
        if tuple(operator.shape[1:]) != self.shape:
            raise ValueError(
                f"A must measure matrices of the fit's shape {self.shape}, "
                f"got {tuple(operator.shape[1:])}"
            )
        return operator.forward(*as_product(self.axes, self.constant))

    # --- scores ----------------------------------------------------------------------------

    def objective(
        self, R: Any, *, rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
    ) -> float:  # fmt: skip
        """Compute the objective that a fit minimizes, expectile loss plus ridge penalty, on `R`.

        On the training data this is the final objective in ``history``. The shift and the
        correction tables are not included, because they are estimated after the fit. Censored
        values are imputed by the fit. Parameters are as in `fold_in`. A matrix without labels must
        have the rows and columns of the fit, in the same order.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.objective(R + 1) - 0.5 * 4 < 1e-12
        True
        """
        observed = self._observe_imputed(R, (rows, cols, values), weights, shape, censored)
        plain = without_corrections(self.axes)
        engine = weighted_engine(self, observed, n_threads=1)
        penalty = engine.penalty(
            self.rows.extended_factor(), self.cols.extended_factor(), ridge_of(self)
        )
        v, noise = _weights_or_none(observed), engine.weighting.observations
        if noise is not None:
            scales = noise[0][observed.by_row.keys] * noise[1][observed.by_row.indices]
            v = scales if v is None else v * scales
        return expectile_loss(residuals(plain, self.mu, observed), self.omega, v) + penalty

    def effective_omega(
        self, R: Any, *, rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
    ) -> float:  # fmt: skip
        """Compute the expectile level of the predictions on `R`: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

        On held-out data it measures calibration: it should be close to ``omega``. It is NaN if
        every residual is 0. Parameters are as in `objective`; censored values are imputed.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[0.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
        >>> fit = fastemf.complete(np.ones((2, 3)), omega=0.1, k=1, reg=0)
        >>> round(fit.effective_omega(R), 3)  # three zeros below 1, eight units above
        0.273
        """
        observed = self._observe_imputed(R, (rows, cols, values), weights, shape, censored)
        r = residuals(self.axes, self.constant, observed)
        return effective_omega(r, _weights_or_none(observed))

    def loo(
        self, R: Any, *, residuals: bool = False, rows: str | None = None,
        cols: str | None = None, values: str | None = None, weights: Any = None,
        censored: Any = None, shape: Any = None,
    ) -> LeaveOneOut:  # fmt: skip
        """Compute approximate leave-one-out scores on the training data, without refitting.

        If a row were solved again without one of its observations, with the column factors fixed,
        the residual r of that observation would become r / (1 − h), where h is its leverage, as
        long as no residual changes sign. The same holds for its column. Each residual is divided
        by both terms. The shift and the correction tables are not refitted. The scores are too
        optimistic if the factors fit noise: use them to compare fits of similar rank, and
        ``tuning`` for the error on new cells.

        Parameters
        ----------
        R
            The training data, in memory.
        residuals
            Whether to return the leave-one-out residuals.
        rows, cols, values, weights, shape
            As in `objective`. One unit of weight is left out at a time: of an observation with a
            weight of 2, one of two repetitions.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) + np.eye(3)
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0.01)
        >>> bool(fit.loo(R).loss > 0.5 * np.mean((R - fit.to_dense()) ** 2))
        True
        """
        from fastemf.models.leave_one_out import leave_one_out

        observed = self._observe_imputed(R, (rows, cols, values), weights, shape, censored)
        scores = leave_one_out(self, observed)
        return scores if residuals else scores._replace(residuals=None)

    def _observe_imputed(self, *data: Any) -> Observations:
        """Open data of the fit's rows and columns, as `_observe`, and impute censored values."""
        observed = self._observe(*data)
        if not has_censored(observed):
            return observed
        imputation = require_imputation(self.imputation)
        predict = Bilinear(without_corrections(self.axes), self.mu).predict
        return impute_observations(observed, imputation, predict)

    # --- new rows and columns --------------------------------------------------------------

    def _fold_in(
        self, observed: Observations, axis: int, n_threads: int, item_features: None = None
    ) -> Factorization:
        return fold_in_fit(self, impute_new(self, observed, axis, n_threads), axis, n_threads)

    def _append(self, new: Factorization, axis: int) -> Factorization:
        return append_fit(self, new, axis)

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one ``.npz`` file, atomically; read it with `fastemf.load`.

        Examples
        --------
        >>> import numpy as np, fastemf, tempfile, os
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> fit.save(path)
        >>> np.array_equal(fastemf.load(path).X, fit.X)
        True
        """
        from fastemf.models.file import write_fit

        write_fit(path, self)


def _weights_or_none(observed: Observations) -> Array | None:
    weights = observed.by_row.weights
    return weights if weights.size else None
