"""One row: residuals, gradient and curvature at x, and the step along a direction.

The Gram matrix and the gradient are sums of outer products, k² operations per observation, and are
computed together in register tiles. Weights take two values only, so after the first Gram matrix
only observations whose residual changed sign are corrected.

Throughout, l is the number of the row in the batch and i its number in the matrix.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from fastemf.kernels import newton
from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.kernel_args import invoke
from fastemf.kernels.loss import combine_by_sign, sign_weight
from fastemf.kernels.problem import (
    ABOVE,
    BELOW,
    CAPPED,
    FLIPS,
    ITERATIONS,
    MINIMUM_NORM,
    NOT_FINITE,
    SEARCHES,
    SOLVED,
)
from fastemf.kernels.simd import (
    copy,
    dots,
    fetch,
    fetch_ones,
    gather_dots,
    hint,
    keep_sampled,
    lanes_of,
    make_corner_tile,
    make_tile,
    move,
    multiply_at,
    subtract_at,
    trial,
    update_residuals,
)
from fastemf.kernels.simd.operands import CORNER, Run, Summands
from fastemf.kernels.vector_width import TILE_ROWS, VECTOR_BYTES

HALF = TILE_ROWS // 2
_tile_full_2, _tile_full_1 = make_tile(TILE_ROWS, 2), make_tile(TILE_ROWS, 1)
_tile_half_1, _tile_pair_1 = make_tile(HALF, 1), make_tile(2, 1)
_slope_full_2, _slope_full_1 = make_tile(TILE_ROWS, 2, True), make_tile(TILE_ROWS, 1, True)
_slope_plus_2 = make_tile(TILE_ROWS + 2, 2, True, lines=2)
_slope_plus_1 = make_tile(TILE_ROWS + 2, 1, True)
_slope_4, _slope_1 = make_tile(0, 4, True, lines=0), make_tile(0, 1, True, lines=0)
# Tiles whose first vector contains the diagonal, from its beginning or from its middle on.
_even_2, _even_1 = make_tile(TILE_ROWS, 2, whole=HALF), make_tile(TILE_ROWS, 1, whole=HALF)
_odd_2, _odd_1 = make_tile(TILE_ROWS, 2, whole=0), make_tile(TILE_ROWS, 1, whole=0)
_slope_even_2 = make_tile(TILE_ROWS, 2, True, whole=HALF)
_corner_10, _corner_12 = make_corner_tile(10), make_corner_tile(12)

AHEAD = 256  # values
# Machines with AVX-512 have the 32 registers that corner tiles need.
CORNERS = HALVES = VECTOR_BYTES == 64

_bound_of_f = helper()(newton.bound_of_f)
_is_solved = helper()(newton.is_solved)
_rounding_of = helper()(newton.rounding_of)


# --- residuals, gradient, curvature --------------------------------------------------------


@unit()
def add_products(l, place, at, count, keep, ahead, flips, sweep, batch):
    """Add Σ w y yᵀ to the Gram matrix, from the diagonal on, and Σ w r y to the gradient.

    Elements left of the diagonal are undefined. The sums are over `count` observations from `at`
    on, whose packed rows begin at `place`. Without `keep` the targets are overwritten. With
    `flips`, s contains the changes of the weights and w the residuals. The rows for
    indices[ahead:] are prefetched meanwhile.
    """
    w, r = batch.w, batch.r
    if flips:
        w, r = batch.s, batch.w
    rows, gram, q = batch.rows, batch.gram, batch.ridge.shape[1]
    summands = Summands(rows, w, r, gram, batch.g, sweep.rows.indices, sweep.problem.other)
    run = Run(place, at, count, keep, l * batch.tall, l, ahead)
    lanes, wide = lanes_of(gram), rows.shape[1]
    if CORNERS and CORNER < q <= CORNER + 4:
        if q <= CORNER + 2:
            _corner_10(summands, run)
        else:
            _corner_12(summands, run)
        return
    if not CORNERS and TILE_ROWS < q <= TILE_ROWS + 2 and wide <= 2 * lanes:
        # One tile for all rows: a tile of two rows would wait for its own sums.
        if wide > lanes:
            _slope_plus_2(summands, run, 0, 0, 0)
        else:
            _slope_plus_1(summands, run, 0, 0, 0)
        return
    a = 0
    line = 0  # prefetch one line per tile, so that memory keeps up
    if HALVES and lanes == TILE_ROWS and wide > lanes:
        _slope_even_2(summands, run, 0, 0, 0)
        a = 2 * lanes
        line = lanes
    while a + lanes < wide:
        _slope_full_2(summands, run, 0, a, line)
        a += 2 * lanes
        line += lanes
    if a < wide:
        _slope_full_1(summands, run, 0, a, line)
        line += lanes
    for b in range(TILE_ROWS, q, TILE_ROWS):
        # Full tiles, and at the end the smallest tile that covers the remaining rows.
        a = b // lanes * lanes
        if HALVES and q - b > HALF and (lanes == TILE_ROWS or b % lanes > 0):
            line = min(line, wide - lanes)
            if lanes == TILE_ROWS and a + lanes < wide:
                _even_2(summands, run, b, a, line)
                a += 2 * lanes
            elif lanes == TILE_ROWS:
                _even_1(summands, run, b, a, line)
                a += lanes
            elif a + lanes < wide:
                _odd_2(summands, run, b, a, line)
                a += 2 * lanes
            else:
                _odd_1(summands, run, b, a, line)
                a += lanes
            line += lanes
        while a < wide:
            line = min(line, wide - lanes)
            if q - b <= 2:
                _tile_pair_1(summands, run, b, a, line)
                a += lanes
            elif q - b <= HALF:
                _tile_half_1(summands, run, b, a, line)
                a += lanes
            elif a + lanes < wide:
                _tile_full_2(summands, run, b, a, line)
                a += 2 * lanes
            else:
                _tile_full_1(summands, run, b, a, line)
                a += lanes
            line += lanes


@helper()
def add_slope(l, place, at, count, keep, r, out, sweep, batch):
    """Add Σ w r y to out[l], as `add_products` does for the gradient."""
    rows, w, gram = batch.rows, batch.w, batch.gram
    summands = Summands(rows, w, r, gram, out, sweep.rows.indices, sweep.problem.other)
    run = Run(place, at, count, keep, 0, l, 0)
    lanes, wide = lanes_of(out), rows.shape[1]
    a = 0
    while a + 4 * lanes <= wide:
        _slope_4(summands, run, 0, a, 0)
        a += 4 * lanes
    while a < wide:
        _slope_1(summands, run, 0, a, 0)
        a += lanes


@helper()
def fetch_observed(i, o, count, e, sweep, batch):
    """Copy `count` values minus offsets from e on to r[o:], and their weights to v[o:]."""
    indices, weights, offset = sweep.rows.indices, sweep.rows.weights, sweep.problem.offset
    sample, v, r = sweep.problem.sample, batch.v, batch.r
    scales, marks, own, begin, span = (
        sample.scales, sample.marks, sample.own, sample.first, sample.span
    )  # fmt: skip
    fetch(r, o, count, sweep.rows.values, e)
    if weights.size:
        fetch(v, o, count, weights, e)
    else:
        fetch_ones(v, o, count)
    if offset.size:
        subtract_at(r, o, count, offset, indices, e)
    if scales.size:
        multiply_at(v, o, count, scales, indices, e)
    if marks.size:
        keep_sampled(v, o, count, marks, indices, e, own[i], begin, span)


@helper()
def report_row(l, i, above, below, size, curvature, again, sweep, batch):
    """Add the ridge to g and f, and store the results of `evaluate`."""
    stats, eps, q = sweep.reports.stats, sweep.problem.eps, batch.ridge.shape[1]
    ridge, x, g, gram = batch.ridge, batch.x, batch.g, batch.gram
    upper, lower = g.dtype.type(sweep.problem.upper), g.dtype.type(sweep.problem.lower)
    penalty = 0.0
    for a in range(q):
        g[l, a] -= ridge[l, a] * x[l, a]
        penalty += ridge[l, a] * np.float64(x[l, a]) * x[l, a]
    f = combine_by_sign(above, below, upper, lower) + penalty
    batch.f[l] = f
    stats[i, ABOVE] = above
    stats[i, BELOW] = below
    if again:
        return
    size += f
    if curvature:
        top = l * batch.tall
        for a in range(q):
            size += q * np.float64(gram[top + a, a]) * x[l, a] ** 2
    batch.noise[l] = 256 * eps * eps * size  # residuals are differences of such numbers


@unit()
def evaluate(l, i, curvature, again, sweep, batch):
    """Compute r, half the negative gradient g, and f at x.

    With `curvature` the Gram matrix is computed too; unless `again`, so is the rounding error of
    f. The reports receive Σ v r² over the residuals ≥ 0 and < 0.
    """
    indptr, indices, values = sweep.rows.indptr, sweep.rows.indices, sweep.rows.values
    other, code = sweep.problem.other, sweep.code
    rows, v, r, s, w, x, g = batch.rows, batch.v, batch.r, batch.s, batch.w, batch.x, batch.g
    spare, chunk, home, at = batch.spare, batch.chunk, batch.home[l], batch.at[l]
    upper, lower = r.dtype.type(sweep.problem.upper), r.dtype.type(sweep.problem.lower)
    lanes, first = lanes_of(r), indptr[i]
    d = indptr[i + 1] - first
    above = 0.0
    below = 0.0
    size = 0.0
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        whole = -(-count // lanes) * lanes
        e, o = first + base, at + base
        keep = 1 if base > 0 else 0
        place = home + base if home >= 0 else spare
        for c in range(0, count, lanes):
            gather_dots(rows, place + c, x, l, s, o + c, indices, e + c, e + count, other)
            hint(values, e + c + AHEAD)
        fetch_observed(i, o, count, e, sweep, batch)
        squares = update_residuals(v, r, s, w, o, whole, upper, lower)
        above += squares[0]
        below += squares[1]
        size += squares[2]
        if curvature:
            invoke(code.add_products, l, place, o, count, keep, e + count, 0, sweep, batch)
        else:
            add_slope(l, place, o, count, keep, r, g, sweep, batch)
    report_row(l, i, above, below, size, curvature, again, sweep, batch)


@helper()
def row_times(l, i, p, s, sweep, batch):
    """Fill s with B p."""
    indptr, indices, other = sweep.rows.indptr, sweep.rows.indices, sweep.problem.other
    rows, spare, home, at = batch.rows, batch.spare, batch.home[l], batch.at[l]
    first, last, lanes = indptr[i], indptr[i + 1], lanes_of(s)
    if home >= 0:
        for c in range(0, last - first, lanes):
            dots(rows, home + c, p, l, s, at + c)
    else:
        for c in range(0, last - first, lanes):
            gather_dots(rows, spare, p, l, s, at + c, indices, first + c, last, other)


@helper()
def _correct_flips(l, i, sweep, batch):
    """Subtract s from r, and correct the Gram matrix and the gradient where signs change."""
    indptr, indices, other = sweep.rows.indptr, sweep.rows.indices, sweep.problem.other
    rows, v, r, s, w = batch.rows, batch.v, batch.r, batch.s, batch.w
    spare, chunk, home, at = batch.spare, batch.chunk, batch.home[l], batch.at[l]
    upper, lower = r.dtype.type(sweep.problem.upper), r.dtype.type(sweep.problem.lower)
    first, last, lanes = indptr[i], indptr[i + 1], lanes_of(r)
    d = last - first
    found = 0
    for o in range(at, at + d, lanes):
        changed = move(v, r, s, o, upper, lower)
        lane = 0
        while changed:
            if changed & 1:
                # Copied to the front, which is no longer needed; w is rebuilt before its next use.
                s[at + found] = s[o + lane]
                w[at + found] = r[o + lane]
                if home >= 0:
                    copy(rows, spare + found, rows, o + lane)
                else:
                    copy(rows, spare + found, other, indices[first + o + lane - at])
                found += 1
            changed >>= 1
            lane += 1
        if found > 0 and (found + lanes > chunk or o + lanes >= at + d):
            invoke(sweep.code.add_products, l, spare, at, found, 1, last, 1, sweep, batch)
            found = 0


# --- how far along a direction -------------------------------------------------------------


@helper()
def row_trial(l, i, s, step, sweep, batch):
    """Compute f, Σ v r² over residuals ≥ 0 and < 0, and the number of sign changes."""
    indptr, ridge, x, p = sweep.rows.indptr, batch.ridge, batch.x, batch.p
    upper, lower = sweep.problem.upper, sweep.problem.lower
    d, lanes = indptr[i + 1] - indptr[i], lanes_of(s)
    whole = -(-d // lanes) * lanes
    above, below, flips = trial(batch.v, batch.r, s, batch.at[l], whole, step)
    penalty = 0.0
    for a in range(ridge.shape[1]):
        xa = np.float64(x[l, a] + step * p[l, a])
        penalty += ridge[l, a] * xa * xa
    f = combine_by_sign(above, below, upper, lower) + penalty
    return f, above, below, flips if upper != lower else 0.0


@helper()
def row_line_search(l, i, s, sweep, batch):
    """Find the exact minimum along p: the root of the derivative, which is piecewise linear.

    Newton's method in one unknown, within a bracket, reaches the root once it is on the linear
    piece that contains the root. The breakpoints need not be sorted.
    """
    indptr, v, r, at = sweep.rows.indptr, batch.v, batch.r, batch.at[l]
    ridge, x, p = batch.ridge, batch.x, batch.p
    upper, lower = r.dtype.type(sweep.problem.upper), r.dtype.type(sweep.problem.lower)
    eps, d = sweep.problem.eps, indptr[i + 1] - indptr[i]
    left, right, step = 0.0, np.inf, 1.0
    for _ in range(100):
        slope = 0.0
        curvature = 0.0
        for o in range(at, at + d):
            so = np.float64(s[o])
            t = r[o] - step * so
            wso = v[o] * sign_weight(t, upper, lower) * so
            slope -= wso * t
            curvature += wso * so
        for a in range(ridge.shape[1]):
            pa = np.float64(p[l, a])
            slope += ridge[l, a] * (x[l, a] + step * pa) * pa
            curvature += ridge[l, a] * pa * pa
        if slope > 0:
            right = step
        else:
            left = step
        if not curvature > 0:
            break
        following = step - slope / curvature
        if not left < following < right:
            following = 0.5 * (left + right) if isfinite(right) else 2.0 * step
        if abs(following - step) <= 4 * eps * step:
            break
        step = following
    return step


@helper()
def accept_step(l, i, step, trial, sweep, batch):
    """Move x along p, and store the result of `row_trial`."""
    stats, x, p = sweep.reports.stats, batch.x, batch.p
    for a in range(batch.ridge.shape[1]):
        x[l, a] += step * p[l, a]
    batch.f[l], stats[i, ABOVE], stats[i, BELOW] = trial[0], trial[1], trial[2]
    stats[i, FLIPS] += trial[3]


@unit()
def step(l, i, sweep, batch):
    """Move x along p; set the status, and whether the row must be evaluated again."""
    status, stats, f = sweep.reports.status, sweep.reports.stats, batch.f
    r, s, g, p = batch.r, batch.s, batch.g, batch.p
    predicted, kept, noise = batch.predicted[l], batch.pivot_ratio[l], batch.noise[l]
    batch.afresh[l] = False
    if not isfinite(predicted):
        status[i] = NOT_FINITE
        return
    eps = sweep.problem.eps
    d = sweep.rows.indptr[i + 1] - sweep.rows.indptr[i]
    rounding = _rounding_of(f[l], noise, eps)
    row_times(l, i, p, s, sweep, batch)
    along = r.dtype.type(1)
    outcome = row_trial(l, i, s, along, sweep, batch)
    if not outcome[0] <= _bound_of_f(f[l], predicted, rounding, True):  # also if it overflowed
        stats[i, SEARCHES] += 1
        along = r.dtype.type(row_line_search(l, i, s, sweep, batch))
        outcome = row_trial(l, i, s, along, sweep, batch)
    stats[i, ITERATIONS] += 1
    status[i] = SOLVED if kept > 0 else MINIMUM_NORM
    if not outcome[0] <= _bound_of_f(f[l], predicted, rounding, False):  # x is optimal to rounding
        return
    accept_step(l, i, along, outcome, sweep, batch)
    flips, accurate = outcome[3], kept * kept > eps
    if _is_solved(predicted, rounding, noise, flips, along, accurate):
        return
    status[i] = CAPPED
    if sweep.problem.max_newton == 1:  # g is not needed any more
        return
    if along != 1 or 2 * flips > d or not accurate:  # many flips: a fresh Gram matrix is cheaper
        batch.afresh[l] = True
        return
    # After a full step the gradient of the quadratic is zero: only observations whose weight
    # changed contribute.
    for a in range(g.shape[1]):
        g[l, a] = 0
    _correct_flips(l, i, sweep, batch)
