from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import fastemf
from fastemf import complete
from fastemf.datasets import make_skewed
from fastemf.loss import expectile, expectile_loss

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import d2_pinball_score, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
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
                "test_a_weight_is_a_repeated_observation does the same with pairs"
            ),
        }
    return {} if estimator.k == 1 else dict.fromkeys(
        ("check_fit2d_1sample", "check_fit2d_1feature"), TOO_SMALL
    )  # fmt: skip


def pairs_of(estimator, X, *args, enforce=estimator_checks._enforce_estimator_tags_X, **kwargs):
    """The hook by which the checks fit X to an estimator's tags; none says "two columns"."""
    X = enforce(estimator, X, *args, **kwargs)
    return X[:, :2] if isinstance(estimator, PAIR_REGRESSORS) else X


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
    monkeypatch.setattr("fastemf.quantiles.FEWEST_BEYOND", 0)  # the checks have 20 samples
    check(estimator)


# --- the transformer -----------------------------------------------------------------------


@pytest.mark.parametrize("intercepts", [False, True])
def test_the_transformer_is_complete_and_fold_in(intercepts):
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


@pytest.mark.parametrize("form", ["array", "masked", "table", "list", "float32"])
def test_every_form_of_a_matrix_says_the_same(form):
    pd = pytest.importorskip("pandas")
    dense = np.full(R.shape, np.nan)
    dense[R.row, R.col] = R.data
    given = {
        "array": dense,
        "masked": np.ma.array(np.nan_to_num(dense, nan=-99.0), mask=np.isnan(dense)),
        "table": pd.DataFrame(dense, columns=list("abcdefghi")),
        "list": dense.tolist(),
        "float32": dense.astype(np.float32),
    }[form]
    model = ExpectileFactorization(0.2, **FEW).fit(given)
    fit = complete(R.astype(np.float32) if form == "float32" else R, 0.2, **FEW)
    assert np.array_equal(model.factorization_.X, fit.X)
    assert model.transform(given).dtype == fit.X.dtype
    assert hasattr(model, "feature_names_in_") == (form == "table")


def test_repeated_entries_of_a_sparse_matrix_stay_separate():
    twice = sp.coo_array((np.r_[R.data, R.data + 1], (np.r_[R.row, R.row], np.r_[R.col, R.col])))
    model = ExpectileFactorization(0.2, **FEW).fit(twice)
    assert np.array_equal(model.factorization_.X, complete(twice, 0.2, **FEW).X)


def test_the_transformers_score_is_the_skill_of_the_rows_folded_in():
    new = np.array([[1.0, np.nan, 2.0, 5.0], [4.0, 1.0, np.nan, 2.0]])
    model = ExpectileFactorization(0.2, k=1, reg=0.1).fit(np.outer([1, 2, 4], [2, 3, 5, 1]))
    observed = ~np.isnan(new)
    r = (new - model.inverse_transform(model.transform(new)))[observed]
    constant = expectile_loss(new[observed] - expectile(new[observed], 0.2), 0.2)
    assert model.score(new) == pytest.approx(1 - expectile_loss(r, 0.2) / constant, rel=1e-12)


def test_transformed_rows_feed_a_pipeline_and_tables():
    pytest.importorskip("pandas")
    y = np.arange(14.0)
    pipe = make_pipeline(ExpectileFactorization(0.2, **FEW), LinearRegression())
    by_hand = LinearRegression().fit(ExpectileFactorization(0.2, **FEW).fit_transform(R), y)
    expected = by_hand.predict(pipe.fit(R, y)[0].transform(R))
    np.testing.assert_allclose(pipe.predict(R), expected, rtol=1e-9)
    table = ExpectileFactorization(0.2, **FEW).set_output(transform="pandas").fit_transform(R)
    assert list(table) == ["expectilefactorization0", "expectilefactorization1"]


# --- the regressor -------------------------------------------------------------------------


