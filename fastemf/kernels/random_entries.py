"""Random entries of measurement matrices, generated on demand.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
1, 2, 3", SC 2011) with the seed as its 64-bit key. Its counter is (t, r, i, stream):
row r of measurement i is drawn in groups t of

- 2 Gaussian entries (stream 0). The 128 bits become u in (0, 1], y in [-1, 1)
  and two signs; by Box and Muller's transform within one quadrant, with the quadrant
  left to the signs,

      z = ± √(−ln u) (cos x − sin x),   z' = ± √(−ln u) (cos x + sin x),   x = π y / 4.

  Groups give columns t and t + ceil(n / 2). 52 bits of u reach 8.49 standard deviations.
- 128 Rademacher entries (stream 1), one bit each: columns 128 t to 128 t + 127.

An entry is a pure function of its counter, so entries do not depend on blocks, threads, processes
or the order of access. The generator is compiled without permission to rearrange arithmetic and
uses +, −, ×, ÷, √ and bit operations only: entries are bitwise identical on every machine, with or
without the JIT.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial, pi, sqrt

import numpy as np

from fastemf.kernels.compilation import helper

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
# The first term left out is below 1e-16 on the ranges used: s² < 0.0295, |y| <= 1. They are
# rounded from exact fractions, because pow() is not exact on every machine.
ATANH = tuple(1.0 / (2 * j + 1) for j in range(10))
EIGHTH_TURN = Fraction(pi) / 4
COS, SIN = (
    tuple(
        float((-1) ** j * EIGHTH_TURN ** (2 * j + odd) / factorial(2 * j + odd))
        for j in range(9 - odd)
    )
    for odd in (0, 1)
)


@helper(exact=True)
def _philox_round(c0, c1, c2, c3, k0, k1, number):
    # Widened 32-bit words let LLVM use a cheap vector product.
    first, second = MULTIPLIERS[0] * np.uint64(c0), MULTIPLIERS[1] * np.uint64(c2)
    k0 = np.uint32((k0 + np.uint64(number) * WEYL[0]) & LOW)
    k1 = np.uint32((k1 + np.uint64(number) * WEYL[1]) & LOW)
    return (
        np.uint32(second >> HALF) ^ c1 ^ k0,
        np.uint32(second & LOW),
        np.uint32(first >> HALF) ^ c3 ^ k1,
        np.uint32(first & LOW),
    )


@helper(exact=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Compute Philox4x32-10: four 32-bit words of a counter; the key's words are in 64 bits."""
    # The rounds are written out, as are the polynomials, so that the loops around them vectorise.
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


@helper(exact=True)
def _join(low, high):
    return (np.uint64(high) << HALF) | np.uint64(low)


@helper(exact=True)
def _float(word):
    return np.uint64(word).view(np.float64)


@helper(exact=True)
def _bits(value):
    return np.float64(value).view(np.uint64)


@helper(exact=True)
def _log(u):
    """Compute ln u = e ln 2 + 2 atanh((f − 1) / (f + 1)), u = 2^e f > 0 normal, f in [√½, √2)."""
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


@helper(exact=True)
def _set_sign(value, word):
    """Change the sign of a value where the word's last bit is set."""
    return _float(_bits(value) ^ ((word & ONE) << SIGN_BIT))


@helper(exact=True)
def _draw_words(key0, key1, i, r, first, second, count):
    for t in range(count):
        w0, w1, w2, w3 = philox(np.uint32(t), np.uint32(r), np.uint32(i), STREAM_0, key0, key1)
        first[t] = _join(w0, w1)
        second[t] = _join(w2, w3)


@helper(exact=True)
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
        left[t] = _set_sign(radius * (cos - sin), first[t])
        right[t] = _set_sign(radius * (cos + sin), second[t])


@helper(exact=True)
def fill_gaussian(key0, key1, scale, i, r, n, words, row):
    """Generate row r of a Gaussian A_i in row[:n]; `words` is scratch."""
    # LLVM vectorises two separate loops, but not one combined loop.
    half = (n + 1) // 2
    _draw_words(key0, key1, i, r, words[0], words[1], half)
    _draw_normals(words[0], words[1], scale, row[:half], row[half:], half)


@helper(exact=True)
def fill_rademacher(key0, key1, scale, i, r, n, row):
    """Generate row r of A_i, with entries ± scale, in row[:n]."""
    plus = _bits(scale)
    bits = row.view(np.uint64)
    for t in range((n + 127) // 128):
        w0, w1, w2, w3 = philox(np.uint32(t), np.uint32(r), np.uint32(i), STREAM_1, key0, key1)
        first, second = _join(w0, w1), _join(w2, w3)
        left, right = bits[128 * t : 128 * t + 64], bits[128 * t + 64 : 128 * t + 128]
        for j in range(64):
            left[j] = plus | (((first >> np.uint64(j)) & ONE) << SIGN_BIT)
        for j in range(64):
            right[j] = plus | (((second >> np.uint64(j)) & ONE) << SIGN_BIT)
