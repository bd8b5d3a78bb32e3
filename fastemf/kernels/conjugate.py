"""One row by conjugate gradients: k instead of k² operations per observation, no Gram matrix."""

from __future__ import annotations

from math import frexp, isfinite, ldexp

import numpy as np

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.problem import ITERATIONS, NOT_FINITE, SEARCHES, SOLVED
from fastemf.kernels.row import accept_step, add_slope, row_line_search, row_trial
from fastemf.kernels.simd import dots, gather_dots, lanes_of


@helper()
def _curve(l, i, sweep, batch):
    """Fill s with B p and `product` with H p for p = `toward`, chunk by chunk within the cache."""
    indptr, indices, other = sweep.rows.indptr, sweep.rows.indices, sweep.problem.other
    rows, s, ridge, p, out = batch.rows, batch.s, batch.ridge, batch.toward, batch.product
    spare, chunk, home, at = batch.spare, batch.chunk, batch.home[l], batch.at[l]
    first, lanes = indptr[i], lanes_of(s)
    d = indptr[i + 1] - first
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        e, o = first + base, at + base
        keep = 1 if base > 0 else 0
        place = home + base if home >= 0 else spare
        for c in range(0, count, lanes):
            if home >= 0:
                dots(rows, place + c, p, l, s, o + c)
            else:
                gather_dots(rows, place + c, p, l, s, o + c, indices, e + c, e + count, other)
        add_slope(l, place, o, count, keep, s, out, sweep, batch)
    for a in range(ridge.shape[1]):
        out[l, a] += ridge[l, a] * p[l, a]


@unit()
def conjugate(l, i, sweep, batch):
    """Move x along p, computed by a few conjugate gradient steps for H p = g with fixed signs.

    The change of the residuals is accumulated meanwhile. As after a Newton direction, the full
    step is taken if it decreases f enough, else the exact minimum along p. So f never increases.
    """
    status, stats, f = sweep.reports.status, sweep.reports.stats, batch.f
    r, s, change, ridge = batch.r, batch.s, batch.change, batch.ridge
    g, p, toward, product = batch.g, batch.p, batch.toward, batch.product
    eps, at, q = sweep.problem.eps, batch.at[l], ridge.shape[1]
    d, lanes = sweep.rows.indptr[i + 1] - sweep.rows.indptr[i], lanes_of(r)
    whole = -(-d // lanes) * lanes
    largest = r.dtype.type(0)
    for a in range(q):
        largest = max(largest, abs(g[l, a]))
    status[i] = NOT_FINITE
    if not isfinite(largest):
        return
    if largest == 0:
        status[i] = SOLVED
        return
    # Scaled by the gradient, because applying H twice could overflow. The square of the scale
    # could overflow too: the compiler may form it from factors, but not from exponents.
    exponent = frexp(largest)[1]
    unit_of_g = r.dtype.type(ldexp(1.0, exponent))
    square = 0.0
    for a in range(p.shape[1]):
        p[l, a] = 0
        g[l, a] /= unit_of_g
        toward[l, a] = g[l, a]
        square += np.float64(g[l, a]) * g[l, a]
    for o in range(at, at + whole):
        change[o] = 0
    start = square
    predicted = 0.0
    for _ in range(sweep.problem.steps):
        if not square > eps * eps * start:
            break
        _curve(l, i, sweep, batch)
        curvature = 0.0
        for a in range(q):
            curvature += np.float64(toward[l, a]) * product[l, a]
        if not isfinite(curvature):
            return
        if curvature <= 0:
            break
        step = r.dtype.type(square / curvature)
        predicted += 0.5 * square * step
        following = 0.0
        for a in range(q):
            p[l, a] += step * toward[l, a]
            g[l, a] -= step * product[l, a]
            following += np.float64(g[l, a]) * g[l, a]
        for o in range(at, at + whole):
            change[o] += step * s[o]
        ratio = r.dtype.type(following / square)
        square = following
        for a in range(q):
            toward[l, a] = g[l, a] + ratio * toward[l, a]
    for a in range(q):
        p[l, a] *= unit_of_g
    for o in range(at, at + whole):
        change[o] *= unit_of_g
    predicted = ldexp(predicted, 2 * exponent)
    if not isfinite(predicted):
        return
    step = r.dtype.type(1)
    outcome = row_trial(l, i, change, step, sweep, batch)
    if outcome[0] > f[l] - 0.5 * predicted:
        stats[i, SEARCHES] += 1
        step = r.dtype.type(row_line_search(l, i, change, sweep, batch))
        outcome = row_trial(l, i, change, step, sweep, batch)
    stats[i, ITERATIONS] += 1
    if outcome[0] <= f[l]:
        accept_step(l, i, step, outcome, sweep, batch)
    status[i] = SOLVED
