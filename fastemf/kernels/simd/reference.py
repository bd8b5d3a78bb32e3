"""The vector operations in Python, used where the JIT is off."""

from __future__ import annotations

import numpy as np

from fastemf.kernels.problem import is_in_sample
from fastemf.kernels.vector_width import PANEL, PANEL_COLUMNS, STRETCH, VECTOR_BYTES
from fastemf.loss import select_by_sign, split_squares

__all__ = [
    "add_terms", "at_least", "copy", "count_bits", "dots", "fetch", "fetch_ones", "gather_dots",
    "hint", "keep_sampled", "lanes_in", "lanes_of", "lanes_out", "long_dots", "lowest",
    "make_corner_tile", "make_direct", "make_tile", "make_weighted_sum", "move", "multiply_at",
    "panel", "pivots", "substitute_backward", "substitute_forward", "subtract_at", "trial",
    "update_residuals",
]  # fmt: skip


def lanes_of(array):
    return VECTOR_BYTES // array.itemsize


def make_tile(rows, vectors, gradient=False, lines=1, whole=None):
    def tile(summands, run, b, a, line):
        source, weights, r, out, g, _, _ = summands
        at, first, count, keep, top, lane, _ = run
        n_whole = rows if whole is None else whole
        half, wide = lanes_of(out) // 2, slice(a, a + vectors * lanes_of(out))
        w = weights[first : first + count]
        y = source[at : at + count]
        for i in range(rows):
            some = wide if i < n_whole else slice(a + half, wide.stop)
            product = np.sum((w * y[:, b + i])[:, None] * y[:, some], axis=0)
            out[top + b + i, some] = keep * out[top + b + i, some] + product
        if gradient:
            slope = np.sum((w * r[first : first + count])[:, None] * y[:, wide], axis=0)
            g[lane, wide] = keep * g[lane, wide] + slope

    return tile


def make_corner_tile(rows):
    def tile(summands, run):
        source, weights, r, out, g, _, _ = summands
        at, first, count, keep, top, lane, _ = run
        w, y = weights[first : first + count], source[at : at + count]
        for i in range(rows):
            product = np.sum((w * y[:, i])[:, None] * y, axis=0)
            out[top + i] = keep * out[top + i] + product
        slope = np.sum((w * r[first : first + count])[:, None] * y, axis=0)
        g[lane] = keep * g[lane] + slope

    return tile


