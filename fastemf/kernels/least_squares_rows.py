"""Rows at ω = 0.5: f is a quadratic, and one pass over the observations is enough.

Rows of the other factor need not be packed for a second pass: with few unknowns the first pass
reads them in place.
"""

from __future__ import annotations

import numpy as np

from fastemf.kernels.compilation import Unit, helper, unit
from fastemf.kernels.problem import ABOVE, BELOW, ITERATIONS, SOLVED, Problem
from fastemf.kernels.row import CORNERS, fetch_observed, report_row
from fastemf.kernels.simd import make_direct
from fastemf.kernels.simd.operands import Pass, RowArrays

VISIBLE = 1e-3  # least ratio of loss to objective to compute the loss as a difference

_direct_4, _direct_8, _direct_10, _direct_12 = (make_direct(rows) for rows in (4, 8, 10, 12))


def is_least_squares(problem: Problem) -> bool:
    """Return whether a sweep solves rows exactly with equal weights of both signs."""
    exact = problem.max_newton > 0 and problem.steps == 0
    return exact and problem.upper == problem.lower


def direct_unit(problem: Problem) -> Unit | None:
    """Return the unit that evaluates rows without packing, if there is one for the rank."""
    q = problem.start.shape[1]
    fitting = [rows for rows in DIRECT if q <= rows]
    return DIRECT[fitting[0]] if CORNERS and fitting else None


@helper()
def _evaluate(direct, l, i, sweep, batch):
    """Evaluate a row with curvature, as `fastemf.kernels.row.evaluate`, without packing."""
    indptr, indices, values = sweep.rows.indptr, sweep.rows.indices, sweep.rows.values
    sample, other, weight = sweep.problem.sample, sweep.problem.other, sweep.problem.upper
    x, v, r, w, gram, g = batch.x, batch.v, batch.r, batch.w, batch.gram, batch.g
    chunk, at, first = batch.chunk, batch.at[l], indptr[i]
    weighted = sweep.rows.weights.size + sample.scales.size + sample.marks.size
    d = indptr[i + 1] - first
    arrays = RowArrays(other, indices, values, x, v, r, w, gram, g)
    total = 0.0
    size = 0.0
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        e, o = first + base, at + base
        fetch_observed(i, o, count, e, sweep, batch)
        run = Pass(e, o, count, 1 if base > 0 else 0, weighted, l * batch.tall, l)
        squares = direct(arrays, run, r.dtype.type(weight))
        total += squares[0]
        size += squares[1]
    report_row(l, i, 0.5 * total, 0.5 * total, size, 1, 0, sweep, batch)


@unit()
def evaluate_4(l, i, sweep, batch):
    """Evaluate a row of up to 4 unknowns."""
    _evaluate(_direct_4, l, i, sweep, batch)


@unit()
def evaluate_8(l, i, sweep, batch):
    """Evaluate a row of up to 8 unknowns."""
    _evaluate(_direct_8, l, i, sweep, batch)


@unit()
def evaluate_10(l, i, sweep, batch):
    """Evaluate a row of up to 10 unknowns."""
    _evaluate(_direct_10, l, i, sweep, batch)


@unit()
def evaluate_12(l, i, sweep, batch):
    """Evaluate a row of up to 12 unknowns."""
    _evaluate(_direct_12, l, i, sweep, batch)


DIRECT = {4: evaluate_4, 8: evaluate_8, 10: evaluate_10, 12: evaluate_12}


@unit()
def take_predicted(l, i, sweep, batch):
    """Take the full step, which solves the row, without another pass over the observations.

    The step achieves the predicted decrease. The remaining loss must be as accurate as after a
    pass, although it includes the rounding error of the prediction, which grows as the relative
    pivots fall. If it is not accurate enough, nothing is done.
    """
    stats, ridge, x, p = sweep.reports.stats, batch.ridge, batch.x, batch.p
    predicted, kept, weight = batch.predicted[l], batch.pivot_ratio[l], sweep.problem.upper
    if not kept * kept > sweep.problem.eps:
        return
    penalty = 0.0
    for a in range(ridge.shape[1]):
        xa = np.float64(x[l, a] + p[l, a])
        penalty += ridge[l, a] * xa * xa
    after = batch.f[l] - predicted
    loss = after - penalty
    if not (0 <= predicted <= kept * loss and loss >= VISIBLE * after):
        return
    for a in range(ridge.shape[1]):
        x[l, a] += p[l, a]
    batch.f[l] = after
    batch.afresh[l] = False
    # The split by sign is unknown, and not needed.
    stats[i, ABOVE] = 0.5 * loss / weight
    stats[i, BELOW] = 0.5 * loss / weight
    stats[i, ITERATIONS] += 1
    sweep.reports.status[i] = SOLVED
