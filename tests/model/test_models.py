"""What every kind of model answers alike: one suite, which a new kind joins in `KINDS`."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fastemf
from fastemf.solver.axis import AxisNoise
from fastemf.solver.tables import AxisLevels, Table, Tables

NAN = float("nan")
CLIENTS = [f"eu-{i}" for i in range(9)]
SERVICES = [f"srv{j}" for j in range(6)]
NAMES = {"rows": "client", "cols": "service", "values": "ms"}


def log_of(clients, services, seed=0, share=0.8):
    """A log with every pair but some; values have a long right tail."""
    rng = np.random.default_rng(seed)
    i, j = np.nonzero(rng.random((len(clients), len(services))) < share)
    level = rng.gamma(2, 3, len(clients))[i] + rng.gamma(2, 3, len(services))[j]
    return pa.table(
        {
            "client": np.array(clients, object)[i],
            "service": np.array(services, object)[j],
            "ms": level * rng.lognormal(0, 0.5, i.size),
        }
    )


LOG = log_of(CLIENTS, SERVICES)
MORE = log_of(["us-1", "us-2", "us-3"], SERVICES, seed=1)
WIDER = log_of(CLIENTS, ["new0", "new1"], seed=2)
SHORT = NAMES | {"reg": 0.3, "max_iter": 5, "tol": 1}
KNOWN = LOG.column("client").to_pylist(), LOG.column("service").to_pylist()


def decorated(fit):
    """The fit with all that a tuned one may have: a shift, noise scales, levels and tables."""
    knots, values = (np.array([-1.0, 0.5, 2.0]), np.array([-2.0, 1.0])), np.arange(6.0) / 3
    over = ("row level", "column level"), ("product", "column noise"), ("product", "row noise")
    tables = Tables(tuple(Table(pair, knots, values.reshape(3, 2)) for pair in over), 0.7)
    axes = [
        replace(
            axis,
            noise=AxisNoise(np.linspace(0.5, 2, axis.size), 3.0),
            levels=AxisLevels(np.linspace(-2, 3, axis.size), tables),
        )
        for axis in fit.axes
    ]
    return replace(fit, rows=axes[0], cols=axes[1], shift=0.75, family="weighted")


def one_level(data=LOG, *, intercepts=True, **options):
    fit = fastemf.complete(data, 0.9, 2, intercepts=intercepts, **SHORT | options)
    return decorated(fit) if intercepts else fit


def several_levels(data=LOG, *, intercepts=True, **options):
    levels = fastemf.complete_levels(
        data, (0.1, 0.5, 0.9), 2, intercepts=intercepts, **SHORT | options
    )
    return fastemf.Levels(tuple(map(decorated, levels.fits))) if intercepts else levels


def quantiles(data=LOG, *, intercepts=True, **options):
    """Quantiles of fewer cells than they are worth anything for."""
    options = SHORT | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.quantiles.FEWEST_BEYOND", 0)
        return fastemf.complete_quantiles(data, TAUS, 2, intercepts=intercepts, **options)


TAUS = (0.1, 0.5, 0.9)
EXPECTILES = {"one level": one_level, "several levels": several_levels}
KINDS = EXPECTILES | {"quantiles": quantiles}
NO_NAMES = dict.fromkeys(NAMES)


@cache
def made(kind, intercepts, labelled=True):
    with warnings.catch_warnings(action="ignore"):  # few sweeps
        if labelled:
            return KINDS[kind](intercepts=intercepts)
        return KINDS[kind](matrix(LOG, CLIENTS, SERVICES), intercepts=intercepts, **NO_NAMES)


def matrix(log, clients, services):
    dense = np.full((len(clients), len(services)), NAN)
    for client, service, ms in zip(*(log.column(at).to_pylist() for at in range(3)), strict=True):
        dense[clients.index(client), services.index(service)] = ms
    return dense


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return made(kind, True)


@pytest.fixture(params=EXPECTILES)
def expectiles(request):
    """A model that is its fits, which can be told by hand."""
    return made(request.param, True)


def fits_of(model):
    return getattr(model, "fits", (model,))


def levels_of(model):
    """The levels of a model, or the shares of its quantiles."""
    return getattr(model, "taus", None) or getattr(model, "omegas", None) or (model.omega,)


def level_of(model):
    """What chooses a level of a model, and its place."""
    return (0.9, -1) if len(levels_of(model)) > 1 else (None, ...)


def same(one, other):
    """Two models predict the same bits and have the same names."""
    np.testing.assert_array_equal(
        one.predict_block(one.axes[0].ids()), other.predict_block(other.axes[0].ids())
    )
    assert one.row_labels == other.row_labels
    assert one.col_labels == other.col_labels
    assert one.unseen_rows.tolist() == other.unseen_rows.tolist()


def refuses(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts))


# --- newcomers ------------------------------------------------------------------------------


def known_of(axis, at):
    """Intercept, level and logarithm of the noise; zeros for a newcomer."""
    if at is None:
        return 0.0, 0.0, 0.0
    return axis.intercepts[at], axis.levels.values[at], np.log(axis.noise.variances[at])


def by_hand(model, client, service):
    """A cell with a newcomer: constant, what is known of the other, the mean's level and noise."""
    found = []
    for fit in fits_of(model):
        i = CLIENTS.index(client) if client in CLIENTS else None
        j = SERVICES.index(service) if service in SERVICES else None
        a, row, loud = known_of(fit.rows, i)
        c, col, noisy = known_of(fit.cols, j)
        statistics = {
            "row level": row, "column level": col, "row noise": loud, "column noise": noisy,
            "product": a + c,
        }  # fmt: skip
        table = sum(t.at(*(np.array(statistics[name]) for name in t.over)) for t in fit.tables)
        found.append(fit.mu + fit.shift + a + c + table)
    return sorted(found) if len(found) > 1 else found[0]


