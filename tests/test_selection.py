"""Cross-validated selection: losses against explicit loops, rules, and messages."""

import io
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf.datasets import load_wsdream
from fastemf.loss import expectile_loss
from fastemf.selection import Candidate, choose
from fastemf.sources.hold_out import folds as deal_folds
from fastemf.sources.memory import observe

M, N, OMEGA = 9, 7, 0.2
RNG = np.random.default_rng(5)
R = RNG.random((M, 2)) @ RNG.random((2, N)) + 0.3 * RNG.chisquare(3, (M, N))
R[4, 1:] = R[0, 0] = np.nan  # a row with a single cell, which is held out in one fold
QUICK = {"tol": 1e-3, "n_jobs": 1}


def clear(shape=(15, 12)):
    """Data of rank 2 with little noise."""
    rng = np.random.default_rng(1)
    signal = rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1]))
    return signal + 0.05 * rng.standard_normal(shape)


# --- losses against explicit loops ------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*have no observations")
@pytest.mark.parametrize("intercepts", [False, True])
def test_losses_and_errors_equal_explicit_loops(intercepts):
    chosen = fastemf.select(R, OMEGA, [2], [0.05, "noise"], 3, intercepts=intercepts, **QUICK)
    observed = observe(R)
    fold, part = deal_folds(observed, 3, np.random.default_rng(0), parts=10)
    i, j = observed.by_row.keys, observed.by_row.indices
    assert [(row.k, row.reg) for row in chosen.table] == [(2, "noise"), (2, 0.05)]
    for row in chosen.table:
        losses, counts, ridges = Counter(), Counter(), []
        for number in range(row.folds):
            train = R.copy()
            train[i[fold == number], j[fold == number]] = np.nan
            fit = fastemf.complete(train, OMEGA, row.k, reg=row.reg, intercepts=intercepts, **QUICK)
            fitted = fit.to_dense()
            ridges.append(fit.reg)
            for entry in np.flatnonzero(fold == number):
                r = float(R[i[entry], j[entry]] - fitted[i[entry], j[entry]])
                key = number, int(part[entry])
                losses[key] += (OMEGA if r >= 0 else 1 - OMEGA) * r * r
                counts[key] += 1
        mean, size = losses.total() / counts.total(), len(losses)
        assert row.loss == pytest.approx(mean, rel=1e-10)
        average = counts.total() / size
        spread = sum(((losses[key] - mean * counts[key]) / average) ** 2 for key in losses)
        assert row.standard_error == pytest.approx((spread / (size - 1) / size) ** 0.5, rel=1e-10)
        assert row.ridge == pytest.approx(np.mean(ridges), rel=1e-12)
    assert any(row.folds == 3 for row in chosen.table)


def test_the_fit_equals_complete_with_the_selected_candidate():
    chosen = fastemf.select(R, OMEGA, [1, 2], [0.2, 0.05], 3, weights=np.abs(R), **QUICK)
    best = chosen.best
    fit = fastemf.complete(R, OMEGA, best.k, reg=best.reg, weights=np.abs(R), tol=1e-3)
    np.testing.assert_array_equal(chosen.fit.X, fit.X, strict=True)
    np.testing.assert_array_equal(chosen.fit.Y, fit.Y, strict=True)
    assert chosen.best in chosen.table


def test_a_weight_of_two_equals_repeating_the_observation():
    i, j = np.nonzero(~np.isnan(R))
    twice = RNG.random(i.size) < 0.4
    weights = np.where(twice, 2.0, 1.0)
    repeated = np.concatenate([np.arange(i.size), np.flatnonzero(twice)])
    every = i[repeated], j[repeated], R[i, j][repeated]
    one = fastemf.select((i, j, R[i, j]), OMEGA, [1, 2], [0.1], 3, weights=weights, **QUICK)
    two = fastemf.select(every, OMEGA, [1, 2], [0.1], 3, **QUICK)
    for a, b in zip(one.table, two.table, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-8)
        assert a.standard_error == pytest.approx(b.standard_error, rel=1e-6)


TUNED = pytest.param(
    clear(shape=(36, 28)), ["auto", "noise"],
    marks=[pytest.mark.slow, pytest.mark.compiled], id="tuned",
)  # fmt: skip


