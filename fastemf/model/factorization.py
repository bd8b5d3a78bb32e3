"""`Factorization`, the result of a fit at one level, and what only such a fit can be asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.threads import count_threads
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.model import file as model_file
from fastemf.model.bilinear import Bilinear
from fastemf.model.evaluation import Evaluation, evaluate_level
from fastemf.model.explanation import Explanation, explain_cell
from fastemf.model.fit_engine import ridge_of, weighed_engine
from fastemf.model.growth import folded_fit, joined_fit, with_new_limits
from fastemf.model.limits import has_limits, known_imputation, with_limits_replaced
from fastemf.model.loo import LeaveOneOut, leave_one_out
from fastemf.model.measured_share import MeasuredShare
from fastemf.model.model import Model
from fastemf.model.prediction import Predicts, as_product, residuals, without_tables
from fastemf.model.reading import CellValues, read_observations
from fastemf.model.screen import Screen
from fastemf.model.similarity import distances_from
from fastemf.observations.memory import Observations
from fastemf.operators.conversion import as_operator
from fastemf.solver.axis import Axis
from fastemf.solver.imputation import Imputation
from fastemf.solver.records import SweepRecord
from fastemf.solver.tables import Table
from fastemf.solver.training import TrainingLevels
from fastemf.solver.tuning import Tuning
from fastemf.support.validation import check_clip, check_fitted_level, check_integer

__all__ = ["Factorization"]


@dataclass(frozen=True, eq=False, repr=False)
class Factorization(Model):
    """A fitted ω-expectile factorization ``M̂ = X Yᵀ`` (``+ mu + a 1ᵀ + 1 cᵀ`` with intercepts).

    Attributes
    ----------
    rows, cols : Axis
        The two sides: each has a ``factor`` and, or None, ``intercepts`` and ``labels``, and
        ``unseen``, the items without observations. The attributes below name the same arrays.
    X : (m, k) array
        Row factors.
    Y : (n, k) array
        Column factors.
    omega : float
        The expectile level fitted.
    mu : float
        The data's ω-expectile with intercepts, else 0, in the data's unit.
    shift : float
        What every prediction adds to ``mu``: a tuned fit's correction of its level for new
        cells, or that of a fit that `fastemf.level_for_coverage` returned.
    tables : tuple of Table
        What predictions add for the level and the noise of their row and column, in a tuned fit
        with intercepts that this makes better; else empty.
    row_intercepts, col_intercepts : (m,) and (n,) arrays, or None
        a and c, in the data's unit.
    reg : float
        The ridge λ in force at the end.
    reg_scaling : {"count", "plain"}
        Whether a row's ridge is λ times its number of observations, or λ.
    intercept_reg : float
        The ridge λ₀ on the intercepts.
    scale : float
        Root mean square of the data fitted, around mu.
    converged : bool
        Whether the fit ended by itself within the sweeps allowed: the tolerance was
        reached or, with validation, patience was out.
    family : str
        How observations and ridge are weighted: ``"even"``, ``"weighted"`` or ``"ridged"`` (see
        `fastemf.Tuning`); the noise scales are those of `rows` and `cols`.
    tuning : Tuning, or None
        What ``reg="auto"`` tried, and what the predictions are worth.
    training : TrainingLevels, or None
        Levels of the data fitted, a few numbers per row and column, which `evaluate` compares
        the fit with; None in models of older versions.
    value_name : str, or None
        The column of the table that the values came from.
    coverage : MeasuredShare, or None
        The share of held-out values at or below it, of a fit that `fastemf.level_for_coverage`
        returned; None of others, and where rows or columns were added, for which it was not
        measured.
    imputation : Imputation, or None
        What replaces censored values, where some of those fitted were.
    history : tuple of SweepRecord
        One record per sweep. The factors are those of the last accepted one or, with
        validation, of the first with the lowest ``validation_loss``.
    unseen_rows, unseen_cols : int64 arrays
        Rows and columns without any observation; their factors are zero.
    row_labels, col_labels : Labels, or None
        What rows and columns are called, in index order, where the data were a table. Every
        row and column given to the fit is then read as a label, integers too.
    """

    rows: Axis
    cols: Axis
    omega: float
    mu: float
    reg: float
    reg_scaling: str
    intercept_reg: float
    scale: float
    converged: bool
    history: tuple[SweepRecord, ...]
    shift: float = 0.0
    family: str = "even"
    tuning: Tuning | None = None
    training: TrainingLevels | None = None
    value_name: str | None = None
    coverage: MeasuredShare | None = None
    imputation: Imputation | None = None

    # --- its parts -------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns, to be indexed by axis."""
        return self.rows, self.cols

    @property
    def X(self) -> NDArray[Any]:  # noqa: N802
        """Row factors."""
        return self.rows.factor

    @property
    def Y(self) -> NDArray[Any]:  # noqa: N802
        """Column factors."""
        return self.cols.factor

    @property
    def row_intercepts(self) -> NDArray[Any] | None:
        """Intercepts of the rows, in the data's unit; None without intercepts."""
        return self.rows.intercepts

    @property
    def col_intercepts(self) -> NDArray[Any] | None:
        """Intercepts of the columns, in the data's unit; None without intercepts."""
        return self.cols.intercepts

    @property
    def constant(self) -> float:
        """What every prediction begins with: ``mu + shift``."""
        return self.mu + self.shift

    @property
    def tables(self) -> tuple[Table, ...]:
        """What predictions add for the level and noise of row and column, where that helps."""
        return () if self.rows.levels is None else self.rows.levels.tables.each

    @property
    def k(self) -> int:
        """The rank."""
        return self.rows.k

    @property
    def n_iter(self) -> int:
        """Sweeps done, rejected ones included."""
        return len(self.history)

    def __repr__(self) -> str:
        m, n = self.shape
        end = "converged" if self.converged else "not converged"
        end = f"{end} in {self.n_iter} sweeps" if self.history else "folded in"
        intercepts = ", intercepts" if self.rows.has_intercepts else ""
        labels = ""
        if self.rows.labels is not None:
            names = (self.rows.name, self.cols.name)
            labels = ", labels" if None in names else ", labels {} x {}".format(*names)
        return (
            f"<Factorization {m} x {n}, k={self.k}, omega={self.omega:g}{intercepts}{labels}, "
            f"reg={self.reg:.3g}, {self.X.dtype}, {end}>"
        )

    def __str__(self) -> str:
        return repr(self) if self.tuning is None else f"{self!r}\n{self.tuning.verdict()}"

    # --- predictions -----------------------------------------------------------------------

    @cached_property
    def _bilinear(self) -> Bilinear:
        return Bilinear(self.axes, self.constant)

    def _cell(self, i: int, j: int) -> Any:
        return self._bilinear.one(i, j)

    def _cells(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        return self._bilinear.predict(i, j)

    def _rows(self, i: NDArray[np.int64]) -> NDArray[Any]:
        return self._bilinear.rows(i)

    def _of_level(self, level: Any) -> tuple[float, Predicts]:
        if level is not None:
            check_fitted_level(level, (self.omega,), "level")
        return self.omega, self._cells

    def _screen(self) -> Screen:
        return self._bilinear.screen()

    def _evaluated(self, cells: CellValues) -> Evaluation:
        scores = evaluate_level(cells, self.omega, self._cells, self.training)
        return Evaluation(tuple(scores), cells.values.size)

    def _distances(self, axis: int, item: int) -> NDArray[np.float64]:
        return distances_from(self.axes, axis, item)

    def explain(self, row: Any, col: Any) -> Explanation:
        """Take the prediction of one cell apart: its parts, in the data's unit, and their sum.

        Parameters
        ----------
        row, col
            A row and a column: indices, or labels where the fit has them.

        Returns
        -------
        Explanation
            ``mu``, ``shift``, ``row``, ``column``, ``factors`` and ``tables``, and their sum
            ``value``, which is what `predict` gives, to rounding.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.add.outer([0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 7.0, 7.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, intercepts=True)
        >>> parts = fit.explain(0, 3)
        >>> parts.row < 0 < parts.column
        True
        >>> bool(abs(parts.value - fit.predict(0, 3)) < 1e-9)
        True
        """
        i, j = self._single(0, row), self._single(1, col)
        return explain_cell(self.axes, self.mu, self.shift, i, j)

    def to_dense(self, *, max_bytes: int = 1 << 30, clip: Any = None) -> NDArray[Any]:
        """Predict every cell, as an (m, n) array; one above `max_bytes` (1 GiB) is refused.

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
        dense = self._rows(np.arange(m))
        return np.asarray(np.clip(dense, *bounds, out=dense))

    def measure(self, A: Any, *, shape: tuple[int, int] | None = None) -> NDArray[Any]:
        """Compute the fitted measurements <A_i, M̂>, `A` in any form `fastemf.sense` takes.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> total = fastemf.operators.Dense(np.ones((1, 2, 2)))
        >>> fit.measure(total).round(6).tolist()
        [21.0]
        """
        operator = as_operator(A, shape)
        if tuple(operator.shape[1:]) != self.shape:
            raise ValueError(
                f"A must measure matrices of the fit's shape {self.shape}, "
                f"got {tuple(operator.shape[1:])}"
            )
        return operator.forward(*as_product(self.axes, self.constant))

    # --- how well it fits ------------------------------------------------------------------

    def objective(
        self,
        R: Any,
        *,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        censored: Any = None,
        shape: Any = None,
    ) -> float:
        """Compute F on data of the matrix's shape: expectile loss plus the fit's ridge terms.

        On the data fitted this is the objective of the factors' record in ``history``: shift and
        tables, which come after the fit, have no part in it. Censored values are replaced by what
        the fit as it is lets expect, a little other than what it was fitted to. All
        parameters are as in `fastemf.complete`; `rows`, `cols` and `values` are by default the
        columns that the fit's labels and values came from. A table and triplets are placed by those
        labels; a matrix without labels is in the fit's order.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.objective(R + 1) - 0.5 * 4 < 1e-12
        True
        """
        names = self._names(R, (rows, cols, values))
        observed = read_observations(self.axes, R, names, weights, shape, censored)
        plain = without_tables(self.axes)
        if has_limits(observed):
            known = known_imputation(self.imputation)
            observed = with_limits_replaced(observed, plain, self.mu, known)
        engine = weighed_engine(self, observed, n_threads=1)
        penalty = engine.penalty(self.rows.extended(), self.cols.extended(), ridge_of(self))
        r = residuals(plain, self.mu, observed)
        v, noise = _weights_or_none(observed), engine.weighting.observations
        if noise is not None:
            scales = noise[0][observed.by_row.keys] * noise[1][observed.by_row.indices]
            v = scales if v is None else v * scales
        return expectile_loss(r, self.omega, v) + penalty

    def effective_omega(
        self,
        R: Any,
        *,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> float:
        """Compute the level at which the fit really lies in `R`: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

        For the constant that is the data's ω-expectile it equals ``omega``; on held-out data it
        measures calibration. It is NaN where every residual is 0. Parameters are as in
        `objective`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[0.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
        >>> fit = fastemf.complete(np.ones((2, 3)), omega=0.1, k=1, reg=0)
        >>> round(fit.effective_omega(R), 3)  # three zeros below 1, eight units above
        0.273
        """
        names = self._names(R, (rows, cols, values))
        observed = read_observations(self.axes, R, names, weights, shape)
        r = residuals(self.axes, self.constant, observed)
        return effective_omega(r, _weights_or_none(observed))

    def loo(
        self,
        R: Any,
        *,
        residuals: bool = False,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> LeaveOneOut:
        """Compute what the fit leaves of each observation it was fitted to, had it not seen it.

        Without an observation, at the same ridge and signs, its residual r from the row's solve
        would be r / (1 − h), where h is its leverage in the row; and likewise in its column. The
        product of the two is taken, which needs no refitting. Shift and tables stay as they
        are. Where factors fit noise it is too optimistic, as both sides together leave less than
        either alone: it compares fits of a like rank, and ``tuning`` says what new cells are like.

        Parameters
        ----------
        R
            The data fitted, in memory.
        residuals
            Whether to return them too.
        rows, cols, values, weights, shape
            As in `objective`. Of weight above one, one unit is left out at a time.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) + np.eye(3)
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0.01)
        >>> bool(fit.loo(R).loss > 0.5 * np.mean((R - fit.to_dense()) ** 2))
        True
        """
        names = self._names(R, (rows, cols, values))
        observed = read_observations(self.axes, R, names, weights, shape)
        doubles = observed.astype(np.dtype(np.float64))
        engine = weighed_engine(self, doubles, count_threads(-1))
        found = leave_one_out(self.axes, self.mu, self.shift, engine, ridge_of(self))
        return found if residuals else found._replace(residuals=None)

    # --- new rows and columns --------------------------------------------------------------

    def _folded(self, observed: Observations, axis: int, n_threads: int) -> Factorization:
        return folded_fit(self, self._with_new_limits(observed, axis, n_threads), axis, n_threads)

    def _with_new_limits(self, observed: Observations, axis: int, n_threads: int) -> Observations:
        return with_new_limits(self, observed, axis, n_threads)

    def _joined(self, new: Factorization, axis: int) -> Factorization:
        return joined_fit(self, new, axis)

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
        model_file.write(path, self)


def _weights_or_none(observed: Observations) -> NDArray[Any] | None:
    weights = observed.by_row.weights
    return weights if weights.size else None
