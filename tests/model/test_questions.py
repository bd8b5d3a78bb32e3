"""Questions to a fit: best columns, similar rows, bounded predictions, rows described badly."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import levels, seeds

import fastemf
from fastemf.inputs.labels import Labels
from fastemf.model import ranking, summary
from fastemf.observations.memory import observe
from fastemf.solver.axis import Axis

NAN, INF = float("nan"), float("inf")


def made(m, n, k=2, *, intercepts=False, dtype=np.float64, seed=0, integer=False, omega=0.3):
    """A fit with drawn factors; integer ones make ties, and sums without rounding."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        numbers = rng.integers(-2, 3, shape) if integer else rng.standard_normal(shape)
        return numbers.astype(dtype)

    X, Y = draw(m, k), draw(n, k)
    return fastemf.Factorization(
        rows=Axis(X, draw(m) if intercepts else None),
        cols=Axis(Y, draw(n) if intercepts else None),
        omega=omega,
        mu=3.0 if intercepts else 0.0,
        reg=0.0,
        reg_scaling="count",
        intercept_reg=0.0,
        scale=1.0,
        converged=True,
        history=(),
    )


def without(fit, rows=(), cols=()):
    """The fit as if some rows and columns had had no data."""
    axes = []
    for axis, unseen in zip(fit.axes, (rows, cols), strict=True):
        unseen = np.array(unseen, np.int64)
        extended = axis.extended().copy()
        extended[unseen] = 0
        axes.append(Axis.split(extended, fit.k, axis.labels, unseen))
    return replace(fit, rows=axes[0], cols=axes[1])


@pytest.fixture(params=[False, True], ids=["plain", "intercepts"])
def fit(request):
    return made(7, 9, intercepts=request.param)


def refuses(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts))


# --- ranking --------------------------------------------------------------------------------


def ranked_by_hand(fit, row, n, order, seen):
    """Sorted by value, then column, cell by cell."""
    dense = fit.to_dense()
    cells = [
        (dense[row, j] if order == "smallest" else -dense[row, j], j)
        for j in range(fit.shape[1])
        if not seen[row, j] and j not in fit.unseen_cols
    ]
    if row in fit.unseen_rows and fit.row_intercepts is None:
        cells = []
    cols = [j for _, j in sorted(cells)][:n]
    padding = n - len(cols)
    return cols + [-1] * padding, [dense[row, j] for j in cols] + [NAN] * padding


@given(
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(["smallest", "largest"]),
    st.sampled_from([0.0, 0.4, 1.0]),
    seeds,
)
def test_ranking_is_sorting_by_value_then_column(m, cols, n, both, dtype, order, share, seed):
    rng = np.random.default_rng(seed)
    fit = made(m, cols, intercepts=both, dtype=dtype, seed=seed, integer=True)
    fit = without(fit, np.flatnonzero(rng.random(m) < 0.2), np.flatnonzero(rng.random(cols) < 0.2))
    seen = rng.random((m, cols)) < share
    R = np.where(seen, 1.5, NAN) if seen.any() else None
    got = fit.rank(None, n, order=order, seen=R)
    n = min(n, cols)
    assert got.cols.shape == got.values.shape == (m, n)
    assert got.values.dtype == dtype
    for row in range(m):
        best, values = ranked_by_hand(fit, row, n, order, seen)
        assert got.cols[row].tolist() == best
        np.testing.assert_array_equal(got.values[row], values)


