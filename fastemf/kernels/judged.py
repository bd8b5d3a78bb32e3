"""The observations of a sample, picked from their rows with what a model predicts of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit
from fastemf.kernels.hashing import hash_of_cell, is_in_sample
from fastemf.kernels.tally import Left, fitted

__all__ = ["Counted", "Picked", "count_rows", "pick_rows"]


class Counted(NamedTuple):
    """A model, and where the number of a row's observations in the sample goes."""

    left: Left
    out: NDArray[np.int64]


class Picked(NamedTuple):
    """A model, where each row's observations begin, and where they go."""

    left: Left
    begins: NDArray[np.int64]
    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    hashes: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    predicted: NDArray[np.float64]


@unit()
def count_rows(begin, end, counted):
    """Count the observations in the sample, of rows begin … end − 1."""
    left, out = counted.left, counted.out
    indptr, indices, marks = left.rows.indptr, left.rows.indices, left.sample.marks
    own_marks, first, span = left.sample.own, left.sample.first, left.sample.span
    for i in range(begin, end):
        count = 0
        for e in range(indptr[i], indptr[i + 1]):
            if is_in_sample(own_marks[i], marks[indices[e]], first, span):
                count += 1
        out[i] = count


@unit()
def pick_rows(begin, end, picked):
    """Pick the observations in the sample, of rows begin … end − 1."""
    left = picked.left
    indptr, indices, marks = left.rows.indptr, left.rows.indices, left.sample.marks
    values, weights = left.rows.values, left.rows.weights
    own_marks, first, span = left.sample.own, left.sample.first, left.sample.span
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
            picked.predicted[at] = fitted(i, j, left)
            at += 1
