"""Sums over the residuals of a model, row by row, in float64.

Residuals are leave-one-out residuals: r̃ = r / ((1 − h_row)(1 − h_col)). A leverage h is the mean
leverage of the row or column per unit of weight, times the weight of the observation in the fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.loss import sign_weight
from fastemf.kernels.problem import Rows, Sample, hash_of_cell, is_in_sample
from fastemf.kernels.simd import keep_sampled, lanes_of, long_dots

# The columns of the sums of a row, over its observations in the sample. With t = r̃ − shift and its
# sign weight w, SLOPE is Σ v w t, CURVATURE Σ v w, LOSS Σ v w t². NOISE is Σ v (w(r̃) r̃)² divided by
# the column's variance. WEIGHT sums the columns' weights in the fit. SQUARED_LOSS is Σ v (w t²)² in
# units of the data's scale, so that it neither overflows nor underflows.
MASS, WEIGHT, SLOPE, CURVATURE, LOSS, NOISE, ABOVE, BELOW, SQUARED_LOSS = range(9)
N_SUMS = 9

# The columns of `own` and `about`: the offset that the model adds to the product, the weight in the
# fit, the leverage per unit of weight, and the noise variance.
OFFSET, SCALE, LEVERAGE, VARIANCE = range(4)
N_KNOWN = 4

STRETCH = 256  # observations at a time; a multiple of the lanes of a vector
LARGEST = 0.95  # mean leverages times a weight may exceed one


class FittedRows(NamedTuple):
    """Observations by row, and a model of them."""

    rows: Rows
    sample: Sample
    this: NDArray[Any]  # both factors, padded
    other: NDArray[Any]
    own: NDArray[np.float64]  # by row, see the columns above
    about: NDArray[np.float64]  # by index
    upper: float
    lower: float
    shift: float
    unit: float  # the scale of the data, a power of two


class SumArgs(NamedTuple):
    """A model, and the array for its sums."""

    model: FittedRows
    out: NDArray[np.float64]


class SlopeArgs(NamedTuple):
    """A model, and the array for the slopes of the loss at the observations."""

    model: FittedRows
    signed: int  # 1 multiplies each cell by a random sign, derived from its hash
    out: NDArray[Any]


@helper()
def predict_cell(i, j, model):
    """Predict a cell."""
    this, other = model.this, model.other
    total = model.own[i, OFFSET] + model.about[j, OFFSET]
    for a in range(this.shape[1]):
        total += np.float64(this[i, a]) * other[j, a]
    return total


@unit(allocates=True)
def sum_residuals(begin, end, sums):
    """Sum over the observations of rows begin … end − 1.

    Values from scattered addresses are gathered first, a stretch at a time, so that the compiler
    vectorises the arithmetic.
    """
    model, out = sums.model, sums.out
    indptr, indices = model.rows.indptr, model.rows.indices
    values, weights, this, other = model.rows.values, model.rows.weights, model.this, model.other
    known, about, marks = model.own, model.about, model.sample.marks
    own_marks, first, span = model.sample.own, model.sample.first, model.sample.span
    upper, lower, shift, per_unit = model.upper, model.lower, model.shift, 1 / model.unit
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
                w = sign_weight(r, upper, lower)
                weight_in_fit = min(v[c], 1.0) * w * known[i, SCALE] * scale[c]
                r /= 1 - min(LARGEST, weight_in_fit * own_leverage)
                r /= 1 - min(LARGEST, weight_in_fit * leverage[c])
                w = sign_weight(r, upper, lower)
                noise += v[c] * (w * r) ** 2 * precision[c]
                t = r - shift
                w = sign_weight(t, upper, lower)
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
    """Write v w r times both scales for rows begin … end − 1; 0 outside the sample."""
    model, out = slopes.model, slopes.out
    indptr, indices, weights = model.rows.indptr, model.rows.indices, model.rows.weights
    own, about, marks = model.own, model.about, model.sample.marks
    own_marks, first, span = model.sample.own, model.sample.first, model.sample.span
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if marks.size and not is_in_sample(own_marks[i], marks[j], first, span):
                out[e] = 0
                continue
            r = model.rows.values[e] - predict_cell(i, j, model)
            slope = sign_weight(r, model.upper, model.lower) * r * own[i, SCALE] * about[j, SCALE]
            if weights.size:
                slope *= weights[e]
            if slopes.signed and hash_of_cell(own_marks[i], marks[j]) & 1:
                slope = -slope
            out[e] = slope
