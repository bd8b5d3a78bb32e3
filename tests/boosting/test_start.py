"""The linear start of quantiles, compared with solvers of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.start import fit_start
from fastemf.boosting.statistics import mean_pinball

SENTINEL = 2.0**31 - 1


def fit(X, y, tau, weights=None):
    return fit_start(X, y, Objective(QUANTILE, tau), np.arange(X.shape[1]), weights)


def lowest(X, y, tau, weights):
    """The minimal loss, by the primal linear program."""
    n, p = X.shape
    cost = np.concatenate([np.zeros(p + 1), tau * weights, (1 - tau) * weights])
    equations = np.hstack([X, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    bounds = [(0, None)] * p + [(None, None)] + [(0, None)] * (2 * n)
    return linprog(cost, A_eq=equations, b_eq=y, bounds=bounds).fun / weights.sum()


def problem(seed):
    """Return columns, two of which are nearly or exactly another one, values and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 5))
    X[:, 3] = X[:, 0] + 1e-3 * rng.standard_normal(200)
    X[:, 4] = X[:, 0]
    y = 10 * (X[:, 0] + 0.5 * X[:, 1] - 0.3 * X[:, 2])
    y += rng.standard_normal(200) * np.exp(X[:, 1])
    return X, y, rng.integers(1, 4, 200).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tau", [0.05, 0.5, 0.95, 0.99])
def test_the_loss_is_minimal(tau, weighted):
    X, y, weights = problem(int(100 * tau))
    weights = weights if weighted else np.ones(y.size)
    found = fit(X, y, tau, weights if weighted else None)
    assert (found.coefficients >= 0).all()
    loss = mean_pinball(y - found.predict(X), tau, weights)
    assert loss <= (1 + 1e-9) * lowest(X, y, tau, weights)
    if weighted:  # a weight of 2 repeats the observation
        twice = np.repeat(np.arange(y.size), weights.astype(int))
        repeated = fit(X[twice], y[twice], tau)
        assert mean_pinball(y - repeated.predict(X), tau, weights) == pytest.approx(loss)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
def test_positive_coefficients_are_those_of_scikit_learn(tau):
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = X @ [1.0, 2.0, 3.0] + 7 + rng.standard_normal(300)
    expected = linear_model.QuantileRegressor(quantile=tau, alpha=0).fit(X, y)
    found = fit(X, y, tau)
    np.testing.assert_allclose(found.coefficients, expected.coef_, rtol=1e-7)
    # The constant is a value of the data, at or below which is the proportion τ.
    assert found.intercept == pytest.approx(expected.intercept_, abs=0.1)


def test_a_sentinel_changes_neither_coefficients_nor_intercept():
    rng = np.random.default_rng(0)
    X = rng.gamma(2, 10, (400, 2))
    y = X @ [0.5, 1.5] + 3 + rng.standard_normal(400)
    expected = fit(X, np.where(np.arange(400) < 4, 1e3, y), 0.5)
    found = fit(X, np.where(np.arange(400) < 4, SENTINEL, y), 0.5)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-6)
    assert found.intercept == pytest.approx(expected.intercept, rel=1e-6)
    assert found.high == SENTINEL


def test_powers_of_two_scale_exactly_and_a_shift_to_rounding():
    X, y, _ = problem(2)
    one, scaled = fit(X, y, 0.95), fit(X * 8, y * 8, 0.95)
    np.testing.assert_array_equal(one.coefficients, scaled.coefficients)
    assert scaled.intercept == 8 * one.intercept
    np.testing.assert_allclose(fit(X, y + 50, 0.95).predict(X), one.predict(X) + 50, rtol=1e-9)


def test_constant_columns_have_coefficient_zero():
    rng = np.random.default_rng(3)
    y = rng.standard_normal(100)
    X = np.column_stack([np.full(100, 7.0), 7 + 1e-12 * rng.standard_normal(100)])
    found = fit(X, y, 0.5)
    assert found.coefficients.tolist() == [0.0, 0.0]
    assert found.intercept == np.sort(y)[49]
    assert (fit(X, np.full(100, 2.0), 0.5).predict(X) == 2).all()
