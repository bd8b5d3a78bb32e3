"""Statistics of groups, compared with pandas and with their definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fastemf.boosting.statistics import (
    STATISTICS,
    group_statistics,
    mean_pinball,
    quantile,
    shrunk_quantiles,
)

TAUS = (0.05, 0.1, 0.3, 0.5, 0.95)


def problem(seed):
    """Return groups, of which one is empty, values with ties, and integer weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 80))
    groups = rng.choice([0, 1, 3, 4], n)
    return groups, rng.integers(-9, 9, n) / 4, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("seed", range(6))
def test_statistics_are_those_of_pandas(seed):
    groups, values, _ = problem(seed)
    found = pd.DataFrame(group_statistics(groups, values, 5), columns=STATISTICS)
    of_group = pd.Series(values).groupby(groups)
    quantiles = {
        f"p{100 * q:g}": of_group.agg(lambda v, q=q: np.quantile(v, q, method="inverted_cdf"))
        for q in (0.1, 0.5, 0.9)
    }
    expected = pd.DataFrame(
        {
            "count": of_group.size().astype(float), "mean": of_group.mean(),
            "standard deviation": of_group.std(ddof=0), "minimum": of_group.min(), **quantiles,
            "maximum": of_group.max(),
        }
    ).reindex(range(6))  # fmt: skip
    expected["count"] = expected["count"].fillna(0)  # the third group, and the one at the end
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("seed", range(6))
def test_a_weight_of_two_repeats_the_observation(seed):
    groups, values, weights = problem(seed)
    twice = np.repeat(np.arange(values.size), weights.astype(int))
    many = groups[twice], values[twice], 5
    one, other = group_statistics(groups, values, 5, weights), group_statistics(*many)
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    for tau in TAUS:
        np.testing.assert_allclose(
            shrunk_quantiles(groups, values, 5, tau, 3.0, 0.7, weights),
            shrunk_quantiles(*many, tau, 3.0, 0.7), rtol=1e-12,
        )  # fmt: skip
        assert quantile(values, tau, weights) == quantile(values[twice], tau)
        loss = mean_pinball(values[twice] - 0.3, tau)
        assert mean_pinball(values - 0.3, tau, weights) == pytest.approx(loss)


@pytest.mark.parametrize("tau", TAUS)
def test_quantiles_equal_their_definition(tau):
    groups, values, _ = problem(0)
    assert quantile(values, tau) == np.quantile(values, tau, method="inverted_cdf")
    own, shared = (shrunk_quantiles(groups, values, 5, tau, k, 0.7) for k in (1e-12, 1e12))
    np.testing.assert_allclose(shared, 0.7, rtol=1e-9)
    for group in range(6):
        part = values[groups == group]
        expected = np.quantile(part, tau, method="inverted_cdf") if part.size else 0.7
        assert own[group] == pytest.approx(expected, rel=1e-9)
        found = shrunk_quantiles(groups, values, 5, tau, 3.0, 0.7)[group]
        assert found == pytest.approx((part.size * expected + 3 * 0.7) / (part.size + 3))
