"""Distributions of residuals that are only known to lie in intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import seeds

from fastemf.censoring.turnbull import BINS, interval_distributions

INF = np.inf


def one_group(lower, upper, weights=None, omega=0.5):
    """Estimate one distribution: all fitted values are equal."""
    weights = np.ones(lower.size) if weights is None else weights
    return interval_distributions(np.zeros(lower.size), lower, upper, weights, omega)


def in_buckets(u, centres, width):
    """Return the buckets of a width that contain residuals, with bounds around random centres."""
    lower = np.floor((u - centres) / width) * width + centres
    return lower, lower + width


def random_intervals(seed, size=400):
    rng = np.random.default_rng(seed)
    u = rng.gamma(2, 1, size) - 2
    lower, upper = in_buckets(u, rng.uniform(0, 3, size), 1.5)
    lower[rng.random(size) < 0.1] = -INF
    upper[(rng.random(size) < 0.1) & np.isfinite(lower)] = INF
    return lower, upper


@pytest.mark.parametrize("distribution", [stats.norm(), stats.gamma(2, -1), stats.uniform(-2, 4)])
def test_buckets_at_random_places_reveal_the_distribution(distribution):
    rng = np.random.default_rng(0)
    u = distribution.rvs(20_000, random_state=rng)
    lower, upper = in_buckets(u, rng.uniform(0, 2, u.size), 2.0)
    found = one_group(lower, upper)
    # Of the distribution; the buckets alone would leave differences of up to 0.5.
    assert np.abs(found.below[0] - distribution.cdf(found.at[0])).max() < 0.03


def test_exact_residuals_have_their_empirical_distribution():
    u = np.random.default_rng(0).standard_normal(5000)
    found = one_group(u, u)
    empirical = np.searchsorted(np.sort(u), found.at[0], side="right") / u.size
    assert np.abs(found.below[0] - empirical).max() < 0.03  # the width of the smoothing


@given(seeds, st.sampled_from([0.1, 0.5, 0.9]))
def test_imputed_residuals_have_the_mean_slope_of_draws(seed, omega):
    lower, upper = random_intervals(seed)
    found = one_group(lower, upper, omega=omega)
    zero = np.zeros(lower.size)
    imputed = found.impute(zero, lower, upper)
    assert ((lower <= imputed) & (imputed <= upper)).all()
    chances = (np.arange(2000) + 0.5) / 2000
    for at in range(0, lower.size, 40):
        low, high = np.full(2000, lower[at]), np.full(2000, upper[at])
        drawn = found.draw(np.zeros(2000), low, high, chances)
        assert (np.diff(drawn) >= 0).all()
        assert lower[at] <= drawn[0] and drawn[-1] <= upper[at]  # noqa: PT018
        slope = np.mean(np.where(drawn >= 0, omega, 1 - omega) * drawn)
        expected = slope / (omega if slope >= 0 else 1 - omega)
        assert imputed[at] == pytest.approx(np.clip(expected, lower[at], upper[at]), abs=5e-3)


@given(seeds, st.sampled_from([0.1, 0.5, 0.9]))
def test_negation_mirrors_the_distribution(seed, omega):
    lower, upper = random_intervals(seed)
    one, mirrored = one_group(lower, upper, omega=omega), one_group(-upper, -lower, None, 1 - omega)
    zero = np.zeros(lower.size)
    np.testing.assert_allclose(mirrored.at[0], -one.at[0][::-1], atol=1e-9)
    np.testing.assert_allclose(mirrored.below[0], 1 - one.below[0][::-1], atol=1e-9)
    np.testing.assert_allclose(
        mirrored.impute(zero, -upper, -lower), -one.impute(zero, lower, upper), atol=1e-9
    )


def test_weight_two_equals_repetition_and_scaled_weights_change_nothing():
    lower, upper = random_intervals(0)
    weights = np.random.default_rng(1).integers(1, 4, lower.size)
    weighted, scaled = (one_group(lower, upper, v * weights.astype(float)) for v in (1, 1000))
    repeated = one_group(np.repeat(lower, weights), np.repeat(upper, weights))
    np.testing.assert_allclose(scaled.below, weighted.below, rtol=1e-12)
    # The bins depend on the quantiles of the interval ends, which weights do not change.
    assert repeated.at.shape == weighted.at.shape == (1, BINS + 1)
    found, expected = (one.impute(np.zeros(400), lower, upper) for one in (weighted, repeated))
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_groups_of_fitted_values_have_distributions_of_their_own():
    rng = np.random.default_rng(0)
    fitted = rng.uniform(0, 1, 8000)
    u = np.where(fitted > 0.5, 5.0, 1.0) * rng.standard_normal(8000)
    found = interval_distributions(fitted, u - 0.5, u + 0.5, np.ones(8000), 0.5)
    assert found.bounds.size == 7
    spread = found.impute(np.array([0.1, 0.9]), np.zeros(2), np.full(2, INF))
    assert spread == pytest.approx(np.array([1.0, 5.0]) * np.sqrt(2 / np.pi), rel=0.1)


def test_intervals_away_from_all_residuals():
    rng = np.random.default_rng(0)
    u = rng.standard_normal(1000)
    found = one_group(u - 0.1, u + 0.1)
    zero, lower, upper = np.zeros(3), np.array([50.0, 50.0, -INF]), np.array([60.0, INF, -50.0])
    assert found.impute(zero, lower, upper).tolist() == [55.0, 50.0, -50.0]
    assert found.draw(zero, lower, upper, np.full(3, 0.25)).tolist() == [52.5, 50.0, -50.0]


def test_equal_fitted_values_and_equal_intervals():
    same = one_group(np.full(2000, 1.0), np.full(2000, 2.0))
    drawn = same.draw(np.zeros(100), np.full(100, 1.0), np.full(100, 2.0), np.linspace(0, 1, 100))
    assert ((drawn >= 1) & (drawn <= 2)).all()
    assert drawn.std() > 0.2  # nothing is known within the interval
    point = one_group(np.full(2000, 3.0), np.full(2000, 3.0))
    assert point.impute(np.zeros(1), np.array([2.0]), np.array([INF])) == pytest.approx(3, abs=0.2)
