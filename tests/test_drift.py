"""Fits to data with times: the report on the latest tenth, weights by age, and validation cells."""

from __future__ import annotations

import json
import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from scenes import refuses

import fastemf
from fastemf import complete, complete_levels, complete_quantiles
from fastemf.drift import BLOCKS, _is_gain, _time_blocks

M, N, SIZE = 40, 25, 3000
FAST = {"reg": 0.3, "tol": 1e-3, "n_jobs": 1}
NAMES = {"rows": "client", "cols": "service", "values": "ms"}


def log(*, factor=1.0, seed=0, size=SIZE):
    """A log whose values of every second column are multiplied by `factor` after 70 % of the time.

    All observations but a few have other times.
    """
    rng = np.random.default_rng(seed)
    i, j, t = rng.integers(0, M, size), rng.integers(0, N, size), rng.uniform(0, 30, size)
    i[:M], j[:M], t[:M] = np.arange(M), np.arange(M) % N, rng.uniform(0, 1, M)  # all rows are known
    logs = rng.normal(3, 0.5, M)[i] + rng.normal(0, 0.5, N)[j] + rng.normal(0, 0.3, size)
    return i, j, np.exp(logs) * np.where((t > 21) & (j % 2 == 0), factor, 1.0), t


I, J, VALUES, TIMES = log()
DATA = (I, J, VALUES)
START = np.sort(TIMES)[-SIZE // 10]
LATEST = TIMES >= START
SHAPE = {"shape": (M, N)}


def part(mask, data=DATA):
    return tuple(column[mask] for column in data)


def of_levels(R, **more):
    return complete_levels(R, (0.3, 0.7), 2, **FAST, **more)


def of_level(R, **more):
    return complete(R, 0.3, 2, intercepts=True, **FAST | more)


def of_quantiles(R, **more):
    return complete_quantiles(R, (0.5, 0.9), 1, **FAST, **more)


def of_boosted(R, **more):
    return complete_levels(R, (0.3, 0.7), 1, boost=True, **FAST, **more)


KINDS = {"level": of_level, "levels": of_levels, "quantiles": of_quantiles, "boosted": of_boosted}
WITH_TREES = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("quantiles", "boosted")]


@cache
def timed(kind):
    return KINDS[kind](DATA, time=TIMES)


def predictions(model):
    return model.predict_block(np.arange(M))


def columns():
    return pd.DataFrame(
        {
            "client": [f"c{i}" for i in I],
            "service": [f"s{j}" for j in J],
            "ms": VALUES,
            "day": TIMES,
        }
    )


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["level", "levels", *WITH_TREES])
def test_times_alone_do_not_change_the_model(kind):
    np.testing.assert_array_equal(predictions(timed(kind)), predictions(KINDS[kind](DATA)))


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_the_report_is_of_a_fit_to_the_earlier_part(kind):
    report = timed(kind).drift
    before = KINDS[kind](part(~LATEST), **SHAPE)
    evaluation = before.evaluate(part(LATEST))
    scores = [one for one in evaluation.scores if one.name == "fit"]
    assert report.observations == LATEST.sum() == SIZE // 10
    assert (report.left_out, report.proportion, report.start) == (0, 0.1, START)
    for own, score in zip(report.held_out, scores, strict=True):
        if kind == "quantiles":
            assert (own.coverage, own.loss) == pytest.approx((score.coverage, score.pinball))
        else:
            expected = score.effective_omega, score.loss
            assert (own.coverage, own.loss) == pytest.approx(expected)


@pytest.mark.compiled
def test_random_folds_of_quantiles_are_out_of_fold():
    before = of_quantiles(part(~LATEST), **SHAPE)
    for own, wanted in zip(timed("quantiles").drift.folds, before.coverage, strict=True):
        assert (own.coverage, own.interval) == (wanted.coverage, wanted.interval)
        assert (own.cells, own.loss) == (wanted.cells, pytest.approx(wanted.pinball))


@pytest.mark.compiled
def test_random_folds_of_a_level_are_validation_cells():
    settings = {"intercepts": True, "tol": 1e-3}
    fit = complete(DATA, 0.3, 2, time=TIMES, **settings)
    before = complete(part(~LATEST), 0.3, 2, **SHAPE, **settings)
    [own] = fit.drift.folds
    assert (own.loss, own.coverage) == (before.tuning.loss, before.tuning.effective_omega)
    assert timed("level").drift.folds == ()  # nothing was tuned


@pytest.mark.parametrize("kind", ["level", "levels", *WITH_TREES])
def test_a_half_life_is_a_weight(kind):
    """Weights by age multiply those given."""
    given = np.random.default_rng(1).uniform(0.5, 2, SIZE)
    halving = 0.5 ** ((TIMES.max() - TIMES) / 5)
    for more, weights in (({}, halving), ({"weights": given}, given * halving)):
        one = KINDS[kind](DATA, time=TIMES, half_life=5, **more)
        other = KINDS[kind](DATA, weights=weights)
        np.testing.assert_array_equal(predictions(one), predictions(other))
        assert one.drift.half_life == 5
    fit = getattr(one, "fits", one)
    while isinstance(fit, tuple):
        fit = fit[0]
    assert fit.weighted


