"""Medians by selection are those of sorted values, wherever the entries are kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from fastemf import store
from fastemf.sources.medians import group_medians, median
from fastemf.sources.memory import observe


def drawn(seed, dtype, weighted, *, size=120):
    """Entries with many ties, in some columns none."""
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(9, size=size), rng.integers(0, 12, size=size)
    values = rng.integers(-3, 4, size).astype(dtype) * dtype(0.25)
    weights = rng.integers(1, 4, size).astype(dtype) if weighted else None
    return observe((rows, cols, values), weights=weights, shape=(9, 14)), cols, values, weights


@given(seeds, st.sampled_from([np.float32, np.float64]), st.booleans())
def test_medians_are_those_of_the_values_each_repeated_by_its_weight(seed, dtype, weighted):
    observed, cols, values, weights = drawn(seed, dtype, weighted)
    found = group_medians(observed.by_col, 1)
    for col in range(14):
        mine = values[cols == col]
        if weighted:
            mine = mine.repeat(weights[cols == col].astype(int))
        expected = np.median(mine) if mine.size else np.nan
        np.testing.assert_array_equal(found[col], expected)


@pytest.mark.parametrize("order", [np.sort, lambda x: np.sort(x)[::-1], np.array])
def test_the_order_of_the_values_does_not_matter(order):
    values = np.random.default_rng(0).lognormal(size=1000)
    assert median(order(values)) == np.median(values)
    assert median(values, np.ones(1000)) == np.median(values)
    assert median(np.full(9, 2.5)) == 2.5
    assert np.isnan(median(np.empty(0)))


def test_a_store_has_the_medians_of_memory(tmp_path):
    observed, *_ = drawn(1, np.float64, True)
    side = observed.by_row
    path = tmp_path / "log"
    store.build((side.keys, side.indices, side.values), path, weights=side.weights, shape=(9, 14))
    on_disk = store.open(path, budget=400)
    assert on_disk.by_col.cuts().size > 3  # or it proves nothing
    expected = group_medians(observed.by_col, 1)
    for threads in (1, 2):
        np.testing.assert_array_equal(group_medians(on_disk.by_col, threads), expected)
