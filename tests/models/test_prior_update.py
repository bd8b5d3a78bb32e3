"""Factors updated by new observations, with the earlier ones as their prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scenes import R

import fastemf
from fastemf.models.prior_update import NewCells, _update_known, update_factors

SHAPE = R.shape
MASSES = tuple((~np.isnan(R)).sum(axis=axis).astype(float) for axis in (1, 0))
FIT = fastemf.complete(R, 0.3, 2, reg=0.05, intercepts=True)


def new_cells(size=80, seed=0, weights=None):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, SHAPE[0], size), rng.integers(0, SHAPE[1], size)
    return NewCells(SHAPE, i, j, FIT.predict(i, j) + rng.normal(0, 1, size), weights)


def extended(fit):
    return [axis.extended_factor() for axis in fit.axes]


def test_an_update_minimizes_the_quadratic_prior_and_the_loss():
    """The gradient of the objective in the docstring vanishes, in plain NumPy."""
    cells = new_cells(weights=np.random.default_rng(1).uniform(0.5, 2, 80))
    solved = _update_known(FIT, FIT.axes, 0, cells, MASSES, 1).extended_factor()
    Y = np.column_stack([FIT.Y, np.ones(SHAPE[1])])
    old = FIT.rows.extended_factor()
    fixed = FIT.mu + FIT.col_intercepts[cells.cols]

    def slopes(rows):
        r = cells.values - fixed - np.sum(rows[cells.rows] * Y[cells.cols], axis=1)
        return np.where(r > 0, FIT.omega, 1 - FIT.omega) * cells.weights, r

    weights, _ = slopes(old)
    gram = (Y.T * MASSES[1] / MASSES[1].sum()) @ Y * weights.sum() / cells.weights.sum()
    prior = gram + FIT.reg * np.diag([1, 1, 0])
    weights, r = slopes(solved)
    for i in range(SHAPE[0]):
        own = cells.rows == i
        gradient = MASSES[0][i] * prior @ (solved[i] - old[i])
        gradient -= Y[cells.cols[own]].T @ (weights[own] * r[own])
        np.testing.assert_allclose(gradient, 0, atol=1e-8 * np.abs(r).max() * MASSES[0][i])
    moved = (solved != old).any(axis=1)
    assert set(np.flatnonzero(moved)) == set(cells.rows)


def test_observations_equal_to_the_predictions_change_nothing():
    cells = new_cells()
    cells = cells._replace(values=FIT.predict(cells.rows, cells.cols))
    for before, after in zip(extended(FIT), extended(update_factors(FIT, cells, MASSES, 1)),
                             strict=True):  # fmt: skip
        np.testing.assert_allclose(after, before, atol=1e-10)


def test_a_heavy_prior_moves_less():
    cells = new_cells()
    moved = []
    for factor in (1, 10, 1e9):
        masses = tuple(factor * mass for mass in MASSES)
        found = update_factors(FIT, cells, masses, 1)
        moved.append(
            sum(np.abs(a - b).sum() for a, b in zip(extended(found), extended(FIT), strict=True))
        )
    assert moved[0] > 2 * moved[1] > 0
    assert moved[2] < 1e-6 * moved[0]


def test_new_rows_are_those_folded_in():
    """A row without earlier observations, in columns that do not change."""
    own = ~np.isnan(R[0])
    cols = np.flatnonzero(own)
    rows = replace(
        FIT.rows, factor=np.where(np.arange(SHAPE[0])[:, None] == 0, 0, FIT.X),
        intercepts=np.where(np.arange(SHAPE[0]) == 0, 0, FIT.row_intercepts),
        unseen=np.array([0]),
    )  # fmt: skip
    cells = NewCells(SHAPE, np.zeros(cols.size, np.int64), cols, R[0, own], None)
    heavy = MASSES[0], 1e12 * MASSES[1]
    found = update_factors(replace(FIT, rows=rows), cells, heavy, 1)
    expected = FIT.fold_in(R[:1]).rows.extended_factor()
    np.testing.assert_allclose(found.rows.extended_factor()[:1], expected, rtol=1e-5)
    assert found.unseen_rows.size == 0
    np.testing.assert_array_equal(found.X[1:], FIT.X[1:])


def test_cells_that_are_new_in_both_directions_wait_for_the_second_round():
    rows, cols = (
        replace(axis, factor=np.vstack([axis.factor[:-1], np.zeros((1, 2))]),
                intercepts=np.append(axis.intercepts[:-1], 0.0), unseen=np.array([axis.size - 1]))
        for axis in FIT.axes
    )  # fmt: skip
    m, n = SHAPE
    i, j = np.array([m - 1, m - 1, 0, 1, m - 1]), np.array([0, 1, n - 1, n - 1, n - 1])
    cells = NewCells(SHAPE, i, j, np.array([30.0, 31.0, 20.0, 21.0, 48.0]), None)
    found = update_factors(replace(FIT, rows=rows, cols=cols), cells, MASSES, 1)
    assert found.unseen_rows.size == found.unseen_cols.size == 0
    alone = cells.select(np.array([False] * 4 + [True]))
    nothing = update_factors(replace(FIT, rows=rows, cols=cols), alone, MASSES, 1)
    assert nothing.unseen_rows.size == nothing.unseen_cols.size == 1


@pytest.mark.parametrize("family", ["weighted", "ridged"])
def test_noisy_observations_weigh_less(family):
    """Under noise weights a noisy column moves the rows less than a quiet one."""
    tuned = fastemf.complete(R, 0.5, 2)
    noise = [
        replace(tuned.rows.noise, variances=np.ones(SHAPE[0])),
        replace(tuned.cols.noise, variances=np.where(np.arange(SHAPE[1]) == 0, 25.0, 1.0)),
    ] if tuned.rows.noise is not None else None  # fmt: skip
    assert noise is not None
    fit = replace(
        tuned, family=family, rows=replace(tuned.rows, noise=noise[0]),
        cols=replace(tuned.cols, noise=noise[1], factor=np.repeat(tuned.Y[:1], SHAPE[1], axis=0)),
    )  # fmt: skip
    moved = []
    for col in (0, 1):
        cell = NewCells(SHAPE, np.array([3]), np.array([col]), np.array([50.0]), None)
        found = _update_known(fit, fit.axes, 0, cell, MASSES, 1)
        moved.append(np.abs(found.factor - fit.X).sum())
    assert moved[0] < moved[1] if family == "weighted" else moved[0] == pytest.approx(moved[1])