def test_the_regressor_is_complete_and_predict():
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
def test_every_form_of_pairs_says_the_same(form):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    given = {
        "strings": NAMES,
        "unicode": NAMES.astype(str),
        "lists": NAMES.tolist(),
        "pandas": pd.DataFrame(NAMES, columns=["client", "service"]),
        "polars": pl.DataFrame({"client": NAMES[:, 0].tolist(), "service": NAMES[:, 1].tolist()}),
        "mixed": pd.DataFrame({"client": PAIRS[:, 0], "service": NAMES[:, 1]}),
    }[form]
    model = ExpectilePairRegressor(0.2, **FEW)
    expected = clone(model).fit(PAIRS, R.data).predict(PAIRS)
    assert np.array_equal(model.fit(given, R.data).predict(given), expected)
    weights = np.arange(R.nnz) % 3.0  # takes some observations out
    expected = clone(model).fit(PAIRS, R.data, weights).predict(PAIRS)
    assert np.array_equal(model.fit(given, R.data, weights).predict(given), expected)


def test_labels_of_a_table_are_not_rounded():
    pd = pytest.importorskip("pandas")
    large = 2**62 + np.array([0, 1, 0, 1])  # one and the same as floats
    table = pd.DataFrame({"a": large, "b": [0.0, 0.0, 1.0, 1.0]})
    model = ExpectilePairRegressor(k=1).fit(table, [1.0, 2.0, 3.0, 4.0])
    assert model.factorization_.shape == (2, 2)


def test_pairs_never_seen_get_what_is_known():
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
def test_a_weight_is_a_repeated_observation(intercepts):
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
    scores = cross_val_score(model, NAMES, R.data, cv=folds)
    train, test = next(folds.split(NAMES))
    by_hand = clone(model).fit(NAMES[train], R.data[train]).score(NAMES[test], R.data[test])
    assert scores[0] == by_hand
    search = GridSearchCV(model, {"k": [1, 2], "reg": ["auto", 100.0]}, cv=folds)
    search.fit(NAMES, R.data)
    assert search.best_params_["reg"] == "auto"  # 100 leaves nothing of the factors
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.predict(NAMES[:2]).shape == (2,)


@pytest.mark.compiled
@pytest.mark.parametrize("k", [0, 2])
def test_enough_pairs_are_tuned(k):
    data = make_skewed(30, 25, rank=2, noise=0.2, density=0.8, random_state=1).R.tocoo()
    pairs = np.column_stack([data.row, data.col])
    model = ExpectilePairRegressor(0.7, k=k, n_jobs=1).fit(pairs, data.data)
    fit = model.factorization_
    assert fit.k == k
    assert fit.tuning.best is not None
    predicted = fit.predict(data.row, data.col)
    assert np.array_equal(model.predict(pairs), predicted)
    one, other = model.predict([(99, data.col[0]), (99, 99)])  # unknown row, unknown pair
    place = fit.col_labels.positions([data.col[0]], what="cols")[0]
    # What is unknown has no intercept, level 0 and the mean's noise: variance 1.
    c = fit.col_intercepts[place]
    known = dict.fromkeys(
        ("row level", "row noise", "column level", "column noise", "product"), 0.0
    )
    of_col = {"product": c}
    if fit.tables:
        noise = float(np.log(fit.cols.noise.variances[place]))
        of_col |= {"column level": fit.cols.levels.values[place], "column noise": noise}

    def added(statistics):
        return sum(t.at(*(np.array(statistics[name]) for name in t.over)) for t in fit.tables)

    assert other == pytest.approx(fit.constant + added(known), rel=1e-13)
    assert one == pytest.approx(fit.constant + c + added(known | of_col), rel=1e-13)


def test_rank_0_transforms_rows_to_their_intercepts():
    model = ExpectileFactorization(0.2, k=0, intercepts=True, n_jobs=1).fit(R)
    X = model.transform(R)
    assert X.shape == (14, 1)
    assert np.array_equal(X, model.factorization_.fold_in(R).row_intercepts[:, None])
    assert model.inverse_transform(X).shape == R.shape
    with pytest.raises(ValueError, match="k must be at least 1"):
        ExpectileFactorization(k=0).fit(R)


def test_an_encoder_in_front_changes_nothing():
    pipe = make_pipeline(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        ExpectilePairRegressor(0.2, **FEW),
    )
    plain = ExpectilePairRegressor(0.2, **FEW).fit(NAMES, R.data)
    asked = np.array([NAMES[4], ("row 0", "?")], dtype=object)
    assert np.array_equal(pipe.fit(NAMES, R.data).predict(asked), plain.predict(asked))


# --- a quantile of pairs -------------------------------------------------------------------

