"""The sweep over rows: blocks are solved in parallel, the rows of a block batch by batch.

The method is a safeguarded Newton method (`fastemf.kernels.newton`). With fixed signs f is a
quadratic with Hessian 2H, H = Bᵀ V W B + diag(ridge), and gradient −2g, g = Bᵀ V W r − ridge·x.
The step p solves H p = g and predicts a decrease of g·p. Alternatively, a row takes one direction
from a few conjugate gradient steps (`fastemf.kernels.conjugate`).
"""

from __future__ import annotations

from functools import cache
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import batch as batches
from fastemf.kernels import conjugate as conjugates
from fastemf.kernels import least_squares_rows as least_squares
from fastemf.kernels import leverage as levers
from fastemf.kernels import row as one_row
from fastemf.kernels.compilation import INTERPRETED, Unit, unit
from fastemf.kernels.kernel_args import (
    ArgsType,
    KernelArgs,
    allocate_scratch,
    args_type,
    invoke,
    keep_alive,
    pack,
    unit_table,
)
from fastemf.kernels.precision import solve_in_float64
from fastemf.kernels.problem import (
    CAPPED,
    EMPTY,
    GRADIENT,
    NEEDS_MINIMUM_NORM,
    NOT_FINITE,
    SOLVED,
    UNTOUCHED,
    Code,
    Problem,
    Reports,
    Rows,
    RowSweep,
    plan_batch,
)
from fastemf.kernels.simd import lanes_of
from fastemf.kernels.threads import launch

SMALLEST = 1e-300  # smallest divisor


