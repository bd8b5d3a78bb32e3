"""The promises of a tuned fit, which is the default where there are enough cells."""

from __future__ import annotations

import dataclasses
import warnings
from functools import cache

import numpy as np
import pytest
from scenes import observed

import fastemf
from fastemf.datasets import make_skewed
from fastemf.model.fit_engine import even_engine, ridge_of
from fastemf.model.folding import folded_axis
from fastemf.observations.memory import observe
from fastemf.solver.path import FEWEST_CELLS
from fastemf.solver.search import Candidate
from fastemf.solver.tuner import FIRST, NARROW, RATIO, Tuner
from fastemf.solver.tuning import TuningStep

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

R = observed()
ROWS, COLS = np.nonzero(~np.isnan(R))
VALUES = R[ROWS, COLS]
cases = pytest.mark.parametrize(
    ("omega", "intercepts"),
    [
        (0.1, False),
        (0.9, True),
        pytest.param(0.5, True, marks=pytest.mark.thorough),
        pytest.param(0.9, False, marks=pytest.mark.thorough),
    ],
)


@cache
def tuned(omega, intercepts):
    return fastemf.complete(R, omega, 2, intercepts=intercepts, n_jobs=1)


def same_bits(one, other):
    assert one.tuning == other.tuning
    for name in ("reg", "intercept_reg", "mu", "shift", "family", "converged"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None and right is None) or np.array_equal(left, right)
    for left, right in zip(one.axes, other.axes, strict=True):
        assert (left.noise is None) == (right.noise is None)
        if left.noise is not None:
            assert left.noise.level == right.noise.level
            np.testing.assert_array_equal(left.noise.variances, right.noise.variances)
    for left, right in zip(one.history, other.history, strict=True):
        assert repr(dataclasses.replace(left, seconds=0.0)) == repr(
            dataclasses.replace(right, seconds=0.0)
        )


def test_bits_do_not_depend_on_threads_where_columns_are_so_many_that_blas_has_its_own():
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 40, 30_000), rng.integers(0, 20_000, 30_000)
    values = np.exp(rng.standard_normal(30_000) + rng.standard_normal(40)[rows])
    with warnings.catch_warnings(action="ignore"):  # columns without observations
        one, two = (
            fastemf.complete((rows, cols, values), 0.8, 2, intercepts=True, n_jobs=n_jobs)
            for n_jobs in (1, 2)
        )
    same_bits(one, two)
    assert one.tuning.folds > 1


@pytest.mark.parametrize(("rank", "chosen"), [(2, 0), (0, 1)])
def test_a_stronger_ridge_is_chosen_in_doubt_but_not_one_that_leaves_no_factors(rank, chosen):
    tuner = object.__new__(Tuner)
    doubt = np.array([1.0, -0.9])  # about the difference, by row
    tuner.tried = [
        Candidate(TuningStep("weighted", 2.0, rank, 1.03, 0.1, 0.5), 1 + doubt, ["fits"]),
        Candidate(TuningStep("weighted", 1.0, 3, 1.0, 0.1, 0.5), np.ones(2), ["fits"]),
        Candidate(TuningStep("weighted", 0.5, 3, 1.01, 0.1, 0.5), np.ones(2), ["fits"]),
    ]
    assert tuner.chosen() == chosen


@cases
def test_the_scene_is_one_that_factors_explain(omega, intercepts):
    fit = tuned(omega, intercepts)
    assert fit.family in ("weighted", "ridged")
    assert fit.tuning.best.rank == 2
    assert fit.tuning.note == ""
    losses = {baseline.name: baseline.loss for baseline in fit.tuning.baselines}
    assert fit.tuning.best.loss < 0.8 * min(losses.values())
    if intercepts:
        assert fit.tuning.best.effective_omega == pytest.approx(omega, abs=0.05)


# --- bits ----------------------------------------------------------------------------------


@pytest.mark.thorough
@cases
def test_the_same_seed_and_any_input_form_give_the_same_bits(omega, intercepts):
    again = fastemf.complete(
        (ROWS, COLS, VALUES), omega, 2, intercepts=intercepts, shape=R.shape, n_jobs=1
    )
    same_bits(again, tuned(omega, intercepts))


