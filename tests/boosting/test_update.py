"""Boosted models with new data: refits that start from an earlier model, and updates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scenes import refuses, resuming

import fastemf
from fastemf import complete_levels, complete_quantiles
from fastemf.metrics import pinball_loss
from fastemf.sources.cell_sample import FOLDS

TAUS = (0.5, 0.9)
NAMES = {"rows": "client", "cols": "service", "values": "ms"}
M, N = 60, 40


def make_log(seed=0, density=0.75):
    """A log with skewed noise, in random order, and the quantiles that it was drawn from."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.5, (M, 1)) + rng.normal(0, 0.7, N)
    level = level + 0.4 * rng.normal(0, 1, (M, 1)) * rng.normal(0, 1, N)
    i, j = np.nonzero(rng.random((M, N)) < density)
    order = rng.permutation(i.size)
    i, j = i[order], j[order]
    ms = 100 * np.exp(level[i, j] + 0.3 * rng.standard_normal(i.size))
    return pd.DataFrame({"client": [f"c{at}" for at in i], "service": j * 10, "ms": ms})


LOG = make_log()
IS_NEW = LOG.client.isin(["c3", "c59"]) | (LOG.service == 70)
OLD = LOG[~IS_NEW][:1500]
LATER = LOG.drop(OLD.index)


@cache
def day_one():
    return complete_quantiles(OLD, TAUS, 2, **NAMES)


@cache
def refitted():
    return complete_quantiles(LOG, TAUS, 2, init=day_one(), **NAMES)


@cache
def updated():
    return day_one().update(LATER)


def predict(model, log=LOG):
    return model.predict(log.client, log.service)


def mean_loss(model, log):
    found = predict(model, log)
    return sum(pinball_loss(log.ms, found[:, t], tau) for t, tau in enumerate(TAUS))


def same_trees(one, other):
    """Compare linear starts and trees; there may be no trees."""
    parts = [
        [
            array
            for part in (*model.combination.known, *model.combination.cold)
            for array in (part.start.coefficients, part.forest.values)
        ]
        for model in (one, other)
    ]
    return all(map(np.array_equal, *parts))


def marks_of(model, labels, axis):
    return model.marks[axis][model.axes[axis].positions(labels, "labels")]


# --- all data -------------------------------------------------------------------------------


@pytest.mark.compiled
def test_a_refit_keeps_ridges_trees_and_folds():
    old, new = day_one(), refitted()
    assert same_trees(old, new)
    for before, after in zip(old.fits, new.fits, strict=True):
        assert [fit.reg for fit in before] == [fit.reg for fit in after]
        assert [fit.intercept_reg for fit in before] == [fit.intercept_reg for fit in after]
    for axis in (0, 1):
        labels = old.axes[axis].labels.values
        np.testing.assert_array_equal(marks_of(new, labels, axis), marks_of(old, labels, axis))
    record = new.updated
    assert record.trees_kept
    assert record.ridges_kept
    assert record.all_data
    assert not record.moved
    assert (record.observations, record.new) == (len(LOG), (2, 1))
    assert record.updated == old.shape == (M - 2, N - 1)
    assert not any(report.measured for report in new.coverage)
    assert "kept: ridges, linear starts, trees" in str(new)


@pytest.mark.compiled
def test_a_refit_is_about_as_good_as_a_new_fit():
    held_out = make_log(density=1.0)  # its cells have other noise
    scratch = complete_quantiles(LOG, TAUS, 2, **NAMES)
    assert scratch.updated is None
    losses = [mean_loss(model, held_out) for model in (day_one_of_all(), refitted(), scratch)]
    assert losses[1] < losses[0]
    assert losses[1] == pytest.approx(losses[2], rel=0.02)


def day_one_of_all():
    """The old model, with its predictions of unknown rows and columns."""

    class WithUnknown:
        def predict(self, rows, cols):
            return day_one().predict(rows, cols, unknown="model")

    return WithUnknown()


@pytest.mark.compiled
def test_a_refit_to_the_same_data_changes_little():
    again = complete_quantiles(OLD, TAUS, 2, init=day_one(), **NAMES)
    assert again.updated.trees_kept
    old, new = predict(day_one(), OLD), predict(again, OLD)
    assert np.abs(new - old).mean() < 0.01 * old.mean()
    np.testing.assert_allclose(again.updated.coverage, again.updated.before, atol=0.01)


