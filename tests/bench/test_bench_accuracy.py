"""The benchmark of accuracy runs and its arithmetic is right; no accuracy is checked."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from bench import accuracy
from bench.accuracy import (
    FAMILIES,
    FAMILIES_WITH_FEATURES,
    SETS_WITH_FEATURES,
    Cells,
    Split,
    Training,
    censoring,
    experiments,
    score,
    trees,
)
from bench.accuracy.__main__ import main
from bench.accuracy.baselines import column_expectiles
from bench.accuracy.splits import divide, hold_out
from fastemf.loss import expectile
from fastemf.metrics import effective_omega, pinball_loss

pytestmark = pytest.mark.bench


@pytest.mark.compiled
def test_smoke(tmp_path, capsys):
    out = tmp_path / "accuracy.json"
    options = ["--smoke", "--seeds", "0", "--omegas", "0.9", "--k", "2", "--out", str(out)]
    assert main([*options, "--methods", "constant,columns,intercepts,auto", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "Failures" in printed
    assert "| mirrored | 1.000 |" in printed
    runs = json.loads(out.read_text())["results"]
    assert {run["set"] for run in runs} == set(FAMILIES)
    assert len(runs) == 4 * len(FAMILIES)
    assert all(run["error"] is None for run in runs)
    assert all(run["loss"] == 1 for run in runs if run["method"] == "constant")

    # A second run keeps the other results and replaces its own.
    pytest.importorskip("matplotlib")
    plot = tmp_path / "accuracy.png"
    assert main([*options, "--sets", "left", "--methods", "auto", "--plot", str(plot)]) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = json.loads(out.read_text())["results"]
    assert len(again) == len(runs)
    assert again[-1]["set"] == "left"


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["cmfrec", "lightgbm"])
def test_competitors(method):
    pytest.importorskip(method)
    fit = accuracy.METHODS[method]
    if method == "cmfrec":
        fit = partial(fit, grid=((3.0, 10.0),))
    for name in ("few", "mirrored"):  # columns without training cells; mirrored cells
        train, test, _ = FAMILIES[name](0, (80, 90))
        predicted = fit(train, 0.9, 0, 2)(test.rows, test.cols)
        assert predicted.shape == test.values.shape
        assert np.isfinite(predicted).all()
    train, test, _ = FAMILIES["additive"](0, (200, 150))
    predicted = fit(train, 0.9, 0, 2)(test.rows, test.cols)
    assert score(predicted, test.values, expectile(train.cells.values, 0.9), 0.9).loss < 0.9


@pytest.mark.slow
@pytest.mark.compiled
def test_quantiles_smoke(tmp_path, capsys):
    out = tmp_path / "quantiles.json"
    options = ["--quantiles", "--smoke", "--seeds", "0", "--k", "1", "--out", str(out)]
    options += ["--methods", "quantiles,simple", "--markdown"]
    assert main([*options, "--sets", "mirrored"]) == 0
    assert main([*options, "--sets", "features_only", "--cold", "cols"]) == 0
    printed = capsys.readouterr().out
    assert "worse than a simple baseline: " in printed
    assert "| mirrored |" in printed
    assert "| features_only, new cols |" in printed
    runs = json.loads(out.read_text())["results"]
    assert len(runs) == 2 * 3 * 5  # sets, quantiles, methods
    assert all(run["error"] is None for run in runs)
    assert all(0 < run["loss"] < 2 and 0.3 < run["coverage"] <= 1 for run in runs)
    new = [run for run in runs if run["set"] == "features_only, new cols"]
    assert {run["loss"] for run in new if run["method"] == "column"} == {1.0}  # the constant


def _with_features() -> Split:
    """Return values whose features explain them up to a number from 0 to 1."""
    rng = np.random.default_rng(0)
    m, n = 60, 50
    rows, cols = (places.ravel() for places in np.indices((m, n)))
    kind, hour = rng.choice(["a", "b"], m * n), rng.random(m * n)
    values = 5.0 * (kind == "b") + 10 * hour + rng.random(m * n)
    fitted = rng.random(m * n) < 0.5
    whole, test, _ = divide(Cells(rows, cols, values), (m, n), fitted)
    known, rest = ({"kind": kind[part], "hour": hour[part]} for part in (fitted, ~fitted))
    return Split(Training(whole.cells, (m, n), features=known), test, rest)


@pytest.mark.parametrize("library", ["lightgbm", "catboost"])
def test_quantiles_of_trees_use_features(library):
    pytest.importorskip(library)
    split = _with_features()
    one = getattr(trees, f"{library}_quantile")
    predicted = trees.predict_quantiles(one, split, (0.1, 0.9), 0)
    assert predicted.shape == (split.test.values.size, 2)
    for t, tau in enumerate((0.1, 0.9)):
        constant = np.full(split.test.values.size, np.quantile(split.train.cells.values, tau))
        loss = pinball_loss(split.test.values, predicted[:, t], tau)
        assert loss < 0.3 * pinball_loss(split.test.values, constant, tau)


@pytest.mark.parametrize("axis", [0, 1])
def test_features_stay_with_their_cells_in_cold_starts(axis):
    train, test, features = hold_out(lambda seed: _with_features(), axis)(0)
    for values, own in ((train.cells.values, train.features), (test.values, features)):
        noise = values - 5.0 * (own["kind"] == "b") - 10 * own["hour"]
        assert noise.min() >= 0
        assert noise.max() <= 1


@pytest.mark.parametrize("name", ["additive", "mirrored"])
@pytest.mark.parametrize("axis", [0, 1])
def test_cold_starts_have_a_new_and_a_known_side(name, axis):
    def make(seed):
        return FAMILIES[name](seed, (50, 40))

    whole, (train, test, _) = make(3), hold_out(make, axis)(3)
    assert train.shape == whole.train.shape
    before, after = (np.unique(one.cells[axis]) for one in (whole.train, train))
    assert before.size - after.size == before.size // 5
    assert not np.isin(test[axis], after).any()
    assert np.isin(test[1 - axis], train.cells[1 - axis]).all()
    if train.mirrored:
        assert not np.isin(train.cells[1 - axis], np.setdiff1d(before, after)).any()


@pytest.mark.slow
@pytest.mark.compiled
def test_experiments():
    assert 0 <= experiments.rank_safest(0, (200, 25)) <= 1
    assert all(0 < ratio < 100 for ratio in experiments.add_sentinel(0, (30, 25)))


@pytest.mark.slow
@pytest.mark.compiled
def test_censored_smoke(capsys, monkeypatch):
    monkeypatch.setattr(censoring, "CUTS", (0.9,))
    monkeypatch.setattr(censoring, "NOISES", (0.1,))
    assert main(["--censored", "--smoke", "--seeds", "0", "--omegas", "0.5"]) == 0
    out = capsys.readouterr().out
    assert out.count("declared ") == 2 + 1  # without intercepts, with them; the worst run


@pytest.mark.slow
@pytest.mark.compiled
def test_histograms_smoke(capsys):
    assert main(["--histograms", "--smoke"]) == 0
    assert capsys.readouterr().out.count("ratio ") == 4  # two kinds of buckets, two quantiles


@pytest.mark.parametrize("name", [*FAMILIES, *FAMILIES_WITH_FEATURES])
def test_families(name):
    make = {**FAMILIES, **FAMILIES_WITH_FEATURES}[name]
    train, test, features = make(1, (50, 40))
    again = make(1, (50, 40)).train
    for first, second in zip(train.cells, again.cells, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_equal(train.side, again.side)
    assert features.keys() == train.features.keys()
    assert {len(one) for one in features.values()} <= {test.values.size}
    other = make(2, (50, 40)).train.cells.values
    assert not np.array_equal(train.cells.values, other)
    n = train.shape[1]
    fitted, tested = (set((cells.rows * n + cells.cols).tolist()) for cells in (train.cells, test))
    assert min(len(fitted), len(tested)) > 0
    assert not fitted & tested
    if train.mirrored:
        assert {cell % n * n + cell // n for cell in fitted} == fitted


def test_mirrored_and_repeated_cells_share_a_fold():
    rows, cols = np.array([0, 1, 2, 0, 1, 1, 2]), np.array([1, 0, 0, 2, 2, 2, 1])
    train = Training(Cells(rows, cols, np.arange(7.0)), (3, 3), mirrored=True)
    for seed in range(5):
        fold = train.folds(3, seed)
        assert fold[0] == fold[1]
        assert fold[2] == fold[3]
        assert fold[4] == fold[5] == fold[6]
        assert set(fold.tolist()) == {0, 1, 2}


def test_score_of_the_constant_and_its_level():
    rng = np.random.default_rng(0)
    samples = rng.lognormal(size=(400, 500))
    found = [score(np.full(500, 2.0), sample, 2.0, 0.7) for sample in samples]
    assert {entry.loss for entry in found} == {1.0}
    assert found[0].level == effective_omega(samples[0] - 2.0)
    # The standard error agrees with the spread over samples.
    spread = np.std([entry.level for entry in found])
    assert np.mean([entry.level_error for entry in found]) == pytest.approx(spread, rel=0.15)


def test_columns_without_a_ridge_are_their_expectiles():
    train = FAMILIES["additive"](0, (50, 12)).train
    _, cols, values = train.cells
    seen = np.unique(cols)
    predicted = column_expectiles(train, 0.8, 0, 1, ridge=0.0)(seen, seen)
    expected = [expectile(values[cols == column], 0.8) for column in seen]
    np.testing.assert_allclose(predicted, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuairand_duration", "wsdream5_places"])
def test_features_of_real_data(name):
    try:
        train, test, _ = SETS_WITH_FEATURES[name](0)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for features, size in zip((train.row_features, train.col_features), train.shape, strict=True):
        assert {one.shape for one in features.values()} <= {(size,)}
    if name == "kuairand_duration":
        new = ~np.isin(test.cols, train.cells.cols)
        assert new.any()
        assert np.isfinite(train.col_features["duration_s"][test.cols[new]]).all()


def test_absent_data_are_reported(monkeypatch, capsys):
    monkeypatch.setenv("FASTEMF_DATA", "")
    with pytest.raises(FileNotFoundError, match="FASTEMF_DATA"):
        accuracy.SETS["kuairand"](0)
    assert main(["--sets", "kuairand", "--methods", "constant"]) == 0
    assert "kuairand: skipped" in capsys.readouterr().out