@pytest.mark.parametrize(("data", "regs"), [(R, ["noise", 0.4, 0.1]), TUNED])
def test_the_choice_scales_with_the_unit_and_ignores_threads(data, regs):
    def selected(unit, n_jobs):
        scaled = [reg if isinstance(reg, str) else unit * reg for reg in regs]
        settings = {"intercepts": True, "n_jobs": n_jobs, "tol": 1e-2}
        return fastemf.select(unit * data, OMEGA, [2], scaled, 2, **settings)

    one, scaled, parallel = selected(1, 1), selected(1024, 1), selected(1, 2)
    assert parallel.table == one.table
    assert len(one.table) == len(regs)
    assert scaled.table.index(scaled.best) == one.table.index(one.best)
    for a, b in zip(one.table, scaled.table, strict=True):
        assert (b.loss, b.standard_error) == (1024**2 * a.loss, 1024**2 * a.standard_error)
        assert b.ridge == 1024 * a.ridge
        assert (a.k, a.folds, a.dropped) == (b.k, b.folds, b.dropped)


@pytest.mark.parametrize(("shape", "ks"), [((9, 7), {1, 2, 5}), ((1, 3), {1})])
@pytest.mark.parametrize("intercepts", [False, True])
def test_default_ranks_fit_the_shape(shape, ks, intercepts):
    chosen = fastemf.select(
        RNG.random(shape) + 1, OMEGA, regs=[0.1], folds=2, intercepts=intercepts, **QUICK
    )
    assert {row.k for row in chosen.table} == ks | ({0} if intercepts else set())


@pytest.mark.thorough
@pytest.mark.compiled
def test_ranks_are_compared_by_tuned_fits():
    data = clear(shape=(36, 28))
    chosen = fastemf.select(data, OMEGA, [0, 2], folds=2, intercepts=True, **QUICK)
    assert [(row.k, row.reg) for row in chosen.table] == [(0, "auto"), (2, "auto")]
    assert chosen.best.k == 2
    assert chosen.fit.tuning.best.rank == 2
    assert "stronger" not in repr(chosen)


def test_same_seed_same_table():
    def table(random_state):
        return fastemf.select(R, OMEGA, [1], [0.1], 2, random_state=random_state, **QUICK).table

    assert table(3) == table(3)
    assert table(np.random.default_rng(3)) == table(np.random.default_rng(3))
    assert table(3) != table(4)


# --- warm starts ----------------------------------------------------------------------------


def test_a_ridge_that_removes_all_factors_does_not_affect_the_next():
    alone = fastemf.select(clear(), 0.5, [2], [0.01], 2, **QUICK)
    after = fastemf.select(clear(), 0.5, [2], [1e3, 0.01], 2, **QUICK)
    assert after.best == alone.best


