"""Scores of distributions against scoringrules, closed forms and numerical integrals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from fastemf import metrics
from fastemf.distribution import Distribution
from fastemf.loss import expectile_loss

TAUS = (0.2, 0.5, 0.9)
POINTS = (-1.0, 0.5, 1.0, 1.5, 3.0, 5.0, 9.0)
CASES = {
    "exponential tails": Distribution(TAUS, [1.0, 2.0, 5.0]),
    "flat tails": Distribution(TAUS, [1.0, 2.0, 5.0], tails="flat"),
    "a lower end": Distribution(TAUS, [1.0, 2.0, 5.0], lowest=0.0),
    "a lower end above the first quantile": Distribution(TAUS, [1.0, 2.0, 5.0], lowest=1.5),
    "equal quantiles, first": Distribution(TAUS, [1.0, 1.0, 5.0]),
    "equal quantiles, last": Distribution(TAUS, [1.0, 5.0, 5.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_crps_is_its_integral(name):
    found = CASES[name]
    for y in POINTS:
        ends = sorted({-80.0, 0.0, 1.0, 2.0, 5.0, y, 200.0})
        parts = (
            integrate.quad(lambda x, y=y: (float(found.cdf(x)) - (x >= y)) ** 2, low, high)[0]
            for low, high in pairwise(ends)
        )
        assert found.crps(y) == pytest.approx(sum(parts), rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_quantile_function_inverts_the_cdf(name):
    found = CASES[name]
    for tau in (0.01, 0.1, 0.2, 0.35, 0.5, 0.8, 0.9, 0.99):
        x = float(found.quantile(tau))
        assert found.cdf(x, strict=True) <= tau + 1e-12
        assert found.cdf(x) >= tau - 1e-12
    assert (found.quantile(0.5), found.quantile(0.9)) == tuple(found.quantiles[1:])
    assert (np.diff(found.cdf(np.linspace(-3, 20, 200))) >= 0).all()


def test_exponential_tails_go_through_two_quantiles():
    """The quantiles of an exponential distribution, and of its mirror image, determine it."""
    taus, x = np.array([0.6, 0.9]), -3 * np.log([0.4, 0.1])
    right, left = Distribution(tuple(taus), x), Distribution(tuple(1 - taus[::-1]), -x[::-1])
    for value in (x[1], 10.0, 50.0):
        assert right.above(value) == pytest.approx(np.exp(-value / 3), rel=1e-6)
        assert left.cdf(-value) == pytest.approx(np.exp(-value / 3), rel=1e-12)
    assert right.quantile(0.999) == pytest.approx(-3 * np.log(0.001))
    assert np.isnan(right.above(np.nan))


def test_distributions_of_cells_equal_single_ones():
    rng = np.random.default_rng(0)
    quantiles = np.sort(rng.normal(size=(4, 5, 3)), axis=-1)
    values = rng.normal(size=(4, 5))
    every = Distribution(TAUS, quantiles)
    for at in np.ndindex(4, 5):
        one = Distribution(TAUS, quantiles[at])
        for method in ("cdf", "above", "crps"):
            assert getattr(every, method)(values)[at] == getattr(one, method)(values[at])
        assert every.quantile(0.97)[at] == one.quantile(0.97)


@pytest.mark.compiled  # as scoringrules is
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]])
def test_the_crps_of_many_quantiles_equals_scoringrules(weights):
    rules = pytest.importorskip("scoringrules")
    taus, values = np.arange(1, 1000) / 1000, np.array(POINTS)
    expected = {
        "normal": (stats.norm.ppf(taus, 1, 2), rules.crps_normal(values, 1.0, 2.0)),
        "exponential": (stats.expon.ppf(taus), rules.crps_exponential(values, 1.0)),
        "uniform": (taus, rules.crps_uniform(values, 0.0, 1.0)),
    }
    for quantiles, scores in expected.values():
        found = metrics.crps(values, np.tile(quantiles, (values.size, 1)), taus, weights)
        assert found.score == pytest.approx(np.average(scores, weights=weights), rel=1e-4)
        assert found.lower < found.score < found.upper < found.lower * 1.01


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(-2, 8),
    st.sampled_from(["exponential", "flat"]),
)  # fmt: skip
@settings(deadline=None)
def test_bounds_hold_for_any_distribution_with_the_quantiles(parts, y, tails):
    """Others have further quantiles, between those given."""
    lower, upper = Distribution(TAUS, [1.0, 2.0, 5.0], tails=tails).crps_bounds(y)
    (p1, x1), (p2, x2) = ((np.clip(p, 0.01, 0.99), x) for p, x in (parts[:2], parts[2:]))
    taus = (0.2, 0.2 + 0.3 * p1, 0.5, 0.5 + 0.4 * p2, 0.9)
    other = Distribution(taus, [1.0, 1.0 + x1, 2.0, 2.0 + 3 * x2, 5.0], tails="flat")
    flat = Distribution(TAUS, [1.0, 2.0, 5.0], tails="flat")
    tail = Distribution(TAUS, [1.0, 2.0, 5.0], tails=tails).crps(y) - flat.crps(y)
    assert lower - 1e-12 <= other.crps(y) + tail <= upper + 1e-12


@pytest.mark.compiled
def test_interval_scores_equal_scoringrules():
    rules = pytest.importorskip("scoringrules")
    rng = np.random.default_rng(1)
    taus = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles, values = np.sort(rng.normal(size=(50, 5))), 2 * rng.normal(size=50)
    found = metrics.interval_score(values, quantiles[:, 0], quantiles[:, 4], coverage=0.9)
    expected = rules.interval_score(values, quantiles[:, 0], quantiles[:, 4], 0.1)
    assert found == pytest.approx(expected.mean())
    expected = rules.weighted_interval_score(
        values, quantiles[:, 2], quantiles[:, :2], quantiles[:, :2:-1], np.array([0.1, 0.5])
    )
    found = metrics.weighted_interval_score(values, quantiles, taus)
    assert found == pytest.approx(expected.mean())
    assert found == pytest.approx(rules.crps_quantile(values, quantiles, taus).mean())
    weights = rng.integers(1, 4, 50)
    repeated = metrics.weighted_interval_score(
        np.repeat(values, weights), np.repeat(quantiles, weights, axis=0), taus
    )
    weighted = metrics.weighted_interval_score(values, quantiles, taus, weights)
    assert weighted == pytest.approx(repeated)


def test_the_pit_of_the_right_distribution_is_uniform():
    rng = np.random.default_rng(2)
    taus = np.arange(1, 20) / 20
    values = rng.exponential(size=20_000)
    quantiles = np.tile(stats.expon.ppf(taus), (values.size, 1))
    counts, _ = np.histogram(metrics.pit(values, quantiles, taus), 20, (0, 1))
    assert stats.chisquare(counts).pvalue > 1e-3
    counts, _ = np.histogram(metrics.pit(1.2 * values, quantiles, taus), 20, (0, 1))
    assert stats.chisquare(counts).pvalue < 1e-9


def test_the_pit_of_values_with_ties_is_uniform():
    """Of three values 0, 1 and 2, with probabilities 0.5, 0.3 and 0.2."""
    rng = np.random.default_rng(3)
    taus = np.array([0.1, 0.3, 0.4999, 0.5001, 0.6, 0.7999, 0.8001, 0.9])
    values = rng.choice(3, 20_000, p=[0.5, 0.3, 0.2]).astype(float)
    quantiles = np.tile(np.array([0, 0, 0, 1, 1, 1, 2, 2.0]), (values.size, 1))
    found = metrics.pit(values, quantiles, taus)
    counts, _ = np.histogram(found, 10, (0, 1))
    assert stats.chisquare(counts).pvalue > 1e-3
    assert np.array_equal(found, metrics.pit(values, quantiles, taus, random_state=0))


def test_elementary_scores_integrate_to_the_losses():
    rng = np.random.default_rng(4)
    values, predicted = rng.exponential(size=(2, 100))
    weights = rng.integers(1, 4, 100).astype(float)
    thetas = np.linspace(0, max(values.max(), predicted.max()), 20_001)
    found = metrics.murphy_diagram(values, predicted, tau=0.9, thetas=thetas, weights=weights)
    expected = metrics.pinball_loss(values, predicted, 0.9, weights)
    assert integrate.trapezoid(found.scores, thetas) == pytest.approx(expected, rel=1e-3)
    found = metrics.murphy_diagram(values, predicted, omega=0.9, thetas=thetas, weights=weights)
    expected = expectile_loss(values - predicted, 0.9, weights) / weights.sum() / 2
    assert integrate.trapezoid(found.scores, thetas) == pytest.approx(expected, rel=1e-3)
    assert metrics.murphy_diagram(values, predicted, tau=0.5).thetas.size == 201


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Distribution((0.5,), [1.0]), "taus must be at least two increasing numbers"),
        (lambda: Distribution((0.9, 0.5), [1.0, 2.0]), "increasing numbers, got"),
        (lambda: Distribution((0.5, 0.9), [1.0]), "2 values along the last axis"),
        (lambda: Distribution((0.5, 0.9), [2.0, 1.0]), "never decrease"),
        (lambda: Distribution((0.5, 0.9), [1.0, 2.0], tails="none"), "tails must be"),
        (lambda: metrics.crps([1.0], [1.0, 2.0], [0.5, 0.9]), r"got \(2,\) and \(1,\)"),
        (lambda: metrics.interval_score([1.0], [2.0], [1.0], 0.9), "lower must not exceed upper"),
        (lambda: metrics.interval_score([1.0], [2.0], [3.0], 90), "coverage must be"),
        (lambda: metrics.weighted_interval_score([1.0], [[1, 2]], [0.5, 0.9]), "symmetric"),
        (lambda: metrics.murphy_diagram([1.0], [1.0]), "one of tau and omega must be given"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(call, words):
    with pytest.raises(ValueError, match=words):
        call()
