"""Ranking: screened search against sorting the predictions of all cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import fastemf
from fastemf.kernels.vector_width import STRETCH
from fastemf.models.entities import Entities
from fastemf.models.ranking import _Excluded, _Search, rank_rows
from fastemf.models.topk_screen import TILE_COLUMNS, ApproximateRows, no_corrections
from fastemf.tuning.correction_fit import OVER
from fastemf.tuning.corrections import STATISTICS, Correction, Corrections, EntityEffects
from fastemf.tuning.noise import EntityNoise

EVERY_PAIR = [(one, other) for one in STATISTICS for other in STATISTICS]


@pytest.fixture(autouse=True, scope="module")
def screens():
    """Screen few cells too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.models.search.CELLS_PER_BLOCK", 0)
        yield


def knots_of(rng, scale):
    """Return increasing knots: one, a few, or more than a SIMD vector; some nearly equal."""
    found = scale * rng.standard_normal(rng.choice([1, 2, 3, 8, 9, 19]))
    again = [np.nextafter(found, np.inf), found * (1 + 1e-8)]
    return np.unique(np.concatenate([found, *again[: rng.integers(0, 3)]]))


def tables_of(rng, over, scale=1.0, knots=1.0):
    """Return tables over pairs of statistics; some tables over the product share knots."""
    shared, made = knots_of(rng, knots), []
    for pair in over:
        sides = tuple(
            knots_of(rng, knots if name == "product" else 1.0)
            if name != "product" or rng.random() < 0.5
            else shared
            for name in pair
        )
        made.append(
            Correction(pair, sides, scale * rng.standard_normal([side.size for side in sides]))
        )
    return Corrections(tuple(made), 1.0)


def some_pairs(rng):
    """Draw pairs of statistics, the usual ones more often."""
    usual = [
        ("row effect", "column effect"), ("product", "column noise"), ("product", "row noise"),
        ("column effect", "product"),
    ]  # fmt: skip
    number = rng.integers(1, 4)
    return [(usual if rng.random() < 0.7 else EVERY_PAIR)[rng.integers(4)] for _ in range(number)]


def random_fit(
    rng, m, n, k, *, dtype=np.float64, whole=False, intercepts=True, tables=None, unseen=(), mu=0.5
):
    """Return a fit with random numbers; integers (`whole`) make ties."""

    def numbers(*shape):
        found = rng.integers(-2, 3, shape) if whole else rng.standard_normal(shape)
        return found.astype(dtype)

    def side(size, left_out):
        axis = Entities(numbers(size, k), numbers(size) if intercepts else None,
                        unseen=np.array(left_out, np.int64))  # fmt: skip
        if tables is None:
            return axis
        noise = EntityNoise(np.exp(numbers(size)), 1.0)
        effects = EntityEffects(numbers(size).astype(np.float64), tables)
        return replace(axis, noise=noise, effects=effects)

    rows, cols = side(m, ()), side(n, unseen)
    return fastemf.Factorization(
        rows=rows, cols=cols, omega=0.5, mu=mu if intercepts else 0.0, reg=0.0,
        reg_scaling="count", intercept_reg=0.0, scale=1.0, converged=True, history=(),
    )  # fmt: skip


def by_sorting(fit, n, largest, seen=None):
    """Rank by a stable sort of the predictions of all cells."""
    values = fit.predict(*np.indices(fit.shape))
    keys = np.where(np.isfinite(values), -values if largest else values, np.inf)
    keys[:, fit.unseen_cols] = np.inf
    if fit.row_intercepts is None:
        keys[fit.unseen_rows] = np.inf
    if seen is not None:
        keys[seen] = np.inf
    order = np.argsort(keys, axis=1, kind="stable")[:, :n]
    listed = np.isfinite(np.take_along_axis(keys, order, axis=1))
    best = np.take_along_axis(values, order, axis=1)
    return np.where(listed, order, -1), np.where(listed, best, np.nan)


def screened(fit, rows, n, largest, screen):
    """Rank rows with a given screen."""
    cells = fit._predict_cells
    return rank_rows(fit.axes, cells, rows, n, largest=largest, seen=None, screen=screen)


def same(found, expected):
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)


def assert_sorted(fit, n, largest=True, seen=None):
    """Check that the ranking of all rows is a stable sort, with a screen and without one."""
    R = None if seen is None or not seen.any() else np.where(seen, 1.5, np.nan)
    order, expected = "largest" if largest else "smallest", by_sorting(fit, n, largest, seen)
    found = fit.rank(None, n, order=order, seen=R)
    assert found.values.dtype == fit.X.dtype
    same(found, expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.models.search.CELLS_PER_BLOCK", np.inf)
        same(fit.rank(None, n, order=order, seen=R), expected)
    return found


@given(
    seeds, st.sampled_from([1, 7, 60]), st.sampled_from([0, 1, 3, 17]),
    st.sampled_from([1, 2, 5, 30, 60, 10**12]), st.sampled_from([np.float64, np.float32]),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.4, 1.0]),
)  # fmt: skip
def test_ranking_equals_sorting(
    seed, width, k, n, dtype, whole, intercepts, tables, largest, share
):
    rng = np.random.default_rng(seed)
    made = tables_of(rng, some_pairs(rng)) if tables and intercepts else None
    fit = random_fit(rng, 7, width, k, dtype=dtype, whole=whole, intercepts=intercepts,
                     tables=made, unseen=np.flatnonzero(rng.random(width) < 0.2))  # fmt: skip
    fit = replace(fit, rows=replace(fit.rows, unseen=np.flatnonzero(rng.random(7) < 0.2)))
    assert_sorted(fit, n, largest, rng.random(fit.shape) < share)


