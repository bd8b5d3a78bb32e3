"""Side features in the methods of a model that take data, and of labels that it does not have."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fastemf
from fastemf.metrics import pinball_loss

pytestmark = pytest.mark.compiled

NAMES = {"rows": "viewer", "cols": "video", "values": "s"}
OBSERVED = ["hour", "day"]
TAUS = (0.5, 0.8)


def make_log(size=500, seed=0):
    rng = np.random.default_rng(seed)
    viewer, video = rng.integers(20, size=size), rng.integers(12, size=size)
    hour, day = rng.integers(24, size=size), rng.choice(["sat", "sun"], size)
    logs = 0.03 * AGES[viewer] + 0.06 * hour + (day == "sun") + 0.1 * video
    s = np.exp(logs + 0.2 * rng.standard_normal(size))
    columns = {"viewer": [f"v{at}" for at in viewer], "video": video, "s": s}
    return pd.DataFrame(columns | {"hour": hour, "day": day})


AGES = np.random.default_rng(1).integers(20, 70, 40).astype(float)
VIEWERS = pd.DataFrame({"viewer": [f"v{at}" for at in range(40)], "age": AGES})
LOG = make_log()
NEW = make_log(60, seed=2).assign(viewer="v30")
HELD_OUT = pd.concat([NEW, make_log(100, seed=3)], ignore_index=True)


def fit(R, **given):
    return fastemf.complete_quantiles(R, TAUS, 1, reg=1, max_iter=5, **given)


@cache
def fitted():
    return fit(LOG, **NAMES, features=OBSERVED, row_features=VIEWERS)


@cache
def without_labels():
    """The same model of triplets, whose rows are in another order."""
    rows = LOG.viewer.str[1:].astype(int).to_numpy()
    features = {name: LOG[name].to_numpy() for name in OBSERVED}
    R = (rows, LOG.video.to_numpy(), LOG.s.to_numpy())
    return R, features, fit(R, features=features, row_features={"age": AGES[:20]})


def ages_of(log):
    return {"age": AGES[log.viewer.str[1:].astype(int)]}


# --- features by label ------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "index", "dict", "arrow", "csv"])
def test_features_of_rows_by_label_equal_those_by_cell(form, tmp_path):
    VIEWERS.to_csv(tmp_path / "viewers.csv", index=False)
    given = {
        "frame": lambda: VIEWERS[::-1], "index": lambda: VIEWERS.set_index("viewer"),
        "dict": lambda: VIEWERS.to_dict("list"), "csv": lambda: tmp_path / "viewers.csv",
        "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(VIEWERS),
    }[form]()  # fmt: skip
    predicted = fitted().predict(HELD_OUT, row_features=given)
    expected = fitted().predict(
        HELD_OUT.viewer, HELD_OUT.video, features=HELD_OUT[OBSERVED], row_features=ages_of(HELD_OUT)
    )
    np.testing.assert_array_equal(predicted, expected)
    assert not np.array_equal(predicted, fitted().predict(HELD_OUT, unknown="model"))
    shaped = fitted().predict(NEW.viewer[0], [[1, 2]], row_features=given)
    assert shaped.shape == (1, 2, len(TAUS))
    best = fitted().rank(["v30", "v2"], 12, order="smallest", tau=0.8, row_features=given)
    for row, cols, values in zip(("v30", "v2"), best.cols, best.values, strict=True):
        again = fitted().predict([row] * 12, cols.astype(int), row_features=given)
        np.testing.assert_array_equal(values, again[:, 1])


def test_features_from_a_stream_are_read_once():
    table = pytest.importorskip("pyarrow").Table.from_pandas(VIEWERS)
    found = fitted().predict(NEW, row_features=table.to_reader())
    np.testing.assert_array_equal(found, fitted().predict(NEW, row_features=table))


def test_categories_in_files_are_text(tmp_path):
    lines = VIEWERS.assign(zone=np.array(["01234", "7", "x"])[np.arange(40) % 3])
    quantiles = fit(LOG, **NAMES, features=OBSERVED, row_features=lines)
    lines[30:31].to_csv(tmp_path / "v30.csv", index=False)  # its zone looks like a number
    path = tmp_path / "v30.csv"
    found = quantiles.fold_in(NEW, row_features=path).features.rows
    own = quantiles.features.rows.values[quantiles.axes[0].positions(["v0"], "rows")]
    assert found.values[0, 1] == own[0, 1]
    given = {name: lines[name][30] for name in ("age", "zone")}
    expected = quantiles.predict(NEW.viewer, NEW.video, features=NEW[OBSERVED], row_features=given)
    np.testing.assert_array_equal(quantiles.predict(NEW, row_features=path), expected)


def test_known_labels_without_a_line_keep_their_features():
    known = HELD_OUT[60:]
    lines = pd.DataFrame({"viewer": ["v30"], "age": [33.0]})
    np.testing.assert_array_equal(
        fitted().predict(known, row_features=lines), fitted().predict(known)
    )


def test_models_without_labels_take_features_in_index_order(tmp_path):
    _, _, quantiles = without_labels()
    other = AGES[:20][::-1]
    pd.DataFrame({"age": other}).to_csv(tmp_path / "rows.csv", index=False)
    found = quantiles.predict([3, 5], 2, row_features=tmp_path / "rows.csv")
    expected = quantiles.predict([3, 5], 2, row_features={"age": other[[3, 5]]})
    np.testing.assert_array_equal(found, expected)


# --- evaluate and summary ---------------------------------------------------------------------


def same_losses(evaluation, log, predicted):
    for place, tau in enumerate(TAUS):
        loss = pinball_loss(log.s.to_numpy(), predicted[:, place], tau)
        assert evaluation.score(tau=tau).pinball == pytest.approx(loss, rel=1e-12)


def test_evaluations_use_the_features(tmp_path):
    predicted = fitted().predict(HELD_OUT, row_features=VIEWERS)
    same_losses(fitted().evaluate(HELD_OUT, row_features=VIEWERS), HELD_OUT, predicted)
    HELD_OUT.to_csv(tmp_path / "log.csv", index=False)
    found = fitted().evaluate(str(tmp_path / "log.csv"), row_features=VIEWERS)
    same_losses(found, HELD_OUT, predicted)
    without = fitted().predict(HELD_OUT.drop(columns="hour"), unknown="model")
    found = fitted().evaluate(HELD_OUT.drop(columns="hour"), unknown="model")
    same_losses(found, HELD_OUT, without)
    assert not np.array_equal(without, predicted)
    triplets = (HELD_OUT.viewer, HELD_OUT.video, HELD_OUT.s)
    given = {name: HELD_OUT[name].to_numpy() for name in OBSERVED}
    found = fitted().evaluate(triplets, features=given, row_features=VIEWERS)
    same_losses(found, HELD_OUT, predicted)


def test_evaluations_of_matrices_use_features_of_rows():
    matrix = HELD_OUT.groupby(["viewer", "video"]).s.first().unstack()
    cells = matrix.stack().rename("s").dropna().reset_index()
    predicted = fitted().predict(cells.viewer, cells.video, row_features=ages_of(cells))
    same_losses(fitted().evaluate(matrix, row_features=VIEWERS), cells, predicted)


def test_unknown_labels_need_features_or_a_treatment():
    with pytest.raises(ValueError, match=r"unknown labels: 1 in rows \('v30'\)"):
        fitted().evaluate(HELD_OUT)
    with pytest.raises(ValueError, match=r"unknown labels: 1 in cols \(99\)"):
        fitted().evaluate(HELD_OUT.replace({"video": {3: 99}}), row_features=VIEWERS)
    evaluation = fitted().evaluate(HELD_OUT, unknown="nan", row_features=VIEWERS)
    assert (evaluation.observations, evaluation.left_out) == (100, 60)


@pytest.mark.parametrize("axis", [0, 1])
def test_summaries_use_the_features(axis):
    known = HELD_OUT[60:]
    residuals = known.s - fitted().predict(known)[:, 1]
    losses = np.maximum(0.8 * residuals, -0.2 * residuals)
    expected = losses.groupby(known[["viewer", "video"][axis]]).mean()
    triplets = (known.viewer, known.video, known.s)
    given = {name: known[name].to_numpy() for name in OBSERVED}
    for R, features in ((known, None), (triplets, given)):
        found = fitted().summary(R, axis, tau=0.8, features=features)
        seen = found.observations > 0
        np.testing.assert_allclose(found.loss[seen], expected[found.ids[seen]], rtol=1e-10)


def test_sparse_matrices_and_triplets_without_labels():
    (rows, cols, s), features, quantiles = without_labels()
    other = {"age": AGES[:20][::-1]}
    found = quantiles.evaluate((rows, cols, s), features=features, row_features=other)
    given = {"age": other["age"][rows]}
    predicted = quantiles.predict(rows, cols, features=features, row_features=given)
    same_losses(found, LOG, predicted)
    predicted = quantiles.predict(rows, cols, features=features)
    log = LOG.assign(viewer=rows)
    matrix = sp.coo_array((s, (rows, cols)), shape=quantiles.shape)
    for R in ((rows, cols, s), matrix):
        same_losses(quantiles.evaluate(R, features=features), log, predicted)
        loss = quantiles.summary(R, tau=0.8, features=features).loss
        residuals = s - predicted[:, 1]
        by_row = pd.Series(np.maximum(0.8 * residuals, -0.2 * residuals)).groupby(rows).mean()
        np.testing.assert_allclose(loss, by_row, rtol=1e-10)


# --- new rows ---------------------------------------------------------------------------------


def test_indices_beyond_the_last_are_new_without_labels(tmp_path):
    (rows, cols, s), features, quantiles = without_labels()
    m, n = quantiles.shape
    asked = {"features": {"hour": 3, "day": "sun"}, "row_features": {"age": [AGES[30], AGES[3]]}}
    new = quantiles.predict([m, 3], 2, **asked)
    np.testing.assert_array_equal(quantiles.predict([m + 7, 3], 2, **asked), new)
    assert not np.array_equal(quantiles.predict(m, 2, unknown="model"), new[0])
    high = quantiles.interval([m, 3], 2, coverage=0.5, side="below", **asked).upper
    np.testing.assert_array_equal(high, new[:, 0])
    own = {"features": asked["features"], "row_features": {"age": AGES[30]}}
    found = quantiles.explain(m, 2, tau=0.5, **own)
    assert found.value == new[0, 0]
    assert found.notes[0].startswith("the row is new")
    best = quantiles.rank([m, 3], n, order="smallest", tau=0.5, **asked)
    for row, cols_of, values, age in zip((m, 3), *best, asked["row_features"]["age"], strict=True):
        given = {"features": asked["features"], "row_features": {"age": age}}
        np.testing.assert_array_equal(quantiles.predict(row, cols_of, **given)[:, 0], values)
    hidden = quantiles.predict([[m, 3], [3, 3]], [[2, n], [n, 2]], unknown="nan")
    assert np.isnan(hidden[..., 0]).tolist() == [[True, True], [True, False]]

    # An evaluation, with a line per index: those of new rows follow those of the model.
    held_out = np.append(rows, [m, m + 1]), np.append(cols, [0, 1]), np.append(s, [9.0, 11.0])
    lines = pd.DataFrame({"age": AGES[: m + 2]})
    lines.to_csv(tmp_path / "rows.csv", index=False)
    more = {name: np.append(column, column[:2]) for name, column in features.items()}
    ages = {"age": AGES[held_out[0]]}
    predicted = quantiles.predict(*held_out[:2], features=more, row_features=ages)
    for given in (lines, tmp_path / "rows.csv"):
        found = quantiles.evaluate(held_out, features=more, row_features=given)
        same_losses(found, pd.DataFrame({"s": held_out[2]}), predicted)
    matrix = sp.coo_array((held_out[2], held_out[:2]), shape=(m + 5, n))
    found = quantiles.evaluate(matrix, unknown="model", features=more)
    predicted = quantiles.predict(*held_out[:2], features=more, unknown="model")
    same_losses(found, pd.DataFrame({"s": held_out[2]}), predicted)
    found = quantiles.evaluate(held_out, unknown="nan", features=more)
    assert (found.observations, found.left_out) == (len(rows), 2)


def test_indices_beyond_the_last_are_errors_by_default():
    _, _, quantiles = without_labels()
    m, n = quantiles.shape
    ages, R = {"age": [40.0]}, (np.array([m]), np.array([n]), np.array([1.0]))
    for call in (
        lambda: quantiles.predict([m], 2),
        lambda: quantiles.predict([m], n, row_features=ages),
        lambda: quantiles.explain(m, 2, tau=0.5),
        lambda: quantiles.rank(m, 2, order="smallest", tau=0.5),
        lambda: quantiles.evaluate(R),
        lambda: quantiles.evaluate(R, row_features={"age": AGES[: m + 1]}),
        lambda: quantiles.predict([-1], 2, unknown="model"),
        lambda: quantiles.rank([-1], 2, order="smallest", tau=0.5, unknown="model"),
    ):
        with pytest.raises(IndexError, match=r"must (be below|not be negative)"):
            call()
    with pytest.raises(ValueError, match="must have one value per row"):
        quantiles.evaluate(R, unknown="model", row_features={"age": AGES[:3]})
    small = np.ones((m - 1, n))
    with pytest.raises(ValueError, match="must have at least the fit's shape"):
        quantiles.evaluate(small, unknown="model")


def test_folded_in_rows_have_features():
    new = fitted().fold_in(NEW, row_features=VIEWERS)
    assert new.features.rows.values.tolist() == [[AGES[30]]]
    more = fitted().extend(NEW, row_features=VIEWERS)
    np.testing.assert_array_equal(more.predict(NEW), new.predict(NEW))
    np.testing.assert_array_equal(more.predict(LOG), fitted().predict(LOG))
    absent = fitted().fold_in(NEW)
    assert np.isnan(absent.features.rows.values).all()
    replaced = absent.predict(NEW, row_features=VIEWERS)
    np.testing.assert_array_equal(replaced, new.predict(NEW))


# --- figures ------------------------------------------------------------------------------------


def test_reports_predict_with_the_features():
    from fastemf.reporting.evaluated_model import read_evaluated

    known = HELD_OUT[60:]
    expected = fitted().predict(known).T
    evaluated = read_evaluated(fitted(), known, "error", (None, None, None), None, None)
    np.testing.assert_array_equal(evaluated.predicted, expected)
    triplets = (known.viewer, known.video, known.s)
    given = {name: known[name].to_numpy() for name in OBSERVED}
    page = fastemf.report(fitted(), triplets, features=given)
    assert page != fastemf.report(fitted(), triplets)
    assert page == fastemf.report(fitted(), known)


def test_plots_of_levels_take_features():
    figure = pytest.importorskip("matplotlib.figure")
    given = {"hour": 20, "day": "sun"}
    ax = fastemf.plot.levels(fitted(), "v3", features=given, ax=figure.Figure().subplots())
    expected = np.sort(fitted().predict_block(["v3"], features=given)[0, :, 0])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), expected)


# --- errors ---------------------------------------------------------------------------------------


def test_errors():
    with pytest.raises(ValueError, match="col_features must be None for axis=0, whose new rows"):
        fitted().fold_in(NEW, col_features=VIEWERS)
    with pytest.raises(ValueError, match="row_features must be None for axis=1, whose new col"):
        fitted().extend(NEW, axis=1, row_features=VIEWERS)
    with pytest.raises(ValueError, match=r"those of the model \(age\), got 'height'"):
        fitted().fold_in(NEW, row_features=VIEWERS.rename(columns={"age": "height"}))
    with pytest.raises(ValueError, match=r"those of the model \(age\), got 'height'"):
        fitted().evaluate(NEW, row_features=VIEWERS.rename(columns={"age": "height"}))
    with pytest.raises(ValueError, match="one line per label, got 'v0' 2 times"):
        fitted().predict(NEW, row_features=pd.concat([VIEWERS, VIEWERS]))
    with pytest.raises(TypeError, match="table with the labels of the rows in column 'viewer'"):
        fitted().evaluate(NEW, row_features=VIEWERS[["age"]].to_dict("list"))


def test_models_without_features_refuse_them():
    with warnings.catch_warnings(action="ignore"):
        plain = fastemf.complete(LOG[list(NAMES.values())], 0.5, 1, reg=1, max_iter=3, **NAMES)
    calls = {
        "features": (plain.evaluate, plain.summary),
        "row_features": (plain.evaluate, plain.fold_in, plain.extend),
        "col_features": (plain.evaluate,),
    }
    for name, methods in calls.items():
        for method in methods:
            with pytest.raises(ValueError, match=f"{name} must be None for a model without side"):
                method(LOG, **{name: VIEWERS})