MANY = make_skewed(30, 20, rank=2, density=0.6, random_state=1).R.tocoo()
MANY_PAIRS = np.column_stack([MANY.row, MANY.col])
MEDIAN = {"k": 1, "reg": 0.1, "n_jobs": 1}


@pytest.mark.compiled
def test_the_quantile_regressor_is_complete_quantiles():
    model = QuantilePairRegressor(0.9, **MEDIAN).fit(MANY_PAIRS, MANY.data)
    table = pa.table({"a": MANY.row, "b": MANY.col, "y": MANY.data})
    named = {"rows": "a", "cols": "b", "values": "y"}
    quantiles = fastemf.complete_quantiles(table, 0.9, **named, **MEDIAN)
    assert np.array_equal(model.predict(MANY_PAIRS), quantiles.predict(MANY.row, MANY.col)[:, 0])
    assert model.quantiles_.promises == quantiles.promises
    assert model.n_iter_ >= 1
    new = model.predict([(99, 99), (99, MANY.col[0])])
    expected = quantiles.predict([99, 99], [99, MANY.col[0]], unknown="model")
    assert np.array_equal(new, expected[:, 0])


@pytest.mark.compiled
def test_the_score_of_a_quantile_is_its_skill_over_the_best_constant():
    y = MANY.data
    weights = 1.0 + np.arange(y.size) % 3
    model = QuantilePairRegressor(0.8, **MEDIAN).fit(MANY_PAIRS, y)

    def loss(predicted, v):
        r = y - predicted
        return np.sum(v * np.maximum(0.8 * r, -0.2 * r))

    for v, given in ((np.ones(y.size), None), (weights, weights)):
        best = min(loss(constant, v) for constant in y)
        expected = 1 - loss(model.predict(MANY_PAIRS), v) / best
        assert model.score(MANY_PAIRS, y, given) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(model.score(MANY_PAIRS[:3], [0.1, 0.1, 0.1]))
    close = d2_pinball_score(y, model.predict(MANY_PAIRS), alpha=0.8)  # interpolates the constant
    assert model.score(MANY_PAIRS, y) == pytest.approx(close, abs=0.01)


@pytest.mark.compiled
def test_a_search_holds_out_pairs_by_groups():
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


def test_a_quantile_without_enough_pairs_is_refused():
    with pytest.raises(ValueError, match=r"at least 20 cells .* 0\.99 leaves"):
        QuantilePairRegressor(0.99, **MEDIAN).fit(MANY_PAIRS, MANY.data)
    with pytest.raises(NotFittedError):
        QuantilePairRegressor().predict(MANY_PAIRS)


def test_parameters_of_the_quantile_regressor_are_those_of_complete_quantiles():
    theirs = inspect.signature(fastemf.complete_quantiles).parameters
    for name, parameter in inspect.signature(QuantilePairRegressor).parameters.items():
        if name not in ("quantile", "k"):
            assert parameter.default == theirs[name].default


# --- both ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (ExpectileFactorization(0.2, **FEW), (R.tocsr(),)),
        (ExpectilePairRegressor(0.2, **FEW), (NAMES, R.data)),
    ],
)
def test_copies_are_equal(model, data):
    fitted = clone(model).fit(*data)
    read = pickle.loads(pickle.dumps(fitted))
    assert read.score(*data) == fitted.score(*data)
    assert repr(read.factorization_.history) == repr(fitted.factorization_.history)  # NaN is NaN
    assert "omega=0.2" in repr(model)
    other = clone(fitted).set_params(omega=0.9, random_state=1)
    assert not hasattr(other, "factorization_")
    assert other.fit(*data).factorization_.omega == 0.9
    assert fitted.factorization_.omega == 0.2


def test_a_fit_that_failed_is_no_fit():
    model = ExpectilePairRegressor()
    with pytest.raises(ValueError, match="two columns"):
        model.fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(NotFittedError):
        model.predict(PAIRS)


