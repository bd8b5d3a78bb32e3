"""Pinball regression, compared with a solver of linear programs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from fastemf.quantile_model.pinball import mean_pinball, pinball_regression


def lowest(columns, values, tau, weights):
    """The minimal loss, by a solver of linear programs."""
    p, n = columns.shape
    cost = np.concatenate([np.zeros(p + 1), tau * weights, (1 - tau) * weights])
    equations = np.hstack([columns.T, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    bounds = [(0, None)] * p + [(None, None)] + [(0, None)] * (2 * n)
    found = linprog(cost, A_eq=equations, b_eq=values, bounds=bounds, method="highs")
    return found.fun / weights.sum()


def problem(seed):
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((5, 200))
    columns[3] = columns[0] + 1e-3 * rng.standard_normal(200)  # nearly the same as another
    columns[4] = columns[0]
    values = 10 * (columns[0] + 0.5 * columns[1] - 0.3 * columns[2])
    values += rng.standard_normal(200) * np.exp(columns[1])
    weights = rng.integers(1, 4, 200).astype(float) if seed % 2 else np.ones(200)
    return columns, values, weights


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tau", [0.05, 0.5, 0.95, 0.99])
def test_the_loss_is_minimal(seed, tau):
    columns, values, weights = problem(seed)
    found = pinball_regression(columns, values, tau, weights if seed % 2 else None)
    assert (found.coefficients >= 0).all()
    loss = mean_pinball(values - found.predict(columns), tau, weights)
    assert loss <= (1 + 1e-4) * lowest(columns, values, tau, weights)


@pytest.mark.parametrize("tau", [0.5, 0.95])
def test_coverage_of_the_fitted_data(tau):
    columns, values, _ = problem(0)
    left = values - pinball_regression(columns, values, tau).predict(columns)
    assert abs(np.mean(left <= 1e-12) - tau) <= 2 / values.size


def test_a_weight_of_two_repeats_the_observation():
    columns, values, weights = problem(1)
    twice = np.repeat(np.arange(values.size), weights.astype(int))
    one = pinball_regression(columns, values, 0.9, weights)
    other = pinball_regression(columns[:, twice], values[twice], 0.9)
    for found in (one, other):
        loss = mean_pinball(values - found.predict(columns), 0.9, weights)
        np.testing.assert_allclose(loss, lowest(columns, values, 0.9, weights), rtol=1e-4)


def test_powers_of_two_scale_exactly():
    columns, values, _ = problem(2)
    one = pinball_regression(columns, values, 0.95)
    other = pinball_regression(columns * 8, values * 8, 0.95)
    np.testing.assert_array_equal(one.coefficients, other.coefficients)
    assert other.intercept == 8 * one.intercept


def test_constant_features_have_coefficient_zero():
    rng = np.random.default_rng(3)
    values = rng.standard_normal(100)
    columns = np.stack([np.full(100, 7.0), 7 + 1e-12 * rng.standard_normal(100)])
    found = pinball_regression(columns, values, 0.5)
    assert found.coefficients.tolist() == [0.0, 0.0]
    assert found.intercept == np.sort(values)[49]
    constant = pinball_regression(columns, np.full(100, 2.0), 0.5)
    assert constant.predict(columns).tolist() == [2.0] * 100
