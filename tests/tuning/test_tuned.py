"""Tuned fits, the default for at least 400 observations: identities and certificates."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from scenes import VALUES, R, entries, same_bits

import fastemf
from fastemf.datasets import make_skewed
from fastemf.models.fold_in import solve_axis, unweighted_engine
from fastemf.sources.memory import observe
from fastemf.tuning.record import TuningStep
from fastemf.tuning.ridge_path import FEWEST_CELLS
from fastemf.tuning.trial import Candidate
from fastemf.tuning.tuner import FIRST, NARROW, RATIO, Tuner

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

cases = pytest.mark.parametrize(("omega", "intercepts"), [(0.1, False), (0.9, True)])


@cache
def tuned(omega, intercepts):
    return fastemf.complete(R, omega, 2, intercepts=intercepts, n_jobs=1)


def test_bits_do_not_depend_on_threads_where_columns_are_so_many_that_blas_has_its_own():
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 40, 13_000), rng.integers(0, 11_000, 13_000)
    values = np.exp(rng.standard_normal(13_000) + rng.standard_normal(40)[rows])
    with warnings.catch_warnings(action="ignore"):  # columns without observations
        one, two = (
            fastemf.complete((rows, cols, values), 0.8, 1, intercepts=True, n_jobs=n_jobs)
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
    assert tuner.choose() == chosen


# --- bits ----------------------------------------------------------------------------------


@cases
def test_threads_and_input_forms_do_not_change_the_bits(omega, intercepts, monkeypatch):
    expected = tuned(omega, intercepts)
    for module in ("solver.half_sweep", "sources.source"):  # even for so little work
        monkeypatch.setattr(f"fastemf.{module}.WORK_OF_LAUNCH", 1)
    settings = {"intercepts": intercepts, "shape": R.shape, "n_jobs": 2}
    same_bits(fastemf.complete(entries(), omega, 2, **settings), expected)


# --- identities ----------------------------------------------------------------------------


@cases
def test_a_power_of_two_scales_the_fit_exactly(omega, intercepts):
    fit = tuned(omega, intercepts)
    scaled = fastemf.complete(1024 * R, omega, 2, intercepts=intercepts, n_jobs=1)
    np.testing.assert_array_equal(scaled.to_dense(), 1024 * fit.to_dense())
    assert (scaled.shift, scaled.reg) == (1024 * fit.shift, 1024 * fit.reg)
    assert scaled.tuning.chosen == fit.tuning.chosen
    losses = [[step.loss for step in one.tuning.steps] for one in (fit, scaled)]
    np.testing.assert_array_equal(losses[1], 1024**2 * np.array(losses[0]))


@cases
@pytest.mark.parametrize("unit", [3.7, -1])
def test_any_unit_scales_the_fit_and_a_negative_one_mirrors_the_level(unit, omega, intercepts):
    fit = tuned(omega, intercepts)
    level = omega if unit > 0 else 1 - omega
    scaled = fastemf.complete(unit * R, level, 2, intercepts=intercepts, n_jobs=1)
    assert scaled.family == fit.family
    assert scaled.reg == pytest.approx(abs(unit) * fit.reg, rel=1e-8)
    assert scaled.shift == pytest.approx(unit * fit.shift, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(scaled.to_dense(), unit * fit.to_dense(), rtol=1e-6, atol=1e-6)


@cases
def test_weight_two_is_the_observation_twice(omega, intercepts):
    v = 1.0 + (np.arange(VALUES.size) % 2)
    twice = np.repeat(np.arange(VALUES.size), v.astype(int))
    settings = {"intercepts": intercepts, "shape": R.shape, "n_jobs": 1}
    weighted = fastemf.complete(entries(), omega, 2, weights=v, **settings)
    repeated = fastemf.complete(entries(twice), omega, 2, **settings)
    assert weighted.family == repeated.family
    assert weighted.reg == pytest.approx(repeated.reg, rel=1e-8)
    np.testing.assert_allclose(weighted.to_dense(), repeated.to_dense(), rtol=1e-6, atol=1e-6)


# --- certificates --------------------------------------------------------------------------


@cases
def test_the_objective_decreases_to_that_of_the_fit(omega, intercepts):
    fit = tuned(omega, intercepts)
    objectives = [record.objective for record in fit.history if record.accepted]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    assert fit.objective(R) == pytest.approx(objectives[-1], rel=1e-12)
    assert fit.converged


def fold_in_fitted(fit, R, axis):
    """Fold in the data of a fit with the fit's own noise variances."""
    data = observe(R)
    engine = unweighted_engine(fit, data, 1)
    return solve_axis(fit, data, axis, engine, fit.axes[axis].noise.variances)


