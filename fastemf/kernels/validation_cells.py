"""The observations in a sample of cells, with the predictions of a model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit
from fastemf.kernels.problem import Rows, Sample, hash_of_cell, is_in_sample
from fastemf.kernels.residual_sums import FittedRows, predict_cell


class CountArgs(NamedTuple):
    """A model, and the array for the number of observations of each row in the sample."""

    model: FittedRows
    out: NDArray[np.int64]


class PickArgs(NamedTuple):
    """A model, and arrays for the observations in the sample; those of a row begin at `begins`."""

    model: FittedRows
    begins: NDArray[np.int64]
    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    hashes: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    predicted: NDArray[np.float64]


@unit()
def count_in_sample(begin, end, counted):
    """Count the observations of rows begin … end − 1 in the sample."""
    model, out = counted.model, counted.out
    indptr, indices, marks = model.rows.indptr, model.rows.indices, model.sample.marks
    own_marks, first, span = model.sample.own, model.sample.first, model.sample.span
    for i in range(begin, end):
        count = 0
        for e in range(indptr[i], indptr[i + 1]):
            if is_in_sample(own_marks[i], marks[indices[e]], first, span):
                count += 1
        out[i] = count


@unit()
def pick_sample(begin, end, picked):
    """Copy the observations of rows begin … end − 1 in the sample."""
    model = picked.model
    indptr, indices, marks = model.rows.indptr, model.rows.indices, model.sample.marks
    values, weights = model.rows.values, model.rows.weights
    own_marks, first, span = model.sample.own, model.sample.first, model.sample.span
    for i in range(begin, end):
        at = picked.begins[i]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if not is_in_sample(own_marks[i], marks[j], first, span):
                continue
            picked.rows[at], picked.cols[at] = i, j
            picked.hashes[at] = hash_of_cell(own_marks[i], marks[j])
            picked.values[at] = values[e]
            picked.weights[at] = weights[e] if weights.size else 1.0
            picked.predicted[at] = predict_cell(i, j, model)
            at += 1


class MembershipArgs(NamedTuple):
    """Observations by row, a sample, and the array for their membership."""

    rows: Rows
    sample: Sample
    out: NDArray[np.uint8]


@unit()
def mark_members(begin, end, members):
    """Write 1 for observations of rows begin … end − 1 in the sample, else 0."""
    indptr, indices, out = members.rows.indptr, members.rows.indices, members.out
    marks, own_marks = members.sample.marks, members.sample.own
    first, span = members.sample.first, members.sample.span
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = is_in_sample(own_marks[i], marks[indices[e]], first, span)
