"""Tuned fits of unusual data are finite and do not warn unexpectedly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scenes import COLS, ROWS, VALUES, R, entries

import fastemf

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

NORMAL = np.random.default_rng(0).standard_normal(500)
both = pytest.mark.parametrize("intercepts", [False, True])


def finite(fit):
    """Check that all numbers of a fit are finite, except the ridges of candidates of rank 0."""
    numbers = [fit.mu, fit.shift, fit.reg, fit.intercept_reg, fit.X, fit.Y, fit.to_dense()]
    numbers += [part for part in (fit.row_intercepts, fit.col_intercepts) if part is not None]
    numbers += [part.noise.variances for part in fit.axes if part.noise is not None]
    numbers += [base.loss for base in fit.tuning.baselines]
    numbers += [(step.loss, step.standard_error) for step in fit.tuning.steps]
    assert all(np.isfinite(number).all() for number in numbers)
    # Noiseless data drive the noise-adaptive ridge to 0.
    ridges = [step.reg for step in fit.tuning.steps if not math.isinf(step.reg)]
    assert min(ridges, default=1.0) > 0 or fit.tuning.best.family == "noise"


@both
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 7.3, -2.0])
@pytest.mark.filterwarnings("ignore:.*observations are zero")
def test_constant_data_are_fitted_without_tuning(value, dtype, intercepts):
    data = np.full((25, 20), value, dtype)
    fit = fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1)
    assert fit.tuning.note == "all observations are equal"
    np.testing.assert_allclose(fit.to_dense(), data, rtol=1e-5 if dtype == np.float32 else 1e-10)
    noise = fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1, reg="noise")
    np.testing.assert_array_equal(fit.to_dense(), noise.to_dense())


@both
def test_a_single_cell_has_no_validation_cells(intercepts):
    data = np.zeros(500, int), np.zeros(500, int), NORMAL
    fit = fastemf.complete(data, 0.3, 1, intercepts=intercepts, n_jobs=1)
    assert fit.tuning.note == "too few cells for validation cells"
    assert np.isfinite(fit.to_dense()).all()


def with_value(data, value):
    """Copy data with another value in one observed cell."""
    data = data.copy()
    data[ROWS[7], COLS[7]] = value
    return data


HEAVY = {n: np.where(np.arange(VALUES.size) < n, 1e6, 1e-6) for n in (1, 3)}
SHORT_COLUMN = (COLS != 3) | (ROWS[COLS == 3][0] == ROWS)  # with one cell
ZEROS = with_value(np.zeros((30, 28)), 1)
THIRD = np.arange(VALUES.size) % 3 == 0
FEW = {"shape": R.shape, "validation": entries(~THIRD)}
CASES = {
    "all weight on one cell": (entries(), 0.3, 2, {"weights": HEAVY[1]}),
    "all weight on three cells": (entries(), 0.3, 2, {"weights": HEAVY[3]}),
    "one row": (NORMAL[None], 0.3, 1, {}),
    "one column": (NORMAL[:, None], 0.3, 1, {}),
    "diagonal": ((np.arange(500), np.arange(500), NORMAL), 0.3, 1, {}),
    "a column of a single cell": (entries(SHORT_COLUMN), 0.3, 2, {"shape": R.shape}),
    "low level": (R, 1e-6, 2, {}),
    "low level in float32": (R.astype(np.float32), 1e-6, 2, {}),
    "high level in float32": (R.astype(np.float32), 1 - 1e-6, 2, {}),
    "largest rank": (R, 0.3, min(R.shape), {}),
    "small float32": ((1e-15 * R).astype(np.float32), 0.3, 2, {}),
    "large float32": ((1e15 * R).astype(np.float32), 0.3, 2, {}),
    "one nonzero value, low level": (ZEROS, 0.1, 2, {}),
    "one nonzero value, high level": (ZEROS, 0.9, 2, {}),
    "one enormous value": (with_value(R, 1e9), 0.3, 2, {}),
    "few training cells": (entries(THIRD), 0.5, 1, FEW),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # 100 sweeps may be too few
@pytest.mark.filterwarnings("ignore:.*observations are zero")
@pytest.mark.filterwarnings("ignore:1 of 517 values equal 1000000000")
def test_unusual_data_have_finite_fits(name):
    (data, omega, k, settings), place = CASES[name], list(CASES).index(name)
    settings = {"intercepts": place % 2 == 0, "n_jobs": 1} | settings
    finite(fastemf.complete(data, omega, k, **settings))


@pytest.mark.parametrize(("exponent", "intercepts"), [(-460, True), (460, False)])
def test_any_unit_that_is_accepted_gives_the_same_fit(exponent, intercepts):
    unit = 2.0**exponent
    plain = fastemf.complete(R, 0.9, 2, intercepts=intercepts, n_jobs=1)
    scaled = fastemf.complete(unit * R, 0.9, 2, intercepts=intercepts, n_jobs=1)
    finite(scaled)
    assert scaled.tuning.chosen == plain.tuning.chosen
    assert scaled.tuning.verdict() == plain.tuning.verdict()
    np.testing.assert_allclose(scaled.to_dense() / unit, plain.to_dense(), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("rank", [1, 2])
def test_exact_data_of_a_lower_rank_than_that_of_the_fit(rank):
    """Without noise the ridge vanishes, and the equations of a row are then singular."""
    data = np.add.outer(np.arange(25.0), np.arange(20.0) ** (rank - 1))
    fit = fastemf.complete(data, 0.3, 4, n_jobs=1)
    finite(fit)
    np.testing.assert_allclose(fit.to_dense(), data, atol=1e-4)