def make_direct(rows):
    def direct(arrays, run, weight):
        other, indices, _, x, v, r, w, gram, g = arrays
        first, at, count, keep, _, top, lane = run
        whole = -(-count // lanes_of(r)) * lanes_of(r)
        y, s = other[indices[first : first + count]], np.zeros(at + whole, r.dtype)
        s[at : at + count] = np.sum(y * x[lane], axis=1)
        above, below, size = update_residuals(v, r, s, w, at, whole, weight, weight)
        weighted = w[at : at + count, None] * y
        for i in range(rows):
            product = np.sum(weighted[:, i, None] * y, axis=0)
            gram[top + i] = keep * gram[top + i] + product
        slope = np.sum(weighted * r[at : at + count, None], axis=0)
        g[lane] = keep * g[lane] + slope
        return above + below, size

    return direct


def dots(rows, at, x, lane, out, out_at):
    for i in range(lanes_of(rows)):
        out[out_at + i] = np.sum(rows[at + i] * x[lane])


def gather_dots(rows, at, x, lane, out, out_at, indices, first, last, other):
    for i in range(lanes_of(rows)):
        rows[at + i] = other[indices[min(first + i, last - 1)]]
    dots(rows, at, x, lane, out, out_at)


def long_dots(out, out_at, x, row, indices, first, last, other):
    for i in range(lanes_of(out)):
        found = other[indices[min(first + i, last - 1)]].astype(np.float64)
        out[out_at + i] = np.sum(found * x[row])


def fetch(out, at, count, source, first):
    out[at : at - (-count // lanes_of(out)) * lanes_of(out)] = 0
    out[at : at + count] = source[first : first + count]


def fetch_ones(out, at, count):
    fetch(out, at, count, np.ones(count, out.dtype), 0)


def subtract_at(out, at, count, table, indices, first):
    out[at : at + count] -= table[indices[first : first + count]]


def multiply_at(out, at, count, table, indices, first):
    out[at : at + count] *= table[indices[first : first + count]]


def keep_sampled(out, at, count, marks, indices, first, own, begin, span):
    kept = is_in_sample(own, marks[indices[first : first + count]], begin, span)
    out[at : at + count] *= kept


def hint(array, at):
    pass


def update_residuals(v, r, s, w, at, count, upper, lower):
    part = slice(at, at + count)
    before = r[part].astype(np.float64)
    r[part] -= s[part]
    w[part] = v[part] * select_by_sign(r[part], upper, lower)
    above, below = split_squares(r[part], v[part])
    return above, below, np.sum(v[part] * before**2)


def trial(v, r, s, at, count, step):
    part = slice(at, at + count)
    after = r[part] - step * s[part]
    was, negative = (select_by_sign(some, False, True) for some in (r[part], after))
    return *split_squares(after, v[part]), np.sum((was != negative) & (v[part] > 0))


def move(v, r, s, at, upper, lower):
    part = slice(at, at + lanes_of(r))
    before = select_by_sign(r[part], upper, lower)
    r[part] -= s[part]
    s[part] = v[part] * (select_by_sign(r[part], upper, lower) - before)
    return sum(1 << int(lane) for lane in np.flatnonzero(s[part]))


def at_least(values, row, column, sign, bound):
    part = sign * values[row, column : column + STRETCH]
    return sum(1 << int(place) for place in np.flatnonzero(part >= bound))


def lowest(bits):
    return (bits & -bits).bit_length() - 1


def count_bits(bits):
    return bits.bit_count()


def add_terms(values, row, column, tile, terms):
    low, high, row_terms, col_terms, row_slopes, col_slopes = terms
    wide = slice(column, column + lanes_of(values))
    p, (n_terms, n_pieces) = values[row, wide].copy(), (row_terms.shape[1], low.size)
    for a in range(n_terms):
        values[row, wide] += row_terms[row, a] * col_terms[tile * n_terms + a, wide]
    for a in range(n_pieces):
        short = np.fmax(p, low[a]) - np.fmax(p, high[a])
        values[row, wide] += (row_slopes[row, a] + col_slopes[tile * n_pieces + a, wide]) * short


def copy(out, out_row, source, row):
    out[out_row] = source[row]


def make_weighted_sum(vectors):
    def weighted_sum(indices, values, first, last, dense, out, row, column):
        wide = slice(column, column + vectors * lanes_of(dense))
        out[row, wide] = 0
        for e in range(first, last):
            out[row, wide] += values[e] * dense[indices[e], wide]

    return weighted_sum


def lanes_in(source, members, step, row, column, out, out_row):
    n = lanes_of(source)
    block = [source[row + member * step, column : column + n] for member in members]
    out[out_row : out_row + n] = np.transpose(block)


def lanes_out(source, row, out, members, column):
    n = lanes_of(source)
    for lane, member in enumerate(members):
        out[member, column : column + n] = source[row : row + n, lane]


def pivots(U, begin, i, inverse, diagonal, floor, kept):
    for a in range(i, i + PANEL):
        for c in range(i, a):
            U[begin[a] + c] = 0
        for c in range(a, i + PANEL):
            U[begin[a] + c] -= sum(U[begin[e] + a] * U[begin[e] + c] for e in range(a))
        pivot = U[begin[a] + a].copy()
        sound = pivot > floor[0]
        ratio = np.divide(pivot, diagonal[a], out=np.zeros_like(pivot), where=sound)
        kept[0] = np.minimum(kept[0], ratio)
        inverse[a] = 1 / np.sqrt(np.where(sound, pivot, 1))
        for c in range(a, i + PANEL):
            U[begin[a] + c] *= inverse[a]


def panel(U, begin, i, j, inverse):
    for a in range(i, i + PANEL):
        for c in range(j, j + PANEL_COLUMNS):
            U[begin[a] + c] -= sum(U[begin[e] + a] * U[begin[e] + c] for e in range(a))
            U[begin[a] + c] *= inverse[a]


def substitute_forward(U, at, inverse, z, i, n):
    z[i] *= inverse[i]
    for j in range(i + 1, n):
        z[j] -= U[at + j] * z[i]


def substitute_backward(U, at, inverse, z, i, n):
    for j in range(i + 1, n):
        z[i] -= U[at + j] * z[j]
    z[i] *= inverse[i]
