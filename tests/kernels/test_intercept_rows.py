"""Rows with an intercept only: certificates, and comparison with the general solve."""

import numpy as np
import pytest

from fastemf.kernels import problem as kernels
from fastemf.loss import expectile
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.half_sweep import NO_MARKS, Regressors, RowArrays, RowProblem, solve_side
from fastemf.solver.records import Ridge
from fastemf.solver.weighting import Weighting
from fastemf.sources.cell_sample import ALL_CELLS, N_HASHES, CellSample, HashRange, draw_marks
from fastemf.sources.memory import observe

M, N, SIZE = 14, 11, 90


def engine_of(omega, kind, dtype=np.float64):
    """Return an engine with repeated entries, ties, an empty row, and weights etc. by `kind`."""
    rng = np.random.default_rng(1)
    rows, cols = rng.integers(0, M - 1, SIZE), rng.integers(0, N, SIZE)
    values = np.round(rng.gamma(1.0, size=SIZE) * 4).astype(dtype) / 4
    weights = rng.uniform(0.3, 3, SIZE).astype(dtype) if kind == "weights" else None
    whole = observe((rows, cols, values), weights=weights, shape=(M, N))
    engine = CompletionEngine(whole, omega, mu=whole.expectile(omega), n_threads=1)
    if kind == "scales":
        p, q = rng.uniform(0.3, 3, M), rng.uniform(0.3, 3, N)
        ones = engine.weighting.intercepts
        engine = engine.replace(weighting=Weighting(engine.masses, ones, (p, q)))
    if kind == "sample":
        marks = draw_marks(whole, np.random.default_rng(0))
        engine = engine.replace(sample=CellSample(marks, HashRange(7, N_HASHES // 3)))
    return engine


KINDS = ["plain", "weights", "scales", "sample"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("omega", [0.01, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_solution_is_a_minimum(axis, omega, kind):
    engine = engine_of(omega, kind)
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((M, 1)), rng.standard_normal((N, 1))]
    ridge = Ridge(0.0, 0.7)
    half = engine.solve(axis, factors[axis], factors[1 - axis], ridge)

    def objective(this, at=None):
        both = (this, factors[1]) if axis == 0 else (factors[0], this)
        at = at or engine.evaluate(*both)
        return omega * at.above + (1 - omega) * at.below + engine.penalty(*both, ridge)

    lowest = objective(half.factor)
    assert lowest == pytest.approx(objective(half.factor, at=half), rel=1e-12)
    for row in range(half.factor.shape[0]):
        for move in (1e-4, -1e-4):
            moved = half.factor.copy()
            moved[row] += move
            assert objective(moved) >= lowest * (1 - 1e-14)
    again = engine.solve(axis, half.factor, factors[1 - axis], ridge)
    np.testing.assert_allclose(again.factor, half.factor, rtol=1e-13, atol=1e-15)
    assert again.gradient <= 1e-10 * max(1.0, half.gradient)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_general_solve_agrees(dtype, omega, kind):
    """The general solve treats the intercept as a factor."""
    engine = engine_of(omega, kind, dtype)
    rng, marks, own_marks = np.random.default_rng(2), NO_MARKS, NO_MARKS
    scales, part = np.empty(0, dtype), ALL_CELLS
    if kind == "scales":
        scales = engine.weighting.observations[1].astype(dtype)
    if kind == "sample":
        (own_marks, marks), part = engine.sample.marks, engine.sample.part
    offset, start = rng.standard_normal(N).astype(dtype), rng.standard_normal((M, 1)).astype(dtype)
    given = Regressors(np.full((N, 1), 2, dtype), offset, scales, marks)
    own = RowArrays(start, np.tile([0.0, 0.7], (M, 1)), own_marks)
    turned = own._replace(ridge=own.ridge[:, ::-1].copy())
    side, rtol = engine.observations.by_row, 1e-10 if dtype == np.float64 else 1e-3
    for problem in (
        RowProblem(omega, 0, part=part), RowProblem(omega, 0, solve=False, part=part),
        RowProblem(omega, 0, solve=False, leverages="sums", part=part),
    ):  # fmt: skip
        one = solve_side(side, given, own, problem, n_threads=1)
        other = solve_side(side, given, turned, problem._replace(n_factors=1), n_threads=1)
        np.testing.assert_allclose(one.factor, other.factor, rtol=rtol, atol=rtol)
        np.testing.assert_array_equal(one.status, other.status)
        columns = [kernels.ABOVE, kernels.BELOW, kernels.GRADIENT]
        if problem.leverages:
            columns += [kernels.FREEDOM, kernels.WEIGHT]
        if omega == 0.5:  # only the sum is meaningful
            for solved in (one, other):
                solved.stats[:, kernels.ABOVE] += solved.stats[:, kernels.BELOW]
            columns.remove(kernels.BELOW)
        found, expected = one.stats[:, columns], other.stats[:, columns]
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("omega", [0.2, 0.5])
def test_rows_without_observations_in_the_sample_are_zero(omega):
    engine = engine_of(omega, "sample")
    engine = engine.replace(sample=CellSample(engine.sample.marks, HashRange(7, N_HASHES // 8)))
    cells = engine.masses[0]
    assert (cells == 0).sum() > 1
    half = engine.solve(0, np.ones((M, 1)), np.ones((N, 1)), Ridge(0.0, 0.0))
    assert not half.factor[cells == 0].any()
    assert half.factor[cells > 0].all()


def test_a_row_of_equal_values_is_fitted_exactly_without_a_ridge():
    observed = observe(([0, 0, 1], [0, 1, 0], [5.0, 5.0, 2.0]))
    engine = CompletionEngine(observed, 0.9, mu=1.0, n_threads=1)
    half = engine.solve(0, np.zeros((2, 1)), np.zeros((2, 1)), Ridge(0.0, 0.0))
    np.testing.assert_allclose(half.factor[:, 0], [4.0, 1.0], rtol=1e-15)


@pytest.mark.parametrize("omega", [0.01, 0.3, 0.5, 0.95])
def test_an_unpenalised_intercept_is_the_expectile_of_the_weighted_values(omega):
    rng = np.random.default_rng(0)
    values, weights = rng.gamma(1.0, size=50), rng.uniform(0.3, 3, 50)
    entries = (np.zeros(50, int), np.arange(50), values)
    source = observe(entries, weights=weights, shape=(1, 50))
    engine = CompletionEngine(source, omega, mu=0.0, n_threads=1)
    half = engine.solve(0, np.zeros((1, 1)), np.zeros((50, 1)), Ridge(0.0, 0.0))
    expected = expectile(values, omega, weights)
    assert half.factor[0, 0] == pytest.approx(expected, rel=1e-13)
