"""Figures of held-out cells, their intervals, and what reports say."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fastemf.boosting.objective import EXPECTILE, QUANTILE, Objective
from fastemf.boosting.observed_cells import cells_at
from fastemf.metrics import coverage, effective_omega, pinball_loss
from fastemf.models.held_out import DriftReport, Figures, HeldOutReport, measure
from fastemf.models.tabular import Tabular

RNG = np.random.default_rng(0)
I, J = np.divmod(RNG.permutation(400), 20)
VALUES, PREDICTED, WEIGHTS = RNG.gamma(2, 5, 400), RNG.uniform(5, 15, 400), RNG.uniform(1, 3, 400)


def cells(at=slice(None), weights=None):
    return cells_at((20, 20), I[at], J[at], VALUES[at], weights)


def of(kind, level, at=slice(None), weights=None):
    return measure(Objective(kind, level), cells(at, weights), PREDICTED[at])


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_figures_are_those_of_the_metrics(weights):
    found = of(QUANTILE, 0.8, weights=weights)
    assert found.coverage == pytest.approx(coverage(VALUES, PREDICTED, weights=weights))
    assert found.loss == pytest.approx(pinball_loss(VALUES, PREDICTED, 0.8, weights))
    found = of(EXPECTILE, 0.8, weights=weights)
    assert found.coverage == pytest.approx(effective_omega(VALUES - PREDICTED, weights))
    apart = Objective(EXPECTILE, 0.8).loss(VALUES - PREDICTED, weights)
    assert found.loss == pytest.approx(apart)


@pytest.mark.parametrize("kind", [QUANTILE, EXPECTILE])
def test_a_repeated_cell_counts_as_one(kind):
    once = of(kind, 0.8)
    for twice in (
        of(kind, 0.8, np.tile(np.arange(400), 2)),
        of(kind, 0.8, weights=np.full(400, 2.0)),
    ):
        for name in ("cells", "coverage", "loss"):
            assert getattr(twice, name) == pytest.approx(getattr(once, name))
        np.testing.assert_allclose(twice.interval, once.interval)
        np.testing.assert_allclose(twice.loss_interval, once.loss_interval)


@pytest.mark.parametrize("kind", [QUANTILE, EXPECTILE])
def test_intervals_contain_the_truth(kind):
    """Of 95 % intervals of independent samples, 90 to 99 % contain the figures of all values."""
    rng = np.random.default_rng(1)
    constant, n = 8.0, 150
    objective = Objective(kind, 0.7)

    def figures(values):
        count = values.size
        sample = cells_at((1, count), np.zeros(count, int), np.arange(count), values, None)
        return measure(objective, sample, np.full(count, constant))

    truth = figures(rng.gamma(2, 5, 400_000))
    inside = np.zeros(2)
    for _ in range(400):
        found = figures(rng.gamma(2, 5, n))
        inside += [
            found.interval[0] <= truth.coverage <= found.interval[1],
            found.loss_interval[0] <= truth.loss <= found.loss_interval[1],
        ]
    assert ((inside / 400 > 0.9) & (inside / 400 < 0.99)).all()


def test_perfect_predictions_have_no_effective_omega():
    found = measure(Objective(EXPECTILE, 0.5), cells(), VALUES)
    assert math.isnan(found.coverage)
    assert found.loss == 0


def figures(coverage, loss, half=0.02):
    """Figures with intervals of a given half width, relative to the loss."""
    around = coverage - half, coverage + half
    return Figures(1000, coverage, around, loss, (loss * (1 - half), loss * (1 + half)))


FOLDS = figures(0.95, 10.0)


def report(own, folds=(FOLDS,), kind=HeldOutReport, **more):
    return kind(QUANTILE, (0.95,), (own,), folds, 1000, **more)


@pytest.mark.parametrize(
    ("own", "differs"),
    [
        (figures(0.95, 10.0), False),
        (figures(0.92, 10.0), False),  # intervals overlap
        (figures(0.90, 10.0), True),
        (figures(0.995, 10.0, half=0.002), True),
        (figures(0.95, 11.0), True),
        (figures(0.95, 5.0), False),  # a lower loss is no harm
    ],
)
def test_reports_say_what_differs(own, differs):
    found = report(own)
    assert found.differs == differs
    assert ("differ" in found.verdict()) == differs
    assert f"p95 covers {own.coverage:.4f}" in found.verdict()
    drift = report(
        own, kind=DriftReport, left_out=3, proportion=0.1, start=0.0, time="day", is_date=True,
        half_life=7 * 86_400.0,
    )  # fmt: skip
    assert drift.differs == differs
    assert ("the data drift" in str(drift)) == differs
    assert "of the latest 10 %" in str(drift)
    assert "halved with every 7 d" in str(drift)
    assert "1970-01-01T00:00:00" in str(drift)
    assert "3 of new rows or columns left out" in str(drift)


def test_without_random_folds_coverage_is_compared_with_the_level():
    assert not report(figures(0.96, 10.0), ()).differs
    assert report(figures(0.90, 10.0), ()).differs
    assert "random folds" not in report(figures(0.96, 10.0), ()).verdict()


def test_reports_are_tables():
    found = report(FOLDS)
    assert isinstance(found, Tabular)
    assert found.columns()["coverage in random folds"] == [0.95]
    assert found.to_frame()["quantile"].tolist() == ["p95"]
    level = replace(found, objective=EXPECTILE)
    assert level.columns()["effective omega"] == [0.95]
    assert "has the effective omega 0.9500" in level.verdict()
    empty = replace(found, held_out=())
    assert not empty.differs
    assert empty.verdict() == "no row and column has both earlier and latest observations"