@pytest.mark.parametrize(
    ("client", "service"), [("mars", "srv2"), ("eu-4", "pluto"), ("mars", "pluto")]
)
def test_a_newcomer_gets_what_is_known_of_the_other_side(client, service, expectiles):
    model = expectiles
    found = model.predict(client, service, unknown="model")
    np.testing.assert_allclose(found, by_hand(model, client, service), rtol=1e-12)
    assert np.isnan(model.predict(client, service, unknown="nan")).all()
    with refuses(ValueError, "unknown labels"):
        model.predict(client, service)


@pytest.mark.parametrize("kind", EXPECTILES)
def test_without_intercepts_nothing_is_known_of_newcomers(kind):
    model = made(kind, False)
    assert np.isnan(model.predict(["mars", "eu-1"], ["srv1", "pluto"], unknown="model")).all()
    assert np.isfinite(model.predict("eu-1", "srv1", unknown="model")).all()
    level, _ = level_of(model)
    found = model.rank("mars", 3, order="smallest", level=level, unknown="model")
    assert found.cols.tolist() == [None] * 3


def test_newcomers_change_no_other_prediction(model):
    rows, cols = [*KNOWN[0], "mars"], [*KNOWN[1], "srv1"]
    for unknown in ("model", "nan"):
        found = model.predict(rows, cols, unknown=unknown)
        np.testing.assert_array_equal(found[:-1], model.predict(*KNOWN))
    bounded = model.predict(rows, cols, unknown="model", clip=(1e6, None))
    assert (bounded == 1e6).all()


