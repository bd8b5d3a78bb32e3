"""`Factorization`, the result of a fit at one level, and what only such a fit can be asked."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
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
from fastemf.model.folding import folded_axis, joined_axis
from fastemf.model.limits import has_limits, known_imputation, with_limits_replaced
from fastemf.model.loo import LeaveOneOut, leave_one_out
from fastemf.model.measured_share import MeasuredShare
from fastemf.model.model import Model
from fastemf.model.prediction import Predicts, as_product, residuals
from fastemf.model.reading import CellValues, read_observations
from fastemf.model.screen import Screen
from fastemf.model.similarity import distances_from
from fastemf.observations.memory import Observations
from fastemf.observations.source import Source
from fastemf.operators.conversion import as_operator
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.imputation import Imputation, without_censored
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge, SweepRecord
from fastemf.solver.tables import Table
from fastemf.solver.training import TrainingLevels, joined_levels, new_levels
from fastemf.solver.tuning import Tuning
from fastemf.solver.weighting import plain
from fastemf.support.validation import check_clip, check_fitted_level, check_integer

__all__ = ["Factorization"]


LIMIT_ROUNDS = 6  # in which new items and their censored values improve each other


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
        if has_limits(observed):
            known = known_imputation(self.imputation)
            observed = with_limits_replaced(observed, self._without_tables, self.mu, known)
        engine = self._weighed(observed, n_threads=1)
        penalty = engine.penalty(self.rows.extended(), self.cols.extended(), self._ridge)
        r = residuals(self._without_tables, self.mu, observed)
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
        engine = self._weighed(observed.astype(np.dtype(np.float64)), count_threads(-1))
        found = leave_one_out(self.axes, self.mu, self.shift, engine, self._ridge)
        return found if residuals else found._replace(residuals=None)

    # --- new rows and columns --------------------------------------------------------------

    def _folded(self, observed: Observations, axis: int, n_threads: int) -> Factorization:
        observed = self._with_new_limits(observed, axis, n_threads)
        folded = self._solved_axis(observed, axis, n_threads)
        training = self._new_training(observed, axis, n_threads)
        folded_fit = replace(self._with_axis(folded, axis), training=training)
        return replace(folded_fit, history=(), converged=True)

    def _solved_axis(
        self, observed: Observations, axis: int, n_threads: int, of: Source | None = None
    ) -> Axis:
        """Solve for the items of an axis; `of` are the same entries with other weights."""
        engine = self._engine(observed, n_threads)
        if of is not None:
            engine = engine.on(of)
            engine = engine.recounted() if self.reg_scaling == "count" else engine
        return folded_axis(self.axes, axis, observed, engine, self._ridge, self.family)

    def _with_new_limits(self, observed: Observations, axis: int, n_threads: int) -> Observations:
        """Replace censored values of new rows or columns, in turn with their solution."""
        if not has_limits(observed):
            return observed
        known_imputation(self.imputation)
        given = observed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of items that are all censored
            of: Source | None = without_censored(given)
            for _ in range(LIMIT_ROUNDS):
                found = self._with_axis(self._solved_axis(observed, axis, n_threads, of), axis)
                of = None
                known = known_imputation(found.imputation)
                observed = with_limits_replaced(given, found._without_tables, self.mu, known)
        return observed

    def _joined(self, new: Factorization, axis: int) -> Factorization:
        training = None
        if self.training is not None and new.training is not None:
            training = joined_levels(self.training, new.training, axis)
        before = self.axes[axis]
        grown = self._with_axis(joined_axis(before, new.axes[axis]), axis, before.size)
        return replace(grown, training=training)

    def _new_training(
        self, observed: Observations, axis: int, n_threads: int
    ) -> TrainingLevels | None:
        """Find the levels of what is folded in, with which that can be compared."""
        if self.training is None:
            return None
        mu = self.training.constant
        even = CompletionEngine(observed, self.omega, mu=mu, scale=self.scale, n_threads=n_threads)
        return new_levels(self.training, axis, even, n_threads)

    def _with_axis(self, other: Axis, axis: int, known: int = 0) -> Factorization:
        """Return the fit with another axis, whose first `known` items it had before."""
        rows, cols = (other, self.cols) if axis == 0 else (self.rows, other)
        imputation = self.imputation
        if imputation is not None:
            imputation = imputation.with_axis(axis, other.size, known)
        return replace(self, rows=rows, cols=cols, coverage=None, imputation=imputation)

    @property
    def _without_tables(self) -> tuple[Axis, Axis]:
        return replace(self.rows, levels=None), replace(self.cols, levels=None)

    @property
    def _ridge(self) -> Ridge:
        return Ridge(self.reg, self.intercept_reg)

    def _engine(self, observed: Observations, n_threads: int) -> CompletionEngine:
        """Make an engine that weighs all observations alike."""
        return CompletionEngine(
            observed,
            self.omega,
            mu=self.mu if self.rows.has_intercepts else None,
            scale=self.scale,
            weighting=None if self.reg_scaling == "count" else plain(observed.shape),
            n_threads=n_threads,
        )

    def _weighed(self, observed: Observations, n_threads: int) -> CompletionEngine:
        """Make an engine with the weighting of the fit."""
        engine = self._engine(observed, n_threads)
        if self.rows.noise is None or self.cols.noise is None:
            return engine
        variances = self.rows.noise.variances, self.cols.noise.variances
        return engine.view(weighting=weighting_of(self.family, engine, variances))

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
