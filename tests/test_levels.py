"""`complete_levels`: fits at each level, tuning, and predictions that never cross."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scenes import same_bits

from fastemf import ConvergenceWarning, Levels, Solver, Validation, complete, complete_levels
from fastemf.datasets import load_wsdream, make_skewed
from fastemf.loss import expectile_loss
from fastemf.solver.ridge import NOISE_FACTOR
from fastemf.sources.hold_out import hold_out
from fastemf.sources.memory import observe
from fastemf.tuning import ridge_path as path

OMEGAS = (0.1, 0.5, 0.9)
DATA = make_skewed(24, 18, rank=2, density=0.6, random_state=0).R.tocoo()
CELLS = np.indices(DATA.shape)
LARGE = make_skewed(40, 30, rank=2, noise=0.1, density=0.7, random_state=0).R.tocoo()


@cache
def fitted(intercepts: bool) -> Levels:
    return complete_levels(DATA, OMEGAS, 2, intercepts=intercepts, reg="noise", n_jobs=2)


@cache
def tuned(intercepts: bool) -> Levels:
    """Tuned levels: the data are large enough for validation cells."""
    return complete_levels(LARGE, OMEGAS, 2, intercepts=intercepts, n_jobs=2)


@pytest.fixture(params=[False, True], ids=["factors", "intercepts"])
def intercepts(request):
    return request.param


def refit_from(start, omega, *changes):
    """Refit LARGE from a fit whose axes were changed."""
    rows, cols = (replace(axis, **change) for axis, change in zip(start.axes, changes, strict=True))
    intercepts = start.row_intercepts is not None
    init = replace(start, rows=rows, cols=cols)
    return complete(LARGE, omega, 2, intercepts=intercepts, init=init)


def same(one: Levels, two: Levels) -> None:
    for left, right in zip(one.fits, two.fits, strict=True):
        same_bits(left, right)


# --- the fits ------------------------------------------------------------------------------


@pytest.mark.compiled
def test_every_level_minimizes_its_objective(intercepts):
    # Neither further sweeps nor a separate fit with the same ridge decrease the objective.
    for fit in fitted(intercepts).fits:
        settings = {"intercepts": intercepts, "reg": fit.reg, "max_iter": 300}
        again = complete(DATA, fit.omega, 2, init=fit, tol=1e-9, **settings)
        alone = complete(DATA, fit.omega, 2, **settings)
        assert fit.converged
        assert again.objective(DATA) >= (1 - 1e-3) * fit.objective(DATA)
        assert fit.objective(DATA) <= (1 + 2e-3) * alone.objective(DATA)


@pytest.mark.compiled
def test_the_level_farthest_from_the_tail_equals_complete(intercepts):
    settings = {"intercepts": intercepts, "reg": "noise"}
    mirrored = complete_levels(-DATA, OMEGAS, 2, **settings)
    for data, levels, omega in ((DATA, fitted(intercepts), 0.1), (-DATA, mirrored, 0.9)):
        alone = complete(data, omega, 2, **settings)
        np.testing.assert_array_equal(levels.level(omega).X, alone.X)


def test_the_noise_ridge_depends_on_the_residuals_of_its_level():
    # reg="noise": λ = c RMS(r) / sqrt(1 − dof/p) 4ω(1 − ω), whatever the start's residuals were.
    m, n = DATA.shape
    dof = 2 * (m + n) - 4  # every row and column has two observations or more
    for fit in fitted(False).fits:
        r = DATA.data - fit.predict(DATA.row, DATA.col)
        noise = np.sqrt(np.mean(r**2) / (1 - dof / DATA.nnz))
        asked = NOISE_FACTOR * noise * 4 * fit.omega * (1 - fit.omega)
        assert fit.reg == pytest.approx(asked, rel=0.06)


@pytest.mark.compiled
def test_intercepts_start_centred_at_their_level():
    # A difference of the centres would move from row to column intercepts very slowly.
    settings = {"reg": 1.0, "intercepts": True}  # removes all factors
    R = make_skewed(400, 300, rank=3, density=0.2, random_state=0).R
    levels = complete_levels(R, OMEGAS, 3, **settings)
    assert all(np.abs(fit.X @ fit.Y.T).max() < 1e-3 for fit in levels.fits)
    for fit in levels.fits[1:]:
        alone = complete(R, fit.omega, 3, **settings)
        assert fit.n_iter <= alone.n_iter + 1
        assert fit.objective(R) <= alone.objective(R) * (1 + 1e-4)


@pytest.mark.compiled
def test_levels_are_accepted_in_any_order_and_form():
    for omegas in (np.array([0.9, 0.1, 0.5]), (w for w in OMEGAS)):
        same(complete_levels(DATA, omegas, 2, reg="noise"), fitted(False))
    assert fitted(False).omegas == OMEGAS


def test_noiseless_data_have_equal_predictions_at_all_levels():
    R = np.outer(np.arange(1.0, 9), np.arange(2.0, 8))
    for reg in ("auto", 0):
        levels = complete_levels(R, (0.01, 0.3, 0.9), 1, reg=reg)
        np.testing.assert_allclose(levels.predict_block(np.arange(8)), R[..., None] + np.zeros(3))


@pytest.mark.compiled
def test_negated_data_mirror_the_levels():
    # The fits agree as far as they converged.
    levels, mirrored = (
        complete_levels(R, OMEGAS, 2, reg=0.3, tol=1e-12, max_iter=2000).predict_block([0, 5])
        for R in (DATA, -DATA)
    )
    np.testing.assert_allclose(-mirrored[..., ::-1], levels, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.compiled
def test_fits_are_bitwise_identical_for_any_number_of_threads(intercepts):
    for data, levels in ((DATA, fitted), (LARGE, tuned)):
        reg = "noise" if data is DATA else "auto"
        one = complete_levels(data, OMEGAS, 2, intercepts=intercepts, reg=reg, n_jobs=1)
        same(one, levels(intercepts))


# --- tuned levels --------------------------------------------------------------------------


@pytest.mark.compiled
def test_tuned_levels_never_cross_and_minimize_their_own_loss(intercepts):
    levels = tuned(intercepts)
    assert (np.diff(levels.predict(*np.indices(LARGE.shape)), axis=-1) >= 0).all()
    assert all(fit.converged for fit in levels.fits)
    losses = [fit.tuning.best.loss for fit in levels.fits]
    assert losses[0] < losses[1]  # most weights are 0.1 at the level 0.1


@pytest.mark.thorough
@pytest.mark.compiled
@pytest.mark.parametrize("random_state", [3, "generator"])
def test_all_levels_have_the_same_validation_cells(monkeypatch, random_state):
    masses = []

    def recorded(engine, marks, make_trials=path._make_trials):
        found = make_trials(engine, marks)
        masses.append(np.concatenate(found[0].validation.masses))
        return found

    monkeypatch.setattr(path, "_make_trials", recorded)
    for seed in (np.random.default_rng(3) if random_state == "generator" else random_state, 4):
        complete_levels(LARGE, (0.2, 0.8), 2, random_state=seed)
    np.testing.assert_array_equal(masses[0], masses[1])
    assert not np.array_equal(masses[2], masses[0])


@pytest.mark.thorough
@pytest.mark.compiled
@pytest.mark.parametrize("tail", [1, -1])
def test_a_tuned_level_that_starts_from_its_neighbour_predicts_as_well(tail):
    whole = make_skewed(120, 100, rank=3, density=1.0, noise=0.1, random_state=1).R.toarray()
    known = np.random.default_rng(1).random(whole.shape) < 0.3
    R, cells = np.where(known, tail * whole, np.nan), np.nonzero(~known)
    levels = complete_levels(R, OMEGAS, 4, intercepts=True)
    first, *others = levels.fits[::tail]
    for fit in others:
        alone = complete(R, fit.omega, 4, intercepts=True)
        loss, other = (
            expectile_loss(tail * whole[cells] - one.predict(*cells), fit.omega)
            for one in (fit, alone)
        )
        assert loss < 1.03 * other
        assert first.tuning.best.rank > 0
        assert len(fit.tuning.steps) < len(alone.tuning.steps)


@pytest.mark.compiled
def test_later_levels_have_half_the_trials_without_intercepts(intercepts):
    first, *others = tuned(intercepts).fits
    assert first.tuning.best.rank > 0
    assert first.tuning.folds == 10
    assert [fit.tuning.folds for fit in others] == [10 if intercepts else 5] * len(others)
    assert all(fit.tuning.cells < first.tuning.cells for fit in others) == (not intercepts)


@pytest.mark.compiled
def test_tuning_does_not_depend_on_the_start():
    # The neighbour was fitted to the current validation cells.
    fit = tuned(True).level(0.1)
    rng = np.random.default_rng(0)
    changes = [
        {"factor": rng.standard_normal(axis.factor.shape), "intercepts": 0 * axis.intercepts}
        for axis in fit.axes
    ]
    assert refit_from(fit, 0.5, {}, {}).tuning == refit_from(fit, 0.5, *changes).tuning


@pytest.mark.compiled
def test_a_start_without_factors_does_not_prevent_factors(intercepts):
    fit = tuned(intercepts).level(0.1)
    assert fit.tuning.best.rank > 0
    after = refit_from(fit, 0.1, {"factor": 0 * fit.X}, {"factor": 0 * fit.Y})
    assert after.tuning.best.rank > 0
    # The ridges are from two paths, at most half a step apart.
    before = fit.to_dense()
    assert np.linalg.norm(after.to_dense() - before) < 0.03 * np.linalg.norm(before)


# --- the settings of `complete` --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"reg": 0.1, "solver": Solver(reg_scaling="plain")},
        {"solver": "cg"},
        {"solver": Solver(momentum=False)},
        {"reg": 0, "solver": Solver(orthogonalize=True), "max_iter": 300},
        {"init": "random", "random_state": 4},
    ],
    ids=repr,
)
def test_settings_reach_every_level(settings):
    levels = complete_levels(DATA, (0.2, 0.8), 2, **settings)
    alone = complete(DATA, 0.2, 2, **settings)
    np.testing.assert_array_equal(levels.fits[0].X, alone.X)
    solver = settings.get("solver", Solver())
    given = {"method": solver} if isinstance(solver, str) else asdict(solver)
    later = {"init": alone, "solver": Solver(**given | {"anneal": False})}
    neighbour = complete(DATA, 0.8, 2, **settings | later)
    np.testing.assert_array_equal(levels.fits[1].X, neighbour.X)


def test_annealing_can_be_turned_off_at_the_first_level():
    levels = complete_levels(DATA, (0.2, 0.8), 2, reg=0, solver=Solver(anneal=False), max_iter=300)
    assert all(record.reg == 0 for fit in levels.fits for record in fit.history)
    annealed = complete_levels(DATA, (0.2, 0.8), 2, reg=0, max_iter=300)
    assert annealed.fits[0].history[0].reg > 0
    assert annealed.fits[1].history[0].reg == 0


def test_given_validation_is_shared_by_all_levels():
    validation = Validation(0.3, patience=2)
    levels = complete_levels(DATA, (0.2, 0.8), 2, validation=validation, reg="noise")
    rng = np.random.default_rng(0)
    train, held_out = hold_out(observe(DATA), 0.3, rng)
    settings = {"validation": Validation(held_out, patience=2), "reg": "noise"}
    alone = complete(train, 0.2, 2, random_state=rng, **settings)
    after = complete(train, 0.8, 2, init=levels.fits[0], **settings)
    for fit, expected in zip(levels.fits, (alone, after), strict=True):
        np.testing.assert_array_equal(fit.X, expected.X)
    assert levels.fits[1].history[-1].validation_loss == after.history[-1].validation_loss


def test_a_callback_receives_all_sweeps_and_can_end_a_level():
    seen = []

    def stop_at_two(record):
        seen.append(record.sweep)
        return record.sweep == 2

    levels = complete_levels(DATA, OMEGAS, 2, callback=stop_at_two)  # without a warning
    assert seen == [1, 2] * 3
    assert [fit.n_iter for fit in levels.fits] == [2, 2, 2]


# --- predictions ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_level_is_the_last_axis_and_the_dtype_is_that_of_the_data(dtype):
    levels = complete_levels(DATA.astype(dtype), OMEGAS, 2, reg="noise")
    assert levels.predict(3, 7).dtype == levels.predict_block(3).dtype == dtype
    assert levels.spread(3, 7).dtype == dtype
    assert levels.predict(3, 7).shape == (3,)
    assert levels.predict([[3], [4]], [7, 8, 9]).shape == (2, 3, 3)
    assert levels.predict_block([3, 4]).shape == (2, 18, 3)
    every = levels.predict([[3], [4]], np.arange(18))
    rounding = 16 * np.finfo(dtype).eps  # BLAS may add in another order
    np.testing.assert_allclose(every, levels.predict_block([3, 4]), rtol=rounding)


def crossing():
    """Fits of pure noise with many parameters, which cross somewhere."""
    noise = np.random.default_rng(0).standard_normal((12, 10))
    return complete_levels(noise, (0.3, 0.4, 0.5, 0.6), 4, reg=0.01, max_iter=500)


CROSSING = pytest.param(crossing, marks=pytest.mark.compiled)


@pytest.mark.parametrize("levels", [lambda: fitted(False), lambda: fitted(True), CROSSING])
def test_predictions_are_the_sorted_predictions_of_the_fits(levels):
    found = levels()
    cells = np.indices(found.shape)
    one_by_one = np.stack([fit.predict(*cells) for fit in found.fits], axis=-1)
    np.testing.assert_array_equal(found.predict(*cells), np.sort(one_by_one, axis=-1))
    crossed = (one_by_one[..., 1:] < one_by_one[..., :-1]).any(axis=-1)
    np.testing.assert_array_equal(found.crossed(*cells), crossed)
    assert crossed.any() or levels is not crossing


finite = st.floats(-100, 100)


@given(arrays.arrays(float, 5, elements=finite), arrays.arrays(float, 5, elements=finite), finite)
@settings(max_examples=100)
def test_sorting_never_increases_the_loss(predicted, truth, observed):
    # Sorted values are closer to any increasing sequence, and their total loss is not larger.
    omegas, truth = (0.1, 0.3, 0.5, 0.7, 0.95), np.sort(truth)
    in_order = np.sort(predicted)
    for p in (1, 2, 3):
        before, after = (np.sum(np.abs(values - truth) ** p) for values in (predicted, in_order))
        assert after <= before + 1e-6
    before, after = (
        sum(expectile_loss(observed - q, w) for q, w in zip(values, omegas, strict=True))
        for values in (predicted, in_order)
    )
    assert after <= before * (1 + 1e-12) + 1e-9


def test_spread_is_the_difference_of_two_levels(intercepts):
    levels = fitted(intercepts)
    low, middle, high = np.moveaxis(levels.predict(*CELLS), -1, 0)
    assert (high > low).any()
    np.testing.assert_array_equal(levels.spread(*CELLS), high - low)
    np.testing.assert_array_equal(levels.spread(*CELLS, upper=0.5), middle - low)
    np.testing.assert_array_equal(levels.spread(*CELLS, lower=0.5), high - middle)
    assert np.isscalar(levels.spread(3, 7).item())


def test_cells_of_rows_without_observations():
    gap = DATA.toarray()
    gap[gap == 0] = np.nan
    gap[5] = np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations") as caught:
        levels = complete_levels(gap, OMEGAS, 2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(levels.predict(5, 3), np.zeros(3))
    assert np.isnan(levels.predict(5, 3, unseen="nan")).all()
    assert np.isnan(levels.spread(5, 3, unseen="nan"))


def test_one_level_of_several():
    levels = fitted(True)
    assert levels.level(0.9) is levels.fits[2]
    assert complete_levels(DATA, (0.3, 0.6), 1).level(0.1 + 0.2).omega == 0.3
    assert repr(levels).startswith(
        "<Levels 24 x 18, k=2, omegas=(0.1, 0.5, 0.9), intercepts, float64, 3 of 3 converged in "
    )


# --- warnings and errors -----------------------------------------------------------------------


def test_one_warning_lists_the_levels_that_did_not_converge():
    message = r"3 of 3 levels did not converge within max_iter=2 sweeps \(0.1, 0.5, 0.9\)"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        levels = complete_levels(DATA, OMEGAS, 2, max_iter=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not any(fit.converged for fit in levels.fits)


@pytest.mark.parametrize(
    ("omegas", "error", "message"),
    [
        (0.5, TypeError, r"omegas must be two or more levels .* use complete, got 0.5"),
        ([0.5], ValueError, r"two or more levels; for one level use complete, got \[0.5\]"),
        ([], ValueError, "two or more levels"),
        ([0.5, 0.1, 0.5], ValueError, r"different levels, got \[0.1, 0.5, 0.5\]"),
        ([0.5, 1.0], ValueError, "each of omegas must lie strictly between 0 and 1.*got 1.0"),
        ([0.5, "0.9"], TypeError, "each of omegas must be a number in"),
        ([[0.5, 0.9]], TypeError, "each of omegas must be one number in"),
    ],
)
def test_bad_levels(omegas, error, message):
    with pytest.raises(error, match=message):
        complete_levels(DATA, omegas, 2)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda levels: levels.level(0.7), "omega must be one of the levels fitted, 0.1, 0.5, 0.9"),
        (lambda levels: levels.spread(0, 0, lower=0.2), "lower must be one of the levels fitted"),
        (lambda levels: levels.spread(0, 0, upper=0.1), "lower must be a level below upper, got 0"),
        (lambda levels: levels.spread(0, 0, lower=0.9, upper=0.1), "got 0.9 and 0.1"),
        (lambda levels: levels.spread(0, 0, upper=90), "upper must lie strictly between 0 and 1"),
    ],
)
def test_bad_arguments_of_methods(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(fitted(False))


# --- measured data -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
def test_response_times_never_cross(data_folder, intercepts):
    data = load_wsdream(data_folder)
    sample = (data.source & 1) > 0
    rows, cols = data.R.row[sample], data.R.col[sample]
    with warnings.catch_warnings(action="ignore"):  # 76 services without an entry; max_iter
        levels = complete_levels(
            (rows, cols, data.R.data[sample]), (0.1, 0.25, 0.5, 0.75, 0.9), 10,
            shape=data.R.shape, intercepts=intercepts,
        )  # fmt: skip
    everywhere = levels.predict_block(np.arange(339))
    assert everywhere.shape == (339, 5825, 5)
    assert (np.diff(everywhere, axis=-1) >= 0).all()
    assert levels.crossed(np.arange(339)[:, None], np.arange(5825)).any()