def test_errors_within_the_margin_do_not_change_the_ranking():
    rng = np.random.default_rng(0)
    fit = random_fit(rng, 20, 200, 4)
    exact = fit.predict(*np.indices(fit.shape))

    def off(rows):
        def fill(_, out):
            out[:, :200] = exact[rows] + rng.choice([-0.1, 0.1], (rows.size, 200))

        margin = np.full(rows.size, 0.1)
        return ApproximateRows(margin, TILE_COLUMNS, fill, no_corrections(exact.dtype))

    for largest in (False, True):
        same(screened(fit, np.arange(20), 8, largest, off), by_sorting(fit, 8, largest))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("pairs", [(), OVER[1:2], OVER])
def test_ranking_of_many_columns(pairs, dtype, whole):
    """Several tiles, and more slopes than the kernel buffers."""
    rng = np.random.default_rng(len(pairs))
    tables = tables_of(rng, pairs) if pairs else None
    fit = random_fit(rng, 4, 1100, 3, dtype=dtype, whole=whole, tables=tables, unseen=[3])
    fit = replace(fit, cols=replace(fit.cols, factor=np.sort(fit.cols.factor, axis=0)))
    seen = rng.random(fit.shape) < 0.2
    seen[1], seen[2, 2:] = True, True  # rows without candidates, and with few
    for n in (3, 12):
        assert_sorted(fit, n, seen=seen)


def errors_of(fit):
    """Return errors and margins of the screen, and exact predictions; both infinite on overflow."""
    m, n = fit.shape
    rows, screened = np.arange(m), fit._make_screen()(np.arange(m))
    best = np.empty((m, n), np.int64), np.empty((m, n), fit.X.dtype)
    search = _Search(rows, n, _Excluded(np.empty(0, np.int64), None), 1.0, best)
    candidates = search.find_candidates(rows, screened, search._allocate(m, TILE_COLUMNS, n))
    assert (candidates.counts == n).all()
    margin, near = screened.margin, candidates.near
    with np.errstate(over="ignore"):
        exact = fit.predict(*np.indices(fit.shape))
    off = np.abs(near.astype(np.float64) - exact).max(axis=1)
    return off, margin, exact


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("with_tables", [False, True])
def test_margins_are_small_and_bound_the_rounding(with_tables, dtype):
    rng, evenly, tables = np.random.default_rng(1), np.linspace(-2, 2, 8), None
    if with_tables:
        each = [Correction(pair, (evenly, evenly), rng.standard_normal((8, 8))) for pair in OVER]
        tables = Corrections(tuple(each), 1.0)
    fit = random_fit(rng, 30, 300, 10 if with_tables else 40, dtype=dtype, tables=tables)
    off, margin, exact = errors_of(fit)
    assert (off <= margin).all()
    most = (1e5 if with_tables else 1e4) * np.finfo(dtype).eps * np.abs(exact).max()
    assert (margin < most).all()


# Interpreted kernels warn where sums leave the range; compiled ones do not.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@given(
    seeds,
    st.sampled_from([0, 1, 5, 30]),
    st.sampled_from([np.float64, np.float32]),
    st.tuples(*[st.sampled_from([1e-42, 1e-30, 1e-5, 1.0, 1e4, 1e20, 3e37])] * 4),
)
def test_margins_bound_the_rounding_of_tables(seed, k, dtype, scales):
    rng = np.random.default_rng(seed)
    of_factors, of_tables, of_knots, of_constant = (
        np.float64(scale) if dtype == np.float32 or rng.random() < 0.5 else scale**8.1
        for scale in scales
    )
    tables = tables_of(rng, some_pairs(rng), of_tables, of_knots)
    fit = random_fit(rng, 4, 30, k, dtype=dtype, tables=tables, mu=float(of_constant))
    size = dtype(of_factors)
    rows = replace(fit.rows, factor=size * fit.X, intercepts=size * fit.row_intercepts)
    cols = replace(fit.cols, intercepts=size * fit.col_intercepts)
    fit = replace(fit, rows=rows, cols=cols)
    off, margin, exact = errors_of(fit)
    finite = np.isfinite(exact).all(axis=1)
    assert np.isinf(margin[~finite]).all()
    assert (off <= margin)[finite].all()
    assert_sorted(fit, 5)