@pytest.mark.thorough
@pytest.mark.parametrize("intercepts", [False, True])
def test_threads_do_not_change_the_bits(intercepts, monkeypatch):
    for module in ("blocks", "remainder"):  # else there is too little work for two threads
        monkeypatch.setattr(f"fastemf.solver.{module}.WORK_OF_LAUNCH", 1)
    one, two = (
        fastemf.complete(R, 0.9, 2, intercepts=intercepts, n_jobs=n_jobs) for n_jobs in (1, 2)
    )
    same_bits(one, two)


@pytest.mark.parametrize("budget", [pytest.param(3000, marks=pytest.mark.thorough), 1 << 28])
def test_a_store_has_the_bits_of_memory(budget, tmp_path):
    fastemf.store.build((ROWS, COLS, VALUES), tmp_path / "store", shape=R.shape)
    data = fastemf.store.open(tmp_path / "store", budget=budget)
    assert (len(data.by_row.cuts()) > 4) == (budget == 3000)
    same_bits(fastemf.complete(data, 0.9, 2, intercepts=True, n_jobs=1), tuned(0.9, True))


# --- identities ----------------------------------------------------------------------------


@cases
def test_a_power_of_two_scales_the_fit_exactly(omega, intercepts):
    fit = tuned(omega, intercepts)
    scaled = fastemf.complete(1024 * R, omega, 2, intercepts=intercepts, n_jobs=1)
    np.testing.assert_array_equal(scaled.to_dense(), 1024 * fit.to_dense())
    assert scaled.shift == 1024 * fit.shift
    assert scaled.reg == 1024 * fit.reg
    assert scaled.tuning.chosen == fit.tuning.chosen
    for one, other in zip(fit.tuning.steps, scaled.tuning.steps, strict=True):
        assert other.loss == 1024**2 * one.loss


