"""Frames for a sweep over rows: what it is given, what it reports, and its scratch.

For each row of one factor, given the other one, a sweep minimises over x

    f(x) = Σ v_j w(r_j) r_j² + Σ_a ridge_a x_a²,     r_j = b_j − offset_j − y_j·x,

with w = ω where r_j ≥ 0 and 1 − ω where r_j < 0. An observation's v_j may be multiplied by a
scale of its index, and is 0 for cells outside the sample. There is no version for columns: the
caller swaps the arguments.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.frames import LONG, Plan, plan_for
from fastemf.kernels.width import PANEL, TILE_ROWS, VECTOR_BYTES

__all__ = [
    "Batch",
    "Code",
    "Problem",
    "Reports",
    "RowSweep",
    "Rows",
    "Sample",
    "batch_plan",
]

CHUNK_BYTES = 1 << 15  # packed rows that the tiles go over again and again: two thirds of L1
RESIDENT_BYTES = 1 << 19  # a batch's packed observations are kept between its Newton iterations
BATCH_BYTES = 1 << 18  # and its Gram matrices
MAX_NEWTON = 60  # the worst cases that a search found need a dozen

# The columns of `stats`, which a row's solve reports. Σ v r² over residuals ≥ 0 and < 0 comes
# first; in solves at ω = 0.5, where both weigh the same, only the sum of the two means anything.
ABOVE, BELOW, GRADIENT, ITERATIONS, FLIPS, SEARCHES = range(6)
N_STATS = 6
FREEDOM, WEIGHT = ITERATIONS, FLIPS  # of rows whose leverages are measured, which do not move

# Status of a row. Errors are data here: raising would make the parallel loop serial. A row is
# UNTOUCHED where memory ran out, and NEEDS_MINIMUM_NORM where that code is not compiled yet.
SOLVED, EMPTY, MINIMUM_NORM, CAPPED, NOT_FINITE, UNTOUCHED, NEEDS_MINIMUM_NORM = range(7)


class Rows(NamedTuple):
    """The observations by row."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]  # empty where all are one


class Sample(NamedTuple):
    """Which cells count, and how much.

    A cell belongs to the sample if its hash, of 32 bits, is one of the `span` numbers from
    `first` on, which follow each other in a circle. The hash is a symmetric function of two
    marks, so that mirrored cells of rows and columns with common marks are in one sample.
    """

    scales: NDArray[Any]  # of each index, which multiply the weights, or empty
    marks: NDArray[np.int64]  # of each index, 32 bits each, or empty where all cells count
    own: NDArray[np.int64]  # of each row
    first: int
    span: int


class Problem(NamedTuple):
    """What the rows are regressed on, and how."""

    other: NDArray[Any]  # the other factor, a row per index, padded to whole vectors
    offset: NDArray[Any]  # what is subtracted from the values, one per index, or empty
    sample: Sample
    ridge: NDArray[np.float64]  # by row: on the first `n_factors` coordinates, and on the rest
    n_factors: int
    upper: float  # ω and 1 − ω, representable in the data's dtype
    lower: float
    eps: float  # the dtype's rounding unit and smallest normal number
    tiny: float
    max_newton: int  # 0 evaluates at `start` and moves nothing
    steps: int  # 0 minimises exactly; else one direction, by that many conjugate gradient steps
    leverages: int  # 1 measures, where nothing moves, how much of each row its own data decide
    start: NDArray[Any]  # where rows start from


class Reports(NamedTuple):
    """What is found, by row."""

    out: NDArray[Any]  # solutions
    stats: NDArray[np.float64]  # zeros at first; see the columns above
    status: NDArray[np.int8]
    leverages: NDArray[np.float64]  # of each observation, or empty


class Code(NamedTuple):
    """Units that work on a row or a batch; see `fastemf.kernels.frames.code_of`."""

    add_products: Any
    evaluate: Any
    evaluate_directly: Any  # likewise, 0 for a sweep that packs what it evaluates
    directions: Any
    minimum_norm: Any
    take_predicted: Any
    step: Any
    conjugate: Any
    leverages: Any


class RowSweep(NamedTuple):
    """All that is needed to solve a block of rows."""

    rows: Rows
    problem: Problem
    reports: Reports
    plan: Plan  # of a `Batch`
    code: Code


