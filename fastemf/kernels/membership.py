"""Which observations belong to a sample of the cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit
from fastemf.kernels.hashing import is_in_sample
from fastemf.kernels.problem import Rows, Sample

__all__ = ["Membership", "mark_members"]


class Membership(NamedTuple):
    """Observations by row, a sample, and where it goes whether each belongs to that."""

    rows: Rows
    sample: Sample
    out: NDArray[np.uint8]


@unit()
def mark_members(begin, end, members):
    """Write 1 for the observations of rows begin … end − 1 that are in the sample, else 0."""
    indptr, indices, out = members.rows.indptr, members.rows.indices, members.out
    marks, own_marks = members.sample.marks, members.sample.own
    first, span = members.sample.first, members.sample.span
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = is_in_sample(own_marks[i], marks[indices[e]], first, span)
