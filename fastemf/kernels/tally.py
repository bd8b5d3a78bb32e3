"""Sums over what a model leaves of the observations, row by row, in float64.

A residual is taken as if the observation had not been fitted: r̃ = r / ((1 − h_row)(1 − h_col)).
The leverages are the rows' and columns' means per unit of weight, times the weight that the
observation had in the fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.hashing import hash_of_cell, is_in_sample
from fastemf.kernels.problem import Rows, Sample
from fastemf.kernels.vectors import keep_sampled, lanes_of, long_dots

__all__ = ["Left", "SlopesOut", "Sums", "fill_slopes", "fitted", "tally_rows"]

# The columns of a row's sums, over its observations in the sample. t is r̃ minus the shift, w its
# weight by sign, and G = (w(r̃) r̃)² the square of the slope of the loss.
# WEIGHT sums the other side's weights in the fit; SQUARED_LOSS is in a unit of the data's size, of
# which the fourth power neither overflows nor vanishes.
MASS, WEIGHT, SLOPE, CURVATURE, LOSS, NOISE, ABOVE, BELOW, SQUARED_LOSS = range(9)
N_SUMS = 9

# The columns of what is known of a row, and of an index: what the model adds to the product, the
# weight in the fit, the leverage per unit of weight, and the variance of the noise.
OFFSET, SCALE, LEVERAGE, VARIANCE = range(4)
N_KNOWN = 4

STRETCH = 256  # observations; a multiple of the lanes of a vector
LARGEST = 0.95  # a leverage per unit of weight is a mean, and one times a weight may exceed one


class Left(NamedTuple):
    """Observations by row, and a model of them."""

    rows: Rows
    sample: Sample
    this: NDArray[Any]  # factors, both padded
    other: NDArray[Any]
    own: NDArray[np.float64]  # known of each row, see the columns above
    about: NDArray[np.float64]  # and of each index
    upper: float
    lower: float
    shift: float
    unit: float  # of the data, a power of two


class Sums(NamedTuple):
    """A model, and where its sums go."""

    left: Left
    out: NDArray[np.float64]


class SlopesOut(NamedTuple):
    """A model, and where the slope of the loss at each observation goes."""

    left: Left
    signed: int  # 1 gives each cell a random sign, by its hash
    out: NDArray[Any]


@helper()
def fitted(i, j, left):
    """Compute what the model says of a cell."""
    this, other = left.this, left.other
    total = left.own[i, OFFSET] + left.about[j, OFFSET]
    for a in range(this.shape[1]):
        total += np.float64(this[i, a]) * other[j, a]
    return total


@helper()
def _residual(i, e, left):
    """Compute what the model leaves of an observation."""
    return left.rows.values[e] - fitted(i, left.rows.indices[e], left)


@unit(allocates=True)
def tally_rows(begin, end, sums):
    """Sum over the observations of rows begin … end − 1.

    What comes from anywhere in memory is brought together first, a stretch at a time, so that the
    compiler makes vectors of the rest.
    """
    left, out = sums.left, sums.out
    indptr, indices = left.rows.indptr, left.rows.indices
    values, weights, this, other = left.rows.values, left.rows.weights, left.this, left.other
    known, about, marks = left.own, left.about, left.sample.marks
    own_marks, first, span = left.sample.own, left.sample.first, left.sample.span
    upper, lower, shift, per_unit = left.upper, left.lower, left.shift, 1 / left.unit
    room = np.empty((6, STRETCH))
    products, v, added, scale, leverage, precision = (
        room[0], room[1], room[2], room[3], room[4], room[5]
    )  # fmt: skip
    lanes = lanes_of(products)
    for i in range(begin, end):
        mass, slope, curvature, loss, noise = 0.0, 0.0, 0.0, 0.0, 0.0
        weight, above, below, squares = 0.0, 0.0, 0.0, 0.0
        offset, own_leverage = known[i, OFFSET], known[i, LEVERAGE]
        for base in range(indptr[i], indptr[i + 1], STRETCH):
            last = min(base + STRETCH, indptr[i + 1])
            for c in range(0, last - base, lanes):
                long_dots(products, c, this, i, indices, base + c, last, other)
            for c in range(last - base):
                j = indices[base + c]
                v[c] = np.float64(weights[base + c]) if weights.size else 1.0
                added[c], scale[c] = about[j, OFFSET], about[j, SCALE]
                leverage[c], precision[c] = about[j, LEVERAGE], 1 / about[j, VARIANCE]
            if marks.size:
                keep_sampled(v, 0, last - base, marks, indices, base, own_marks[i], first, span)
            for c in range(last - base):
                r = values[base + c] - (offset + added[c] + products[c])
                w = upper if r >= 0 else lower
                had = min(v[c], 1.0) * w * known[i, SCALE] * scale[c]  # as its weight in the fit
                r /= 1 - min(LARGEST, had * own_leverage)
                r /= 1 - min(LARGEST, had * leverage[c])
                w = upper if r >= 0 else lower
                noise += v[c] * (w * r) ** 2 * precision[c]
                t = r - shift
                w = upper if t >= 0 else lower
                mass += v[c]
                weight += v[c] * scale[c]
                slope += v[c] * w * t
                curvature += v[c] * w
                loss += v[c] * w * t * t
                above += v[c] * max(t, 0.0)
                below += v[c] * max(-t, 0.0)
                t *= per_unit
                squares += v[c] * (w * t * t) ** 2
        out[i, MASS], out[i, WEIGHT], out[i, NOISE] = mass, weight, noise
        out[i, SLOPE], out[i, CURVATURE], out[i, LOSS] = slope, curvature, loss
        out[i, ABOVE], out[i, BELOW], out[i, SQUARED_LOSS] = above, below, squares


@unit()
def fill_slopes(begin, end, slopes):
    """Write v w r times both scales for the observations of rows begin … end − 1; 0 outside."""
    left, out = slopes.left, slopes.out
    indptr, indices, weights = left.rows.indptr, left.rows.indices, left.rows.weights
    own, about, marks = left.own, left.about, left.sample.marks
    own_marks, first, span = left.sample.own, left.sample.first, left.sample.span
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if marks.size and not is_in_sample(own_marks[i], marks[j], first, span):
                out[e] = 0
                continue
            r = _residual(i, e, left)
            slope = (left.upper if r >= 0 else left.lower) * r * own[i, SCALE] * about[j, SCALE]
            if weights.size:
                slope *= weights[e]
            if slopes.signed and hash_of_cell(own_marks[i], marks[j]) & 1:
                slope = -slope
            out[e] = slope
