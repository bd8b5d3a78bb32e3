"""Kernel arguments of a sweep over rows: the problem, the reports and the scratch arrays.

For each row of one factor, given the other one, a sweep minimizes over x

    f(x) = Σ v_j w(r_j) r_j² + Σ_a ridge_a x_a²,     r_j = b_j − offset_j − y_j·x,

with w = ω where r_j ≥ 0 and 1 − ω where r_j < 0. The weight v_j of an observation may be
multiplied by a scale of its index, and is 0 for cells outside the sample. For columns the caller
swaps the arguments.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper
from fastemf.kernels.kernel_args import LONG, ScratchPlan, plan_scratch
from fastemf.kernels.vector_width import PANEL, TILE_ROWS, VECTOR_BYTES

CHUNK_BYTES = 1 << 15  # packed rows that the tiles read repeatedly: two thirds of L1
RESIDENT_BYTES = 1 << 19  # packed observations of a batch, kept between Newton iterations
BATCH_BYTES = 1 << 18  # Gram matrices of a batch
MAX_NEWTON = 60  # the worst cases of an adversarial search need a dozen

# The columns of `stats`. ABOVE and BELOW are Σ v r² over residuals ≥ 0 and < 0; in solves at
# ω = 0.5 only their sum is meaningful.
ABOVE, BELOW, GRADIENT, ITERATIONS, FLIPS, SEARCHES = range(6)
N_STATS = 6
FREEDOM, WEIGHT = ITERATIONS, FLIPS  # where leverages are computed and x does not move

# The status of a row. An exception would make the parallel loop serial, so errors are codes. A row
# is UNTOUCHED if memory ran out, and NEEDS_MINIMUM_NORM if that unit is not compiled yet.
SOLVED, EMPTY, MINIMUM_NORM, CAPPED, NOT_FINITE, UNTOUCHED, NEEDS_MINIMUM_NORM = range(7)


class Rows(NamedTuple):
    """Observations by row, in CSR format."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]  # empty if all are one


class Sample(NamedTuple):
    """The cells that count, and scales of their weights.

    A cell belongs to the sample if its 32-bit hash is one of the `span` numbers from `first` on,
    modulo 2³². The hash is a symmetric function of the marks of row and column, so mirrored cells
    of rows and columns with common marks belong to the same sample.
    """

    scales: NDArray[Any]  # factor of the weights for each index, or empty
    marks: NDArray[np.int64]  # 32 random bits for each index; empty if all cells count
    own: NDArray[np.int64]  # marks of the rows
    first: int
    span: int


LOW = 0xFFFFFFFF
MULTIPLIER = 0x45D9F3B  # 27 bits: its product with 32 bits fits into int64


@helper(exact=True)
def hash_of_cell(own, mark):
    """Hash the marks of a row and a column to 32 bits; symmetric in the two."""
    z = (own + mark) & LOW
    z = ((z ^ (z >> 16)) * MULTIPLIER) & LOW
    z = ((z ^ (z >> 16)) * MULTIPLIER) & LOW
    return z ^ (z >> 16)


@helper(exact=True)
def is_in_sample(own, mark, first, span):
    """Return whether a cell belongs to a `Sample`."""
    return ((hash_of_cell(own, mark) - first) & LOW) < span


class Problem(NamedTuple):
    """The regression problem that the rows share."""

    other: NDArray[Any]  # the other factor, one row per index, padded to whole vectors
    offset: NDArray[Any]  # subtracted from the values, one per index, or empty
    sample: Sample
    ridge: NDArray[np.float64]  # (rows, 2): on the first `n_factors` coordinates, on the rest
    n_factors: int
    upper: float  # ω and 1 − ω, representable in the data's dtype
    lower: float
    eps: float  # machine epsilon and smallest normal number of the dtype
    tiny: float
    max_newton: int  # 0 evaluates at `start` only
    steps: int  # 0 minimizes exactly; else one direction by so many conjugate gradient steps
    leverages: int  # 1 computes leverages at `start`
    start: NDArray[Any]  # starting points of the rows


class Reports(NamedTuple):
    """Results by row."""

    out: NDArray[Any]  # solutions
    stats: NDArray[np.float64]  # initially zero; see the columns above
    status: NDArray[np.int8]
    leverages: NDArray[np.float64]  # of the observations, or empty


class Code(NamedTuple):
    """Addresses of the units of a sweep; see `fastemf.kernels.kernel_args.unit_table`."""

    add_products: Any
    evaluate: Any
    evaluate_directly: Any  # without packing; 0 if the sweep packs rows
    directions: Any
    minimum_norm: Any
    take_predicted: Any
    step: Any
    conjugate: Any
    leverages: Any


class RowSweep(NamedTuple):
    """Arguments of a sweep over blocks of rows."""

    rows: Rows
    problem: Problem
    reports: Reports
    plan: ScratchPlan  # layout of a `Batch`
    code: Code


