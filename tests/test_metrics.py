"""Measures against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastemf import metrics
from fastemf.loss import expectile


def test_relative_errors_leave_zeros_out_and_count_them():
    errors = metrics.relative_errors([[4.0, 0.0], [-2.0, 5.0]], [[3.0, 9.0], [1.0, 5.0]])
    assert errors.values.tolist() == [0.25, 1.5, 0.0]
    assert errors.defined.tolist() == [True, False, True, True]
    assert errors.excluded == 1


def test_summary_by_hand():
    summary = metrics.summarise([4.0, 1.0, 2.0, 3.0, 5.0])
    # sorted 1 … 5: quantile q lies at 1 + 4 q
    assert summary == (5, 3.0, 2.0, 4.0, pytest.approx(4.6))
    assert summary.iqr == 2.0


def test_nothing_to_summarise():
    summary = metrics.summarise([])
    assert summary.cells == 0
    assert math.isnan(summary.median)
    assert math.isnan(summary.iqr)


def test_bins_by_hand():
    truth = [0.0, 0.1, 0.2, 0.3, 3.0, 20.0, 21.0]
    predicted = [1.0, 0.2, 0.2, 0.6, 1.5, 5.0, 21.0]
    low, middle, high = metrics.summarise_by_bin(truth, predicted, [0, 0.3, 3.1, 20])
    assert (low.low, low.high, low.share) == (0.0, 0.3, pytest.approx(3 / 7))
    assert low.errors.cells == 2  # the zero has no relative error
    assert low.errors.median == pytest.approx(0.5)
    assert middle.errors.median == pytest.approx(0.75)  # of 1 and 0.5
    assert (high.errors.cells, high.errors.median) == (1, 0.75)  # 20 is in, 21 is not


@pytest.mark.parametrize("edges", [[], [1.0], [0.0, 0.0], [1.0, 0.5], [0.0, math.nan]])
def test_bins_that_are_none(edges):
    with pytest.raises(ValueError, match="bins must be at least two finite, increasing edges, got"):
        metrics.summarise_by_bin([1.0], [1.0], edges)


def test_cdf_counts_ties_as_reached():
    assert metrics.error_cdf([1.0, 1.0, 3.0], [0.5, 1.0, 2.9, 3.0]).tolist() == [
        0.0, pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="errors must not be empty"):
        metrics.error_cdf([], [1.0])


def test_cdf_and_summary_agree():
    errors = np.random.default_rng(0).random(1001)
    summary = metrics.summarise(errors)
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
def test_the_best_constant_has_no_skill_and_its_own_level(omega):
    values = np.random.default_rng(1).gamma(1.0, size=400)
    constant = expectile(values, omega)
    fitted = np.full_like(values, constant)
    assert metrics.expectile_skill(values, fitted, omega, constant) == 0
    assert metrics.effective_omega(values - fitted) == pytest.approx(omega, rel=1e-9)


@pytest.mark.parametrize("weight", [-1.0, np.nan])
def test_weights_must_not_be_negative(weight):
    weights = [1.0, weight]
    for metric in (
        lambda: metrics.effective_omega([1.0, 2.0], weights),
        lambda: metrics.coverage([1.0, 2.0], [1.0, 2.0], weights),
        lambda: metrics.pinball_loss([1.0, 2.0], [1.0, 2.0], 0.5, weights),
    ):
        with pytest.raises(ValueError, match="weights must not be negative or NaN, got"):
            metric()


def test_effective_omega_by_hand():
    assert metrics.effective_omega([1.0, -2.0, 0.0]) == pytest.approx(2 / 3)
    assert metrics.effective_omega([1.0, -2.0], weights=[4.0, 1.0]) == pytest.approx(2 / 6)
    assert math.isnan(metrics.effective_omega([0.0]))


def test_coverage_counts_equality():
    assert metrics.coverage([1.0, 2.0, 3.0], [1.0, 1.0, 4.0]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="values must not be empty"):
        metrics.coverage([], [])


@pytest.mark.parametrize(
    "measure",
    [
        metrics.relative_errors,
        metrics.coverage,
        lambda a, b: metrics.summarise_by_bin(a, b, [0, 1]),
        lambda a, b: metrics.expectile_skill(a, b, 0.5, 0.0),
    ],
)
def test_shapes_must_agree(measure):
    with pytest.raises(ValueError, match=r"must have one shape, got \(2,\), \(3,\)"):
        measure([1.0, 2.0], [1.0, 2.0, 3.0])


def test_the_pinball_loss_is_least_at_the_quantile():
    values = np.random.default_rng(0).lognormal(size=999)
    for share in (0.1, 0.5, 0.9):
        at = np.quantile(values, share)
        losses = [
            metrics.pinball_loss(values, np.full(999, at + step), share) for step in (-0.1, 0, 0.1)
        ]
        assert min(losses) == losses[1]
    middle = np.full(999, 1.0)
    half = metrics.pinball_loss(values, middle, 0.5)
    assert half == pytest.approx(np.mean(np.abs(values - 1)) / 2)


def test_weights_of_pinball_and_coverage_repeat_values():
    values, predicted, v = [1.0, 2.0, 5.0], [2.0, 2.0, 2.0], [1, 3, 2]
    for measure in (lambda b, p, **k: metrics.pinball_loss(b, p, 0.3, **k), metrics.coverage):
        weighted = measure(values, predicted, weights=v)
        assert weighted == pytest.approx(measure(np.repeat(values, v), np.repeat(predicted, v)))


def test_bad_pinball_losses():
    with pytest.raises(ValueError, match="share must be a share strictly between 0 and 1"):
        metrics.pinball_loss([1.0], [1.0], 90)
    with pytest.raises(ValueError, match="values must not be empty"):
        metrics.pinball_loss([], [], 0.5)