def test_tables_much_larger_than_the_product_are_ranked():
    knots = np.array([0.0, 1.0]), np.array([-1.0, 1.0])
    table = Correction(("row effect", "column effect"), knots, np.full((2, 2), 6000.0))
    rng, tables = np.random.default_rng(0), Corrections((table,), 1.0)
    fit = random_fit(rng, 400, 300, 3, dtype=np.float32, tables=tables)
    assert_sorted(fit, 10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "width", [1, STRETCH - 1, STRETCH, STRETCH + 1, TILE_COLUMNS - 1, TILE_COLUMNS]
)
def test_the_best_are_found_anywhere_in_a_tile(width, dtype):
    """First, last and only columns of a tile, and both sides of its boundaries."""
    for tiles in (0, 1, 2):
        n_cols = tiles * TILE_COLUMNS + width
        places = np.unique([0, width - 1, TILE_COLUMNS - 1, TILE_COLUMNS, n_cols // 2, n_cols - 1])
        places = places[places < n_cols]
        levels = np.zeros(n_cols, dtype)
        levels[places] = 1 + np.arange(places.size)
        fit = random_fit(np.random.default_rng(width), 3, n_cols, 2, dtype=dtype)
        cols = replace(fit.cols, factor=1e-3 * fit.cols.factor.astype(dtype), intercepts=levels)
        fit = replace(fit, cols=cols)
        for n in (1, places.size, min(places.size + 3, n_cols)):
            assert_sorted(fit, n)
            assert_sorted(fit, n, largest=False)
        assert fit.rank(0, places.size, order="largest").cols.tolist() == places[::-1].tolist()


@pytest.mark.parametrize("n", [1, 10, TILE_COLUMNS - 1, TILE_COLUMNS + 1, 600, 700])
@pytest.mark.parametrize("tables", [False, True])
def test_n_may_exceed_a_tile(n, tables):
    rng = np.random.default_rng(n)
    made = tables_of(rng, OVER) if tables else None
    fit = random_fit(rng, 3, 700, 2, tables=made, unseen=[0, TILE_COLUMNS, 699])
    for largest in (False, True):
        assert_sorted(fit, n, largest)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ties_over_several_tiles_go_to_the_first_column(k, dtype):
    """More candidates than the memory of the first pass, in some rows or in all."""
    rng = np.random.default_rng(k)
    fit = random_fit(rng, 5, 1000, k, dtype=dtype, whole=True, unseen=[1])
    seen = rng.random(fit.shape) < 0.1
    for n in (1, 7, 300):
        assert_sorted(fit, n, seen=seen)
    level = replace(fit.cols, intercepts=np.zeros(1000, dtype), factor=0 * fit.cols.factor)
    equal = replace(fit, cols=replace(level, unseen=np.empty(0, np.int64)))
    assert (equal.rank(None, 4, order="smallest").cols == np.arange(4)).all()


@pytest.mark.parametrize("lost", [[0], [1, 3], [0, 1, 2, 3]])
def test_rows_with_infinite_margin_are_ranked_exactly(lost):
    rng = np.random.default_rng(0)
    fit = random_fit(rng, 4, 700, 2, tables=tables_of(rng, OVER))
    screen = fit._make_screen()

    def off(rows):
        near = screen(rows)

        def fill(tile, out):
            near.fill(tile, out)
            out[np.isin(rows, lost)] = 0.0

        margin = np.where(np.isin(rows, lost), np.inf, near.margin)
        return near._replace(margin=margin, fill=fill)

    for largest in (False, True):
        same(screened(fit, np.arange(4), 5, largest, off), by_sorting(fit, 5, largest))
    rows = np.array([3, -1, 0, -1])  # unknown rows among known ones
    same(screened(fit, rows, 5, True, off), screened(fit, rows, 5, True, None))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("over", EVERY_PAIR)
def test_ranking_with_every_kind_of_table(over, dtype):
    """Tables much larger or smaller than the product: a narrow bound would miss the best."""
    for scale, level, share in ((1.0, 0.0, 0.3), (30.0, -1e3, 0), (30.0, 0.0, 0), (30.0, 1e3, 0)):
        rng = np.random.default_rng(EVERY_PAIR.index(over))
        made = tables_of(rng, [over], scale)
        table = replace(made.each[0], values=made.each[0].values + level)
        made, unseen = replace(made, each=(table,)), [0, 7, 799] if share else []
        fit = random_fit(rng, 3, 800, 2, dtype=dtype, tables=made, unseen=unseen)
        for largest in (False, True):
            assert_sorted(fit, 9, largest, rng.random(fit.shape) < share)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_ranking_does_not_depend_on_threads(n_threads, monkeypatch):
    fit = random_fit(np.random.default_rng(0), 40, 300, 3, dtype=np.float32)
    monkeypatch.setattr("fastemf.models.ranking.TILE_BYTES", 7 * 4 * TILE_COLUMNS)
    monkeypatch.setattr("fastemf.models.ranking.count_threads", lambda _: n_threads)
    assert_sorted(fit, 4)


def test_rows_with_tiny_factors_are_ranked():
    rng = np.random.default_rng(0)
    fit = random_fit(rng, 40, 60, 5, intercepts=False)
    near = 1.0 + 1e-15 * rng.integers(0, 4, (60, 5))
    fit = replace(fit, rows=Entities(1e-165 * fit.X), cols=Entities(near))
    assert_sorted(fit, 5, largest=False)
