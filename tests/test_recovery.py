"""Exact recovery, held-out loss, float32, and real data."""

from __future__ import annotations

import numpy as np
import pytest

import fastemf
from fastemf.datasets import load_wsdream
from fastemf.loss import expectile, expectile_loss

pytestmark = [pytest.mark.thorough, pytest.mark.compiled]
SLOW = pytest.mark.slow


def noiseless(density, seed):
    data = fastemf.datasets.make_skewed(1000, 1000, density=density, noise=0, random_state=seed)
    return data.R, data.truth


def relative_error(fit, truth):
    return np.linalg.norm(fit.to_dense() - truth) / np.linalg.norm(truth)


def held_out_ratio(fit, train, rows, cols, values):
    """Return the held-out loss relative to the best constant of the training data."""
    loss = expectile_loss(values - fit.predict(rows, cols), fit.omega)
    return loss / expectile_loss(values - expectile(train, fit.omega), fit.omega)


@pytest.mark.parametrize("omega", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_noiseless_at_ten_percent_without_ridge(omega):
    R, truth = noiseless(0.1, seed=0)
    fit = fastemf.complete(R, omega, 10, reg=0)
    assert fit.converged
    assert relative_error(fit, truth) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
def test_noiseless_at_ten_percent_at_defaults(omega):
    R, truth = noiseless(0.1, seed=1)
    fit = fastemf.complete(R, omega, 10)
    assert fit.converged
    assert relative_error(fit, truth) < 1e-5


@pytest.mark.parametrize("omega", [0.1, 0.5])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=SLOW) for seed in range(1, 10))])
def test_noiseless_at_five_percent_without_ridge(omega, seed):
    R, truth = noiseless(0.05, seed)
    fit = fastemf.complete(R, omega, 10, reg=0)
    assert relative_error(fit, truth) < 1e-6


def test_plain_alternation_contracts_at_the_published_rates():
    # Error factors per sweep at 10 % sampling, from an independent implementation.
    R, truth = noiseless(0.1, seed=3)
    for omega, factor in ((0.5, 0.33), (0.1, 0.49)):
        errors = []
        for sweeps in (12, 20):
            stop = {"callback": lambda record, last=sweeps: record.sweep == last, "tol": 0}
            solver = fastemf.Solver(momentum=False, anneal=False)
            fit = fastemf.complete(R, omega, 10, reg=0, solver=solver, **stop)
            errors.append(relative_error(fit, truth))
        assert (errors[1] / errors[0]) ** (1 / 8) == pytest.approx(factor, abs=0.06)


@pytest.mark.parametrize(
    ("density", "bars"),
    [(0.05, (0.76, 0.86, 1.06)), pytest.param(0.1, (0.74, 0.84, 0.96), marks=SLOW)],
)
def test_held_out_loss_on_skewed_noise_with_intercepts(density, bars):
    data = fastemf.datasets.make_skewed(1000, 1000, density=density, random_state=0)
    missing = np.ones(data.R.shape, bool)
    missing[data.R.nonzero()] = False
    rows, cols = np.nonzero(missing)
    for omega, bar in zip((0.1, 0.5, 0.9), bars, strict=True):
        fit = fastemf.complete(data.R, omega, 10, intercepts=True)
        assert held_out_ratio(fit, data.R.data, rows, cols, data.noisy[missing]) <= bar


@pytest.mark.filterwarnings("ignore:.*have no observations")
@pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning")
@pytest.mark.parametrize(
    ("intercepts", "bars"),
    [
        pytest.param(False, (0.78, 0.61, 0.68), marks=SLOW),
        pytest.param(True, (0.69, 0.49, 0.49), marks=SLOW),
    ],
)
def test_held_out_loss_on_web_service_times(data_folder, intercepts, bars):
    data = load_wsdream(data_folder)
    src, (row, col), seconds, shape = data.source, data.R.coords, data.R.data, data.R.shape
    train = (src & 1) > 0
    test = ((src & 7) > 0) & ~train
    largest = seconds[train].max()
    for omega, bar in zip((0.1, 0.5, 0.9), bars, strict=True):
        fit = fastemf.complete(
            (row[train], col[train], seconds[train]), omega, 10, shape=shape, intercepts=intercepts
        )
        ratio = held_out_ratio(fit, seconds[train], row[test], col[test], seconds[test])
        assert ratio <= bar
        assert np.abs(fit.to_dense()).max() <= 3 * largest


@pytest.mark.parametrize(("omega", "intercepts"), [(0.1, False), (0.5, True), (0.9, True)])
def test_float32_follows_float64(omega, intercepts):
    R = fastemf.datasets.make_skewed(400, 300, rank=5, density=0.2, random_state=0).R
    single, double = (
        fastemf.complete(data, omega, 5, intercepts=intercepts, reg="noise")
        for data in (R.astype(np.float32), R)
    )
    assert single.X.dtype == single.Y.dtype == np.float32
    assert single.predict([0], [0]).dtype == np.float32
    assert single.history[-1].objective == pytest.approx(double.history[-1].objective, rel=1e-3)
    assert single.converged


def test_float32_recovers_noiseless_data_to_its_precision():
    R, truth = noiseless(0.1, seed=2)
    fit = fastemf.complete(R.astype(np.float32), 0.1, 10, reg=0)
    assert fit.converged
    assert relative_error(fit, truth) < 1e-4