@unit(allocates=True)
def solve_rows(begin, end, sweep):
    """Solve rows begin … end − 1, batch by batch, in scratch arrays of this block."""
    problem, code, indptr = sweep.problem, sweep.code, sweep.rows.indptr
    status, stats, out = sweep.reports.status, sweep.reports.stats, sweep.reports.out
    lanes, longest = lanes_of(problem.start), 0
    for i in range(begin, end):
        longest = max(longest, indptr[i + 1] - indptr[i])
    owner, batch = allocate_scratch(sweep.plan, longest + lanes)
    ridge, start, n_factors = problem.ridge, problem.start, problem.n_factors
    x, g, penalties, spare = batch.x, batch.g, batch.ridge, batch.spare
    length, at, home, project = batch.length, batch.at, batch.home, batch.project
    active, members, f, pivot_ratio = batch.active, batch.members, batch.f, batch.pivot_ratio
    predicted, afresh = batch.predicted, batch.afresh
    q = penalties.shape[1]
    exact = problem.max_newton > 0 and problem.steps == 0
    curvature = 1 if exact or problem.leverages > 0 else 0
    # Element (b, a) of the triangles is U[begin[b] + a]: row b omits the vectors before b.
    offset = 0
    for b in range(batch.begin.size):
        batch.begin[b] = offset - b // lanes * lanes
        offset += x.shape[1] - b // lanes * lanes
    stop = begin
    while stop < end:
        # Take at most `size` rows, and no more than can be kept packed.
        first, filled = stop, 0
        while stop < end and stop < first + batch.size:
            filled += indptr[stop + 1] - indptr[stop] + lanes
            if stop > first and filled > spare:
                break
            stop += 1

        # Evaluate all rows.
        filled = 0
        unfinished = 0
        for i in range(first, stop):
            l, d = i - first, indptr[i + 1] - indptr[i]
            for a in range(q):
                x[l, a] = start[i, a]
                penalties[l, a] = ridge[i, 0] if a < n_factors else ridge[i, 1]
            if d == 0:
                status[i] = EMPTY
                continue
            whole = -(-d // lanes) * lanes
            length[l], at[l], project[l] = d, filled, True
            # Rows that are read once are better packed in the first-level cache.
            home[l] = filled if filled + whole <= spare and not code.take_predicted else -1
            filled += whole
            if code.evaluate_directly:
                invoke(code.evaluate_directly, l, i, sweep, batch)
            else:
                invoke(code.evaluate, l, i, curvature, 0, sweep, batch)
            # The square may overflow, and so may the reciprocal of a smaller number.
            largest, slope = SMALLEST, 0.0
            for a in range(q):
                largest = max(largest, abs(np.float64(g[l, a])))
            for a in range(q):
                slope += (g[l, a] / largest) ** 2
            stats[i, GRADIENT] = 2 * largest * sqrt(slope)
            status[i] = SOLVED if problem.max_newton == 0 else CAPPED
            if not isfinite(f[l]):
                status[i] = NOT_FINITE
            elif exact:
                active[unfinished] = l
                unfinished += 1
            elif problem.max_newton > 0:
                invoke(code.conjugate, l, i, sweep, batch)
            elif problem.leverages > 0:
                invoke(code.leverages, l, i, sweep, batch)

        # Iterate; the unsolved rows share the lanes.
        for _ in range(problem.max_newton):
            if unfinished == 0:
                break
            for c in range(0, unfinished, lanes):
                for lane in range(lanes):
                    members[lane] = active[min(c + lane, unfinished - 1)]
                invoke(code.directions, sweep, batch)
            before, unfinished = unfinished, 0
            for c in range(before):
                l = active[c]
                i = first + l
                if pivot_ratio[l] == 0 and isfinite(predicted[l]) and not code.minimum_norm:
                    status[i] = NEEDS_MINIMUM_NORM
                    continue
                if pivot_ratio[l] == 0 and project[l] and isfinite(predicted[l]):
                    # This happens once: x stays in the row space, and f changed by rounding only.
                    project[l] = False
                    afresh[l] = True
                else:
                    if code.take_predicted:
                        invoke(code.take_predicted, l, i, sweep, batch)
                    if status[i] == CAPPED:
                        invoke(code.step, l, i, sweep, batch)
                if status[i] == CAPPED:
                    active[unfinished] = l
                    unfinished += 1
                if afresh[l]:
                    invoke(code.evaluate, l, i, 1, 1, sweep, batch)

        for i in range(first, stop):
            for a in range(q):
                out[i, a] = x[i - first, a] if status[i] != EMPTY else 0
    keep_alive(owner)


UNITS = {
    "evaluate": {"evaluate": one_row.evaluate},
    "exact": {
        "evaluate": one_row.evaluate,
        "add_products": one_row.add_products,
        "directions": batches.directions,
        "step": one_row.step,
    },
    "least_squares": {
        "evaluate": one_row.evaluate,
        "add_products": one_row.add_products,
        "directions": batches.directions,
        "take_predicted": least_squares.take_predicted,
        "step": one_row.step,
    },
    "conjugate": {"evaluate": one_row.evaluate, "conjugate": conjugates.conjugate},
    "leverages": {
        "evaluate": one_row.evaluate,
        "add_products": one_row.add_products,
        "leverages": levers.leverages,
    },
}
SINGULAR = {"minimum_norm": batches.minimum_norm}

CODE_TYPE = args_type(Code, (int,) * len(Code._fields))

# Types of sweeps with singular rows, for which `minimum_norm` is compiled.
_with_singular_rows: set[ArgsType | None] = {None} if INTERPRETED else set()


@cache
def _code(
    kind: ArgsType | None, batch: ArgsType, mode: str, singular: bool, direct: Unit | None
) -> KernelArgs:
    """Compile the units of a sweep."""
    units = UNITS[mode] | (SINGULAR if singular else {})
    if direct is not None:
        units = units | {"evaluate_directly": direct}
    return pack(unit_table(Code, units, kind, batch))


def sweep_rows(
    blocks: NDArray[np.int64], rows: Rows, problem: Problem, reports: Reports, n_threads: int
) -> None:
    """Solve the rows of each block; the result of a row depends only on its own data.

    Parameters
    ----------
    blocks
        Row boundaries, increasing; block b is rows blocks[b] … blocks[b+1] − 1.
    rows, problem, reports
        The problem, and where the results are stored.
    n_threads
        Threads; the result does not depend on it.
    """
    plan = plan_batch(rows.indptr, blocks, problem)
    parts: list[KernelArgs] = [pack(part) for part in (rows, problem, reports, plan)]
    kind = None if INTERPRETED else args_type(RowSweep, (*(p.type for p in parts), CODE_TYPE))
    mode = "conjugate" if problem.steps else "exact"
    if least_squares.is_least_squares(problem):
        mode = "least_squares"
    if problem.max_newton == 0:
        mode = "leverages" if problem.leverages else "evaluate"
    singular = kind in _with_singular_rows and rows.values.dtype == np.float64
    direct = least_squares.direct_unit(problem) if mode == "least_squares" else None
    code = _code(kind, plan.like.type, mode, singular, direct)
    reports.status[blocks[0] : blocks[-1]] = UNTOUCHED
    launch(solve_rows, n_threads, blocks, RowSweep._make([*parts, code]))
    found = reports.status[blocks[0] : blocks[-1]]
    needing = blocks[0] + np.flatnonzero(found == NEEDS_MINIMUM_NORM)
    if needing.size and rows.values.dtype == np.float32:
        solve_in_float64(needing, rows, problem, reports, n_threads, sweep_rows)
    elif needing.size:
        # Rare enough to be compiled on demand. All rows are solved again.
        _with_singular_rows.add(kind)
        reports.stats[blocks[0] : blocks[-1]] = 0
        sweep_rows(blocks, rows, problem, reports, n_threads)
    if (found == UNTOUCHED).any():
        raise MemoryError(
            f"not enough memory for the scratch arrays of a block, over {plan.size:,} bytes"
        )
