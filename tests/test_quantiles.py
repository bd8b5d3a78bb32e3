"""p50, p95, p99: honest on cells that were not fitted, in order everywhere, bitwise always."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

import fastemf
from fastemf import CheckpointError, complete_quantiles
from fastemf.datasets import make_skewed
from fastemf.metrics import coverage
from fastemf.solver import checkpoint as checkpoints
from fastemf.solver.sampling import FOLDS
from fastemf.solver.tuner import Tuner

TAUS = (0.1, 0.5, 0.9)
SMALL = make_skewed(50, 40, rank=2, noise=0.5, density=0.6, random_state=0).R.tocsr()
TRIPLETS = (*SMALL.tocoo().coords, SMALL.data)


class StoppedError(Exception):
    pass


def generated(seed, shape=(150, 120), density=0.3):
    """Rows, columns and a factor with skewed noise whose scale varies by row."""
    rng = np.random.default_rng(seed)
    m, n = shape
    logs = rng.normal(0, 0.5, (m, 1)) + rng.normal(0, 0.7, n)
    logs = logs + 0.3 * rng.normal(0, 1, (m, 1)) * rng.normal(0, 1, n)
    values = np.exp(logs + rng.uniform(0.1, 0.8, (m, 1)) * rng.standard_normal(shape))
    fitted = rng.random(shape) < density
    return values, fitted


@cache
def small(**settings):
    return complete_quantiles(SMALL, TAUS, 2, **settings)


@cache
def of_generated():
    values, fitted = generated(0)
    return complete_quantiles(np.where(fitted, values, np.nan), (0.5, 0.95), 3)


def same(one, two):
    """They predict the same bits, promise the same, and are compared with the same."""
    levels = [quantiles.fits[0][0].training for quantiles in (one, two)]
    return (
        np.array_equal(everywhere(one), everywhere(two))
        and one.promises == two.promises
        and all(np.array_equal(*(getattr(at, side) for at in levels)) for side in ("rows", "cols"))
    )


def everywhere(quantiles):
    return quantiles.predict_block(quantiles.axes[0].ids())


# --- what is predicted ---------------------------------------------------------------------


@pytest.mark.compiled
def test_quantiles_never_cross_in_any_cell():
    for quantiles in (small(), of_generated()):
        predicted = everywhere(quantiles)
        assert np.isfinite(predicted).all()
        assert (np.diff(predicted, axis=-1) >= 0).all()


@pytest.mark.compiled
def test_predictions_lie_in_the_range_of_the_data():
    predicted = everywhere(small())
    assert SMALL.data.min() <= predicted.min()
    assert predicted.max() <= SMALL.data.max()


@pytest.mark.compiled
def test_a_cell_does_not_depend_on_those_it_is_asked_with():
    quantiles = small()
    block = everywhere(quantiles)
    rows, cols = np.indices(SMALL.shape)
    np.testing.assert_array_equal(quantiles.predict(rows, cols), block)
    np.testing.assert_array_equal(quantiles.predict(7, np.arange(40)), block[7])
    np.testing.assert_array_equal(quantiles.predict(3, 11), block[3, 11])


@pytest.mark.compiled
def test_ranks_are_those_of_the_quantile_asked_for():
    quantiles = small()
    block = everywhere(quantiles)
    for t, tau in enumerate(TAUS):
        best = quantiles.rank(5, 4, order="smallest", level=tau)
        np.testing.assert_array_equal(best.cols, np.argsort(block[5, :, t], kind="stable")[:4])
        np.testing.assert_array_equal(best.values, np.sort(block[5, :, t])[:4])
    with pytest.raises(ValueError, match=r"level must be one of the quantiles fitted, 0.1, 0.5"):
        quantiles.rank(5, 4, order="smallest")
    with pytest.raises(ValueError, match=r"quantiles fitted, 0.1, 0.5, 0.9, got 0.95"):
        quantiles.rank(5, 4, order="smallest", level=0.95)


@pytest.mark.compiled
def test_intervals_are_pairs_of_quantiles():
    quantiles = small()
    low, middle, high = np.moveaxis(quantiles.predict([1, 2], 3), -1, 0)
    central = quantiles.interval([1, 2], 3, coverage=0.8)
    np.testing.assert_array_equal(central, (low, high))
    below = quantiles.interval([1, 2], 3, coverage=0.5, side="below")
    np.testing.assert_array_equal(below, ([-np.inf, -np.inf], middle))
    above = quantiles.interval([1, 2], 3, coverage=0.9, side="above")
    np.testing.assert_array_equal(above, (low, [np.inf, np.inf]))
    with pytest.raises(ValueError, match=r"below.* quantiles that must be one of .* got 0.05"):
        quantiles.interval([1, 2], 3, coverage=0.9)
    with pytest.raises(ValueError, match="side must be"):
        quantiles.interval(1, 3, coverage=0.8, side="left")


@pytest.mark.compiled
def test_an_explanation_adds_up():
    quantiles = small()
    for tau in TAUS:
        found = quantiles.explain(4, 9, tau=tau)
        total = sum(found.parts.values()) + found.intercept + found.table
        total = np.clip(total, SMALL.data.min(), SMALL.data.max())
        np.testing.assert_allclose(found.value, total, rtol=1e-9)
        assert set(found.parts) <= set(quantiles.columns)


# --- honesty -------------------------------------------------------------------------------


@pytest.mark.compiled
def test_coverage_promised_is_that_of_cells_not_fitted():
    values, fitted = generated(0)
    quantiles = of_generated()
    rows, cols = np.nonzero(~fitted)
    predicted = quantiles.predict(rows, cols)
    for t, promise in enumerate(quantiles.promises):
        share = coverage(values[~fitted], predicted[:, t])
        low, high = promise.interval
        assert low <= promise.coverage <= high
        assert abs(promise.coverage - promise.tau) < 0.01
        assert abs(share - promise.tau) < 0.02
        assert all(abs(one - promise.tau) < 0.06 for one in promise.deciles)
        assert promise.cells == np.count_nonzero(fitted)


@pytest.mark.compiled
def test_loss_promised_is_that_of_cells_not_fitted_and_below_the_baselines():
    values, fitted = generated(0)
    held_out = np.where(fitted, np.nan, values)
    quantiles = of_generated()
    judged = quantiles.evaluate(held_out).promises
    for promise, found in zip(quantiles.promises, judged, strict=True):
        for one in (promise, found):
            assert one.pinball < min(one.constant, one.column, one.row_column, one.larger)
        ratio = (promise.pinball / promise.constant) / (found.pinball / found.constant)
        assert 0.9 < ratio < 1.12
        assert abs(found.coverage - found.tau) < 0.02


@pytest.mark.compiled
def test_what_knows_neither_row_nor_column_gets_a_constant():
    rng = np.random.default_rng(0)
    R = np.where(rng.random((120, 100)) < 0.3, rng.lognormal(0, 1, (120, 100)), np.nan)
    quantiles = complete_quantiles(R, (0.5, 0.95), 3)
    for promise in quantiles.promises:
        assert promise.pinball < 1.01 * promise.constant


@pytest.mark.compiled
def test_evaluation_is_the_definition():
    values, fitted = generated(0)
    quantiles = of_generated()
    rows, cols = np.nonzero(~fitted)
    evaluation = quantiles.evaluate((rows, cols, values[~fitted]))
    r = values[~fitted] - quantiles.predict(rows, cols)[:, 1]
    for found in (evaluation.score("fit", 0.95), evaluation.promises[1]):
        assert found.pinball == pytest.approx(np.mean(np.where(r >= 0, 0.95 * r, -0.05 * r)))
        assert found.coverage == pytest.approx(np.mean(r <= 0))
    for name, field in (("constant",) * 2, ("column",) * 2, ("row + column", "row_column"),
                        ("larger of both", "larger")):  # fmt: skip
        promised = getattr(evaluation.promises[1], field)
        assert evaluation.score(name, 0.95).pinball == pytest.approx(promised)


@pytest.mark.compiled
def test_medians_of_the_columns_are_those_of_the_data():
    values, fitted = generated(0)
    medians = np.nanmedian(np.where(fitted, values, np.nan), axis=0)
    rows, cols = np.nonzero(~fitted)
    r = values[~fitted] - medians[cols]
    found = of_generated().evaluate((rows, cols, values[~fitted])).score("column median", 0.5)
    assert found.pinball == pytest.approx(np.mean(np.abs(r)) / 2)
    assert found.coverage == pytest.approx(np.mean(r <= 0))


def test_too_few_cells_beyond_a_quantile_are_counted_and_what_is_possible_is_said():
    with pytest.raises(ValueError, match=r"0.99 leaves 12.0 of 1200; from 0.01667 to 0.9833"):
        complete_quantiles(SMALL, (0.5, 0.99), 2)
    with pytest.raises(ValueError, match=r"0.5 leaves 6.0 of 12; none would be possible"):
        complete_quantiles(np.arange(12.0).reshape(3, 4), 0.5, 1)


def test_repeated_observations_of_a_cell_count_as_one():
    rows, cols = (index.repeat(50) for index in np.nonzero(np.ones((5, 4))))
    with pytest.raises(ValueError, match=r"leaves 10.0 of 20"):
        complete_quantiles((rows, cols, np.arange(1000.0)), 0.5, 1)


@pytest.mark.parametrize(
    ("taus", "error", "message"),
    [
        ("p95", TypeError, "taus must be shares"),
        ((0.5, 95), ValueError, r"each of taus must be a share .* got 95"),
        ((0.5, 0.5), ValueError, "taus must be one or more different shares"),
        ((), ValueError, "taus must be one or more different shares"),
    ],
)
def test_bad_quantiles_are_refused(taus, error, message):
    with pytest.raises(error, match=message):
        complete_quantiles(SMALL, taus, 2)


# --- the same bits -------------------------------------------------------------------------


@pytest.mark.compiled
def test_data_in_another_unit_scale_exactly():
    other = complete_quantiles(SMALL * 1024, TAUS, 2)
    np.testing.assert_array_equal(everywhere(other), 1024 * everywhere(small()))
    for one, two in zip(small().promises, other.promises, strict=True):
        assert (one.coverage, one.deciles) == (two.coverage, two.deciles)
        assert two.pinball == 1024 * one.pinball


@pytest.mark.compiled
def test_threads_do_not_matter():
    assert same(small(), complete_quantiles(SMALL, TAUS, 2, n_jobs=1))


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
def test_a_store_gives_the_bits_of_memory(tmp_path, weighted):
    weights = np.random.default_rng(0).integers(1, 4, SMALL.nnz).astype(float)
    given = {"weights": weights} if weighted else {}
    fastemf.store.build(TRIPLETS, tmp_path / "store", budget=6000, **given)
    memory = complete_quantiles(TRIPLETS, TAUS, 2, **given)
    assert same(memory, complete_quantiles(tmp_path / "store", TAUS, 2))


@pytest.mark.compiled
def test_a_sample_of_many_observations_is_the_same_in_a_store(tmp_path, monkeypatch):
    from fastemf.stacking import sampled

    monkeypatch.setattr(sampled, "MOST", 700)
    fastemf.store.build(TRIPLETS, tmp_path / "store", budget=6000)
    memory = complete_quantiles(SMALL, (0.5,), 2)
    assert 500 < memory.promises[0].cells < 900
    assert same(memory, complete_quantiles(tmp_path / "store", (0.5,), 2))


@pytest.mark.compiled
def test_a_saved_model_predicts_the_same_bits(tmp_path):
    path = tmp_path / "quantiles.npz"
    small().save(path)
    loaded = fastemf.load(path)
    assert same(small(), loaded)
    new = SMALL[:7]
    assert same(small().fold_in(new), loaded.fold_in(new))


@pytest.mark.compiled
def test_fits_that_were_done_are_taken_from_their_checkpoints(tmp_path):
    path = tmp_path / "state.npz"
    sweeps = 0

    def stop(record):
        nonlocal sweeps
        sweeps += 1
        if sweeps == 20:
            raise StoppedError

    with pytest.raises(StoppedError):
        complete_quantiles(SMALL, TAUS, 2, checkpoint=path, checkpoint_every=1, callback=stop)
    done = sweeps
    sweeps = -(10**6)
    with pytest.raises(FileExistsError, match=r"state-scores-0.5-0.npz exists"):
        complete_quantiles(SMALL, TAUS, 2, checkpoint=path)
    resumed = complete_quantiles(SMALL, TAUS, 2, checkpoint=path, resume=True, callback=stop)
    assert same(resumed, small())
    after, sweeps = sweeps + 10**6, -(10**6)
    complete_quantiles(SMALL, TAUS, 2, callback=stop)
    assert sweeps + 10**6 > after > 0
    assert sweeps + 10**6 <= after + done
    assert len(list(tmp_path.iterdir())) == FOLDS * len(small().fits)
    with pytest.raises(CheckpointError, match="of other data"):
        complete_quantiles(SMALL * 2, TAUS, 2, checkpoint=path, resume=True)


@pytest.fixture
def judged(monkeypatch):
    """Count the candidates of tunings, and let the fits be killed before one of them."""
    counted, limit = [], [None]
    judge = Tuner._judged

    def counting(self, family, reg, fits):
        if len(counted) == limit[0]:
            raise StoppedError
        counted.append((family, reg))
        return judge(self, family, reg, fits)

    monkeypatch.setattr(Tuner, "_judged", counting)
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "REST", 0)

    def until(number):
        counted.clear()
        limit[0] = number
        return counted

    return until


@pytest.mark.compiled
@pytest.mark.thorough
def test_candidates_that_were_tried_are_not_tried_again(tmp_path, judged):
    settings = {"checkpoint": tmp_path / "state.npz", "resume": True}
    expected = small()  # before anything is counted
    counted = judged(None)
    assert same(complete_quantiles(SMALL, TAUS, 2), expected)
    every = counted.copy()
    done = 0
    for more in (3, len(every) - 8):  # within the tuning of the scores, and of the values
        counted = judged(more)
        with pytest.raises(StoppedError):
            complete_quantiles(SMALL, TAUS, 2, **settings)
        done += len(counted)
    counted = judged(None)
    assert same(complete_quantiles(SMALL, TAUS, 2, **settings), small())
    assert counted == every[done:]
    judged(0)
    assert same(complete_quantiles(SMALL, TAUS, 2, **settings), small())


# --- newcomers -----------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("axis", [0, 1])
def test_folding_in_what_was_fitted_gives_nearly_its_predictions(axis):
    values, fitted = generated(0)
    R = np.where(fitted, values, np.nan)
    quantiles = of_generated()
    folded = quantiles.fold_in(R[:20] if axis == 0 else R[:, :20], axis=axis)
    assert not any(promise.measured for promise in folded.promises)
    assert "not measured" in str(folded)
    block = everywhere(folded)
    before = everywhere(quantiles)[:20] if axis == 0 else everywhere(quantiles)[:, :20]
    # In each fit a fifth of these cells is new: the fits without them knew less.
    assert np.median(np.abs(np.log(block / before))) < 0.1
    assert (np.diff(block, axis=-1) >= 0).all()


@pytest.mark.compiled
def test_coverage_of_rows_that_were_folded_in_is_about_right():
    values, fitted = generated(1, (260, 120))
    R = np.where(fitted, values, np.nan)
    quantiles = complete_quantiles(R[:160], (0.5, 0.9), 3)
    new = quantiles.fold_in(R[160:])
    held_out = np.where(fitted, np.nan, values)[160:]
    for found in new.evaluate(held_out).promises:
        assert abs(found.coverage - found.tau) < 0.05


@pytest.mark.compiled
@pytest.mark.parametrize("axis", [0, 1])
def test_extended_quantiles_are_the_old_ones_and_the_new(axis):
    first = SMALL[:40] if axis == 0 else SMALL[:, :30]
    rest = SMALL[40:] if axis == 0 else SMALL[:, 30:]
    old = complete_quantiles(first, (0.2, 0.8), 2)
    new = old.fold_in(rest, axis=axis)
    both = old.extend(rest, axis=axis)
    assert both.shape == SMALL.shape
    joined = np.concatenate([everywhere(old), everywhere(new)], axis=axis)
    np.testing.assert_array_equal(everywhere(both), joined)
    assert not both.promises[0].measured


def table(values, fitted):
    pa = pytest.importorskip("pyarrow")
    rows, cols = np.nonzero(fitted)
    return pa.table({
        "client": [f"c{i}" for i in rows], "service": [f"s{j}" for j in cols],
        "ms": values[fitted],
    })  # fmt: skip


@pytest.mark.compiled
def test_labels_are_spoken_and_unknown_ones_get_what_is_known(tmp_path):
    values, fitted = generated(2, (60, 40), 0.5)
    lines = table(values, fitted)
    names = {"rows": "client", "cols": "service", "values": "ms"}
    quantiles = complete_quantiles(lines, (0.5, 0.9), 2, **names)
    path = tmp_path / "quantiles.npz"
    quantiles.save(path)
    quantiles = fastemf.load(path)
    assert quantiles.row_labels.name == "client"
    known = quantiles.predict("c3", "s5")
    with pytest.raises(ValueError, match="mars"):
        quantiles.predict(["c3", "mars"], "s5")
    found = quantiles.predict(["c3", "mars"], "s5", unknown="nan")
    np.testing.assert_array_equal(found, [known, [np.nan, np.nan]])
    guessed = quantiles.predict(["mars", "venus"], ["s5", "new"], unknown="model")
    assert np.isfinite(guessed).all()
    assert (np.diff(guessed, axis=-1) >= 0).all()
    # Nothing is known of either: all such cells are alike, and near the quantiles of the data.
    np.testing.assert_array_equal(guessed[1], quantiles.predict("x", "y", unknown="model"))
    for tau, value in zip(quantiles.taus, guessed[1], strict=True):
        assert abs(np.mean(values[fitted] <= value) - tau) < 0.25
    assert quantiles.rank("c3", 2, order="smallest", level=0.9).cols[0].startswith("s")
    new = table(values[:3], fitted[:3]).set_column(
        0, "client", [[f"new{i}" for i in np.nonzero(fitted[:3])[0]]]
    )
    more = quantiles.extend(new)
    assert more.shape == (63, 40)
    np.testing.assert_array_equal(more.predict("c3", "s5"), known)
    assert np.isfinite(more.predict("new2", "s5")).all()
    with pytest.raises(ValueError, match="are in the fit already"):
        quantiles.extend(table(values[:3], fitted[:3]))


@pytest.mark.compiled
def test_rows_without_observations_are_said_and_have_quantiles():
    R = sp.csr_array((SMALL.data, SMALL.indices, SMALL.indptr), shape=(50, 43))
    with pytest.warns(UserWarning, match="0 rows and 3 columns have no observations"):
        quantiles = complete_quantiles(R, (0.5, 0.9), 2)
    found = quantiles.predict(4, [0, 41])
    assert np.isfinite(found).all()
    assert np.isnan(quantiles.predict(4, 41, unseen="nan")).all()


# --- settings ------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize(
    "settings",
    [{"intercepts": False}, {"k": 0}, {"reg": "noise"}, {"reg": 0.1}, {"solver": "cg"}],
    ids=str,
)
def test_settings_of_the_fits_are_taken(settings):
    given = {"k": 2} | settings
    quantiles = complete_quantiles(SMALL, (0.5, 0.9), **given)
    predicted = everywhere(quantiles)
    assert np.isfinite(predicted).all()
    for promise in quantiles.promises:
        assert promise.pinball < 1.02 * promise.constant


@pytest.mark.compiled
def test_float32_data_have_float32_predictions():
    quantiles = complete_quantiles(SMALL.astype(np.float32), (0.5, 0.9), 2)
    assert everywhere(quantiles).dtype == np.float32
    np.testing.assert_allclose(
        np.median(everywhere(quantiles)), np.median(everywhere(small())[..., 1:]), rtol=0.5
    )


@pytest.mark.compiled
def test_constant_data_have_constant_quantiles():
    with warnings.catch_warnings(action="ignore"):
        quantiles = complete_quantiles(np.full((20, 15), 3.0), (0.5, 0.9), 1)
    np.testing.assert_array_equal(everywhere(quantiles), 3.0)


@pytest.mark.compiled
def test_mirrored_cells_stay_in_one_fold():
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 1, (60, 60))
    values = np.triu(values, 1) + np.triu(values, 1).T  # measured once, written down twice
    R = np.where(values > 0, values, np.nan)
    quantiles = complete_quantiles(R, (0.5, 0.9), 3)
    for promise in quantiles.promises:
        assert promise.cells == 60 * 59 // 2
        assert promise.pinball > 0.95 * promise.constant  # there is nothing to be learned


def test_a_few_cells_run_through_without_the_compiler():
    R = make_skewed(12, 10, rank=1, noise=0.3, density=0.9, random_state=0).R
    with warnings.catch_warnings(action="ignore"):
        quantiles = complete_quantiles(R, 0.5, 1, max_iter=3)
    assert everywhere(quantiles).shape == (12, 10, 1)