def test_a_newcomer_is_an_item_without_observations(expectiles):
    model = expectiles
    nobody = pa.table({"client": ["mars"], "service": ["srv0"], "ms": [1.0]})
    grown = model.extend(nobody, **NAMES)
    fits = []
    for fit in fits_of(grown):
        levels, intercepts = fit.rows.levels.values.copy(), fit.row_intercepts.copy()
        factor = fit.X.copy()
        for array in (factor, intercepts, levels):
            array[-1] = 0  # as a fit has it of a row without any
        noise = replace(fit.rows.noise, variances=np.append(fit.rows.noise.variances[:-1], 1.0))
        rows = replace(
            fit.rows, factor=factor, intercepts=intercepts, noise=noise,
            levels=replace(fit.rows.levels, values=levels), unseen=np.array([9]),
        )  # fmt: skip
        fits.append(replace(fit, rows=rows))
    unseen = fits[0] if len(fits) == 1 else fastemf.Levels(tuple(fits))
    np.testing.assert_array_equal(
        model.predict("mars", SERVICES, unknown="model"), unseen.predict("mars", SERVICES)
    )
    level, _ = level_of(model)
    ours, theirs = (
        one.rank("mars", 6, order="largest", level=level, unknown="model")
        for one in (model, unseen)
    )
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert ours.cols.tolist() == theirs.cols.tolist()


def test_the_pair_regressor_agrees():
    pairs = np.array(KNOWN, object).T
    asked = np.array([("mars", "srv1"), ("eu-1", "pluto"), ("mars", "pluto")], object)
    for intercepts in (True, False):
        model = fastemf.ExpectilePairRegressor(
            0.9, 2, reg=0.3, max_iter=5, tol=1, intercepts=intercepts
        ).fit(pairs, LOG.column("ms").to_numpy())
        fit = model.factorization_
        if intercepts:
            fit = model.factorization_ = decorated(fit)
        expected = fit.predict(asked[:, 0], asked[:, 1], unknown="model")
        np.testing.assert_array_equal(model.predict(asked), expected)
        assert np.isnan(expected).all() == (not intercepts)


# --- ranking --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["smallest", "largest"])
def test_ranking_is_sorting_what_is_predicted(order, model):
    level, place = level_of(model)
    found = model.rank(["eu-2", "mars", "eu-0"], 4, order=order, level=level, unknown="model")
    for at, client in enumerate(("eu-2", "mars", "eu-0")):
        values = model.predict(client, SERVICES, unknown="model")[:, place].reshape(6)
        best = np.argsort(values if order == "smallest" else -values)[:4]
        assert found.cols[at].tolist() == [SERVICES[j] for j in best]
        np.testing.assert_array_equal(found.values[at], values[best])
    whole = model.rank(None, 4, order=order, level=level)
    assert whole.cols[0].tolist() == found.cols[2].tolist()


def test_unknown_rows_are_an_error_or_get_no_columns(model):
    level, _ = level_of(model)
    with refuses(ValueError, "unknown labels: 1 in rows ('mars')"):
        model.rank(["eu-1", "mars"], 2, order="smallest", level=level)
    found = model.rank(["mars", "eu-1"], 2, order="smallest", level=level, unknown="nan")
    assert found.cols[0].tolist() == [None, None]
    assert np.isnan(found.values[0]).all()
    assert np.isfinite(found.values[1]).all()
    with refuses(ValueError, "unknown must be one of 'error', 'nan', 'model'", "'none'"):
        model.rank("mars", 2, order="smallest", level=level, unknown="none")


def test_what_was_seen_is_not_listed_nor_asked_of_newcomers(model):
    level, _ = level_of(model)
    found = model.rank(["eu-1", "mars"], 6, order="smallest", level=level, seen=LOG,
                       unknown="model")  # fmt: skip
    assert not {("eu-1", col) for col in found.cols[0].tolist()} & set(zip(*KNOWN, strict=True))
    assert None not in found.cols[1].tolist()


def test_a_model_of_several_levels_asks_which(kind):
    model = made(kind, True)
    ask = {
        "rank": lambda level: model.rank("eu-1", 2, order="smallest", level=level),
        "summary": lambda level: model.summary(LOG, level=level, **NAMES),
    }
    for question in ask.values():
        question(0.9)
        what = "quantiles" if kind == "quantiles" else "levels"
        with refuses(ValueError, f"level must be one of the {what} fitted", "0.9, got 0.3"):
            question(0.3)
        if len(levels_of(model)) > 1:
            with refuses(ValueError, "level must be", f"{what} fitted, 0.1, 0.5, 0.9, got None"):
                question(None)


