"""`Factorization`: predictions, objective and fold-in against their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import row_minimise
from strategies import levels, matrices

import fastemf
from fastemf.loss import expectile, expectile_loss, sign_weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*have no observations"),
    pytest.mark.filterwarnings("ignore:.*fewer than k"),
]


@pytest.fixture(params=[False, True], ids=["plain", "intercepts"])
def fit(request):
    R = fastemf.datasets.make_skewed(15, 12, rank=2, density=0.7, random_state=0).R
    return fastemf.complete(R, 0.2, 2, intercepts=request.param, max_iter=5)


def by_hand(fit):
    """Evaluate the model equation."""
    if fit.row_intercepts is None:
        return fit.X @ fit.Y.T
    return fit.mu + fit.row_intercepts[:, None] + fit.col_intercepts + fit.X @ fit.Y.T


def test_all_predictions_are_the_model_equation(fit):
    expected = by_hand(fit)
    np.testing.assert_allclose(fit.to_dense(), expected, rtol=1e-12)
    rows, cols = np.indices(fit.shape)
    np.testing.assert_allclose(fit.predict(rows, cols), expected, rtol=1e-12)
    np.testing.assert_allclose(fit.predict_block([3, 1]), expected[[3, 1]], rtol=1e-12)
    np.testing.assert_allclose(fit.predict(2, np.arange(12)), expected[2], rtol=1e-12)
    # NumPy warns if a broadcast view is used as writeable.
    np.testing.assert_allclose(fit.predict([[3]], np.arange(12)), expected[[3]], rtol=1e-12)
    rows = np.array([1, 2], np.int16)
    rows.flags.writeable = False
    np.testing.assert_allclose(fit.predict(rows[::-1], [0, 1]), expected[[2, 1], [0, 1]])
    assert fit.predict(2, 3).shape == ()
    assert fit.predict([], []).shape == (0,)
    assert fit.predict_block([]).shape == (0, 12)


def test_indices_beyond_the_last_are_those_of_unknown_rows(fit):
    new = fit.predict([15, 99, 2], [1, 12, 12], unknown="model")
    expected = np.full(3, np.nan)
    if fit.row_intercepts is not None:
        expected = fit.constant + np.array([fit.col_intercepts[1], 0, fit.row_intercepts[2]])
    np.testing.assert_allclose(new, expected, rtol=1e-12)
    assert np.isnan(fit.predict([15, 2], 1, unknown="nan")).tolist() == [True, False]
    best = fit.rank([15, 2], 12, order="smallest", unknown="model")
    assert (best.cols[0] >= 0).all() == (fit.row_intercepts is not None)
    assert best.cols[1].tolist() == fit.rank(2, 12, order="smallest").cols.tolist()


def test_objective_and_effective_omega_on_other_data(fit):
    rng = np.random.default_rng(1)
    rows, cols = rng.integers(0, 15, 30), rng.integers(0, 12, 30)
    b, v = rng.standard_normal(30), rng.uniform(0.5, 2, 30)
    r = b - by_hand(fit)[rows, cols]
    below, above = np.sum(v * np.maximum(-r, 0)), np.sum(v * np.maximum(r, 0))
    level = fit.effective_omega((rows, cols, b), weights=v)
    assert level == pytest.approx(below / (below + above), rel=1e-10)

    n_rows, n_cols = np.bincount(rows, v, 15), np.bincount(cols, v, 12)
    penalty = fit.reg * (n_rows @ (fit.X**2).sum(1) + n_cols @ (fit.Y**2).sum(1))
    if fit.row_intercepts is not None:
        assert fit.intercept_reg == pytest.approx(4 * 0.2 * 0.8)
        both = np.append(fit.row_intercepts, fit.col_intercepts)
        penalty += fit.intercept_reg * (both**2).sum()
    loss = np.sum(v * np.where(r >= 0, 0.2, 0.8) * r**2)
    assert fit.objective((rows, cols, b), weights=v) == pytest.approx(loss + penalty, rel=1e-10)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0.1, 0]))
def test_folding_in_the_training_rows_returns_their_factors(R, omega, intercepts, reg):
    fit = fastemf.complete(R, omega, 2, intercepts=intercepts, reg=reg, max_iter=4, n_jobs=1)
    again = fit.fold_in(R)
    scale, seen = np.nanmax(np.abs(R)), ~np.isnan(R)
    np.testing.assert_allclose(again.to_dense()[seen], fit.to_dense()[seen], atol=1e-6 * scale)
    np.testing.assert_array_equal(again.Y, fit.Y)
    np.testing.assert_array_equal(again.unseen_rows, fit.unseen_rows)


def test_folding_in_columns_is_folding_in_rows_of_the_transpose(fit):
    rng = np.random.default_rng(2)
    C = rng.uniform(1, 5, (15, 3))
    C[4:9, 1] = np.nan
    turned = replace(fit, rows=fit.cols, cols=fit.rows, training=None)
    new = fit.fold_in(C, axis=1)
    assert new.shape == (15, 3)
    np.testing.assert_array_equal(new.Y, turned.fold_in(C.T).X)
    np.testing.assert_array_equal(new.X, fit.X)


def test_folding_in_triplets_with_weights(fit):
    rows, cols, b = [0, 0, 1], [2, 3, 5], [3.0, 4.0, 2.0]
    new = fit.fold_in((rows, cols, b), weights=[2.0, 1.0, 1.0])
    assert new.shape == (2, 12)
    same = fit.fold_in(([0, 0, 0, 1], [2, 2, 3, 5], [3.0, 3.0, 4.0, 2.0]))
    np.testing.assert_allclose(new.to_dense(), same.to_dense(), rtol=1e-9)
    columns = fit.fold_in(([3, 4], [0, 1], [1.0, 2.0]), axis=1)
    assert columns.shape == (15, 2)


def test_folding_in_one_row_minimises_its_objective(fit):
    b = np.array([2.0, 3.0, 9.0])
    cols = [1, 4, 7]
    new = fit.fold_in(([0, 0, 0], cols, b), shape=(1, 12))
    B, ridge = fit.Y[cols], np.full(2, fit.reg * 3)
    if fit.row_intercepts is not None:
        B, ridge = np.column_stack([B, np.ones(3)]), np.append(ridge, fit.intercept_reg)
        b = b - fit.mu - fit.col_intercepts[cols]
    x = row_minimise(B, b, 0.2, ridge, np.ones(3))
    np.testing.assert_allclose(new.X[0], x[:2], rtol=1e-6, atol=1e-8)


def test_the_loss_by_hand():
    assert expectile_loss([3.0, -2.0, 0.0], 0.25) == 0.25 * 9 + 0.75 * 4
    assert expectile_loss([3.0, -2.0], 0.25, weights=[2.0, 1.0]) == 0.25 * 18 + 0.75 * 4
    np.testing.assert_array_equal(sign_weights([1.0, 0.0, -1.0], 0.25), [0.25, 0.25, 0.75])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), levels)
def test_an_expectile_balances_weighted_deviations(values, omega):
    b = np.array(values)
    e = expectile(b, omega)
    above, below = np.maximum(b - e, 0).sum(), np.maximum(e - b, 0).sum()
    # Weights and rounding errors of the two sums may differ by a factor of 1000.
    assert abs(omega * above - (1 - omega) * below) <= 1e-9 * (1 + np.abs(b).sum())
    assert b.min() <= e <= b.max()  # exact if all are equal
    assert expectile(b, 0.5) == pytest.approx(b.mean(), abs=1e-9)


def test_expectiles_of_a_chi_squared_sample():
    sample = np.random.default_rng(0).chisquare(3, 2_000_000)
    for omega, true in ((0.1, 1.435), (0.5, 3.0), (0.9, 5.496)):
        assert expectile(sample, omega) == pytest.approx(true, abs=0.01)
    with pytest.raises(ValueError, match="values must not be empty"):
        expectile([], 0.5)
