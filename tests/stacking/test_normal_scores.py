"""Normal scores: where they come from, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from fastemf.stacking.normal_scores import MOST, NormalScores


def test_scores_are_those_of_the_ranks():
    values = np.array([3.0, 1.0, 2.0, 2.0, 10.0])
    scores = NormalScores.of(values)
    expected = norm.ppf((rankdata(values) - 0.5) / values.size)
    np.testing.assert_allclose(scores.of_values(values), expected, rtol=1e-12)
    np.testing.assert_allclose(scores.to_values(scores.of_values(values)), values, rtol=1e-12)


def test_many_values_have_few_knots_and_nearly_normal_scores():
    values = np.random.default_rng(0).pareto(1.5, 50_000)
    scores = NormalScores.of(values)
    assert scores.values.size <= MOST
    assert (np.diff(scores.values) > 0).all()
    found = scores.of_values(values)
    for share in (0.001, 0.05, 0.5, 0.95, 0.999):
        assert abs(np.mean(found <= norm.ppf(share)) - share) < 0.002
    np.testing.assert_allclose(scores.to_values(found), values, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tied", ["largest", "smallest", "heavy"])
def test_many_at_one_end_are_one_knot(tied):
    values, weights = np.arange(2.0 * MOST), np.ones(2 * MOST)
    if tied == "heavy":
        weights[-1] = 100
    else:
        values = np.clip(values, *((100, None) if tied == "smallest" else (None, values[-100])))
    scores = NormalScores.of(values, weights)
    assert scores.values.size <= MOST
    assert scores.values[[0, -1]].tolist() == [values.min(), values.max()]
    at_end = (values == values.max()) if tied != "smallest" else (values == values.min())
    share = weights[at_end].sum() / weights.sum()
    expected = norm.ppf(share / 2 if tied == "smallest" else 1 - share / 2)
    np.testing.assert_allclose(scores.of_values(values[at_end]), expected, rtol=1e-9)


def test_weight_two_is_the_value_twice():
    values, weights = np.array([5.0, 1.0, 3.0]), np.array([2.0, 1.0, 1.0])
    one = NormalScores.of(values, weights)
    other = NormalScores.of(np.array([5.0, 5.0, 1.0, 3.0]))
    np.testing.assert_array_equal(one.scores, other.scores)


def test_beyond_the_data_there_is_nothing():
    scores = NormalScores.of(np.arange(10.0))
    assert scores.to_values(np.array([-9.0, 9.0])).tolist() == [0.0, 9.0]
