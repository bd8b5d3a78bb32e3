"""The fit of correction tables to validation cells: equations, identities, noise."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf.loss import expectile, expectile_loss
from fastemf.tuning import correction_fit as table_fit
from fastemf.tuning.correction_fit import fit_corrections
from fastemf.tuning.corrections import STATISTICS
from fastemf.tuning.validation_cells import ValidationCells

OMEGA = 0.2


def by_name(statistics):
    return dict(zip(STATISTICS, statistics.T, strict=True))


def cells(residual, n=4000, seed=0):
    """Cells whose residuals are a function of their statistics, plus noise that is right-skewed."""
    rng = np.random.default_rng(seed)
    statistics = rng.standard_normal((n, len(STATISTICS)))
    predicted = rng.random(n)
    left = residual(by_name(statistics)) + 0.1 * rng.exponential(size=n)
    hashes = rng.integers(0, 2**32, n)
    return ValidationCells(hashes, predicted + left, np.ones(n), predicted, statistics)


def steep(named):
    return np.maximum(named["row effect"] + named["column effect"], 0) ** 2


def uncertain(named):
    return named["product"] * (named["column noise"] > 0)


def test_functions_of_statistics_are_found_one_after_the_other():
    both = fit_corrections(cells(lambda named: steep(named) + uncertain(named)), OMEGA)
    found = fit_corrections(cells(steep), OMEGA)
    assert both.each[0].over == found.each[0].over == ("row effect", "column effect")
    assert both.each[1].over == ("product", "column noise")
    high, low = found.each[0].at(*np.array([[2.0, -1.0]] * 2))
    assert high - low > 2
    assert found.loss < 0.5 * expectile_loss(cells(steep).residuals, OMEGA) / 4000


@pytest.mark.parametrize("omega", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(3))
def test_noise_gets_no_correction_to_speak_of(omega, seed):
    data = cells(lambda named: 0.0, seed=seed)
    found = fit_corrections(data, omega)
    centred = data.residuals - expectile(data.residuals, omega)
    assert found.loss <= 1.01 * expectile_loss(centred, omega) / 4000
    assert all(np.abs(table.values).max() < 0.05 for table in found.each)


def test_the_shift_is_the_expectile_of_the_corrected_residuals():
    data = cells(steep)
    found, named = fit_corrections(data, OMEGA), by_name(data.statistics)
    left = data.residuals - sum(
        table.at(*(named[name] for name in table.over)) for table in found.each
    )
    assert found.shift == pytest.approx(expectile(left, OMEGA), abs=1e-12)
    assert found.effective_omega == pytest.approx(OMEGA, abs=0.01)


def test_a_table_is_the_shrunk_expectile_near_each_pair_of_knots(monkeypatch):
    """With Newton's method run to convergence and no smoothing, the equation of each bin holds."""
    monkeypatch.setattr(table_fit, "NEWTON_STEPS", 50)
    monkeypatch.setattr(table_fit, "SMOOTHING", 0.0)
    data = cells(steep, n=1500)
    table = fit_corrections(data, OMEGA).each[0]
    assert table.over == ("row effect", "column effect")
    r = data.residuals - expectile(data.residuals, OMEGA)
    nearest = []
    for name, knots in zip(table.over, table.knots, strict=True):
        places = np.arange(knots.size)
        between = np.interp(by_name(data.statistics)[name], knots, places)
        nearest.append(np.abs(between[:, None] - places).argmin(axis=1))
    value = table.values[nearest[0], nearest[1]]
    w = np.where(r >= value, OMEGA, 1 - OMEGA)
    prior = table_fit.PRIOR * w.mean()
    for (a, c), found in np.ndenumerate(table.values):
        here = (nearest[0] == a) & (nearest[1] == c)
        assert np.sum(w[here] * (r[here] - found)) == pytest.approx(prior * found, abs=1e-9)


def test_weight_two_is_the_observation_twice():
    once = cells(steep, n=1000)
    twice = ValidationCells(*(np.concatenate([part, part]) for part in once))
    weighted = once._replace(weights=np.full(1000, 2.0))
    one, other = fit_corrections(weighted, OMEGA), fit_corrections(twice, OMEGA)
    assert len(one.each) == len(other.each) > 0
    for a, b in zip(one.each, other.each, strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-9, atol=1e-12)
    assert one.shift == pytest.approx(other.shift)
    assert one.loss == pytest.approx(other.loss)


def test_data_times_1024_give_exactly_the_scaled_tables():
    data = cells(steep, n=1000)
    factor = np.array([1024.0 if "noise" not in name else 1.0 for name in STATISTICS])
    scaled = data._replace(
        values=1024 * data.values, predicted=1024 * data.predicted,
        statistics=data.statistics * factor,
    )  # fmt: skip
    one, other = fit_corrections(scaled, OMEGA), fit_corrections(data, OMEGA)
    for a, b in zip(one.each, other.each, strict=True):
        np.testing.assert_array_equal(a.values, 1024 * b.values)
    assert one.shift == 1024 * other.shift


def test_statistics_that_are_all_alike_are_left_out():
    data = cells(lambda named: 0.0)
    data = data._replace(statistics=np.zeros_like(data.statistics))
    found = fit_corrections(data, OMEGA)
    assert found.each == ()
    assert found.shift == pytest.approx(expectile(data.residuals, OMEGA))