@pytest.mark.compiled
def test_weights_by_age_are_not_weights_of_the_data():
    assert not of_level(DATA, time=TIMES, half_life=5).weighted


@pytest.mark.compiled
def test_dates_and_durations():
    table = columns()
    dates = pd.Timestamp("2024-02-29") + pd.to_timedelta(TIMES, unit="D")
    table["when"] = dates
    one = of_level(table, **NAMES, time="day", half_life=7)
    other = of_level(table, **NAMES, time="when", half_life="7d")
    np.testing.assert_allclose(one.to_dense(), other.to_dense(), rtol=1e-6)
    assert other.drift.half_life == 7 * 86_400
    assert (other.drift.time, other.drift.is_date) == ("when", True)
    assert "when from 2024-03-2" in str(other)
    assert "weights are halved with every 7 d of age" in str(other)
    assert "day from 2" in str(one)


@pytest.mark.compiled
def test_drift_is_found():
    i, j, values, t = log(factor=2.0)
    drifting = complete_quantiles((i, j, values), (0.5, 0.9), 1, time=t, **FAST)
    assert drifting.drift.differs
    assert drifting.drift.held_out[0].coverage < 0.45
    assert "p50 covers" in str(drifting)
    assert "the data drift" in str(drifting)
    assert not timed("quantiles").drift.differs
    assert "the data drift" not in str(timed("quantiles"))


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["level", WITH_TREES[0]])
def test_auto_weighs_by_age_only_if_the_data_drift(kind):
    i, j, values, t = log(factor=2.0)
    train, more = t < 27, {"reg": "auto"} if kind == "level" else {}
    data, later = part(train, (i, j, values)), part(~train, (i, j, values))
    chosen = KINDS[kind](data, time=t[train], half_life="auto", **SHAPE, **more)
    plain = KINDS[kind](data, **SHAPE, **more)
    assert 0 < chosen.drift.half_life < 15
    name = "loss" if kind == "level" else "pinball"
    losses = [
        [getattr(one, name) for one in model.evaluate(later).scores if one.name == "fit"]
        for model in (chosen, plain)
    ]
    assert (np.array(losses[0]) < 0.97 * np.array(losses[1])).all()
    steady = KINDS[kind](DATA, time=TIMES, half_life="auto")
    assert steady.drift.half_life == np.inf
    np.testing.assert_array_equal(predictions(steady), predictions(timed(kind)))


