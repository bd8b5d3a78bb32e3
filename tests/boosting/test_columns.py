"""Columns of cells, and the trees that are trained on them: what they do not depend on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf import complete_quantiles
from fastemf.boosting import cell_features, model_fit, training
from fastemf.boosting.combination import limit_and_sort
from fastemf.boosting.model_fit import predict_columns
from fastemf.boosting.objective import EXPECTILE, QUANTILE, Objective
from fastemf.boosting.training import TrainingTable, boost
from fastemf.datasets import make_skewed
from fastemf.features.schema import NOT_GIVEN
from fastemf.sources.cell_sample import FOLDS

pytestmark = pytest.mark.compiled

SMALL = make_skewed(40, 30, rank=2, noise=0.5, density=0.7, random_state=0).R.tocsr()


def recorded_columns(R, monkeypatch, **settings):
    """Return the columns, values and folds of the observations that train the known pairs."""
    tables = []

    class Recorded(TrainingTable):
        def __init__(self, *given):
            super().__init__(*given)
            tables.append(self)

    monkeypatch.setattr(model_fit, "TrainingTable", Recorded)
    monkeypatch.setattr(training, "_choose_count", lambda *_: 0)
    complete_quantiles(R, 0.5, 2, reg=0.3, **settings)
    return tables[-1]  # after those of cold starts


def test_the_columns_of_a_cell_do_not_use_its_value(monkeypatch):
    # Priors and the constant of intercepts are fitted to all cells; fits start from one another.
    monkeypatch.setattr(cell_features, "KAPPAS", (3.0,))
    settings = {"tol": 1e-9, "max_iter": 1000, "intercepts": False}
    before = recorded_columns(SMALL, monkeypatch, **settings)
    changed = SMALL.copy()
    first = np.where(before.folds == 0, before.values, -np.inf)
    at = int(np.argmax(first))
    assert before.values[at] > np.median(before.values)
    changed.data[changed.data == before.values[at]] *= 100  # the quantiles of all values remain
    after = recorded_columns(changed, monkeypatch, **settings)
    [different] = np.flatnonzero(before.values != after.values)
    assert different == at
    # Relative to the change of the value: its own columns, and those of other cells.
    moved = np.abs(after.columns - before.columns) / (after.values[at] - before.values[at])
    assert moved[at].max() < 1e-4
    assert moved.max() > 0.03


def test_without_trees_the_prediction_is_the_start(monkeypatch):
    monkeypatch.setattr(training, "_choose_count", lambda *_: 0)
    model = complete_quantiles(SMALL, (0.2, 0.5, 0.9), 2, reg=0.3)
    i, j = np.indices(model.shape).reshape(2, -1)
    columns = predict_columns(model._means, model.normal, model.features, i, j, NOT_GIVEN)
    parts, own = model.combination, model.features
    starts = np.stack([part.start.predict(columns) for part in parts.known], axis=-1)
    expected = limit_and_sort(starts, own.lowest(i, j), parts.low, parts.high)
    np.testing.assert_array_equal(model.predict(i, j), expected)
    for t, tau in enumerate(model.taus):
        found = model.explain(3, 4, tau=tau)
        assert found.value == expected[3 * 30 + 4, t]


@pytest.mark.parametrize("objective", [Objective(QUANTILE, 0.9), Objective(EXPECTILE, 0.8)])
def test_trees_find_a_step_and_stop_at_noise(objective):
    rng = np.random.default_rng(0)
    columns, folds = rng.standard_normal((1000, 3)), rng.integers(0, FOLDS, 1000)
    noise = rng.standard_normal(1000)

    def predict(values):
        table = TrainingTable(columns, values, None, folds, [], 1, np.bincount(folds, minlength=5))
        return boost(table, np.zeros(1000), objective).predicted

    for step, low, high in ((0, 0.98, 1), (10, 0, 0.4)):
        values = noise + step * (columns[:, 0] > 0.3)
        values -= objective.centre(values)
        ratio = objective.loss(values - predict(values)) / objective.loss(values)
        assert low <= ratio <= high
    with pytest.MonkeyPatch.context() as patch:  # predictions do not depend on their own fold
        patch.setattr(training, "_choose_count", lambda *_: 10)
        first = folds == 0
        one, other = (predict(noise + shift * first)[first] for shift in (0, 50))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # rounded to float32


def test_a_weight_of_two_repeats_the_observation(monkeypatch):
    monkeypatch.setattr(training, "_choose_count", lambda *_: 0)
    rows, cols = SMALL.tocoo().coords
    weights = np.random.default_rng(0).integers(1, 3, rows.size)
    settings = {"k": 2, "reg": 0.3, "tol": 1e-9, "max_iter": 1000}
    triplets = rows, cols, SMALL.data
    one = complete_quantiles(triplets, (0.5, 0.9), weights=weights.astype(float), **settings)
    repeated = tuple(np.repeat(part, weights) for part in triplets)
    other = complete_quantiles(repeated, (0.5, 0.9), **settings)
    for mine, theirs in zip(one.features.history, other.features.history, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(one.coverage, other.coverage, strict=True):
        assert mine.cells == theirs.cells
        assert mine.pinball == pytest.approx(theirs.pinball, rel=1e-2)


# --- cold starts -----------------------------------------------------------------------------


def test_a_row_without_observations_is_predicted_as_an_unknown_row():
    dense = SMALL.toarray()
    dense[dense == 0] = np.nan
    dense[7] = dense[:, 3] = np.nan
    table = pd.DataFrame(dense, [f"r{i}" for i in range(40)], [f"c{j}" for j in range(30)])
    with pytest.warns(UserWarning, match="1 rows and 1 columns have no observations"):
        model = complete_quantiles(table, (0.5, 0.9), 2)
    cols = [*table.columns, "new"]
    np.testing.assert_array_equal(
        model.predict("r7", cols, unknown="model"), model.predict("mars", cols, unknown="model")
    )
    rows = [*table.index, "mars"]
    np.testing.assert_array_equal(
        model.predict(rows, "c3", unknown="model"), model.predict(rows, "new", unknown="model")
    )
    [note] = model.explain("r7", "c1", tau=0.9).notes
    assert note.endswith("has no observations")
    assert "new" not in note


def test_cold_starts_are_reported_and_honest():
    rng = np.random.default_rng(0)
    values = 9 * rng.gamma(2, 1, (130, 1)) * rng.gamma(4, 1, 40) * rng.lognormal(0, 0.3, (130, 40))
    train = np.where(rng.random(values.shape) < 0.4, values, np.nan)
    model = complete_quantiles(pd.DataFrame(train[:100]), (0.5, 0.9), 1, reg=0.3)
    names = ["known pairs", "new rows", "new columns", "new rows and columns"]
    rows, cols = np.nonzero(~np.isnan(train[100:]))
    new = train[100:][rows, cols]
    predicted = model.predict(rows + 100, cols, unknown="model")
    for report, own in zip(model.coverage, predicted.T, strict=True):
        groups = {group.name: group for group in report.cold}
        assert [*groups] == names
        losses = [groups[name].pinball for name in names]
        assert losses[0] < min(losses[1:3])
        assert max(losses[1:3]) < losses[3]
        for group in report.cold:
            assert f"    {group}" in str(report)
            assert group.interval[0] <= group.coverage <= group.interval[1]
            assert abs(group.coverage - report.tau) < 0.06
        loss = fastemf.metrics.pinball_loss(new, own, report.tau)
        assert loss == pytest.approx(groups["new rows"].pinball, rel=0.3)
        assert np.mean(new <= own) == pytest.approx(report.tau, abs=0.1)


def test_limits_and_order():
    predicted = np.array([[5.0, 4.0], [-9.0, 3.0], [99.0, 98.0]])
    lowest = np.array([[1.0, 2.0], [1.5, 2.5], [1.0, 2.0]])
    found = limit_and_sort(predicted, lowest, 0.0, 50.0)
    assert found.tolist() == [[4.0, 5.0], [1.5, 3.0], [50.0, 50.0]]
