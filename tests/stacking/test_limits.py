"""What can be checked of quantiles where values are limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from fastemf.inputs.censoring import LEFT, RIGHT
from fastemf.stacking.limits import Limits
from fastemf.stacking.promise import Simple, promised
from fastemf.stacking.sampled import placed


def cells_of(values, weights=None):
    where = np.arange(values.size)
    return placed((values.size, 1), where, np.zeros_like(where), values, weights)


@given(seeds, st.sampled_from([RIGHT, LEFT]), st.booleans())
def test_short_of_one_limit_for_all_the_share_is_that_of_the_values(seed, code, weighted):
    rng = np.random.default_rng(seed)
    values, predicted = np.round(rng.normal(0, 3, (2, 200)))
    weights = rng.uniform(0.5, 2, 200) if weighted else None
    limit = 2.0 * code
    codes = np.where(code * values >= code * limit, code, 0)
    cut = np.where(codes != 0, limit, values)
    limits = Limits(cut, codes, cut + 0.25 * codes)
    seen = limits.in_sight(predicted)
    np.testing.assert_array_equal(seen, code * predicted < code * limit)
    expected = np.average(
        (values <= predicted)[seen], weights=None if weights is None else weights[seen]
    )
    assert limits.share_below(predicted, weights, np.flatnonzero(seen)) == pytest.approx(expected)


def test_limits_that_differ_give_the_estimate_of_kaplan_and_meier():
    # The book's arithmetic: 1 of 5 at or below 0, one is lost, 1 of the 3 left is at or below.
    given = np.array([-3.0, -2.0, -1.0, 4.0, 5.0])
    codes = np.array([0, RIGHT, 0, 0, RIGHT])
    limits = Limits(given, codes, np.where(codes != 0, given + 100, given))
    predicted = np.zeros(5)
    assert limits.in_sight(predicted).all()  # 4 was seen beyond the limit of the second
    share = limits.share_below(predicted, None, np.arange(5))
    assert share == pytest.approx(1 - (4 / 5) * (2 / 3))
    mirrored = Limits(-given, -codes, np.where(codes != 0, -given - 100, -given))
    assert mirrored.share_below(predicted, None, np.arange(5)) == pytest.approx(1 - share)


@pytest.mark.parametrize("code", [RIGHT, LEFT])
def test_limits_at_random_do_not_move_the_estimate(code):
    rng = np.random.default_rng(0)
    values, at = rng.normal(0, 1, 40_000), rng.normal(code, 1, 40_000)
    codes = np.where(code * values > code * at, code, 0)
    assert 0.2 < np.mean(codes != 0) < 0.4
    limits = Limits(np.where(codes != 0, at, values), codes, values)
    predicted = np.full(values.size, 0.7)
    share = limits.share_below(predicted, None, np.arange(values.size))
    assert share == pytest.approx((1 + math.erf(0.7 / math.sqrt(2))) / 2, abs=0.01)


def test_a_promise_is_about_what_can_be_checked():
    rng = np.random.default_rng(0)
    values = rng.exponential(1, 1000)
    codes = np.where(values >= 1, RIGHT, 0)
    cut = np.minimum(values, 1.0)
    limits = Limits(cut, codes, np.where(codes != 0, 1.25, values))
    predicted = np.where(np.arange(1000) < 400, 0.5, 1.5)
    simple = Simple(*np.ones((3, 1000)))
    found = promised(cells_of(limits.values), 0.5, predicted, simple, limits)
    assert found.checked == 0.4
    assert found.cells == 400
    assert found.coverage == pytest.approx(np.mean(values[:400] <= 0.5))
    assert found.interval[0] < found.coverage < found.interval[1]
    assert "beyond the limit in 60.0% of the cells" in str(found)

    found = promised(cells_of(limits.values), 0.5, np.full(1000, 1.5), simple, limits)
    assert (found.checked, found.cells, found.interval) == (0.0, 0, (0.0, 1.0))
    assert all(map(math.isnan, [found.coverage, found.many, *found.deciles]))
    assert "nan" not in str(found)
    assert "beyond the limit in 100.0% of the cells" in str(found)


def test_few_cells_without_limits_are_judged_as_ever():
    values = np.arange(5.0)
    found = promised(cells_of(values), 0.5, np.full(5, 2.0), Simple(*np.ones((3, 5))))
    assert (found.coverage, found.checked, found.cells) == (0.6, 1.0, 5)
    assert "beyond" not in str(found)


def test_an_estimate_is_worth_what_its_variance_says():
    shares, worths = [], []
    predicted = np.full(300, 0.7)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values, at = rng.normal(0, 1, 300), rng.normal(0.3, 1, 300)
        codes = np.where(values > at, RIGHT, 0)
        limits = Limits(np.where(codes != 0, at, values), codes, values)
        every = np.arange(300)
        shares.append(limits.share_below(predicted, None, every))
        worths.append(limits.worth(predicted, None, every))
    p = np.mean(shares)
    assert np.var(shares) == pytest.approx(p * (1 - p) / (300 * np.mean(worths)), rel=0.25)
    assert np.mean(worths) < 0.8


def test_short_of_one_limit_for_all_each_cell_counts_in_full():
    values = np.random.default_rng(0).exponential(1, 500)
    codes = np.where(values >= 1, RIGHT, 0)
    limits = Limits(np.minimum(values, 1.0), codes, values)
    predicted = np.full(500, 0.5)
    assert limits.worth(predicted, None, np.arange(500)) == pytest.approx(1.0)
