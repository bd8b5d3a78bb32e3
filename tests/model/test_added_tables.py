"""Tables over levels, noise and product: where they help, and that everything agrees on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fastemf
from fastemf import store
from fastemf.loss import expectile_loss
from fastemf.solver.tables import COL_LEVEL, ROW_LEVEL, Table

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

OMEGA = 0.3
SETTINGS = {"omega": OMEGA, "k": 1, "intercepts": True, "n_jobs": 1}


def bent(m=60, n=50):
    """What no sum and no product of rows and columns is: flat, and steep from a bend on."""
    rng = np.random.default_rng(3)
    level = np.add.outer(rng.random(m), rng.random(n))
    truth = level + 8 * np.maximum(level - 1.2, 0)
    R = truth + 0.3 * rng.standard_exponential((m, n))
    new = truth + 0.3 * rng.standard_exponential((m, n))
    hidden = rng.random((m, n)) < 0.4
    return np.where(hidden, np.nan, R), np.where(hidden, new, np.nan)


R, NEW = bent()
I, J = np.nonzero(~np.isnan(R))


@pytest.fixture(scope="module")
def fit():
    return fastemf.complete(R, **SETTINGS)


def without_table(fit):
    return replace(
        fit, rows=replace(fit.rows, levels=None), cols=replace(fit.cols, levels=None)
    )  # fmt: skip


def assert_same_tables(one, other):
    assert len(one.tables) == len(other.tables) > 0
    for mine, theirs in zip(one.tables, other.tables, strict=True):
        assert mine.over == theirs.over
        for a, b in zip((*mine.knots, mine.values), (*theirs.knots, theirs.values), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(one.axes, other.axes, strict=True):
        assert a.levels.tables.ridge == b.levels.tables.ridge
        np.testing.assert_array_equal(a.levels.values, b.levels.values)
        np.testing.assert_array_equal(a.noise.variances, b.noise.variances)
    np.testing.assert_array_equal(one.to_dense(), other.to_dense())


def added_by_hand(fit, i, j):
    """What the tables add to cells, by the tables' own interpolation."""
    statistics = {
        "row level": fit.rows.levels.values[i],
        "column level": fit.cols.levels.values[j],
        "row noise": np.log(fit.rows.noise.variances[i]),
        "column noise": np.log(fit.cols.noise.variances[j]),
        "product": fit.row_intercepts[i] + fit.col_intercepts[j] + (fit.X[i] * fit.Y[j]).sum(-1),
    }
    return sum(table.at(*(statistics[name] for name in table.over)) for table in fit.tables)


# --- the function ----------------------------------------------------------------------------

OVER = (ROW_LEVEL, COL_LEVEL)


def test_a_table_interpolates_between_knots_and_is_constant_beyond():
    knots = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0])
    table = Table(OVER, knots, np.arange(6.0).reshape(3, 2))
    rows = np.array([-5.0, 0.0, 0.5, 2.0, 9.0, 3.0])
    cols = np.array([-1.0, 2.0, 1.0, 0.0, 7.0, 2.0])
    np.testing.assert_allclose(table.at(rows, cols), [0, 1, 1.5, 3, 5, 5])


