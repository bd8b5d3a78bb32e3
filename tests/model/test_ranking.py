"""The best columns of rows are those of the predictions, cell by cell, whatever finds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import fastemf
from fastemf.kernels.width import STRETCH
from fastemf.model.best_columns import Hidden, SearchMemory, list_columns
from fastemf.model.ranking import rank_rows, smallest
from fastemf.model.screen import TILE_COLUMNS, Near, nothing_added
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.table_fit import OVER
from fastemf.solver.tables import STATISTICS, AxisLevels, Table, Tables


@pytest.fixture(autouse=True, scope="module")
def screens():
    """Few cells are ranked without a screen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.model.predictor.CELLS_PER_BLOCK", 0)
        yield


def knots_of(rng, scale):
    """Numbers that rise: one, a few, or more than a kernel takes at once; some nearly equal."""
    found = scale * rng.standard_normal(rng.choice([1, 2, 3, 8, 9, 19]))
    again = [np.nextafter(found, np.inf), found * (1 + 1e-8)]
    return np.unique(np.concatenate([found, *again[: rng.integers(0, 3)]]))


def tables_of(rng, over, scale=1.0, knots=1.0):
    """Tables over pairs of statistics; some of those over the product have the same knots."""
    shared, made = knots_of(rng, knots), []
    for pair in over:
        sides = tuple(
            knots_of(rng, knots if name == "product" else 1.0)
            if name != "product" or rng.random() < 0.5
            else shared
            for name in pair
        )
        made.append(Table(pair, sides, scale * rng.standard_normal([side.size for side in sides])))
    return Tables(tuple(made), 1.0)


def some_pairs(rng):
    """Pairs of statistics, of which any may come up, and the usual ones more often."""
    usual = [
        ("row level", "column level"),
        ("product", "column noise"),
        ("product", "row noise"),
        ("column level", "product"),
    ]
    every = [(one, other) for one in STATISTICS for other in STATISTICS]
    return [
        (usual if rng.random() < 0.7 else every)[rng.integers(4)] for _ in range(rng.integers(1, 4))
    ]


def model(
    rng, m, n, k, *, dtype=np.float64, whole=False, intercepts=True, tables=None, unseen=(), mu=0.5
):
    """A fit; one of whole numbers has many predictions that are equal."""

    def numbers(*shape):
        found = rng.integers(-2, 3, shape) if whole else rng.standard_normal(shape)
        return found.astype(dtype)

    rows, cols = (
        Axis(
            numbers(size, k),
            numbers(size) if intercepts else None,
            unseen=np.array(left_out, np.int64),
            noise=None if tables is None else AxisNoise(np.exp(numbers(size)), 1.0),
            levels=None if tables is None else AxisLevels(numbers(size).astype(np.float64), tables),
        )
        for size, left_out in ((m, ()), (n, unseen))
    )
    return fastemf.Factorization(
        rows=rows, cols=cols, omega=0.5, mu=mu if intercepts else 0.0, reg=1.0,
        reg_scaling="count", intercept_reg=1.0, scale=1.0, converged=True, history=(),
    )  # fmt: skip


def by_sorting(fit, n, largest, seen=None):
    """Every cell predicted alone, and sorted; of equal ones the first."""
    m, width = fit.shape
    values = fit.predict(*np.indices(fit.shape).reshape(2, -1)).reshape(m, width)
    keys = np.where(np.isfinite(values), -values if largest else values, np.inf)
    keys[:, fit.unseen_cols] = np.inf
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
    made = tables_of(rng, some_pairs(rng)) if tables and intercepts else None
    fit = model(rng, 7, 60, k, dtype=dtype, whole=whole, intercepts=intercepts, tables=made)
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

    def off(rows):
        def fill(_, out):
            out[:, :200] = exact[rows] + rng.choice([-0.1, 0.1], (rows.size, 200))

        return Near(np.full(rows.size, 0.1), TILE_COLUMNS, fill, nothing_added(exact.dtype))

    rows = np.arange(20)
    for largest in (False, True):
        found = rank_rows(fit.axes, fit._cells, rows, 8, largest=largest, seen=None, screen=off)
        expected = by_sorting(fit, 8, largest)
        np.testing.assert_array_equal(found.cols, expected[0])
        np.testing.assert_array_equal(found.values, expected[1])


