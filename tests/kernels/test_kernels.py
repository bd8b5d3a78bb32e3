"""The exact row solve, against the paper's quadratic program and its own certificate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import row_gradient, row_objective, row_qp
from strategies import levels, row_problems

from fastemf.kernels import problem as kernels
from fastemf.kernels import row
from fastemf.kernels.sweep import sweep_rows
from fastemf.kernels.width import VECTOR_BYTES, padded  # noqa: F401
from fastemf.loss import sign_weights


def solve(B, b, omega, ridge=0.0, v=None, start=None, dtype=np.float64, steps=0):
    """One row through a sweep; returns x, its stats and its status."""
    d, k = B.shape
    out = np.empty((1, k), dtype)
    stats, status = np.zeros((1, kernels.N_STATS)), np.zeros(1, np.int8)
    start = np.zeros((1, k), dtype) if start is None else np.array(start, dtype).reshape(1, k)
    limits = np.finfo(dtype)
    v = np.empty(0, dtype) if v is None else v.astype(dtype)
    sweep_rows(
        np.array([0, 1]),
        kernels.Rows(
            np.array([0, d]), np.arange(d, dtype=np.int32), np.ascontiguousarray(b, dtype), v
        ),
        kernels.Problem(
            padded(B.astype(dtype)), np.empty(0, dtype),
            kernels.Sample(np.empty(0, dtype), np.empty(0, int), np.empty(0, int), 0, 1 << 32),
            np.array([[float(ridge), 0.0]]), k,
            float(dtype(omega)), float(dtype(1 - omega)), float(limits.eps), float(limits.tiny),
            kernels.MAX_NEWTON, steps, 0, start,
        ),
        kernels.Reports(out, stats, status, np.empty(0)),
        n_threads=1,
    )  # fmt: skip
    return out[0], stats[0], int(status[0])


def gradient_scale(B, b, x, ridge, v):
    """What the parts of the gradient add up to before they cancel."""
    v = np.ones(len(b)) if v is None else v
    size = np.abs(b) + np.abs(B) @ np.abs(x)
    return np.linalg.norm(np.abs(B).T @ (v * size) + ridge * np.abs(x)) + 1e-300


CYCLE = (
    np.array([[-1, 2], [-3, -8], [-5, 0], [1, -1], [0, -5]], float),
    np.array([2, 0, 3, -1, -3], float),
)


def test_plain_reweighting_cycles_and_the_kernel_does_not():
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
    assert row_objective(B, b, found, 0.01) == pytest.approx(0.0882616510, abs=1e-9)
    assert 0.01 * stats[kernels.ABOVE] + 0.99 * stats[kernels.BELOW] == pytest.approx(
        row_objective(B, b, found, 0.01), rel=1e-12
    )


def qp_cases(n):
    """Row problems with d < k, collinear columns, ties and levels from 0.001 to 0.999."""
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
    for B, b, omega, ridge, v in qp_cases(40 if _interpreted() else 520):
        x, _, status = solve(B, b, omega, ridge, v)
        assert status in (kernels.SOLVED, kernels.MINIMUM_NORM)
        at_zero = row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
        excess = row_objective(B, b, x, omega, ridge, v) - row_qp(B, b, omega, ridge, v)
        worst = max(worst, excess / at_zero if at_zero > 0 else excess)
    assert worst <= 1e-9


def _interpreted():
    from conftest import INTERPRETED

    return INTERPRETED


@given(row_problems())
@example((*CYCLE, 0.01, 0.0, None))
def test_certificate_and_independence_of_the_start(problem):
    B, b, omega, ridge, v = problem
    x, _, status = solve(B, b, omega, ridge, v)
    assert status in (kernels.SOLVED, kernels.MINIMUM_NORM)
    residual = row_gradient(B, b, x, omega, ridge, v)
    assert np.linalg.norm(residual) <= 1e-8 * gradient_scale(B, b, x, ridge, v)

    start = np.random.default_rng(0).standard_normal(B.shape[1])
    again, _, _ = solve(B, b, omega, ridge, v, start=start)
    at_zero = row_objective(B, b, 0 * x, omega, ridge, v)
    excess = row_objective(B, b, again, omega, ridge, v) - row_objective(B, b, x, omega, ridge, v)
    assert abs(excess) <= 1e-10 * at_zero + 1e-26


@given(row_problems())
def test_singular_rows_get_the_minimum_norm(problem):
    B, b, omega, _, v = problem
    start = np.random.default_rng(1).standard_normal(B.shape[1])
    x, _, status = solve(B, b, omega, 0.0, v, start=start)
    if len(b) < B.shape[1]:
        assert status == kernels.MINIMUM_NORM
    if status == kernels.MINIMUM_NORM:
        unseen = x - np.linalg.pinv(B) @ (B @ x)
        assert np.linalg.norm(unseen) <= 1e-6 * (np.linalg.norm(x) + np.linalg.norm(start))


@given(row_problems(max_d=12, max_k=3), levels)
def test_weight_two_is_the_observation_twice(problem, omega):
    B, b, _, ridge, _ = problem
    twice = np.concatenate([np.arange(len(b)), np.arange(len(b))])
    x, _, _ = solve(B, b, omega, ridge, np.full(len(b), 2.0))
    y, _, _ = solve(B[twice], b[twice], omega, ridge)
    f = [row_objective(B[twice], b[twice], z, omega, ridge) for z in (x, y, 0 * x)]
    assert abs(f[0] - f[1]) <= 1e-11 * f[2]


@given(row_problems(max_d=12, max_k=3))
def test_negation_mirrors_the_level(problem):
    B, b, omega, ridge, v = problem
    x, _, _ = solve(B, b, omega, ridge, v)
    y, _, _ = solve(B, -b, 1 - omega, ridge, v)
    f = [row_objective(B, b, z, omega, ridge, v) for z in (x, -y, 0 * x)]
    assert abs(f[0] - f[1]) <= 1e-10 * f[2]


@pytest.mark.compiled
@pytest.mark.parametrize("d", [127, 128, 129, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("k", [1, 3, 4, 5, 17])
def test_long_rows_across_chunk_and_slot_boundaries(d, k):
    rng = np.random.default_rng(d * k)
    B, b = rng.standard_normal((d, k)), rng.standard_normal(d) ** 3
    for omega in (0.01, 0.5, 0.9):
        x, stats, status = solve(B, b, omega, ridge=0.5)
        assert status == kernels.SOLVED
        g = row_gradient(B, b, x, omega, 0.5)
        assert np.linalg.norm(g) <= 1e-12 * gradient_scale(B, b, x, 0.5, None)
        r = b - B @ x
        found, squares = stats[[kernels.ABOVE, kernels.BELOW]], r**2
        np.testing.assert_allclose(found.sum(), squares.sum(), rtol=1e-10)
        if omega != 0.5:  # else both weigh the same, and their sum alone is known
            expected = squares[r >= 0].sum(), squares[r < 0].sum()
            np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 3, 4, 5, 8, 9, 10, 11, 12, 13, 17])
def test_at_the_middle_level_a_row_is_a_regression(k, dtype):
    """From near the solution, where the step's prediction is the loss, and from far away."""
    rng = np.random.default_rng(k)
    eps = np.finfo(dtype).eps
    for d in (1, 15, 16, 40, 300):
        B, b = rng.standard_normal((d, k)).astype(dtype), rng.standard_normal(d).astype(dtype)
        for v in (None, rng.uniform(0.2, 4, d).astype(dtype)):
            each = np.ones(d) if v is None else v.astype(float)
            root = np.sqrt(0.5 * each)[:, None]
            padding = np.sqrt(0.7) * np.eye(k)
            expected = np.linalg.lstsq(
                np.vstack([root * B, padding]), np.append(root[:, 0] * b, np.zeros(k)), rcond=None
            )[0]
            for start in (expected + 0.03 * rng.standard_normal(k), 9 * rng.standard_normal(k)):
                x, stats, status = solve(B, b, 0.5, 0.7, v, start=start, dtype=dtype)
                assert status == kernels.SOLVED
                np.testing.assert_allclose(x, expected, rtol=2e3 * eps, atol=2e3 * eps)
                loss = np.sum(each * (b - B.astype(float) @ x) ** 2)
                found = stats[kernels.ABOVE] + stats[kernels.BELOW]
                # Residuals are differences of numbers of this size.
                size = np.sqrt(each @ (np.abs(b) + np.abs(B) @ np.abs(start)) ** 2)
                assert abs(np.sqrt(found) - np.sqrt(loss)) <= 4 * eps * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [3, 8, 10, 12, 14])
