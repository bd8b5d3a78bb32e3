"""Regressions: cases that failed once, with the cause."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_kernels import solve
from threadpoolctl import threadpool_info

import fastemf
from fastemf.kernels import problem as kernels
from fastemf.kernels.threads import single_threaded_blas

pytestmark = pytest.mark.filterwarnings(
    "ignore::fastemf.ConvergenceWarning", "ignore:.*have no observations",
    "ignore:.*fewer than k", "ignore:.*are zero",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.compiled
def test_intercepts_remain_when_the_ridge_shrinks_the_factors_to_zero():
    # The constant column was scaled like the factors and underflowed with them.
    worst = 0.0
    for seed in range(20, 40):
        rng = np.random.default_rng(seed)
        R = (rng.random((20, 2)) @ rng.random((2, 15))).astype(np.float32)
        for omega in (0.001, 0.1, 0.999):
            fit = fastemf.complete(R, omega, 3, reg=1.0, intercepts=True)
            falls = [record.relative_decrease for record in fit.history if record.accepted]
            worst = max(worst, -min(falls))
    assert worst <= 1e-5


def test_a_row_that_starts_with_zero_residuals_reaches_the_minimum_norm():
    # Rounding in f of 1e-32 determined the length of the last step.
    rng = np.random.default_rng(0)
    for _ in range(100):
        B, x = rng.standard_normal((2, 4)), rng.standard_normal(4)
        found, _, status = solve(B, B @ x, float(rng.choice([0.01, 0.5, 0.99])), start=x)
        assert status == kernels.MINIMUM_NORM
        np.testing.assert_allclose(found, np.linalg.pinv(B) @ (B @ x), atol=1e-10)


@pytest.mark.parametrize("lam", [1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-8])
def test_a_tiny_ridge_on_a_short_row(lam):
    # A full step without sign changes was accepted as exact although H was nearly singular.
    rng = np.random.default_rng(1)
    for _ in range(50):
        B = rng.standard_normal((1, 3))
        x, _, _ = solve(B, np.array([1.0]), 0.5, ridge=lam)
        expected = 0.5 * B[0] / (0.5 * B[0] @ B[0] + lam)
        np.testing.assert_allclose(x, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.thorough
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_deficient_data_without_a_ridge_do_not_explode(dtype):
    # Factor columns of rounding errors counted as full rank; float32 gave NaN.
    exploded = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        M = np.round(3 * np.outer(rng.random(12), rng.random(10)))
        M[rng.random(M.shape) > 0.4] = np.nan
        if np.isnan(M).all():
            continue
        fit = fastemf.complete(M.astype(dtype), 0.1, 6, reg=0, solver=fastemf.Solver(anneal=False))
        both = fit, fit.fold_in(M.astype(dtype))
        sizes = [np.abs(one.to_dense()).max() for one in both]
        assert np.isfinite(sizes).all()
        exploded += max(sizes) > 1e4 * max(np.nanmax(M), 1)
    assert exploded <= 1


@pytest.mark.thorough
def test_overlapping_fits_leave_blas_as_it_was():
    # Two overlapping limits restored each other's values: BLAS kept one thread.
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()

    def enter(_):
        for _ in range(200):
            with single_threaded_blas():
                assert set(threads()) <= {1}

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(enter, range(2)))
    assert threads() == before


def test_constant_data_without_ridge_end_at_no_ridge():
    # Residuals of rounding size ended the fit in its first annealing stage.
    fit = fastemf.complete(np.full((9, 7), 5.0), 0.3, 2, reg=0, intercepts=True)
    assert fit.converged
    assert fit.reg == fit.intercept_reg == 0


@pytest.mark.compiled
@pytest.mark.parametrize("reg", ["noise", pytest.param("auto", marks=pytest.mark.thorough)])
def test_float32_with_a_large_offset_does_not_stop_early(reg):
    # 64 eps of the data was larger than the signal, so the fit stopped after one sweep.
    rng = np.random.default_rng(0)
    M = 20000 + 0.3 * rng.standard_normal((200, 3)) @ rng.standard_normal((3, 150)) / 1.7
    seen = rng.random(M.shape) < 0.2
    R = np.where(seen, M + 0.05 * rng.standard_normal(M.shape), np.nan)
    fits = [fastemf.complete(R.astype(t), 0.5, 3, intercepts=True, reg=reg) for t in ("f4", "f8")]
    errors = [np.sqrt(np.mean((fit.to_dense() - M)[~seen] ** 2)) for fit in fits]
    assert errors[0] <= 1.2 * errors[1]


def test_a_warm_start_revives_rows_unseen_before():
    # Only appended rows had a start; a zero row and a zero column stayed zero.
    R = np.full((5, 5), np.nan)
    R[:4, :4] = np.outer([1, 2, 3, 4.0], [1, 2, 3, 4.0])
    fit = fastemf.complete(R, 0.5, 1)
    R[4, 4] = 7.0
    again = fastemf.complete(R, 0.5, 1, init=fit)
    assert again.predict(4, 4) == pytest.approx(7.0, rel=0.1)


def test_annealing_with_a_plain_ridge_starts_as_strongly():
    # The stages were per observation even if the ridge was not count-scaled.
    R = fastemf.datasets.make_skewed(40, 30, rank=2, density=0.5, random_state=0).R
    solvers = (fastemf.Solver(reg_scaling=scaling) for scaling in ("count", "plain"))
    fits = (fastemf.complete(R, 0.3, 2, reg=0, solver=one, max_iter=2) for one in solvers)
    count, plain = (fit.history[0] for fit in fits)
    assert plain.reg / count.reg == pytest.approx(R.nnz / np.sqrt(40 * 30))
    assert plain.penalty == pytest.approx(count.penalty, rel=0.5)


def test_rows_of_zeros_take_few_iterations():
    # f and its tolerance fell to zero together for sixty iterations.
    B = np.random.default_rng(0).standard_normal((5, 3))
    x, stats, _ = solve(B, np.zeros(5), 0.1, start=[1, 1, 1])
    assert np.abs(x).max() <= 1e-14
    assert stats[kernels.ITERATIONS] <= 10


@pytest.mark.compiled
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5, 1e9])
def test_failed_pivots_have_no_effect_on_padding(scale):
    data = fastemf.datasets.make_skewed(300, 200, rank=4, density=0.06, random_state=0)
    R = (data.R * scale).astype(np.float32)
    with warnings.catch_warnings(action="ignore"):
        fit = fastemf.complete(R, 0.1, 22, reg=0, solver=fastemf.Solver(anneal=False), max_iter=4)
    assert np.isfinite([record.objective for record in fit.history]).all()
    assert np.isfinite(fit.X).all()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float32, 1e16), (np.float32, 1e-16), (np.float64, 1e120), (np.float64, 1e-120)],
)
@pytest.mark.thorough
def test_conjugate_gradients_work_in_any_unit(dtype, scale):
    R = fastemf.datasets.make_skewed(60, 50, rank=3, density=0.5, random_state=0).R
    plain = fastemf.complete(R, 0.2, 3, solver="cg", max_iter=30, tol=1e-4)
    scaled = fastemf.complete((R * scale).astype(dtype), 0.2, 3, solver="cg", max_iter=30, tol=1e-4)
    found = scaled.history[-1].objective / scale / scale
    assert found == pytest.approx(plain.history[-1].objective, rel=2e-3)


@pytest.mark.parametrize("omega", [1e-9, 1e-6, 1 - 1e-6, 1 - 1e-9])
@pytest.mark.parametrize("reg", [0.1, 1e-6])
def test_the_objective_is_accurate_at_levels_near_1_too(omega, reg):
    # The heavier sum was computed as a difference of two sums.
    R = np.random.default_rng(0).standard_normal((12, 9)) ** 2
    fit = fastemf.complete(R, omega, 2, reg=reg, max_iter=5)
    last = [record for record in fit.history if record.accepted][-1]
    assert last.objective == pytest.approx(fit.objective(R), rel=1e-12)
