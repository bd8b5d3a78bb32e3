"""Leave-one-out residuals against refits without the observation."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import row_minimise

import fastemf
from fastemf.loss import expectile_loss
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.sources.memory import observe

RNG = np.random.default_rng(8)
M = np.outer(RNG.random(12) + 1, RNG.random(9) + 1) + 0.3 * RNG.standard_normal((12, 9))
R = np.where(RNG.random(M.shape) < 0.2, np.nan, M)
I, J = np.nonzero(~np.isnan(R))
RIDGE = Ridge(0.03, 0.2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_leverages_of_one_side_equal_refits(axis, weighted):
    """At ω = ½ this is exact, if the ridge of a row keeps its full count."""
    v = RNG.uniform(0.2, 1.0, I.size) if weighted else np.ones(I.size)
    observed = observe((I, J, R[I, J]), weights=v if weighted else None, shape=R.shape)
    engine = CompletionEngine(observed, 0.5, mu=2.0, n_threads=1)
    n = R.shape[1 - axis]
    other = np.column_stack([RNG.standard_normal((n, 2)), RNG.random(n)])
    this = engine.solve(axis, np.zeros((R.shape[axis], 3)), other, RIDGE).factor
    found = engine.leverage_of_each(axis, this, other, RIDGE)
    side = (observed.by_row, observed.by_col)[axis]
    B = np.column_stack([other[side.indices, :2], np.ones(side.size)])
    b = side.values - 2.0 - other[side.indices, 2]
    weights = side.weights if weighted else np.ones(side.size)
    for e in range(side.size):
        own = side.keys == side.keys[e]
        ridge = np.array([RIDGE.factors * weights[own].sum()] * 2 + [RIDGE.intercepts])
        rest = own & (np.arange(side.size) != e)
        x = row_minimise(B[rest], b[rest], 0.5, ridge, weights[rest])
        r = b[e] - B[e] @ this[side.keys[e]]
        assert r / (1 - found[e]) == pytest.approx(b[e] - B[e] @ x, abs=1e-8)


@pytest.mark.thorough
def test_residuals_are_close_to_brute_force():
    omega = 0.2
    settings = {
        "omega": omega, "k": 1, "solver": fastemf.Solver(reg_scaling="plain"), "reg": 0.3,
        "intercepts": True, "tol": 1e-12, "max_iter": 3000, "n_jobs": 1, "shape": R.shape,
    }  # fmt: skip
    fit = fastemf.complete((I, J, R[I, J]), **settings)
    found = fit.loo(R, residuals=True)
    truth = np.empty(I.size)
    for e in range(I.size):
        rest = np.arange(I.size) != e
        left = fastemf.complete((I[rest], J[rest], R[I, J][rest]), init=fit, **settings)
        # mu is that of the remaining data, towards which the ridge shrinks the intercepts.
        truth[e] = R[I[e], J[e]] - left.predict(I[e], J[e])
    fitted = (R - fit.to_dense())[I, J]
    differences = [np.sqrt(np.mean((r - truth) ** 2)) for r in (found.residuals, fitted)]
    assert differences[0] < 0.5 * differences[1]
    assert found.loss == pytest.approx(expectile_loss(truth, omega) / I.size, rel=0.2)
    assert found.loss == pytest.approx(expectile_loss(found.residuals, omega) / I.size)
    assert found.effective_omega == fastemf.metrics.effective_omega(found.residuals)
    assert found.lost == 0
    assert fit.loo(R).residuals is None


def test_both_leverages_are_of_the_same_observation():
    """Cells are repeated; residuals are in the order of the entries by row."""
    rows, cols = np.repeat(I, 2), np.repeat(J, 2)
    values = R[rows, cols] + 0.1 * RNG.standard_normal(rows.size)
    order = RNG.permutation(rows.size)
    given = (rows[order], cols[order], values[order])
    fit = fastemf.complete(given, 0.3, 2, reg=0.05, intercepts=True, n_jobs=1)
    found = fit.loo(given, residuals=True).residuals
    observed = observe(given)
    engine = CompletionEngine(observed, 0.3, mu=fit.mu, n_threads=1)
    X, Y = fit.rows.extended_factor(), fit.cols.extended_factor()
    ridge = Ridge(fit.reg, fit.intercept_reg)
    by_col = engine.leverage_of_each(1, Y, X, ridge)
    by_row = engine.leverage_of_each(0, X, Y, ridge)
    for e in range(0, observed.size, 7):
        side, col = observed.by_row, observed.by_col
        i, j, b = side.keys[e], side.indices[e], side.values[e]
        [place] = np.flatnonzero((col.keys == j) & (col.indices == i) & (col.values == b))
        expected = (b - fit.predict(i, j)) / (1 - by_row[e]) / (1 - by_col[place])
        assert found[e] == pytest.approx(expected, rel=1e-9)


def test_weight_two_is_the_observation_twice():
    fit = fastemf.complete(R, 0.3, 2, reg=0.05, intercepts=True, n_jobs=1)
    twice = tuple(np.repeat(part, 2) for part in (I, J, R[I, J]))
    one = fit.loo((I, J, R[I, J]), weights=np.full(I.size, 2.0), residuals=True)
    two = fit.loo(twice, residuals=True)
    np.testing.assert_allclose(np.repeat(one.residuals, 2), two.residuals, rtol=1e-9)
    assert one.loss == pytest.approx(two.loss)


def test_observations_with_leverage_one_are_lost():
    few = R.copy()
    few[0] = np.nan
    few[0, 3] = 5.0
    fit = fastemf.complete(few, 0.5, 1, reg=0, n_jobs=1)
    found = fit.loo(few, residuals=True)
    assert found.lost == 1
    assert np.isnan(found.residuals[0])
    assert np.isfinite(found.residuals[1:]).all()
    assert np.isfinite(found.loss)


def test_loo_of_a_tuned_fit_includes_shift_and_noise():
    data = fastemf.datasets.make_skewed(40, 30, rank=2, density=0.5, random_state=0).R
    fit = fastemf.complete(data, 0.9, 2, intercepts=True, n_jobs=1)
    found = fit.loo(data)
    assert found.effective_omega == pytest.approx(0.9, abs=0.05)
    entries = data.tocoo()
    r = entries.data - fit.predict(entries.row, entries.col)
    assert found.loss > expectile_loss(r, 0.9) / r.size


def test_data_on_disk_are_refused(tmp_path):
    fit = fastemf.complete(R, 0.5, 1, reg=0.1, n_jobs=1)
    built = fastemf.store.build((I, J, R[I, J]), tmp_path / "store", shape=R.shape)
    with pytest.raises(TypeError, match="must be in memory"):
        fit.loo(built)