class Batch(NamedTuple):
    """Scratch arrays of a block: a batch of rows whose unsolved members share the lanes.

    Row l of the batch stores its observations from at[l] on in v, r, s, w and change, padded to
    whole vectors with v = 0. These are the weights, the residuals, B p (later the changes of w), v
    times the sign weight of r, and the change of r along a direction. The rows of `other` are
    packed in `rows` from home[l] = at[l] on. If a row is too long to be kept, home[l] < 0 and one
    chunk at a time is packed from `spare` on. The Gram matrix begins at row l · tall of `gram`.
    """

    size: int  # rows of a batch
    tall: int  # rows of a Gram matrix, in whole tiles
    spare: int  # row of `rows` where chunks begin
    chunk: int  # observations packed at a time
    rows: Any
    v: Any
    r: Any
    s: Any
    w: Any
    change: Any
    gram: Any
    ridge: Any  # by coordinate
    x: Any  # current point, half the negative gradient, direction
    g: Any
    p: Any
    toward: Any  # conjugate gradients: the search direction, and H times it
    product: Any
    f: Any  # objective, its rounding error, predicted decrease, smallest relative pivot of H
    noise: Any
    predicted: Any
    pivot_ratio: Any
    length: Any  # observations
    at: Any
    home: Any
    project: Any  # whether a singular H requires a projection of x onto the row space
    afresh: Any  # whether to evaluate the row again
    active: Any  # unsolved rows
    members: Any  # row of the batch in each lane
    begin: Any  # element (b, a) of the triangles is U[begin[b] + a]
    U: Any
    z: Any
    diagonal: Any
    inverse: Any
    floor: Any
    kept: Any
    largest: Any
    L: Any  # factors of one singular row
    M: Any
    picked: Any
    triangle: Any  # float64 Cholesky factor for the leverages of one row


def plan_batch(
    indptr: NDArray[np.int64], blocks: NDArray[np.int64], problem: Problem
) -> ScratchPlan:
    """ScratchPlan the scratch of the blocks of one launch."""
    dtype, (_, wide) = problem.other.dtype, problem.other.shape
    lanes = VECTOR_BYTES // dtype.itemsize
    filled = int(np.max(np.diff(indptr[blocks]) + lanes * np.diff(blocks)))
    spare = min(filled, max(lanes, RESIDENT_BYTES // (wide * dtype.itemsize)))
    exact = problem.max_newton > 0 and problem.steps == 0
    q, leverages = problem.start.shape[1], problem.leverages > 0
    return _plan(dtype, q, wide, spare, exact, problem.steps > 0, leverages)


@lru_cache(maxsize=64)
def _plan(
    dtype: np.dtype[Any],
    q: int,
    wide: int,
    spare: int,
    exact: bool,
    conjugate: bool,
    leverages: bool,
) -> ScratchPlan:
    item = dtype.itemsize
    lanes = VECTOR_BYTES // item
    chunk = max(lanes, CHUNK_BYTES // (wide * item) // lanes * lanes)
    tall, n = -(-q // TILE_ROWS) * TILE_ROWS, -(-q // PANEL) * PANEL
    # Several rows per lane: rows that need more iterations share the lanes.
    size = lanes * max(1, min(4, BATCH_BYTES // (lanes * tall * wide * item)))
    # Row b of the triangles omits the whole vectors before its diagonal.
    triangle = int(sum(wide - b // lanes * lanes for b in range(n)))
    observed = (dtype, LONG)  # the longest row of a block, or all packed rows
    vector = (dtype, (size, wide))
    once, whole, index, flag = (
        (np.float64, (size,)), (np.int64, (size,)), (np.int64, (lanes,)), (np.bool_, (size,))
    )  # fmt: skip
    none = (dtype, (1, wide))
    return plan_scratch(
        Batch,
        least=spare + lanes,
        size=size, tall=tall, spare=spare, chunk=chunk,
        rows=(dtype, (spare + chunk, wide)),
        v=observed, r=observed, s=observed, w=observed,
        change=observed if conjugate else (dtype, (1,)),
        gram=(dtype, (size * tall if exact or leverages else 1, wide)),
        ridge=(dtype, (size, q)),
        x=vector, g=vector, p=vector,
        toward=vector if conjugate else none, product=vector if conjugate else none,
        f=once, noise=once, predicted=once, pivot_ratio=once,
        length=whole, at=whole, home=whole, project=flag, afresh=flag, active=whole,
        members=index, begin=(np.int64, (n,)),
        U=(dtype, (triangle if exact else 1, lanes)), z=(dtype, (wide, lanes)),
        diagonal=(dtype, (n, lanes)), inverse=(dtype, (n, lanes)),
        floor=(dtype, (1, lanes)), kept=(dtype, (1, lanes)), largest=(dtype, (lanes,)),
        L=(dtype, (q if exact else 1, q)), M=(dtype, (q + 2 if exact else 1, q)),
        picked=(np.bool_, (q,)),
        triangle=(np.float64, (q if leverages else 1, q)),
    )  # fmt: skip
