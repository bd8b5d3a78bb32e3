"""Quantiles: coverage on held-out cells, order, and bitwise reproducibility."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

import fastemf
from fastemf import CheckpointError, complete_quantiles, metrics
from fastemf.datasets import make_skewed
from fastemf.sources.cell_sample import FOLDS
from fastemf.tuning.tuner import Tuner

pytestmark = pytest.mark.compiled

TAUS = (0.1, 0.5, 0.9)
SMALL = make_skewed(50, 40, rank=2, noise=0.5, density=0.6, random_state=0).R.tocsr()
TRIPLETS = (*SMALL.tocoo().coords, SMALL.data)


class StoppedError(Exception):
    pass


def generated(seed, shape=(150, 120), density=0.3):
    """Row and column effects plus a factor, with skewed noise whose scale varies by row."""
    rng = np.random.default_rng(seed)
    m, n = shape
    logs = rng.normal(0, 0.5, (m, 1)) + rng.normal(0, 0.7, n)
    logs = logs + 0.3 * rng.normal(0, 1, (m, 1)) * rng.normal(0, 1, n)
    values = np.exp(logs + rng.uniform(0.1, 0.8, (m, 1)) * rng.standard_normal(shape))
    fitted = rng.random(shape) < density
    return values, fitted


VALUES, FITTED = generated(0)
TRAINING = np.where(FITTED, VALUES, np.nan)


@cache
def small():
    return complete_quantiles(SMALL, TAUS, 2)


@cache
def of_generated():
    return complete_quantiles(TRAINING, (0.5, 0.95), 3)


def same(one, two):
    """They predict the same bits and have the same coverage reports and training data."""
    levels = [quantiles.fits[0][0].training for quantiles in (one, two)]
    return (
        np.array_equal(everywhere(one), everywhere(two))
        and one.coverage == two.coverage
        and all(np.array_equal(*(getattr(at, side) for at in levels)) for side in ("rows", "cols"))
    )


def everywhere(quantiles):
    return quantiles.predict_block(quantiles.axes[0].ids())


# --- predictions -----------------------------------------------------------------------------


def test_quantiles_never_cross_and_lie_in_the_range_of_the_data():
    for quantiles, data in ((small(), SMALL.data), (of_generated(), VALUES[FITTED])):
        predicted = everywhere(quantiles)
        assert data.min() <= predicted.min() <= predicted.max() <= data.max()
        assert (np.diff(predicted, axis=-1) >= 0).all()
        cells = np.indices(quantiles.shape)
        np.testing.assert_array_equal(quantiles.predict(*cells), predicted)


def test_intervals_are_pairs_of_quantiles():
    quantiles = small()
    low, middle, high = np.moveaxis(quantiles.predict([1, 2], 3), -1, 0)
    central = quantiles.interval([1, 2], 3, coverage=0.8)
    np.testing.assert_array_equal(central, (low, high))
    below = quantiles.interval([1, 2], 3, coverage=0.5, side="below")
    np.testing.assert_array_equal(below, ([-np.inf, -np.inf], middle))
    above = quantiles.interval([1, 2], 3, coverage=0.9, side="above")
    np.testing.assert_array_equal(above, (low, [np.inf, np.inf]))
    with pytest.raises(ValueError, match=r"tau for coverage.*below.* must be one .* got 0.05"):
        quantiles.interval([1, 2], 3, coverage=0.9)
    with pytest.raises(ValueError, match="side must be"):
        quantiles.interval(1, 3, coverage=0.8, side="left")


def test_distributions_have_the_quantiles():
    quantiles = small()
    predicted = quantiles.predict([1, 2], 3)
    for tails in ("exponential", "flat"):
        found = quantiles.predict_distribution([1, 2], 3, tails=tails)
        for at, tau in enumerate(TAUS):
            np.testing.assert_allclose(found.quantile(tau), predicted[:, at], rtol=1e-12)
            below = found.cdf(predicted[:, at], strict=True)
            np.testing.assert_allclose(below, tau, rtol=1e-12)
    assert (found.cdf(SMALL.data.min() - 1e-9) == 0).all()
    assert (found.above(predicted[:, -1]) == 0).all()  # a flat tail
    beyond = quantiles.predict_distribution([0, SMALL.shape[0]], 3, unknown="nan")
    assert np.isnan(beyond.cdf(1.0)).tolist() == np.isnan(beyond.crps(1.0)).tolist()
    assert np.isnan(beyond.cdf(1.0)).tolist() == [False, True]


def test_a_predicted_probability_is_that_of_new_values():
    quantiles = complete_quantiles(TRAINING, (0.1, 0.25, 0.5, 0.75, 0.9, 0.95), 3)
    rows, cols = np.nonzero(~FITTED)
    values = VALUES[rows, cols]
    cells = quantiles.predict_distribution(rows, cols)
    for threshold in np.quantile(values, [0.2, 0.5, 0.8, 0.9]):
        found = cells.above(threshold)
        assert found.mean() == pytest.approx((values > threshold).mean(), abs=0.02)
        for part in np.array_split(np.argsort(found, kind="stable"), 5):
            assert found[part].mean() == pytest.approx((values[part] > threshold).mean(), abs=0.06)


def test_ranking_by_the_probability_of_a_larger_value():
    quantiles = small()
    threshold = float(np.median(SMALL.data))
    every = quantiles.predict_distribution(4, np.arange(quantiles.shape[1])).above(threshold)
    found = quantiles.rank(4, 3, order="smallest", above=threshold)
    np.testing.assert_array_equal(found.values, every[found.cols])
    np.testing.assert_array_equal(found.values, np.sort(every)[:3])
    assert list(found.columns())[3] == f"above {threshold:g}"
    with pytest.raises(ValueError, match="omega and tau must be None with above"):
        quantiles.rank(4, 3, order="smallest", above=1.0, tau=0.5)
    with pytest.raises(ValueError, match="above must be a finite number, got nan"):
        quantiles.rank(4, 3, order="smallest", above=np.nan)
    with pytest.raises(ValueError, match="above must be None for a model without quantiles"):
        quantiles.fits[0][0].rank(4, 3, order="smallest", above=1.0)
    with pytest.raises(ValueError, match="at least two quantiles"):
        complete_quantiles(SMALL, 0.5, 2).predict_distribution(4, 3)


def test_the_parts_of_an_explanation_add_up():
    for quantiles in (small(), of_generated()):
        for tau in quantiles.taus:
            found = quantiles.explain(4, 9, tau=tau)
            assert found.level == tau
            assert found.value == quantiles.predict(4, 9)[quantiles.taus.index(tau)]
            assert sum(found.parts.values()) == pytest.approx(found.value, rel=1e-9)
            assert list(found.parts)[:4] == ["constant", "row", "column", "pair (factors)"]
            assert str(found).startswith("prediction ")


# --- coverage --------------------------------------------------------------------------------


def test_reported_coverage_and_loss_are_those_of_cells_not_fitted():
    quantiles = of_generated()
    evaluated = quantiles.evaluate(np.where(FITTED, np.nan, VALUES)).coverage
    for report, found in zip(quantiles.coverage, evaluated, strict=True):
        assert report.interval[0] <= report.coverage <= report.interval[1]
        assert abs(report.coverage - report.tau) < 0.01
        assert abs(found.coverage - found.tau) < 0.02
        assert all(abs(one - report.tau) < 0.06 for one in report.deciles)
        assert report.cells == np.count_nonzero(FITTED)
        for one in (report, found):
            assert one.pinball < min(one.baselines.values())
        ratios = [one.pinball / one.baselines["constant"] for one in (report, found)]
        assert 0.9 < ratios[0] / ratios[1] < 1.12


@pytest.mark.thorough
def test_data_without_row_or_column_effects_give_a_constant():
    rng = np.random.default_rng(0)
    R = np.where(rng.random((120, 100)) < 0.3, rng.lognormal(0, 1, (120, 100)), np.nan)
    quantiles = complete_quantiles(R, (0.5, 0.95), 3)
    for report in quantiles.coverage:
        assert report.pinball < 1.01 * report.baselines["constant"]


def test_evaluation_equals_its_definition():
    quantiles = of_generated()
    rows, cols = np.nonzero(~FITTED)
    values = VALUES[~FITTED]
    evaluation = quantiles.evaluate((rows, cols, values))
    predicted, medians = quantiles.predict(rows, cols)[:, 1], np.nanmedian(TRAINING, axis=0)
    fitted, by_column = (
        evaluation.score("fit", tau=0.95),
        evaluation.score("column median", tau=0.5),
    )
    for found, tau, r in (
        (fitted, 0.95, values - predicted), (evaluation.coverage[1], 0.95, values - predicted),
        (by_column, 0.5, values - medians[cols]),
    ):  # fmt: skip
        assert found.pinball == pytest.approx(np.mean(np.where(r >= 0, tau * r, (tau - 1) * r)))
        assert found.coverage == pytest.approx(np.mean(r <= 0))
    for name, loss in evaluation.coverage[1].baselines.items():
        assert evaluation.score(name, tau=0.95).pinball == pytest.approx(loss)


# --- bitwise equality ------------------------------------------------------------------------


@pytest.mark.thorough
def test_evaluation_scores_distributions():
    quantiles = small()
    data = np.where(FITTED[:60, :50], np.nan, 1.0)  # any values
    data = data[: SMALL.shape[0], : SMALL.shape[1]] * 2.0
    evaluation = quantiles.evaluate(data)
    rows, cols = np.nonzero(~np.isnan(data))
    fit, *baselines = evaluation.distribution
    cells = quantiles.predict_distribution(rows, cols)
    assert fit.crps.score == pytest.approx(cells.crps(data[rows, cols]).mean())
    assert fit.crps.lower < fit.crps.score < fit.crps.upper
    low, high = quantiles.interval(rows, cols, coverage=0.8)
    expected = metrics.interval_score(data[rows, cols], low, high, 0.8)
    assert fit.interval_score == pytest.approx(expected)
    assert evaluation.interval_coverage == pytest.approx(0.8)
    assert [one.name for one in baselines] == list(quantiles.coverage[0].baselines)
    constant = baselines[0].crps.score
    assert f"CRPS {fit.crps.score:.4g} " in str(evaluation)
    assert f"{fit.crps.score / constant:.2f} relative to a constant" in str(evaluation)
    assert "at coverage 0.8" in str(evaluation)
    assert not of_generated().evaluate(TRAINING, censored=("right", 3.0)).distribution
    assert "interval score" not in str(of_generated().evaluate(TRAINING))


def test_rescaled_data_give_rescaled_quantiles():
    other = complete_quantiles(SMALL * 1024, TAUS, 2)
    np.testing.assert_array_equal(everywhere(other), 1024 * everywhere(small()))
    for one, two in zip(small().coverage, other.coverage, strict=True):
        assert (one.coverage, one.deciles) == (two.coverage, two.deciles)
        assert two.pinball == 1024 * one.pinball


def test_results_do_not_depend_on_threads():
    assert same(small(), complete_quantiles(SMALL, TAUS, 2, n_jobs=1))


@pytest.mark.thorough
def test_a_store_is_bitwise_identical_to_memory(tmp_path):
    # The next test does the same without weights.
    weights = np.random.default_rng(0).integers(1, 4, SMALL.nnz).astype(float)
    fastemf.store.build(TRIPLETS, tmp_path / "store", memory_limit=6000, weights=weights)
    memory = complete_quantiles(TRIPLETS, TAUS, 2, weights=weights)
    assert same(memory, complete_quantiles(tmp_path / "store", TAUS, 2))


@pytest.mark.thorough
def test_the_sample_of_observations_is_the_same_in_a_store(tmp_path, monkeypatch):
    from fastemf.boosting import observed_cells

    monkeypatch.setattr(observed_cells, "MAX_SAMPLE", 700)
    fastemf.store.build(TRIPLETS, tmp_path / "store", memory_limit=6000)
    memory = complete_quantiles(SMALL, (0.5,), 2)
    assert 500 < memory.coverage[0].cells < 900
    assert same(memory, complete_quantiles(tmp_path / "store", (0.5,), 2))


def test_a_saved_model_is_bitwise_identical(tmp_path):
    path = tmp_path / "quantiles.npz"
    small().save(path)
    loaded = fastemf.load(path)
    assert same(small(), loaded)
    new = SMALL[:7]
    assert same(small().fold_in(new), loaded.fold_in(new))


@pytest.mark.thorough
def test_finished_fits_are_read_from_checkpoints(tmp_path):
    path = tmp_path / "state.npz"
    sweeps, stop_at = 0, 20

    def count(record):
        nonlocal sweeps
        sweeps += 1
        if sweeps == stop_at:
            raise StoppedError

    with pytest.raises(StoppedError):
        complete_quantiles(
            SMALL, TAUS, 2, checkpoint=fastemf.Checkpoint(path, every=1), callback=count
        )
    done, stop_at = sweeps, None
    with pytest.raises(FileExistsError, match=r"state-values-0.5-0.npz exists"):
        complete_quantiles(SMALL, TAUS, 2, checkpoint=path)
    resume = fastemf.Checkpoint(path, resume=True)
    sweeps = 0
    assert same(complete_quantiles(SMALL, TAUS, 2, checkpoint=resume, callback=count), small())
    after, sweeps = sweeps, 0
    complete_quantiles(SMALL, TAUS, 2, callback=count)
    assert 0 < after < sweeps <= after + done
    assert len(list(tmp_path.iterdir())) == FOLDS * len(small().fits)
    with pytest.raises(CheckpointError, match="of other data"):
        complete_quantiles(SMALL * 2, TAUS, 2, checkpoint=resume)


@pytest.mark.thorough
def test_a_finished_tuning_is_not_repeated(tmp_path, monkeypatch):
    counted, stop_at = 0, None

    def add_and_count(self, *candidate, add=Tuner.add):
        nonlocal counted
        if counted == stop_at:
            raise StoppedError
        counted += 1
        return add(self, *candidate)

    settings = {"checkpoint": fastemf.Checkpoint(tmp_path / "state.npz", resume=True)}
    expected = small()  # before anything is counted
    monkeypatch.setattr(Tuner, "add", add_and_count)
    assert same(complete_quantiles(SMALL, TAUS, 2), expected)
    every = counted
    counted, stop_at = 0, every - 3  # within the tuning of the scores, after that of the values
    with pytest.raises(StoppedError):
        complete_quantiles(SMALL, TAUS, 2, **settings)
    counted, stop_at = 0, None
    assert same(complete_quantiles(SMALL, TAUS, 2, **settings), expected)
    assert 0 < counted < every
    counted = stop_at = 0
    assert same(complete_quantiles(SMALL, TAUS, 2, **settings), expected)


# --- new rows and columns --------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_folding_in_training_data_reproduces_predictions(axis):
    quantiles, first = of_generated(), (slice(20), slice(None))[:: 1 - 2 * axis]
    folded = quantiles.fold_in(TRAINING[first], axis=axis)
    assert not any(report.measured for report in folded.coverage)
    assert "measured before the update" in str(folded)
    block, before = everywhere(folded), everywhere(quantiles)[first]
    # In each fit a fifth of these cells is new: the fits without them knew less.
    assert np.median(np.abs(np.log(block / before))) < 0.1
    assert (np.diff(block, axis=-1) >= 0).all()


@pytest.mark.thorough
def test_coverage_of_folded_in_rows():
    values, fitted = generated(1, (260, 120))
    R = np.where(fitted, values, np.nan)
    quantiles = complete_quantiles(R[:160], (0.5, 0.9), 3)
    new = quantiles.fold_in(R[160:])
    held_out = np.where(fitted, np.nan, values)[160:]
    for found in new.evaluate(held_out).coverage:
        assert abs(found.coverage - found.tau) < 0.05


def table(values, fitted, prefix="c"):
    pa = pytest.importorskip("pyarrow")
    rows, cols = np.nonzero(fitted)
    names = {"client": [f"{prefix}{i}" for i in rows], "service": [f"s{j}" for j in cols]}
    return pa.table({**names, "ms": values[fitted]})


@pytest.mark.thorough
def test_labels_and_unknown_labels(tmp_path):
    values, fitted = generated(2, (60, 40), 0.5)
    names = {"rows": "client", "cols": "service", "values": "ms"}
    path = tmp_path / "quantiles.npz"
    complete_quantiles(table(values, fitted), (0.5, 0.9), 2, **names).save(path)
    quantiles = fastemf.load(path)
    assert quantiles.row_labels.name == "client"
    known = quantiles.predict("c3", "s5")
    guessed = quantiles.predict(["mars", "venus"], ["s5", "new"], unknown="model")
    assert np.isfinite(guessed).all()
    assert (np.diff(guessed, axis=-1) >= 0).all()
    # Nothing is known of either: all such cells are alike, and near the quantiles of the data.
    np.testing.assert_array_equal(guessed[1], quantiles.predict("x", "y", unknown="model"))
    for tau, value in zip(quantiles.taus, guessed[1], strict=True):
        assert abs(np.mean(values[fitted] <= value) - tau) < 0.25
    more = quantiles.extend(table(values[:3], fitted[:3], prefix="new"))
    assert more.shape == (63, 40)
    np.testing.assert_array_equal(more.predict("c3", "s5"), known)
    assert np.isfinite(more.predict("new2", "s5")).all()


@pytest.mark.thorough
def test_rows_without_observations_give_a_warning():
    R = sp.csr_array((SMALL.data, SMALL.indices, SMALL.indptr), shape=(50, 43))
    with pytest.warns(UserWarning, match="0 rows and 3 columns have no observations"):
        quantiles = complete_quantiles(R, (0.5, 0.9), 2)
    assert np.isfinite(quantiles.predict(4, [0, 41])).all()
    assert np.isnan(quantiles.predict(4, 41, unseen="nan")).all()


# --- settings --------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [{"intercepts": False}, {"k": 0}, {"reg": "noise"}, {"reg": 0.1}, {"solver": "cg"}],
    ids=str,
)
def test_settings_reach_the_fits(settings):
    quantiles = complete_quantiles(SMALL, (0.5, 0.9), **{"k": 2} | settings)
    assert np.isfinite(everywhere(quantiles)).all()
    for report in quantiles.coverage:
        assert report.pinball < 1.02 * report.baselines["constant"]


@pytest.mark.thorough
def test_float32_data_have_float32_predictions():
    quantiles = complete_quantiles(SMALL.astype(np.float32), (0.5, 0.9), 2)
    predicted, expected = everywhere(quantiles), everywhere(small())[..., 1:]
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(np.median(predicted), np.median(expected), rtol=0.5)


def test_constant_data_have_constant_quantiles():
    with warnings.catch_warnings(action="ignore"):
        quantiles = complete_quantiles(np.full((20, 15), 3.0), (0.5, 0.9), 1)
    np.testing.assert_array_equal(everywhere(quantiles), 3.0)


@pytest.mark.thorough
def test_mirrored_cells_stay_in_one_fold():
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 1, (60, 60))
    values = np.triu(values, 1) + np.triu(values, 1).T  # measured once, written down twice
    R = np.where(values > 0, values, np.nan)
    quantiles = complete_quantiles(R, (0.5, 0.9), 3)
    for report in quantiles.coverage:
        assert report.cells == 60 * 59 // 2
        assert report.pinball > 0.95 * report.baselines["constant"]  # nothing can be learned
