"""Sums over what a model leaves of the observations, by fold of the cells and by bins of levels.

They are whole numbers of a small unit: added up in any order they are the
same, so they depend neither on threads nor on how the rows are cut into blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.hashing import hash_of_cell
from fastemf.kernels.tally import Left, left_out

__all__ = ["Binned", "Judged", "Terms", "judge_table", "sum_bins"]

# The columns of a bin's sums, and of a fold's: with its table, and without.
SLOPE, CURVATURE = range(2)
WITH, WITHOUT = range(2)

UNITS = 2.0**59  # in one: the loss of all observations, at most four, still fits into 64 bits


class Terms(NamedTuple):
    """A model, and how what it leaves becomes whole numbers."""

    left: Left
    bounds: NDArray[np.int64]  # run b is rows bounds[b] … bounds[b + 1] − 1
    folds: int
    low: float  # of the data: a residual may not be that of a prediction beyond
    high: float
    scale: float  # powers of two: residuals times this, and the sum of all weights times that,
    share: float  # are at most one


class Binned(NamedTuple):
    """Bins of the levels of rows and of columns, by fold, and where the sums go."""

    terms: Terms
    own: NDArray[np.uint8]
    about: NDArray[np.uint8]
    steps: NDArray[np.float64]  # by bins, scaled: residuals above and below have their weights
    out: NDArray[np.int64]  # by run, fold, bin of the row, bin of the column


class Judged(NamedTuple):
    """Places of rows and of columns among the centres of a table, by fold, and its values."""

    terms: Terms
    own: NDArray[np.float64]
    about: NDArray[np.float64]
    values: NDArray[np.float64]  # of a table for each fold, scaled
    out: NDArray[np.int64]  # by run and fold


@helper()
def _fold_of(i, j, terms):
    """Return the fold that a cell belongs to."""
    sample = terms.left.sample
    return (hash_of_cell(sample.own[i], sample.marks[j]) * terms.folds) >> 32


@helper()
def _rest(i, e, terms):
    """Compute the scaled residual of an observation that was left out, minus the shift."""
    left = terms.left
    value = np.float64(left.rows.values[e])
    r = min(max(left_out(i, e, left), value - terms.high), value - terms.low)
    return (r - left.shift) * terms.scale


@helper(exact=True)
def _whole(number):
    """Count the units in a number."""
    return np.int64(np.rint(number * UNITS))


@unit()
def sum_bins(first, last, binned):
    """Sum slopes (at zero) and curvatures by bin, for some runs of rows."""
    terms, own, about, out = binned.terms, binned.own, binned.about, binned.out
    steps = binned.steps
    left, bounds, share = terms.left, terms.bounds, terms.share
    indptr, indices, weights = left.rows.indptr, left.rows.indices, left.rows.weights
    for run in range(first, last):
        for i in range(bounds[run], bounds[run + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                fold = _fold_of(i, j, terms)
                t = _rest(i, e, terms)
                p, q = own[i, fold], about[j, fold]
                v = share * np.float64(weights[e]) if weights.size else share
                w = v * (left.upper if t >= steps[p, q] else left.lower)
                out[run, fold, p, q, SLOPE] += _whole(w * t)
                out[run, fold, p, q, CURVATURE] += _whole(w)


@unit()
def judge_table(first, last, judged):
    """Sum the loss of each fold, with and without the fold's table, for some runs of rows."""
    terms, own, about, out = judged.terms, judged.own, judged.about, judged.out
    left, bounds, share, V = terms.left, terms.bounds, terms.share, judged.values
    indptr, indices, weights = left.rows.indptr, left.rows.indices, left.rows.weights
    n_rows, n_cols = V.shape[1], V.shape[2]
    for run in range(first, last):
        for i in range(bounds[run], bounds[run + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                fold = _fold_of(i, j, terms)
                t = _rest(i, e, terms)
                a, c = int(own[i, fold]), int(about[j, fold])
                s, f = own[i, fold] - a, about[j, fold] - c
                b, d = min(a + 1, n_rows - 1), min(c + 1, n_cols - 1)
                near = V[fold, a, c] + f * (V[fold, a, d] - V[fold, a, c])
                far = V[fold, b, c] + f * (V[fold, b, d] - V[fold, b, c])
                v = share * np.float64(weights[e]) if weights.size else share
                w = left.upper if t >= 0 else left.lower
                out[run, fold, WITHOUT] += _whole(v * w * t * t)
                t -= near + s * (far - near)
                w = left.upper if t >= 0 else left.lower
                out[run, fold, WITH] += _whole(v * w * t * t)
