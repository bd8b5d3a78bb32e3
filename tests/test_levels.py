"""Several levels in one call: the fits of `complete`, sorted so that they never cross."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastemf import ConvergenceWarning, Levels, complete, complete_levels
from fastemf.datasets import load_wsdream, make_skewed
from fastemf.loss import expectile_loss
from fastemf.observations.hold_out import hold_out
from fastemf.observations.memory import observe
from fastemf.solver import following, path, tuner
from fastemf.solver.ridge import NOISE_FACTOR
from fastemf.solver.search import Leads

OMEGAS = (0.1, 0.5, 0.9)
DATA = make_skewed(24, 18, rank=2, density=0.6, random_state=0).R.tocoo()
CELLS = np.indices(DATA.shape)
LARGE = make_skewed(40, 30, rank=2, noise=0.1, density=0.7, random_state=0).R.tocoo()


@cache
def fitted(intercepts: bool) -> Levels:
    return complete_levels(DATA, OMEGAS, 2, intercepts=intercepts, reg="noise")


@cache
def tuned(intercepts: bool) -> Levels:
    """Levels of data that are large enough to set cells aside."""
    return complete_levels(LARGE, OMEGAS, 2, intercepts=intercepts)


@pytest.fixture(params=[False, True], ids=["factors", "intercepts"])
def intercepts(request):
    return request.param


def same(one: Levels, two: Levels) -> bool:
    return all(
        np.array_equal(a.X, b.X) and np.array_equal(a.Y, b.Y) and a.history[-1].objective
        == b.history[-1].objective for a, b in zip(one.fits, two.fits, strict=True)
    )  # fmt: skip


# --- the fits ------------------------------------------------------------------------------


@pytest.mark.compiled
def test_every_level_is_a_minimum_of_its_own_objective(intercepts):
    # From a level's fit, further sweeps at its ridge find nothing: the start leaves no trace.
    for fit in fitted(intercepts).fits:
        assert fit.converged
        again = complete(
            DATA, fit.omega, 2, intercepts=intercepts, init=fit, reg=fit.reg, tol=1e-9,
            max_iter=300,
        )  # fmt: skip
        assert again.objective(DATA) >= (1 - 1e-3) * fit.objective(DATA)


@pytest.mark.compiled
def test_no_level_ends_higher_than_one_started_anew(intercepts):
    for fit in fitted(intercepts).fits:
        alone = complete(DATA, fit.omega, 2, intercepts=intercepts, reg=fit.reg, max_iter=300)
        assert fit.objective(DATA) <= (1 + 2e-3) * alone.objective(DATA)


@pytest.mark.compiled
def test_the_level_farthest_from_the_tail_is_the_fit_of_complete(intercepts):
    settings = {"intercepts": intercepts, "reg": "noise"}
    alone = complete(DATA, 0.1, 2, **settings)
    np.testing.assert_array_equal(fitted(intercepts).level(0.1).X, alone.X)
    mirrored = complete_levels(-DATA, OMEGAS, 2, **settings)
    alone = complete(-DATA, 0.9, 2, **settings)
    np.testing.assert_array_equal(mirrored.level(0.9).X, alone.X)


def test_the_ridge_is_that_of_the_levels_own_residuals():
    # reg="noise": λ = c RMS(r) / sqrt(1 − dof/p) 4ω(1 − ω), whatever the start's residuals were.
    m, n = DATA.shape
    dof = 2 * (m + n) - 4  # every row and column has two observations or more
    for fit in fitted(False).fits:
        r = DATA.data - fit.predict(DATA.row, DATA.col)
        noise = np.sqrt(np.mean(r**2) / (1 - dof / DATA.nnz))
        asked = NOISE_FACTOR * noise * 4 * fit.omega * (1 - fit.omega)
        assert fit.reg == pytest.approx(asked, rel=0.06)


@pytest.mark.compiled
def test_intercepts_begin_as_far_from_the_levels_own_centre_as_from_the_neighbours():
    # What lies between the centres would leave the rows' intercepts for the columns' very slowly.
    settings = {"reg": 1.0, "intercepts": True}  # no factors are left
    R = make_skewed(400, 300, rank=3, density=0.2, random_state=0).R
    levels = complete_levels(R, OMEGAS, 3, **settings)
    assert all(np.abs(fit.X @ fit.Y.T).max() < 1e-3 for fit in levels.fits)
    for fit in levels.fits[1:]:
        alone = complete(R, fit.omega, 3, **settings)
        assert fit.n_iter <= alone.n_iter + 1
        assert fit.objective(R) <= alone.objective(R) * (1 + 1e-4)


@pytest.mark.compiled
def test_levels_may_come_in_any_order_and_form():
    shuffled = np.array([0.9, 0.1, 0.5])
    assert same(complete_levels(DATA, shuffled, 2, reg="noise"), fitted(False))
    assert same(complete_levels(DATA, (w for w in OMEGAS), 2, reg="noise"), fitted(False))
    assert fitted(False).omegas == OMEGAS


def test_noiseless_data_have_one_value_at_all_levels():
    R = np.outer(np.arange(1.0, 9), np.arange(2.0, 8))
    for reg in ("auto", 0):
        levels = complete_levels(R, (0.01, 0.3, 0.9), 1, reg=reg)
        np.testing.assert_allclose(levels.predict_block(np.arange(8)), R[..., None] + np.zeros(3))


@pytest.mark.compiled
def test_negated_data_mirror_the_levels():
    # Fits one by one agree only as far as they converged: here they converge well.
    mirrored = complete_levels(-DATA, (0.1, 0.5, 0.9), 2, reg=0.3, tol=1e-12, max_iter=2000)
    levels = complete_levels(DATA, (0.1, 0.5, 0.9), 2, reg=0.3, tol=1e-12, max_iter=2000)
    np.testing.assert_allclose(
        -mirrored.predict_block([0, 5])[..., ::-1], levels.predict_block([0, 5]), atol=1e-4
    )


@pytest.mark.compiled
def test_weight_two_is_the_observation_twice(intercepts):
    twice = np.arange(DATA.nnz) % 3 == 0
    rows, cols, values = (
        np.concatenate([a, a[twice]]) for a in (DATA.row, DATA.col, DATA.data)
    )  # fmt: skip
    repeated = complete_levels((rows, cols, values), OMEGAS, 2, intercepts=intercepts)
    weighted = complete_levels(DATA, OMEGAS, 2, intercepts=intercepts, weights=1.0 + twice)
    np.testing.assert_allclose(
        weighted.predict_block(np.arange(24)), repeated.predict_block(np.arange(24)), rtol=1e-6
    )


@pytest.mark.compiled
def test_any_number_of_threads_gives_the_same_bits(intercepts):
    one, two = (
        complete_levels(DATA, OMEGAS, 2, intercepts=intercepts, n_jobs=n_jobs) for n_jobs in (1, 2)
    )
    assert same(one, two)
    assert same(
        complete_levels(LARGE, OMEGAS, 2, intercepts=intercepts, n_jobs=1), tuned(intercepts)
    )


def test_the_data_are_read_once(monkeypatch):
    given = []

    def counted(R, **more):
        given.append(R)
        return observe(R, **more)

    monkeypatch.setattr("fastemf.solver.opening.observe", counted)
    complete_levels(DATA, OMEGAS, 2)
    assert [R is DATA for R in given] == [True]


# --- tuned levels --------------------------------------------------------------------------


@pytest.mark.compiled
def test_tuned_levels_never_cross_and_each_was_judged_by_its_own_loss(intercepts):
    levels = tuned(intercepts)
    assert (np.diff(levels.predict(*np.indices(LARGE.shape)), axis=-1) >= 0).all()
    for fit in levels.fits:
        assert fit.tuning.best is not None
        assert fit.converged
    losses = [fit.tuning.best.loss for fit in levels.fits]
    assert losses[0] < losses[1]  # each in units of its own weights: at 0.1 most of them are 0.1


@pytest.mark.compiled
@pytest.mark.parametrize("random_state", [3, "generator"])
def test_all_levels_set_the_same_cells_aside(monkeypatch, random_state):
    parts = []

    def recorded(engine, marks):
        found = trials(engine, marks)
        parts.append([trial.judge.masses for trial in found])
        return found

    trials = path._trials
    monkeypatch.setattr(path, "_trials", recorded)
    if random_state == "generator":
        random_state = np.random.default_rng(3)
    complete_levels(LARGE, (0.2, 0.8), 2, random_state=random_state)
    one, two = parts
    np.testing.assert_array_equal(np.concatenate(one[0]), np.concatenate(two[0]))
    complete_levels(LARGE, (0.2, 0.8), 2, random_state=4)
    assert not np.array_equal(np.concatenate(parts[2][0]), np.concatenate(one[0]))


@pytest.mark.compiled
@pytest.mark.parametrize("tail", [1, -1])
def test_a_tuned_level_goes_on_from_its_neighbours_trials_and_predicts_as_well(tail):
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
def test_a_level_that_follows_has_half_the_trials_unless_tables_need_all(intercepts):
    first, *others = tuned(intercepts).fits
    assert first.tuning.best.rank > 0
    assert first.tuning.folds == 10
    assert [fit.tuning.folds for fit in others] == [10 if intercepts else 5] * len(others)
    assert all(fit.tuning.cells < first.tuning.cells for fit in others) == (not intercepts)


@pytest.mark.parametrize(("folds", "kept"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (10, 5)])
def test_one_trial_alone_is_for_many_cells(folds, kept):
    trials, each = list(range(folds)), tuple(range(folds))
    found, leads = following.trials_to_follow(trials, Leads("weighted", 1.0, each), False)
    assert (found, leads.each) == (trials[:kept], each[:kept])
    found, leads = following.trials_to_follow(trials, Leads("weighted", 1.0, each[:kept]), True)
    assert found == trials
    assert (leads is None) == (kept < folds)


@pytest.mark.compiled
def test_a_neighbours_path_narrows_the_next():
    low, *others = tuned(True).fits
    assert low.tuning.noise > 0
    around = min(low.tuning.best.reg / low.tuning.noise, tuner.FIRST)
    middle = others[0].tuning
    tried = [step.reg for step in middle.steps if np.isfinite(step.reg) and step.family != "noise"]
    # The norm of the family chosen is that of the only path.
    assert max(tried) <= 1.001 * around * tuner.RATIO**-tuner.NARROW * middle.noise
    apart = np.log(np.array(tried[:-1]) / tried[1:]) / -np.log(tuner.RATIO)
    np.testing.assert_allclose(apart, 1)


@pytest.mark.compiled
def test_what_is_tried_owes_nothing_to_the_start():
    # The neighbour has been fitted to the cells that are set aside now.
    fit = tuned(True).level(0.1)
    rng = np.random.default_rng(0)
    rows, cols = (
        replace(axis, factor=rng.standard_normal(axis.factor.shape), intercepts=0 * axis.intercepts)
        for axis in fit.axes
    )
    other = replace(fit, rows=rows, cols=cols)
    one, two = (complete(LARGE, 0.5, 2, intercepts=True, init=init) for init in (fit, other))
    assert one.tuning == two.tuning


@pytest.mark.compiled
def test_a_neighbour_without_factors_does_not_keep_them_out(intercepts):
    fit = tuned(intercepts).level(0.1)
    assert fit.tuning.best.rank > 0
    rows, cols = (replace(axis, factor=0 * axis.factor) for axis in fit.axes)
    after = complete(LARGE, 0.1, 2, intercepts=intercepts, init=replace(fit, rows=rows, cols=cols))
    assert after.tuning.best.rank > 0
    # Their ridges are of two paths, half a step apart at most.
    before = fit.to_dense()
    assert np.linalg.norm(after.to_dense() - before) < 0.03 * np.linalg.norm(before)


# --- the settings of `complete` --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"reg": 0.1, "reg_scaling": "plain"},
        {"solver": "cg"},
        {"momentum": False},
        {"reg": 0, "orthogonalize": True, "max_iter": 300},
        {"init": "random", "random_state": 4},
    ],
    ids=repr,
)
def test_settings_reach_every_level(settings):
    levels = complete_levels(DATA, (0.2, 0.8), 2, **settings)
    alone = complete(DATA, 0.2, 2, **settings)
    np.testing.assert_array_equal(levels.fits[0].X, alone.X)
    settings.pop("init", None)
    neighbour = complete(DATA, 0.8, 2, **settings | {"init": alone, "anneal": False})
    np.testing.assert_array_equal(levels.fits[1].X, neighbour.X)


def test_annealing_can_be_turned_off_at_the_first_level():
    levels = complete_levels(DATA, (0.2, 0.8), 2, reg=0, anneal=False, max_iter=300)
    assert all(record.reg == 0 for fit in levels.fits for record in fit.history)
    annealed = complete_levels(DATA, (0.2, 0.8), 2, reg=0, max_iter=300)
    assert annealed.fits[0].history[0].reg > 0
    assert annealed.fits[1].history[0].reg == 0


def test_the_same_cells_are_held_out_at_all_levels():
    settings = {"patience": 2, "reg": "noise"}
    levels = complete_levels(DATA, (0.2, 0.8), 2, validation=0.3, **settings)
    rng = np.random.default_rng(0)
    train, judge = hold_out(observe(DATA), 0.3, rng)
    alone = complete(train, 0.2, 2, validation=judge, random_state=rng, **settings)
    np.testing.assert_array_equal(levels.fits[0].X, alone.X)
    after = complete(train, 0.8, 2, validation=judge, init=levels.fits[0], **settings)
    np.testing.assert_array_equal(levels.fits[1].X, after.X)
    assert levels.fits[1].history[-1].validation_loss == after.history[-1].validation_loss


def test_a_callback_sees_all_sweeps_and_may_end_a_level():
    seen = []

    def two(record):
        seen.append(record.sweep)
        return record.sweep == 2

    levels = complete_levels(DATA, OMEGAS, 2, callback=two)  # no warning: it did as it was told
    assert seen == [1, 2] * 3
    assert [fit.n_iter for fit in levels.fits] == [2, 2, 2]


# --- predictions ---------------------------------------------------------------------------


def test_the_level_is_the_last_axis(intercepts):
    levels = fitted(intercepts)
    assert levels.predict(3, 7).shape == (3,)
    assert levels.predict([[3], [4]], [7, 8, 9]).shape == (2, 3, 3)
    assert levels.predict_block([3, 4]).shape == (2, 18, 3)
    np.testing.assert_allclose(
        levels.predict([[3], [4]], np.arange(18)), levels.predict_block([3, 4])
    )


def test_predictions_are_those_of_the_fits_sorted(intercepts):
    levels = fitted(intercepts)
    one_by_one = np.stack([fit.predict(*CELLS) for fit in levels.fits], axis=-1)
    predicted = levels.predict(*CELLS)
    assert (np.diff(predicted, axis=-1) >= 0).all()
    np.testing.assert_array_equal(predicted, np.sort(one_by_one, axis=-1))
    crossed = np.array(
        [
            any(b < a for a, b in itertools.pairwise(cell))
            for cell in one_by_one.reshape(-1, len(OMEGAS)).tolist()
        ]
    )
    np.testing.assert_array_equal(levels.crossed(*CELLS).ravel(), crossed)


@pytest.mark.compiled
def test_crossing_fits_are_put_in_order():
    # Fits of pure noise with many parameters cross somewhere.
    noise = np.random.default_rng(0).standard_normal((12, 10))
    levels = complete_levels(noise, (0.3, 0.4, 0.5, 0.6), 4, reg=0.01, max_iter=500)
    cells = np.indices(noise.shape)
    assert levels.crossed(*cells).any()
    assert (np.diff(levels.predict(*cells), axis=-1) >= 0).all()


finite = st.floats(-100, 100)


@given(
    arrays.arrays(float, 5, elements=finite),
    arrays.arrays(float, 5, elements=finite),
    finite,
)
@settings(max_examples=100)
def test_sorting_is_never_worse(predicted, truth, observed):
    # What Levels says of sorting: nearer to anything that rises, and no larger losses in all.
    omegas, truth = (0.1, 0.3, 0.5, 0.7, 0.95), np.sort(truth)
    in_order = np.sort(predicted)
    for p in (1, 2, 3):
        assert (
            np.sum(np.abs(in_order - truth) ** p) <= np.sum(np.abs(predicted - truth) ** p) + 1e-6
        )
    before, after = (
        sum(expectile_loss(observed - q, w) for q, w in zip(values, omegas, strict=True))
        for values in (predicted, in_order)
    )
    assert after <= before * (1 + 1e-12) + 1e-9


def test_spread_is_the_distance_of_two_levels(intercepts):
    levels = fitted(intercepts)
    low, middle, high = np.moveaxis(levels.predict(*CELLS), -1, 0)
    spread = levels.spread(*CELLS)
    assert (spread >= 0).all()
    assert (spread > 0).any()
    np.testing.assert_array_equal(spread, high - low)
    np.testing.assert_array_equal(levels.spread(*CELLS, upper=0.5), middle - low)
    np.testing.assert_array_equal(levels.spread(*CELLS, lower=0.5), high - middle)
    assert np.isscalar(levels.spread(3, 7).item())


def test_cells_never_seen():
    gap = DATA.toarray()
    gap[gap == 0] = np.nan
    gap[5] = np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations") as caught:
        levels = complete_levels(gap, OMEGAS, 2)
    assert len(caught) == 1  # not once a level
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(levels.predict(5, 3), np.zeros(3))
    assert np.isnan(levels.predict(5, 3, unseen="nan")).all()
    assert np.isnan(levels.spread(5, 3, unseen="nan"))


def test_float32_stays():
    levels = complete_levels(DATA.astype(np.float32), (0.2, 0.8), 2)
    assert levels.predict(3, 7).dtype == levels.predict_block(3).dtype == np.float32
    assert levels.spread(3, 7).dtype == np.float32


def test_one_level_of_several():
    levels = fitted(True)
    assert levels.level(0.9) is levels.fits[2]
    assert complete_levels(DATA, (0.3, 0.6), 1).level(0.1 + 0.2).omega == 0.3
    assert repr(levels).startswith(
        "<Levels 24 x 18, k=2, omegas=(0.1, 0.5, 0.9), intercepts, float64, 3 of 3 converged in "
    )


# --- what goes wrong -----------------------------------------------------------------------


def test_levels_that_did_not_converge_are_named_in_one_warning():
    with pytest.warns(ConvergenceWarning) as caught:
        levels = complete_levels(DATA, OMEGAS, 2, max_iter=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "3 of 3 levels did not converge within max_iter=2 sweeps (0.1, 0.5, 0.9)" in str(
        caught[0].message
    )
    assert not any(fit.converged for fit in levels.fits)


def test_warnings_are_as_before_when_a_fit_fails():
    before = list(warnings.filters)
    with pytest.raises(ValueError, match="k must be at most"):
        complete_levels(DATA, OMEGAS, 100)
    assert warnings.filters == before


@pytest.mark.parametrize(
    ("omegas", "error", "message"),
    [
        (0.5, TypeError, r"omegas must be two or more levels .* use complete, got 0.5"),
        ("0.5", TypeError, "omegas must be two or more levels"),
        ([0.5], ValueError, r"two or more levels; for one level use complete, got \[0.5\]"),
        ([], ValueError, "two or more levels"),
        ([0.5, 0.1, 0.5], ValueError, r"different levels, got \[0.1, 0.5, 0.5\]"),
        ([0.5, 1.0], ValueError, "each of omegas must lie strictly between 0 and 1.*got 1.0"),
        ([10, 90], ValueError, "each of omegas must lie strictly between 0 and 1.*got 10"),
        ([0.5, "0.9"], TypeError, "each of omegas must be a number in"),
        ([[0.5, 0.9]], TypeError, "each of omegas must be one number in"),
        ([0.5, np.nan], ValueError, "each of omegas must lie strictly between 0 and 1.*got nan"),
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
def test_bad_questions(ask, message):
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
    assert levels.crossed(np.arange(339)[:, None], np.arange(5825)).any()  # or it proves nothing