class Batch(NamedTuple):
    """Scratch of a block: a batch of rows, of which those not solved yet share the lanes.

    Row l of the batch has its observations from at[l] on in v, r, s, w and change, padded to
    whole vectors with v = 0: weights, residuals, B p (later the changes of w), v times the
    weight of r's sign, and what a direction does to r. The rows of `other` are packed in
    `rows`, from home[l] = at[l] on, or, where the row is too long to be kept (home[l] < 0), one
    chunk at a time from `spare` on. Its Gram matrix begins at row l · tall of `gram`.
    """

    size: int  # rows of a batch
    tall: int  # rows of a Gram matrix, to whole tiles
    spare: int  # where the chunk begins in `rows`
    chunk: int  # observations that are packed at once
    rows: Any
    v: Any
    r: Any
    s: Any
    w: Any
    change: Any
    gram: Any
    ridge: Any  # by coordinate
    x: Any  # where the row is, half the negative gradient there, and the direction
    g: Any
    p: Any
    toward: Any  # conjugate gradients: the next direction, and H times it
    product: Any
    f: Any  # objective, its rounding, the decrease that p predicts, how far H is from singular
    noise: Any
    predicted: Any
    share: Any
    length: Any  # observations
    at: Any
    home: Any
    project: Any  # whether x is still to be projected onto the row space, should H be singular
    afresh: Any  # whether to evaluate anew
    active: Any  # rows not solved yet
    members: Any  # row of the batch in each lane
    begin: Any  # element (b, a) of the triangles is U[begin[b] + a]
    U: Any
    z: Any
    diagonal: Any
    inverse: Any
    floor: Any
    kept: Any
    largest: Any
    L: Any  # of one singular row
    M: Any
    picked: Any
    triangle: Any  # of one row's leverages, in float64


def batch_plan(indptr: NDArray[np.int64], blocks: NDArray[np.int64], problem: Problem) -> Plan:
    """Plan the scratch of the blocks of one launch."""
    dtype, (_, wide) = problem.other.dtype, problem.other.shape
    lanes = VECTOR_BYTES // dtype.itemsize
    filled = int(np.max(np.diff(indptr[blocks]) + lanes * np.diff(blocks)))
    spare = min(filled, max(lanes, RESIDENT_BYTES // (wide * dtype.itemsize)))
    exact = problem.max_newton > 0 and problem.steps == 0
    q, levers = problem.start.shape[1], problem.leverages > 0
    return _plan(dtype, q, wide, spare, exact, problem.steps > 0, levers)


@lru_cache(maxsize=64)  # a fit asks for few, again and again
def _plan(
    dtype: np.dtype[Any],
    q: int,
    wide: int,
    spare: int,
    exact: bool,
    conjugate: bool,
    levers: bool,
) -> Plan:
    item = dtype.itemsize
    lanes = VECTOR_BYTES // item
    chunk = max(lanes, CHUNK_BYTES // (wide * item) // lanes * lanes)
    tall, n = -(-q // TILE_ROWS) * TILE_ROWS, -(-q // PANEL) * PANEL
    # There are several rows per lane, so that those that need more iterations share the lanes.
    size = lanes * max(1, min(4, BATCH_BYTES // (lanes * tall * wide * item)))
    # Row b of the triangles lacks the whole vectors before its diagonal.
    triangle = int(sum(wide - b // lanes * lanes for b in range(n)))
    observed = (dtype, LONG)  # as the longest row of a block, and what is kept packed
    vector = (dtype, (size, wide))
    once, whole, index, flag = (
        (np.float64, (size,)), (np.int64, (size,)), (np.int64, (lanes,)), (np.bool_, (size,))
    )  # fmt: skip
    none = (dtype, (1, wide))
    return plan_for(
        Batch,
        least=spare + lanes,
        size=size, tall=tall, spare=spare, chunk=chunk,
        rows=(dtype, (spare + chunk, wide)),
        v=observed, r=observed, s=observed, w=observed,
        change=observed if conjugate else (dtype, (1,)),
        gram=(dtype, (size * tall if exact or levers else 1, wide)),
        ridge=(dtype, (size, q)),
        x=vector, g=vector, p=vector,
        toward=vector if conjugate else none, product=vector if conjugate else none,
        f=once, noise=once, predicted=once, share=once,
        length=whole, at=whole, home=whole, project=flag, afresh=flag, active=whole,
        members=index, begin=(np.int64, (n,)),
        U=(dtype, (triangle if exact else 1, lanes)), z=(dtype, (wide, lanes)),
        diagonal=(dtype, (n, lanes)), inverse=(dtype, (n, lanes)),
        floor=(dtype, (1, lanes)), kept=(dtype, (1, lanes)), largest=(dtype, (lanes,)),
        L=(dtype, (q if exact else 1, q)), M=(dtype, (q + 2 if exact else 1, q)),
        picked=(np.bool_, (q,)),
        triangle=(np.float64, (q if levers else 1, q)),
    )  # fmt: skip