EVERY_PAIR = [(one, other) for one in STATISTICS for other in STATISTICS]


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("over", EVERY_PAIR)
def test_ranks_with_every_kind_of_table(over, dtype, largest):
    rng = np.random.default_rng(EVERY_PAIR.index(over))
    fit = model(rng, 5, 40, 3, dtype=dtype, tables=tables_of(rng, [over]), unseen=[0, 7, 39])
    seen = rng.random(fit.shape) < 0.3
    order = "largest" if largest else "smallest"
    found = fit.rank(None, 6, order=order, seen=np.where(seen, 1.0, np.nan))
    expected = by_sorting(fit, 6, largest, seen)
    np.testing.assert_array_equal(found.cols, expected[0])
    np.testing.assert_array_equal(found.values, expected[1])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("pairs", [(), OVER[1:2], OVER])
def test_ranks_among_many_columns(pairs, dtype, whole):
    """As many as are searched in strips, and more than a kernel's slopes are kept for at once."""
    rng = np.random.default_rng(len(pairs))
    tables = tables_of(rng, pairs) if pairs else None
    fit = model(rng, 4, 1100, 3, dtype=dtype, whole=whole, tables=tables, unseen=[3])
    fit = replace(fit, cols=replace(fit.cols, factor=np.sort(fit.cols.factor, axis=0)))
    seen = rng.random(fit.shape) < 0.2
    seen[2, 2:] = True
    for n in (3, 12):
        found = fit.rank(None, n, order="largest", seen=np.where(seen, 1.0, np.nan))
        expected = by_sorting(fit, n, True, seen)
        np.testing.assert_array_equal(found.cols, expected[0])
        np.testing.assert_array_equal(found.values, expected[1])


def errors_of(fit):
    """How far the screen is off, and its margins; where sums leave the range, both are infinite."""
    m, n = fit.shape
    screened = fit._screen()(np.arange(m))
    room = SearchMemory.make((m, TILE_COLUMNS), n, n, fit.axes[0].factor.dtype)
    nothing = Hidden(np.empty(0, np.int64), None).of(np.arange(m), TILE_COLUMNS)
    list_columns(screened, nothing, n, 1.0, room)
    assert (room.listed.counts == n).all()  # all numbers
    margin, near = screened.margin, room.listed.near
    with np.errstate(over="ignore"):
        exact = fit.predict(*np.indices(fit.shape).reshape(2, -1)).reshape(fit.shape)
    off = np.abs(near.astype(np.float64) - exact).max(axis=1)
    return off, margin, exact


def test_margins_cover_what_products_round():
    for dtype in (np.float64, np.float32):
        fit = model(np.random.default_rng(1), 30, 300, 40, dtype=dtype)
        off, margin, exact = errors_of(fit)
        assert (off <= margin).all()
        assert (margin < 1e4 * np.finfo(dtype).eps * np.abs(exact).max()).all()


def test_margins_with_tables_are_those_of_rounding():
    evenly = np.linspace(-2, 2, 8)
    for dtype in (np.float64, np.float32):
        rng = np.random.default_rng(1)
        tables = Tables(
            tuple(Table(pair, (evenly, evenly), rng.standard_normal((8, 8))) for pair in OVER), 1.0
        )
        off, margin, exact = errors_of(model(rng, 20, 100, 10, dtype=dtype, tables=tables))
        assert (off <= margin).all()
        assert (margin < 1e5 * np.finfo(dtype).eps * np.abs(exact).max()).all()


# Interpreted kernels warn where sums leave the range; compiled ones do not.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@given(
    seeds,
    st.sampled_from([0, 1, 5, 30]),
    st.sampled_from([np.float64, np.float32]),
    st.tuples(*[st.sampled_from([1e-42, 1e-30, 1e-5, 1.0, 1e4, 1e20, 3e37])] * 4),
)
def test_margins_cover_what_tables_round(seed, k, dtype, scales):
    rng = np.random.default_rng(seed)
    of_factors, of_tables, of_knots, of_constant = (
        np.float64(scale) if dtype == np.float32 or rng.random() < 0.5 else scale**8.1
        for scale in scales
    )
    tables = tables_of(rng, some_pairs(rng), of_tables, of_knots)
    fit = model(rng, 4, 30, k, dtype=dtype, tables=tables, mu=float(of_constant))
    size = dtype(of_factors)
    rows, cols = (
        replace(axis, factor=scale * axis.factor, intercepts=size * axis.intercepts)
        for axis, scale in zip(fit.axes, (size, dtype(1)), strict=True)
    )
    fit = replace(fit, rows=rows, cols=cols)
    off, margin, exact = errors_of(fit)
    finite = np.isfinite(exact).all(axis=1)
    assert np.isinf(margin[~finite]).all()
    assert (off <= margin)[finite].all()
    expected = by_sorting(fit, 5, True)
    found = fit.rank(None, 5, order="largest")
    np.testing.assert_array_equal(found.cols, expected[0])
    np.testing.assert_array_equal(found.values, expected[1])


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


