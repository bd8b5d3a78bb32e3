"""Rows that have an intercept alone: certificates, and the general solve as a second opinion."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf.kernels import problem as kernels
from fastemf.observations.memory import observe
from fastemf.solver.blocks import ALL, Part, RowProblem
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.half_sweep import solve_side
from fastemf.solver.records import Ridge
from fastemf.solver.sampling import CellSample, marks_of
from fastemf.solver.weighting import Weighting

M, N, SIZE = 14, 11, 90


def engine_of(omega, kind, dtype=np.float64):
    """Entries with repeats, ties, an empty row, and what `kind` says beside them."""
    rng = np.random.default_rng(1)
    rows, cols = rng.integers(0, M - 1, SIZE), rng.integers(0, N, SIZE)
    values = np.round(rng.gamma(1.0, size=SIZE) * 4).astype(dtype) / 4
    weights = rng.uniform(0.3, 3, SIZE).astype(dtype) if kind == "weights" else None
    whole = observe((rows, cols, values), weights=weights, shape=(M, N))
    engine = CompletionEngine(whole, omega, mu=whole.expectile(omega), n_threads=1)
    if kind == "scales":
        p, q = rng.uniform(0.3, 3, M), rng.uniform(0.3, 3, N)
        ones = engine.weighting.intercepts
        engine = engine.view(weighting=Weighting(engine.masses, ones, (p, q)))
    if kind == "sample":
        sample = CellSample(marks_of(whole, np.random.default_rng(0)), Part(7, ALL // 3))
        engine = engine.view(sample)
    return engine


KINDS = ["plain", "weights", "scales", "sample"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("omega", [0.01, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("axis", [0, 1])
def test_nothing_near_the_solution_is_better(axis, omega, kind):
    engine = engine_of(omega, kind)
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((M, 1)), rng.standard_normal((N, 1))]
    ridge = Ridge(0.0, 0.7)
    half = engine.solve(axis, factors[axis], factors[1 - axis], ridge)

    def objective(this):
        both = (this, factors[1]) if axis == 0 else (factors[0], this)
        at = engine.evaluate(*both)
        return omega * at.above + (1 - omega) * at.below + engine.penalty(*both, ridge)

    lowest = objective(half.factor)
    both = (half.factor, factors[1]) if axis == 0 else (factors[0], half.factor)
    reported = omega * half.above + (1 - omega) * half.below + engine.penalty(*both, ridge)
    assert lowest == pytest.approx(reported, rel=1e-12)
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
    """It takes the same problem where the intercept is written as a factor."""
    engine = engine_of(omega, kind, dtype)
    rng = np.random.default_rng(2)
    X, Y = (rng.standard_normal((size, 1)).astype(dtype) for size in (M, N))
    rtol = 1e-10 if dtype == np.float64 else 1e-3
    for problem in (
        RowProblem(omega, 0), RowProblem(omega, 0, solve=False),
        RowProblem(omega, 0, solve=False, leverages="sums"),
    ):  # fmt: skip
        given, own, problem = engine._row_problem(0, X, Y, Ridge(0.0, 0.7), problem)
        turned = own._replace(ridge=own.ridge[:, ::-1].copy())
        side = engine.observations.by_row
        one = solve_side(side, given, own, problem, n_threads=1)
        other = solve_side(side, given, turned, problem._replace(n_factors=1), n_threads=1)
        np.testing.assert_allclose(one.factor, other.factor, rtol=rtol, atol=rtol)
        np.testing.assert_array_equal(one.status, other.status)
        columns = [kernels.ABOVE, kernels.BELOW, kernels.GRADIENT]
        if problem.leverages:
            columns += [kernels.FREEDOM, kernels.WEIGHT]
        if omega == 0.5:  # both weigh the same: their sum alone is known
            for solved in (one, other):
                solved.stats[:, kernels.ABOVE] += solved.stats[:, kernels.BELOW]
            columns.remove(kernels.BELOW)
        np.testing.assert_allclose(
            one.stats[:, columns], other.stats[:, columns], rtol=rtol, atol=rtol
        )


@pytest.mark.parametrize("omega", [0.2, 0.5])
def test_rows_without_anything_to_go_by_are_zero(omega):
    engine = engine_of(omega, "sample")
    engine = engine.view(CellSample(engine.sample.marks, Part(7, ALL // 8)))
    cells = engine.masses[0]
    assert (cells == 0).sum() > 1
    half = engine.solve(0, np.ones((M, 1)), np.ones((N, 1)), Ridge(0.0, 0.0))
    assert not half.factor[cells == 0].any()
    assert half.factor[cells > 0].all()


def test_a_row_of_one_value_lands_on_it_without_a_ridge():
    engine = CompletionEngine(
        observe(([0, 0, 1], [0, 1, 0], [5.0, 5.0, 2.0])), 0.9, mu=1.0, n_threads=1
    )
    half = engine.solve(0, np.zeros((2, 1)), np.zeros((2, 1)), Ridge(0.0, 0.0))
    np.testing.assert_allclose(half.factor[:, 0], [4.0, 1.0], rtol=1e-15)
