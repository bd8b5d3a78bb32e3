"""Rows at ω = 0.5: signs do not matter, f is a quadratic, and one pass over them is enough.

So no row of the other factor needs to be kept for a second pass: where there are few unknowns the
first one reads it where it is.
"""

from __future__ import annotations

import numpy as np

from fastemf.kernels.compilation import Unit, helper, unit
from fastemf.kernels.problem import ABOVE, BELOW, ITERATIONS, SOLVED, Problem
from fastemf.kernels.row import CORNERS, fetch_observed, report_row
from fastemf.kernels.vectors import make_direct
from fastemf.kernels.vectors.tiles import Pass, RowArrays

__all__ = ["direct_unit", "is_even", "take_predicted"]

VISIBLE = 1e-3  # share of an objective that its loss must be to be found as a difference

_direct_4, _direct_8, _direct_10, _direct_12 = (make_direct(rows) for rows in (4, 8, 10, 12))


def is_even(problem: Problem) -> bool:
    """Tell whether a sweep solves rows whose residuals weigh the same on both sides."""
    exact = problem.max_newton > 0 and problem.steps == 0
    return exact and problem.upper == problem.lower


def direct_unit(problem: Problem) -> Unit | None:
    """Return the unit that evaluates rows of such a sweep without packing them, if there is one."""
    q = problem.start.shape[1]
    fitting = [rows for rows in DIRECT if q <= rows]
    return DIRECT[fitting[0]] if CORNERS and fitting else None


@helper()
def _evaluate(direct, l, i, sweep, batch):
    """Do what `fastemf.kernels.row.evaluate` does with curvature, but keep nothing packed."""
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
    """Take the full step, which solves the row, without a pass over the observations.

    It brings what it predicts. But the loss that is left must be as accurate as a pass would find
    it: the prediction's rounding, which grows as the share that pivots kept falls, becomes a part
    of it. Where it is not, nothing is done.
    """
    stats, ridge, x, p = sweep.reports.stats, batch.ridge, batch.x, batch.p
    predicted, kept, weight = batch.predicted[l], batch.share[l], sweep.problem.upper
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
    # How much of it is above is not known, nor asked for.
    stats[i, ABOVE] = 0.5 * loss / weight
    stats[i, BELOW] = 0.5 * loss / weight
    stats[i, ITERATIONS] += 1
    sweep.reports.status[i] = SOLVED
