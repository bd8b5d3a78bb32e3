"""Statistics of rows and columns, merged with those of new observations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastemf.boosting.cell_features import SCALE, CellFeatures
from fastemf.boosting.merged_history import merge_history
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells, cells_at
from fastemf.boosting.residuals import log_scales
from fastemf.boosting.statistics import group_statistics, shrunk_quantiles
from fastemf.features.schema import FeatureSchema, FeatureTable

SHAPE = 6, 5
TAU = 0.95
KAPPA, CENTRE, MEAN_SCALE = 3.0, 2.0, 0.5
EXACT = [0, 1, 2, 3, 7]  # count, mean, standard deviation, minimum, maximum


def draw(size, seed, rows=SHAPE[0]):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, rows, size), rng.integers(0, SHAPE[1], size)
    return cells_at(SHAPE, i, j, rng.gamma(2.0, 1.0, size), rng.uniform(0.5, 2, size))


def join(one: ObservedCells, other: ObservedCells):
    names = ("rows", "cols", "values", "weights")
    return cells_at(
        SHAPE, *(np.concatenate([getattr(one, name), getattr(other, name)]) for name in names)
    )


def sizes(cells):
    return np.abs(cells.values - 2)


def history(cells, others):
    """The history of rows, given the scales of columns."""
    logs = log_scales(
        sizes(cells), cells.rows, others[cells.cols], SHAPE[0], MEAN_SCALE, cells.weights
    )
    statistics = group_statistics(cells.rows, cells.values, SHAPE[0], cells.weights)
    quantiles = shrunk_quantiles(
        cells.rows, cells.values, SHAPE[0], TAU, KAPPA, CENTRE, cells.weights
    )
    return np.column_stack([statistics, logs, quantiles])


def features_of(cells):
    others = np.append(np.linspace(-0.5, 0.5, SHAPE[1]), 0.0)
    cols = np.zeros((SHAPE[1] + 1, SCALE + 2))
    cols[:, SCALE] = others
    rows, columns = (FeatureTable.fit({}, size) for size in SHAPE)
    return CellFeatures(
        (Objective(QUANTILE, TAU),), (history(cells, others), cols), MEAN_SCALE,
        np.array([CENTRE]), np.full((1, 2), KAPPA), rows, columns, FeatureSchema.fit({}), 1.0,
    ), others  # fmt: skip


def merge(old, new):
    features, others = features_of(old)
    merged = merge_history(features, 0, new, sizes(new), new.weights)
    return merged, history(join(old, new), others)


def test_counts_means_and_scales_are_those_of_all_observations():
    old, new = draw(120, 0, rows=5), draw(40, 1)  # the last row is new
    merged, expected = merge(old, new)
    for column in (*EXACT, SCALE):
        np.testing.assert_allclose(merged[:, column], expected[:, column], rtol=1e-12)


def test_quantiles_are_close_to_those_of_all_observations():
    merged, expected = merge(draw(3000, 2), draw(600, 3))
    quantiles = [4, 5, 6, SCALE + 1]
    np.testing.assert_allclose(merged[:-1, quantiles], expected[:-1, quantiles], rtol=0.15)
    # They follow observations that differ.
    old, new = draw(3000, 2), draw(1200, 3)
    merged, expected = merge(old, replace(new, values=new.values + 10))
    np.testing.assert_allclose(merged[:-1, quantiles], expected[:-1, quantiles], rtol=0.15)


def test_quantiles_of_new_rows_are_exact():
    old, new = draw(60, 4, rows=3), draw(90, 5)
    merged, expected = merge(old, new)
    np.testing.assert_allclose(merged[3:], expected[3:], rtol=1e-12)


def test_rows_without_new_observations_keep_their_history():
    old, new = draw(60, 6), draw(30, 7, rows=2)
    merged, _ = merge(old, new)
    np.testing.assert_array_equal(merged[2:], features_of(old)[0].history[0][2:])


def test_many_small_updates_keep_the_quantiles():
    """A row with one observation per update: its p95 is not drawn to the mean."""
    rng = np.random.default_rng(8)
    i = np.zeros(1000, np.int64)
    whole = cells_at(SHAPE, i, i, rng.gamma(2.0, 1.0, i.size), np.ones(i.size))
    features, others = features_of(whole.select(np.arange(500)))
    for at in range(500, 1000):
        new = whole.select(np.array([at]))
        merged = merge_history(features, 0, new, sizes(new), new.weights)
        features = replace(features, history=(merged, features.history[1]))
    expected = history(whole, others)
    np.testing.assert_allclose(merged[0, EXACT], expected[0, EXACT], rtol=1e-9)
    quantiles = [4, 5, 6, SCALE + 1]
    np.testing.assert_allclose(merged[0, quantiles], expected[0, quantiles], rtol=0.1)
