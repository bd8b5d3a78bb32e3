"""Early stopping: the curve is what it says, and the fit is where it was lowest."""

import warnings

import numpy as np
import pytest

import fastemf
from fastemf.observations.hold_out import hold_out
from fastemf.observations.memory import observe

M, N, K, OMEGA = 14, 11, 3, 0.2
RNG = np.random.default_rng(7)
FULL = RNG.random((M, 2)) @ RNG.random((2, N)) + 0.5 * RNG.chisquare(3, (M, N))
HELD = RNG.random((M, N)) < 0.25
TRAIN, JUDGE = np.where(HELD, np.nan, FULL), np.where(HELD, FULL, np.nan)
# Without a ridge this overfits: the held-out loss falls and then rises.
OVERFIT = {"reg": 0, "anneal": False, "max_iter": 40}


def after(sweeps, R=TRAIN, k=K, **options):
    """The fit stopped after so many sweeps, with nothing held out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fastemf.ConvergenceWarning)
        return fastemf.complete(R, OMEGA, k, **(OVERFIT | options | {"max_iter": sweeps}))


def mean_loss(fit, cells, weights=None):
    """The held-out loss, cell by cell."""
    total = mass = 0.0
    fitted = fit.to_dense()
    for i, j in zip(*np.nonzero(~np.isnan(cells)), strict=True):
        r = float(cells[i, j]) - float(fitted[i, j])
        v = 1.0 if weights is None else weights[i, j]
        total += v * (OMEGA if r >= 0 else 1 - OMEGA) * r * r
        mass += v
    return total / mass


@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": False}, {"reg": "auto"}, {"intercepts": True}, {"orthogonalize": True}],
    ids=["momentum", "plain", "auto", "intercepts", "orthogonal"],
)
def test_the_curve_is_the_loss_of_each_iterate_and_the_best_is_returned(options):
    options = OVERFIT | options
    fit = fastemf.complete(TRAIN, OMEGA, K, validation=JUDGE, patience=5, **options)
    curve = [record.validation_loss for record in fit.history]
    stopped = [after(sweep + 1, **options) for sweep in range(fit.n_iter)]
    np.testing.assert_allclose(curve, [mean_loss(end, JUDGE) for end in stopped], rtol=1e-12)
    best = stopped[int(np.argmin(curve))]
    np.testing.assert_array_equal(fit.X, best.X, strict=True)
    np.testing.assert_array_equal(fit.Y, best.Y, strict=True)
    assert (fit.reg, fit.intercept_reg) == (best.reg, best.intercept_reg)
    record = fit.history[int(np.argmin(curve))]
    assert record.accepted
    assert fit.objective(TRAIN) == pytest.approx(record.objective, rel=1e-12)


def test_an_undone_sweep_has_the_loss_of_the_iterate_held():
    with pytest.warns(fastemf.ConvergenceWarning):
        fit = fastemf.complete(TRAIN, OMEGA, K, validation=JUDGE, patience=40, **OVERFIT, tol=0)
    undone = [i for i, record in enumerate(fit.history) if not record.accepted]
    assert undone
    for i in undone:
        assert fit.history[i].validation_loss == fit.history[i - 1].validation_loss


@pytest.mark.parametrize("patience", [1, 4, None])
def test_patience_counts_the_sweeps_since_the_best(patience):
    fit = fastemf.complete(TRAIN, OMEGA, K, validation=JUDGE, patience=patience, **OVERFIT)
    curve = [record.validation_loss for record in fit.history]
    waited = 10 if patience is None else patience
    assert len(curve) == int(np.argmin(curve)) + 1 + waited < OVERFIT["max_iter"]
    assert fit.converged
    for end in range(waited + 1, len(curve)):  # it would not have stopped before
        assert min(curve[end - waited : end]) < min(curve[: end - waited])


def test_without_patience_running_out_the_limits_are_as_ever():
    with pytest.warns(fastemf.ConvergenceWarning, match="max_iter=3"):
        fit = fastemf.complete(TRAIN, OMEGA, K, validation=JUDGE, **(OVERFIT | {"max_iter": 3}))
    assert not fit.converged
    settled = fastemf.complete(TRAIN, OMEGA, 1, reg=1.0, validation=JUDGE, patience=99, tol=0.01)
    assert settled.converged
    assert settled.history[-1].relative_decrease <= 0.01


def test_a_callback_that_stops_leaves_the_best_so_far():
    def enough(record):
        return record.sweep == 8

    fit = fastemf.complete(
        TRAIN, OMEGA, K, validation=JUDGE, patience=40, callback=enough, **OVERFIT
    )
    curve = [record.validation_loss for record in fit.history]
    assert len(curve) == 8
    assert int(np.argmin(curve)) < 7
    np.testing.assert_array_equal(fit.X, after(int(np.argmin(curve)) + 1).X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_share_is_the_same_as_its_entries(dtype):
    rng = np.random.default_rng(0)
    train, judge = hold_out(observe(FULL.astype(dtype)), 0.3, rng)
    one = fastemf.complete(train, OMEGA, K, validation=judge, random_state=rng)
    two = fastemf.complete(FULL.astype(dtype), OMEGA, K, validation=0.3, random_state=0)
    np.testing.assert_array_equal(one.X, two.X, strict=True)
    assert [r.validation_loss for r in one.history] == [r.validation_loss for r in two.history]
    assert judge.size == round(0.3 * M * N)


def test_entries_in_any_form_and_type_give_the_same_bits():
    i, j = np.nonzero(HELD)
    fits = [
        fastemf.complete(TRAIN.astype(np.float32), OMEGA, K, validation=judge, n_jobs=n_jobs)
        for judge, n_jobs in [
            (JUDGE.astype(np.float32), 1),
            ((i, j, FULL[i, j]), 2),
            (np.ma.masked_array(FULL, ~HELD), -1),
        ]
    ]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.X, fits[0].X, strict=True)


def test_weights_of_what_is_held_out_count():
    weights = RNG.integers(1, 4, (M, N)).astype(float)
    fit = fastemf.complete(FULL, OMEGA, K, weights=weights, validation=0.3)
    _, judge = hold_out(observe(FULL), 0.3, np.random.default_rng(0))
    cells = np.full((M, N), np.nan)
    cells[judge.by_row.keys, judge.by_row.indices] = judge.by_row.values
    lowest = min(record.validation_loss for record in fit.history)
    assert lowest == pytest.approx(mean_loss(fit, cells, weights), rel=1e-12)


def test_rows_that_are_only_held_out_are_unseen():
    R, judge = FULL.copy(), np.full((M, N), np.nan)
    judge[4], R[4] = R[4], np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations"):
        fit = fastemf.complete(R, OMEGA, K, validation=judge, intercepts=True)
    assert fit.unseen_rows.tolist() == [4]
    lowest = min(record.validation_loss for record in fit.history)
    assert lowest == pytest.approx(mean_loss(fit, judge), rel=1e-12)


def test_without_validation_there_is_no_curve():
    assert all(np.isnan(record.validation_loss) for record in after(3).history)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"validation": 0.0}, ValueError, r"validation must be a share in \(0, 1\).*got 0.0"),
        ({"validation": 1}, ValueError, r"validation must be a share in \(0, 1\).*got 1"),
        ({"validation": -0.5}, ValueError, "validation must be finite and not negative, got -0.5"),
        ({"validation": True}, TypeError, "validation must be a number, got True"),
        ({"validation": FULL.T}, ValueError, r"validation must have the shape of R, \(14, 11\)"),
        ({"validation": ([99], [0], [1.0])}, IndexError, "rows must be below 14, got 99"),
        ({"patience": 3}, ValueError, "patience needs validation, got patience=3"),
        ({"validation": 0.2, "patience": 0}, ValueError, "patience must be at least 1, got 0"),
        ({"validation": 0.2, "patience": 2.5}, TypeError, "patience must be an integer, got 2.5"),
    ],
)
def test_bad_validation(options, error, message):
    with pytest.raises(error, match=message):
        fastemf.complete(FULL, OMEGA, K, **options)
