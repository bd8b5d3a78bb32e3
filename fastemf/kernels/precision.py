"""The solve in float64 of those rows whose normal equations float32 cannot tell from singular.

Normal equations square the condition of a row. In float32 a direction that the other factor has at
less than a hundredth of its size, as that of data with a large constant, counts as none; so such
rows are solved again, from where they began, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.problem import ABOVE, BELOW, N_STATS, NOT_FINITE, Problem, Reports, Rows
from fastemf.kernels.threads import balanced
from fastemf.kernels.width import padded

__all__ = ["solve_in_float64"]

OBSERVATIONS = 1 << 20  # that are held in float64 at once, or one row's
BLOCKS_PER_THREAD = 8


def solve_in_float64(
    which: NDArray[np.int64],
    rows: Rows,
    problem: Problem,
    reports: Reports,
    n_threads: int,
    sweep: Callable[[NDArray[np.int64], Rows, Problem, Reports, int], None],
) -> None:
    """Solve some rows of a sweep in float64, by `sweep`, and round their solutions to float32.

    What is reported of their residuals is that of the rounded solutions.
    """
    q = problem.start.shape[1]
    # A column of the other factor that is nothing but its rounding to float32 must count as none,
    # or solutions explode: pivots are compared with 64 eps, and these are squares.
    problem = problem._replace(
        other=padded(problem.other[:, :q].astype(np.float64)),
        offset=problem.offset.astype(np.float64),
        sample=problem.sample._replace(scales=problem.sample.scales.astype(np.float64)),
        eps=64 * problem.eps**2,
        tiny=float(np.finfo(np.float64).tiny),
    )
    for some in np.split(which, _cuts(np.diff(rows.indptr)[which])):
        few = _taken(rows, some)
        start = problem.start[some].astype(np.float64)
        own = problem.sample.own
        sample = problem.sample._replace(own=own[some] if own.size else own)
        given = problem._replace(ridge=problem.ridge[some], start=start, sample=sample)
        found = _solved(few, given, n_threads, sweep)
        rounded = found.out.astype(reports.out.dtype)
        there = given._replace(start=rounded.astype(np.float64), max_newton=0)
        seen = _solved(few, there, n_threads, sweep)
        found.stats[:, [ABOVE, BELOW]] = seen.stats[:, [ABOVE, BELOW]]
        found.status[~np.isfinite(rounded).all(axis=1)] = NOT_FINITE
        reports.out[some], reports.stats[some] = rounded, found.stats
        reports.status[some] = found.status


def _solved(rows: Rows, problem: Problem, n_threads: int, sweep: Callable[..., None]) -> Reports:
    n, q = problem.start.shape
    reports = Reports(np.empty((n, q)), np.zeros((n, N_STATS)), np.zeros(n, np.int8), np.empty(0))
    blocks = balanced(np.diff(rows.indptr) + float(q), BLOCKS_PER_THREAD * n_threads)
    sweep(blocks, rows, problem, reports, n_threads)
    return reports


def _cuts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut rows into runs of about as many observations as are held at once."""
    held = np.cumsum(lengths) // OBSERVATIONS
    return np.flatnonzero(np.diff(held)) + 1


def _taken(rows: Rows, some: NDArray[np.int64]) -> Rows:
    """Copy the observations of some rows, in float64."""
    lengths = np.diff(rows.indptr)[some]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(indptr[-1]) + np.repeat(rows.indptr[some] - indptr[:-1], lengths)

    def wide(part: NDArray[Any]) -> NDArray[np.float64]:
        return (part[at] if part.size else part).astype(np.float64)

    return Rows(indptr, rows.indices[at], wide(rows.values), wide(rows.weights))
