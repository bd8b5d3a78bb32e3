"""The scikit-learn estimators: equality with the functions, scikit-learn's checks, errors."""

from __future__ import annotations

import importlib
import pickle
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import fastemf
from fastemf import complete
from fastemf.datasets import make_skewed
from fastemf.loss import expectile, expectile_loss
from fastemf.tuning.corrections import STATISTICS

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import d2_pinball_score, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastemf import ExpectileFactorization, ExpectilePairRegressor, QuantilePairRegressor

R = make_skewed(14, 9, rank=2, density=0.7, random_state=3).R.tocoo()
PAIRS = np.column_stack([R.row, R.col])
NAMES = np.array([[f"row {i}", f"col {j}"] for i, j in PAIRS], dtype=object)
FEW = {"tol": 1e-3, "k": 2, "n_jobs": 1}  # sweeps are slow without the JIT


# --- scikit-learn's own checks -------------------------------------------------------------

PAIR_REGRESSORS = ExpectilePairRegressor, QuantilePairRegressor
TOO_SMALL = "k = 2 needs two rows and two columns: the error says k, rows, columns, not 'sample'"


def expected_failures(estimator):
    if isinstance(estimator, PAIR_REGRESSORS):
        return {
            "check_fit2d_1sample": TOO_SMALL,
            "check_sample_weight_equivalence_on_dense_data": (
                "draws an X of 30 columns past the hook below; "
                "test_a_weight_equals_repeating_the_observation does the same with pairs"
            ),
        }
    checks = () if estimator.k == 1 else ("check_fit2d_1sample", "check_fit2d_1feature")
    return dict.fromkeys(checks, TOO_SMALL)


def pairs_of(estimator, X, *args, enforce=estimator_checks._enforce_estimator_tags_X, **kwargs):
    """Cut X to two columns, which no tag of an estimator can ask for."""
    X = enforce(estimator, X, *args, **kwargs)
    return X[:, :2] if isinstance(estimator, ExpectilePairRegressor) else X