# --- similarity and summary -----------------------------------------------------------------


def ingredients(model):
    """What distances are of: predictions of each level, without tables, as dense matrices."""
    if hasattr(model, "taus"):  # means over the folds, of all levels but the scores'
        return [np.mean([fit.to_dense() for fit in level], axis=0) for level in model.fits[:-1]]
    plain = []
    for fit in fits_of(model):
        rows, cols = (replace(one, levels=None) for one in fit.axes)
        plain.append(replace(fit, rows=rows, cols=cols).to_dense())
    return plain


@pytest.mark.parametrize("intercepts", [True, False])
def test_distances_are_those_of_the_predictions_without_the_table(kind, intercepts):
    model = made(kind, intercepts, labelled=False)
    for axis, ask in enumerate((model.similar_rows, model.similar_cols)):
        squares = []
        for dense in ingredients(model):
            dense = dense if axis == 0 else dense.T
            squares.append(np.mean((dense - dense[1]) ** 2, axis=1))
        expected = np.sqrt(np.mean(squares, axis=0))
        found = ask(1, model.shape[axis] - 1)
        assert sorted(found.others.tolist()) == [i for i in range(model.shape[axis]) if i != 1]
        np.testing.assert_allclose(found.distances, expected[found.others], rtol=1e-9)
        assert (np.diff(found.distances) >= 0).all()


def test_similar_items_go_by_their_labels(model):
    near = model.similar_rows("eu-3", 2)
    assert set(near.others.tolist()) <= set(CLIENTS) - {"eu-3"}
    assert set(model.similar_cols("srv1", 9).others.tolist()) == {*SERVICES, None} - {"srv1"}


def test_a_summary_is_of_what_is_predicted(model):
    level, place = level_of(model)
    for axis, ids in enumerate((CLIENTS, SERVICES)):
        found = model.summary(LOG, axis, level=level, **NAMES)
        assert sorted(found.ids.tolist()) == ids
        predicted = model.predict(*KNOWN)[:, place].ravel()
        r = LOG.column("ms").to_numpy() - predicted
        for at, label in enumerate(found.ids):
            own = r[np.array(KNOWN[axis]) == label]
            assert found.observations[at] == own.size
            w = np.where(own >= 0, 0.9, 0.1)
            if hasattr(model, "taus"):
                assert found.w_eff is None
                assert found.loss[at] == pytest.approx(np.mean(w * np.abs(own)))
                assert found.coverage[at] == pytest.approx(np.mean(own <= 0))
            else:
                assert found.coverage is None
                assert found.loss[at] == pytest.approx(np.mean(w * own**2))
                assert found.w_eff[at] == pytest.approx(-own[own < 0].sum() / np.abs(own).sum())
    assert ("coverage" in found.columns()) == hasattr(model, "taus")


# --- new rows and columns -------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_an_extended_model_is_the_old_one_with_the_new_items(axis, model):
    data, new = ((MORE, ["us-1", "us-2", "us-3"]), (WIDER, ["new0", "new1"]))[axis]
    folded, grown = (ask(data, axis=axis, **NAMES) for ask in (model.fold_in, model.extend))
    assert type(grown) is type(model)
    kept = (CLIENTS, SERVICES)[axis]
    assert grown.axes[axis].ids().tolist() == [*model.axes[axis].ids(), *new]
    np.testing.assert_array_equal(grown.predict(*KNOWN), model.predict(*KNOWN))
    for label in new:
        asked = (label, SERVICES) if axis == 0 else (CLIENTS, label)
        np.testing.assert_array_equal(grown.predict(*asked), folded.predict(*asked))
    assert set(kept) < set(grown.axes[axis].ids().tolist())
    if hasattr(model, "taus"):
        assert not any(promise.measured for promise in (*folded.promises, *grown.promises))
        return
    for old, fit in zip(fits_of(model), fits_of(grown), strict=True):
        assert fit.history == old.history
        assert fit.axes[axis].noise.variances.size == grown.shape[axis]
        assert fit.tables is old.tables