def same(found, expected):
    np.testing.assert_array_equal(found.cols, expected[0])
    np.testing.assert_array_equal(found.values, expected[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "width", [1, STRETCH - 1, STRETCH, STRETCH + 1, TILE_COLUMNS - 1, TILE_COLUMNS]
)
def test_the_best_are_found_wherever_they_are_in_a_tile(width, dtype):
    """As the first, the last and the only column of a tile, and across its boundaries."""
    for tiles in (0, 1, 2):
        n_cols = tiles * TILE_COLUMNS + width
        places = np.unique([0, width - 1, TILE_COLUMNS - 1, TILE_COLUMNS, n_cols // 2, n_cols - 1])
        places = places[places < n_cols]
        levels = np.zeros(n_cols, dtype)
        levels[places] = 1 + np.arange(places.size)
        fit = model(np.random.default_rng(width), 3, n_cols, 2, dtype=dtype)
        cols = replace(fit.cols, factor=1e-3 * fit.cols.factor.astype(dtype), intercepts=levels)
        fit = replace(fit, cols=cols)
        for n in (1, places.size, min(places.size + 3, n_cols)):
            same(fit.rank(None, n, order="largest"), by_sorting(fit, n, True))
            same(fit.rank(None, n, order="smallest"), by_sorting(fit, n, False))
        assert fit.rank(0, places.size, order="largest").cols.tolist() == places[::-1].tolist()


@pytest.mark.parametrize("n", [1, 10, TILE_COLUMNS - 1, TILE_COLUMNS + 1, 600, 700])
@pytest.mark.parametrize("tables", [False, True])
def test_as_many_as_several_tiles_have(n, tables):
    rng = np.random.default_rng(n)
    made = tables_of(rng, OVER) if tables else None
    fit = model(rng, 3, 700, 2, tables=made, unseen=[0, TILE_COLUMNS, 699])
    for largest in (False, True):
        found = fit.rank(None, n, order="largest" if largest else "smallest")
        same(found, by_sorting(fit, n, largest))


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ties_over_several_tiles_go_to_the_first_column(k, dtype):
    """More than there is room for in the first search, in some rows or in all."""
    rng = np.random.default_rng(k)
    fit = model(rng, 5, 1000, k, dtype=dtype, whole=True, unseen=[1])
    seen = np.where(rng.random(fit.shape) < 0.1, 1.0, np.nan)
    for n in (1, 7, 300):
        same(
            fit.rank(None, n, order="largest", seen=seen),
            by_sorting(fit, n, True, ~np.isnan(seen)),
        )
    level = replace(fit.cols, intercepts=np.zeros(1000, dtype), factor=0 * fit.cols.factor)
    equal = replace(fit, cols=replace(level, unseen=np.empty(0, np.int64)))
    assert (equal.rank(None, 4, order="smallest").cols == np.arange(4)).all()


def test_nothing_but_what_is_hidden_has_no_best_columns():
    fit = model(np.random.default_rng(0), 4, 600, 2, unseen=np.arange(600))
    found = fit.rank(None, 3, order="largest")
    assert (found.cols == -1).all()
    assert np.isnan(found.values).all()
    fit = model(np.random.default_rng(0), 4, 600, 2, unseen=np.arange(500))
    seen = np.full(fit.shape, np.nan)
    seen[1, 500:] = seen[2, 501:] = 1.0
    found = fit.rank(None, 3, order="largest", seen=seen)
    same(found, by_sorting(fit, 3, True, ~np.isnan(seen)))
    assert found.cols[1].tolist() == [-1, -1, -1]
    assert found.cols[2].tolist() == [500, -1, -1]


def test_unknown_rows_are_ranked_beside_known_ones():
    fit = model(np.random.default_rng(0), 6, 600, 2)
    rows = np.array([3, -1, 0, -1])
    found = rank_rows(
        fit.axes, fit._cells, rows, 5, largest=True, seen=None, screen=fit._screen()
    )  # fmt: skip
    alone = rank_rows(fit.axes, fit._cells, rows, 5, largest=True, seen=None)
    same(found, alone)


@pytest.mark.parametrize("lost", [[0], [1, 3], [0, 1, 2, 3]])
def test_rows_of_any_margin_are_ranked_by_exact_predictions(lost):
    rng = np.random.default_rng(0)
    fit = model(rng, 4, 700, 2, tables=tables_of(rng, OVER))
    screen = fit._screen()

    def off(rows):
        near = screen(rows)

        def fill(tile, out):
            near.fill(tile, out)
            out[np.isin(rows, lost)] = 0.0

        margin = np.where(np.isin(rows, lost), np.inf, near.margin)
        return near._replace(margin=margin, fill=fill)

    for largest in (False, True):
        found = rank_rows(
            fit.axes, fit._cells, np.arange(4), 5, largest=largest, seen=None, screen=off
        )
        same(found, by_sorting(fit, 5, largest))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("over", EVERY_PAIR)
def test_what_tables_add_is_within_their_bounds(over, largest):
    """Tables far above or below the product: a bound that is too narrow would hide the best."""
    for level in (-1e3, 0.0, 1e3):
        rng = np.random.default_rng(EVERY_PAIR.index(over))
        made = tables_of(rng, [over], 30.0)
        table = replace(made.each[0], values=made.each[0].values + level)
        fit = model(rng, 3, 800, 2, dtype=np.float32, tables=replace(made, each=(table,)))
        same(fit.rank(None, 9, order="largest" if largest else "smallest"),
             by_sorting(fit, 9, largest))  # fmt: skip


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_ranks_do_not_depend_on_the_number_of_threads(n_threads, monkeypatch):
    fit = model(np.random.default_rng(0), 40, 300, 3, dtype=np.float32)
    expected = by_sorting(fit, 4, True)
    monkeypatch.setattr("fastemf.model.ranking.TILE_BYTES", 7 * 4 * TILE_COLUMNS)
    monkeypatch.setattr("fastemf.model.ranking.count_threads", lambda _: n_threads)
    same(fit.rank(None, 4, order="largest"), expected)


def test_rows_whose_squares_vanish_are_ranked():
    rng = np.random.default_rng(0)
    fit = model(rng, 40, 60, 5, intercepts=False)
    near = 1.0 + 1e-15 * rng.integers(0, 4, (60, 5))
    fit = replace(fit, rows=Axis(1e-165 * fit.X), cols=Axis(near))
    cols, _ = fit.rank(None, 5, order="smallest")
    np.testing.assert_array_equal(cols, by_sorting(fit, 5, False)[0])


@pytest.mark.parametrize("n_keys", [1, STRETCH, 5 * STRETCH + 7])
def test_smallest_agrees_with_sorting(n_keys):
    rng = np.random.default_rng(n_keys)
    keys = rng.integers(-20, 20, (6, n_keys)).astype(np.float64)
    keys[rng.random(keys.shape) < 0.3] = np.nan
    keys[rng.random(keys.shape) < 0.1] = -np.inf
    keys[rng.random(keys.shape) < 0.1] = np.inf
    keys[5] = np.nan
    for n in (1, 3, n_keys, n_keys + 2):
        finite = np.where(np.isfinite(keys), keys, np.inf)
        order = np.argsort(finite, axis=1, kind="stable")
        expected = np.where(np.isfinite(np.take_along_axis(keys, order, 1)), order, -1)
        expected = np.pad(expected, ((0, 0), (0, 2)), constant_values=-1)[:, :n]
        np.testing.assert_array_equal(smallest(keys, n), expected)


def test_smallest_leaves_out_what_is_not_finite():
    keys = np.array([[3.0, np.nan, 1.0, np.inf, 1.0], [np.nan, -np.inf, np.nan, np.inf, 2.0]])
    assert smallest(keys, 3).tolist() == [[2, 4, 0], [4, -1, -1]]