@pytest.mark.thorough
@cases
def test_any_unit_scales_the_fit(omega, intercepts):
    fit = tuned(omega, intercepts)
    scaled = fastemf.complete(3.7 * R, omega, 2, intercepts=intercepts, n_jobs=1)
    assert scaled.family == fit.family
    assert scaled.reg == pytest.approx(3.7 * fit.reg, rel=1e-8)
    assert scaled.shift == pytest.approx(3.7 * fit.shift, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(scaled.to_dense(), 3.7 * fit.to_dense(), rtol=1e-6, atol=1e-6)


@cases
def test_negating_the_data_mirrors_the_level(omega, intercepts):
    fit = tuned(omega, intercepts)
    mirror = fastemf.complete(-R, 1 - omega, 2, intercepts=intercepts, n_jobs=1)
    assert mirror.family == fit.family
    assert mirror.reg == pytest.approx(fit.reg, rel=1e-8)
    assert mirror.shift == pytest.approx(-fit.shift, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(mirror.to_dense(), -fit.to_dense(), rtol=1e-6, atol=1e-6)


@cases
def test_weight_two_is_the_observation_twice(omega, intercepts):
    v = 1.0 + (np.arange(VALUES.size) % 2)
    twice = np.repeat(np.arange(VALUES.size), v.astype(int))
    settings = {"intercepts": intercepts, "shape": R.shape, "n_jobs": 1}
    weighted = fastemf.complete((ROWS, COLS, VALUES), omega, 2, weights=v, **settings)
    repeated = fastemf.complete(
        (ROWS[twice], COLS[twice], VALUES[twice]), omega, 2, **settings
    )  # fmt: skip
    assert weighted.family == repeated.family
    assert weighted.reg == pytest.approx(repeated.reg, rel=1e-8)
    np.testing.assert_allclose(weighted.to_dense(), repeated.to_dense(), rtol=1e-6, atol=1e-6)


# --- certificates --------------------------------------------------------------------------


@cases
def test_the_objective_falls_to_what_the_fit_says_of_it(omega, intercepts):
    fit = tuned(omega, intercepts)
    objectives = [record.objective for record in fit.history if record.accepted]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    assert fit.objective(R) == pytest.approx(objectives[-1], rel=1e-12)
    assert fit.converged


@cases
@pytest.mark.parametrize("axis", [0, 1])
def test_the_training_rows_with_their_noise_scales_are_folded_in_to_themselves(
    omega, intercepts, axis
):
    fit = fastemf.complete(
        R, omega, 2, intercepts=intercepts, n_jobs=1, tol=1e-12, max_iter=400
    )  # fmt: skip
    data = observe(R)
    folded = folded_axis(
        fit.axes, axis, data, even_engine(fit, data, 1), ridge_of(fit), fit.family,
        variances=fit.axes[axis].noise.variances,
    )  # fmt: skip
    np.testing.assert_allclose(folded.extended(), fit.axes[axis].extended(), rtol=0, atol=1e-5)
    if axis == 0:  # solved last
        np.testing.assert_allclose(folded.extended(), fit.rows.extended(), rtol=0, atol=1e-6)


def test_new_rows_find_noise_scales_near_those_of_the_fit():
    fit = tuned(0.9, True)
    new = fit.fold_in(R, n_jobs=1)
    stored, found = fit.rows.noise.variances, new.rows.noise.variances
    assert np.corrcoef(np.log(stored), np.log(found))[0, 1] > 0.6
    apart = new.to_dense() - fit.to_dense()
    assert np.sqrt(np.mean(apart**2)) < 0.1 * np.nanstd(R)


@pytest.mark.thorough
def test_the_other_family_keeps_its_promises():
    data = make_skewed(40, 30, rank=2, density=0.5, random_state=1).R
    fit = fastemf.complete(data, 0.9, 2, n_jobs=1, tol=1e-12, max_iter=400)
    assert fit.family == "ridged"
    same_bits(fastemf.complete(data, 0.9, 2, n_jobs=2, tol=1e-12, max_iter=400), fit)
    assert fit.objective(data) == pytest.approx(fit.history[-1].objective, rel=1e-12)
    entries = observe(data)
    folded = folded_axis(
        fit.axes, 0, entries, even_engine(fit, entries, 1), ridge_of(fit), fit.family,
        variances=fit.rows.noise.variances,
    )  # fmt: skip
    np.testing.assert_allclose(folded.factor, fit.X, rtol=0, atol=1e-6)


# --- noiseless data ------------------------------------------------------------------------


def recovers(m, n, rank, density, omega, intercepts):
    data = make_skewed(m, n, rank=rank, density=density, noise=0, random_state=0)
    fit = fastemf.complete(data.R, omega, rank, intercepts=intercepts, n_jobs=1)
    error = np.linalg.norm(fit.to_dense() - data.truth) / np.linalg.norm(data.truth)
    assert error < 1e-5


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # as at reg="noise"
@pytest.mark.thorough
@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
def test_noiseless_data_are_recovered(omega, intercepts):
    recovers(80, 60, 2, 0.4, omega, intercepts)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # of the noiseless
@pytest.mark.parametrize("noise", [0.5, 0])
def test_a_ridge_that_follows_the_noise_is_fitted_once_to_see_that_it_loses(monkeypatch, noise):
    fitted = []
    followed = Tuner._followed

    def counted(self, place, *given):
        fitted.append(place)
        return followed(self, place, *given)

    monkeypatch.setattr(Tuner, "_followed", counted)
    data = make_skewed(120, 100, rank=2, density=0.5, noise=noise, random_state=0)
    fit = fastemf.complete(data.R, 0.5, 6, max_iter=30, n_jobs=1)
    families = {step.family for step in fit.tuning.steps}
    assert fitted == ([0] if noise else list(range(fit.tuning.folds)))
    assert ("noise" in families) == (noise == 0)


@pytest.mark.thorough
@pytest.mark.compiled
def test_noiseless_data_are_recovered_from_a_tenth():
    recovers(300, 300, 3, 0.1, 0.1, False)


# --- how it is asked for -------------------------------------------------------------------


class Killed(BaseException):
    pass


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_a_refit_that_was_interrupted_goes_on_to_the_same_bits(tmp_path):
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 2}
    settings = {"n_jobs": 1, "tol": 1e-9, "max_iter": 12}
    whole = fastemf.complete(R, 0.5, 2, **settings)

    def kill(record):
        if record.sweep == 5:
            raise Killed

    with pytest.raises(Killed):
        fastemf.complete(R, 0.5, 2, callback=kill, **kept, **settings)
    assert kept["checkpoint"].exists()
    same_bits(fastemf.complete(R, 0.5, 2, resume=True, **kept, **settings), whole)


def test_callbacks_see_the_refit_alone():
    seen = []
    fit = fastemf.complete(R, 0.5, 2, n_jobs=1, callback=seen.append)
    assert fit.history == tuple(seen)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_validation_cells_judge_and_are_not_fitted():
    held = np.arange(VALUES.size) % 7 == 0
    train = (ROWS[~held], COLS[~held], VALUES[~held])
    given = (ROWS[held], COLS[held], VALUES[held])
    settings = {"intercepts": True, "shape": R.shape, "n_jobs": 1, "validation": given}
    fit = fastemf.complete(train, 0.5, 2, **settings)
    assert fit.tuning.cells == held.sum()
    assert fit.tuning.folds == 1
    constant = next(base.loss for base in fit.tuning.baselines if base.name == "constant")
    shift = fastemf.loss.expectile(VALUES[~held], 0.5)
    expected = fastemf.loss.expectile_loss(VALUES[held] - shift, 0.5) / held.sum()
    assert constant == pytest.approx(expected, rel=1e-9)
    same_bits(fastemf.complete(train, 0.5, 2, **settings), fit)
    other = fastemf.complete(
        train, 0.5, 2, **{**settings, "validation": (ROWS[held], COLS[held], 9 - VALUES[held])}
    )
    assert other.tuning.best.loss > 5 * fit.tuning.best.loss


def test_too_few_validation_cells_are_not_tuned_by():
    held = np.arange(VALUES.size) % 10 == 0
    held &= np.cumsum(held) < 50
    given = (ROWS[held], COLS[held], VALUES[held])
    settings = {"shape": R.shape, "n_jobs": 1, "validation": given}
    train = (ROWS[~held], COLS[~held], VALUES[~held])
    fit = fastemf.complete(train, 0.5, 2, **settings)
    assert "too few observations to tune by (49, of at least 50)" in fit.tuning.note
    noise = fastemf.complete(train, 0.5, 2, reg="noise", **settings)
    np.testing.assert_array_equal(fit.X, noise.X)


@pytest.mark.parametrize("intercepts", [False, True])
def test_an_earlier_fit_narrows_the_path(intercepts):
    first = tuned(0.9, intercepts)
    again = fastemf.complete(R, 0.9, 2, intercepts=intercepts, init=first, n_jobs=1)
    assert len(again.tuning.steps) < len(first.tuning.steps)
    path = [step.reg for step in again.tuning.steps if step.family == first.family and step.rank]
    before = first.tuning.best.reg / first.tuning.noise * RATIO**-NARROW
    assert max(path) <= 1.001 * min(before, FIRST) * again.tuning.noise
    assert again.family == first.family
    assert again.tuning.best.loss <= 1.05 * first.tuning.best.loss


def test_float32_data_are_tuned_alike():
    double = tuned(0.9, True)
    single = fastemf.complete(R.astype(np.float32), 0.9, 2, intercepts=True, n_jobs=1)
    assert single.X.dtype == np.float32
    assert single.family == double.family
    assert single.reg == pytest.approx(double.reg, rel=1e-3)
    np.testing.assert_allclose(single.to_dense(), double.to_dense(), atol=0.01 * np.nanstd(R))


# --- where there is nothing to tune by -----------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*have no observations")
def test_few_observations_are_fitted_at_the_noise_following_ridge():
    few = slice(FEWEST_CELLS - 1)
    data, settings = (ROWS[few], COLS[few], VALUES[few]), {"shape": R.shape, "n_jobs": 1}
    fit = fastemf.complete(data, 0.3, 2, **settings)
    noise = fastemf.complete(data, 0.3, 2, reg="noise", **settings)
    assert fit.tuning.note == "too few observations to tune by (399, of at least 400)"
    assert noise.tuning is None
    for name in ("X", "Y", "reg", "shift", "family"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(noise, name))
