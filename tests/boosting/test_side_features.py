"""Quantiles with side features of rows, columns and observations."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf import complete_quantiles
from fastemf.boosting import training

pytestmark = pytest.mark.compiled

TAUS = (0.5, 0.9)
NAMES = {"rows": "client", "cols": "service", "values": "ms"}
RNG = np.random.default_rng(0)
CLIENTS = pd.DataFrame({"client": [f"r{i}" for i in range(60)], "age": RNG.integers(0, 9, 60)})
SERVICES = pd.DataFrame({"service": [f"c{j}" for j in range(50)]})
SERVICES["kind"] = RNG.choice(["api", "batch", "web"], 50)
KINDS = SERVICES.kind.map({"api": 0.0, "batch": 5.0, "web": 20.0}).to_numpy()
I, J = np.nonzero(RNG.random((60, 50)) < 0.5)
LOG = pd.DataFrame({"client": CLIENTS.client[I].array, "service": SERVICES.service[J].array})
LOG["hour"] = RNG.integers(0, 24, I.size)
LOG["day"] = RNG.choice(["mon", "sat"], I.size)
NOISE = RNG.exponential(0.5, I.size)
EFFECTS = {  # of each kind of features
    "features": 10.0 * (LOG.hour > 17) + 8 * (LOG.day == "sat"),
    "row_features": 4.0 * CLIENTS.age[I].to_numpy(),
    "col_features": KINDS[J],
}
FEATURES = {"features": ["hour", "day"], "row_features": CLIENTS, "col_features": SERVICES}


def fit(ms, given=(), taus=TAUS, n_jobs=1):
    side = {name: FEATURES[name] for name in given}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "LEARNING_RATE", 0.15)  # fewer trees
        return complete_quantiles(
            LOG.assign(ms=ms), taus, 1, reg=0.3, n_jobs=n_jobs, **NAMES, **side
        )


@cache
def with_all():
    return fit(NOISE + sum(EFFECTS.values()), FEATURES)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEATURES)
def test_features_improve_what_only_they_determine(name):
    ms = NOISE + EFFECTS[name]
    [ours], [theirs] = (fit(ms, given, 0.5).coverage for given in ([name], []))
    if name == "features":
        assert ours.pinball < 0.4 * theirs.pinball
        return
    assert ours.pinball < 1.1 * theirs.pinball  # known pairs have a history
    kind = {"row_features": "new rows", "col_features": "new columns"}[name]
    one, other = (next(g for g in report.cold if g.name == kind) for report in (ours, theirs))
    assert one.pinball < 0.6 * min(other.pinball, one.baseline)


def test_features_given_again_change_nothing_and_others_do():
    model = with_all()
    first = LOG[:200]
    rows, cols = first.client, first.service
    own = {"age": CLIENTS.age[I[:200]].array}, {"kind": SERVICES.kind[J[:200]].array}
    asked = {"features": first[["hour", "day"]]}
    expected = model.predict(rows, cols, **asked)
    again = model.predict(rows, cols, row_features=own[0], col_features=own[1], **asked)
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(model.predict(first), expected)
    missing = model.predict(rows, cols, row_features={"age": np.full(200, np.nan)}, **asked)
    np.testing.assert_array_equal(missing, expected)
    night = model.predict(rows, cols, features={"hour": 23, "day": first.day})
    assert np.mean(night[first.hour <= 17] > expected[first.hour <= 17]) > 0.95


def test_new_rows_and_columns_are_predicted_from_their_features():
    model = with_all()
    asked = {"unknown": "model", "features": {"hour": 12, "day": "mon"}}
    by_age = [model.predict("new", "c1", row_features={"age": a}, **asked)[0] for a in (0, 4, 8)]
    by_kind = [
        model.predict("r1", "new", col_features={"kind": k}, **asked)[0] for k in ("api", "web")
    ]
    assert by_age[1] - by_age[0] > 8
    assert by_age[2] - by_age[1] > 8
    assert by_kind[1] - by_kind[0] > 12
    given = {"row_features": {"age": 8}, "features": asked["features"]}
    ranked = model.rank("new", 50, order="largest", tau=0.5, **given)
    values = model.predict("new", ranked.cols, **given)[:, 0]
    np.testing.assert_array_equal(ranked.values, values)
    assert (np.diff(values) <= 0).all()


def test_missing_and_unseen_values_have_finite_predictions():
    model = with_all()
    for given in (
        {}, {"features": {"hour": None, "day": "never"}}, {"features": {"hour": -1e300}},
        {"row_features": {"age": 1e300}, "col_features": {"kind": "unseen"}},
    ):  # fmt: skip
        predicted = model.predict(
            ["r1", "r2", "new"], ["c1", "new", "new"], unknown="model", **given
        )
        assert np.isfinite(predicted).all()
        assert (np.diff(predicted, axis=-1) >= 0).all()
    low, high = model.interval("r1", "c1", coverage=0.9, side="below", features={"hour": 3})
    assert (low, high) == (-np.inf, model.predict("r1", "c1", features={"hour": 3})[1])


def test_explanations_name_the_features():
    model = with_all()
    given = {"hour": 20, "day": "sat"}
    for row in ("r3", "new"):
        asked = {"features": given, "row_features": {"age": 8}, "unknown": "model"}
        found = model.explain(row, "c4", tau=0.9, **asked)
        assert found.value == model.predict(row, "c4", **asked)[1]
        assert sum(found.parts.values()) == pytest.approx(found.value, rel=1e-9)
        assert {"client", "service", "age", "kind", "hour", "day"} < set(found.parts)
        assert found.parts["hour"] > 2
        assert found.parts["day"] > 1
        assert any("new" in note for note in found.notes) == (row == "new")


def test_the_largest_of_many_groups_are_reported(tmp_path):
    rng, sizes = np.random.default_rng(0), np.where(np.arange(130) % 13 < 3, 20, 22)
    group = np.append(np.repeat(np.arange(130), sizes), np.arange(130, 150))  # and 20 of one cell
    i, j = np.divmod(rng.permutation(60 * 50)[: group.size], 50)
    log = pd.DataFrame({"client": i, "service": j, "group": [f"g{at:03}" for at in group]})
    model = complete_quantiles(
        log.assign(ms=rng.lognormal(size=group.size)), 0.5, 0, reg=1, max_iter=3,
        features=["group"], groups="group", calibrate="groups", **NAMES,
    )  # fmt: skip
    [report] = model.coverage
    assert [one.name for one in report.groups] == [f"g{at:03}" for at in np.flatnonzero(sizes > 20)]
    assert not model.combination.shifts.by_code.any()  # too few cells
    model.save(tmp_path / "model.npz")
    assert fastemf.load(tmp_path / "model.npz").coverage == model.coverage


def test_models_with_features_are_bitwise_equal(tmp_path):
    model, path = with_all(), tmp_path / "model.npz"
    model.save(path)
    for other in (fastemf.load(path), fit(NOISE + sum(EFFECTS.values()), FEATURES, n_jobs=2)):
        np.testing.assert_array_equal(other.predict(LOG), model.predict(LOG))
        assert other.coverage == model.coverage
        assert other.features.names == (("age",), ("kind",), ("hour", "day"))
        assert repr(other) == repr(model)


def test_new_items_of_a_model_with_features():
    model = with_all()
    new = LOG.assign(client="n" + LOG.client, ms=NOISE + sum(EFFECTS.values()))[I < 5]
    ages = pd.DataFrame({"client": "n" + CLIENTS.client[:5], "age": CLIENTS.age[:5]})
    grown, folded = (ask(new, row_features=ages) for ask in (model.extend, model.fold_in))
    np.testing.assert_array_equal(grown.predict(LOG), model.predict(LOG))
    np.testing.assert_array_equal(grown.predict(new), folded.predict(new))
    # As if they had been fitted, but for a fifth of their cells in each fit.
    before = model.predict(LOG[I < 5])
    assert np.median(np.abs(folded.predict(new) - before) / before) < 0.1
    assert folded.evaluate(new).score("fit", tau=0.5).skill > 0.7
    bare = folded.predict(new, row_features={"age": CLIENTS.age[I[I < 5]].array})
    np.testing.assert_array_equal(bare, folded.predict(new))


# --- LightGBM --------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["lightgbm"] = None
import fastemf
model = fastemf.load(sys.argv[1])
print(model.predict("r1", 10)[0], sum(model.explain("r1", 10, tau=0.7).parts.values()))
try:
    fastemf.complete_quantiles([[1.0, 2.0]], 0.5, 1)
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.subprocess
def test_fitting_needs_lightgbm_but_predicting_does_not(request):
    path = request.config.rootpath / "tests" / "golden" / "quantiles-v1.npz"
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, path], capture_output=True, text=True, check=True
    )
    predicted, message = ran.stdout.splitlines()
    model = fastemf.load(path)
    expected = [model.predict("r1", 10)[0], model.predict("r1", 10)[1]]
    np.testing.assert_allclose([float(one) for one in predicted.split()], expected, rtol=1e-9)
    assert message == "fitting quantiles needs lightgbm: pip install 'fastemf[quantiles]'"