@cases
def test_folding_in_training_data_recovers_their_factors(omega, intercepts):
    fit = fastemf.complete(R, omega, 2, intercepts=intercepts, n_jobs=1, tol=1e-12, max_iter=400)
    for axis, atol in ((0, 1e-6), (1, 1e-5)):  # the rows are solved last
        folded = fold_in_fitted(fit, R, axis).extended_factor()
        np.testing.assert_allclose(folded, fit.axes[axis].extended_factor(), rtol=0, atol=atol)


def test_new_rows_find_noise_scales_near_those_of_the_fit():
    fit = tuned(0.9, True)
    new = fit.fold_in(R, n_jobs=1)
    logs = [np.log(one.rows.noise.variances) for one in (fit, new)]
    assert np.corrcoef(logs)[0, 1] > 0.6
    assert np.sqrt(np.mean((new.to_dense() - fit.to_dense()) ** 2)) < 0.1 * np.nanstd(R)


def test_a_ridged_fit_has_the_same_certificates():
    data = make_skewed(40, 30, rank=2, density=0.5, random_state=1).R
    fit = fastemf.complete(data, 0.9, 2, n_jobs=1, tol=1e-12, max_iter=400)
    assert fit.family == "ridged"
    same_bits(fastemf.complete(data, 0.9, 2, n_jobs=2, tol=1e-12, max_iter=400), fit)
    assert fit.objective(data) == pytest.approx(fit.history[-1].objective, rel=1e-12)
    np.testing.assert_allclose(fold_in_fitted(fit, data, 0).factor, fit.X, rtol=0, atol=1e-6)


# --- noiseless data ------------------------------------------------------------------------


SMALL, LARGE = (80, 60, 2, 0.4), (300, 300, 3, 0.1)  # shape, rank and density


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # as at reg="noise"
@pytest.mark.parametrize(
    ("size", "omega", "intercepts"),
    [(SMALL, 0.1, True), (SMALL, 0.5, False), (SMALL, 0.9, True), (LARGE, 0.1, False)],
)
@pytest.mark.parametrize("reg", ["auto", "noise"])
def test_noiseless_data_are_recovered(reg, size, omega, intercepts):
    # Once, a fixed ridge of the intercepts kept the residuals and the ridge of the factors above 0.
    m, n, rank, density = size
    data = make_skewed(m, n, rank=rank, density=density, noise=0, random_state=0)
    fit = fastemf.complete(data.R, omega, rank, reg=reg, intercepts=intercepts, n_jobs=1)
    error = np.linalg.norm(fit.to_dense() - data.truth) / np.linalg.norm(data.truth)
    assert error < 1e-5


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # of the noiseless
@pytest.mark.parametrize("noise", [0.5, 0])
def test_the_noise_adaptive_ridge_is_a_candidate_if_it_does_not_clearly_lose(noise):
    data = make_skewed(120, 100, rank=2, density=0.5, noise=noise, random_state=0).R
    fit = fastemf.complete(data, 0.5, 6, max_iter=30, n_jobs=1)
    families = {step.family for step in fit.tuning.steps}
    assert ("noise" in families) == (noise == 0)


# --- settings -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_validation_cells_evaluate_and_are_not_fitted():
    held = np.arange(VALUES.size) % 7 == 0
    train, given = entries(~held), entries(held)
    settings = {"intercepts": True, "shape": R.shape, "n_jobs": 1, "validation": given}
    fit = fastemf.complete(train, 0.5, 2, **settings)
    assert fit.tuning.cells == held.sum()
    assert fit.tuning.folds == 1
    constant = next(base.loss for base in fit.tuning.baselines if base.name == "constant")
    shift = fastemf.loss.expectile(VALUES[~held], 0.5)
    expected = fastemf.loss.expectile_loss(VALUES[held] - shift, 0.5) / held.sum()
    assert constant == pytest.approx(expected, rel=1e-9)
    seen = []
    same_bits(fastemf.complete(train, 0.5, 2, callback=seen.append, **settings), fit)
    assert len(seen) == fit.n_iter  # callbacks are not called by the tuning
    settings["validation"] = *given[:2], 9 - given[2]
    other = fastemf.complete(train, 0.5, 2, **settings)
    assert other.tuning.best.loss > 5 * fit.tuning.best.loss


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


# --- too few cells -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*have no observations")
@pytest.mark.parametrize(
    ("fitted", "held_out", "note"),
    [
        (slice(FEWEST_CELLS - 1), None, "399, of at least 400"),
        (slice(49, None), slice(49), "49, of at least 50"),
    ],
)
def test_without_enough_cells_to_tune_by_the_ridge_is_noise_adaptive(fitted, held_out, note):
    validation = None if held_out is None else entries(held_out)
    settings = {"shape": R.shape, "validation": validation, "n_jobs": 1}
    fit, noise = (
        fastemf.complete(entries(fitted), 0.3, 2, reg=reg, **settings) for reg in ("auto", "noise")
    )
    assert f"too few observations to tune by ({note})" in fit.tuning.note
    assert noise.tuning is None
    for name in ("X", "Y", "reg", "shift", "family"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(noise, name))
