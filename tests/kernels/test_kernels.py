"""Row solves against the paper's quadratic program, certificates and identities."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import row_gradient, row_objective, row_qp
from strategies import CYCLE, row_problems

from fastemf.kernels import problem as kernels
from fastemf.kernels.compilation import INTERPRETED
from fastemf.kernels.sweep import sweep_rows
from fastemf.kernels.vector_width import VECTOR_BYTES, pad_columns  # noqa: F401
from fastemf.solver.half_sweep import NO_MARKS, SolvedRows
from fastemf.sources.cell_sample import ALL_CELLS


def solve(B, b, omega, ridge=0.0, v=None, start=None, dtype=np.float64, steps=0):
    """Solve one row; return x, its stats and its status."""
    d, k = B.shape
    start = np.zeros((1, k)) if start is None else np.reshape(start, (1, k))
    blocks, indptr = np.array([0, 1]), np.array([0, d])
    out, stats, status = sweep(blocks, indptr, B, b, omega, ridge, v, start, dtype, steps)
    return out[0], stats[0], int(status[0])


def sweep(blocks, indptr, B, b, omega, ridge, v, start, dtype, steps=0):
    """Solve rows whose observations have their own rows of B; return x, stats and status."""
    limits, none, n = np.finfo(dtype), np.empty(0, dtype), len(start)
    start = start.astype(dtype)
    indices = np.arange(indptr[-1], dtype=np.int32)
    v = none if v is None else v.astype(dtype)
    rows = kernels.Rows(indptr, indices, np.ascontiguousarray(b, dtype), v)
    problem = kernels.Problem(
        pad_columns(B.astype(dtype)), none, kernels.Sample(none, NO_MARKS, NO_MARKS, *ALL_CELLS),
        np.full((n, 2), float(ridge)), start.shape[1],
        float(dtype(omega)), float(dtype(1 - omega)), float(limits.eps), float(limits.tiny),
        kernels.MAX_NEWTON, steps, 0, start,
    )  # fmt: skip
    solved = SolvedRows.empty(n, start.shape[1], start.dtype)
    sweep_rows(blocks, rows, problem, kernels.Reports(*solved), n_threads=1)
    return solved[:3]


def gradient_scale(B, b, x, ridge, v):
    """Return the size of the terms of the gradient before cancellation."""
    v = np.ones(len(b)) if v is None else v
    size = np.abs(b) + np.abs(B) @ np.abs(x)
    return np.linalg.norm(np.abs(B).T @ (v * size) + ridge * np.abs(x)) + 1e-300


def test_the_kernel_converges_where_plain_reweighting_cycles():
    B, b = CYCLE
    x, seen = np.zeros(2), []
    for _ in range(12):
        w = np.where(b - B @ x >= 0, 0.01, 0.99)
        x = np.linalg.solve(B.T @ (B * w[:, None]), B.T @ (w * b))
        seen.append(x)
    assert np.allclose(seen[-1], seen[-5], atol=1e-12)
    assert not np.allclose(seen[-1], seen[-2])

    found, stats, status = solve(B, b, 0.01)
    assert status == kernels.SOLVED
    np.testing.assert_allclose(found, [-0.60354149, 0.59067389], atol=1e-8)
    objective = row_objective(B, b, found, 0.01)
    assert objective == pytest.approx(0.0882616510, abs=1e-9)
    reported = 0.01 * stats[kernels.ABOVE] + 0.99 * stats[kernels.BELOW]
    assert reported == pytest.approx(objective, rel=1e-12)


def qp_cases(n):
    """Yield row problems with d < k, collinear columns, ties and levels from 0.001 to 0.999."""
    rng = np.random.default_rng(20170204)
    for case in range(n):
        d, k = int(rng.integers(1, 40)), int(rng.integers(1, 7))
        B, b = rng.standard_normal((d, k)), rng.standard_normal(d) ** 3
        if case % 5 == 1:
            B, b = np.round(2 * B), np.round(b)
        elif case % 5 == 2:
            B[:, -1] = B[:, 0]
        elif case % 5 == 3:
            B, b = B[rng.integers(0, d, d)], b[rng.integers(0, d, d)]
        omega = float(rng.choice([0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 0.9, 0.99, 0.999]))
        ridge = float(rng.choice([0.0, 0.0, 1e-3, 1.0]))
        v = rng.uniform(0.2, 4, d) if case % 3 == 0 else None
        yield B, b, omega, ridge, v


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_never_above_the_papers_qp():
    worst = -np.inf
    for B, b, omega, ridge, v in qp_cases(40 if INTERPRETED else 200):
        x, _, status = solve(B, b, omega, ridge, v)
        assert status in (kernels.SOLVED, kernels.MINIMUM_NORM)
        at_zero = row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
        excess = row_objective(B, b, x, omega, ridge, v) - row_qp(B, b, omega, ridge, v)
        worst = max(worst, excess / at_zero if at_zero > 0 else excess)
    assert worst <= 1e-9


def solve_with_certificate(B, b, omega, ridge, v=None, tol=1e-8):
    """Solve one row and check that its gradient vanishes; return x, its stats and its status."""
    x, stats, status = solve(B, b, omega, ridge, v)
    assert status in (kernels.SOLVED, kernels.MINIMUM_NORM)
    residual = row_gradient(B, b, x, omega, ridge, v)
    assert np.linalg.norm(residual) <= tol * gradient_scale(B, b, x, ridge, v)
    return x, stats, status


@given(row_problems())
@example((*CYCLE, 0.01, 0.0, None))
def test_certificate_and_independence_of_the_start(problem):
    B, b, omega, ridge, v = problem
    x, _, _ = solve_with_certificate(*problem)
    start = np.random.default_rng(0).standard_normal(B.shape[1])
    again, _, _ = solve(B, b, omega, ridge, v, start=start)
    at_zero = row_objective(B, b, 0 * x, omega, ridge, v)
    excess = row_objective(B, b, again, omega, ridge, v) - row_objective(B, b, x, omega, ridge, v)
    assert abs(excess) <= 1e-10 * at_zero + 1e-26


@given(row_problems())
def test_singular_rows_have_the_minimum_norm_solution(problem):
    B, b, omega, _, v = problem
    start = np.random.default_rng(1).standard_normal(B.shape[1])
    x, _, status = solve(B, b, omega, 0.0, v, start=start)
    if len(b) < B.shape[1]:
        assert status == kernels.MINIMUM_NORM
    if status == kernels.MINIMUM_NORM:
        unseen = x - np.linalg.pinv(B) @ (B @ x)
        assert np.linalg.norm(unseen) <= 1e-6 * (np.linalg.norm(x) + np.linalg.norm(start))


@pytest.mark.compiled
@pytest.mark.parametrize("d", [127, 128, 129, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("k", [1, 3, 4, 5, 17])
def test_long_rows_across_chunk_and_slot_boundaries(d, k):
    rng = np.random.default_rng(d * k)
    B, b = rng.standard_normal((d, k)), rng.standard_normal(d) ** 3
    for omega in (0.01, 0.5, 0.9):
        x, stats, status = solve_with_certificate(B, b, omega, 0.5, tol=1e-12)
        assert status == kernels.SOLVED
        r = b - B @ x
        found, squares = stats[[kernels.ABOVE, kernels.BELOW]], r**2
        np.testing.assert_allclose(found.sum(), squares.sum(), rtol=1e-10)
        if omega != 0.5:  # else only the sum is meaningful
            expected = squares[r >= 0].sum(), squares[r < 0].sum()
            np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 16, 17, 20, 31, 33, 40])
def test_at_the_middle_level_a_row_is_a_regression(k, dtype):
    """Start near the solution, where the predicted loss is used, and far from it."""
    rng = np.random.default_rng(k)
    eps = np.finfo(dtype).eps
    for d in (1, 15, 16, 40, 300):
        B, b = rng.standard_normal((d, k)).astype(dtype), rng.standard_normal(d).astype(dtype)
        for v in (None, rng.uniform(0.2, 4, d).astype(dtype)):
            each = np.ones(d) if v is None else v.astype(float)
            root = np.sqrt(0.5 * each)[:, None]
            padded = np.vstack([root * B, np.sqrt(0.7) * np.eye(k)])
            expected = np.linalg.lstsq(padded, np.append(root[:, 0] * b, np.zeros(k)))[0]
            for start in (expected + 0.03 * rng.standard_normal(k), 9 * rng.standard_normal(k)):
                x, stats, status = solve(B, b, 0.5, 0.7, v, start=start, dtype=dtype)
                assert status == kernels.SOLVED
                assert stats[kernels.ITERATIONS] <= 2  # the Gram matrix is that of the data
                np.testing.assert_allclose(x, expected, rtol=2e3 * eps, atol=2e3 * eps)
                loss = np.sum(each * (b - B.astype(float) @ x) ** 2)
                found = stats[kernels.ABOVE] + stats[kernels.BELOW]
                # Residuals are differences of numbers of this magnitude.
                size = np.sqrt(each @ (np.abs(b) + np.abs(B) @ np.abs(start)) ** 2)
                assert abs(np.sqrt(found) - np.sqrt(loss)) <= 4 * eps * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [3, 8, 10, 12, 14, 21, 33])
def test_a_row_is_bitwise_identical_alone_and_in_a_batch(k, dtype):
    """At ω = 0.5 the memory after a row is read too."""
    rng = np.random.default_rng(k)
    lengths = np.array([1, 15, 16, 17, 3, 40, 8, 300, 2])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    B = rng.standard_normal((indptr[-1], k)).astype(dtype)
    b, start = rng.standard_normal(indptr[-1]).astype(dtype), np.ones((lengths.size, k), dtype)
    blocks = np.array([0, 4, lengths.size])
    out, stats, _ = sweep(blocks, indptr, B, b, 0.5, 0.7, None, start, dtype)
    for i in range(lengths.size):
        part = slice(indptr[i], indptr[i + 1])
        x, alone, _ = solve(B[part], b[part], 0.5, 0.7, start=start[i], dtype=dtype)
        np.testing.assert_array_equal(out[i], x)
        np.testing.assert_array_equal(stats[i], alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_an_exact_fit_is_not_a_difference(dtype):
    """There the predicted decrease is nearly all of f, and the rest is rounding."""
    rng = np.random.default_rng(3)
    B, true = rng.standard_normal((60, 10)).astype(dtype), rng.standard_normal(10)
    b = B.astype(float) @ true
    for start in (np.zeros(10), true + 1e-3, true):
        x, stats, status = solve(B, b, 0.5, 0.0, start=start, dtype=dtype)
        assert status == kernels.SOLVED
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(x, true, rtol=100 * eps, atol=100 * eps)
        assert 0 <= stats[kernels.ABOVE] + stats[kernels.BELOW] <= (20 * eps) ** 2 * np.sum(b**2)


@pytest.mark.compiled
def test_extreme_levels_take_few_newton_iterations():
    rng = np.random.default_rng(5)
    most = 0
    for _ in range(3000):
        d, k = int(rng.integers(1, 40)), int(rng.integers(1, 7))
        B = rng.integers(-5, 6, (d, k)).astype(float)
        b = rng.integers(-9, 10, d).astype(float)
        _, stats, status = solve(B, b, float(rng.choice([0.001, 0.01, 0.99, 0.999])))
        assert status in (kernels.SOLVED, kernels.MINIMUM_NORM)
        most = max(most, stats[kernels.ITERATIONS])
    assert most <= 20


def test_an_overflow_is_a_status():
    B = np.array([[1e200, 1.0], [1.0, 1e200], [1.0, 1.0]])
    with np.errstate(all="ignore"):  # warnings of NumPy without the JIT
        _, _, status = solve(B, np.array([1e200, 1.0, 1.0]), 0.1)
        _, _, single = solve(np.full((3, 1), 1e-25), np.full(3, 1e18), 0.3, dtype=np.float32)
    assert status == single == kernels.NOT_FINITE


@pytest.mark.slow
@given(row_problems(), st.integers(1, 5))
def test_conjugate_gradients_never_raise_the_objective(problem, steps):
    B, b, omega, ridge, v = problem
    start = np.linspace(-1, 1, B.shape[1])
    x, _, status = solve(B, b, omega, ridge, v, start=start, steps=steps)
    assert status == kernels.SOLVED
    before = row_objective(B, b, start, omega, ridge, v)
    assert row_objective(B, b, x, omega, ridge, v) <= before * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "k"), [(30, 4), (700, 6), (3, 5)])
def test_as_many_conjugate_steps_as_unknowns_solve_a_quadratic(d, k, dtype):
    rng = np.random.default_rng(d)
    B, b = rng.standard_normal((d, k)), rng.standard_normal(d)
    x, _, _ = solve(B, b, 0.5, 0.5, dtype=dtype, steps=k)
    expected = np.linalg.solve(0.5 * B.T @ B + 0.5 * np.eye(k), 0.5 * B.T @ b)
    np.testing.assert_allclose(x, expected, atol=2e3 * np.finfo(dtype).eps)