@pytest.mark.parametrize("order", ["smallest", "largest"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_ranks_the_same_alone_among_others_and_in_blocks(fit, order, dtype, monkeypatch):
    fit = made(11, 23, 5, intercepts=fit.row_intercepts is not None, dtype=dtype)
    seen = np.where(np.random.default_rng(1).random((11, 23)) < 0.3, 1.0, NAN)
    whole = fit.rank(None, 4, order=order, seen=seen)
    monkeypatch.setattr(ranking, "CELLS_PER_BLOCK", 3 * 23 + 1)
    in_blocks = fit.rank(None, 4, order=order, seen=seen)
    some = fit.rank([8, 2, 8], 4, order=order, seen=seen)
    for part in (0, 1):
        np.testing.assert_array_equal(in_blocks[part], whole[part])
        np.testing.assert_array_equal(some[part], whole[part][[8, 2, 8]])
    for row in range(11):
        cols, values = fit.rank(row, 4, order=order, seen=seen)
        assert cols.shape == values.shape == (4,)
        np.testing.assert_array_equal(cols, whole.cols[row])
        np.testing.assert_array_equal(values, whole.values[row])
        np.testing.assert_array_equal(values, fit.predict(row, cols))


def test_a_row_of_more_cells_than_a_block(fit, monkeypatch):
    whole = fit.rank(None, 3, order="largest")
    monkeypatch.setattr(ranking, "CELLS_PER_BLOCK", 4)
    np.testing.assert_array_equal(fit.rank(None, 3, order="largest").cols, whole.cols)
    assert fit.rank([], 3, order="largest").cols.shape == (0, 3)


def test_what_is_seen_in_every_form(fit):
    rows, cols = [0, 0, 3, 3, 6], [1, 8, 0, 0, 4]  # one cell twice, one value zero
    values = [1.0, 0.0, 2.0, 5.0, 3.0]
    dense = np.full(fit.shape, NAN)
    dense[rows, cols] = values
    coo = sp.coo_array((values, (rows, cols)), shape=fit.shape)
    forms = {
        "triplets": (rows, cols, values),
        "dense": dense,
        "masked": np.ma.masked_invalid(dense),
        "coo": coo,
        "csr": coo.tocsr(),
        "csc": coo.tocsc(),
        "lil": sp.csr_array((np.ones(4), ([0, 0, 3, 6], [1, 8, 0, 4])), shape=fit.shape).tolil(),
        "flags": coo.tocsr().astype(bool),
        "observations": observe((rows, cols, values), shape=fit.shape),
    }
    seen = ~np.isnan(dense)
    for name, R in forms.items():
        got = fit.rank(None, 9, order="smallest", seen=R)
        for row in range(7):
            assert got.cols[row].tolist() == ranked_by_hand(fit, row, 9, "smallest", seen)[0], name


def test_rows_without_data_rank_by_the_columns_intercepts_or_not_at_all():
    plain = without(made(4, 6), rows=[2], cols=[1])
    assert plain.rank(2, 2, order="smallest").cols.tolist() == [-1, -1]
    both = without(made(4, 6, intercepts=True), rows=[2], cols=[1])
    expected = [j for j in np.argsort(both.col_intercepts) if j != 1]
    assert both.rank(2, 5, order="smallest").cols.tolist() == expected
    assert 1 not in both.rank(None, 6, order="largest").cols


def test_bounds_leave_the_order_to_the_model(fit):
    free = fit.rank(None, 9, order="smallest")
    held = fit.rank(None, 9, order="smallest", clip=(1e6, None))
    np.testing.assert_array_equal(held.cols, free.cols)
    assert (held.values == 1e6).all()


BAD_RANKS = [
    ({"row": 7}, IndexError, "rows must be below 7", 7),
    ({"row": -1}, IndexError, "rows must not be negative", -1),
    ({"row": [0, 9]}, IndexError, "rows must be below 7", 9),
    ({"row": 1.0}, TypeError, "rows must hold integers", "float64"),
    ({"row": NAN}, TypeError, "rows must hold integers", "float64"),
    ({"row": [[0, 1]]}, ValueError, "row must be one row, a one-dimensional", (1, 2)),
    ({"n": 0}, ValueError, "n must be at least 1", 0),
    ({"n": 2.0}, TypeError, "n must be an integer", 2.0),
    ({"n": None}, TypeError, "n must be an integer", None),
    ({"order": "smalest"}, ValueError, "order must be one of 'smallest', 'largest'", "'smalest'"),
    ({"order": None}, ValueError, "order must be one of", None),
    ({"seen": np.ones((4, 9))}, ValueError, "seen is", "the fit's shape (7, 9)", (4, 9)),
    ({"seen": np.ones((9, 7))}, ValueError, "seen is", "the fit's shape (7, 9)", (9, 7)),
    ({"seen": ([7], [8], [1.0])}, IndexError, "seen is", "rows must be below 7", 7),
    ({"seen": np.ones((7, 9), bool)}, TypeError, "seen must be the data", "mask", "bool"),
    ({"seen": [["a"]]}, TypeError, "seen is", "must hold real numbers"),
    ({"seen": sp.csr_array((7, 9))}, ValueError, "seen is", "at least one observation"),
    ({"clip": (3, 1)}, ValueError, "clip must be (low, high)", "(3, 1)"),
]


@pytest.mark.parametrize(("options", "error", "parts"), [(o, e, p) for o, e, *p in BAD_RANKS])
def test_bad_ranks(options, error, parts, fit):
    with refuses(error, *parts):
        fit.rank(**{"row": 0, "n": 3, "order": "smallest", **options})


def test_the_order_has_no_default(fit):
    with pytest.raises(TypeError, match="order"):
        fit.rank(0, 3)


# --- similarity -----------------------------------------------------------------------------


def distances_by_hand(dense, item):
    return [
        sum((dense[item, j] - dense[other, j]) ** 2 for j in range(dense.shape[1])) ** 0.5
        / dense.shape[1] ** 0.5
        for other in range(dense.shape[0])
    ]


@given(
    st.integers(2, 7),
    st.integers(1, 7),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    seeds,
)
def test_distances_are_those_of_the_dense_rows(m, cols, k, both, dtype, seed):
    fit = made(m, cols, k, intercepts=both, dtype=dtype, seed=seed)
    rows, columns = (Axis.split(axis.extended().astype(float), k) for axis in fit.axes)
    wide = replace(fit, rows=rows, cols=columns)
    others, distances = fit.similar_rows(m // 2, m - 1)
    assert m // 2 not in others
    assert sorted(others.tolist()) == [i for i in range(m) if i != m // 2]
    assert distances.dtype == np.float64
    assert (np.diff(distances) >= 0).all()
    expected = np.array(distances_by_hand(wide.to_dense(), m // 2))[others]
    np.testing.assert_allclose(distances, expected, atol=1e-12)


def test_similarity_does_not_depend_on_the_basis(fit):
    G = np.array([[3.0, 1.0], [-2.0, 0.01]])
    rows, cols, mu = Axis(fit.X @ G), Axis(fit.Y @ np.linalg.inv(G).T), fit.mu
    if fit.row_intercepts is not None:  # a level may sit on either side, too
        rows = replace(rows, intercepts=fit.row_intercepts + 5)
        cols = replace(cols, intercepts=fit.col_intercepts - 2)
        mu -= 3
    turned = replace(fit, rows=rows, cols=cols, mu=mu)
    np.testing.assert_allclose(turned.to_dense(), fit.to_dense(), atol=1e-12)
    for ask, size in (("similar_rows", 7), ("similar_cols", 9)):
        for item in range(size):
            here, there = (getattr(f, ask)(item, size - 1) for f in (fit, turned))
            np.testing.assert_array_equal(there.others, here.others)
            np.testing.assert_allclose(there.distances, here.distances, atol=1e-12)


@pytest.mark.parametrize("exponent", [-300, 300])
def test_distances_follow_the_unit(fit, exponent):
    # Their squares would overflow or vanish.
    root = 2.0**exponent
    rows, cols = (
        replace(
            axis,
            factor=root * axis.factor,
            intercepts=None if axis.intercepts is None else root**2 * axis.intercepts,
        )
        for axis in fit.axes
    )
    scaled = replace(fit, rows=rows, cols=cols, mu=root**2 * fit.mu)
    here, there = (f.similar_rows(0, 3) for f in (fit, scaled))
    np.testing.assert_array_equal(there.others, here.others)
    np.testing.assert_allclose(there.distances / root**2, here.distances, rtol=1e-9)


def test_similar_columns_are_similar_rows_of_the_transpose(fit):
    turned = replace(fit, rows=fit.cols, cols=fit.rows)
    for ours, theirs in zip(fit.similar_cols(4, 8), turned.similar_rows(4, 8), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_equal_rows_are_at_no_distance_and_in_order(fit):
    twins = replace(fit, rows=Axis.split(fit.rows.extended()[[0, 1, 0, 0, 1]], fit.k))
    got = twins.similar_rows(2, 3)
    assert got.others.tolist() == [0, 3, 1]
    assert got.distances[:2].tolist() == [0.0, 0.0]


def test_rows_without_data_resemble_none(fit):
    bare = without(fit, rows=[1, 5], cols=[3])
    assert set(bare.similar_rows(0, 9).others.tolist()) == {2, 3, 4, 6, -1}
    assert np.isnan(bare.similar_rows(0, 7).distances).tolist() == [False] * 4 + [True] * 3
    assert bare.similar_rows(5, 2).others.tolist() == [-1, -1]
    assert np.isnan(bare.similar_cols(3, 2).distances).all()


@pytest.mark.parametrize("n", [9, 10, 10**12])
def test_no_more_are_listed_than_there_are(fit, n):
    for order in ("smallest", "largest"):
        asked, all_of_them = (fit.rank(None, many, order=order) for many in (n, 9))
        for ours, theirs in zip(asked, all_of_them, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.shape == (7, 9)
    assert fit.similar_rows(0, n).others.tolist() == [*fit.similar_rows(0, 6).others, -1]
    assert fit.similar_cols(0, n).others.tolist() == [*fit.similar_cols(0, 8).others, -1]


def test_bad_questions_about_similarity(fit):
    with refuses(IndexError, "rows must be below 7", 7):
        fit.similar_rows(7, 1)
    with refuses(IndexError, "cols must be below 9", 9):
        fit.similar_cols(9, 1)
    with refuses(TypeError, "cols must hold integers", "float64"):
        fit.similar_cols(0.5, 1)
    with refuses(ValueError, "row must be a single one", "(2,)"):
        fit.similar_rows([0, 1], 1)
    with refuses(ValueError, "n must be at least 1", 0):
        fit.similar_rows(0, 0)


# --- bounded predictions --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [(0, None), (None, 0.5), (-0.25, 0.5), (1, 1), (None, None)])
def test_predictions_within_bounds(clip, dtype, fit):
    fit = made(7, 9, intercepts=fit.row_intercepts is not None, dtype=dtype)
    low, high = (-INF if clip[0] is None else clip[0]), (INF if clip[1] is None else clip[1])
    i, j = np.indices(fit.shape)
    for free, held in (
        (fit.predict(i, j), fit.predict(i, j, clip=clip)),
        (fit.predict_block([4, 2]), fit.predict_block([4, 2], clip=clip)),
        (fit.to_dense(), fit.to_dense(clip=clip)),
        (
            fit.rank(None, 9, order="largest").values,
            fit.rank(None, 9, order="largest", clip=clip).values,
        ),
    ):
        expected = [dtype(min(max(value, low), high)) for value in free.ravel()]
        np.testing.assert_array_equal(held.ravel(), expected)
        assert held.dtype == dtype
    assert fit.predict(0, 0, clip=clip).shape == ()


def test_nan_is_within_any_bounds(fit):
    bare = without(fit, rows=[1])
    assert np.isnan(bare.predict([1, 0], 0, unseen="nan", clip=(0, 1))).tolist() == [True, False]


BAD_BOUNDS = [
    ((3, 1), ValueError, "clip must be (low, high) with low <= high", "(3, 1)"),
    ((NAN, 1), ValueError, "clip[0] must be finite", "nan"),
    ((0, INF), ValueError, "clip[1] must be finite", "or None", "inf"),
    ((0, 1e200), ValueError, "clip[1] must be finite in float32", "1e+200"),
    (0, ValueError, "clip must be (low, high)", "0"),
    ((0, 1, 2), ValueError, "clip must be (low, high)", "(0, 1, 2)"),
    (("0", None), TypeError, "clip[0] must be a number or None", "'0'"),
    ((None, True), TypeError, "clip[1] must be a number or None", "True"),
]


@pytest.mark.parametrize(("clip", "error", "parts"), [(c, e, p) for c, e, *p in BAD_BOUNDS])
def test_bad_bounds(clip, error, parts):
    fit = made(3, 4, dtype=np.float32)
    for ask in (
        lambda: fit.predict(0, 0, clip=clip),
        lambda: fit.predict_block(0, clip=clip),
        lambda: fit.to_dense(clip=clip),
        lambda: fit.rank(0, 1, order="largest", clip=clip),
    ):
        with refuses(error, *parts):
            ask()


# --- rows described badly -------------------------------------------------------------------


def summary_by_hand(fit, rows, cols, b, v, axis):
    dense = fit.to_dense().astype(float)
    out = {name: [] for name in ("observations", "weight", "mean", "rms", "loss", "w_eff")}
    for group in range(fit.shape[axis]):
        mine = [e for e in range(len(b)) if (rows, cols)[axis][e] == group]
        r = [b[e] - dense[rows[e], cols[e]] for e in mine]
        mass = sum(v[e] for e in mine)
        below = sum(-v[e] * x for e, x in zip(mine, r, strict=True) if x < 0)
        size = sum(v[e] * abs(x) for e, x in zip(mine, r, strict=True))
        square = sum(v[e] * x**2 for e, x in zip(mine, r, strict=True))
        loss = sum(
            v[e] * (fit.omega if x >= 0 else 1 - fit.omega) * x**2
            for e, x in zip(mine, r, strict=True)
        )
        out["observations"].append(len(mine))
        out["weight"].append(mass)
        out["mean"].append(sum(v[e] * b[e] for e in mine) / mass if mine else NAN)
        out["rms"].append((square / mass) ** 0.5 if mine else NAN)
        out["loss"].append(loss / mass if mine else NAN)
        out["w_eff"].append(below / size if size > 0 else NAN)
    return out


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    levels,
    st.sampled_from([0, 1]),
    st.booleans(),
    seeds,
)
def test_summary_entry_by_entry(m, n, size, both, dtype, omega, axis, weighted, seed):
    rng = np.random.default_rng(seed)
    fit = made(m, n, intercepts=both, dtype=dtype, seed=seed, integer=True, omega=omega)
    rows, cols = rng.integers(0, m, size), rng.integers(0, n, size)
    b = rng.integers(1, 6, size).astype(dtype)
    v = rng.integers(1, 4, size) if weighted else None
    got = fit.summary((rows, cols, b), axis=axis, weights=v)
    expected = summary_by_hand(fit, rows, cols, b, np.ones(size) if v is None else v, axis)
    assert (got.weight is None) == (not weighted)
    assert next(iter(got.columns())) == ("row", "column")[axis]
    for name, array in list(got.columns().items())[1:]:
        np.testing.assert_allclose(array, expected[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("axis", [0, 1])
def test_summary_in_parts(axis, fit, monkeypatch):
    rng = np.random.default_rng(2)
    R = np.where(rng.random(fit.shape) < 0.6, rng.uniform(1, 5, fit.shape), NAN)
    R[3] = R[:, 0] = NAN
    weights = rng.uniform(1, 2, fit.shape)
    whole = fit.summary(R, axis=axis, weights=weights)
    monkeypatch.setattr(
        summary, "parts", lambda size: (slice(first, first + 5) for first in range(0, size, 5))
    )
    in_parts = fit.summary(R, axis=axis, weights=weights)
    for name, array in whole.columns().items():
        np.testing.assert_allclose(in_parts.columns()[name], array, rtol=1e-12, err_msg=name)
    assert np.isnan(whole.rms[3 if axis == 0 else 0])


def test_summaries_add_up_to_the_whole(fit):
    rng = np.random.default_rng(3)
    R, weights = rng.uniform(1, 5, fit.shape), rng.uniform(1, 2, fit.shape)
    for axis in (0, 1):
        got = fit.summary(R, axis=axis, weights=weights)
        assert got.loss @ got.weight == pytest.approx(fit.objective(R, weights=weights), rel=1e-12)
        assert got.observations.sum() == R.size
    for row in range(7):
        alone = np.where(np.arange(7)[:, None] == row, R, NAN)
        assert fit.summary(R).w_eff[row] == pytest.approx(fit.effective_omega(alone), rel=1e-12)


def test_weight_two_is_the_observation_twice(fit):
    rows, cols, b = [0, 1, 1], [2, 0, 3], [1.0, 2.0, 4.0]
    weighted = fit.summary((rows, cols, b), weights=[1.0, 2.0, 1.0])
    twice = fit.summary(([*rows, 1], [*cols, 0], [*b, 2.0]))
    assert weighted.weight.tolist() == twice.observations.tolist()
    for name in ("mean", "rms", "loss", "w_eff"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(twice, name), rtol=1e-12)


def test_a_level_is_nan_where_every_residual_is_zero():
    fit = made(4, 3, integer=True)
    got = fit.summary(fit.to_dense() + 5 * (np.arange(4) == 2)[:, None])
    assert np.isnan(got.w_eff).tolist() == [True, True, False, True]
    assert got.rms.tolist() == [0.0, 0.0, 5.0, 0.0]


def test_a_summary_prints_the_worst_first():
    fit = made(30, 4)
    R = fit.to_dense() + np.arange(30)[:, None]
    R[29] = NAN
    text = str(fit.summary(R))
    lines = text.splitlines()
    assert lines[0].startswith("30 rows, 1 without observations; the 10 with the largest mean loss")
    assert lines[1].split() == ["row", "observations", "mean", "rms", "loss", "w_eff"]
    assert [line.split()[0] for line in lines[2:]] == [str(i) for i in range(28, 18, -1)]
    assert lines[2].split()[3] == "28"
    assert len({len(line) for line in lines[1:]}) == 1
    columns = fit.summary(R, axis=1)
    assert str(columns).splitlines()[0] == "4 columns, 0 without observations:"
    assert repr(columns) == "<Summary of 4 columns>"


def test_a_summary_makes_a_table(fit):
    pd = pytest.importorskip("pandas")
    R = np.where(np.arange(9) < 8, 1.0, NAN) + np.zeros((7, 1))
    table = pd.DataFrame(fit.summary(R, axis=1).columns()).set_index("column")
    assert table.shape == (9, 5)
    assert table.loc[8].isna().sum() == 4
    assert table["observations"].tolist() == [7] * 8 + [0]


def test_bad_summaries(fit):
    with refuses(ValueError, "axis must be 0 (rows) or 1 (columns)", 2):
        fit.summary(np.ones((7, 9)), axis=2)
    with refuses(ValueError, "axis must be 0 (rows) or 1 (columns)", "'rows'"):
        fit.summary(np.ones((7, 9)), axis="rows")
    with refuses(ValueError, "R must have the fit's shape (7, 9)", (9, 7)):
        fit.summary(np.ones((9, 7)))
    with refuses(ValueError, "weights must have the shape of R", (9, 7)):
        fit.summary(np.ones((7, 9)), weights=np.ones((9, 7)))


# --- labels ---------------------------------------------------------------------------------

CLIENTS = ["de", "fr", "it", "es", "pl", "se", "uk"]
LABELS = {
    "strings": [f"s{j}" for j in range(9)],
    "integers": [70, 3, 11, 0, 8, 9, 4, 5, 6],
    "dates": np.arange("2026-01-01", "2026-01-10", dtype="M8[D]").astype("M8[ns]"),
}


@pytest.fixture(params=LABELS)
def services(request):
    return Labels(LABELS[request.param], name="service")


@pytest.fixture
def named(fit, services):
    clients = Labels(CLIENTS, name="client")
    rows, cols = (
        replace(axis, labels=labels)
        for axis, labels in zip(fit.axes, (clients, services), strict=True)
    )
    return replace(fit, rows=rows, cols=cols)


def called(labels, places):
    """As the answer should be, padding included."""
    if labels.values.dtype.kind == "M":
        return [labels.values[p] if p >= 0 else np.datetime64("NaT") for p in places]
    return [labels.values[p] if p >= 0 else None for p in places]


def test_labels_in_labels_out(fit, named, services):
    bare, named = without(fit, cols=[2, 5]), without(named, cols=[2, 5])
    plain = bare.rank(None, 9, order="largest")
    for row, client in enumerate(CLIENTS):
        got = named.rank(client, 9, order="largest")
        np.testing.assert_array_equal(got.cols, called(services, plain.cols[row]))
        np.testing.assert_array_equal(got.values, plain.values[row])
    some = named.rank(["uk", "de"], 2, order="largest")
    for row, got in zip((6, 0), some.cols, strict=True):
        np.testing.assert_array_equal(got, called(services, plain.cols[row, :2]))
    assert named.rank(None, 9, order="largest").cols.shape == (7, 9)
    near, there = fit.similar_rows(3, 8), named.similar_rows("es", 8)
    assert there.others.tolist() == called(named.row_labels, near.others)
    got = named.similar_cols(services.values[4], 9)
    np.testing.assert_array_equal(got.others, called(services, bare.similar_cols(4, 9).others))


def test_labelled_answers_have_one_type_whether_all_places_are_filled_or_not(named, services):
    is_date = services.values.dtype.kind == "M"
    for fit in (named, without(named, cols=[2, 5])):
        cols = fit.rank("de", 9, order="smallest").cols
        assert cols.dtype == (services.values.dtype if is_date else object)


def test_unknown_labels_are_named(named):
    with refuses(ValueError, "unknown labels", "'xx'"):
        named.rank("xx", 3, order="smallest")
    with refuses(ValueError, "unknown labels", "'xx'"):
        named.similar_rows("xx", 3)


def test_what_is_seen_by_labels(fit, named, services, tmp_path):
    rows, cols = np.array([0, 0, 3, 6]), np.array([1, 8, 0, 4])
    expected = fit.rank(None, 9, order="smallest", seen=(rows, cols, np.ones(4)))
    clients, names = np.array(CLIENTS, object)[rows], services.values[cols]
    dense = np.full((7, 9), NAN)
    dense[rows, cols] = 1.0
    forms = [(clients, names, np.ones(4)), dense, sp.csr_array(np.nan_to_num(dense))]
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    forms.append(pd.DataFrame({"client": clients, "ms": [1.0, NAN, 2.0, 0.0], "service": names}))
    forms[-1].to_parquet(tmp_path / "log.parquet")
    forms.append(tmp_path / "log.parquet")
    matrix = pd.DataFrame(dense, index=CLIENTS, columns=services.values)
    forms.append(matrix)
    for seen in forms:
        got = named.rank(None, 9, order="smallest", seen=seen).cols
        for row in range(7):
            np.testing.assert_array_equal(got[row], called(services, expected.cols[row]))
    with refuses(TypeError, "seen must be the data", "mask"):
        named.rank("de", 3, order="smallest", seen=matrix.notna())
    every = named.rank("de", 9, order="smallest").cols
    elsewhere = (["xx"], names[:1], [1.0])  # a label that the fit does not have
    np.testing.assert_array_equal(named.rank("de", 9, order="smallest", seen=elsewhere).cols, every)


def test_a_summary_of_a_table_goes_by_its_labels(fit, named, services):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows, cols, ms = np.array([0, 0, 3, 6]), np.array([1, 8, 0, 4]), np.array([1.0, 2.0, 3.0, 4.0])
    log = pd.DataFrame(
        {"client": np.array(CLIENTS, object)[rows], "service": services.values[cols], "ms": ms}
    )
    for axis, labels in ((0, named.row_labels), (1, services)):
        got = named.summary(log, axis=axis, values="ms")
        np.testing.assert_array_equal(got.ids, labels.values)
        for name, array in list(fit.summary((rows, cols, ms), axis=axis).columns().items())[1:]:
            np.testing.assert_array_equal(got.columns()[name], array)
    assert str(named.summary(log, values="ms")).splitlines()[2].split()[0] in CLIENTS