@pytest.mark.compiled
def test_auto_does_not_trust_a_single_time():
    """One latest day may be unlike the days that follow it."""
    i, j, values, t = log(factor=2.0)
    days = np.minimum(t // 10, 2)
    assert of_level((i, j, values), time=days, half_life="auto").drift.half_life == np.inf


@pytest.mark.compiled
def test_auto_is_not_misled_by_a_daily_cycle():
    """The latest tenth of a log of three days is one phase of the cycle, which the next is not."""
    cycle = VALUES * np.exp(np.sin(2 * np.pi * TIMES / 10))
    cyclic = partial(of_level, (I, J, cycle), time=TIMES, half_life="auto", reg="noise")
    assert cyclic().drift.half_life == np.inf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.drift.WINDOWS", 1)  # without the windows before the latest tenth
        assert cyclic().drift.half_life < 30


@pytest.mark.compiled
def test_blocks_of_time():
    times = np.random.default_rng(0).permutation(np.arange(80.0))
    blocks = _time_blocks(times)
    assert (blocks == times // (80 / BLOCKS)).all()
    assert _time_blocks(np.array([3.0, 3, 3, 1, 1, 2])).tolist() == [2, 2, 2, 0, 0, 1]
    gains = np.repeat([1.0, 0.9, 1.1], 10)
    assert _is_gain(gains, np.arange(30) // 10)
    assert not _is_gain(gains - 0.9, np.arange(30) // 10)  # in two of three blocks


@pytest.mark.compiled
def test_new_rows_are_left_out():
    early = (TIMES < START) | (I > 0)  # row 0 has only latest observations
    fit = of_level(part(early | LATEST), time=TIMES[early | LATEST])
    first = (I == 0) & LATEST
    keep = (I > 0) | first
    fit = of_level(part(keep), time=TIMES[keep], **SHAPE)
    assert fit.drift.left_out == first.sum() > 0
    other = of_level((TIMES.astype(int), J, VALUES), time=TIMES.astype(int))
    assert other.drift.held_out == ()  # rows are days
    assert "no row and column has both earlier and latest observations" in str(other)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_reports_are_saved(kind, tmp_path):
    model = timed(kind)
    model.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    assert loaded.drift == model.drift
    assert str(loaded) == str(model)
    for line in model.drift.details():
        assert line in str(model)
        assert line.split(" (")[0].strip() in model._repr_html_()


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["level", "quantiles"])
def test_the_page_shows_the_report(kind):
    page = fastemf.report(timed(kind), part(LATEST))
    assert "Held-out cells" in page
    assert "of the latest 10 %" in page
    assert "Held-out cells" not in fastemf.report(of_level(DATA), part(LATEST))


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_folded_in_models_have_no_report(kind):
    new = (np.zeros(5, int), np.arange(5), VALUES[:5])
    assert timed(kind).fold_in(new).drift is None
    assert timed(kind).extend(new).drift is None


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["level", "quantiles"])
def test_damaged_reports_are_refused(kind, tmp_path):
    timed(kind).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    for name, wrong in (("levels", []), ("held_out", [{}]), ("start", "now"), ("folds", None)):
        damaged = header | {"drift": header["drift"] | {name: wrong}}
        encoded = np.frombuffer(json.dumps(damaged).encode(), np.uint8)
        np.savez(tmp_path / "damaged.npz", **arrays | {"header": encoded})
        with refuses(fastemf.ModelFileError, "drift must have"):
            fastemf.load(tmp_path / "damaged.npz")


@pytest.mark.compiled
def test_the_second_fit_is_silent(tmp_path):
    """It calls no callback, writes no checkpoint, and repeats no warning."""
    records, plain = [], []
    path = tmp_path / "state.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = of_level(DATA, time=TIMES, callback=records.append, checkpoint=path)
    other = of_level(DATA, callback=plain.append)
    assert len(records) == len(plain) == one.n_iter == other.n_iter
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.compiled
def test_a_generator_gives_the_same_fit_with_times():
    fits = [
        complete(
            DATA, 0.3, 2, reg=0.3, init="random", random_state=np.random.default_rng(3), **more
        )
        for more in ({}, {"time": TIMES})
    ]
    np.testing.assert_array_equal(fits[0].X, fits[1].X)


@pytest.mark.compiled
def test_censored_values():
    limit = float(np.quantile(VALUES, 0.95))
    values = np.minimum(VALUES, limit)
    for kind in ("level", "quantiles"):
        model = KINDS[kind]((I, J, values), time=TIMES, half_life="auto", censored=("right", limit))
        assert model.censored == ("right", limit)
        assert len(model.drift.held_out) > 0
        assert not model.drift.differs


# --- validation cells of quantiles ---------------------------------------------------------------


@pytest.mark.compiled
def test_validation_entries_are_not_fitted():
    validated = of_quantiles(part(~LATEST), validation=part(LATEST), **SHAPE)
    plain = of_quantiles(part(~LATEST), **SHAPE)
    np.testing.assert_array_equal(predictions(validated), predictions(plain))
    assert plain.validation is None
    report, evaluation = validated.validation, plain.evaluate(part(LATEST))
    assert report.observations == LATEST.sum()
    for own, wanted in zip(report.held_out, evaluation.coverage, strict=True):
        assert (own.coverage, own.interval) == (wanted.coverage, wanted.interval)
        assert own.loss == pytest.approx(wanted.pinball)
    assert [one.coverage for one in report.folds] == [one.coverage for one in plain.coverage]
    assert "of the validation cells" in str(validated)


@pytest.mark.compiled
def test_a_proportion_for_validation(tmp_path):
    log = columns().assign(hour=TIMES % 24)
    given = {"features": ["hour"], "time": "day", **NAMES}
    model = of_quantiles(log, validation=fastemf.Validation(0.2), **given)
    assert 0.15 * SIZE < model.validation.observations < 0.25 * SIZE
    assert model.drift.observations < 0.09 * SIZE
    model.save(tmp_path / "model.npz")
    assert fastemf.load(tmp_path / "model.npz").validation == model.validation
    assert model.extend(columns()[:5].assign(client="new")).validation is None


@pytest.mark.compiled
def test_validation_entries_have_labels_and_features():
    log = columns().assign(hour=VALUES)  # a feature that gives the value away
    train, rest = log[~LATEST], log[LATEST]
    model = of_quantiles(train, validation=rest, features=["hour"], **NAMES)
    for held_out, same in ((rest, True), (rest.drop(columns="hour"), False)):
        score = model.evaluate(held_out).score(tau=0.5)
        assert (model.validation.held_out[0].loss == pytest.approx(score.pinball)) == same


@pytest.mark.compiled
def test_refused_settings(tmp_path):
    with refuses(ValueError, "half_life must be given with time"):
        of_quantiles(DATA, half_life=3)
    with refuses(ValueError, "validation must be a proportion", 2):
        of_quantiles(DATA, validation=2)
    with refuses(ValueError, "time must tell the latest tenth"):
        of_level(DATA, time=np.zeros(SIZE))