def test_parameters_are_those_of_complete():
    theirs = inspect.signature(complete).parameters
    for model in (ExpectileFactorization, ExpectilePairRegressor):
        for name, parameter in inspect.signature(model).parameters.items():
            if name not in ("omega", "k", "intercepts"):
                assert parameter.default == theirs[name].default
    assert ExpectilePairRegressor().intercepts is True
    assert ExpectileFactorization().intercepts is theirs["intercepts"].default is False


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ExpectileFactorization(omega=2).fit(R), ValueError, "omega must lie strictly"),
        (lambda: ExpectileFactorization(k=10).fit(R), ValueError, r"k must be at most .* = 9"),
        (lambda: ExpectileFactorization().fit((R.row, R.col, R.data)), TypeError, "coo_array"),
        (
            lambda: ExpectileFactorization().fit(np.array([[1.0, 2], [np.inf, 1]])),
            ValueError,
            "got inf at row 1, column 0",
        ),
        (lambda: ExpectileFactorization().transform(R), NotFittedError, "not fitted"),
        (
            lambda: ExpectileFactorization(k=1).fit(np.ones((3, 2))).inverse_transform([[1, 2]]),
            ValueError,
            r"X must have shape \(1, 1\), got \(1, 2\)",
        ),
        (
            lambda: ExpectileFactorization(k=1).fit(np.ones((3, 2))).transform(np.ones((1, 3))),
            ValueError,
            "X has 3 features, but ExpectileFactorization is expecting 2",
        ),
        (lambda: ExpectilePairRegressor().predict(PAIRS), NotFittedError, "not fitted"),
        (
            lambda: ExpectilePairRegressor().fit(np.ones((4, 3)), np.ones(4)),
            ValueError,
            r"X must have two columns, \(row, column\), got 3 feature",
        ),
        (
            lambda: ExpectilePairRegressor().fit([[0.5, 1.0]], [1.0]),
            ValueError,
            "rows must hold labels, if floats then whole numbers, got 0.5 at position 0",
        ),
        (
            lambda: ExpectilePairRegressor().fit(np.array([[0, 1], [1, 2.5]]), [1.0, 2.0]),
            ValueError,
            "cols must hold labels, .* got 2.5 at position 1",
        ),
        (
            lambda: ExpectilePairRegressor().fit([["a", "b"], ["a", None]], [1.0, 2.0]),
            ValueError,
            "cols must have no nulls",
        ),
        (
            lambda: ExpectilePairRegressor(k=1).fit(PAIRS, R.data).predict(NAMES),
            TypeError,
            "rows must be integers, as the labels are, got strings",
        ),
        (
            lambda: ExpectilePairRegressor().fit(PAIRS, R.data, -np.ones(R.nnz)),
            ValueError,
            "Negative values in data passed to `sample_weight`",
        ),
        (
            lambda: ExpectilePairRegressor(k=1).fit(PAIRS, R.data).score(PAIRS, R.data[1:]),
            ValueError,
            "must have one shape",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_explained(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.filterwarnings("error")
def test_infinities_of_both_signs_are_refused_without_a_warning():
    model, both = ExpectilePairRegressor(**FEW), np.array([np.inf, -np.inf, 1.0, 2.0])
    pairs, y = [(0, 0), (0, 1), (1, 0), (1, 1)], np.arange(1.0, 5)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(pairs, both)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(pairs, y, sample_weight=both)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.column_stack([both, y]), y)
    model.set_params(reg=0.1).fit(pairs, y)
    with pytest.raises(ValueError, match="infinity"):
        model.score(pairs, both)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "fastemf.estimators")
    monkeypatch.delattr(fastemf, "ExpectileFactorization")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fastemf\[sklearn\]'"):
        fastemf.ExpectileFactorization  # noqa: B018
    assert importlib.import_module("fastemf.completion").complete is complete


def test_a_star_import_needs_no_extra():
    names = {"ExpectileFactorization", "ExpectilePairRegressor", "QuantilePairRegressor"}
    assert not names & set(fastemf.__all__)
    assert names <= set(dir(fastemf))


def test_whole_floats_in_a_list_are_labels_as_they_are_in_an_array():
    lists = PAIRS.astype(float).tolist()
    one = ExpectilePairRegressor(**FEW).fit(lists, R.data)
    two = ExpectilePairRegressor(**FEW).fit(PAIRS.astype(float), R.data)
    np.testing.assert_array_equal(one.predict(lists), two.predict(PAIRS))
    with pytest.raises(ValueError, match=r"rows must hold labels, if floats then whole.*got 0\.5"):
        one.predict([[0.5, 1.0], [1, 1.0]])
