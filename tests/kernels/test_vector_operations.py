"""What the kernels' vector operations mean, against NumPy; intrinsics are called compiled."""

from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest

from fastemf.kernels import batch as batches
from fastemf.kernels import row, vectors
from fastemf.kernels.compilation import INTERPRETED
from fastemf.kernels.frames import Plan, Unset, code_of, pack
from fastemf.kernels.problem import Batch, Code, Problem, Reports, Rows, RowSweep, Sample
from fastemf.kernels.vectors.tiles import Pass, RowArrays
from fastemf.kernels.width import PANEL, STRETCH, TILE_ROWS, VECTOR_BYTES

DTYPES = [np.float32, np.float64]


def lanes_of(dtype):
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def run(unit, *args):
    """Call a unit on its own, its last arguments being frames."""
    numbers = [arg for arg in args if not hasattr(arg, "_fields")]
    frames = [arg for arg in args if hasattr(arg, "_fields")]
    if INTERPRETED:
        unit.function(*numbers, *frames)
        return
    packed = [pack(frame) for frame in frames]
    unit.from_python(*(p.type for p in packed))(*numbers, *(p.address for p in packed))


def a_batch(dtype, q, size, **arrays):
    """A batch whose arrays are those given, else small."""
    lanes = lanes_of(dtype)
    none = {name: np.zeros((1, lanes), dtype) for name in Batch._fields}
    for name in ("v", "r", "s", "w", "change", "largest"):
        none[name] = np.zeros(lanes, dtype)
    for name in ("f", "noise", "predicted", "share"):
        none[name] = np.zeros(size)
    for name in ("length", "at", "home", "active", "members", "begin"):
        none[name] = np.zeros(size, np.int64)
    none |= {"project": np.zeros(size, np.bool_), "afresh": np.zeros(size, np.bool_)}
    none |= {"picked": np.zeros(q, np.bool_), "size": size, "spare": 0, "chunk": 0}
    none["tall"] = -(-q // TILE_ROWS) * TILE_ROWS
    return Batch(**(none | arrays))


def a_sweep(dtype, other, batch, units=()):
    """A sweep without rows, for units that ask for no more than limits and indices."""
    limits = np.finfo(dtype)
    none, index = np.zeros(0, dtype), np.zeros(1, np.int64)
    sample = Sample(none, index[:0], index[:0], 0, 1 << 32)
    problem = Problem(
        other, none, sample, np.zeros((0, 2)), 0, 0.5, 0.5, float(limits.eps),
        float(limits.tiny), 0, 0, 0, np.zeros((0, 1), dtype),
    )  # fmt: skip
    rows = Rows(index, np.zeros(3, np.int32), none, none)
    reports = Reports(np.zeros((0, 1), dtype), np.zeros((0, 1)), np.zeros(0, np.int8), np.zeros(0))
    batch_type = None if INTERPRETED else pack(batch).type
    plan = Plan(index, index, 0, index, 1, 0, Unset(batch_type, Batch, {}))
    sweep = RowSweep(rows, problem, reports, plan, code_of(Code, {}))
    kind = None if INTERPRETED else pack(sweep).type
    return sweep._replace(code=code_of(Code, dict(units), kind, batch_type))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q", [1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 16, 17, 20, 31, 33, 40])
@pytest.mark.parametrize("keep", [False, True])
def test_gram_matrix_and_gradient_are_sums_over_observations(dtype, q, keep):
    rng = np.random.default_rng(q)
    lanes, count, home, at, batch_row = lanes_of(dtype), 21, 3, 5, 1
    wide = -(-q // lanes) * lanes
    tall = -(-q // TILE_ROWS) * TILE_ROWS
    source = np.zeros((count + home, wide), dtype)
    source[:, :q] = rng.standard_normal((count + home, q))
    w, r = (rng.standard_normal(count + at).astype(dtype) for _ in range(2))
    gram, g = rng.standard_normal((2 * tall, wide)).astype(dtype), np.zeros((2, wide), dtype)
    g[:, :q] = rng.standard_normal((2, q))
    before, g_before = gram.astype(np.float64), g.astype(np.float64)
    top = batch_row * tall
    batch = a_batch(
        dtype, q, 2, rows=source, w=w, r=r, gram=gram, g=g, ridge=np.zeros((2, q), dtype)
    )
    sweep = a_sweep(dtype, source, batch)
    run(row.add_products, batch_row, home, at, count, int(keep), 1, 0, sweep, batch)
    B = source[home:].astype(np.float64)
    expected = (B.T * w[at:]) @ B
    slope = B.T @ (w[at:].astype(np.float64) * r[at:])
    if keep:
        expected[:q] += before[top : top + q]
        slope += g_before[batch_row]
    tolerance = {"rtol": 0, "atol": 200 * np.finfo(dtype).eps}
    for b in range(q):
        np.testing.assert_allclose(gram[top + b, b:], expected[b, b:], **tolerance)
    np.testing.assert_allclose(g[batch_row], slope, **tolerance)
    np.testing.assert_array_equal(gram[:tall], before[:tall].astype(dtype))
    np.testing.assert_array_equal(g[0], g_before[0].astype(dtype))


@pytest.mark.skipif(not row.CORNERS, reason="takes more registers than there are")
@pytest.mark.parametrize(("dtype", "index"), [(np.float32, np.int64), (np.float64, np.int32)])
@pytest.mark.parametrize("rows", [4, 8, 10, 12])
def test_a_row_is_evaluated_in_one_pass(dtype, index, rows):
    """With and without weights, wherever it is: what is not finite in others' rows is not seen."""
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_are_gathered_and_multiplied(dtype, index):
    rng = np.random.default_rng(0)
    lanes = lanes_of(dtype)
    other = rng.standard_normal((50, 2 * lanes)).astype(dtype)
    x = rng.standard_normal((3, 2 * lanes)).astype(dtype)
    indices = rng.integers(0, 50, 2 * lanes).astype(index)
    rows, out, again = (
        np.zeros((lanes + 2, 2 * lanes), dtype),
        np.zeros(lanes + 1, dtype),
        np.zeros(lanes + 1, dtype),
    )

    @numba.njit
    def call(rows, x, out, again, indices, first, last, other):
        vectors.gather_dots(rows, 2, x, 1, out, 1, indices, first, last, other)
        vectors.dots(rows, 2, x, 1, again, 1)

    first, last = lanes + 1, lanes + 4  # three of them, then the last again and again
    call(rows, x, out, again, indices, first, last, other)
    wanted = indices[np.minimum(np.arange(first, first + lanes), last - 1)]
    np.testing.assert_array_equal(rows[2:], other[wanted])
    np.testing.assert_allclose(out[1:], other[wanted] @ x[1], atol=100 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(out, again)
    assert out[0] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0, 1, 3])
def test_long_products_are_those_of_float64(dtype, width):
    rng = np.random.default_rng(width)
    lanes = lanes_of(np.float64)
    other, x = (rng.standard_normal((9, width * lanes_of(dtype))).astype(dtype) for _ in range(2))
    indices = rng.integers(0, 9, 2 * lanes).astype(np.int32)
    out = np.full(lanes + 2, 9.0)

    @numba.njit
    def call(out, x, indices, first, last, other):
        vectors.long_dots(out, 1, x, 2, indices, first, last, other)

    first, last = 3, 5  # two of them, then the last again and again
    call(out, x, indices, first, last, other)
    wanted = indices[np.minimum(np.arange(first, first + lanes), last - 1)]
    expected = other[wanted].astype(np.float64) @ x[2].astype(np.float64)
    np.testing.assert_allclose(out[1:-1], expected, rtol=0, atol=1e-14)
    assert (out[[0, -1]] == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 5, 8, 16, 17, 37])
def test_values_are_fetched_with_zeros_behind(dtype, count):
    lanes = lanes_of(dtype)
    source = np.arange(1, count + 4, dtype=dtype)
    out, ones = np.full((2, count + 2 * lanes + 3), 9, dtype)

    @numba.njit
    def call(out, ones, count, source):
        vectors.fetch(out, 2, count, source, 3)
        vectors.fetch_ones(ones, 2, count)

    call(out, ones, count, source)
    whole = -(-count // lanes) * lanes
    for found, expected in ((out, source[3:]), (ones, np.ones(count))):
        np.testing.assert_array_equal(found[2 : 2 + count], expected)
        assert not found[2 + count : 2 + whole].any()
        assert (found[:2] == 9).all()
        assert (found[2 + whole :] == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 8, 21, 32])
def test_observations_are_changed_by_what_is_known_of_their_indices(dtype, index, count):
    rng = np.random.default_rng(count)
    lanes, at, first = lanes_of(dtype), 3, 2
    whole = -(-count // lanes) * lanes
    indices = rng.integers(0, 9, first + count).astype(index)
    table = rng.standard_normal(9).astype(dtype)
    marks, own = rng.integers(0, 1 << 32, 9), int(rng.integers(0, 1 << 32))
    less, times, kept, all_kept = np.zeros((4, at + whole + 2), dtype)
    for out in (less, times, kept, all_kept):
        out[at : at + count] = rng.standard_normal(count)
        out[:at] = out[at + whole :] = 9
    before = [out.copy() for out in (less, times, kept, all_kept)]
    begin, span = 3 << 30, 1 << 31  # around the end of the circle

    @numba.njit
    def call(less, times, kept, all_kept, table, marks, indices):
        vectors.subtract_at(less, at, count, table, indices, first)
        vectors.multiply_at(times, at, count, table, indices, first)
        vectors.keep_sampled(kept, at, count, marks, indices, first, own, begin, span)
        vectors.keep_sampled(all_kept, at, count, marks, indices, first, own, 0, 1 << 32)
        vectors.hint(table, 10**9)

    call(less, times, kept, all_kept, table, marks, indices)
    here, of = slice(at, at + count), indices[first:]
    np.testing.assert_array_equal(less[here], before[0][here] - table[of])
    np.testing.assert_array_equal(times[here], before[1][here] * table[of])
    counts = np.array([is_counted(own, int(mark), begin, span) for mark in marks[of]])
    np.testing.assert_array_equal(kept[here], np.where(counts, before[2][here], 0))
    np.testing.assert_array_equal(all_kept, before[3])
    for out in (less, times, kept):
        assert (out[:at] == 9).all()
        assert (out[at + whole :] == 9).all()


def is_counted(own, mark, begin, span):
    """The rule of samples in whole numbers of Python."""
    z = (own + mark) % 2**32
    for _ in range(2):
        z = (z ^ z >> 16) * 0x45D9F3B % 2**32
    return ((z ^ z >> 16) - begin) % 2**32 < span


@pytest.mark.parametrize("dtype", DTYPES)
def test_residuals_trials_and_moves(dtype):
    rng = np.random.default_rng(3)
    lanes = lanes_of(dtype)
    n, at = 3 * lanes, lanes
    v = rng.integers(0, 3, at + n).astype(dtype)
    r, s = rng.standard_normal((2, at + n)).astype(dtype)
    w = np.zeros(at + n, dtype)
    upper, lower, step = dtype(0.25), dtype(0.75), dtype(0.5)
    given, part = r.copy(), slice(at, at + n)

    @numba.njit
    def call(v, r, s, w, at, n, upper, lower, step):
        squares = vectors.update_residuals(v, r, s, w, at, n, upper, lower)
        return squares, vectors.trial(v, r, s, at, n, step)

    squares, trial = call(v, r, s, w, at, n, upper, lower, step)
    after = (given - s)[part]
    np.testing.assert_array_equal(r[part], after)
    np.testing.assert_array_equal(r[:at], given[:at])
    np.testing.assert_array_equal(w[part], v[part] * np.where(after < 0, lower, upper))
    close = {"rtol": 1e-6 if dtype is np.float32 else 1e-13}
    exact = v[part] * after.astype(np.float64) ** 2
    start = v[part] * given[part].astype(np.float64) ** 2
    halves = [exact[after >= 0].sum(), exact[after < 0].sum()]
    np.testing.assert_allclose(squares, [*halves, start.sum()], **close)
    there = after - step * s[part]
    exact = v[part] * there.astype(np.float64) ** 2
    flips = np.sum(((there < 0) != (after < 0)) & (v[part] > 0))
    halves = [exact[there >= 0].sum(), exact[there < 0].sum()]
    np.testing.assert_allclose(trial, [*halves, flips], **close)

    @numba.njit
    def move(v, r, s, at, upper, lower):
        return vectors.move(v, r, s, at, upper, lower)

    change = s.copy()
    bits = move(v, r, s, at, upper, lower)
    part = slice(at, at + lanes)
    there = after[:lanes] - change[part]
    np.testing.assert_array_equal(r[part], there)
    weight = np.where(there < 0, lower, upper) - np.where(after[:lanes] < 0, lower, upper)
    np.testing.assert_array_equal(s[part], v[part] * weight)
    assert [bits >> lane & 1 for lane in range(lanes)] == (s[part] != 0).tolist()
    np.testing.assert_array_equal(s[at + lanes :], change[at + lanes :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q", [1, 3, 4, 7, 10, 21, 32])
def test_a_batch_is_factored_and_solved_lane_by_lane(dtype, q):
    rng = np.random.default_rng(q)
    lanes = lanes_of(dtype)
    wide = -(-q // lanes) * lanes
    tall = -(-q // TILE_ROWS) * TILE_ROWS
    n, size = -(-q // PANEL) * PANEL, lanes + 3
    limits = np.finfo(dtype)
    gram, ridge = np.zeros((size, tall, wide)), rng.uniform(0.5, 1, (size, q))
    for member in range(size):
        B = rng.standard_normal((2 * q + 3, q))
        gram[member, :q, :q] = B.T @ B
    gram[2, :q, :q], ridge[2] = np.outer(np.ones(q), np.ones(q)), 0  # rank one
    g = np.zeros((size, wide))
    g[:, :q] = rng.standard_normal((size, q))
    members = np.array([2, size - 1, 0, *range(3, lanes)])[:lanes]
    members[-2:] = 1  # a lane to spare repeats the last member
    begin, triangle = np.zeros(n, np.int64), 0
    for b in range(n):
        begin[b] = triangle - b // lanes * lanes
        triangle += wide - b // lanes * lanes

    def scratch(*shape):
        return np.zeros(shape, dtype)

    x, p = scratch(size, wide), scratch(size, wide)
    predicted, share = np.full((2, size), -1.0)
    batch = a_batch(
        dtype, q, size, members=members, length=np.full(size, 2 * q + 3), x=x, p=p,
        gram=gram.reshape(-1, wide).astype(dtype), ridge=ridge.astype(dtype), g=g.astype(dtype),
        begin=begin, U=scratch(triangle, lanes), z=scratch(wide, lanes),
        diagonal=scratch(n, lanes), inverse=scratch(n, lanes), floor=scratch(1, lanes),
        kept=scratch(1, lanes), L=scratch(q, q), M=scratch(q + 2, q),
        predicted=predicted, share=share,
    )  # fmt: skip
    units = {"minimum_norm": batches.minimum_norm}
    run(batches.directions, a_sweep(dtype, x, batch, units), batch)
    for member in range(size):
        if member not in members:
            assert predicted[member] == share[member] == -1
            assert not p[member].any()
            continue
        H = gram[member, :q, :q] + np.diag(ridge[member])
        expected = np.linalg.pinv(H, hermitian=True, rcond=1e-9) @ g[member, :q]
        np.testing.assert_allclose(p[member, :q], expected, rtol=0, atol=3e4 * limits.eps)
        assert not p[member, q:].any()
        np.testing.assert_allclose(
            predicted[member], expected @ g[member, :q], atol=1e5 * limits.eps
        )
        if member == 2 and q > 1:
            assert share[member] == 0
        else:
            L = np.linalg.cholesky(H)
            least = np.min(np.diag(L) ** 2 / np.diag(H))
            np.testing.assert_allclose(share[member], least, rtol=1e4 * limits.eps)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_reaches_a_bound_has_its_bit_set(dtype, sign):
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (3, 2 * STRETCH + 5)).astype(dtype)
    values[1, [9, 11, 12]] = np.nan, np.inf, -np.inf

    @numba.njit
    def call(values, sign, bound):
        found = vectors.at_least(values, 1, 5, sign, bound)
        return found, vectors.count_bits(found), vectors.lowest(found)

    for bound in (-np.inf, -1, 2, 3, np.inf):
        reached = np.flatnonzero(sign * values[1, 5 : 5 + STRETCH] >= bound)
        found, count, first = call(values, dtype(sign), dtype(bound))
        bits = [place for place in range(STRETCH) if int(found) >> place & 1]
        assert bits == reached.tolist()
        assert count == reached.size
        assert first == reached[0]


@pytest.mark.parametrize("n_pieces", [0, 1, 9])
@pytest.mark.parametrize("n_terms", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_are_added_to_a_vector(dtype, n_terms, n_pieces):
    rng = np.random.default_rng(n_pieces)
    lanes, tile, row = lanes_of(dtype), 2, 1
    wide = 3 * lanes

    def numbers(*shape):
        return rng.standard_normal(shape).astype(dtype)

    knots = np.sort(numbers(n_pieces + 1))
    terms = vectors.Terms(
        knots[:-1].copy(), knots[1:].copy(), numbers(2, n_terms), numbers(3 * n_terms, wide),
        numbers(2, n_pieces), numbers(3 * n_pieces, wide),
    )  # fmt: skip
    before = numbers(2, wide)
    before[row, lanes + 1] = np.nan
    values = before.copy()

    @numba.njit
    def call(values, terms):
        vectors.add_terms(values, row, lanes, tile, terms)

    call(values, terms)
    here, p = slice(lanes, 2 * lanes), before[row, lanes : 2 * lanes].astype(np.float64)
    expected = p + terms.row_terms[row] @ terms.col_terms[tile * n_terms :][:n_terms, here]
    for a in range(n_pieces):
        short = np.clip(terms.high[a] - p, 0, terms.high[a] - terms.low[a])
        slopes = terms.row_slopes[row, a] + terms.col_slopes[tile * n_pieces + a, here]
        expected -= slopes * short
    np.testing.assert_allclose(values[row, here], expected, atol=200 * np.finfo(dtype).eps)
    values[row, here] = before[row, here]
    np.testing.assert_array_equal(values, before)
