"""Coverage reports, with and without censored values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from fastemf.boosting.coverage_report import report_coverage, report_group
from fastemf.boosting.observed_cells import cells_at
from fastemf.censoring.coverage import CensoredCells
from fastemf.censoring.limits import LEFT, RIGHT


def cells_of(values, weights=None):
    where = np.arange(values.size)
    return cells_at((values.size, 1), where, np.zeros_like(where), values, weights)


@given(seeds, st.sampled_from([RIGHT, LEFT]), st.booleans())
def test_coverage_within_a_common_limit_is_that_of_the_values(seed, code, weighted):
    rng = np.random.default_rng(seed)
    values, predicted = np.round(rng.normal(0, 3, (2, 200)))
    weights = rng.uniform(0.5, 2, 200) if weighted else None
    limit = 2.0 * code
    codes = np.where(code * values >= code * limit, code, 0)
    cut = np.where(codes != 0, limit, values)
    limits = CensoredCells(cut, codes, cut + 0.25 * codes)
    seen = limits.is_checkable(predicted)
    np.testing.assert_array_equal(seen, code * predicted < code * limit)
    masses = np.ones(200) if weights is None else weights
    expected = np.average((values <= predicted)[seen], weights=masses[seen])
    assert limits.coverage(predicted, weights, np.flatnonzero(seen)) == pytest.approx(expected)


def test_coverage_with_varying_limits_is_the_kaplan_meier_estimate():
    # The book's arithmetic: 1 of 5 at or below 0, one is lost, 1 of the 3 left is at or below.
    given = np.array([-3.0, -2.0, -1.0, 4.0, 5.0])
    codes = np.array([0, RIGHT, 0, 0, RIGHT])
    limits = CensoredCells(given, codes, np.where(codes != 0, given + 100, given))
    predicted = np.zeros(5)
    assert limits.is_checkable(predicted).all()  # 4 was seen beyond the limit of the second
    share = limits.coverage(predicted, None, np.arange(5))
    assert share == pytest.approx(1 - (4 / 5) * (2 / 3))
    mirrored = CensoredCells(-given, -codes, np.where(codes != 0, -given - 100, -given))
    assert mirrored.coverage(predicted, None, np.arange(5)) == pytest.approx(1 - share)


@pytest.mark.parametrize("code", [RIGHT, LEFT])
def test_random_limits_do_not_bias_the_estimate(code):
    rng = np.random.default_rng(0)
    values, at = rng.normal(0, 1, 40_000), rng.normal(code, 1, 40_000)
    codes = np.where(code * values > code * at, code, 0)
    assert 0.2 < np.mean(codes != 0) < 0.4
    limits = CensoredCells(np.where(codes != 0, at, values), codes, values)
    predicted = np.full(values.size, 0.7)
    share = limits.coverage(predicted, None, np.arange(values.size))
    assert share == pytest.approx((1 + math.erf(0.7 / math.sqrt(2))) / 2, abs=0.01)


def test_coverage_describes_the_verifiable_cells():
    rng = np.random.default_rng(0)
    values = rng.exponential(1, 1000)
    codes = np.where(values >= 1, RIGHT, 0)
    cut = np.minimum(values, 1.0)
    limits = CensoredCells(cut, codes, np.where(codes != 0, 1.25, values))
    predicted = np.where(np.arange(1000) < 400, 0.5, 1.5)
    simple = {"constant": np.ones(1000)}
    found = report_coverage(cells_of(limits.values), 0.5, predicted, simple, limits)
    assert found.verifiable == 0.4
    assert found.cells == 400
    assert found.coverage == pytest.approx(np.mean(values[:400] <= 0.5))
    assert found.interval[0] < found.coverage < found.interval[1]
    assert "beyond the censoring limit in 60.0% of the cells" in str(found)

    found = report_coverage(cells_of(limits.values), 0.5, np.full(1000, 1.5), simple, limits)
    assert (found.verifiable, found.cells, found.interval) == (0.0, 0, (0.0, 1.0))
    assert all(map(math.isnan, [found.coverage, found.dense_coverage, *found.deciles]))
    assert "nan" not in str(found)
    line = str(report_group("eu", found))
    assert line.startswith("eu: coverage cannot be checked, pinball loss")
    assert "beyond the censoring limit in 100.0% of the cells" in str(found)


def test_coverage_of_few_uncensored_cells():
    values = np.arange(5.0)
    simple = {"constant": np.ones(5)}
    found = report_coverage(cells_of(values), 0.5, np.full(5, 2.0), simple)
    assert (found.coverage, found.verifiable, found.cells) == (0.6, 1.0, 5)
    assert "beyond" not in str(found)


def test_efficiency_matches_the_variance_of_the_estimate():
    shares, worths = [], []
    predicted = np.full(300, 0.7)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values, at = rng.normal(0, 1, 300), rng.normal(0.3, 1, 300)
        codes = np.where(values > at, RIGHT, 0)
        limits = CensoredCells(np.where(codes != 0, at, values), codes, values)
        every = np.arange(300)
        shares.append(limits.coverage(predicted, None, every))
        worths.append(limits.efficiency(predicted, None, every))
    p = np.mean(shares)
    assert np.var(shares) == pytest.approx(p * (1 - p) / (300 * np.mean(worths)), rel=0.25)
    assert np.mean(worths) < 0.8


def test_efficiency_within_a_common_limit_is_one():
    values = np.random.default_rng(0).exponential(1, 500)
    codes = np.where(values >= 1, RIGHT, 0)
    limits = CensoredCells(np.minimum(values, 1.0), codes, values)
    predicted = np.full(500, 0.5)
    assert limits.efficiency(predicted, None, np.arange(500)) == pytest.approx(1.0)
