"""Measurements `<A_i, X Yᵀ>`, their adjoint and their design rows, compiled. One cache unit.

Operators come in two kinds. Those that have every entry of every A_i (stored,
or drawn as they are needed) are read row by row through `_fill`, which is the
only function that knows where entries come from. Sparse ones list theirs.

Sides are as everywhere: 0 asks for what multiplies the rows of X (A_i Y), 1
for what multiplies those of Y (A_iᵀ X).

Random entries
--------------
Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
1, 2, 3", SC 2011) with the seed as its 64-bit key. Its counter is (t, r, i, stream):
row r of measurement i is drawn in groups t of

- 2 Gaussian entries (stream 0). The 128 bits become u in (0, 1], y in [-1, 1)
  and two signs; by Box and Muller's transform within one quadrant, with the quadrant
  left to the signs,

      z = ± √(−ln u) (cos x − sin x),   z' = ± √(−ln u) (cos x + sin x),   x = π y / 4.

  Groups give columns t and t + ceil(n / 2). 52 bits of u reach 8.49 standard deviations.
- 128 Rademacher entries (stream 1), one bit each: columns 128 t to 128 t + 127.

A counter is a pure function's argument, so entries do not depend on blocks,
threads, processes or the order of access. The generator is compiled without any
freedom to rearrange its arithmetic and uses +, −, ×, ÷, √ and bits only: every machine
draws the same bits, with or without the JIT.

Name prefixes tell the layer: `_fill*` one row of one A_i, `_measurements_*` a serial
block of measurements that owns its scratch, no prefix the parallel entry.
"""

from __future__ import annotations

from collections import namedtuple
from fractions import Fraction
from math import factorial, pi, sqrt

import numpy as np
from numba import prange

from fastemf.kernels.compilation import kernel

STORED, GAUSSIAN, RADEMACHER = range(3)  # where `_fill` takes entries from

# --- random entries ------------------------------------------------------------------------

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
STREAM_0, STREAM_1 = np.uint32(0), np.uint32(1)  # Gaussian, Rademacher

ONE = np.uint64(1)
MANTISSA_BITS, UNUSED_BITS, SIGN_BIT = np.uint64(52), np.uint64(12), np.uint64(63)
MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)
BITS_OF_1 = np.uint64(0x3FF0000000000000)
BITS_OF_ROOT_HALF = np.uint64(0x3FE6A09E667F3BCD)
BITS_OF_2_TO_52 = np.uint64(0x4330000000000000)
EXPONENT_OF_1 = 2.0**52 + 1023.0
LN_2 = 0.6931471805599453

# Taylor coefficients: atanh(s) / s in s², cos(π y / 4) and sin(π y / 4) / y in y².
# The first term left out is below 1e-16 on the ranges used: s² < 0.0295, |y| <= 1. Rounded from
# exact fractions, as a machine's own power function need not be exact.
ATANH = tuple(1.0 / (2 * j + 1) for j in range(10))
EIGHTH_TURN = Fraction(pi) / 4
COS, SIN = (
    tuple(
        float((-1) ** j * EIGHTH_TURN ** (2 * j + odd) / factorial(2 * j + odd))
        for j in range(9 - odd)
    )
    for odd in (0, 1)
)


@kernel(exact=True)
def _philox_round(c0, c1, c2, c3, k0, k1, number):
    # The words are 32-bit ones, widened: LLVM's cheap vector product needs to see that.
    first, second = MULTIPLIERS[0] * np.uint64(c0), MULTIPLIERS[1] * np.uint64(c2)
    k0 = np.uint32((k0 + np.uint64(number) * WEYL[0]) & LOW)
    k1 = np.uint32((k1 + np.uint64(number) * WEYL[1]) & LOW)
    return (
        np.uint32(second >> HALF) ^ c1 ^ k0,
        np.uint32(second & LOW),
        np.uint32(first >> HALF) ^ c3 ^ k1,
        np.uint32(first & LOW),
    )


@kernel(exact=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four 32-bit words from a counter; the key's words are held in 64 bits."""
    # Written out, as are the polynomials: the loops around them must vectorise.
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 0)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 1)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 2)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 3)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 4)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 5)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 6)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 7)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 8)
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1, 9)
    return c0, c1, c2, c3


@kernel(exact=True)
def _joined(low, high):
    return (np.uint64(high) << HALF) | np.uint64(low)


