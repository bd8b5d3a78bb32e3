"""Rank 0: intercepts alone, a model like any other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fastemf
from fastemf import complete
from fastemf.loss import expectile, expectile_loss, sign_weights
from fastemf.operators import Gaussian

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

M, N = 40, 30
RNG = np.random.default_rng(2)
TRUTH = 5 + 2 * RNG.standard_normal((M, 1)) + RNG.standard_normal((1, N))
R = np.where(RNG.random((M, N)) < 0.6, TRUTH + 0.3 * RNG.chisquare(3, (M, N)), np.nan)
ROWS, COLS = np.nonzero(~np.isnan(R))
VALUES = R[ROWS, COLS]
REGS = pytest.mark.parametrize("reg", ["auto", "noise", 0.1, 0])


def levels_of(R, omega=0.2, **settings):
    return complete(R, omega, 0, intercepts=True, **{"n_jobs": 1, **settings})


def test_least_squares_is_the_two_way_fit():
    design = np.zeros((VALUES.size, M + N))
    design[np.arange(VALUES.size), ROWS] = design[np.arange(VALUES.size), M + COLS] = 1
    by_hand = design @ np.linalg.lstsq(design, VALUES, rcond=None)[0]
    fit = levels_of(R, 0.5, reg=0, tol=0, max_iter=200)
    np.testing.assert_allclose(fit.predict(ROWS, COLS), by_hand, atol=1e-7)


@pytest.mark.parametrize("omega", [0.1, 0.9])
def test_every_intercept_is_the_minimum_given_the_others(omega):
    fit = levels_of(R, omega, reg=1.0, tol=0, max_iter=300)
    r = VALUES - fit.predict(ROWS, COLS)
    slopes = sign_weights(r, omega) * r
    for keys, size, found in ((ROWS, M, fit.row_intercepts), (COLS, N, fit.col_intercepts)):
        slope = np.bincount(keys, slopes, minlength=size) - fit.intercept_reg * found
        np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_a_ridge_that_removes_all_factors_leaves_the_same_model():
    without = levels_of(R, reg=0.1, tol=1e-10, max_iter=300)
    removed = complete(R, 0.2, 2, intercepts=True, reg=1e6, tol=1e-10, max_iter=300, n_jobs=1)
    np.testing.assert_allclose(removed.to_dense(), without.to_dense(), rtol=1e-6)


@REGS
def test_all_questions_have_answers(reg, tmp_path):
    fit = levels_of(R, reg=reg)
    assert (fit.k, fit.X.shape, fit.Y.shape) == (0, (M, 0), (N, 0))
    assert fit.converged
    np.testing.assert_allclose(fit.predict_block([3, 4]), fit.to_dense()[3:5], rtol=1e-12)
    # Without the tables that a tuned fit may have, intercepts are all there is.
    fit = replace(fit, rows=replace(fit.rows, levels=None), cols=replace(fit.cols, levels=None))
    predicted = fit.constant + fit.row_intercepts[:, None] + fit.col_intercepts
    np.testing.assert_allclose(fit.to_dense(), predicted, rtol=1e-12)
    np.testing.assert_allclose(fit.predict_block([3, 4]), predicted[3:5], rtol=1e-12)
    np.testing.assert_allclose(fit.predict([[3], [4]], np.arange(N)), predicted[3:5], rtol=1e-12)
    best = fit.rank([0, 7], 4, order="largest").cols
    assert (best == np.argsort(-fit.col_intercepts)[:4]).all()
    near = fit.similar_rows(5, 3)
    apart = np.abs(fit.row_intercepts - fit.row_intercepts[5])
    np.testing.assert_allclose(near.distances, np.sort(apart)[1:4], rtol=1e-9)
    assert near.others.tolist() == np.argsort(apart)[1:4].tolist()
    assert fit.similar_cols(5, 3).others.size == 3
    assert np.isfinite(fit.summary(R).loss).all()
    assert fit.effective_omega(R) == pytest.approx(0.2, abs=0.1)
    assert np.isfinite(fit.objective(R))
    fit.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    assert loaded.X.shape == (M, 0)
    np.testing.assert_array_equal(loaded.row_intercepts, fit.row_intercepts)


@pytest.mark.parametrize("reg", ["noise", 0.1, 0])
def test_rows_folded_in_have_their_intercepts(reg):
    fit = levels_of(R, reg=reg, tol=1e-10, max_iter=300)
    folded = fit.fold_in(R[:6])
    np.testing.assert_allclose(folded.row_intercepts, fit.row_intercepts[:6], atol=1e-6)


def test_the_tuner_tries_what_has_no_factors():
    fit = levels_of(R, 0.8)
    assert [step.family for step in fit.tuning.steps] == ["constant", "even", "weighted"]
    assert all(step.rank == 0 and step.reg == np.inf for step in fit.tuning.steps)
    even, weighted = fit.tuning.steps[1:]
    assert fit.family == ("weighted" if weighted.loss < even.loss / 1.005 else "even")
    fresh = np.isnan(R)
    noisy = TRUTH + 0.3 * RNG.chisquare(3, (M, N))
    constant = np.full(R.shape, expectile(VALUES, 0.8))
    losses = [expectile_loss((noisy - guess)[fresh], 0.8) for guess in (fit.to_dense(), constant)]
    assert losses[0] < 0.5 * losses[1]


@REGS
def test_a_unit_of_1024_gives_exactly_the_scaled_fit(reg):
    reg = {"one": reg, "large": reg if isinstance(reg, str) else 1024 * reg}
    one, large = levels_of(R, reg=reg["one"]), levels_of(1024 * R, reg=reg["large"])
    np.testing.assert_array_equal(large.to_dense(), 1024 * one.to_dense())


@pytest.mark.compiled
@REGS
def test_threads_store_and_start_leave_no_trace(reg, tmp_path):
    entries = ROWS, COLS, VALUES
    fit = levels_of(entries, reg=reg)
    store = fastemf.store.build(entries, tmp_path / "store", shape=(M, N))
    for other in (levels_of(entries, reg=reg, n_jobs=2), levels_of(store, reg=reg)):
        np.testing.assert_array_equal(other.to_dense(), fit.to_dense())
    for init in ("random", fit, (np.zeros((M, 0)), np.zeros((N, 0)))):
        again = levels_of(entries, reg=reg, init=init, tol=1e-9, max_iter=300)
        np.testing.assert_allclose(again.to_dense(), fit.to_dense(), atol=0.02)


def test_an_interrupted_fit_goes_on(tmp_path):
    settings = {"reg": "noise", "tol": 1e-9, "max_iter": 60}
    whole = levels_of(R, **settings)
    checkpoint = tmp_path / "state.npz"
    levels_of(R, **settings, checkpoint=checkpoint, callback=lambda record: record.sweep == 3)
    resumed = levels_of(R, **settings, checkpoint=checkpoint, resume=True)
    np.testing.assert_array_equal(resumed.to_dense(), whole.to_dense())


@pytest.mark.parametrize("reg", ["auto", "noise"])
def test_the_other_tasks_take_it(reg):
    settings = {"intercepts": True, "reg": reg, "n_jobs": 1}
    levels = fastemf.complete_levels(R, (0.2, 0.8), 0, **settings)
    assert (levels.spread(ROWS, COLS) >= 0).all()
    found = fastemf.level_for_coverage(R, 0.6, 0, **settings)
    assert abs(found.coverage - 0.6) <= 2 * found.standard_error
    chosen = fastemf.select(R, 0.5, [0, 1], [reg], 2, intercepts=True, n_jobs=1)
    assert {row.k for row in chosen.table} == {0, 1}
    assert chosen.best.k == 0  # the data are sums of row and column levels


def test_gaps_and_float32():
    gap = R.astype(np.float32)
    gap[4] = np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations"):
        fit = levels_of(gap)
    assert fit.to_dense().dtype == np.float32
    assert fit.row_intercepts[4] == 0


def test_it_needs_intercepts():
    for task in (complete, fastemf.level_for_coverage):
        with pytest.raises(ValueError, match=r"k must be at least 1 \(0 is intercepts alone"):
            task(R, 0.5, 0)
    with pytest.raises(ValueError, match=r"ks must be at least 1 \(0 is intercepts alone"):
        fastemf.select(R, 0.5, [0])
    with pytest.raises(ValueError, match="k must be at least 0, got -1"):
        complete(R, 0.5, -1, intercepts=True)
    with pytest.raises(ValueError, match="init has rank 0, k is 1"):
        complete(R, 0.5, 1, intercepts=True, reg=0.1, init=levels_of(R, reg=0.1))


def test_measurements_refuse_it():
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        fastemf.sense(Gaussian(20, (5, 4)), np.ones(20), 0.5, 0)


def test_a_file_without_factors_and_intercepts_is_no_model(tmp_path):
    fit = levels_of(R, reg=0.1)
    rows, cols = (replace(axis, intercepts=None) for axis in fit.axes)
    replace(fit, rows=rows, cols=cols).save(tmp_path / "nothing.npz")
    with pytest.raises(fastemf.ModelFileError, match="X and Y must be matrices of equal rank"):
        fastemf.load(tmp_path / "nothing.npz")
