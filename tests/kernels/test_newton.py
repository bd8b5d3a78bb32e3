"""When a Newton step is taken: the rule, and that both solvers follow it to the same minimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from oracle import row_objective
from strategies import row_problems
from test_kernels import CYCLE, solve

from fastemf.kernels.newton import bound_of_f, is_solved, rounding_of
from fastemf.operators import Dense
from fastemf.sensing.regression import design_of, solve_regression


def measured(B, b, omega, ridge, v, start=None):
    """The same minimum through linear measurements: A_i is row i of B, the other factor is 1."""
    k = B.shape[1]
    design = design_of(Dense(B[:, :, None]), np.ones((1, 1)), 0, 1)
    v = np.ones(len(b)) if v is None else v
    start = np.zeros(k) if start is None else start
    end = solve_regression(design, b, v, start, omega, ridge, np.ones((1, 1)), 1)
    return end.factor


@given(row_problems())
@example((*CYCLE, 0.01, 0.0, None))
@example((*CYCLE, 0.01, 1e-3, None))
def test_rows_and_measurements_reach_one_minimum(problem):
    B, b, omega, ridge, v = problem
    at_zero = row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
    row = row_objective(B, b, solve(B, b, omega, ridge, v)[0], omega, ridge, v)
    other = row_objective(B, b, measured(B, b, omega, ridge, v), omega, ridge, v)
    assert abs(row - other) <= 1e-10 * at_zero + 1e-26


@given(row_problems())
def test_no_solver_ends_above_its_start(problem):
    B, b, omega, ridge, v = problem
    start = np.linspace(-1, 1, B.shape[1])
    before = row_objective(B, b, start, omega, ridge, v)
    for end in (
        solve(B, b, omega, ridge, v, start=start)[0],
        measured(B, b, omega, ridge, v, start=start),
    ):
        assert row_objective(B, b, end, omega, ridge, v) <= before * (1 + 1e-12) + 1e-26


@pytest.mark.parametrize(
    ("predicted", "full", "bound"),
    [(1.0, True, 99.75), (1.0, False, 100.0), (1e-14, True, 100.5), (1e-14, False, 100.5)],
)
def test_a_step_must_pay_unless_rounding_hides_it(predicted, full, bound):
    assert bound_of_f(100.0, predicted, rounding=0.5, full=full) == bound


def test_rounding_grows_with_f_and_with_its_residuals():
    assert rounding_of(2.0, 3.0, 2.0**-52) == 3.0 + 128 * 2.0**-52


@pytest.mark.parametrize(
    ("predicted", "flips", "step", "accurate", "solved"),
    [
        (1.0, 0, 1.0, True, True),  # a full step that changed no weight
        (1.0, 0, 1.0, False, False),  # of an ill-conditioned H
        (1.0, 0, 0.5, True, False),
        (1.0, 1, 1.0, True, False),
        (0.1, 0, 0.5, False, True),  # below rounding
        (0.1, 1, 1.0, True, False),
        (0.001, 1, 0.5, False, True),  # below the residuals' own
    ],
)
def test_when_x_is_as_good_as_it_gets(predicted, flips, step, accurate, solved):
    assert is_solved(predicted, 0.2, 0.01, flips, step, accurate) is solved