@pytest.mark.parametrize("kind", EXPECTILES)
def test_folding_the_fitted_rows_in_gives_them_back(kind):
    with warnings.catch_warnings(action="ignore"):
        model = KINDS[kind](intercepts=False, max_iter=60, tol=1e-12)
    again = model.fold_in(LOG, **NAMES)
    same_order = again.predict(*KNOWN)
    np.testing.assert_allclose(same_order, model.predict(*KNOWN), rtol=1e-4)


def test_numbered_rows_follow_those_that_are_there(kind):
    model = made(kind, True, labelled=False)
    grown = model.extend(np.full((2, 6), 7.0))
    assert grown.shape == (11, 6)
    np.testing.assert_array_equal(grown.predict_block(range(9)), model.predict_block(range(9)))
    new = model.fold_in(np.full((2, 6), 7.0))
    np.testing.assert_array_equal(grown.predict_block([9, 10]), new.predict_block([0, 1]))
    with pytest.warns(UserWarning, match="1 of the 2 new rows have no observations"):
        bare = model.extend(np.array([[NAN] * 6, [7.0] * 6]))
    assert bare.unseen_rows.tolist() == [9]


def test_labels_that_are_there_already_are_named(model):
    both = pa.concat_tables([MORE, LOG.slice(0, 3)])
    with refuses(ValueError, "1 of the new rows", f"({KNOWN[0][0]!r})", "fastemf update"):
        model.extend(both, **NAMES)
    with refuses(ValueError, "unknown labels: 2 in rows"):
        model.extend(log_of(["x", "y"], ["new0"], share=2), axis=1, **NAMES)
    with refuses(ValueError, "R_new must have labels of its rows", "a matrix"):
        model.extend(np.ones((1, 6)))
    numbers = pa.table({"client": [7], "service": ["srv0"], "ms": [1.0]})
    with refuses(TypeError, "rows must be strings", "integers"):
        model.extend(numbers, **NAMES)
    with refuses(ValueError, "axis must be 0 (new rows) or 1 (new columns)", 2):
        model.extend(MORE, axis=2, **NAMES)


def test_an_extended_model_is_kept_by_its_file(model, tmp_path):
    more = log_of(["us-1", "us-2", "us-3"], ["new0", "new1"], seed=4, share=2)
    wider = pa.concat_tables([WIDER, more])
    grown = model.extend(MORE, **NAMES).extend(wider, axis=1, **NAMES)
    grown.save(tmp_path / "model.npz")
    same(fastemf.load(tmp_path / "model.npz"), grown)
    assert grown.shape == (12, 8)


def test_the_column_of_the_values_is_remembered(model, tmp_path):
    expected = model.fold_in(MORE, **NAMES).predict("us-1", SERVICES)
    parquet.write_table(MORE, tmp_path / "more.parquet")
    for data in (MORE, MORE.to_pandas(), tmp_path / "more.parquet"):
        np.testing.assert_array_equal(model.fold_in(data).predict("us-1", SERVICES), expected)
    frame = MORE.to_pandas().pivot(index="client", columns="service", values="ms")
    frame = frame.reindex(columns=model.col_labels.values)
    np.testing.assert_allclose(model.fold_in(frame).predict("us-1", SERVICES), expected)
    renamed = MORE.rename_columns(["client", "service", "seconds"])
    with refuses(ValueError, "no column 'ms'"):
        model.fold_in(renamed)
    np.testing.assert_array_equal(
        model.fold_in(renamed, values="seconds").predict("us-1", SERVICES), expected
    )


# --- the verdict ----------------------------------------------------------------------------


def judged_by_hand(b, predicted, omega, v):
    """All figures but the skill."""
    r = b - predicted
    w = np.where(r >= 0, omega, 1 - omega)
    repeated = np.repeat(np.abs(r) / np.abs(b), v)
    return [
        np.average(w * r**2, weights=v),
        np.sum(v * np.maximum(-r, 0)) / np.sum(v * np.abs(r)),
        np.average(b <= predicted, weights=v),
        np.average(w * np.abs(r), weights=v),
        np.median(repeated),
    ]


