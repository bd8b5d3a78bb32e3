"""Solve in float64 of rows whose normal equations are numerically singular in float32.

Normal equations square the condition number of a row. In float32 a direction in which the other
factor varies by less than a hundredth of its size, as with data that have a large constant, counts
as zero. Such rows are solved again in float64, from the same starting point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.problem import ABOVE, BELOW, N_STATS, NOT_FINITE, Problem, Reports, Rows
from fastemf.kernels.threads import balance_blocks
from fastemf.kernels.vector_width import pad_columns

OBSERVATIONS = 1 << 20  # copied to float64 at a time, but at least one row
BLOCKS_PER_THREAD = 8


def solve_in_float64(
    which: NDArray[np.int64],
    rows: Rows,
    problem: Problem,
    reports: Reports,
    n_threads: int,
    sweep: Callable[[NDArray[np.int64], Rows, Problem, Reports, int], None],
) -> None:
    """Solve some rows of a sweep in float64 with `sweep`, and round the solutions to float32.

    The reported residual sums are those of the rounded solutions.
    """
    q = problem.start.shape[1]
    # A column of the other factor that consists of float32 rounding errors must count as zero, or
    # solutions explode: pivots, which are squares, are compared with 64 eps.
    problem = problem._replace(
        other=pad_columns(problem.other[:, :q].astype(np.float64)),
        offset=problem.offset.astype(np.float64),
        sample=problem.sample._replace(scales=problem.sample.scales.astype(np.float64)),
        eps=64 * problem.eps**2,
        tiny=float(np.finfo(np.float64).tiny),
    )
    for some in np.split(which, _cuts(np.diff(rows.indptr)[which])):
        few = _take_rows(rows, some)
        start = problem.start[some].astype(np.float64)
        own = problem.sample.own
        sample = problem.sample._replace(own=own[some] if own.size else own)
        given = problem._replace(ridge=problem.ridge[some], start=start, sample=sample)
        found = _solve(few, given, n_threads, sweep)
        rounded = found.out.astype(reports.out.dtype)
        there = given._replace(start=rounded.astype(np.float64), max_newton=0)
        seen = _solve(few, there, n_threads, sweep)
        found.stats[:, [ABOVE, BELOW]] = seen.stats[:, [ABOVE, BELOW]]
        found.status[~np.isfinite(rounded).all(axis=1)] = NOT_FINITE
        reports.out[some], reports.stats[some] = rounded, found.stats
        reports.status[some] = found.status


def _solve(rows: Rows, problem: Problem, n_threads: int, sweep: Callable[..., None]) -> Reports:
    n, q = problem.start.shape
    reports = Reports(np.empty((n, q)), np.zeros((n, N_STATS)), np.zeros(n, np.int8), np.empty(0))
    blocks = balance_blocks(np.diff(rows.indptr) + float(q), BLOCKS_PER_THREAD * n_threads)
    sweep(blocks, rows, problem, reports, n_threads)
    return reports


def _cuts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where to cut the rows into runs of about `OBSERVATIONS`."""
    run = np.cumsum(lengths) // OBSERVATIONS
    return np.flatnonzero(np.diff(run)) + 1


def _take_rows(rows: Rows, some: NDArray[np.int64]) -> Rows:
    """Copy the observations of some rows, in float64."""
    lengths = np.diff(rows.indptr)[some]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(indptr[-1]) + np.repeat(rows.indptr[some] - indptr[:-1], lengths)

    def wide(part: NDArray[Any]) -> NDArray[np.float64]:
        return (part[at] if part.size else part).astype(np.float64)

    return Rows(indptr, rows.indices[at], wide(rows.values), wide(rows.weights))