@pytest.mark.compiled
def test_the_order_of_rows_and_columns_does_not_matter():
    known = LOG[~IS_NEW]
    forwards, backwards = (
        predict(complete_quantiles(log, TAUS, 2, init=day_one(), **NAMES), known)
        for log in (known, known[::-1])
    )
    moved = np.abs(backwards / forwards - 1)
    assert np.quantile(moved, 0.99) < 1e-9  # rounding may change the branch of a tree


@pytest.mark.compiled
def test_a_store_is_refitted_as_a_table(tmp_path):
    fastemf.store.build(OLD, tmp_path / "log.store", **NAMES)
    store = fastemf.store.append(tmp_path / "log.store", LATER)
    both = pd.concat([OLD, LATER])
    found = [complete_quantiles(data, TAUS, 2, init=day_one(), **names) for data, names in
             ((store, {}), (both, NAMES))]  # fmt: skip
    np.testing.assert_array_equal(*map(predict, found))


@pytest.mark.compiled
def test_a_refit_can_be_resumed(tmp_path):
    path = tmp_path / "state.npz"
    complete_quantiles(OLD, TAUS, 2, checkpoint=path, **NAMES)
    with pytest.raises(fastemf.CheckpointError, match="init"):
        complete_quantiles(OLD, TAUS, 2, init=day_one(), **resuming(path), **NAMES)
    path = tmp_path / "refit.npz"
    for _ in range(2):
        found = complete_quantiles(LOG, TAUS, 2, init=day_one(), **resuming(path), **NAMES)
        np.testing.assert_array_equal(predict(found), predict(refitted()))


@pytest.mark.compiled
def test_trees_are_trained_anew_where_coverage_has_moved():
    slow = LATER.assign(ms=5 * LATER.ms)
    found = complete_quantiles(pd.concat([OLD, slow]), TAUS, 2, init=day_one(), **NAMES)
    assert found.updated.moved
    assert not found.updated.trees_kept
    assert not same_trees(found, day_one())
    assert all(report.measured for report in found.coverage)
    assert [fit.reg for fit in found.fits[0]] == [fit.reg for fit in day_one().fits[0]]
    assert "has moved" in str(found)


@pytest.mark.compiled
def test_new_cells_are_those_that_the_trees_have_not_seen(monkeypatch):
    """Their coverage is that of the new log lines in new cells, with fits without their fold."""
    record = refitted().updated
    assert len(record.unseen) == len(TAUS)
    np.testing.assert_allclose(record.unseen, TAUS, atol=0.06)
    same = complete_quantiles(OLD, TAUS, 2, init=day_one(), **NAMES)
    assert same.updated.unseen == ()
    monkeypatch.setattr("fastemf.boosting.update_record.MOST_HASHES", 700)  # of 1,500 cells
    old = complete_quantiles(OLD, TAUS, 2, **NAMES)
    assert old.combination.trained.size == 700
    assert complete_quantiles(OLD, TAUS, 2, init=old, **NAMES).updated.unseen == ()
    sampled = complete_quantiles(LOG, TAUS, 2, init=old, **NAMES)
    assert sampled.updated.unseen != record.unseen
    np.testing.assert_allclose(sampled.updated.unseen, TAUS, atol=0.08)


@pytest.mark.compiled
def test_trees_are_trained_anew_for_other_quantiles_and_features():
    other = complete_quantiles(LOG, (0.5, 0.8), 2, init=day_one(), **NAMES)
    assert other.taus == (0.5, 0.8)
    assert not other.updated.trees_kept
    sizes = {"service": np.arange(N) * 10, "size": np.arange(N) % 7.0}
    more = complete_quantiles(LOG, TAUS, 2, init=day_one(), col_features=sizes, **NAMES)
    assert not more.updated.trees_kept
    assert more.updated.coverage == ()
    assert more.features.names == ((), ("size",), ())


@pytest.mark.compiled
def test_a_given_ridge_replaces_the_old_ones():
    found = complete_quantiles(LOG, TAUS, 2, init=day_one(), reg=0.25, **NAMES)
    assert {fit.reg for level in found.fits for fit in level} == {0.25}
    assert not found.updated.ridges_kept


@pytest.mark.compiled
def test_categories_keep_their_codes():
    kinds = pd.DataFrame({"service": np.arange(N) * 10, "kind": np.array(list("bdd")[:3] * 14)[:N]})
    old = complete_quantiles(OLD, TAUS, 2, col_features=kinds, **NAMES)
    kinds.loc[7, "kind"] = "a"  # of the new service; the others would now have larger codes
    new = complete_quantiles(LOG, TAUS, 2, col_features=kinds, init=old, **NAMES)
    assert new.updated.trees_kept
    at = new.col_labels.positions([0, 10, 70])
    np.testing.assert_array_equal(new.features.cols.values[at, 0], [0, 1, np.nan])