def test_knots_that_nearly_meet_divide_by_no_more_than_their_distance():
    near = np.array([0.0, 1e-320])
    table = Table((ROW_LEVEL, COL_LEVEL), (near, near), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert table.at(np.array([1e300, -1e300]), np.array([1e300, 1e300])).tolist() == [4.0, 2.0]


def test_a_table_of_one_pair_of_knots_is_a_constant():
    table = Table(OVER, (np.array([1.0]), np.array([2.0])), np.array([[7.0]]))
    assert table.at(np.array([0.0, 1.0, 5.0]), np.array([9.0, 2.0, 0.0])).tolist() == [7, 7, 7]


# --- the fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("omega", "share"), [(0.1, 0.95), (0.5, 0.95), (0.9, 1.0)])
def test_it_helps_where_rows_and_columns_neither_add_nor_multiply(omega, share):
    fit = fastemf.complete(R, **SETTINGS | {"omega": omega})
    seen = ~np.isnan(NEW)
    losses = [
        expectile_loss((NEW - one.to_dense())[seen], omega) for one in (fit, without_table(fit))
    ]
    assert losses[0] < share * losses[1]


@pytest.mark.parametrize(
    "settings", [{"reg": 0.1}, {"reg": "noise"}, {"intercepts": False}], ids=str
)  # fmt: skip
def test_only_a_tuned_fit_with_intercepts_has_some(settings):
    assert fastemf.complete(R, **SETTINGS | settings).tables == ()


def test_statistics_that_say_nothing_get_none():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((40, 30))
    assert fastemf.complete(noise, **SETTINGS).tables == ()


@pytest.mark.parametrize("R", [np.full((30, 30), 3.0), np.full((30, 30), -2.0)])
def test_constant_data_are_predicted_as_they_are(R):
    np.testing.assert_allclose(fastemf.complete(R, **SETTINGS).to_dense(), R, atol=1e-9)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")  # there is more than it needs
def test_noiseless_data_are_not_made_worse():
    rng = np.random.default_rng(1)
    M = np.outer(rng.random(40) + 0.5, rng.random(30) + 0.5)
    seen = np.where(rng.random(M.shape) < 0.3, np.nan, M)
    fit = fastemf.complete(seen, **SETTINGS | {"k": 2})
    errors = [np.abs(one.to_dense() - M).max() for one in (fit, without_table(fit))]
    assert errors[0] <= 1.1 * errors[1]
    assert errors[0] < 1e-3


# --- identities ------------------------------------------------------------------------------


def test_scaled_data_give_exactly_the_scaled_fit(fit):
    scaled = fastemf.complete(1024 * R, **SETTINGS)
    assert len(scaled.tables) == len(fit.tables) > 0
    for big, small in zip(scaled.tables, fit.tables, strict=True):
        np.testing.assert_array_equal(big.values, 1024 * small.values)
    np.testing.assert_array_equal(scaled.to_dense(), 1024 * fit.to_dense())


def test_mirrored_data_at_the_mirrored_level_give_the_mirrored_table(fit):
    mirrored = fastemf.complete(-R, **SETTINGS | {"omega": 1 - OMEGA})
    assert [table.over for table in mirrored.tables] == [table.over for table in fit.tables]
    of_levels = [one.tables[0] for one in (mirrored, fit)]
    assert of_levels[0].over == OVER
    np.testing.assert_allclose(of_levels[0].values, -of_levels[1].values[::-1, ::-1], atol=1e-6)
    np.testing.assert_allclose(mirrored.to_dense(), -fit.to_dense(), atol=1e-6)


def test_weight_two_is_the_observation_twice():
    once = (I, J, R[I, J])
    twice = tuple(np.concatenate([part, part]) for part in once)
    weighted = fastemf.complete(once, weights=np.full(I.size, 2.0), shape=R.shape, **SETTINGS)
    repeated = fastemf.complete(twice, shape=R.shape, **SETTINGS)
    assert len(weighted.tables) == len(repeated.tables) > 0
    for one, other in zip(weighted.tables, repeated.tables, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)
    np.testing.assert_allclose(weighted.to_dense(), repeated.to_dense(), atol=1e-5)


def test_threads_do_not_matter(fit):
    assert_same_tables(fastemf.complete(R, **SETTINGS | {"n_jobs": 2}), fit)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_store_gives_the_table_of_memory(dtype, tmp_path):
    entries = (I, J, R[I, J].astype(dtype))
    weights = (1 + I % 3).astype(dtype)
    store.build(entries, tmp_path / "store", weights=weights, shape=R.shape)
    stored = store.open(tmp_path / "store", budget=14000)
    assert len(stored.by_row.cuts()) > 3
    expected = fastemf.complete(entries, weights=weights, shape=R.shape, **SETTINGS)
    assert_same_tables(fastemf.complete(stored, **SETTINGS), expected)


def test_a_saved_table_comes_back(fit, tmp_path):
    fit.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    assert_same_tables(loaded, fit)
    assert repr(loaded.tuning) == repr(fit.tuning)
    assert_same_tables(loaded.fold_in(R[:5]), fit.fold_in(R[:5]))


# --- what it is asked ------------------------------------------------------------------------


def test_all_predictions_agree(fit):
    dense, plain = fit.to_dense(), without_table(fit).to_dense()
    assert np.abs(dense - plain).max() > 0.1
    np.testing.assert_allclose(dense - plain, added_by_hand(fit, *np.indices(R.shape)), atol=1e-12)
    np.testing.assert_allclose(fit.predict(*np.indices(R.shape)), dense, rtol=1e-12)
    np.testing.assert_allclose(fit.predict_block([7, 3]), dense[[7, 3]], rtol=1e-12)
    np.testing.assert_allclose(fit.rank(7, 50, order="smallest").values, np.sort(dense[7]))
    picked = np.zeros((2, *R.shape))
    picked[0, 4, 9], picked[1, 50] = 1, 2
    measured = fit.measure(fastemf.operators.Dense(picked))
    np.testing.assert_allclose(measured, [dense[4, 9], 2 * dense[50].sum()])
    r = (R - dense)[I, J]
    assert fit.effective_omega(R) == pytest.approx(fastemf.metrics.effective_omega(r))
    summary = fit.summary(R)
    np.testing.assert_allclose(summary.loss @ summary.observations, expectile_loss(r, OMEGA))
    float32 = fastemf.complete(R.astype(np.float32), **SETTINGS)
    np.testing.assert_allclose(float32.to_dense(), dense, atol=0.01)
    assert float32.predict(0, 0).dtype == np.float32


def test_objective_and_likeness_are_those_of_the_product(fit):
    assert fit.objective(R) == pytest.approx(fit.history[-1].objective, rel=1e-9)
    plain = without_table(fit)
    np.testing.assert_array_equal(
        fit.similar_rows(0, 5).distances, plain.similar_rows(0, 5).distances
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_items_that_are_folded_in_get_their_levels(fit, axis):
    folded = fit.fold_in(R, axis=axis).axes[axis].levels
    np.testing.assert_allclose(folded.values, fit.axes[axis].levels.values, atol=0.02)
    assert folded.tables is fit.rows.levels.tables


def test_a_new_row_without_observations_has_level_0(fit):
    with pytest.warns(UserWarning, match="no observations"):
        folded = fit.fold_in(np.vstack([R[:1], np.full_like(R[:1], np.nan)]))
    assert folded.rows.levels.values[1] == 0
    expected = fit.constant + fit.col_intercepts
    expected += added_by_hand(folded, 1, np.arange(R.shape[1]))
    np.testing.assert_allclose(folded.predict_block([1])[0], expected)


def test_estimators_use_it(fit):
    pytest.importorskip("sklearn")
    model = fastemf.ExpectilePairRegressor(**SETTINGS)
    model.fit(np.column_stack([I, J]), R[I, J])
    found = model.factorization_
    assert found.tables
    known, new = model.predict([(I[0], J[0]), (I[0], 999)])
    assert known == found.predict(I[0], J[0])
    i = int(found.rows.positions(I[0], "rows"))
    statistics = {
        "row level": found.rows.levels.values[i],
        "row noise": np.log(found.rows.noise.variances[i]),
        "product": found.row_intercepts[i],
        "column level": 0.0,
        "column noise": 0.0,
    }
    added = sum(t.at(*(np.array(statistics[name]) for name in t.over)) for t in found.tables)
    assert new == pytest.approx(found.constant + found.row_intercepts[i] + added)


# --- explained -------------------------------------------------------------------------------


def test_the_parts_of_a_prediction_add_up(fit):
    for row, col in ((0, 0), (59, 49), (7, 3)):
        parts = fit.explain(row, col)
        assert parts.value == pytest.approx(float(fit.predict(row, col)), rel=1e-12)
        assert parts.value == sum(parts)
        assert (parts.mu, parts.shift) == (fit.mu, fit.shift)
        assert parts.row == fit.row_intercepts[row]
        assert parts.column == fit.col_intercepts[col]
        assert parts.factors == pytest.approx(float(fit.X[row] @ fit.Y[col]))
        plain = without_table(fit).explain(row, col)
        assert plain.tables == 0
        assert parts.tables == pytest.approx(parts.value - plain.value)


def test_a_fit_without_intercepts_is_its_factors():
    fit = fastemf.complete(R, 0.5, 2, reg=0.1, n_jobs=1)
    assert fit.explain(3, 4)[:4] == (0, 0, 0, 0)
    assert fit.explain(3, 4).value == pytest.approx(float(fit.predict(3, 4)))


def test_labels_are_explained():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame([[1.0, 2.0], [2.0, 4.5]], index=["eu", "us"], columns=["buy", "pay"])
    fit = fastemf.complete(table, 0.5, 1, reg=0.1, intercepts=True, n_jobs=1)
    assert fit.explain("us", "pay").value == pytest.approx(float(fit.predict("us", "pay")))
    with pytest.raises(ValueError, match="mars"):
        fit.explain("mars", "pay")


def test_one_cell_is_explained_at_a_time(fit):
    with pytest.raises(ValueError, match=r"row must be a single one, got shape \(2,\)"):
        fit.explain([0, 1], 3)
    with pytest.raises(ValueError, match=r"col must be a single one"):
        fit.explain(0, [3])
    with pytest.raises(IndexError, match="rows"):
        fit.explain(60, 3)
