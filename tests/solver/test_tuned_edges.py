"""Tuned fits of data that leave little to tune by: finite, and without surprising warnings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scenes import observed

import fastemf

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

R = observed()
ROWS, COLS = np.nonzero(~np.isnan(R))
VALUES = R[ROWS, COLS]
NORMAL = np.random.default_rng(0).standard_normal(500)
both = pytest.mark.parametrize("intercepts", [False, True])


def finite(fit):
    """Check that all numbers of a fit are finite, but for the ridges that stand for no factors."""
    numbers = [fit.mu, fit.shift, fit.reg, fit.intercept_reg, fit.X, fit.Y, fit.to_dense()]
    numbers += [part for part in (fit.row_intercepts, fit.col_intercepts) if part is not None]
    numbers += [part.noise.variances for part in fit.axes if part.noise is not None]
    numbers += [base.loss for base in fit.tuning.baselines]
    numbers += [(step.loss, step.standard_error) for step in fit.tuning.steps]
    assert all(np.isfinite(number).all() for number in numbers)
    assert all(step.reg > 0 for step in fit.tuning.steps if not math.isinf(step.reg)) or (
        fit.tuning.best.family == "noise"  # whose ridge noiseless data drive to 0
    )


@both
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 7.3])
@pytest.mark.filterwarnings("ignore:.*observations are zero")
def test_constant_data_are_fitted_without_tuning(value, dtype, intercepts):
    data = np.full((25, 20), value, dtype)
    fit = fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1)
    assert fit.tuning.note == "all observations are alike"
    np.testing.assert_allclose(fit.to_dense(), data, rtol=1e-5)
    noise = fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1, reg="noise")
    np.testing.assert_array_equal(fit.to_dense(), noise.to_dense())


@both
def test_observations_of_one_cell_cannot_be_set_aside(intercepts):
    data = np.zeros(500, int), np.zeros(500, int), NORMAL
    fit = fastemf.complete(data, 0.3, 1, intercepts=intercepts, n_jobs=1)
    assert fit.tuning.note == "too few cells to set any aside"
    assert np.isfinite(fit.to_dense()).all()


@both
@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("heavy", [1, 3])
def test_all_weight_on_a_few_cells(heavy, intercepts):
    weights = np.full(VALUES.size, 1e-6)
    weights[:heavy] = 1e6
    data, settings = (ROWS, COLS, VALUES), {"weights": weights, "shape": R.shape}
    finite(fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1, **settings))


SHAPES = {
    "row": NORMAL[None],
    "column": NORMAL[:, None],
    "diagonal": (np.arange(500), np.arange(500), NORMAL),
}


@both
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_columns_of_one_observation(shape, intercepts):
    """Those whose only cell is set aside have no cells to be fitted by."""
    finite(fastemf.complete(SHAPES[shape], 0.3, 1, intercepts=intercepts, n_jobs=1))


@both
def test_a_column_of_a_single_cell(intercepts):
    first = ROWS[COLS == 3][0]
    kept = (COLS != 3) | (first == ROWS)
    data = ROWS[kept], COLS[kept], VALUES[kept]
    finite(fastemf.complete(data, 0.3, 2, shape=R.shape, intercepts=intercepts, n_jobs=1))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # 100 sweeps may be too few
@both
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("omega", [1e-6, 1 - 1e-6])
def test_extreme_levels(omega, dtype, intercepts):
    finite(fastemf.complete(R.astype(dtype), omega, 2, intercepts=intercepts, n_jobs=1))


@pytest.mark.thorough
@both
def test_the_largest_rank(intercepts):
    finite(fastemf.complete(R, 0.3, min(R.shape), intercepts=intercepts, n_jobs=1))


@both
@pytest.mark.parametrize("exponent", [-460, 460])
def test_any_unit_that_is_accepted_gives_the_same_fit(exponent, intercepts):
    unit = 2.0**exponent
    plain = fastemf.complete(R, 0.9, 2, intercepts=intercepts, n_jobs=1)
    scaled = fastemf.complete(unit * R, 0.9, 2, intercepts=intercepts, n_jobs=1)
    finite(scaled)
    assert scaled.tuning.chosen == plain.tuning.chosen
    assert scaled.tuning.verdict() == plain.tuning.verdict()
    np.testing.assert_allclose(scaled.to_dense() / unit, plain.to_dense(), rtol=1e-9)


@both
@pytest.mark.parametrize("unit", [1e-15, 1e15])
def test_single_precision_in_any_unit(unit, intercepts):
    finite(fastemf.complete((unit * R).astype(np.float32), 0.3, 2, intercepts=intercepts, n_jobs=1))


@pytest.mark.filterwarnings("ignore:.*observations are zero")
@both
@pytest.mark.parametrize("omega", [0.1, 0.9])
def test_one_observation_that_is_not_zero(omega, intercepts):
    data = np.zeros((25, 20))
    data[3, 17] = 1
    finite(fastemf.complete(data, omega, 2, intercepts=intercepts, n_jobs=1))


@both
def test_a_single_enormous_observation(intercepts):
    data = R.copy()
    data[ROWS[7], COLS[7]] = 1e9
    finite(fastemf.complete(data, 0.3, 2, intercepts=intercepts, n_jobs=1))


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("rank", [1, 2])
def test_exact_data_of_a_lower_rank_than_asked_for(rank):
    """Without noise the ridge vanishes, and the equations of a row are then singular."""
    data = np.add.outer(np.arange(25.0), np.arange(20.0) ** (rank - 1))
    fit = fastemf.complete(data, 0.3, 4, n_jobs=1)
    finite(fit)
    np.testing.assert_allclose(fit.to_dense(), data, atol=1e-4)


def test_validation_cells_beside_few_fitted_ones():
    """Cells that judge are enough to tune by, however few are fitted."""
    fitted = np.arange(VALUES.size) % 3 == 0
    train = ROWS[fitted], COLS[fitted], VALUES[fitted]
    given = ROWS[~fitted], COLS[~fitted], VALUES[~fitted]
    finite(fastemf.complete(train, 0.5, 1, shape=R.shape, validation=given, n_jobs=1))