@pytest.mark.compiled
def test_boosted_levels_start_from_earlier_ones():
    old = complete_levels(OLD, (0.2, 0.8), 2, boost=True, **NAMES)
    new = complete_levels(LOG, (0.2, 0.8), 2, boost=True, init=old, **NAMES)
    assert new.updated.trees_kept
    assert new.shape == (M, N)
    assert not any(report.measured for report in new.reports)
    more = old.update(LATER)
    assert more.shape == (M, N)
    assert not more.updated.all_data


@pytest.mark.compiled
def test_impossible_starts_are_refused():
    with refuses(ValueError, "init has rank 2, k is 3"):
        complete_quantiles(LOG, TAUS, 3, init=day_one(), **NAMES)
    with refuses(ValueError, "init has intercepts=True, got False"):
        complete_quantiles(LOG, TAUS, 2, init=day_one(), intercepts=False, **NAMES)
    with refuses(TypeError, "init must be", "Quantiles, got 'random'"):
        complete_quantiles(LOG, TAUS, 2, init="random", **NAMES)
    with refuses(TypeError, "init must be", "BoostedLevels for boost=True"):
        complete_levels(LOG, (0.2, 0.8), 2, boost=True, init=day_one(), **NAMES)
    single = replace(day_one(), fits=tuple(level[:1] for level in day_one().fits))
    with refuses(ValueError, f"init must have the fits of {FOLDS} folds, got 1"):
        complete_quantiles(LOG, TAUS, 2, init=single, **NAMES)


# --- new observations only --------------------------------------------------------------------


def test_a_refit_without_the_old_data_gives_a_warning():
    few = LOG[LOG[NAMES["rows"]].isin(LOG[NAMES["rows"]].unique()[:20])]
    with pytest.warns(UserWarning, match="rows of init have no observations in R"):
        complete_quantiles(few, TAUS, 2, init=day_one(), **NAMES)


def test_an_update_takes_known_and_new_rows_and_columns():
    old, new = day_one(), updated()
    assert new.shape == (M, N)
    assert same_trees(old, new)
    assert new.row_labels.values[:-2].tolist() == old.row_labels.values.tolist()
    assert new.row_labels.values[-2:].tolist() == ["c3", "c59"]
    assert new.col_labels.values[-1] == 70
    record = new.updated
    assert not record.all_data
    assert record.new == (2, 1)
    known = LATER[~LATER.client.isin(["c3", "c59"])]
    assert record.updated == (known.client.nunique(), LATER.service.nunique() - 1)
    known = known[known.service != 70]
    below = [np.mean(known.ms <= column) for column in predict(old, known).T]
    np.testing.assert_allclose(record.coverage, below)
    assert not any(report.measured for report in new.coverage)
    assert np.isfinite(predict(new)).all()


@pytest.mark.compiled
def test_an_update_improves_predictions():
    held_out = make_log(density=1.0)
    before, after = (mean_loss(model, held_out) for model in (day_one_of_all(), updated()))
    assert after < before
    refit = mean_loss(refitted(), held_out)
    assert after - refit < 0.6 * (before - refit)


@pytest.mark.compiled
def test_an_update_follows_a_shift_of_a_row():
    lines = OLD[OLD.client == "c5"].assign(ms=lambda log: 3 * log.ms)
    first, later = lines[::2], lines[1::2]
    new = day_one().update(first)
    assert mean_loss(new, later) < 0.9 * mean_loss(day_one(), later)
    twice = new.update(first)
    assert mean_loss(twice, later) < mean_loss(new, later)


@pytest.mark.compiled
def test_observations_drawn_from_the_model_hardly_change_it():
    rng = np.random.default_rng(3)
    drawn = OLD.assign(ms=OLD.ms.to_numpy() * np.exp(0.01 * rng.standard_normal(len(OLD))))
    old, new = predict(day_one(), OLD), predict(day_one().update(drawn), OLD)
    assert np.median(np.abs(new / old - 1)) < 0.05
    assert abs(np.mean(new / old) - 1) < 0.02


@pytest.mark.compiled
def test_the_order_of_new_observations_does_not_matter():
    shuffled = day_one().update(LATER.sample(frac=1, random_state=0))
    assert shuffled.row_labels == updated().row_labels
    np.testing.assert_allclose(predict(shuffled), predict(updated()), rtol=1e-6)


