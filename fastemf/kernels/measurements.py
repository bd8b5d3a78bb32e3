"""Measurements `<A_i, X Yᵀ>`, their adjoint and their design rows.

There are two kinds of operators. Dense ones have all entries of every A_i, stored or generated on
demand, and are read row by row through `_fill`. Sparse ones list their entries.

Side 0 is the coefficient of the rows of X (A_i Y), side 1 that of the rows of Y (A_iᵀ X).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.random_entries import fill_gaussian, fill_rademacher

STORED, GAUSSIAN, RADEMACHER = range(3)  # kinds of dense entries


class DenseEntries(NamedTuple):
    """The source of all entries of every A_i."""

    kind: int  # STORED, GAUSSIAN or RADEMACHER
    key0: int  # the two halves of the seed
    key1: int
    scale: float  # standard deviation of the entries
    stored: NDArray[Any]  # (p, m, n); empty if entries are generated
    done: NDArray[np.bool_]  # whether the block that begins there was completed


class SparseEntries(NamedTuple):
    """Sparse A_i: measurement i has the entries indptr[i] to indptr[i + 1]."""

    indptr: NDArray[np.int64]
    cells: NDArray[np.int64]  # row · n + column
    values: NDArray[Any]


class Forward(NamedTuple):
    """Measurements out[i] = <A_i, X Yᵀ>; Y is transposed for `DenseEntries`."""

    source: DenseEntries | SparseEntries
    X: NDArray[Any]
    Y: NDArray[Any]
    out: NDArray[Any]


class Adjoint(NamedTuple):
    """Sums out[c] = S Y or Sᵀ X with S = Σ b_i A_i over chunk c.

    Chunks, and therefore the sum over them, do not depend on the number of threads. The factor
    is transposed for `DenseEntries`.
    """

    source: DenseEntries | SparseEntries
    chunks: NDArray[np.int64]
    b: NDArray[np.float64]
    factor: NDArray[Any]
    side: int
    m: int
    n: int
    out: NDArray[np.float64]


class DesignRows(NamedTuple):
    """Rows out[e] = vec(A_i Y) or vec(A_iᵀ X) for i = which[e]; see `Adjoint` for the factor."""

    source: DenseEntries | SparseEntries
    which: NDArray[np.int64]
    factor: NDArray[Any]
    side: int
    m: int
    n: int
    out: NDArray[Any]


# --- dense operators -----------------------------------------------------------------------


@helper()
def _fill(source, i, r, n, words, row):
    """Write row r of A_i into row[:n]; the rest of `row` is scratch."""
    if source.kind == GAUSSIAN:
        key0, key1 = np.uint64(source.key0), np.uint64(source.key1)
        fill_gaussian(key0, key1, source.scale, i, r, n, words, row)
    elif source.kind == RADEMACHER:
        key0, key1 = np.uint64(source.key0), np.uint64(source.key1)
        fill_rademacher(key0, key1, source.scale, i, r, n, row)
    else:
        stored = source.stored[i, r]
        for j in range(n):
            row[j] = stored[j]


@helper(allocates=True)
def _scratch(source, n):
    """Allocate one row, in whole groups of random entries, and its random words."""
    wide = (n + 127) // 128 * 128
    return np.empty((2, wide // 2), np.uint64), np.empty(wide, source.stored.dtype)


@unit(allocates=True)
def forward(first, last, task):
    """Compute a `Forward`; the rows of X Yᵀ are formed one at a time."""
    source, X, Yt, out = task.source, task.X, task.Y, task.out
    m, k = X.shape
    n = Yt.shape[1]
    words, row = _scratch(source, n)
    values = np.empty(n, row.dtype)
    for i in range(first, last):
        out[i] = 0
    for r in range(m):
        for j in range(n):
            values[j] = 0
        for a in range(k):
            x, y = X[r, a], Yt[a]
            for j in range(n):
                values[j] += x * y[j]
        for i in range(first, last):
            _fill(source, i, r, n, words, row)
            total = row.dtype.type(0)
            for j in range(n):
                total += row[j] * values[j]
            out[i] += total
    source.done[first] = True


@unit(allocates=True)
def adjoint(first, last, task):
    """Compute an `Adjoint`; the rows of S are formed one at a time."""
    source, chunks, b, factor = task.source, task.chunks, task.b, task.factor
    side, m, n, out = task.side, task.m, task.n, task.out
    words, row = _scratch(source, n)
    k = factor.shape[0]
    total, x = np.empty(n), np.empty(k, factor.dtype)
    for c in range(first, last):
        part = out[c]
        part[:] = 0
        for r in range(m):
            for j in range(n):
                total[j] = 0
            for i in range(chunks[c], chunks[c + 1]):
                _fill(source, i, r, n, words, row)
                for j in range(n):
                    total[j] += b[i] * row[j]
            if side == 0:
                for a in range(k):
                    y, value = factor[a], 0.0
                    for j in range(n):
                        value += total[j] * y[j]
                    part[r, a] = value
            else:
                for a in range(k):
                    x[a] = factor[a, r]
                for j in range(n):
                    for a in range(k):
                        part[j, a] += total[j] * x[a]
    source.done[first] = True


@unit(allocates=True)
def design(first, last, task):
    """Compute `DesignRows`."""
    source, which, factor = task.source, task.which, task.factor
    side, m, n, out = task.side, task.m, task.n, task.out
    words, row = _scratch(source, n)
    k = factor.shape[0]
    sums = np.empty((k, n), row.dtype)
    for e in range(first, last):
        sums[:] = 0
        for r in range(m):
            _fill(source, which[e], r, n, words, row)
            if side == 0:
                for a in range(k):
                    y, value = factor[a], row.dtype.type(0)
                    for j in range(n):
                        value += row[j] * y[j]
                    out[e, r * k + a] = value
            else:
                for a in range(k):
                    x, line = factor[a, r], sums[a]
                    for j in range(n):
                        line[j] += row[j] * x
        if side == 1:
            for j in range(n):
                for a in range(k):
                    out[e, j * k + a] = sums[a, j]
    source.done[first] = True


# --- sparse operators ----------------------------------------------------------------------


@unit()
def sparse_forward(first, last, task):
    """Compute a `Forward` of `SparseEntries`."""
    indptr, cells, values = task.source.indptr, task.source.cells, task.source.values
    X, Y, out = task.X, task.Y, task.out
    n, k = Y.shape
    for i in range(first, last):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            r, c = cells[e] // n, cells[e] % n
            for a in range(k):
                total += values[e] * X[r, a] * Y[c, a]
        out[i] = total


@unit()
def sparse_adjoint(first, last, task):
    """Compute an `Adjoint` of `SparseEntries`."""
    indptr, cells, values = task.source.indptr, task.source.cells, task.source.values
    chunks, b, factor = task.chunks, task.b, task.factor
    side, n, out = task.side, task.n, task.out
    for c in range(first, last):
        part = out[c]
        part[:] = 0
        for i in range(chunks[c], chunks[c + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                here, there = cells[e] // n, cells[e] % n
                if side == 1:
                    here, there = there, here
                value = b[i] * values[e]
                for a in range(factor.shape[1]):
                    part[here, a] += value * factor[there, a]


@unit()
def sparse_design(first, last, task):
    """Compute `DesignRows` of `SparseEntries`."""
    indptr, cells, values = task.source.indptr, task.source.cells, task.source.values
    which, factor, side, n, out = task.which, task.factor, task.side, task.n, task.out
    k = factor.shape[1]
    for e in range(first, last):
        line = out[e]
        line[:] = 0
        i = which[e]
        for f in range(indptr[i], indptr[i + 1]):
            here, there = cells[f] // n, cells[f] % n
            if side == 1:
                here, there = there, here
            for a in range(k):
                line[here * k + a] += values[f] * factor[there, a]
