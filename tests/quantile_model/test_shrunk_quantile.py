"""Shrunken quantiles, compared with a direct implementation of their definition."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf.quantile_model.shrunk_quantile import ATOMS, Pool, quantile, shrunk_quantiles


def defined(values, weights, tau, kappa, pool):
    """The smallest value of the group or of the pool at which n F_g + κ F reaches τ (n + κ)."""
    wanted = tau * (weights.sum() + kappa) * (1 - 1e-12)
    for q in np.sort(np.concatenate([values, pool.values])):
        below = pool.proportions[pool.values <= q]
        share = below[-1] if below.size else 0.0
        if weights[values <= q].sum() + kappa * share >= wanted:
            return q
    raise AssertionError("the pool ends with a share of 1")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tau", [0.05, 0.5, 0.95])
def test_quantiles_equal_their_definition(seed, tau):
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(5, 60)), 6
    values = rng.standard_normal(n) if seed % 2 else rng.integers(0, 9, n).astype(float)  # ties
    groups = rng.integers(0, size - 1, n)  # the last one stays empty
    weights = rng.integers(1, 4, n).astype(float) if seed % 3 == 0 else None
    each = np.ones(n) if weights is None else weights
    pool = Pool.fit(values, weights)
    for kappa in (0.3, 5.0, 100.0):
        found = shrunk_quantiles(values, groups, size, tau, kappa, pool, weights)
        own = [groups == g for g in range(size + 1)]
        expected = [defined(values[g], each[g], tau, kappa, pool) for g in own]
        np.testing.assert_array_equal(found, expected)


def test_groups_outside_the_range_of_the_pool():
    pool = Pool(np.array([0.0, 1.0]), np.array([0.5, 1.0]))
    values, groups = np.array([5.0, 6.0, 7.0, -5.0, -6.0]), np.array([0, 0, 0, 1, 1])
    for tau in (0.1, 0.5, 0.9):
        for kappa in (0.1, 1.0, 10.0):
            found = shrunk_quantiles(values, groups, 2, tau, kappa, pool)
            for g in (0, 1):
                own = values[groups == g]
                assert found[g] == defined(own, np.ones(own.size), tau, kappa, pool)


def test_an_empty_group_has_the_quantile_of_the_pool():
    values = np.arange(100.0)
    found = shrunk_quantiles(values, np.zeros(100, int), 3, 0.9, 7.0, Pool.fit(values))
    assert found[1:].tolist() == [quantile(values, 0.9)] * 3


def test_the_limits_of_little_and_much_shrinkage():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal(200), 50 + rng.standard_normal(200)])
    groups = np.repeat([0, 1], 200)
    pool = Pool.fit(values)
    own = shrunk_quantiles(values, groups, 2, 0.5, 1e-9, pool)
    assert own[1] == quantile(values[200:], 0.5)
    shared = shrunk_quantiles(values, groups, 2, 0.701, 1e9, pool)
    assert shared.tolist() == [quantile(values, 0.701)] * 3


def test_a_weight_of_two_repeats_the_value():
    rng = np.random.default_rng(1)
    values, groups = rng.standard_normal(50), rng.integers(0, 4, 50)
    weights = rng.integers(1, 3, 50).astype(float)
    twice = np.repeat(np.arange(50), weights.astype(int))
    assert quantile(values, 0.7, weights) == quantile(values[twice], 0.7)
    pool = Pool.fit(values, weights)
    np.testing.assert_array_equal(
        shrunk_quantiles(values, groups, 4, 0.7, 3.0, pool, weights),
        shrunk_quantiles(values[twice], groups[twice], 4, 0.7, 3.0, pool),
    )


def test_a_large_pool_keeps_the_tails_of_the_distribution():
    values = np.random.default_rng(2).standard_exponential(9999)  # none of which are left out
    pool = Pool.fit(values)
    assert pool.values.size == ATOMS
    for share in (0.01, 0.5, 0.95, 0.99, 0.999):
        at = pool.values[np.searchsorted(pool.proportions, share)]
        # The atoms are spaced by a 28th on the logit scale.
        assert abs(np.mean(values <= at) - share) < 0.05 * share * (1 - share) + 1e-4


@pytest.mark.parametrize("weighted", [False, True])
def test_quantile_equals_its_definition(weighted):
    values = np.array([3.0, 1.0, 2.0, 4.0])
    weights = np.ones(4) if weighted else None
    found = [quantile(values, tau, weights) for tau in (0.1, 0.25, 0.26, 0.5, 0.99)]
    assert found == [1, 1, 2, 2, 4]