@kernel(exact=True)
def _float(word):
    return np.uint64(word).view(np.float64)


@kernel(exact=True)
def _bits(value):
    return np.float64(value).view(np.uint64)


@kernel(exact=True)
def _log(u):
    """Ln u for normal u > 0: u = 2^e f with f in [√½, √2), ln f = 2 atanh((f − 1) / (f + 1))."""
    bits = _bits(u) + (BITS_OF_1 - BITS_OF_ROOT_HALF)
    e = _float((bits >> MANTISSA_BITS) | BITS_OF_2_TO_52) - EXPONENT_OF_1
    f = _float((bits & MANTISSA) + BITS_OF_ROOT_HALF)
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    a = ATANH
    total = a[9] * z + a[8]
    total = ((total * z + a[7]) * z + a[6]) * z + a[5]
    total = ((((total * z + a[4]) * z + a[3]) * z + a[2]) * z + a[1]) * z + a[0]
    return e * LN_2 + (s + s) * total


@kernel(exact=True)
def _signed(value, word):
    """The value with its sign turned where the word's last bit is set."""
    return _float(_bits(value) ^ ((word & ONE) << SIGN_BIT))


@kernel(exact=True)
def _draw_words(key0, key1, i, r, first, second, count):
    for t in range(count):
        w0, w1, w2, w3 = philox(np.uint32(t), np.uint32(r), np.uint32(i), STREAM_0, key0, key1)
        first[t] = _joined(w0, w1)
        second[t] = _joined(w2, w3)


@kernel(exact=True)
def _draw_normals(first, second, scale, left, right, count):
    for t in range(count):
        u = 2.0 - _float((first[t] >> UNUSED_BITS) | BITS_OF_1)
        y = 2.0 * _float((second[t] >> UNUSED_BITS) | BITS_OF_1) - 3.0
        z = y * y
        cos = (((COS[8] * z + COS[7]) * z + COS[6]) * z + COS[5]) * z + COS[4]
        cos = (((cos * z + COS[3]) * z + COS[2]) * z + COS[1]) * z + COS[0]
        sin = ((SIN[7] * z + SIN[6]) * z + SIN[5]) * z + SIN[4]
        sin = ((((sin * z + SIN[3]) * z + SIN[2]) * z + SIN[1]) * z + SIN[0]) * y
        radius = scale * sqrt(-_log(u))
        left[t] = _signed(radius * (cos - sin), first[t])
        right[t] = _signed(radius * (cos + sin), second[t])


@kernel(exact=True)
def _fill_gaussian(key0, key1, scale, i, r, n, words, row):
    # Two loops over plain arrays: LLVM vectorises either, but not both in one.
    half = (n + 1) // 2
    _draw_words(key0, key1, i, r, words[0], words[1], half)
    _draw_normals(words[0], words[1], scale, row[:half], row[half:], half)


