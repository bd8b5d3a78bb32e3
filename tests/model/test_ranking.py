"""The best columns of rows are those of the predictions, cell by cell, whatever finds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import fastemf
from fastemf.model.ranking import rank_rows, smallest
from fastemf.solver.axis import Axis
from fastemf.solver.tables import AxisLevels, Table, Tables


@pytest.fixture(autouse=True, scope="module")
def screens():
    """Few cells are ranked without a screen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.model.predictor.CELLS_PER_BLOCK", 0)
        yield


def model(rng, m, n, k, *, dtype=np.float64, whole=False, intercepts=True, tables=False):
    """A fit; one of whole numbers has many predictions that are equal."""

    def numbers(*shape):
        found = rng.integers(-2, 3, shape) if whole else rng.standard_normal(shape)
        return found.astype(dtype)

    made = Tables(
        (
            Table(("row level", "product"), (np.array([-1.0, 1.0]), np.array([-1.0, 0.0, 0.5])),
                  rng.standard_normal((2, 3))),
            Table(("row level", "column level"), (np.array([0.0, 1.0]), np.array([-1.0, 1.0])),
                  rng.standard_normal((2, 2))),
        ),
        1.0,
    )  # fmt: skip
    rows, cols = (
        Axis(
            numbers(size, k),
            numbers(size) if intercepts else None,
            levels=AxisLevels(rng.standard_normal(size), made) if tables else None,
        )
        for size in (m, n)
    )
    return fastemf.Factorization(
        rows=rows, cols=cols, omega=0.5, mu=0.5 if intercepts else 0.0, reg=1.0,
        reg_scaling="count", intercept_reg=1.0, scale=1.0, converged=True, history=(),
    )  # fmt: skip


def by_sorting(fit, n, largest, seen=None):
    """Every cell predicted alone, and sorted; of equal ones the first."""
    m, width = fit.shape
    values = fit.predict(*np.indices(fit.shape).reshape(2, -1)).reshape(m, width)
    keys = np.where(np.isfinite(values), -values if largest else values, np.inf)
    if seen is not None:
        keys[seen] = np.inf
    order = np.argsort(keys, axis=1, kind="stable")[:, :n]
    found = np.take_along_axis(values, order, axis=1)
    gone = ~np.isfinite(np.take_along_axis(keys, order, axis=1))
    cols, best = np.full((m, n), -1), np.full((m, n), np.nan, values.dtype)
    cols[:, : order.shape[1]], best[:, : order.shape[1]] = order, found
    cols[:, : order.shape[1]][gone], best[:, : order.shape[1]][gone] = -1, np.nan
    return cols, best


@given(
    seeds,
    st.sampled_from([0, 1, 3, 17]),
    st.sampled_from([1, 2, 5, 30, 60]),
    st.sampled_from([np.float64, np.float32]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_ranks_are_those_of_predictions_cell_by_cell(
    seed, k, n, dtype, whole, intercepts, tables, largest
):
    rng = np.random.default_rng(seed)
    tables = tables and intercepts
    fit = model(rng, 7, 60, k, dtype=dtype, whole=whole, intercepts=intercepts, tables=tables)
    cols, values = fit.rank(None, n, order="largest" if largest else "smallest")
    expected = by_sorting(fit, n, largest)
    np.testing.assert_array_equal(cols, expected[0])
    np.testing.assert_array_equal(values, expected[1])


def test_what_was_seen_is_left_out():
    rng = np.random.default_rng(0)
    fit = model(rng, 9, 50, 3)
    seen = rng.random((9, 50)) < 0.5
    seen[3] = True
    cols, values = fit.rank(None, 6, order="smallest", seen=np.where(seen, 1.0, np.nan))
    expected = by_sorting(fit, 6, False, seen)
    np.testing.assert_array_equal(cols, expected[0])
    np.testing.assert_array_equal(values, expected[1])


def test_a_screen_that_is_off_by_its_margin_changes_nothing():
    rng = np.random.default_rng(0)
    fit = model(rng, 20, 200, 4)
    exact = fit.predict(*np.indices(fit.shape).reshape(2, -1)).reshape(20, 200)

    def off(rows, out):
        out[...] = exact[rows] + rng.choice([-0.1, 0.1], out.shape)
        return np.full(rows.size, 0.1)

    rows = np.arange(20)
    for largest in (False, True):
        found = rank_rows(fit.axes, fit._cells, rows, 8, largest=largest, seen=None, screen=off)
        expected = by_sorting(fit, 8, largest)
        np.testing.assert_array_equal(found.cols, expected[0])
        np.testing.assert_array_equal(found.values, expected[1])


def test_margins_cover_what_products_round():
    for dtype in (np.float64, np.float32):
        for tables in (False, True):
            fit = model(np.random.default_rng(1), 30, 300, 40, dtype=dtype, tables=tables)
            near = np.empty((30, 300), dtype)
            margin = fit._screen()(np.arange(30), near)
            exact = fit.predict(*np.indices(fit.shape).reshape(2, -1)).reshape(30, 300)
            off = np.abs(near.astype(np.float64) - exact).max(axis=1)
            assert (off <= margin).all()
            wide = np.ptp(exact) if tables else 0.0
            assert (margin < 1e4 * np.finfo(dtype).eps * np.abs(exact).max() + wide).all()


def test_tables_far_above_the_product_do_not_hide_the_best():
    rng = np.random.default_rng(0)
    table = Table(
        ("row level", "column level"), (np.array([0.0, 1.0]), np.array([-1.0, 1.0])),
        np.full((2, 2), 6000.0),
    )  # fmt: skip
    tables = Tables((table,), 1.0)
    rows, cols = (
        Axis(
            rng.standard_normal((size, 3)).astype(np.float32),
            np.zeros(size, np.float32),
            levels=AxisLevels(np.zeros(size), tables),
        )
        for size in (400, 300)
    )
    fit = replace(model(rng, 2, 2, 1), rows=rows, cols=cols)
    cols, values = fit.rank(None, 10, order="largest")
    expected = by_sorting(fit, 10, True)
    np.testing.assert_array_equal(cols, expected[0])
    np.testing.assert_array_equal(values, expected[1])


def test_rows_whose_squares_vanish_are_ranked():
    rng = np.random.default_rng(0)
    fit = model(rng, 40, 60, 5, intercepts=False)
    near = 1.0 + 1e-15 * rng.integers(0, 4, (60, 5))
    fit = replace(fit, rows=Axis(1e-165 * fit.X), cols=Axis(near))
    cols, _ = fit.rank(None, 5, order="smallest")
    np.testing.assert_array_equal(cols, by_sorting(fit, 5, False)[0])


def test_smallest_leaves_out_what_is_not_finite():
    keys = np.array([[3.0, np.nan, 1.0, np.inf, 1.0], [np.nan, -np.inf, np.nan, np.inf, 2.0]])
    assert smallest(keys, 3).tolist() == [[2, 4, 0], [4, -1, -1]]