HELD_OUT = log_of(CLIENTS, SERVICES, seed=7)
WEIGHTS = 1 + np.arange(HELD_OUT.num_rows) % 3


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_are_those_of_the_predictions(weighted, model):
    b = HELD_OUT.column("ms").to_numpy()
    v = WEIGHTS if weighted else np.ones(b.size, int)
    cells = HELD_OUT.column("client").to_pylist(), HELD_OUT.column("service").to_pylist()
    found = model.evaluate(HELD_OUT, weights=WEIGHTS.astype(float) if weighted else None)
    assert found.observations == b.size
    assert found.left_out == 0
    predicted = model.predict(*cells).reshape(b.size, -1)
    i, j = model.axes[0].positions(cells[0], "rows"), model.axes[1].positions(cells[1], "cols")
    for place, level in enumerate(levels_of(model)):
        ways = {"fit": predicted[:, place], **simple_ways(model, place, i, j)}
        assert list(ways) == [one.name for one in found.scores if one[0] == level]
        for name, values in ways.items():
            score = found.score(name, level)
            loss, w_eff, *others = judged_by_hand(b, values, level, v)
            if hasattr(model, "taus"):
                coverage, loss, relative = others
                assert score[2:] == pytest.approx(
                    [loss, score.skill, coverage, relative], rel=1e-12, nan_ok=True
                )
            else:
                assert score.loss == pytest.approx(loss, rel=1e-12)
                assert score[4:] == pytest.approx([w_eff, *others], rel=1e-12)
            constant = loss_of(found.score("constant", level))
            assert score.skill == pytest.approx(1 - loss / constant, rel=1e-9, abs=1e-12)


def simple_ways(model, place, i, j):
    """Simpler predictions of the data fitted, by name."""
    if not hasattr(model, "taus"):
        training = fits_of(model)[place].training
        return {name: training.predict(name, i, j) for name in training.NAMES}
    rows, cols = (side[:, place] for side in model.items.sides)
    column, both = cols[0][j], rows[1][i] + cols[1][j]
    medians = [np.median(LOG.column("ms").to_numpy()[np.array(KNOWN[1]) == name])
               for name in model.col_labels.values]  # fmt: skip
    return {
        "constant": np.full(i.size, cols[0][-1]), "column": column, "row + column": both,
        "larger of both": np.maximum(column, both), "column median": np.array(medians)[j],
    }  # fmt: skip


def loss_of(score):
    return score.pinball if hasattr(score, "tau") else score.loss


def test_observations_are_judged_alike_in_every_form(model, tmp_path):
    expected = model.evaluate(HELD_OUT).scores
    parquet.write_table(HELD_OUT, tmp_path / "held.parquet")
    columns = tuple(HELD_OUT.column(at).to_pylist() for at in range(3))
    frame = HELD_OUT.to_pandas().pivot(index="client", columns="service", values="ms")
    for data in (HELD_OUT.to_pandas(), tmp_path / "held.parquet", columns, frame):
        for one, other in zip(model.evaluate(data).scores, expected, strict=True):
            assert one[:2] == other[:2]
            assert one[2:] == pytest.approx(other[2:], rel=1e-12)


def test_newcomers_are_judged_left_out_or_refused(model):
    more = pa.concat_tables([HELD_OUT, MORE, WIDER])
    with refuses(ValueError, "unknown labels: 3 in rows", "2 in cols"):
        model.evaluate(more)
    left = model.evaluate(more, unknown="nan")
    assert left.left_out == MORE.num_rows + WIDER.num_rows
    assert left.scores == model.evaluate(HELD_OUT).scores
    whole = model.evaluate(more, unknown="model")
    assert (whole.observations, whole.left_out) == (more.num_rows, 0)
    b = more.column("ms").to_numpy()
    cells = more.column("client").to_pylist(), more.column("service").to_pylist()
    _, place = level_of(model)
    predicted = model.predict(*cells, unknown="model")[:, place].ravel()
    loss, _, _, pinball, _ = judged_by_hand(b, predicted, 0.9, np.ones(b.size, int))
    loss = pinball if hasattr(model, "taus") else loss
    assert loss_of(whole.score("fit", 0.9)) == pytest.approx(loss, rel=1e-12)
    assert whole.score("constant", 0.9).coverage > 0  # which knows newcomers too
    with refuses(ValueError, "R must hold an observation of labels that the fit has"):
        model.evaluate(log_of(["x"], ["y"], share=2), unknown="nan")