@kernel(exact=True)
def _fill_rademacher(key0, key1, scale, i, r, n, row):
    plus = _bits(scale)
    bits = row.view(np.uint64)
    for t in range((n + 127) // 128):
        w0, w1, w2, w3 = philox(np.uint32(t), np.uint32(r), np.uint32(i), STREAM_1, key0, key1)
        first, second = _joined(w0, w1), _joined(w2, w3)
        left, right = bits[128 * t : 128 * t + 64], bits[128 * t + 64 : 128 * t + 128]
        for j in range(64):
            left[j] = plus | (((first >> np.uint64(j)) & ONE) << SIGN_BIT)
        for j in range(64):
            right[j] = plus | (((second >> np.uint64(j)) & ONE) << SIGN_BIT)


# --- operators with every entry ------------------------------------------------------------

Source = namedtuple(
    "Source",
    [
        "kind",  # STORED, GAUSSIAN or RADEMACHER
        "key0",  # the seed's two halves
        "key1",
        "scale",  # what unit entries are multiplied by
        "stored",  # (p, m, n); empty where entries are drawn
    ],
)


@kernel()
def _fill(source, i, r, n, words, row):
    """Row r of A_i into row[:n]; what lies behind is scratch."""
    if source.kind == GAUSSIAN:
        _fill_gaussian(source.key0, source.key1, source.scale, i, r, n, words, row)
    elif source.kind == RADEMACHER:
        _fill_rademacher(source.key0, source.key1, source.scale, i, r, n, row)
    else:
        stored = source.stored[i, r]
        for j in range(n):
            row[j] = stored[j]


@kernel()
def _scratch(source, n):
    """Room for one row, to whole groups of random entries, and for the words behind it."""
    wide = (n + 127) // 128 * 128
    return np.empty((2, wide // 2), np.uint64), np.empty(wide, source.stored.dtype)


@kernel()
def _measurements_forward(first, last, source, X, Yt, out):
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


@kernel(parallel=True)
def forward(blocks, source, X, Yt, out):
    """out[i] = <A_i, X Yᵀ>. The rows of X Yᵀ are formed one at a time."""
    for b in prange(blocks.size - 1):
        _measurements_forward(blocks[b], blocks[b + 1], source, X, Yt, out)


@kernel()
def _measurements_adjoint(first, last, chunks, source, b, factor, side, m, n, out):
    words, row = _scratch(source, n)
    total = np.empty(n)
    k = factor.shape[0]
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
                x = factor[:, r].copy()
                for j in range(n):
                    for a in range(k):
                        part[j, a] += total[j] * x[a]


@kernel(parallel=True)
def adjoint(blocks, chunks, source, b, factor, side, m, n, out):
    """out[c] = S Y or Sᵀ X with S = Σ b_i A_i over chunk c; the factor comes transposed.

    The rows of S are formed one at a time. Chunks do not depend on the threads,
    so neither does the sum over them.
    """
    for e in prange(blocks.size - 1):
        _measurements_adjoint(blocks[e], blocks[e + 1], chunks, source, b, factor, side, m, n, out)


@kernel()
def _measurements_design(first, last, source, which, factor, side, m, n, out):
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


@kernel(parallel=True)
def design(blocks, source, which, factor, side, m, n, out):
    """out[e] = vec(A_i Y) or vec(A_iᵀ X) for i = which[e]; the factor comes transposed."""
    for b in prange(blocks.size - 1):
        _measurements_design(
            blocks[b], blocks[b + 1], source, which, factor, side, m, n, out
        )  # fmt: skip


# --- sparse operators ----------------------------------------------------------------------
#
# Measurement i has the entries indptr[i] to indptr[i + 1]: `cells` is row · n + column.


@kernel()
def _measurements_sparse_forward(first, last, indptr, cells, values, X, Y, out):
    n, k = Y.shape
    for i in range(first, last):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            r, c = cells[e] // n, cells[e] % n
            for a in range(k):
                total += values[e] * X[r, a] * Y[c, a]
        out[i] = total


@kernel(parallel=True)
def sparse_forward(blocks, indptr, cells, values, X, Y, out):
    """out[i] = <A_i, X Yᵀ>."""
    for b in prange(blocks.size - 1):
        _measurements_sparse_forward(blocks[b], blocks[b + 1], indptr, cells, values, X, Y, out)


@kernel()
def _measurements_sparse_adjoint(
    first, last, chunks, indptr, cells, values, b, factor, side, n, out
):
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


@kernel(parallel=True)
def sparse_adjoint(blocks, chunks, indptr, cells, values, b, factor, side, n, out):
    """out[c] = S Y or Sᵀ X with S = Σ b_i A_i over chunk c."""
    for e in prange(blocks.size - 1):
        _measurements_sparse_adjoint(
            blocks[e], blocks[e + 1], chunks, indptr, cells, values, b, factor, side, n, out
        )


@kernel()
def _measurements_sparse_design(
    first, last, indptr, cells, values, which, factor, side, n, out
):  # fmt: skip
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


@kernel(parallel=True)
def sparse_design(blocks, indptr, cells, values, which, factor, side, n, out):
    """out[e] = vec(A_i Y) or vec(A_iᵀ X) for i = which[e]."""
    for b in prange(blocks.size - 1):
        _measurements_sparse_design(
            blocks[b], blocks[b + 1], indptr, cells, values, which, factor, side, n, out
        )


# (parallel, serial) pairs for threads.launch
FORWARD = (forward, _measurements_forward)
ADJOINT = (adjoint, _measurements_adjoint)
DESIGN = (design, _measurements_design)
SPARSE_FORWARD = (sparse_forward, _measurements_sparse_forward)
SPARSE_ADJOINT = (sparse_adjoint, _measurements_sparse_adjoint)
SPARSE_DESIGN = (sparse_design, _measurements_sparse_design)
