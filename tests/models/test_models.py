"""Methods that all kinds of models share; `KINDS` lists the kinds."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scenes import refuses

import fastemf
from fastemf.boosting.cell_features import SCALE
from fastemf.tuning.corrections import Correction, Corrections, EntityEffects
from fastemf.tuning.noise import EntityNoise

NAN = float("nan")
CLIENTS = [f"eu-{i}" for i in range(9)]
SERVICES = [f"srv{j}" for j in range(6)]
NAMES = {"rows": "client", "cols": "service", "values": "ms"}


def log_of(clients, services, seed=0, share=0.8):
    """Return a log with most pairs, whose values have a long right tail."""
    rng = np.random.default_rng(seed)
    i, j = np.nonzero(rng.random((len(clients), len(services))) < share)
    level = rng.gamma(2, 3, len(clients))[i] + rng.gamma(2, 3, len(services))[j]
    sides = np.array(clients, object)[i], np.array(services, object)[j]
    return pa.table([*sides, level * rng.lognormal(0, 0.5, i.size)], [*NAMES.values()])


def columns_of(log):
    return tuple(log.column(name).to_pylist() for name in NAMES.values())


LOG = log_of(CLIENTS, SERVICES)
MORE = log_of(["us-1", "us-2", "us-3"], SERVICES, seed=1)
WIDER = log_of(CLIENTS, ["new0", "new1"], seed=2)
SHORT = NAMES | {"reg": 0.3, "max_iter": 5, "tol": 1}
KNOWN = columns_of(LOG)[:2]


def decorated(fit):
    """Add what a tuned fit may have: a shift, noise scales, effects and correction tables."""
    knots, values = (np.array([-1.0, 0.5, 2.0]), np.array([-2.0, 1.0])), np.arange(6.0) / 3
    over = ("row effect", "column effect"), ("product", "column noise"), ("product", "row noise")
    tables = Corrections(tuple(Correction(pair, knots, values.reshape(3, 2)) for pair in over), 0.7)
    rows, cols = (
        replace(
            axis, noise=EntityNoise(np.linspace(0.5, 2, axis.size), 3.0),
            effects=EntityEffects(np.linspace(-2, 3, axis.size), tables),
        )
        for axis in fit.axes
    )  # fmt: skip
    return replace(fit, rows=rows, cols=cols, shift=0.75, family="weighted")


def one_level(data=LOG, *, intercepts=True, **options):
    fit = fastemf.complete(data, 0.9, 2, intercepts=intercepts, **SHORT | options)
    return decorated(fit) if intercepts else fit


def several_levels(data=LOG, *, intercepts=True, **options):
    levels = fastemf.complete_levels(data, TAUS, 2, intercepts=intercepts, **SHORT | options)
    return fastemf.Levels(tuple(map(decorated, levels.fits))) if intercepts else levels


def quantiles(data=LOG, *, intercepts=True, **options):
    """Fit quantiles to few cells."""
    options = SHORT | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.boosting.fit.FEWEST_BEYOND", 0)
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
    for client, service, ms in zip(*columns_of(log), strict=True):
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
    """Return a model of expectiles, whose predictions are simple sums."""
    return made(request.param, True)


def fits_of(model):
    return getattr(model, "fits", (model,))


def levels_of(model):
    """Return the levels or the quantiles of a model."""
    return getattr(model, "taus", None) or getattr(model, "omegas", None) or (model.omega,)


def at(model, level):
    """Return the argument that selects a level or a quantile."""
    return {"tau" if hasattr(model, "taus") else "omega": level}


def highest(model):
    """Return the argument that selects the highest level, and its place."""
    return (at(model, 0.9), -1) if len(levels_of(model)) > 1 else ({}, ...)


def same(one, other):
    """Check that two models have bitwise equal predictions and equal labels."""
    blocks = (model.predict_block(model.axes[0].ids()) for model in (one, other))
    np.testing.assert_array_equal(*blocks)
    assert one.row_labels == other.row_labels
    assert one.col_labels == other.col_labels
    assert one.unseen_rows.tolist() == other.unseen_rows.tolist()
    assert one.evaluate(HELD_OUT).scores == other.evaluate(HELD_OUT).scores


# --- unknown labels -------------------------------------------------------------------------


def known_of(axis, label):
    """Return intercept, effect and log variance; zeros for an unknown label."""
    (at,) = axis.positions([label], "labels")
    if at < 0:
        return 0.0, 0.0, 0.0
    return axis.intercepts[at], axis.effects.values[at], np.log(axis.noise.variances[at])


def by_hand(model, client, service):
    """Predict a cell with an unknown label: constant, other intercept and correction tables."""
    found = []
    for fit in fits_of(model):
        a, row, row_noise = known_of(fit.rows, client)
        c, col, col_noise = known_of(fit.cols, service)
        statistics = {"row effect": row, "column effect": col, "row noise": row_noise,
                      "column noise": col_noise, "product": a + c}  # fmt: skip
        table = sum(t.at(*(np.array(statistics[name]) for name in t.over)) for t in fit.corrections)
        found.append(fit.mu + fit.shift + a + c + table)
    return sorted(found) if len(found) > 1 else found[0]


@pytest.mark.parametrize(
    ("client", "service"), [("mars", "srv2"), ("eu-4", "pluto"), ("mars", "pluto")]
)
def test_unknown_labels_are_predicted_from_the_other_side(client, service, expectiles):
    found = expectiles.predict(client, service, unknown="model")
    np.testing.assert_allclose(found, by_hand(expectiles, client, service), rtol=1e-12)
    assert np.isnan(expectiles.predict(client, service, unknown="nan")).all()
    with refuses(ValueError, "unknown labels"):
        expectiles.predict(client, service)


@pytest.mark.parametrize("kind", EXPECTILES)
def test_without_intercepts_unknown_labels_are_nan(kind):
    model = made(kind, False)
    assert np.isnan(model.predict(["mars", "eu-1"], ["srv1", "pluto"], unknown="model")).all()
    assert np.isfinite(model.predict("eu-1", "srv1", unknown="model")).all()
    selected, _ = highest(model)
    found = model.rank("mars", 3, order="smallest", **selected, unknown="model")
    assert found.cols.tolist() == [None] * 3


def test_unknown_labels_change_no_other_prediction(model):
    rows, cols = [*KNOWN[0], "mars"], [*KNOWN[1], "srv1"]
    for unknown in ("model", "nan"):
        found = model.predict(rows, cols, unknown=unknown)
        np.testing.assert_array_equal(found[:-1], model.predict(*KNOWN))
        np.testing.assert_array_equal(
            model.predict("eu-1", "srv1", unknown=unknown), model.predict("eu-1", "srv1")
        )
    bounded = model.predict(rows, cols, unknown="model", clip=(1e6, None))
    assert (bounded == 1e6).all()


# --- ranking --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["smallest", "largest"])
def test_ranking_sorts_the_predictions(order, model):
    selected, place = highest(model)
    found = model.rank(["eu-2", "mars", "eu-0"], 4, order=order, **selected, unknown="model")
    for at, client in enumerate(("eu-2", "mars", "eu-0")):
        values = model.predict(client, SERVICES, unknown="model")[:, place].reshape(6)
        best = np.argsort(values if order == "smallest" else -values)[:4]
        assert found.cols[at].tolist() == [SERVICES[j] for j in best]
        np.testing.assert_array_equal(found.values[at], values[best])
    whole = model.rank(None, 4, order=order, **selected)
    assert whole.cols[0].tolist() == found.cols[2].tolist()
    unseen = model.rank("eu-1", 6, order=order, **selected, seen=LOG).cols.tolist()
    assert not {("eu-1", col) for col in unseen} & set(zip(*KNOWN, strict=True))


def test_unknown_rows_are_an_error_or_get_no_columns(model):
    selected, _ = highest(model)
    with refuses(ValueError, "unknown labels: 1 in rows ('mars')"):
        model.rank(["eu-1", "mars"], 2, order="smallest", **selected)
    found = model.rank(["mars", "eu-1"], 2, order="smallest", **selected, unknown="nan")
    assert found.cols[0].tolist() == [None, None]
    assert np.isnan(found.values[0]).all()
    assert np.isfinite(found.values[1]).all()
    with refuses(ValueError, "unknown must be one of 'error', 'nan', 'model'", "'none'"):
        model.rank("mars", 2, order="smallest", **selected, unknown="none")


def test_one_of_several_levels_must_be_selected(model):
    what, name = ("quantiles", "tau") if hasattr(model, "taus") else ("levels", "omega")
    for ask in (
        lambda **level: model.rank("eu-1", 2, order="smallest", **level),
        lambda **level: model.summary(LOG, **level, **NAMES),
    ):
        ask(**at(model, 0.9))
        with refuses(ValueError, f"{name} must be one of the {what} fitted", "0.9, got 0.3"):
            ask(**at(model, 0.3))
        with refuses(ValueError, f"must be None, as {name} selects", "got 0.9"):
            ask(**{"omega": 0.9, "tau": 0.9})
        if len(levels_of(model)) > 1:
            with refuses(ValueError, f"{name} must be", f"{what} fitted, 0.1, 0.5, 0.9, got None"):
                ask()


# --- similarity and summary -----------------------------------------------------------------


def ingredients(model):
    """Return the dense predictions of each level, without correction tables."""
    if hasattr(model, "taus"):  # means over the folds, of all levels but the scores'
        return [np.mean([fit.to_dense() for fit in level], axis=0) for level in model.fits[:-1]]
    plain = []
    for fit in fits_of(model):
        rows, cols = (replace(one, effects=None) for one in fit.axes)
        plain.append(replace(fit, rows=rows, cols=cols).to_dense())
    return plain


@pytest.mark.parametrize("intercepts", [True, False])
def test_distances_are_those_of_the_predictions_without_the_table(kind, intercepts):
    model = made(kind, intercepts, labelled=False)
    for axis, ask in enumerate((model.similar_rows, model.similar_cols)):
        tables = [dense if axis == 0 else dense.T for dense in ingredients(model)]
        squares = [np.mean((dense - dense[1]) ** 2, axis=1) for dense in tables]
        expected = np.sqrt(np.mean(squares, axis=0))
        found = ask(1, model.shape[axis] - 1)
        assert sorted(found.others.tolist()) == [i for i in range(model.shape[axis]) if i != 1]
        np.testing.assert_allclose(found.distances, expected[found.others], rtol=1e-9)
        assert (np.diff(found.distances) >= 0).all()


def test_a_summary_is_of_the_predictions(model):
    selected, place = highest(model)
    for axis, ids in enumerate((CLIENTS, SERVICES)):
        found = model.summary(LOG, axis, **selected, **NAMES)
        assert sorted(found.ids.tolist()) == ids
        predicted = model.predict(*KNOWN)[:, place].ravel()
        r = LOG.column("ms").to_numpy() - predicted
        for at, label in enumerate(found.ids):
            own = r[np.array(KNOWN[axis]) == label]
            assert found.observations[at] == own.size
            w = np.where(own >= 0, 0.9, 0.1)
            if hasattr(model, "taus"):
                assert found.effective_omega is None
                assert found.loss[at] == pytest.approx(np.mean(w * np.abs(own)))
                assert found.coverage[at] == pytest.approx(np.mean(own <= 0))
            else:
                assert found.coverage is None
                assert found.loss[at] == pytest.approx(np.mean(w * own**2))
                assert found.effective_omega[at] == pytest.approx(
                    -own[own < 0].sum() / np.abs(own).sum()
                )
    assert ("coverage" in found.columns()) == hasattr(model, "taus")


# --- new rows and columns -------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_an_extended_model_is_the_old_one_with_the_new_items(axis, model):
    data, new = ((MORE, ["us-1", "us-2", "us-3"]), (WIDER, ["new0", "new1"]))[axis]
    folded, grown = (ask(data, axis=axis, **NAMES) for ask in (model.fold_in, model.extend))
    assert type(grown) is type(model)
    assert grown.axes[axis].ids().tolist() == [*model.axes[axis].ids(), *new]
    np.testing.assert_array_equal(grown.predict(*KNOWN), model.predict(*KNOWN))
    for label in new:
        asked = (label, SERVICES) if axis == 0 else (CLIENTS, label)
        np.testing.assert_array_equal(grown.predict(*asked), folded.predict(*asked))
    if hasattr(model, "taus"):
        assert not any(report.measured for report in (*folded.coverage, *grown.coverage))
        return
    for old, fit in zip(fits_of(model), fits_of(grown), strict=True):
        assert fit.history == old.history
        assert fit.axes[axis].noise.variances.size == grown.shape[axis]
        assert fit.corrections is old.corrections


def test_unlabelled_rows_are_appended(kind):
    model = made(kind, True, labelled=False)
    grown = model.extend(np.full((2, 6), 7.0))
    assert grown.shape == (11, 6)
    np.testing.assert_array_equal(grown.predict_block(range(9)), model.predict_block(range(9)))
    new = model.fold_in(np.full((2, 6), 7.0))
    np.testing.assert_array_equal(grown.predict_block([9, 10]), new.predict_block([0, 1]))
    with pytest.warns(UserWarning, match="1 of the 2 new rows have no observations"):
        bare = model.extend(np.array([[NAN] * 6, [7.0] * 6]))
    assert bare.unseen_rows.tolist() == [9]


def test_invalid_new_rows_are_refused(model):
    both = pa.concat_tables([MORE, LOG.slice(0, 3)])
    elsewhere = log_of(["x", "y"], ["new0"], share=2)
    numbers = pa.table({"client": [7], "service": ["srv0"], "ms": [1.0]})
    for data, axis, error, *parts in (
        (both, 0, ValueError, "1 of the new rows", f"({KNOWN[0][0]!r})", "fastemf update"),
        (elsewhere, 1, ValueError, "unknown labels: 2 in rows"),
        (numbers, 0, TypeError, "rows must be strings", "integers"),
        (MORE, 2, ValueError, "axis must be 0 (new rows) or 1 (new columns)", 2),
    ):
        with refuses(error, *parts):
            model.extend(data, axis=axis, **NAMES)
    with refuses(ValueError, "R_new must have labels of its rows", "a matrix"):
        model.extend(np.ones((1, 6)))


def test_an_extended_model_round_trips(model, tmp_path):
    more = log_of(["us-1", "us-2", "us-3"], ["new0", "new1"], seed=4, share=2)
    grown = model.extend(MORE).extend(pa.concat_tables([WIDER, more]), axis=1)
    grown.save(tmp_path / "model.npz")
    same(fastemf.load(tmp_path / "model.npz"), grown)
    assert grown.shape == (12, 8)


def test_the_name_of_the_value_column_is_stored(model, tmp_path):
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
    found = model.fold_in(renamed, values="seconds").predict("us-1", SERVICES)
    np.testing.assert_array_equal(found, expected)


# --- evaluation -----------------------------------------------------------------------------


def scores_by_hand(b, predicted, omega, v):
    """Return all scores but the skill."""
    r = b - predicted
    w = np.where(r >= 0, omega, 1 - omega)
    repeated = np.repeat(np.abs(r) / np.abs(b), v)
    below = np.sum(v * np.maximum(-r, 0)) / np.sum(v * np.abs(r))
    means = [np.average(each, weights=v) for each in (w * r**2, b <= predicted, w * np.abs(r))]
    return [means[0], below, *means[1:], np.median(repeated)]


HELD_OUT = log_of(CLIENTS, SERVICES, seed=7)
WEIGHTS = 1 + np.arange(HELD_OUT.num_rows) % 3


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_the_predictions(weighted, model):
    b = HELD_OUT.column("ms").to_numpy()
    v = WEIGHTS if weighted else np.ones(b.size, int)
    cells = columns_of(HELD_OUT)[:2]
    found = model.evaluate(HELD_OUT, weights=WEIGHTS.astype(float) if weighted else None)
    assert found.observations == b.size
    assert found.left_out == 0
    predicted = model.predict(*cells).reshape(b.size, -1)
    i, j = model.axes[0].positions(cells[0], "rows"), model.axes[1].positions(cells[1], "cols")
    for place, level in enumerate(levels_of(model)):
        ways = {"fit": predicted[:, place], **baselines_of(model, place, i, j)}
        assert list(ways) == [one.name for one in found.scores if one[0] == level]
        for name, values in ways.items():
            score = found.score(name, **at(model, level))
            loss, w_eff, *others = scores_by_hand(b, values, level, v)
            if hasattr(model, "taus"):
                coverage, loss, relative = others
                assert score[2:] == pytest.approx(
                    [loss, score.skill, coverage, relative], rel=1e-12, nan_ok=True
                )
            else:
                assert score.loss == pytest.approx(loss, rel=1e-12)
                assert score[4:] == pytest.approx([w_eff, *others], rel=1e-12)
            constant = loss_of(found.score("constant", **at(model, level)))
            assert score.skill == pytest.approx(1 - loss / constant, rel=1e-9, abs=1e-12)


def baselines_of(model, place, i, j):
    """Return the predictions of the baselines by name."""
    if not hasattr(model, "taus"):
        training = fits_of(model)[place].training
        return {name: training.predict(name, i, j) for name in training.NAMES}
    rows, cols = (history[:, SCALE + 1 + place] for history in model.features.history)
    constant = model.features.centres[place]
    column, both = cols[j], rows[i] + cols[j] - constant
    medians = [np.median(LOG.column("ms").to_numpy()[np.array(KNOWN[1]) == name])
               for name in model.col_labels.values]  # fmt: skip
    return {
        "constant": np.full(i.size, constant), "column": column, "row + column": both,
        "larger of both": np.maximum(column, both), "column median": np.array(medians)[j],
    }  # fmt: skip


def loss_of(score):
    return score.pinball if hasattr(score, "tau") else score.loss


def test_evaluations_agree_for_every_form_of_data(model, tmp_path):
    expected = model.evaluate(HELD_OUT).scores
    parquet.write_table(HELD_OUT, tmp_path / "held.parquet")
    frame = HELD_OUT.to_pandas().pivot(index="client", columns="service", values="ms")
    for data in (HELD_OUT.to_pandas(), tmp_path / "held.parquet", columns_of(HELD_OUT), frame):
        for one, other in zip(model.evaluate(data).scores, expected, strict=True):
            assert one[:2] == other[:2]
            assert one[2:] == pytest.approx(other[2:], rel=1e-12)


def test_unknown_labels_are_evaluated_left_out_or_refused(model):
    more = pa.concat_tables([HELD_OUT, MORE, WIDER])
    with refuses(ValueError, "unknown labels: 3 in rows", "2 in cols"):
        model.evaluate(more)
    left = model.evaluate(more, unknown="nan")
    assert left.left_out == MORE.num_rows + WIDER.num_rows
    assert left.scores == model.evaluate(HELD_OUT).scores
    whole = model.evaluate(more, unknown="model")
    assert (whole.observations, whole.left_out) == (more.num_rows, 0)
    b = more.column("ms").to_numpy()
    _, place = highest(model)
    predicted = model.predict(*columns_of(more)[:2], unknown="model")[:, place].ravel()
    loss, _, _, pinball, _ = scores_by_hand(b, predicted, 0.9, np.ones(b.size, int))
    loss = pinball if hasattr(model, "taus") else loss
    assert loss_of(whole.score("fit", **at(model, 0.9))) == pytest.approx(loss, rel=1e-12)
    assert whole.score("constant", **at(model, 0.9)).coverage > 0
    with refuses(ValueError, "R must hold an observation with labels of the fit"):
        model.evaluate(log_of(["x"], ["y"], share=2), unknown="nan")


def test_a_model_without_baselines_has_no_skill(expectiles):
    old = [replace(fit, training=None) for fit in fits_of(expectiles)]
    bare = old[0] if len(old) == 1 else fastemf.Levels(tuple(old))
    found = bare.evaluate(HELD_OUT)
    assert {one.name for one in found.scores} == {"fit"}
    assert np.isnan([one.skill for one in found.scores]).all()
    assert found.verdict().count("stores no baselines") == len(old)
    assert bare.extend(MORE).evaluate(HELD_OUT).scores[0].loss == found.scores[0].loss


def test_an_evaluation_prints_its_scores_and_a_verdict(model):
    evaluation = model.evaluate(HELD_OUT)
    lines, verdict = str(evaluation).splitlines(), evaluation.verdict().splitlines()
    if evaluation.distribution:
        assert lines[-2].startswith("CRPS ")
        assert lines[-1].startswith("interval score ")
        del lines[-2:]
    assert len(lines) == 2 + len(evaluation.scores) + len(levels_of(model))
    assert lines[-len(verdict) :] == verdict
    for level, line in zip(levels_of(model), verdict, strict=True):
        scores = [one for one in evaluation.scores if one[0] == level]
        best = min(scores[1:], key=loss_of)
        ratio = loss_of(scores[0]) / loss_of(best)
        assert f"{ratio:.2f} relative to the best baseline ({best.name})" in line
        assert line.endswith("no improvement over that baseline") == (ratio > 0.995)
    assert evaluation.columns()["skill"] == [one.skill for one in evaluation.scores]
    with refuses(ValueError, "name, omega and tau must be those of a score", "'none'"):
        evaluation.score("none")


def test_zeros_have_no_relative_error_and_a_constant_no_skill(kind):
    model = made(kind, True, labelled=False)
    with pytest.warns(UserWarning, match="are zero"):
        found = model.evaluate(np.zeros(model.shape))
    assert np.isnan([one.relative_error for one in found.scores]).all()
    training = getattr(fits_of(model)[0], "training", None)
    constant = training.constant if training else model.features.centres[0]
    found = model.evaluate(np.full(model.shape, constant))
    assert np.isnan(found.score("fit").skill)
    assert "a constant predicts all observations" in found.verdict()