def test_a_row_is_the_same_alone_and_among_others(k, dtype):
    """At the middle level, where what follows a row in memory is read beside it."""
    rng = np.random.default_rng(k)
    lengths = np.array([1, 15, 16, 17, 3, 40, 8, 300, 2])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    B = rng.standard_normal((indptr[-1], k)).astype(dtype)
    b, start = rng.standard_normal(indptr[-1]).astype(dtype), np.ones((lengths.size, k), dtype)
    limits, none = np.finfo(dtype), np.empty(0, int)
    out, stats = np.empty_like(start), np.zeros((lengths.size, kernels.N_STATS))
    sweep_rows(
        np.array([0, 4, lengths.size]),
        kernels.Rows(indptr, np.arange(indptr[-1], dtype=np.int32), b, np.empty(0, dtype)),
        kernels.Problem(
            padded(B), np.empty(0, dtype),
            kernels.Sample(np.empty(0, dtype), none, none, 0, 1 << 32),
            np.full((lengths.size, 2), 0.7), k, 0.5, 0.5, float(limits.eps), float(limits.tiny),
            kernels.MAX_NEWTON, 0, 0, start,
        ),
        kernels.Reports(out, stats, np.zeros(lengths.size, np.int8), np.empty(0)),
        n_threads=1,
    )  # fmt: skip
    for i in range(lengths.size):
        part = slice(indptr[i], indptr[i + 1])
        x, alone, _ = solve(B[part], b[part], 0.5, 0.7, start=start[i], dtype=dtype)
        np.testing.assert_array_equal(out[i], x)
        np.testing.assert_array_equal(stats[i], alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_an_exact_fit_is_not_a_difference(dtype):
    """What a step predicts is nearly all of f there, and what is left is rounding."""
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_keep_their_dtype(dtype):
    rng = np.random.default_rng(2)
    B, b = rng.standard_normal((50, 3)), rng.standard_normal(50)
    x, _, status = solve(B, b, 0.1, ridge=0.1, dtype=dtype)
    y, _, _ = solve(B, b, 0.1, ridge=0.1)
    assert x.dtype == dtype
    assert status == kernels.SOLVED
    np.testing.assert_allclose(x, y, rtol=100 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps * 10)


def test_an_overflow_is_a_status():
    B = np.array([[1e200, 1.0], [1.0, 1e200], [1.0, 1.0]])
    with np.errstate(all="ignore"):  # NumPy's own warnings, without the JIT
        _, _, status = solve(B, np.array([1e200, 1.0, 1.0]), 0.1)
    assert status == kernels.NOT_FINITE


def test_the_sign_rule_is_the_specifications():
    r = np.array([-1.0, -0.0, 0.0, 1e-300, -1e-300])
    ours = [row.sign_weight(value, 0.1, 0.9) for value in r]
    np.testing.assert_array_equal(ours, sign_weights(r, 0.1))
    assert ours[2] == 0.1


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


@pytest.mark.subprocess
@pytest.mark.compiled
def test_machines_with_narrower_vectors(tmp_path):
    code = """
import sys
import llvmlite.binding as llvm
sys.path[:0] = sys.argv[1:]
import numba
numba.njit(lambda: 0)()  # Numba itself asks first, and gets the truth
features = llvm.get_host_cpu_features
llvm.get_host_cpu_features = dict  # as if there were no wide registers
import test_kernels as t
llvm.get_host_cpu_features = features
assert t.VECTOR_BYTES == 32
for case in t.qp_cases(100):
    B, b, omega, ridge, v = case
    x, _, status = t.solve(B, b, omega, ridge, v)
    g = t.row_gradient(B, b, x, omega, ridge, v)
    assert t.np.linalg.norm(g) <= 1e-8 * t.gradient_scale(B, b, x, ridge, v)
for d, k in ((129, 5), (1025, 17), (3000, 4)):
    rng = t.np.random.default_rng(d)
    B, b = rng.standard_normal((d, k)), rng.standard_normal(d) ** 3
    x, _, status = t.solve(B, b, 0.1, 0.5)
    g = t.row_gradient(B, b, x, 0.1, 0.5)
    assert t.np.linalg.norm(g) <= 1e-12 * t.gradient_scale(B, b, x, 0.5, None)
print("same")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, Path(__file__).parents[:2])],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "same", done.stderr
