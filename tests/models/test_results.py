"""Results as tables: data frames, HTML for notebooks, text, and predictions as columns."""

from __future__ import annotations

import datetime
import sys
import warnings
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scenes import few_quantiles, refuses

import fastemf
from fastemf import Labels

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore::UserWarning")]

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
HARMFUL = "<b>&\"'\x1b[31m</b>"


def log_of(clients, seed=0, size=150):
    """Lines of clients and services at random, with a long right tail."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(len(clients), size=size), rng.integers(8, size=size)
    ms = (1 + i) * (2 + j) * rng.lognormal(0, 0.5, size)
    return pd.DataFrame({"client": [clients[n] for n in i], "service": j, "ms": ms.round(3)})


LOG = log_of([HARMFUL, *(f"eu-{n}" for n in range(11))])
SETTINGS = {"intercepts": True, "max_iter": 5, **NAMES}
KINDS = {
    "fit": lambda: fastemf.complete(LOG, 0.3, 2, reg=0.1, **SETTINGS),
    "levels": lambda: fastemf.complete_levels(LOG, (0.1, 0.9), 2, reg=0.1, **SETTINGS),
    "quantiles": lambda: few_quantiles(LOG, **NAMES),
}
LEVEL = {"fit": {}, "levels": {"omega": 0.9}, "quantiles": {"tau": 0.7}}
PREDICTIONS = {
    "fit": ["prediction"], "levels": ["omega=0.1", "omega=0.9"], "quantiles": ["p30", "p70"]
}  # fmt: skip


@cache
def made(kind):
    return KINDS[kind]()


@cache
def tuned(task):
    """A model that was tuned, on data with enough cells."""
    R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    levels = {"complete": 0.5, "complete_quantiles": (0.5, 0.9)}.get(task, (0.1, 0.9))
    boost = {"boost": True} if task == "complete_levels with trees" else {}
    return getattr(fastemf, task.split()[0])(R, levels, 2, intercepts=True, **boost)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def same_table(frame, columns):
    """Assert that a data frame has the columns of a result."""
    assert list(frame.columns) == list(columns)
    for name, values in columns.items():
        np.testing.assert_array_equal(frame[name].to_numpy(), np.asarray(values))


# --- data frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [LOG, pl.from_pandas(LOG), pl.from_pandas(LOG).lazy()])
def test_results_are_frames_of_the_library_of_the_data(given, kind):
    model, frames = made(kind), pd if isinstance(given, pd.DataFrame) else pl
    results = (
        model.evaluate(given),
        model.summary(given, **LEVEL[kind]),
        model.rank(["eu-1", "eu-3"], 3, order="smallest", seen=given, **LEVEL[kind]),
    )
    for result in results:
        assert isinstance(result.to_frame(), frames.DataFrame)
        same_table(result.to_frame(), result.columns())
    scores = results[0].to_frame()
    assert scores["name"].to_list() == [one.name for one in results[0].scores]
    assert results[1].to_frame()["row"].to_list() == list(model.row_labels)


def test_a_ranking_has_a_line_for_each_row_and_place(kind):
    model = made(kind)
    ranking = model.rank(["eu-1", "new"], 3, order="largest", unknown="model", **LEVEL[kind])
    frame = ranking.to_frame()
    assert list(frame) == ["client", "place", "service", "prediction"]
    assert frame.client.tolist() == ["eu-1"] * 3 + ["new"] * 3
    assert frame.place.tolist() == [1, 2, 3] * 2
    assert frame.service.tolist() == ranking.cols.ravel().tolist()
    assert frame.prediction.tolist() == ranking.values.ravel().tolist()
    one = model.rank("eu-1", 3, order="largest", **LEVEL[kind])
    pd.testing.assert_frame_equal(one.to_frame(), frame[:3])
    cols, values = one
    assert (cols is one.cols, values is one.values) == (True, True)
    # Places without a column are left out.
    left = model.rank("eu-1", 8, order="largest", seen=LOG, **LEVEL[kind])
    assert len(left.to_frame()) == 8 - LOG[LOG.client == "eu-1"].service.nunique()


def test_similar_rows_and_explanations_are_frames(kind):
    model = made(kind)
    near = model.similar_rows("eu-1", 99)
    assert list(near.to_frame()) == ["client", "distance"]
    assert near.to_frame().client.tolist() == near.others[:-1].tolist()  # not the row itself
    assert list(model.similar_cols(3, 2).to_frame()) == ["service", "distance"]
    explained = model.level(0.9) if kind == "levels" else model
    found = explained.explain("eu-1", 3, **(LEVEL[kind] if kind == "quantiles" else {}))
    frame = found.to_frame()
    assert dict(zip(frame.part, frame.contribution, strict=True)) == found.parts
    assert frame.contribution.abs().is_monotonic_decreasing
    assert frame.contribution.sum() == pytest.approx(found.value)
    assert str(found).splitlines()[0] == f"prediction {found.value:.4g}, the sum of:"
    assert len(str(found).splitlines()) == 2 + len(frame)


def test_coverage_reports_are_frames():
    report = made("quantiles").coverage[1]
    frame = report.to_frame()
    assert frame["cells of"].tolist() == ["all", *(group.name for group in report.cold)]
    assert frame.coverage.tolist()[0] == report.coverage
    assert (frame.lower[0], frame.upper[0]) == report.interval


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refuses(ModuleNotFoundError, "to_frame needs pandas: pip install pandas"):
        made("fit").similar_rows("eu-1", 2).to_frame()


# --- notebooks and text --------------------------------------------------------------------------


def texts_of(result):
    """Parse the HTML of a result, which has no styles, and return its texts."""
    root = ElementTree.fromstring(result._repr_html_())
    for element in root.iter():
        assert not {"style", "bgcolor", "color"} & set(element.attrib)
        assert element.tag not in ("style", "script", "b")
    return [text for element in root.iter() for text in element.itertext()]


def test_results_are_html_in_which_labels_are_escaped(kind):
    model, shown = made(kind), HARMFUL.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
    level = LEVEL[kind]
    for result in (
        model.rank(HARMFUL, 2, order="smallest", **level),
        model.similar_rows("eu-1", 99),
        model.summary(LOG.assign(ms=LOG.ms * (1 + 9 * (LOG.client == HARMFUL))), **level),
    ):
        assert shown in texts_of(result)
        assert "\x1b" not in str(result)
    evaluation = model.evaluate(LOG)
    assert {"column median", *evaluation.verdict().splitlines()} <= set(texts_of(evaluation))
    assert evaluation.verdict() in str(evaluation)
    assert f"{model!r}"[1:20] in "".join(texts_of(model))


TASKS = ["complete", "complete_levels", "complete_levels with trees", "complete_quantiles"]


@pytest.mark.parametrize("task", TASKS)
def test_a_model_shows_its_held_out_performance(task):
    model = tuned(task)
    if task == "complete":
        ratios = [model.tuning.relative_loss()]
    elif task == "complete_levels":
        ratios = [fit.tuning.relative_loss("constant") for fit in model.fits]
    else:
        ratios = [one.relative for one in getattr(model, "coverage", ()) or model.reports]
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    assert f"loss {listed} relative to a constant>" in repr(model)
    assert "\n" not in repr(model)
    if task == "complete_quantiles":
        assert f"coverage {model.coverage[0].coverage:.3f}, " in repr(model)
        assert f"{model.coverage[1].coverage:.4f}".rstrip("0") in texts_of(model)
        assert "relative" not in repr(model.fold_in(np.ones((1, 50))))  # was not measured
    assert "relative to a constant" in texts_of(model)
    assert repr(model)[1:].startswith(str(model).splitlines()[0][1:-1])
    if task == "complete":
        assert "relative" not in repr(model.fold_in(np.ones((1, 50))))


def test_a_fit_that_was_not_tuned_has_no_verdict():
    assert "loss" not in repr(made("fit"))
    assert len(texts_of(made("fit"))) >= 1


def test_long_tables_are_cut():
    R = np.arange(1.0, 121).reshape(40, 3)
    ranking = fastemf.complete(R, 0.5, 1, reg=0.1).rank(None, 3, order="smallest")
    assert len(str(ranking).splitlines()) == 22
    assert "the first 20" in str(ranking)
    assert len(ranking.to_frame()) == 120


# --- predictions as columns ----------------------------------------------------------------------


def test_a_table_of_pairs_gets_its_predictions(kind):
    model, pairs = made(kind), LOG[["service", "client"]][40:60].assign(p30="mine", prediction=0)
    predicted = model.predict(pairs).reshape(20, -1)
    names = [f"{name}_" if name in pairs else name for name in PREDICTIONS[kind]]
    frame = model.predict(pairs, as_frame=True)
    pd.testing.assert_frame_equal(frame[[*pairs]], pairs)  # index included
    assert list(frame) == [*pairs, *names]
    np.testing.assert_array_equal(frame[names], predicted)
    polars = pl.from_pandas(pairs)
    for table in (polars, polars.lazy(), pa.Table.from_pandas(pairs, preserve_index=False)):
        found = model.predict(table, as_frame=True)
        assert type(found) is type(polars if isinstance(table, pl.LazyFrame) else table)
        for name, values in zip(names, predicted.T, strict=True):
            np.testing.assert_array_equal(found[name].to_numpy(), values)
    stream = pa.Table.from_pandas(pairs).to_reader()  # is read only once
    assert model.predict(stream, as_frame=True).column_names[-len(names) :] == names
    clipped = model.predict(pairs, as_frame=True, clip=(None, 30))
    assert clipped[names].max(axis=None) == 30
    assert list(pairs) == ["service", "client", "p30", "prediction"]  # was not changed


def test_new_labels_are_marked(kind):
    model = made(kind)
    pairs = pd.DataFrame({"client": ["eu-1", "new"] * 2, "service": [3, 3, 99, 99]})
    for unknown in ("model", "nan"):
        frame = model.predict(pairs, as_frame=True, unknown=unknown)
        assert frame.note.tolist() == ["", "new row", "new column", "new row and column"]
        expected = model.predict(pairs, unknown=unknown).reshape(4, -1)
        np.testing.assert_array_equal(frame[PREDICTIONS[kind]], expected)
    assert set(model.predict(LOG, as_frame=True, unknown="model").note) == {""}
    with refuses(ValueError, "unknown labels: 1 in", "'new'"):
        model.predict(pairs, as_frame=True)


@pytest.mark.parametrize("side", ["right", "left"])
def test_predictions_beyond_the_censoring_limit_are_marked(side):
    limit = LOG.ms.quantile(0.6 if side == "right" else 0.3)
    cut = LOG.assign(ms=LOG.ms.clip(**{"upper" if side == "right" else "lower": limit}))
    levels = fastemf.complete_levels(
        cut, (0.4, 0.8), 1, reg=0.1, censored=(side, limit), **SETTINGS
    )
    frame = levels.predict(cut, as_frame=True)
    sign = 1 if side == "right" else -1
    beyond = sign * frame[["omega=0.4", "omega=0.8"]].to_numpy() >= sign * limit
    expected = [
        "; ".join(
            f"omega={omega} beyond the limit"
            for omega, is_beyond in zip((0.4, 0.8), line, strict=True)
            if is_beyond
        )
        for line in beyond
    ]
    assert frame.note.tolist() == expected
    assert len(set(expected)) > 2
    for line in (int(np.argmax(beyond[:, 0])), int(np.argmin(beyond[:, 0]))):
        notes = levels.level(0.4).explain(cut.client[line], cut.service[line]).notes
        assert any("beyond the censoring limit" in note for note in notes) == beyond[line, 0]


@pytest.mark.parametrize(
    ("given", "received"), [((["eu-1"], [3]), "list and list"), ((LOG, [3]), "DataFrame and list")]
)
def test_only_tables_become_tables(given, received):
    with refuses(
        TypeError, "rows must be a table, and cols None, for as_frame=True, got", received
    ):
        made("fit").predict(*given, as_frame=True)
    with refuses(TypeError, "as_frame must be True or False", "1"):
        made("fit").predict(LOG, as_frame=1)


# --- labels --------------------------------------------------------------------------------------

DAYS = [datetime.date(2024, 1, day) for day in range(1, 8)]
FINE = [pd.Timestamp(1_700_000_000_000_000_001 + n, tz="UTC") for n in range(7)]
TIMES = [datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.UTC) for hour in range(7)]


@pytest.mark.parametrize(
    "labels", [[f"eu-{n}" for n in range(7)], [7, -1, 30, 2, 4, 5, 6], DAYS, TIMES, FINE],
    ids=["strings", "integers", "dates", "times", "nanoseconds"],
)  # fmt: skip
def test_labels_are_accepted_wherever_they_come_from(labels):
    rng = np.random.default_rng(0)
    i, j = np.divmod(np.arange(35), 5)
    log = pa.table(
        [pa.array(pd.Series([labels[row] for row in i])), j, rng.gamma(2, 3, 35)], [*NAMES.values()]
    )
    fit = fastemf.complete(log, 0.5, 1, reg=0.1, **SETTINGS)
    known, cols = fit.row_labels, fit.col_labels
    assert len(list(known)) == len(known) == 7
    assert Labels(list(known), known.name) == known
    block = fit.predict_block(known)
    np.testing.assert_array_equal(fit.predict_block(list(known)), block)
    np.testing.assert_allclose(fit.predict(known, 3), block[:, 3])
    for one, row in zip(known, block, strict=True):
        np.testing.assert_allclose(fit.predict(one, cols), row)
        assert fit.explain(one, 3).value == pytest.approx(float(row[3]))
        assert len(fit.similar_rows(one, 2).others) == 2
    ranking = fit.rank(known, 2, order="smallest")
    assert ranking.cols.shape == (7, 2)
    np.testing.assert_array_equal(
        ranking.values[:, 0], fit.predict(ranking.rows, ranking.cols[:, 0])
    )
    of_frame = ranking.to_frame().client.tolist()
    assert of_frame == pd.Series(np.repeat(ranking.rows, 2)).tolist()
    less = fastemf.complete(log.filter(pa.array(i < 6)), 0.5, 1, reg=0.1, **SETTINGS)
    wider = less.rank(list(known), 1, order="smallest", unknown="model")
    assert list(wider.rows) == list(known)  # a new row keeps its name
    near = fit.similar_rows(next(iter(known)), 3).others
    assert fit.predict(near, 0).shape == (3,)
    held_out = known, np.zeros(7, int), np.ones(7)
    assert fit.evaluate(held_out).observations == 7
    new = fit.fold_in((known, np.zeros(7, int), np.ones(7)))
    assert list(new.row_labels) == list(known)


# --- pairs without observations ------------------------------------------------------------------


def test_missing_pairs_are_those_without_an_observation(kind):
    model = made(kind)
    every = {(client, service) for client in model.row_labels for service in model.col_labels}
    expected = every - set(zip(LOG.client, LOG.service, strict=True))
    for data in (LOG, pl.from_pandas(LOG), (LOG.client, LOG.service, LOG.ms)):
        rows, cols = model.missing_pairs(data)
        found = list(zip(rows.tolist(), cols.tolist(), strict=True))
        assert len(found) == len(expected)
        assert set(found) == expected
    assert model.predict(rows, cols).shape[0] == len(expected)
    nothing = model.missing_pairs(None)
    assert len(nothing[0]) == len(every)


def test_missing_pairs_of_a_matrix():
    R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
    rows, cols = fastemf.complete(R, 0.5, 1, reg=0.1).missing_pairs(R)
    assert (rows.tolist(), cols.tolist()) == ([0, 2], [2, 1])


# --- factors that explain nothing ----------------------------------------------------------------


def test_similar_rows_of_useless_factors_come_with_a_warning():
    rng = np.random.default_rng(0)
    noise = np.where(rng.random((60, 40)) < 0.6, rng.exponential(size=(60, 40)), np.nan)
    message = "the factors of the model explain nothing, so these are the rows with the closest"
    for fit in (
        fastemf.complete(noise, 0.5, 2, intercepts=True),
        fastemf.complete_levels(noise, (0.3, 0.5), 0, intercepts=True, reg=0.1),
        fastemf.complete(noise, 0.5, 2, intercepts=True, reg=1e6),
    ):
        with pytest.warns(UserWarning, match=message):
            fit.similar_rows(0, 2)
    signal = np.outer(rng.gamma(2, size=60), rng.gamma(2, size=40)) + 0.1 * noise
    for settings in ({}, {"reg": 0.1}):
        fit = fastemf.complete(signal, 0.5, 2, intercepts=True, **settings)
        with warnings.catch_warnings(action="error"):
            fit.similar_rows(0, 2)
            fit.similar_cols(0, 2)


# --- the automatic rank --------------------------------------------------------------------------


def test_the_automatic_rank_fits_the_matrix():
    small, large = np.arange(1.0, 7).reshape(2, 3), np.outer(np.arange(1.0, 9), np.arange(1.0, 8))
    for R, k in ((small, 2), (large, 5)):
        fit = fastemf.complete(R, 0.5, "auto", reg=0.1)
        assert fit.k == k
        assert fastemf.complete_levels(R, (0.3, 0.6), "auto", reg=0.1).fits[0].k == k
        np.testing.assert_array_equal(fit.X, fastemf.complete(R, 0.5, k, reg=0.1).X)
    with refuses(ValueError, "k must be at most min(rows, columns) = 2", "got 5"):
        fastemf.complete(small, 0.5, 5)