# --- the settings of `complete` ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("reg", "settings"),
    [
        (0.1, {"solver": fastemf.Solver(reg_scaling="plain", method="cg")}),
        (0, {"solver": fastemf.Solver(orthogonalize=True)}),
        (0.1, {"validation": fastemf.Validation(0.2, patience=1)}),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_settings_reach_every_fit(reg, settings):
    chosen = fastemf.select(R, OMEGA, [2], [reg], 2, **settings, **QUICK)
    alone = fastemf.complete(R, OMEGA, 2, reg=reg, **settings, **QUICK)
    np.testing.assert_array_equal(chosen.fit.X, alone.X)
    observed = observe(R)
    fold, _ = deal_folds(observed, 2, np.random.default_rng(0), parts=10)
    total = 0.0
    for number in range(2):
        train, side = observed.subset(fold != number), observed.subset(fold == number).by_row
        fit = fastemf.complete(train, OMEGA, 2, reg=reg, **settings, **QUICK)
        total += expectile_loss(side.values - fit.predict(side.keys, side.indices), OMEGA)
    assert chosen.best.loss == pytest.approx(total / observed.size, rel=1e-10)


def test_every_ridge_is_checked_before_any_work():
    class Unread:
        """Data that must not be read."""

        def __array__(self):
            pytest.fail("data were read")

    orthogonal, plain = fastemf.Solver(orthogonalize=True), fastemf.Solver(reg_scaling="plain")
    for regs, solver, message in [
        ([0.1, 0], "cg", 'solver="cg" needs a ridge'),
        ([0, 0.1], orthogonal, "orthogonalize=True needs reg=0"),
        ([0.1, "auto"], plain, 'reg="auto" is count-scaled'),
        (None, plain, "regs must be given with reg_scaling"),
    ]:
        with pytest.raises(ValueError, match=message):
            fastemf.select(Unread(), OMEGA, [1], regs, solver=solver)


def test_a_store_is_refused(tmp_path):
    i, j = np.nonzero(~np.isnan(R))
    store = fastemf.store.build((i, j, R[i, j]), tmp_path / "store")
    for data in (store, tmp_path / "store"):
        with pytest.raises(TypeError, match="R must be in memory where cells are held out"):
            fastemf.select(data, OMEGA)


# --- the rules ------------------------------------------------------------------------------


def row(k, reg, loss, error=0.1, ridge=None, *, dropped=False):
    return Candidate(k, reg, reg if ridge is None else ridge, loss, error, 5 - dropped, dropped)


def test_a_dropped_candidate_is_never_selected():
    table = [row(1, 0.5, 1.3), row(2, 0.5, 1.0), row(2, 0.1, 1.2), row(5, 0.5, 0.2, dropped=True)]
    assert choose(table, "best") is table[1]
    table = [row(1, 0.5, 1.0, dropped=True), row(2, 0.5, 1.05), row(5, 0.5, 1.0)]
    assert choose(table, "one_se") is table[1]


@pytest.mark.parametrize(
    ("losses", "place"),
    [
        ([2.0, 2.0, 2.0, 2.0, 1.0], 4),  # nothing else is near
        ([2.0, 2.0, 2.0, 1.05, 1.0], 3),  # the stronger ridge
        ([2.0, 1.09, 1.09, 1.05, 1.0], 1),  # the smaller rank, and its strongest ridge
        ([1.11, 2.0, 1.1, 2.0, 1.0], 2),  # at one standard error exactly
    ],
)
def test_rule_one_se_is_the_simplest_candidate(losses, place):
    settings = [(1, "auto", 0.3), (2, 0.4, 0.4), (2, "auto", 0.3), (5, 0.4, 0.4), (5, 0.1, 0.1)]
    table = [
        row(k, reg, loss, 1.0 if loss > 1 else 0.1, ridge)
        for (k, reg, ridge), loss in zip(settings, losses, strict=True)
    ]
    assert choose(table, "one_se") is table[place]
    assert choose(table, "best") is table[4]


@pytest.mark.compiled
def test_clearly_worse_candidates_are_dropped():
    data = clear(shape=(30, 20))
    chosen = fastemf.select(data, OMEGA, [1, 2, 3], [0.001, 5.0], **QUICK)
    dropped = {(row.k, row.reg) for row in chosen.table if row.dropped}
    assert dropped >= {(1, 0.001), (1, 5.0), (2, 5.0), (3, 5.0)}
    assert (2, 0.001) not in dropped
    assert chosen.best.k >= 2
    assert all(row.dropped == (row.folds < 5) for row in chosen.table)


# --- output ---------------------------------------------------------------------


def test_the_table_prints_and_converts_to_a_data_frame():
    chosen = fastemf.select(clear(), OMEGA, [1, 2], ["auto", 5.0], **QUICK)
    lines = repr(chosen).splitlines()
    assert lines[0].split() == ["k", "reg", "ridge", "loss", "std.", "error", "folds"]
    assert len(lines) == 5
    assert [line.split()[1] for line in lines[1:]] == ["auto", "5", "auto", "5"]
    marked = lines[1 + chosen.table.index(chosen.best)]
    assert [line for line in lines if line.endswith("chosen")] == [marked]
    assert sum(line.endswith("dropped") for line in lines) == sum(r.dropped for r in chosen.table)
    frame = pd.DataFrame(chosen.table)
    assert list(frame) == list(Candidate.__dataclass_fields__)
    assert frame.loss.tolist() == [row.loss for row in chosen.table]


def test_the_progress_bar_counts_fits(capsys):
    fastemf.select(clear(), OMEGA, [1, 2], [0.001, 5.0], progress=True, **QUICK)
    out, err = capsys.readouterr()
    assert out == ""
    assert "0/20 [" in err
    fastemf.select(clear(), OMEGA, [2], [0.001], folds=2, **QUICK)
    assert capsys.readouterr() == ("", "")


def test_warnings_are_those_of_the_final_fit():
    with_gap = clear()
    with_gap[3] = np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no obs") as caught:
        fastemf.select(with_gap, OMEGA, [1], [0.1], 2, **QUICK)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_the_plot_shows_every_candidate_and_marks_the_selected_one():
    figure = pytest.importorskip("matplotlib.figure")
    chosen = fastemf.select(clear(), OMEGA, [1, 2], ["auto", 5.0, 0.0], **QUICK)
    ax = chosen.plot(ax=figure.Figure().subplots())
    curves = {line.get_label(): line for line in ax.lines}
    for k in (1, 2):
        rows = sorted((row for row in chosen.table if row.k == k), key=lambda row: row.ridge)
        assert curves[f"k = {k}"].get_xdata().tolist() == [row.ridge for row in rows]
        assert curves[f"k = {k}"].get_ydata().tolist() == [row.loss for row in rows]
    ring = curves["chosen"]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (chosen.best.ridge, chosen.best.loss)
    assert ax.get_xlim()[0] <= 0


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"folds": 1}, ValueError, "folds must be at least 2, got 1"),
        ({"folds": 99}, ValueError, "folds must be at most the 56 cells observed, got 99"),
        ({"ks": []}, ValueError, "ks must hold at least one value"),
        ({"ks": range(10**9)}, ValueError, "ks must hold at most 10000 values, got 1000000000"),
        ({"ks": 3}, TypeError, "ks must be a list of values to compare, got 3"),
        ({"ks": [0]}, ValueError, r"ks must be at least 1 \(0 fits intercepts only.*, got 0"),
        ({"ks": [1, 8]}, ValueError, r"ks must be at most min\(rows, columns\) = 7.*got 8"),
        ({"regs": []}, ValueError, "regs must hold at least one value"),
        ({"regs": "auto"}, TypeError, "regs must be a list of values to compare, got 'auto'"),
        ({"regs": ["cv"]}, ValueError, 'reg must be "auto", "noise" or a number >= 0, got \'cv\''),
        ({"rule": "first"}, ValueError, "rule must be one of 'best', 'one_se', got 'first'"),
    ],
)
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        fastemf.select(R, **({"omega": OMEGA, "ks": [1]} | options))