def test_levels_of_the_data_are_kept_by_the_file(model, tmp_path):
    model.save(tmp_path / "model.npz")
    assert fastemf.load(tmp_path / "model.npz").evaluate(HELD_OUT).scores == (
        model.evaluate(HELD_OUT).scores
    )


def test_a_model_that_kept_nothing_says_so(expectiles):
    model = expectiles
    old = [replace(fit, training=None) for fit in fits_of(model)]
    bare = old[0] if len(old) == 1 else fastemf.Levels(tuple(old))
    found = bare.evaluate(HELD_OUT)
    assert {one.name for one in found.scores} == {"fit"}
    assert np.isnan([one.skill for one in found.scores]).all()
    assert found.verdict().count("made by an older version: fit it again") == len(old)
    assert bare.extend(MORE).evaluate(HELD_OUT).scores[0].loss == found.scores[0].loss


def test_quantiles_of_an_older_version_are_compared_without_medians():
    model = made("quantiles", True)
    first, *others = model.fits[0]
    old = replace(model, fits=((replace(first, training=None), *others), *model.fits[1:]))
    found, whole = old.evaluate(HELD_OUT), model.evaluate(HELD_OUT)
    assert found.scores == tuple(one for one in whole.scores if one.name != "column median")
    assert found.promises == whole.promises


HEADS = {
    "omega": ["omega", "loss", "skill", "w_eff", "coverage", "pinball", "rel.", "error"],
    "tau": ["tau", "pinball", "skill", "coverage", "rel.", "error"],
}


def test_a_verdict_in_words(model):
    found = model.evaluate(HELD_OUT)
    lines = str(found).splitlines()
    assert lines[0] == f"{HELD_OUT.num_rows} observations:"
    assert lines[1].split() == HEADS["tau" if hasattr(model, "taus") else "omega"]
    levels, verdict = levels_of(model), found.verdict().splitlines()
    assert len(lines) == 2 + len(found.scores) + len(levels)
    assert lines[-len(levels) :] == verdict
    for level, line in zip(levels, verdict, strict=True):
        scores = [one for one in found.scores if one[0] == level]
        best = min(scores[1:], key=loss_of)
        if hasattr(model, "taus"):
            assert line.startswith(f"p{100 * level:g}: {scores[0].coverage:.4f} at or below")
        elif len(levels) > 1:
            assert line.startswith(f"omega={level:g}:")
        assert f"({best.name})" in line
        assert f"{loss_of(scores[0]) / loss_of(best):.2f} of the best simple" in line
        assert line.endswith("adds nothing to that") == (
            loss_of(scores[0]) > 0.995 * loss_of(best)
        )  # fmt: skip
    assert found.columns()["skill"] == [one.skill for one in found.scores]
    with refuses(ValueError, "name and level must be those of a score", "'none'"):
        found.score("none")


def test_zeros_have_no_relative_error_and_a_constant_no_skill(kind):
    model = made(kind, True, labelled=False)
    with pytest.warns(UserWarning, match="are zero"):
        found = model.evaluate(np.zeros(model.shape))
    assert np.isnan([one.relative_error for one in found.scores]).all()
    alike = np.full(model.shape, constant_of(model))
    found = model.evaluate(alike)
    assert np.isnan(found.score("fit").skill)
    assert "a constant predicts all observations" in found.verdict()


def constant_of(model):
    """The constant that the lowest level is compared with."""
    return model.items.sides[1][0, 0, -1] if hasattr(model, "taus") else (
        fits_of(model)[0].training.constant
    )  # fmt: skip
