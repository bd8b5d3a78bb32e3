"""One small fit of quantiles and of levels, also without the JIT: files, groups, new rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf.boosting import out_of_fold

RNG = np.random.default_rng(0)
I, J = np.nonzero(RNG.random((30, 20)) < 0.8)
REGIONS = np.array(["eu", "us", None], object)[np.arange(30) % 3]
LOG = pd.DataFrame(
    {"client": [f"c{i}" for i in I], "service": J, "hour": RNG.integers(0, 24, I.size)}
)
LOG["ms"] = np.exp(RNG.normal(0, 0.5, I.size) + 0.1 * (I % 7) + 0.1 * (J % 5)) * (1 + (I % 3))
CLIENTS = pd.DataFrame({"client": [f"c{i}" for i in range(30)], "region": REGIONS})
NAMES = {"rows": "client", "cols": "service", "values": "ms"}
SETTINGS = {"reg": 0.3, "max_iter": 30, "n_jobs": 1, "row_features": CLIENTS, "features": ["hour"]}


@cache
def quantiles():
    return fastemf.complete_quantiles(LOG, (0.3, 0.8), 1, groups="region", **NAMES, **SETTINGS)


@cache
def levels():
    return fastemf.complete_levels(
        LOG, (0.2, 0.8), 1, boost=True, intercepts=True, **NAMES, **SETTINGS
    )


@pytest.mark.parametrize("make", [quantiles, levels])
def test_files_single_cells_and_explanations(make, tmp_path):
    model = make()
    predicted = model.predict(LOG)
    assert (np.diff(predicted, axis=-1) >= 0).all()
    assert LOG.ms.min() <= predicted.min() <= predicted.max() <= LOG.ms.max()
    model.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(LOG), predicted)
    assert str(loaded) == str(model)
    many = model.predict(["c1", "c2"], [3, 4])
    np.testing.assert_array_equal([model.predict("c1", 3), model.predict("c2", 4)], many)
    level = {"tau": 0.8} if make is quantiles else {"omega": 0.8}
    for client in ("c1", "new"):
        given = {"features": {"hour": 4}, "row_features": {"region": ["eu"]}}
        found = model.explain(client, 3, **level, **given)
        assert {"client", "service", "region", "hour"} < set(found.parts)
        assert found.value == pytest.approx(sum(found.parts.values()))
        assert found.value == model.predict(client, 3, **given)[1]
    assert "the client is new" in " ".join(found.notes)


def test_wrong_reports_of_levels_are_refused(tmp_path):
    first, *others = levels().reports
    bad = [replace(first, omega=0.3), replace(first, loss=np.inf), replace(first, loss="1")]
    bad += [replace(first, cold=(replace(first.cold[0], constant=np.nan),))]
    for reports in [(), (first,), *((one, *others) for one in bad)]:
        replace(levels(), reports=tuple(reports)).save(tmp_path / "levels.npz")
        with pytest.raises(fastemf.ModelFileError, match="reports must"):
            fastemf.load(tmp_path / "levels.npz")


def test_levels_report_cold_starts():
    kinds = ["known pairs", "new rows", "new columns", "new rows and columns"]
    for report in levels().reports:
        assert [group.name for group in report.cold] == kinds
        known, *new = report.cold
        assert known.cells == I.size
        assert (known.loss, known.effective_omega) == (report.loss, report.effective_omega)
        assert all(group.loss > known.loss for group in new)
        assert abs(new[0].effective_omega - report.omega) < 0.1
        assert str(new[0]) in str(levels())


@pytest.mark.parametrize("side", ["right", "left"])
def test_explanations_and_reports_of_censored_values(side):
    sign = 1 if side == "right" else -1
    limit = sign * float(LOG.ms.quantile(0.7))
    cut = LOG.assign(ms=sign * np.minimum(LOG.ms, sign * limit))
    given = {"censored": (side, limit), **NAMES, **SETTINGS}
    model = fastemf.complete_quantiles(cut, (0.2, 0.8), 1, **given)
    predicted = sign * model.predict_block(model.row_labels.values)
    for tau, values in zip(model.taus, np.moveaxis(predicted, -1, 0), strict=True):
        for at in (values.argmin(), values.argmax()):
            i, j = np.unravel_index(at, values.shape)
            found = model.explain(model.row_labels.values[i], model.col_labels.values[j], tau=tau)
            is_beyond = bool(values[i, j] >= sign * limit)
            assert ("extrapolated" in " ".join(found.notes)) == is_beyond
            at_end = found.value in (model.combination.low, model.combination.high)
            assert ("end of the range" in " ".join(found.notes)) == at_end
    assert (predicted >= sign * limit).any()
    assert (predicted < sign * limit).any()
    assert "nan" not in str(model)


@pytest.mark.parametrize("make", [quantiles, levels])
def test_new_rows_are_appended(make):
    model = make()
    new = LOG[LOG.client == "c3"].assign(client="new")
    more = model.extend(new, row_features=pd.DataFrame({"client": ["new"], "region": ["eu"]}))
    assert more.shape == (31, 20)
    assert "measured before the update" in str(more)
    page = fastemf.report(more, new)
    assert "They were measured before the update." in page
    np.testing.assert_array_equal(more.predict(LOG), model.predict(LOG))
    found, like = more.predict(["new"], [5])[0], model.predict(["c3"], [5])[0]
    np.testing.assert_allclose(found, like, rtol=0.5)


def test_groups_are_reported_and_calibrated(monkeypatch, tmp_path):
    report = quantiles().coverage[1]
    assert [group.name for group in report.groups] == ["eu", "us"]
    weights = [group.cells for group in report.groups]
    assert sum(weights) == np.count_nonzero(I % 3 < 2)
    monkeypatch.setattr(out_of_fold, "FEWEST_CALIBRATED", 100)
    settings = {"groups": "region", **NAMES, **SETTINGS}
    plain, model = (
        fastemf.complete_quantiles(LOG, 0.8, 1, calibrate=calibrate, **settings)
        for calibrate in (None, "groups")
    )
    before, after = (one.predict(LOG)[:, 0] for one in (plain, model))
    np.testing.assert_array_equal(after[I % 3 == 2], before[I % 3 == 2])  # without a group
    for code, group in enumerate(model.coverage[0].groups):
        shift = float(model.combination.shifts.by_code[code, 0])
        own = (code == I % 3) & (before + shift < LOG.ms.max()) & (before < LOG.ms.max())
        np.testing.assert_allclose(after[own], before[own] + shift)
        assert shift != 0
        assert abs(group.coverage - 0.8) < 0.1
    model.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(LOG)[:, 0], after)
    assert loaded.groups == "region"
    assert loaded.coverage == model.coverage
    with pytest.raises(ValueError, match="groups must be a feature of categories, got 'hour'"):
        fastemf.complete_quantiles(LOG, 0.5, 1, groups="hour", **NAMES, **SETTINGS)
    with pytest.raises(ValueError, match="groups must name a feature"):
        fastemf.complete_quantiles(LOG, 0.5, 1, calibrate="groups", **NAMES)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_levels_without_intercepts_have_finite_cold_starts(seed, tmp_path):
    # The fits of a cell with a new row and a new column are exactly 0.
    R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.6, random_state=seed).R.toarray()
    R[R == 0] = np.nan
    R[3] = np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations"):
        model = fastemf.complete_levels(R, (0.1, 0.9), 2, boost=True, reg=0.3, max_iter=30)
    model.save(tmp_path / "levels.npz")
    loaded = fastemf.load(tmp_path / "levels.npz")
    predicted = loaded.predict(3, np.arange(20))
    assert np.isfinite(predicted).all()
    best = loaded.rank(3, 2, order="smallest", omega=0.9)
    np.testing.assert_array_equal(best.values, np.sort(predicted[:, 1])[:2])


def test_constant_data(tmp_path):
    model = fastemf.complete_levels(np.ones((15, 10)), (0.3, 0.9), 1, boost=True)
    model.save(tmp_path / "levels.npz")
    assert fastemf.load(tmp_path / "levels.npz").predict(1, 2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("tiny", [1e-17, 1e-14])
def test_weights_may_be_tiny(tiny, tmp_path):
    R = np.random.default_rng(0).lognormal(size=(20, 15))
    weights = np.where(np.sort(R.ravel())[-5] <= R, tiny, 1.0)
    model = fastemf.complete_quantiles(R, 0.5, 1, weights=weights, reg=0.3)
    model.save(tmp_path / "quantiles.npz")
    assert np.isfinite(fastemf.load(tmp_path / "quantiles.npz").predict_block([0])).all()


def test_an_index_of_labels_without_a_name_is_matched_by_label():
    labels = [f"r{i}" for i in range(20)]
    R = pd.DataFrame(np.random.default_rng(0).lognormal(size=(20, 15)), index=labels)
    ages = pd.DataFrame({"age": np.arange(20.0)}, index=labels)
    model = fastemf.complete_quantiles(R, 0.5, 1, row_features=ages, reg=0.3)
    some = ["r0", "r9", "r4"]
    found = model.predict(some, 2, row_features=ages.loc[["r4", "r9", "r0"]])
    np.testing.assert_array_equal(found, model.predict(some, 2))
    found = model.predict(some, 2, row_features=ages.age.loc[["r4", "r9", "r0"]])
    np.testing.assert_array_equal(found, model.predict(some, 2))


def test_features_need_boosting():
    with pytest.raises(ValueError, match="need boost=True"):
        fastemf.complete_levels(np.eye(3), (0.1, 0.9), 1, row_features=np.ones((3, 1)))