@pytest.mark.estimator_checks
@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*have no observations:UserWarning")  # sparse X with empty rows
@pytest.mark.filterwarnings("ignore:.*observations are zero:UserWarning")  # stored in BSR blocks
@parametrize_with_checks(
    [
        ExpectileFactorization(max_iter=5, n_jobs=1),
        ExpectileFactorization(k=1, intercepts=True, max_iter=5, n_jobs=1),
        ExpectilePairRegressor(max_iter=5, n_jobs=1),
        QuantilePairRegressor(max_iter=5, n_jobs=1),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", pairs_of)
    monkeypatch.setattr("fastemf.boosting.fit.FEWEST_BEYOND", 0)  # the checks have 20 samples
    check(estimator)


# --- transformer -----------------------------------------------------------------------


@pytest.mark.parametrize("intercepts", [False, True])
def test_the_transformer_equals_complete_and_fold_in(intercepts):
    model = ExpectileFactorization(0.2, intercepts=intercepts, **FEW)
    fit = complete(R, 0.2, intercepts=intercepts, **FEW)
    new = sp.csr_array(R.tocsr()[3:6])
    folded = fit.fold_in(new)
    X = model.fit(R).transform(new)
    assert np.array_equal(model.factorization_.X, fit.X)
    assert np.array_equal(X[:, :2], folded.X)
    assert X.shape[1] == len(model.get_feature_names_out()) == 2 + intercepts
    if intercepts:
        assert np.array_equal(X[:, 2], folded.row_intercepts)
    np.testing.assert_allclose(model.inverse_transform(X), folded.to_dense(), rtol=1e-12)
    assert np.array_equal(model.fit_transform(R), model.transform(R))
    assert model.n_iter_ == fit.n_iter
    assert model.n_features_in_ == 9


@pytest.mark.parametrize("form", ["array", "masked", "table", "list", "float32", "repeated"])
def test_all_forms_of_a_matrix_are_equivalent(form):
    dense = np.full(R.shape, np.nan)
    dense[R.row, R.col] = R.data
    forms = {
        "masked": np.ma.array(np.nan_to_num(dense, nan=-99.0), mask=np.isnan(dense)),
        "table": pd.DataFrame(dense, columns=list("abcdefghi")),
        "list": dense.tolist(), "array": dense, "float32": dense.astype(np.float32),
        "repeated": sp.coo_array((np.r_[R.data, R.data + 1], np.tile((R.row, R.col), 2))),
    }  # fmt: skip
    given = forms[form]
    model = ExpectileFactorization(0.2, **FEW).fit(given)
    expected = {"float32": R.astype(np.float32), "repeated": given}.get(form, R)
    fit = complete(expected, 0.2, **FEW)
    assert np.array_equal(model.factorization_.X, fit.X)
    assert model.transform(given).dtype == fit.X.dtype
    assert hasattr(model, "feature_names_in_") == (form == "table")


def test_the_score_of_the_transformer_is_the_skill_of_the_rows_folded_in():
    new = np.array([[1.0, np.nan, 2.0, 5.0], [4.0, 1.0, np.nan, 2.0]])
    model = ExpectileFactorization(0.2, k=1, reg=0.1).fit(np.outer([1, 2, 4], [2, 3, 5, 1]))
    observed = ~np.isnan(new)
    r = (new - model.inverse_transform(model.transform(new)))[observed]
    constant = expectile_loss(new[observed] - expectile(new[observed], 0.2), 0.2)
    assert model.score(new) == pytest.approx(1 - expectile_loss(r, 0.2) / constant, rel=1e-12)


def test_the_transformer_works_in_pipelines_and_returns_tables():
    y = np.arange(14.0)
    pipe = make_pipeline(ExpectileFactorization(0.2, **FEW), LinearRegression())
    by_hand = LinearRegression().fit(ExpectileFactorization(0.2, **FEW).fit_transform(R), y)
    expected = by_hand.predict(pipe.fit(R, y)[0].transform(R))
    np.testing.assert_allclose(pipe.predict(R), expected, rtol=1e-9)
    table = ExpectileFactorization(0.2, **FEW).set_output(transform="pandas").fit_transform(R)
    assert list(table) == ["expectilefactorization0", "expectilefactorization1"]


# --- regressor of expectiles ----------------------------------------------------------------


def test_the_regressor_equals_complete_and_predict():
    # In the order of a row-major COO matrix, labels appear as 0, 1, … by row but not by column.
    cols, first = np.unique(PAIRS[:, 1], return_index=True)
    place = np.empty(9, int)
    place[cols[np.argsort(first)]] = np.arange(9)
    model = ExpectilePairRegressor(0.2, **FEW).fit(PAIRS, R.data)
    fit = complete((PAIRS[:, 0], place[PAIRS[:, 1]], R.data), 0.2, intercepts=True, **FEW)
    assert np.array_equal(model.predict(PAIRS), fit.predict(PAIRS[:, 0], place[PAIRS[:, 1]]))
    assert model.n_iter_ == fit.n_iter
    assert model.factorization_.row_labels.values.tolist() == list(range(14))


@pytest.mark.parametrize("form", ["strings", "unicode", "lists", "pandas", "polars", "mixed"])
def test_all_forms_of_pairs_are_equivalent(form):
    pl = pytest.importorskip("polars")
    given = {
        "strings": NAMES, "unicode": NAMES.astype(str), "lists": NAMES.tolist(),
        "pandas": pd.DataFrame(NAMES, columns=["client", "service"]),
        "polars": pl.DataFrame(NAMES.tolist(), ["client", "service"], orient="row"),
        "mixed": pd.DataFrame({"client": PAIRS[:, 0], "service": NAMES[:, 1]}),
    }[form]  # fmt: skip
    for weights in (None, np.arange(R.nnz) % 3.0):  # zeros take some observations out
        expected, found = (
            ExpectilePairRegressor(0.2, **FEW).fit(pairs, R.data, weights).predict(pairs)
            for pairs in (PAIRS, given)
        )
        assert np.array_equal(found, expected)


def test_labels_of_a_table_are_not_rounded():
    large = 2**62 + np.array([0, 1, 0, 1])  # one and the same as floats
    table = pd.DataFrame({"a": large, "b": [0.0, 0.0, 1.0, 1.0]})
    model = ExpectilePairRegressor(k=1).fit(table, [1.0, 2.0, 3.0, 4.0])
    assert model.factorization_.shape == (2, 2)


def test_new_pairs_are_predicted_from_the_known_side():
    model = ExpectilePairRegressor(0.2, **FEW).fit(NAMES, R.data)
    rows, cols = (replace(axis, labels=None) for axis in model.factorization_.axes)
    fit = replace(model.factorization_, rows=rows, cols=cols)
    known, new_row, new_col, new_both = model.predict(
        [NAMES[0], ("row 0", "?"), ("?", NAMES[0, 1]), ("?", "!")]
    )
    assert known == fit.predict(0, 0)
    assert new_row == pytest.approx(fit.mu + fit.row_intercepts[0], rel=1e-14)
    assert new_col == pytest.approx(fit.mu + fit.col_intercepts[0], rel=1e-14)
    assert new_both == fit.mu == pytest.approx(expectile(R.data, 0.2), rel=1e-14)
    plain = ExpectilePairRegressor(0.2, intercepts=False, **FEW).fit(NAMES, R.data)
    assert np.isnan(plain.predict([("?", NAMES[0, 1])])).all()


@pytest.mark.parametrize("intercepts", [False, True])
def test_a_weight_equals_repeating_the_observation(intercepts):
    weights = np.arange(R.nnz) % 4
    model = ExpectilePairRegressor(0.2, intercepts=intercepts, **FEW)
    weighted = clone(model).fit(NAMES, R.data, sample_weight=weights)
    repeated = clone(model).fit(NAMES.repeat(weights, axis=0), R.data.repeat(weights))
    np.testing.assert_allclose(weighted.predict(NAMES), repeated.predict(NAMES), rtol=1e-9)
    score = weighted.score(NAMES, R.data, sample_weight=weights)
    again = weighted.score(NAMES.repeat(weights, axis=0), R.data.repeat(weights))
    assert score == pytest.approx(again, rel=1e-12)


def test_the_score_is_r2_at_one_half_and_the_skill_elsewhere():
    y = R.data
    model = ExpectilePairRegressor(0.5, **FEW).fit(PAIRS, y)
    assert model.score(PAIRS, y) == pytest.approx(r2_score(y, model.predict(PAIRS)), rel=1e-12)
    model = ExpectilePairRegressor(0.1, **FEW).fit(PAIRS, y)
    losses = [expectile_loss(y - guess, 0.1) for guess in (model.predict(PAIRS), expectile(y, 0.1))]
    assert model.score(PAIRS, y) == pytest.approx(1 - losses[0] / losses[1], rel=1e-12)
    assert np.isnan(model.score(PAIRS[:3], [0.1, 0.1, 0.1]))


def test_cross_validation_holds_out_observations():
    model = ExpectilePairRegressor(0.2, **FEW)
    folds = KFold(3, shuffle=True, random_state=0)
    train, test = next(folds.split(NAMES))
    by_hand = clone(model).fit(NAMES[train], R.data[train]).score(NAMES[test], R.data[test])
    assert cross_val_score(model, NAMES, R.data, cv=folds)[0] == by_hand
    search = GridSearchCV(model, {"k": [1, 2], "reg": ["auto", 100.0]}, cv=folds)
    search.fit(NAMES, R.data)
    assert search.best_params_["reg"] == "auto"  # 100 removes the factors
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.predict(NAMES[:2]).shape == (2,)


@pytest.mark.compiled
@pytest.mark.parametrize("k", [0, 2])
def test_the_regressor_is_tuned(k):
    data = make_skewed(30, 25, rank=2, noise=0.2, density=0.8, random_state=1).R.tocoo()
    pairs = np.column_stack([data.row, data.col])
    model = ExpectilePairRegressor(0.7, k=k, n_jobs=1).fit(pairs, data.data)
    fit = model.factorization_
    assert fit.k == k
    assert fit.tuning.best is not None
    assert np.array_equal(model.predict(pairs), fit.predict(data.row, data.col))
    one, other = model.predict([(99, data.col[0]), (99, 99)])  # unknown row, unknown pair
    place = fit.col_labels.positions([data.col[0]], what="cols")[0]
    # A new row has no intercept, effect 0 and the mean noise, a variance of 1.
    c = fit.col_intercepts[place]
    known, of_col = dict.fromkeys(STATISTICS, 0.0), {"product": c}
    if fit.corrections:
        noise = float(np.log(fit.cols.noise.variances[place]))
        of_col |= {"column effect": fit.cols.effects.values[place], "column noise": noise}

    def added(statistics):
        return sum(t.at(*(np.array(statistics[name]) for name in t.over)) for t in fit.corrections)

    assert other == pytest.approx(fit.constant + added(known), rel=1e-13)
    assert one == pytest.approx(fit.constant + c + added(known | of_col), rel=1e-13)


def test_rank_0_transforms_rows_to_their_intercepts():
    model = ExpectileFactorization(0.2, k=0, intercepts=True, n_jobs=1).fit(R)
    X = model.transform(R)
    assert X.shape == (14, 1)
    assert np.array_equal(X, model.factorization_.fold_in(R).row_intercepts[:, None])
    assert model.inverse_transform(X).shape == R.shape


# --- regressor of quantiles -----------------------------------------------------------------

MANY = make_skewed(30, 20, rank=2, density=0.6, random_state=1).R.tocoo()
MANY_PAIRS = np.column_stack([MANY.row, MANY.col])
MEDIAN = {"k": 1, "reg": 0.1, "n_jobs": 1}


@pytest.mark.compiled
def test_the_quantile_regressor_equals_complete_quantiles():
    model = QuantilePairRegressor(0.9, **MEDIAN).fit(MANY_PAIRS, MANY.data)
    table = pa.table({"a": MANY.row, "b": MANY.col, "y": MANY.data})
    named = {"rows": "a", "cols": "b", "values": "y"}
    quantiles = fastemf.complete_quantiles(table, 0.9, **named, **MEDIAN)
    assert np.array_equal(model.predict(MANY_PAIRS), quantiles.predict(MANY.row, MANY.col)[:, 0])
    assert model.quantiles_.coverage == quantiles.coverage
    assert model.n_iter_ >= 1
    new = model.predict([(99, 99), (99, MANY.col[0])])
    expected = quantiles.predict([99, 99], [99, MANY.col[0]], unknown="model")
    assert np.array_equal(new, expected[:, 0])


@pytest.mark.compiled
def test_the_score_of_a_quantile_is_its_skill_relative_to_a_constant():
    y = MANY.data
    model = QuantilePairRegressor(0.8, **MEDIAN).fit(MANY_PAIRS, y)

    def loss(predicted, v):
        r = y - predicted
        return np.sum(v * np.maximum(0.8 * r, -0.2 * r))

    for weights in (None, 1.0 + np.arange(y.size) % 3):
        v = 1.0 if weights is None else weights
        expected = 1 - loss(model.predict(MANY_PAIRS), v) / min(loss(one, v) for one in y)
        assert model.score(MANY_PAIRS, y, weights) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(model.score(MANY_PAIRS[:3], [0.1, 0.1, 0.1]))
    close = d2_pinball_score(y, model.predict(MANY_PAIRS), alpha=0.8)  # interpolates the constant
    assert model.score(MANY_PAIRS, y) == pytest.approx(close, abs=0.01)


@pytest.mark.compiled
def test_a_grid_search_holds_out_groups_of_pairs():
    twice, y = np.tile(MANY_PAIRS, (2, 1)), np.tile(MANY.data, 2)
    groups = twice[:, 0] * 20 + twice[:, 1]
    folds = GroupKFold(2)
    model = QuantilePairRegressor(0.8, **MEDIAN)
    search = GridSearchCV(model, {"k": [0, 1], "quantile": [0.8]}, cv=folds)
    search.fit(twice, y, groups=groups)
    train, test = next(folds.split(twice, y, groups))
    by_hand = clone(model).set_params(k=0).fit(twice[train], y[train]).score(twice[test], y[test])
    assert search.cv_results_["split0_test_score"][0] == by_hand
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.predict(twice[:2]).shape == (2,)
    read = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(read.predict(twice), search.predict(twice))


@pytest.mark.compiled
@pytest.mark.parametrize("form", ["pandas", "polars", "array", "list"])
def test_further_columns_are_side_features(form):
    hours = np.arange(MANY.nnz) % 24
    zones = np.array(["a", "b", "c"])[hours % 3]
    y = MANY.data + 0.5 * hours
    table = pd.DataFrame({"a": MANY.row, "b": MANY.col, "hour": hours, "zone": zones})
    quantiles = fastemf.complete_quantiles(
        table.assign(y=y), 0.8, rows="a", cols="b", values="y", features=["hour", "zone"], **MEDIAN
    )
    expected = quantiles.predict(table)[:, 0]
    given = {
        "pandas": lambda: table, "array": lambda: table.to_numpy(object),
        "polars": lambda: pytest.importorskip("polars").DataFrame(table.to_dict("list")),
        "list": lambda: table.to_numpy(object).tolist(),
    }[form]()  # fmt: skip
    model = QuantilePairRegressor(0.8, **MEDIAN).fit(given, y)
    assert np.array_equal(model.predict(given), expected)
    # Old versions of scikit-learn do not know the names of polars.
    names = getattr(model, "feature_names_in_", ["x0", "x1", "x2", "x3"])
    assert model.quantiles_.features.observed.names == tuple(names[2:])
    assert form != "pandas" or list(names) == list(table.columns)
    numbers = table[["a", "b", "hour"]].to_numpy(float)
    weights = np.arange(y.size) % 2  # zeros take some observations out
    model = QuantilePairRegressor(0.8, **MEDIAN).fit(numbers, y, sample_weight=weights)
    again = clone(model).fit(numbers[1::2], y[1::2])
    assert np.array_equal(model.predict(numbers), again.predict(numbers))
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(MANY_PAIRS)


# --- all estimators -------------------------------------------------------------------------


PAIR, RARE = ExpectilePairRegressor(k=1), QuantilePairRegressor(0.99, **MEDIAN)


def fitted_ones():
    return ExpectileFactorization(k=1).fit(np.ones((3, 2)))


def test_a_failed_fit_leaves_the_model_unfitted():
    for model, width in ((ExpectilePairRegressor(), 3), (QuantilePairRegressor(), 1)):
        with pytest.raises(ValueError, match=rf"X must have two columns, .* got {width} feature"):
            model.fit(np.ones((4, width)), np.ones(4))
        with pytest.raises(NotFittedError):
            model.predict(PAIRS)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ExpectileFactorization(k=10).fit(R), ValueError, r"k must be at most .* = 9"),
        (lambda: ExpectileFactorization().fit((R.row, R.col, R.data)), TypeError, "coo_array"),
        (lambda: ExpectileFactorization().fit([[1, 2], [np.inf, 1]]), ValueError, "inf at row 1, "),
        (lambda: ExpectileFactorization().transform(R), NotFittedError, "not fitted"),
        (lambda: RARE.fit(MANY_PAIRS, MANY.data), ValueError, r"at least 20 cells .* got 0\.99"),
        (lambda: fitted_ones().inverse_transform([[1, 2]]), ValueError, r"X must have shape \(1, "),
        (lambda: fitted_ones().transform(np.ones((1, 3))), ValueError, "X has 3 features, but Exp"),
        (lambda: PAIR.fit([[0.5, 1]], [1]), ValueError, "rows must hold labels, .* got 0.5 at pos"),
        (lambda: PAIR.fit([["a", "b"], ["a", None]], [1, 2]), ValueError, "cols must have no null"),
        (lambda: PAIR.fit(PAIRS, R.data).predict(NAMES), TypeError, "rows must be integers, as th"),
        (lambda: PAIR.fit(PAIRS, R.data, -R.data), ValueError, "Negative values in data passed t"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.filterwarnings("error")
def test_infinities_of_both_signs_are_refused_without_a_warning():
    model, both = ExpectilePairRegressor(**FEW), np.array([np.inf, -np.inf, 1.0, 2.0])
    pairs, y = [(0, 0), (0, 1), (1, 0), (1, 1)], np.arange(1.0, 5)
    for arguments in ((pairs, both), (pairs, y, both), (np.column_stack([both, y]), y)):
        with pytest.raises(ValueError, match="infinity"):
            model.fit(*arguments)
    model.set_params(reg=0.1).fit(pairs, y)
    with pytest.raises(ValueError, match="infinity"):
        model.score(pairs, both)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "fastemf.estimators")
    monkeypatch.delattr(fastemf, "ExpectileFactorization")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fastemf\[sklearn\]'"):
        fastemf.ExpectileFactorization  # noqa: B018
    assert importlib.import_module("fastemf.completion").complete is complete


def test_whole_floats_are_labels_in_lists_and_arrays():
    lists = PAIRS.astype(float).tolist()
    one = ExpectilePairRegressor(**FEW).fit(lists, R.data)
    two = ExpectilePairRegressor(**FEW).fit(PAIRS.astype(float), R.data)
    np.testing.assert_array_equal(one.predict(lists), two.predict(PAIRS))
    with pytest.raises(ValueError, match=r"rows must hold labels, if floats then whole.*got 0\.5"):
        one.predict([[0.5, 1.0], [1, 1.0]])


def test_a_solver_is_cloned_and_passed_on():
    solver = fastemf.Solver(momentum=False)
    model = clone(ExpectilePairRegressor(0.2, solver=solver, **FEW))
    assert model.solver == solver
    expected = ExpectilePairRegressor(0.2, **FEW).set_params(solver=solver).fit(PAIRS, R.data)
    assert np.array_equal(model.fit(PAIRS, R.data).factorization_.X, expected.factorization_.X)
    assert not any(record.extrapolation for record in model.factorization_.history)
