"""Correction tables: their effect on accuracy, and consistency of all methods with them."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from scenes import same_bits

import fastemf
from fastemf import store
from fastemf.loss import expectile_loss
from fastemf.tuning.corrections import COL_EFFECT, ROW_EFFECT, Correction

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits

OMEGA = 0.3
SETTINGS = {"omega": OMEGA, "k": 1, "intercepts": True, "n_jobs": 1}


def bent(m=60, n=50):
    """Return data that are neither additive nor multiplicative: a piecewise linear function."""
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
    rows, cols = (replace(axis, effects=None) for axis in fit.axes)
    return replace(fit, rows=rows, cols=cols)


def assert_tables(one, other, factor=1, **tolerance):
    """Check that tables and predictions are `factor` times those of the other fit."""
    assert len(one.corrections) == len(other.corrections) > 0
    for mine, theirs in zip(one.corrections, other.corrections, strict=True):
        np.testing.assert_allclose(mine.values, factor * theirs.values, **tolerance)
    np.testing.assert_allclose(one.to_dense(), factor * other.to_dense(), **tolerance)


def assert_same_fit(one, other):
    """Check that two fits with tables are bitwise equal."""
    assert len(one.corrections) > 0
    same_bits(one, other)
    for a, b in zip(one.axes, other.axes, strict=True):
        np.testing.assert_equal(asdict(a.effects), asdict(b.effects))
    np.testing.assert_equal(asdict(one.training), asdict(other.training))
    np.testing.assert_array_equal(one.to_dense(), other.to_dense())


def added_by_hand(fit, i, j):
    """Interpolate the tables in some cells."""
    statistics = {
        "row effect": fit.rows.effects.values[i],
        "column effect": fit.cols.effects.values[j],
        "row noise": np.log(fit.rows.noise.variances[i]),
        "column noise": np.log(fit.cols.noise.variances[j]),
        "product": fit.row_intercepts[i] + fit.col_intercepts[j] + (fit.X[i] * fit.Y[j]).sum(-1),
    }
    return sum(table.at(*(statistics[name] for name in table.over)) for table in fit.corrections)


# --- the function ----------------------------------------------------------------------------

OVER = (ROW_EFFECT, COL_EFFECT)


@pytest.mark.parametrize(
    ("knots", "values", "rows", "cols", "expected"),
    [
        (([0, 1, 3], [0, 2]), [[0, 1], [2, 3], [4, 5]],
         [-5, 0, 0.5, 2, 9, 3], [-1, 2, 1, 0, 7, 2], [0, 1, 1.5, 3, 5, 5]),
        (([0, 1e-320], [0, 1e-320]), [[1, 2], [3, 4]], [1e300, -1e300], [1e300, 1e300], [4, 2]),
        (([1], [2]), [[7]], [0, 1, 5], [9, 2, 0], [7, 7, 7]),
    ],
    ids=["interpolated", "nearly equal knots", "constant"],
)  # fmt: skip
def test_a_table_interpolates_between_knots_and_is_constant_beyond(
    knots, values, rows, cols, expected
):
    first, second = (np.array(side, float) for side in knots)
    table = Correction(OVER, (first, second), np.array(values, float))
    np.testing.assert_allclose(table.at(np.array(rows, float), np.array(cols, float)), expected)


# --- the fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("omega", "ratio"), [(0.1, 0.95), (0.5, 0.95), (0.9, 1.0)])
def test_tables_reduce_the_loss_of_nonlinear_data(omega, ratio):
    fit = fastemf.complete(R, **SETTINGS | {"omega": omega})
    seen = ~np.isnan(NEW)
    ours, plain = ((NEW - one.to_dense())[seen] for one in (fit, without_table(fit)))
    assert expectile_loss(ours, omega) < ratio * expectile_loss(plain, omega)


def test_only_tuned_fits_with_intercepts_have_tables():
    for settings in ({"reg": 0.1}, {"reg": "noise"}, {"intercepts": False}):
        assert fastemf.complete(R, **SETTINGS | settings).corrections == ()
    noise = np.random.default_rng(0).standard_normal((40, 30))
    assert fastemf.complete(noise, **SETTINGS).corrections == ()


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_tables_do_not_harm_noiseless_data():
    rng = np.random.default_rng(1)
    M = np.outer(rng.random(40) + 0.5, rng.random(30) + 0.5)
    seen = np.where(rng.random(M.shape) < 0.3, np.nan, M)
    fit = fastemf.complete(seen, **SETTINGS | {"k": 2})
    errors = [np.abs(one.to_dense() - M).max() for one in (fit, without_table(fit))]
    assert errors[0] <= 1.1 * errors[1]
    assert errors[0] < 1e-3


# --- identities ------------------------------------------------------------------------------


def test_scaled_data_give_the_scaled_fit_bitwise(fit):
    assert_tables(fastemf.complete(1024 * R, **SETTINGS), fit, factor=1024, rtol=0)


def test_mirrored_data_at_the_mirrored_level_give_the_mirrored_table(fit):
    mirrored = fastemf.complete(-R, **SETTINGS | {"omega": 1 - OMEGA})
    assert [table.over for table in mirrored.corrections] == [
        table.over for table in fit.corrections
    ]
    assert mirrored.corrections[0].over == OVER
    values = mirrored.corrections[0].values[::-1, ::-1]
    np.testing.assert_allclose(values, -fit.corrections[0].values, atol=1e-6)
    np.testing.assert_allclose(mirrored.to_dense(), -fit.to_dense(), atol=1e-6)


def test_weight_two_is_the_observation_twice():
    once = (I, J, R[I, J])
    twice = tuple(np.concatenate([part, part]) for part in once)
    weighted = fastemf.complete(once, weights=np.full(I.size, 2.0), shape=R.shape, **SETTINGS)
    repeated = fastemf.complete(twice, shape=R.shape, **SETTINGS)
    assert_tables(weighted, repeated, atol=1e-5)


def test_tables_do_not_depend_on_threads(fit):
    assert_same_fit(fastemf.complete(R, **SETTINGS | {"n_jobs": 2}), fit)


@pytest.mark.parametrize(("dtype", "weighted"), [(np.float64, False), (np.float32, True)])
def test_a_store_gives_the_same_fit(dtype, weighted, tmp_path, monkeypatch):
    monkeypatch.setattr("fastemf.tuning.ridge_path.MOST_FOLDS", 2)
    entries = (I, J, R[I, J].astype(dtype))
    given = {"weights": (1 + I % 3).astype(dtype) if weighted else None, "shape": R.shape}
    store.build(entries, tmp_path / "store", **given)
    stored = store.open(tmp_path / "store", budget=20_000)
    assert len(stored.by_row.cuts()) > 3
    expected = fastemf.complete(entries, **given, **SETTINGS)
    assert_same_fit(fastemf.complete(stored, **SETTINGS), expected)


# --- methods ---------------------------------------------------------------------------------


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


def test_objective_and_similarity_ignore_tables(fit):
    assert fit.objective(R) == pytest.approx(fit.history[-1].objective, rel=1e-9)
    found, plain = (one.similar_rows(0, 5).distances for one in (fit, without_table(fit)))
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize("axis", [0, 1])
def test_folded_in_items_get_effects(fit, axis):
    folded = fit.fold_in(R, axis=axis).axes[axis].effects
    np.testing.assert_allclose(folded.values, fit.axes[axis].effects.values, atol=0.02)
    assert folded.corrections is fit.rows.effects.corrections


def test_a_new_row_without_observations_has_effect_0(fit):
    with pytest.warns(UserWarning, match="no observations"):
        folded = fit.fold_in(np.vstack([R[:1], np.full_like(R[:1], np.nan)]))
    assert folded.rows.effects.values[1] == 0
    expected = fit.constant + fit.col_intercepts
    expected += added_by_hand(folded, 1, np.arange(R.shape[1]))
    np.testing.assert_allclose(folded.predict_block([1])[0], expected)


# --- explanations ----------------------------------------------------------------------------


def test_the_terms_of_a_prediction_add_up(fit):
    for row, col in ((0, 0), (59, 49), (7, 3)):
        found = fit.explain(row, col)
        parts = found.parts
        assert found.value == pytest.approx(float(fit.predict(row, col)), rel=1e-12)
        assert found.value == sum(parts.values())
        assert (parts["mu"], parts["shift"]) == (fit.mu, fit.shift)
        assert parts["row"] == fit.row_intercepts[row]
        assert parts["column"] == fit.col_intercepts[col]
        assert parts["factors"] == pytest.approx(float(fit.X[row] @ fit.Y[col]))
        plain = without_table(fit).explain(row, col)
        assert plain.parts["corrections"] == 0
        assert parts["corrections"] == pytest.approx(found.value - plain.value)


def test_without_intercepts_the_factors_are_the_prediction():
    fit = fastemf.complete(R, 0.5, 2, reg=0.1, n_jobs=1)
    assert list(fit.explain(3, 4).parts.values())[:4] == [0, 0, 0, 0]
    assert fit.explain(3, 4).value == pytest.approx(float(fit.predict(3, 4)))
