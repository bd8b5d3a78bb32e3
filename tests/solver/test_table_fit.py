"""The fit of tables to cells set aside: against plain loops, and by what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf.loss import expectile, expectile_loss
from fastemf.solver import table_fit
from fastemf.solver.judged import Judged
from fastemf.solver.table_fit import fitted_tables
from fastemf.solver.tables import STATISTICS

OMEGA = 0.2


def cells(residual, n=4000, seed=0, weights=None):
    """Cells whose residuals are a function of their statistics, plus noise that is right-skewed."""
    rng = np.random.default_rng(seed)
    statistics = rng.standard_normal((n, len(STATISTICS)))
    predicted = rng.random(n)
    named = dict(zip(STATISTICS, statistics.T, strict=True))
    left = residual(named) + 0.1 * rng.exponential(size=n)
    v = np.ones(n) if weights is None else weights
    return Judged(rng.integers(0, 2**32, n), predicted + left, v, predicted, statistics)


def steep(named):
    return np.maximum(named["row level"] + named["column level"], 0) ** 2


def uncertain(named):
    return named["product"] * (named["column noise"] > 0)


def test_a_function_of_two_levels_is_found():
    found = fitted_tables(cells(steep), OMEGA)
    assert found.each[0].over == ("row level", "column level")
    table = found.each[0]
    corner, middle = np.array([[2.0, 2.0], [-1.0, -1.0]]).T
    high, low = table.at(corner[:1], corner[:1])[0], table.at(middle[1:], middle[1:])[0]
    assert high - low > 2
    assert found.loss < 0.5 * expectile_loss(cells(steep).residuals, OMEGA) / 4000


def test_tables_follow_one_another():
    found = fitted_tables(cells(lambda named: steep(named) + uncertain(named)), OMEGA)
    assert [table.over for table in found.each][:2] == [
        ("row level", "column level"), ("product", "column noise"),
    ]  # fmt: skip


@pytest.mark.parametrize("omega", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(3))
def test_noise_gets_no_table_worth_its_name(omega, seed):
    data = cells(lambda named: 0.0, seed=seed)
    found = fitted_tables(data, omega)
    centred = data.residuals - expectile(data.residuals, omega)
    assert found.loss <= 1.01 * expectile_loss(centred, omega) / 4000
    assert all(np.abs(table.values).max() < 0.05 for table in found.each)


def test_the_shift_is_the_expectile_of_what_the_tables_leave():
    data = cells(steep)
    found = fitted_tables(data, OMEGA)
    named = dict(zip(STATISTICS, data.statistics.T, strict=True))
    left = data.residuals - sum(
        table.at(*(named[name] for name in table.over)) for table in found.each
    )
    assert found.shift == pytest.approx(expectile(left, OMEGA), abs=1e-12)
    assert found.effective_omega == pytest.approx(OMEGA, abs=0.01)


def test_a_table_is_the_shrunk_expectile_near_each_pair_of_knots(monkeypatch):
    """With Newton's method run to its end and nothing smoothed, the equation of each bin holds."""
    monkeypatch.setattr(table_fit, "NEWTON_STEPS", 50)
    monkeypatch.setattr(table_fit, "SMOOTHING", 0.0)
    data = cells(steep, n=1500)
    table = fitted_tables(data, OMEGA).each[0]
    assert table.over == ("row level", "column level")
    r = data.residuals - expectile(data.residuals, OMEGA)
    named = dict(zip(STATISTICS, data.statistics.T, strict=True))
    nearest = [
        np.abs(np.clip(
            np.interp(named[name], knots, np.arange(knots.size)), 0, knots.size - 1
        )[:, None] - np.arange(knots.size)).argmin(axis=1)
        for name, knots in zip(table.over, table.knots, strict=True)
    ]  # fmt: skip
    value = table.values[nearest[0], nearest[1]]
    w = np.where(r >= value, OMEGA, 1 - OMEGA)
    prior = table_fit.PRIOR * w.mean()
    for a in range(table.values.shape[0]):
        for c in range(table.values.shape[1]):
            here = (nearest[0] == a) & (nearest[1] == c)
            slope = np.sum(w[here] * (r[here] - table.values[a, c]))
            assert slope == pytest.approx(prior * table.values[a, c], abs=1e-9)


def test_weight_two_is_the_observation_twice():
    once = cells(steep, n=1000)
    twice = Judged(*(np.concatenate([part, part]) for part in once))
    weighted = once._replace(weights=np.full(1000, 2.0))
    one, other = fitted_tables(weighted, OMEGA), fitted_tables(twice, OMEGA)
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
    one, other = fitted_tables(scaled, OMEGA), fitted_tables(data, OMEGA)
    for a, b in zip(one.each, other.each, strict=True):
        np.testing.assert_array_equal(a.values, 1024 * b.values)
    assert one.shift == 1024 * other.shift


def test_statistics_that_are_all_alike_are_left_out():
    data = cells(lambda named: 0.0)
    data = data._replace(statistics=np.zeros_like(data.statistics))
    found = fitted_tables(data, OMEGA)
    assert found.each == ()
    assert found.shift == pytest.approx(expectile(data.residuals, OMEGA))
