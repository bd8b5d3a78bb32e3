"""The level for a wanted share: recomputed by hand, and met on cells that nobody saw."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import fastemf
from fastemf import (
    Calibration,
    ConvergenceWarning,
    complete,
    completion,
    coverage,
    fit_plan,
    level_for_coverage,
)
from fastemf.coverage import _Judge, _quantile
from fastemf.datasets import load_wsdream, make_skewed, split
from fastemf.level_search import LevelSearch
from fastemf.observations.hold_out import held_out, hold_out
from fastemf.observations.memory import observe
from fastemf.solver.holding import Holding
from fastemf.solver.opening import Data
from fastemf.solver.settings import Settings

DATA = make_skewed(40, 30, rank=1, density=0.7, random_state=0)
R = DATA.R.tocoo()


def calibrated(wanted, **settings) -> Calibration:
    return level_for_coverage(R, wanted, 1, **{"intercepts": True, "tol": 1e-4, **settings})


@pytest.fixture(scope="module")
def half():
    return calibrated(0.5)


def outside(data, share, seed, weights=None):
    """The observations held out: rows, columns, values, weights."""
    observed = observe(data, weights=weights)
    out = held_out(observed, share, np.random.default_rng(seed), "held_out")
    side = observed.by_row
    v = side.weights[out] if side.weights.size else np.ones(out.sum())
    return side.keys[out], side.indices[out], side.values[out], v


# --- the share is what it says -------------------------------------------------------------


@pytest.mark.parametrize("intercepts", [False, True])
def test_the_share_by_hand(intercepts):
    found = calibrated(0.5, intercepts=intercepts, held_out=0.3, random_state=5, reg="noise")
    rows, cols, values, _ = outside(R, 0.3, 5)
    assert found.held_out == values.size == round(0.3 * R.nnz)
    below = sum(v <= p for v, p in zip(values, found.fit.predict(rows, cols), strict=True))
    assert found.coverage == below / values.size
    assert found.shift == 0
    assert abs(found.coverage - 0.5) <= 2 * np.sqrt(0.25 / values.size)
    assert (found.omega, found.coverage) in found.tried
    assert found.omega == found.fit.omega
    assert found.fit.row_intercepts is not None or not intercepts


@pytest.mark.compiled
def test_the_fit_is_one_of_the_cells_that_were_not_held_out():
    # A minimum on those: the objective there does not fall any more.
    half = calibrated(0.5, reg="noise")
    observed = observe(R)
    out = held_out(observed, 0.2, np.random.default_rng(0), "held_out")
    again = complete(
        observed.subset(~out), half.omega, 1, intercepts=True, init=half.fit, reg=half.fit.reg,
        max_iter=300,
    )  # fmt: skip
    F = half.fit.objective(observed.subset(~out))
    assert (1 - 1e-3) * F <= again.objective(observed.subset(~out)) <= F


def test_standard_error_and_interval_by_hand(half):
    p, n, z = half.coverage, half.held_out, 1.959964
    assert half.standard_error == pytest.approx(np.sqrt(p * (1 - p) / n))
    for end in half.interval:  # where the normal test at that share just does not reject
        assert abs(p - end) == pytest.approx(z * np.sqrt(end * (1 - end) / n), rel=1e-6)
    assert half.interval[0] < p < half.interval[1]


def test_the_interval_holds_its_share_at_the_ends_too():
    for cells in range(20, 400):
        judge = _Judge(observe(np.ones((1, cells))))
        for share in (0.0, 1 / cells, 1.0):
            low, high = judge.interval(share)
            assert 0 <= low <= share <= high <= 1
        assert judge.interval(1.0)[1] == 1


def test_a_level_is_not_a_quantile(half):
    assert half.omega < 0.45  # the noise is skewed to the right: half of it lies below its mean


@pytest.mark.compiled
def test_more_coverage_takes_a_higher_level(half):
    assert calibrated(0.3).omega < half.omega < calibrated(0.7).omega


@pytest.mark.compiled
def test_weight_two_is_the_observation_twice():
    twice = R.row % 2 == 0
    weights = 1.0 + twice
    rows, cols, values = (np.concatenate([a, a[twice]]) for a in (R.row, R.col, R.data))
    found = calibrated(0.6, weights=weights)
    same = level_for_coverage((rows, cols, values), 0.6, 1, intercepts=True, tol=1e-4)
    assert found.coverage == pytest.approx(same.coverage, abs=1e-9)
    assert found.omega == pytest.approx(same.omega, rel=1e-6)
    assert found.standard_error == pytest.approx(same.standard_error)
    assert found.held_out < same.held_out
    rows, cols, values, v = outside(R, 0.2, 0, weights)
    below = values <= found.fit.predict(rows, cols)
    assert found.coverage == pytest.approx(np.sum(v * below) / np.sum(v))


def test_repeated_observations_say_no_more_than_one():
    tripled = tuple(np.tile(a, 3) for a in (R.row, R.col, R.data))
    once, thrice = _Judge(observe(R)), _Judge(observe(tripled))
    assert once.cells == thrice.cells == R.nnz
    assert once.standard_error(0.9) == thrice.standard_error(0.9)
    uneven = _Judge(observe(([0, 0, 0, 1], [0, 0, 0, 1], np.ones(4))))
    assert uneven.cells == 4**2 / (3**2 + 1)


@pytest.mark.compiled
def test_any_number_of_threads_gives_the_same_bits():
    one, two = (calibrated(0.4, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.fit.X, two.fit.X)
    assert one.tried == two.tried


@pytest.mark.compiled
def test_float32_stays():
    found = level_for_coverage(R.astype(np.float32), 0.5, 1, intercepts=True, tol=1e-4)
    assert found.fit.predict(3, [4, 5]).dtype == np.float32


# --- tuned fits ----------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("intercepts", [False, True])
def test_one_level_is_tuned_and_the_others_hold_what_it_found(monkeypatch, intercepts):
    fits, calls = [], []

    def counted(*args):
        calls.append(args)
        return tune(*args)

    def kept(*args):
        fits.append(fit_near(*args))
        return fits[-1]

    tune, fit_near = fit_plan.tune, coverage.fit_near
    monkeypatch.setattr(fit_plan, "tune", counted)
    monkeypatch.setattr(coverage, "fit_near", kept)
    found = calibrated(0.35, intercepts=intercepts, held_out=0.3)
    assert len(found.tried) == len(fits) > 1  # or it proves nothing
    assert len(calls) == 1
    first = fits[0]
    for fit in fits:
        assert fit.tuning is first.tuning
        assert fit.family == first.family
        for axis, other in zip(fit.axes, first.axes, strict=True):
            # Noise is kept for the weights of observations, and for tables of the level tuned.
            assert axis.noise is not None or fit.family == "even"
            if axis.noise is not None:
                np.testing.assert_array_equal(axis.noise.variances, other.noise.variances)
        levels = [one.omega * (1 - one.omega) for one in (fit, first)]
        assert fit.intercept_reg * levels[1] == pytest.approx(first.intercept_reg * levels[0])


@pytest.mark.compiled
def test_a_held_ridge_follows_the_norm_of_the_noise():
    # Data and level mirrored have the same norm; near levels have nearly the same multiple.
    observed = observe(R)
    for omega in (0.3, 0.31):
        settings = Settings(omega=0.3, k=1, intercepts=True, n_jobs=1)
        data, holding = Data(observed), Holding()
        first = completion.fit(data, settings, settings.generator(), holding)
        moved = replace(settings, omega=omega)
        again = completion.fit(data, moved, moved.generator(), holding)
        assert again.reg == pytest.approx(first.reg, rel=1e-12 if omega == 0.3 else 0.05)
        assert again.shift == pytest.approx(first.shift, abs=0.05)


def test_too_few_cells_to_tune_by_are_fitted_by_the_noise():
    few = sp.coo_array((R.data[:380], (R.row[:380], R.col[:380])))
    tuned, noise = (
        level_for_coverage(few, 0.5, 1, intercepts=True, tol=1e-4, reg=reg)
        for reg in ("auto", "noise")
    )
    assert tuned.tried == noise.tried
    assert "too few observations" in tuned.fit.tuning.note


# --- out of reach of levels ----------------------------------------------------------------


@pytest.mark.compiled
def test_a_constant_makes_up_for_what_no_level_reaches():
    with pytest.warns(UserWarning, match=r"out of reach of levels alone: at omega=0.999") as caught:
        found = level_for_coverage(R, 0.85, 6, held_out=0.4, tol=1e-4)
    assert caught[0].filename == __file__
    assert "try intercepts=True" in str(caught[0].message)
    rows, cols, values, _ = outside(R, 0.4, 0)
    predicted = found.fit.predict(rows, cols)
    product = np.sum(found.fit.X[rows] * found.fit.Y[cols], axis=1)
    np.testing.assert_allclose(predicted, product + found.shift)
    assert found.shift > 0
    assert found.coverage == np.mean(values <= predicted)
    assert abs(found.coverage - 0.85) <= 1.5 / values.size
    assert max(share for _, share in found.tried) < 0.85
    assert {0.1, 0.5, 0.9} <= {omega for omega, _ in found.tried}


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 1.0])
def test_the_quantile_is_the_least_value_that_will_do(share):
    rng = np.random.default_rng(0)
    values, weights = rng.integers(8, size=30).astype(float), rng.uniform(1, 3, 30)
    for v in (None, weights):
        q = _quantile(values, share, v)
        w = np.ones(30) if v is None else v
        assert q in values
        assert np.average(values <= q, weights=w) >= share - 1e-12
        assert np.average(values < q, weights=w) < share


class TestSearch:
    def run(self, curve, wanted, cells=10_000, most=20):
        """Levels tried where the share is a known function of the level."""
        judged = _Judge(observe(np.ones((100, cells // 100))))
        search = LevelSearch(wanted, judged.standard_error(wanted), judged.cells)
        omega, tried = 0.5, []
        while omega is not None and len(tried) < most:
            tried.append(omega)
            omega = search.following(omega, curve(omega))
        return search, tried

    @pytest.mark.parametrize("power", [0.2, 0.5, 1.0, 3.0])
    @pytest.mark.parametrize("wanted", [0.05, 0.5, 0.6, 0.9])
    def test_finds_the_level(self, power, wanted):
        def curve(omega):  # a straight line on logit scales, and one that is bent
            odds = (omega / (1 - omega)) ** power * 0.8 * (1 + omega)
            return odds / (1 + odds)

        search, tried = self.run(curve, wanted)
        if not search.out_of_reach:
            assert abs(curve(tried[-1]) - wanted) <= 0.5 * np.sqrt(wanted * (1 - wanted) / 10_000)
            assert len(tried) <= 9
        else:
            assert not curve(0.001) < wanted < curve(0.999)

    def test_gives_up_at_the_outermost_level(self):
        for curve, end in ((lambda omega: 0.3, 0.999), (lambda omega: 0.8, 0.001)):
            search, tried = self.run(curve, 0.5)
            assert search.out_of_reach
            assert tried[-1] == pytest.approx(end)
            assert len(tried) <= 5

    def test_ends_where_the_share_jumps(self):
        search, tried = self.run(lambda omega: 0.2 if omega < 0.7 else 0.8, 0.5, most=100)
        assert not search.out_of_reach
        assert tried[-1] == pytest.approx(0.7, abs=1e-3)


def test_several_shares_are_one_after_the_other(monkeypatch):
    made = []
    fit_near = coverage.fit_near
    monkeypatch.setattr(coverage, "fit_near", lambda *args: made.append(args) or fit_near(*args))
    found = calibrated((0.7, 0.4), reg="noise")
    assert [one.wanted for one in found] == [0.7, 0.4]
    alone = calibrated(0.7, reg="noise")  # the first does not know of others
    np.testing.assert_array_equal(found[0].fit.X, alone.fit.X)
    assert found[0].tried == alone.tried
    rows, cols, values, _ = outside(R, 0.2, 0)  # held out for both
    for one in found:
        assert one.coverage == np.mean(values <= one.fit.predict(rows, cols))
        assert abs(one.coverage - one.wanted) <= 2 * one.standard_error
    assert found[1].omega < found[0].omega
    assert isinstance(calibrated([0.5], reg="noise"), tuple)
    with pytest.raises(ValueError, match=r"coverage=0\.99 leaves"):
        calibrated((0.5, 0.99))
    with pytest.raises(ValueError, match="coverage must be a share or several, got none"):
        calibrated(())


@pytest.mark.compiled
def test_a_level_that_was_tried_is_not_fitted_again(monkeypatch):
    made = []
    fit_near = coverage.fit_near
    monkeypatch.setattr(
        coverage, "fit_near", lambda *args: made.append(args[2].omega) or fit_near(*args)
    )
    with warnings.catch_warnings(action="ignore"):  # both are out of reach
        found = level_for_coverage(R, (0.85, 0.9), 6, held_out=0.4, tol=1e-4)
    tried = [omega for one in found for omega, _ in one.tried]
    assert sorted(made) == sorted(set(tried))
    assert len(made) < len(tried)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_share_is_kept_in_the_file(half, tmp_path, shift):
    measured = half.fit.coverage
    assert (measured.wanted, measured.coverage) == (half.wanted, half.coverage)
    assert (measured.standard_error, measured.interval) == (half.standard_error, half.interval)
    assert (measured.held_out, measured.shift) == (half.held_out, half.shift)
    measured = replace(measured, shift=shift)
    replace(half, fit=replace(half.fit, coverage=measured)).save(tmp_path / "half.npz")
    read = fastemf.load(tmp_path / "half.npz")
    assert read.coverage == measured
    np.testing.assert_array_equal(read.predict_block([0]), half.fit.predict_block([0]))


def test_the_share_was_not_measured_for_new_rows(half):
    new = np.full((1, R.shape[1]), 2.0)
    assert half.fit.fold_in(new).coverage is None
    assert half.fit.extend(new).coverage is None
    assert complete(R, 0.5, 1, tol=1e-2, reg="noise").coverage is None


@pytest.mark.compiled
def test_equal_values_cannot_be_divided():
    with pytest.warns(UserWarning, match="coverage=0.5") as caught:
        found = level_for_coverage(np.ones((20, 20)), 0.5, 1, reg=0)
    assert found.coverage in (0, 1)
    assert "was not met: the nearest share is" in str(caught[-1].message)


def test_a_fit_that_did_not_converge_says_so():
    with pytest.warns(
        ConvergenceWarning, match=r"the fit at omega=.* did not converge within max_iter=1 sweeps"
    ):
        calibrated(0.5, max_iter=1, tol=1e-9)


@pytest.mark.parametrize(
    ("wanted", "settings", "error", "message"),
    [
        (95, {}, ValueError, r"coverage must be a share .* \(0.95, not 95\), got 95"),
        (0, {}, ValueError, "coverage must be a share strictly between 0 and 1"),
        (1.0, {}, ValueError, "coverage must be a share strictly between 0 and 1"),
        ("0.9", {}, TypeError, "coverage must be a number"),
        (0.5, {"held_out": 1.0}, ValueError, "held_out must be a share"),
        (0.5, {"held_out": 0}, ValueError, "held_out must be a share"),
        (0.5, {"held_out": True}, TypeError, "held_out must be a number"),
        (0.99, {}, ValueError, "coverage=0.99 leaves 1.7 of 168 held-out cells on its rarer side"),
        (0.02, {}, ValueError, "at least 20 are needed to measure it; raise held_out"),
        (0.5, {"reg": -1}, ValueError, "reg must be"),
    ],
)
def test_bad_input(wanted, settings, error, message):
    with pytest.raises(error, match=message):
        calibrated(wanted, **settings)


# --- the settings of `complete` --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"reg": 0.1, "reg_scaling": "plain"},
        {"solver": "cg"},
        {"momentum": False},
        {"intercepts": False, "reg": 0, "orthogonalize": True, "max_iter": 300},
        {"init": "random"},
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_settings_reach_the_fits(settings):
    found = calibrated(0.5, **settings)
    observed, rng = observe(R), np.random.default_rng(0)
    out = held_out(observed, 0.2, rng, "held_out")
    settings = {"intercepts": True, "tol": 1e-4, **settings}
    first = complete(observed.subset(~out), found.tried[0][0], 1, random_state=rng, **settings)
    rows, cols, values, _ = outside(R, 0.2, 0)
    assert found.tried[0][1] == np.mean(values <= first.predict(rows, cols))


def test_what_judges_the_sweeps_is_neither_fitted_nor_counted():
    found = calibrated(0.5, validation=0.25, patience=2, reg="noise")
    assert found.held_out == round(0.2 * R.nnz)
    assert not np.isnan(found.fit.history[-1].validation_loss)
    observed, rng = observe(R), np.random.default_rng(0)
    out = held_out(observed, 0.2, rng, "held_out")
    train, judge = hold_out(observed.subset(~out), 0.25, rng)
    first = complete(
        train, found.tried[0][0], 1, validation=judge, patience=2, random_state=rng,
        intercepts=True, tol=1e-4, reg="noise",
    )  # fmt: skip
    rows, cols, values, _ = outside(R, 0.2, 0)
    assert found.tried[0][1] == np.mean(values <= first.predict(rows, cols))


def test_a_callback_sees_the_sweeps_of_all_fits():
    seen = []
    found = calibrated(0.5, callback=lambda record: seen.append(record.sweep))
    assert seen.count(1) == len(found.tried)


def test_a_store_is_refused(tmp_path):
    store = fastemf.store.build((R.row, R.col, R.data), tmp_path / "store", shape=R.shape)
    for data in (store, tmp_path / "store"):
        with pytest.raises(TypeError, match="R must be in memory here, where cells are held out"):
            level_for_coverage(data, 0.5, 1)


# --- cells that nobody saw -----------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("wanted", [0.5, 0.9, 0.95])
def test_the_share_holds_on_fresh_cells_of_generated_data(wanted):
    data = make_skewed(100, 80, rank=2, density=0.5, random_state=3)
    with warnings.catch_warnings(action="ignore"):  # a constant may be needed
        found = level_for_coverage(data.R, wanted, 2, intercepts=True, held_out=0.3, tol=1e-3)
    fresh = np.ones(data.R.shape, bool)
    fresh[data.R.nonzero()] = False
    rows, cols = np.nonzero(fresh)
    share = np.mean(data.noisy[rows, cols] <= found.fit.predict(rows, cols))
    # Two samples: those held out and the fresh ones.
    error = np.hypot(found.standard_error, np.sqrt(wanted * (1 - wanted) / rows.size))
    assert abs(share - wanted) < 3.5 * error


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("wanted", [0.5, 0.9, 0.95])
def test_the_share_holds_on_fresh_response_times(data_folder, wanted, intercepts):
    data = load_wsdream(data_folder)
    sample = (data.source & 1) > 0  # uniform; the rest is uneven, so fresh cells come from here
    entries = data.R.data[sample], (data.R.row[sample], data.R.col[sample])
    part, fresh = split(sp.coo_array(entries, shape=data.R.shape), 0.75, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # services without an entry; a constant
        found = level_for_coverage(part, wanted, 10, intercepts=intercepts)
    share = np.mean(fresh.data <= found.fit.predict(fresh.row, fresh.col))
    assert abs(share - wanted) < 0.02
