"""Rank 0: models of intercepts only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fastemf
from fastemf import complete
from fastemf.loss import expectile, expectile_loss, sign_weights

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

M, N = 40, 30
RNG = np.random.default_rng(2)
TRUTH = 5 + 2 * RNG.standard_normal((M, 1)) + RNG.standard_normal((1, N))
R = np.where(RNG.random((M, N)) < 0.6, TRUTH + 0.3 * RNG.chisquare(3, (M, N)), np.nan)
ROWS, COLS = np.nonzero(~np.isnan(R))
VALUES = R[ROWS, COLS]
REGS = pytest.mark.parametrize("reg", ["auto", "noise", 0.1, 0])


def fit_intercepts(R, omega=0.2, **settings):
    return complete(R, omega, 0, intercepts=True, **{"n_jobs": 1, **settings})


def test_least_squares_equals_a_two_way_regression():
    design = np.zeros((VALUES.size, M + N))
    design[np.arange(VALUES.size), ROWS] = design[np.arange(VALUES.size), M + COLS] = 1
    by_hand = design @ np.linalg.lstsq(design, VALUES, rcond=None)[0]
    fit = fit_intercepts(R, 0.5, reg=0, tol=0, max_iter=200)
    np.testing.assert_allclose(fit.predict(ROWS, COLS), by_hand, atol=1e-7)


@pytest.mark.parametrize("omega", [0.1, 0.9])
def test_every_intercept_is_stationary(omega):
    fit = fit_intercepts(R, omega, reg=1.0, tol=0, max_iter=300)
    r = VALUES - fit.predict(ROWS, COLS)
    slopes = sign_weights(r, omega) * r
    for keys, size, found in ((ROWS, M, fit.row_intercepts), (COLS, N, fit.col_intercepts)):
        slope = np.bincount(keys, slopes, minlength=size) - fit.intercept_reg * found
        np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_rank_0_equals_a_fit_with_a_ridge_that_removes_all_factors():
    without = fit_intercepts(R, reg=0.1, tol=1e-10, max_iter=300)
    removed = complete(R, 0.2, 2, intercepts=True, reg=1e6, tol=1e-10, max_iter=300, n_jobs=1)
    np.testing.assert_allclose(removed.to_dense(), without.to_dense(), rtol=1e-6)


@REGS
def test_all_methods_work(reg, tmp_path):
    fit = fit_intercepts(R, reg=reg)
    assert (fit.k, fit.X.shape, fit.Y.shape) == (0, (M, 0), (N, 0))
    assert fit.converged
    np.testing.assert_allclose(fit.predict_block([3, 4]), fit.to_dense()[3:5], rtol=1e-12)
    # Without correction tables, predictions are sums of intercepts.
    fit = replace(fit, rows=replace(fit.rows, effects=None), cols=replace(fit.cols, effects=None))
    predicted = fit.constant + fit.row_intercepts[:, None] + fit.col_intercepts
    np.testing.assert_allclose(fit.to_dense(), predicted, rtol=1e-12)
    best = fit.rank([0, 7], 4, order="largest").cols
    assert (best == np.argsort(-fit.col_intercepts)[:4]).all()
    with pytest.warns(UserWarning, match="the factors of the model explain nothing"):
        near = fit.similar_rows(5, 3)
    apart = np.abs(fit.row_intercepts - fit.row_intercepts[5])
    np.testing.assert_allclose(near.distances, np.sort(apart)[1:4], rtol=1e-9)
    assert near.others.tolist() == np.argsort(apart)[1:4].tolist()
    assert fit.effective_omega(R) == pytest.approx(0.2, abs=0.1)
    fit.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    assert loaded.X.shape == (M, 0)
    np.testing.assert_array_equal(loaded.row_intercepts, fit.row_intercepts)


@pytest.mark.parametrize("reg", ["noise", 0.1, 0])
def test_folding_in_rows_of_the_fit_recovers_their_intercepts(reg):
    fit = fit_intercepts(R, reg=reg, tol=1e-10, max_iter=300)
    folded = fit.fold_in(R[:6])
    np.testing.assert_allclose(folded.row_intercepts, fit.row_intercepts[:6], atol=1e-6)


def test_tuning_compares_models_without_factors():
    fit = fit_intercepts(R, 0.8)
    assert [step.family for step in fit.tuning.steps] == ["constant", "equal", "weighted"]
    assert all(step.rank == 0 and step.reg == np.inf for step in fit.tuning.steps)
    equal, weighted = fit.tuning.steps[1:]
    assert fit.family == ("weighted" if weighted.loss < equal.loss / 1.005 else "equal")
    noisy = TRUTH + 0.3 * RNG.chisquare(3, (M, N))
    loss, constant = (
        expectile_loss((noisy - guess)[np.isnan(R)], 0.8)
        for guess in (fit.to_dense(), expectile(VALUES, 0.8))
    )
    assert loss < 0.5 * constant


@REGS
def test_scaling_by_1024_scales_the_fit_exactly(reg):
    one = fit_intercepts(R, reg=reg)
    large = fit_intercepts(1024 * R, reg=reg if isinstance(reg, str) else 1024 * reg)
    np.testing.assert_array_equal(large.to_dense(), 1024 * one.to_dense())


@REGS
def test_the_fit_does_not_depend_on_threads_store_and_start(reg, tmp_path):
    entries = ROWS, COLS, VALUES
    fit = fit_intercepts(entries, reg=reg)
    store = fastemf.store.build(entries, tmp_path / "store", shape=(M, N))
    for other in (fit_intercepts(entries, reg=reg, n_jobs=2), fit_intercepts(store, reg=reg)):
        np.testing.assert_array_equal(other.to_dense(), fit.to_dense())
    for init in ("random", fit, (np.zeros((M, 0)), np.zeros((N, 0)))):
        again = fit_intercepts(entries, reg=reg, init=init, tol=1e-9, max_iter=300)
        np.testing.assert_allclose(again.to_dense(), fit.to_dense(), atol=0.02)


def test_an_interrupted_fit_resumes(tmp_path):
    settings = {"reg": "noise", "tol": 1e-9, "max_iter": 60}
    whole = fit_intercepts(R, **settings)
    state = fastemf.Checkpoint(tmp_path / "state.npz", resume=True)
    fit_intercepts(R, **settings, checkpoint=state, callback=lambda record: record.sweep == 3)
    resumed = fit_intercepts(R, **settings, checkpoint=state)
    np.testing.assert_array_equal(resumed.to_dense(), whole.to_dense())


@pytest.mark.parametrize("reg", ["auto", "noise"])
def test_levels_and_select_take_rank_0(reg):
    levels = fastemf.complete_levels(R, (0.2, 0.8), 0, intercepts=True, reg=reg, n_jobs=1)
    assert (levels.spread(ROWS, COLS) >= 0).all()
    chosen = fastemf.select(R, 0.5, [0, 1], [reg], 2, intercepts=True, n_jobs=1)
    assert {row.k for row in chosen.table} == {0, 1}
    assert chosen.best.k == 0  # the data are sums of row and column effects


def test_a_file_without_factors_and_intercepts_is_refused(tmp_path):
    fit = fit_intercepts(R, reg=0.1)
    rows, cols = (replace(axis, intercepts=None) for axis in fit.axes)
    replace(fit, rows=rows, cols=cols).save(tmp_path / "nothing.npz")
    with pytest.raises(fastemf.ModelFileError, match="X and Y must be matrices of equal rank"):
        fastemf.load(tmp_path / "nothing.npz")