@pytest.mark.compiled
def test_a_weight_of_two_equals_a_repeated_observation():
    twice = day_one().update(pd.concat([LATER, LATER]))
    heavy = day_one().update(LATER.assign(w=2.0), weights="w")
    np.testing.assert_allclose(predict(heavy), predict(twice), rtol=1e-6)


@pytest.mark.compiled
def test_updates_have_the_same_bits_for_any_threads_and_from_a_file(tmp_path):
    day_one().save(tmp_path / "q.npz")
    updated().save(tmp_path / "q2.npz")
    loaded = fastemf.load(tmp_path / "q2.npz")
    assert loaded.updated == updated().updated
    for other in (
        loaded,
        fastemf.load(tmp_path / "q.npz").update(LATER),
        day_one().update(LATER, n_jobs=1),
    ):
        np.testing.assert_array_equal(predict(other), predict(updated()))
    refit = complete_quantiles(LOG, TAUS, 2, init=fastemf.load(tmp_path / "q.npz"), **NAMES)
    np.testing.assert_array_equal(predict(refit), predict(refitted()))


@pytest.mark.compiled
def test_an_updated_model_can_be_refitted_and_extended():
    found = complete_quantiles(LOG, TAUS, 2, init=updated(), **NAMES)
    assert found.shape == (M, N)
    assert found.updated.new == (0, 0)
    for axis, labels in enumerate((["c3", "c59", "c5"], [70, 0])):
        np.testing.assert_array_equal(
            marks_of(found, labels, axis), marks_of(updated(), labels, axis)
        )
    more = updated().extend(LATER[LATER.client == "c3"].assign(client="c100"))
    assert more.shape == (M + 1, N)
    assert more.marks[0].size == M + 1
    with refuses(ValueError, "1 of the new rows are in the fit already ('c3')", "update"):
        updated().extend(LATER[LATER.client == "c3"])


@pytest.mark.compiled
def test_models_without_labels_grow_to_the_largest_index():
    R = fastemf.datasets.make_skewed(40, 30, rank=1, density=0.8, random_state=0).R.tocoo()
    (i, j), v = R.coords, R.data
    first = (i < 38) & (j < 29)
    old = complete_quantiles((i[first], j[first], v[first]), TAUS, 1)
    new = old.update((i[~first], j[~first], v[~first]))
    assert (old.shape, new.shape) == ((38, 29), (40, 30))
    refit = complete_quantiles(R, TAUS, 1, init=old)
    np.testing.assert_array_equal(refit.marks[0][:38], old.marks[0])
    with refuses(ValueError, "init has shape (40, 30), larger than the data's (38, 29)"):
        complete_quantiles((i[first], j[first], v[first]), TAUS, 1, init=refit)


@pytest.mark.compiled
def test_features_of_new_items_are_those_given():
    sizes = {"service": np.arange(N) * 10, "size": np.arange(N) % 7.0}
    old = complete_quantiles(OLD, TAUS, 2, col_features=sizes, **NAMES)
    given, absent = (old.update(LATER, col_features=one) for one in (sizes, None))
    np.testing.assert_array_equal(given.features.cols.values[-1], [0.0])
    np.testing.assert_array_equal(absent.features.cols.values[-1], [np.nan])


@pytest.mark.compiled
def test_histories_of_a_sample_count_new_observations_in_proportion(monkeypatch):
    monkeypatch.setattr("fastemf.boosting.observed_cells.MAX_SAMPLE", 800)
    old = complete_quantiles(OLD, TAUS, 2, **NAMES)
    assert old.features.proportion == pytest.approx(800 / 1500)
    new = old.update(LATER)
    for before, after in zip(old.features.history, new.features.history, strict=True):
        counted = np.sum(after[:, 0]) - np.sum(before[:, 0])
        assert counted == pytest.approx(len(LATER) * (1 - 1 / FOLDS) * 800 / 1500)


@pytest.mark.compiled
def test_censored_observations_are_imputed():
    limit = float(LOG.ms.quantile(0.9))
    recorded = LOG.assign(ms=LOG.ms.clip(upper=limit))
    old = complete_quantiles(
        recorded.loc[OLD.index], TAUS, 2, censored=("right", limit), **NAMES
    )  # fmt: skip
    new, exact = (old.update(recorded.loc[LATER.index], censored=c) for c in (None, False))
    assert new.censored == ("right", limit)
    at = LATER[LATER.ms > limit]
    assert predict(new, at)[:, 0].mean() > predict(exact, at)[:, 0].mean()


@pytest.mark.compiled
def test_no_observations_are_refused():
    with refuses(ValueError, "R must hold at least one observation"):
        day_one().update(LATER[:0])
