"""Vector operations against NumPy and their Python versions."""

import copy
import itertools

import numba
import numpy as np
import pytest

from fastemf.kernels import row
from fastemf.kernels import simd as vectors
from fastemf.kernels.compilation import INTERPRETED
from fastemf.kernels.simd import reference
from fastemf.kernels.simd.operands import Pass, RowArrays, Terms
from fastemf.kernels.vector_width import STRETCH, VECTOR_BYTES

DTYPES = [np.float32, np.float64]


def lanes_of(dtype):
    return VECTOR_BYTES // np.dtype(dtype).itemsize


@pytest.mark.skipif(not row.CORNERS, reason="needs AVX-512")
@pytest.mark.parametrize(("dtype", "index"), [(np.float32, np.int64), (np.float64, np.int32)])
@pytest.mark.parametrize("rows", [4, 8, 10, 12])
def test_a_row_is_evaluated_in_one_pass(dtype, index, rows):
    """With and without weights; NaN in rows of other observations must have no effect."""
    direct = vectors.make_direct(rows)
    rng = np.random.default_rng(rows)
    lanes, first, at, top, lane = lanes_of(dtype), 5, 3, 2, 1
    wide = -(-rows // lanes) * lanes
    other, x = np.zeros((9, wide), dtype), np.zeros((2, wide), dtype)
    other[:, :rows], x[:, :rows] = rng.standard_normal((9, rows)), rng.standard_normal((2, rows))
    other[8] = np.nan

    def called(arrays, run, weight, out):
        out[:] = direct(arrays, run, weight)

    called = called if INTERPRETED else numba.njit(called)
    cases = itertools.product((1, 7, 16, 21), (0, 3, 40), (0, 1), (0, 1))
    for count, behind, weighted, keep in cases:
        indices = np.full(first + count + behind, 8, index)
        indices[first : first + count] = rng.integers(0, 8, count)
        v, r, w = (np.zeros(at - (-count // lanes) * lanes, dtype) for _ in range(3))
        part = slice(at, at + count)
        v[part] = rng.uniform(0.1, 2, count) if weighted else 1
        r[part] = rng.standard_normal(count)
        gram = rng.standard_normal((top + rows, wide)).astype(dtype)
        g = rng.standard_normal((2, wide)).astype(dtype)
        y = other[indices[first : first + count]]
        before, left = r[part].copy(), r[part] - y @ x[lane]
        H = keep * gram[top:] + 0.5 * (v[part, None] * y)[:, :rows].T @ y
        slope = keep * g[lane] + 0.5 * (v[part] * left) @ y
        out = np.zeros(2)
        given = RowArrays(other, indices, r, x, v, r, w, gram, g)
        called(given, Pass(first, at, count, keep, weighted, top, lane), dtype(0.5), out)
        tolerance = {"rtol": 1e3 * np.finfo(dtype).eps, "atol": 1e3 * np.finfo(dtype).eps}
        np.testing.assert_allclose(out, [v[part] @ left**2, v[part] @ before**2], **tolerance)
        np.testing.assert_allclose(r[part], left, **tolerance)
        np.testing.assert_array_equal(r[at + count :], 0)
        np.testing.assert_allclose(w[part], 0.5 * v[part], **tolerance)
        upper = np.triu_indices(rows)
        np.testing.assert_allclose(gram[top:][upper], H[upper], **tolerance)
        np.testing.assert_allclose(g[lane, :rows], slope[:rows], **tolerance)


# --- operations and their Python versions ---------------------------------------------------


def random(rng, dtype, *shape):
    return rng.standard_normal(shape).astype(dtype)


def products(rng, dtype):
    """Arguments of dot products; from `last` on the last index is repeated."""
    lanes = lanes_of(dtype)
    rows, x = random(rng, dtype, lanes + 2, 2 * lanes), random(rng, dtype, 3, 2 * lanes)
    yield "dots", (rows, 2, x, 1, random(rng, dtype, lanes + 1), 1)
    for index in (np.int32, np.int64):
        indices = rng.integers(0, 9, 3 * lanes).astype(index)
        other = random(rng, dtype, 9, 2 * lanes)
        some = (indices, lanes + 1, lanes + 4, other)
        yield "gather_dots", (rows, 2, x, 1, np.ones(lanes + 1, dtype), 1, *some)
        yield "long_dots", (np.ones(lanes + 2), 1, x, 2, *some)
    yield "copy", (rows, 1, random(rng, dtype, 3, 2 * lanes), 2)


def observations(rng, dtype):
    lanes = lanes_of(dtype)
    for count in (1, 5, 8, 16, 17, 37):
        out = random(rng, dtype, count + 2 * lanes + 3)
        yield "fetch", (out, 2, count, random(rng, dtype, count + 4), 3)
        yield "fetch_ones", (out, 2, count)
    n, at = 3 * lanes, lanes
    v, (r, s, w) = rng.integers(0, 3, at + n).astype(dtype), random(rng, dtype, 3, at + n)
    weights = dtype(0.25), dtype(0.75)
    yield "update_residuals", (v, r, s, w, at, n, *weights)
    yield "trial", (v, r, s, at, n, dtype(0.5))
    yield "move", (v, r, s, at, *weights)


def comparisons(rng, dtype):
    values = rng.integers(-3, 4, (3, 2 * STRETCH + 5)).astype(dtype)
    values[1, [9, 11, 12]] = np.nan, np.inf, -np.inf
    for sign in (1, -1):
        for bound in (-np.inf, -1, 2, 3, np.inf):
            yield "at_least", (values, 1, 5, dtype(sign), dtype(bound))
    for bits in (1, 6 << 40, (1 << 63) - 1):
        yield "lowest", (bits,)
        yield "count_bits", (bits,)


def corrections(rng, dtype):
    lanes, tile = lanes_of(dtype), 2
    wide = 3 * lanes
    for n_terms, n_pieces in ((1, 0), (4, 1), (4, 9)):
        knots, values = np.sort(random(rng, dtype, n_pieces + 1)), random(rng, dtype, 2, wide)
        values[1, lanes + 1] = np.nan
        terms = Terms(
            knots[:-1].copy(), knots[1:].copy(),
            random(rng, dtype, 2, n_terms), random(rng, dtype, 3 * n_terms, wide),
            random(rng, dtype, 2, n_pieces), random(rng, dtype, 3 * n_pieces, wide),
        )  # fmt: skip
        yield "add_terms", (values, 1, lanes, tile, terms)


def make_callable(operation):
    return numba.njit(lambda *args: operation(*args))


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cases", [products, observations, comparisons, corrections])
def test_compiled_operations_equal_their_python_versions(cases, dtype):
    calls = {}
    for name, arguments in cases(np.random.default_rng(0), dtype):
        calls.setdefault(name, make_callable(getattr(vectors, name)))
        ours, expected = copy.deepcopy(arguments), copy.deepcopy(arguments)
        results = calls[name](*ours), getattr(reference, name)(*expected)
        close = {"rtol": 1e-6 if dtype is np.float32 else 1e-13, "atol": 200 * np.finfo(dtype).eps}
        if name == "at_least":
            assert results[0] % 2**64 == results[1], name
        elif results[1] is not None:
            np.testing.assert_allclose(*results, **close, err_msg=name)
        for one, other in zip(ours, expected, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(one, other, **close, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_observations_are_changed_by_values_at_their_indices(dtype, index):
    at, first, begin, span = 3, 2, 3 << 30, 1 << 31  # across 2³²

    @numba.njit
    def call(less, times, kept, all_kept, count, own, table, marks, indices):
        vectors.subtract_at(less, at, count, table, indices, first)
        vectors.multiply_at(times, at, count, table, indices, first)
        vectors.keep_sampled(kept, at, count, marks, indices, first, own, begin, span)
        vectors.keep_sampled(all_kept, at, count, marks, indices, first, own, 0, 1 << 32)
        vectors.hint(table, 10**9)

    for count in (1, 8, 21, 32):
        rng, lanes = np.random.default_rng(count), lanes_of(dtype)
        whole = -(-count // lanes) * lanes
        indices = rng.integers(0, 9, first + count).astype(index)
        table, marks = random(rng, dtype, 9), rng.integers(0, 1 << 32, 9)
        own, before = int(rng.integers(0, 1 << 32)), random(rng, dtype, 4, at + whole + 2)
        less, times, kept, all_kept = before.copy()
        call(less, times, kept, all_kept, count, own, table, marks, indices)
        here, of = slice(at, at + count), indices[first:]
        np.testing.assert_array_equal(less[here], before[0][here] - table[of])
        np.testing.assert_array_equal(times[here], before[1][here] * table[of])
        members = np.array([is_member(own, int(mark), begin, span) for mark in marks[of]])
        np.testing.assert_array_equal(kept[here], np.where(members, before[2][here], 0))
        np.testing.assert_array_equal(all_kept, before[3])
        outside = np.r_[:at, at + whole : at + whole + 2]
        changed = np.array([less, times, kept])
        np.testing.assert_array_equal(changed[:, outside], before[:3, outside])


def is_member(own, mark, begin, span):
    """The rule of samples with Python integers."""
    z = (own + mark) % 2**32
    for _ in range(2):
        z = (z ^ z >> 16) * 0x45D9F3B % 2**32
    return ((z ^ z >> 16) - begin) % 2**32 < span
