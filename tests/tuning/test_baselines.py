"""Baselines of the training data: their equations, and equality for all sources."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from scenes import COLS, ROWS, VALUES, R, entries

import fastemf
from fastemf import store
from fastemf.loss import expectile

OMEGA = 0.8


def fitted(data=R, **options):
    settings = {"reg": 0.5, "max_iter": 2, "tol": 1.0, "n_jobs": 1}
    return fastemf.complete(data, OMEGA, 1, **settings | options)


def slope(residuals):
    return np.sum(np.where(residuals >= 0, OMEGA, 1 - OMEGA) * residuals)


@pytest.mark.parametrize("intercepts", [False, True])
def test_baselines_solve_their_equations(intercepts):
    baselines = fitted(intercepts=intercepts).training
    assert baselines.constant == pytest.approx(expectile(VALUES, OMEGA), rel=1e-12)
    assert baselines.ridge == pytest.approx(4 * OMEGA * (1 - OMEGA))
    for col, (alone, beside, middle) in enumerate(baselines.cols):
        mine = col == COLS
        r = VALUES[mine] - baselines.constant - alone
        assert slope(r) == pytest.approx(baselines.ridge * alone, abs=1e-8)
        r = VALUES[mine] - baselines.constant - baselines.rows[ROWS[mine]] - beside
        assert slope(r) == pytest.approx(baselines.ridge * beside, abs=1e-8)
        assert middle == np.median(VALUES[mine])
    # The rows were solved before the columns' last step.
    for row, own in enumerate(baselines.rows):
        mine = row == ROWS
        r = VALUES[mine] - baselines.constant - own - baselines.cols[COLS[mine], 1]
        assert slope(r) == pytest.approx(baselines.ridge * own, abs=0.1)
    assert baselines.median == pytest.approx(np.median(VALUES), rel=0.5)


def test_baselines_have_the_effective_level_omega():
    baselines = fitted().training
    # Leave-one-out residuals are larger, so that those of the cells fitted lie within.
    for name in ("column", "row + column"):
        r = VALUES - baselines.predict(name, ROWS, COLS)
        below = -r[r < 0].sum() / np.abs(r).sum()
        assert below == pytest.approx(OMEGA, abs=0.08)


def test_columns_without_observations_have_the_median_of_the_others():
    wide = np.column_stack([R, np.full(R.shape[0], np.nan)])
    with pytest.warns(UserWarning, match="have no observations"):
        baselines = fitted(wide).training
    assert baselines.cols[-1].tolist() == [0.0, 0.0, baselines.median]
    unknown = baselines.predict("column median", np.array([0]), np.array([-1]))
    assert unknown.tolist() == [baselines.median]


@pytest.mark.parametrize("intercepts", [False, True])
def test_weight_two_is_the_observation_twice(intercepts):
    v = 1 + (np.arange(VALUES.size) % 3)
    weighted = fitted(entries(), weights=v.astype(float), intercepts=intercepts)
    again = fitted(tuple(part.repeat(v) for part in entries()), intercepts=intercepts)
    one, other = weighted.training, again.training
    np.testing.assert_allclose(one.cols, other.cols, atol=1e-8)
    np.testing.assert_allclose(one.rows, other.rows, atol=1e-8)
    assert one.both == pytest.approx(other.both, abs=1e-3)  # leverages are of one observation


@pytest.mark.compiled
def test_stores_and_threads_give_the_same_bits(tmp_path):
    store.build(entries(), tmp_path / "log", shape=R.shape)
    on_disk = store.open(tmp_path / "log", budget=2000)
    first = asdict(fitted(intercepts=True).training)
    for data in (R, on_disk):
        np.testing.assert_equal(asdict(fitted(data, intercepts=True, n_jobs=2).training), first)


@pytest.mark.parametrize("axis", [0, 1])
def test_baselines_of_new_rows_solve_their_equations(axis):
    fit = fitted(intercepts=True)
    new = R[:4] + 1 if axis == 0 else R[:, :4] + 1
    baselines = fit.extend(new, axis=axis).training
    before, kept = ((one.rows, one.cols)[axis] for one in (fit.training, baselines))
    np.testing.assert_array_equal(kept[: R.shape[axis]], before)
    assert len(kept) == R.shape[axis] + 4
    for at, line in enumerate(new if axis == 0 else new.T, R.shape[axis]):
        cells = np.flatnonzero(~np.isnan(line))
        own_side = np.full(cells.size, at)
        rows, cols = (own_side, cells) if axis == 0 else (cells, own_side)
        r = line[cells] - baselines.predict("row + column", rows, cols)
        own = kept[at] if axis == 0 else kept[at, 1]
        assert slope(r) == pytest.approx(baselines.ridge * own, abs=1e-8)
        if axis == 1:
            assert kept[at, 2] == np.median(line[cells])
