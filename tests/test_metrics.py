"""Metrics against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastemf import metrics
from fastemf.loss import expectile


def test_relative_errors_exclude_zeros():
    errors = metrics.relative_errors([[4.0, 0.0], [-2.0, 5.0]], [[3.0, 9.0], [1.0, 5.0]])
    assert errors.values.tolist() == [0.25, 1.5, 0.0]
    assert errors.defined.tolist() == [True, False, True, True]
    assert errors.excluded == 1


def test_summary_by_hand():
    summary = metrics.summarize([4.0, 1.0, 2.0, 3.0, 5.0])
    # sorted 1 … 5: quantile q lies at 1 + 4 q
    assert summary == (5, 3.0, 2.0, 4.0, pytest.approx(4.6))
    assert summary.iqr == 2.0
    empty = metrics.summarize([])
    assert empty.cells == 0
    assert np.isnan([empty.median, empty.iqr]).all()


def test_bins_by_hand():
    truth = [0.0, 0.1, 0.2, 0.3, 3.0, 20.0, 21.0]
    predicted = [1.0, 0.2, 0.2, 0.6, 1.5, 5.0, 21.0]
    low, middle, high = metrics.summarize_by_bin(truth, predicted, [0, 0.3, 3.1, 20])
    assert (low.low, low.high, low.proportion) == (0.0, 0.3, pytest.approx(3 / 7))
    assert low.errors.cells == 2  # the zero has no relative error
    assert low.errors.median == pytest.approx(0.5)
    assert middle.errors.median == pytest.approx(0.75)  # of 1 and 0.5
    assert (high.errors.cells, high.errors.median) == (1, 0.75)  # 20 is in, 21 is not


def test_the_cdf_counts_ties_as_reached_and_agrees_with_the_summary():
    cdf = metrics.error_cdf([1.0, 1.0, 3.0], [0.5, 1.0, 2.9, 3.0])
    assert cdf.tolist() == pytest.approx([0, 2 / 3, 2 / 3, 1])
    errors = np.random.default_rng(0).random(1001)
    summary = metrics.summarize(errors)
    at = [summary.lower, summary.median, summary.upper, summary.q90]
    np.testing.assert_allclose(metrics.error_cdf(errors, at), [0.25, 0.5, 0.75, 0.9], atol=1e-3)


def test_skill_by_hand():
    # residuals 2, -1 against 1, 0 and a constant 2: losses 0.25·4 + 0.75·1 and 0.25·1 + 0.75·4
    skill = metrics.expectile_skill([3.0, 0.0], [1.0, 1.0], 0.25, constant=2.0)
    assert skill == pytest.approx(1 - 1.75 / 3.25)
    assert math.isnan(metrics.expectile_skill([2.0], [1.0], 0.25, constant=2.0))
    weighted = metrics.expectile_skill([3.0, 0.0], [1.0, 1.0], 0.25, 2.0, weights=[2, 1])
    assert weighted == pytest.approx(1 - 2.75 / 3.5)


@pytest.mark.parametrize("omega", [0.05, 0.5, 0.8])
def test_the_expectile_has_no_skill_and_its_own_level(omega):
    values = np.random.default_rng(1).gamma(1.0, size=400)
    constant = expectile(values, omega)
    fitted = np.full_like(values, constant)
    assert metrics.expectile_skill(values, fitted, omega, constant) == 0
    assert metrics.effective_omega(values - fitted) == pytest.approx(omega, rel=1e-9)


def test_effective_omega_and_coverage_by_hand():
    assert metrics.effective_omega([1.0, -2.0, 0.0]) == pytest.approx(2 / 3)
    assert metrics.effective_omega([1.0, -2.0], weights=[4.0, 1.0]) == pytest.approx(2 / 6)
    assert math.isnan(metrics.effective_omega([0.0]))
    assert metrics.coverage([1.0, 2.0, 3.0], [1.0, 1.0, 4.0]) == pytest.approx(2 / 3)  # ties count


def test_the_pinball_loss_is_least_at_the_quantile():
    values = np.random.default_rng(0).lognormal(size=999)
    for tau in (0.1, 0.5, 0.9):
        near = np.quantile(values, tau) + np.array([0, -0.1, 0.1])
        best, *others = (metrics.pinball_loss(values, np.full(999, at), tau) for at in near)
        assert best < min(others)
    half = metrics.pinball_loss(values, np.ones(999), 0.5)
    assert half == pytest.approx(np.mean(np.abs(values - 1)) / 2)


def test_weights_of_pinball_and_coverage_repeat_values():
    values, predicted, v = [1.0, 2.0, 5.0], [2.0, 2.0, 2.0], [1, 3, 2]
    for measure in (lambda b, p, **k: metrics.pinball_loss(b, p, 0.3, **k), metrics.coverage):
        weighted = measure(values, predicted, weights=v)
        assert weighted == pytest.approx(measure(np.repeat(values, v), np.repeat(predicted, v)))


ONE, TWO, THREE = [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]
SHAPES = r"must have one shape, got \(2,\), \(3,\)"
INVALID = [
    *((lambda e=e: metrics.summarize_by_bin(ONE, ONE, e), "bins must be at least two finite, incr")
      for e in ([], [1.0], [0.0, 0.0], [1.0, 0.5], [0.0, math.nan])),
    *((lambda f=f, w=w: f([1.0, w]), "weights must not be negative or NaN, got")
      for w in (-1.0, math.nan)
      for f in (
          lambda v: metrics.effective_omega(TWO, v),
          lambda v: metrics.coverage(TWO, TWO, v),
          lambda v: metrics.pinball_loss(TWO, TWO, 0.5, v),
      )),
    (lambda: metrics.relative_errors(TWO, THREE), SHAPES),
    (lambda: metrics.expectile_skill(TWO, THREE, 0.5, 0.0), SHAPES),
    (lambda: metrics.error_cdf([], ONE), "errors must not be empty"),
    (lambda: metrics.coverage([], []), "values must not be empty"),
    (lambda: metrics.pinball_loss([], [], 0.5), "values must not be empty"),
    (lambda: metrics.pinball_loss(ONE, ONE, 90), "tau must be a proportion strictly between 0 an"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), INVALID)
def test_errors_name_the_parameter_and_the_rule(call, words):
    with pytest.raises(ValueError, match=words):
        call()
