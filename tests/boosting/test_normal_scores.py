"""The transform to normal scores and back."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from fastemf.boosting.normal_scores import MAX_KNOTS, NormalScores


def test_scores_are_quantiles_of_the_ranks():
    values = np.array([3.0, 1.0, 2.0, 2.0, 10.0])
    scores = NormalScores.fit(values)
    expected = norm.ppf((rankdata(values) - 0.5) / values.size)
    np.testing.assert_allclose(scores.to_scores(values), expected, rtol=1e-12)
    np.testing.assert_allclose(scores.to_values(scores.to_scores(values)), values, rtol=1e-12)


def test_many_values_have_few_knots_and_nearly_normal_scores():
    values = np.random.default_rng(0).pareto(1.5, 50_000)
    scores = NormalScores.fit(values)
    assert scores.values.size <= MAX_KNOTS
    assert (np.diff(scores.values) > 0).all()
    found = scores.to_scores(values)
    for share in (0.001, 0.05, 0.5, 0.95, 0.999):
        assert abs(np.mean(found <= norm.ppf(share)) - share) < 0.002
    np.testing.assert_allclose(scores.to_values(found), values, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tied", ["largest", "smallest", "heavy"])
def test_ties_at_one_end_are_one_knot(tied):
    values, weights = np.arange(2.0 * MAX_KNOTS), np.ones(2 * MAX_KNOTS)
    if tied == "heavy":
        weights[-1] = 100
    else:
        values = np.clip(values, *((100, None) if tied == "smallest" else (None, values[-100])))
    scores = NormalScores.fit(values, weights)
    assert scores.values.size <= MAX_KNOTS
    assert scores.values[[0, -1]].tolist() == [values.min(), values.max()]
    at_end = (values == values.max()) if tied != "smallest" else (values == values.min())
    share = weights[at_end].sum() / weights.sum()
    expected = norm.ppf(share / 2 if tied == "smallest" else 1 - share / 2)
    np.testing.assert_allclose(scores.to_scores(values[at_end]), expected, rtol=1e-9)


def test_a_weight_of_two_repeats_the_value():
    values, weights = np.array([5.0, 1.0, 3.0]), np.array([2.0, 1.0, 1.0])
    one = NormalScores.fit(values, weights)
    other = NormalScores.fit(np.array([5.0, 5.0, 1.0, 3.0]))
    np.testing.assert_array_equal(one.scores, other.scores)


def test_scores_are_constant_outside_the_data():
    scores = NormalScores.fit(np.arange(10.0))
    assert scores.to_values(np.array([-9.0, 9.0])).tolist() == [0.0, 9.0]
