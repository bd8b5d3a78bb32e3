"""Residuals of a model: sums over them by row, and products with the slopes of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastemf.kernels import residual_sums as kernels
from fastemf.kernels.entries import ProductArgs, multiply_rows
from fastemf.kernels.problem import Rows, Sample
from fastemf.kernels.threads import launch
from fastemf.kernels.vector_width import pad_columns
from fastemf.loss import level_weights
from fastemf.solver.half_sweep import NO_MARKS
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import ALL_CELLS, HashRange
from fastemf.sources.source import Grouped, Side
from fastemf.support.arrays import Array, Floats, Ints

if TYPE_CHECKING:
    from fastemf.solver.engine import CompletionEngine


class EntityArrays(NamedTuple):
    """Arrays of the rows, or of the columns, of a model."""

    factor: Array
    known: Floats  # columns as in `fastemf.kernels.residual_sums`
    marks: Ints


class ResidualParameters(NamedTuple):
    """Parameters of the residuals of all cells."""

    part: HashRange
    omega: float
    shift: float
    unit: float  # of the data


class ResidualView(NamedTuple):
    """The residuals of a model, row by row (or column by column)."""

    side: Grouped
    own: EntityArrays
    others: EntityArrays
    parameters: ResidualParameters
    n_threads: int

    def each(self, task: Callable[..., Any], *args: Any) -> Any:
        """Run a task over the blocks of the side."""
        return self.side.each(
            task, self.others, self.own, self.parameters, *args, n_threads=self.n_threads
        )  # fmt: skip


def residual_view(
    engine: CompletionEngine, axis: int, X: Array, Y: Array, leverages: Pair | None = None,
    shift: float = 0.0, *, variances: Pair | None = None, scales: Pair | None = None,
) -> ResidualView:  # fmt: skip
    """Return the residuals of (X, Y) by row (axis 0) or by column (axis 1).

    With `leverages` they are leave-one-out residuals; `scales` and `variances` are one each
    by default.
    """
    sides = (engine.observations.by_row, engine.observations.by_col)
    marks, part = (NO_MARKS, NO_MARKS), ALL_CELLS
    if engine.sample is not None:
        marks, part = engine.sample.marks, engine.sample.part
    arrays = []
    for at, factor in enumerate((X, Y)):
        known = np.zeros((factor.shape[0], kernels.N_KNOWN))
        if engine.mu is not None:
            known[:, kernels.OFFSET] = factor[:, -1]
        if engine.mu is not None and at == 0:
            known[:, kernels.OFFSET] += engine.mu
        known[:, kernels.SCALE] = 1.0 if scales is None else scales[at]
        known[:, kernels.LEVERAGE] = 0.0 if leverages is None else leverages[at]
        known[:, kernels.VARIANCE] = 1.0 if variances is None else variances[at]
        factor = np.ascontiguousarray(factor[:, : engine.n_factors(X)])
        arrays.append(EntityArrays(factor, known, marks[at]))
    parameters = ResidualParameters(part, engine.omega, float(shift), engine.unit)
    return ResidualView(sides[axis], arrays[axis], arrays[1 - axis], parameters, engine.n_threads)


def residual_sums(
    engine: CompletionEngine, axis: int, X: Array, Y: Array, leverages: Pair | None = None,
    shift: float = 0.0, *, variances: Pair | None = None, scales: Pair | None = None,
) -> Floats:  # fmt: skip
    """Sum over the residuals of each row (axis 0) or column; parameters as in `residual_view`.

    `scales` are those of the weighting by default.
    """
    scales = engine.weighting.observations if scales is None else scales
    view = residual_view(engine, axis, X, Y, leverages, shift, variances=variances, scales=scales)
    out = np.empty((view.own.factor.shape[0], kernels.N_SUMS))
    for rows, sums in view.each(_sum_block):
        out[rows] = sums
    return out


def _sum_block(block: Side, *args: Any) -> Floats:
    """Compute the sums of the rows of one block."""
    model, n_threads = residual_kernel_args(block, *args[:-1]), args[-1]
    out = np.full((block.indptr.size - 1, kernels.N_SUMS), np.nan)
    n_threads, runs = block.plan_launch(model.other.shape[1], n_threads)
    launch(kernels.sum_residuals, n_threads, runs, kernels.SumArgs(model, out))
    if np.isnan(out[:, kernels.MASS]).any():  # a kernel raises nothing
        raise MemoryError("no memory for the scratch of sums over a block of rows")
    return out


def residual_kernel_args(block: Side, *args: Any) -> kernels.FittedRows:
    """Combine the observations of a block with the arrays and parameters of a model.

    `args` are the fields of the others' and the rows' own `EntityArrays`, and the parameters.
    """
    others, own = EntityArrays(*args[:3]), EntityArrays(*args[3:6])
    parameters: ResidualParameters = args[6]
    rows = Rows(block.indptr, block.indices, block.values, block.weights)
    sample = Sample(np.empty(0, block.dtype), others.marks, own.marks, *parameters.part)
    return kernels.FittedRows(
        rows, sample, pad_columns(own.factor), others.factor, own.known, others.known,
        *level_weights(parameters.omega), parameters.shift, parameters.unit,
    )  # fmt: skip


# --- slopes --------------------------------------------------------------------------------------


def slopes(
    engine: CompletionEngine, X: Array, Y: Array, scales: Pair, *, signed: bool
) -> tuple[Slopes, Slopes]:
    """Return the products with the matrix of slopes of the loss, and with its transpose.

    Slopes are scaled by row and column, and with `signed` have random signs.
    """
    if signed and engine.sample is None:
        raise ValueError("random signs need the marks of a sample")
    forward, backward = (
        Slopes(residual_view(engine, axis, X, Y, scales=scales), signed) for axis in (0, 1)
    )
    return forward, backward


class Slopes:
    """One side of the matrix of slopes, zero where nothing is observed, as a linear operator."""

    def __init__(self, view: ResidualView, signed: bool) -> None:
        self._view = view
        self._signed = signed
        # In memory the slopes are kept; data on disk are there because memory is short.
        self._kept = None
        if isinstance(view.side, Side):
            [(_, self._kept)] = view.each(_slopes_block, signed)

    def __call__(self, dense: Array) -> Array:
        """Multiply by a dense matrix."""
        view, width = self._view, dense.shape[1]
        out = pad_columns(np.empty((view.own.factor.shape[0], width), dense.dtype))[:, :width]
        if self._kept is not None and isinstance(view.side, Side):
            out[:] = _multiply(view.side, self._kept, pad_columns(dense), view.n_threads)[:, :width]
            return out
        for rows, product in view.each(_multiply_block, self._signed, dense):
            out[rows] = product[:, :width]
        return out


def _slopes_block(block: Side, *args: Any) -> Array:
    """Compute the slopes of the loss at the observations of one block."""
    *model_args, signed, n_threads = args
    model = residual_kernel_args(block, *model_args)
    out = np.empty(block.size, block.dtype)
    n_threads, runs = block.plan_launch(model.other.shape[1], n_threads)
    launch(kernels.fill_slopes, n_threads, runs, kernels.SlopeArgs(model, int(signed), out))
    return out


def _multiply_block(block: Side, *args: Any) -> Array:
    """Compute a block's rows of the product of the slopes and a dense matrix."""
    *slope_args, dense, n_threads = args
    return _multiply(
        block, _slopes_block(block, *slope_args, n_threads), pad_columns(dense), n_threads
    )


def _multiply(block: Side, values: Array, dense: Array, n_threads: int) -> Array:
    out = np.empty((block.indptr.size - 1, dense.shape[1]), dense.dtype)
    n_threads, runs = block.plan_launch(dense.shape[1], n_threads)
    product = ProductArgs(block.indptr, block.indices, values, dense, out)
    launch(multiply_rows, n_threads, runs, product)
    return out
