"""Rows with an intercept as their only unknown: the compiled expectile of weighted values.

As the intercept grows, residuals become negative one after the other, so the slope of f is convex
or concave. After the first step Newton's method approaches the minimum from one side and needs no
line search. All sums are in float64. The general solve (`fastemf.kernels.sweep`) would pad one
coordinate to a whole vector.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import numpy as np

from fastemf.kernels.compilation import unit
from fastemf.kernels.loss import combine_by_sign, split_weight
from fastemf.kernels.problem import (
    ABOVE,
    BELOW,
    CAPPED,
    EMPTY,
    FLIPS,
    FREEDOM,
    GRADIENT,
    ITERATIONS,
    NOT_FINITE,
    SOLVED,
    WEIGHT,
    Problem,
    Reports,
    Rows,
    is_in_sample,
)

STILL = 4e-16  # relative size of a step that is rounding


class InterceptSweep(NamedTuple):
    """Arguments of a sweep over rows with an intercept only."""

    rows: Rows
    problem: Problem
    reports: Reports


@unit()
def solve_intercepts(begin, end, sweep):
    """Solve or evaluate rows begin … end − 1, or compute their leverages."""
    indptr, indices = sweep.rows.indptr, sweep.rows.indices
    values, weights = sweep.rows.values, sweep.rows.weights
    other, offset, start = sweep.problem.other, sweep.problem.offset, sweep.problem.start
    scales, marks = sweep.problem.sample.scales, sweep.problem.sample.marks
    own_marks, first, span = (
        sweep.problem.sample.own, sweep.problem.sample.first, sweep.problem.sample.span,
    )  # fmt: skip
    ridge, out, stats = sweep.problem.ridge, sweep.reports.out, sweep.reports.stats
    upper, lower, most = sweep.problem.upper, sweep.problem.lower, sweep.problem.max_newton
    status, has_marks = sweep.reports.status, marks.size > 0
    own_mark = np.int64(0)
    for i in range(begin, end):
        if indptr[i] == indptr[i + 1]:
            status[i] = EMPTY
            out[i, 0] = 0
            continue
        if has_marks:
            own_mark = own_marks[i]
        unit_ = np.float64(other[indices[indptr[i]], 0])  # equal for all indices
        intercept, penalty = np.float64(start[i, 0]), ridge[i, 1]
        above, below, curvature, steps, flips = 0.0, 0.0, 0.0, 0.0, 0.0
        step, positive = 0.0, 0.0
        status[i] = CAPPED if most > 0 else SOLVED
        while True:
            fitted = intercept * unit_
            above, below, mass_above, mass_below = 0.0, 0.0, 0.0, 0.0
            slope_above, slope_below, count = 0.0, 0.0, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                v = 1.0
                if weights.size:
                    v = np.float64(weights[e])
                if scales.size:
                    v *= scales[j]
                if has_marks:
                    v *= 1.0 if is_in_sample(own_mark, marks[j], first, span) else 0.0
                r = values[e] - fitted
                if offset.size:
                    r -= offset[j]
                up, down = split_weight(v, r)
                above += up * r * r
                below += down * r * r
                slope_above += up * r
                slope_below += down * r
                mass_above += up
                mass_below += down
                count += 1.0 if up > 0 else 0.0
            slope = combine_by_sign(slope_above, slope_below, upper, lower)
            slope = unit_ * slope - penalty * intercept
            weight = combine_by_sign(mass_above, mass_below, upper, lower)
            curvature = unit_ * unit_ * weight + penalty
            if not isfinite(above + below):
                status[i] = NOT_FINITE
                break
            if steps == 0:
                stats[i, GRADIENT] = 2 * abs(slope)
                if sweep.problem.leverages:
                    from_data = curvature - penalty
                    stats[i, FREEDOM] = from_data / curvature if curvature > 0 else 0.0
                    stats[i, WEIGHT] = weight
            elif upper != lower:
                flips += abs(count - positive)
            if most == 0:
                break
            settled = count == positive or upper == lower
            if steps > 0 and (settled or abs(step) <= STILL * abs(intercept)):
                status[i] = SOLVED
                break
            if steps >= most:
                break
            if not curvature > 0:  # no observation in the sample
                intercept, status[i] = 0.0, SOLVED
                break
            step, positive = slope / curvature, count
            intercept += step
            steps += 1
        stats[i, ABOVE], stats[i, BELOW] = above, below
        if not sweep.problem.leverages:
            stats[i, ITERATIONS], stats[i, FLIPS] = steps, flips
        out[i, 0] = intercept