# --- real data ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:.*have no observations")
@pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning")
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("intercepts", [False, True])
def test_the_choice_is_nearly_optimal_on_web_service_times(data_folder, intercepts, omega):
    times = load_wsdream(data_folder)
    src, (row, col), seconds, shape = times.source, times.R.coords, times.R.data, times.R.shape
    train = (src & 1) > 0
    test = ((src & 6) > 0) & ~train
    data = row[train], col[train], seconds[train]

    def loss(fit):
        return expectile_loss(seconds[test] - fit.predict(row[test], col[test]), omega)

    chosen = fastemf.select(data, omega, shape=shape, intercepts=intercepts)
    settings = {"shape": shape, "intercepts": intercepts}
    others = [fastemf.complete(data, omega, c.k, reg=c.reg, **settings) for c in chosen.table]
    assert loss(chosen.fit) <= 1.02 * min(map(loss, others))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_validation_entries_are_read_once():
    rows, cols = np.nonzero(~np.isnan(R))
    table = pd.DataFrame({"client": rows, "service": cols, "ms": R[rows, cols]})
    names = {"rows": "client", "cols": "service", "values": "ms"}
    once, again = (
        fastemf.select(table, 0.3, [1], [0.1, 1.0], 2, validation=cells, max_iter=5, **names)
        for cells in (io.StringIO(table[::7].to_csv(index=False)), table[::7])
    )
    assert [row.loss for row in once.table] == [row.loss for row in again.table]


@pytest.mark.parametrize("intercepts", [False, True])
def test_intercepts_are_suggested_if_missing(intercepts):
    R = np.random.default_rng(0).lognormal(size=(20, 15))
    chosen = fastemf.select(R, 0.5, [1], [0.001, 0.01, 1e3], 2, intercepts=intercepts, tol=1)
    assert chosen.best.reg == 1000.0
    assert "The largest ridge compared is best" in repr(chosen)
    assert ("or intercepts" in repr(chosen)) == (not intercepts)
