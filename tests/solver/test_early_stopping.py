"""Early stopping: the validation losses are right, and the fit with the lowest is returned."""

import warnings

import numpy as np
import pytest

import fastemf
from fastemf.sources.hold_out import hold_out
from fastemf.sources.memory import observe

M, N, K, OMEGA = 14, 11, 3, 0.2
RNG = np.random.default_rng(7)
FULL = RNG.random((M, 2)) @ RNG.random((2, N)) + 0.5 * RNG.chisquare(3, (M, N))
HELD = RNG.random((M, N)) < 0.25
TRAIN, HELD_OUT = np.where(HELD, np.nan, FULL), np.where(HELD, FULL, np.nan)
# Without a ridge this overfits: the held-out loss falls and then rises.
OVERFIT = {"reg": 0, "solver": fastemf.Solver(anneal=False), "max_iter": 40}


def stopped_early(patience, **options):
    """The fit that is stopped by the held-out cells, and its curve of held-out losses."""
    validation = fastemf.Validation(HELD_OUT, patience=patience)
    fit = fastemf.complete(TRAIN, OMEGA, K, validation=validation, **(OVERFIT | options))
    return fit, [record.validation_loss for record in fit.history]


def after(sweeps, **options):
    """The fit stopped after so many sweeps, with nothing held out."""
    with warnings.catch_warnings(action="ignore", category=fastemf.ConvergenceWarning):
        return fastemf.complete(TRAIN, OMEGA, K, **(OVERFIT | options | {"max_iter": sweeps}))


def mean_loss(fit, cells, weights=None):
    """The held-out loss by its definition."""
    seen = ~np.isnan(cells)
    r = (cells - fit.to_dense())[seen]
    v = None if weights is None else weights[seen]
    return np.average(np.where(r >= 0, OMEGA, 1 - OMEGA) * r**2, weights=v)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"solver": fastemf.Solver(momentum=False, anneal=False)}, {"reg": "auto"},
        {"intercepts": True}, {"solver": fastemf.Solver(orthogonalize=True)},
    ],
    ids=["momentum", "plain", "auto", "intercepts", "orthogonal"],
)  # fmt: skip
def test_the_curve_is_the_loss_of_each_iterate_and_the_best_is_returned(options):
    fit, curve = stopped_early(5, **options)
    stopped = [after(sweep + 1, **options) for sweep in range(fit.n_iter)]
    np.testing.assert_allclose(curve, [mean_loss(end, HELD_OUT) for end in stopped], rtol=1e-12)
    best = stopped[int(np.argmin(curve))]
    np.testing.assert_array_equal(fit.X, best.X, strict=True)
    np.testing.assert_array_equal(fit.Y, best.Y, strict=True)
    assert (fit.reg, fit.intercept_reg) == (best.reg, best.intercept_reg)
    record = fit.history[int(np.argmin(curve))]
    assert record.accepted
    assert fit.objective(TRAIN) == pytest.approx(record.objective, rel=1e-12)


def test_an_undone_sweep_has_the_loss_of_the_sweep_before():
    with pytest.warns(fastemf.ConvergenceWarning):
        fit, curve = stopped_early(40, tol=0)
    undone = np.flatnonzero([not record.accepted for record in fit.history])
    assert undone.size
    np.testing.assert_array_equal(np.array(curve)[undone], np.array(curve)[undone - 1])


@pytest.mark.parametrize("patience", [1, 4, 10])
def test_patience_counts_the_sweeps_since_the_best(patience):
    fit, curve = stopped_early(patience)
    assert len(curve) == int(np.argmin(curve)) + 1 + patience < OVERFIT["max_iter"]
    assert fit.converged
    for end in range(patience + 1, len(curve)):  # it would not have stopped before
        assert min(curve[end - patience : end]) < min(curve[: end - patience])


def test_max_iter_and_tol_end_a_fit_with_validation_too():
    with pytest.warns(fastemf.ConvergenceWarning, match="max_iter=3"):
        fit = fastemf.complete(TRAIN, OMEGA, K, validation=HELD_OUT, **(OVERFIT | {"max_iter": 3}))
    assert not fit.converged
    settled = fastemf.complete(
        TRAIN, OMEGA, 1, reg=1.0, validation=fastemf.Validation(HELD_OUT, patience=99), tol=0.01
    )
    assert settled.converged
    assert settled.history[-1].relative_decrease <= 0.01


def test_a_fit_stopped_by_a_callback_is_the_best_so_far():
    fit, curve = stopped_early(40, callback=lambda record: record.sweep == 8)
    assert len(curve) == 8
    best = after(int(np.argmin(curve)) + 1)
    assert best.n_iter < 8
    np.testing.assert_array_equal(fit.X, best.X)
    assert np.isnan([record.validation_loss for record in best.history]).all()  # without validation


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_proportion_is_the_same_as_its_entries(dtype):
    rng = np.random.default_rng(0)
    train, held_out = hold_out(observe(FULL.astype(dtype)), 0.3, rng)
    one = fastemf.complete(train, OMEGA, K, validation=held_out, random_state=rng)
    two = fastemf.complete(FULL.astype(dtype), OMEGA, K, validation=0.3, random_state=0)
    np.testing.assert_array_equal(one.X, two.X, strict=True)
    assert [r.validation_loss for r in one.history] == [r.validation_loss for r in two.history]
    assert held_out.size == round(0.3 * M * N)


def test_entries_in_any_form_and_type_give_the_same_bits():
    i, j = np.nonzero(HELD)
    forms = HELD_OUT.astype(np.float32), (i, j, FULL[i, j]), np.ma.masked_array(FULL, ~HELD)
    first, *others = (
        fastemf.complete(TRAIN.astype(np.float32), OMEGA, K, validation=held_out, n_jobs=n_jobs)
        for held_out, n_jobs in zip(forms, (1, 2, -1), strict=True)
    )
    for fit in others:
        np.testing.assert_array_equal(fit.X, first.X, strict=True)


def test_validation_cells_are_weighted():
    weights = RNG.integers(1, 4, (M, N)).astype(float)
    fit = fastemf.complete(FULL, OMEGA, K, weights=weights, validation=0.3)
    side = hold_out(observe(FULL), 0.3, np.random.default_rng(0))[1].by_row
    cells = np.full((M, N), np.nan)
    cells[side.keys, side.indices] = side.values
    lowest = min(record.validation_loss for record in fit.history)
    assert lowest == pytest.approx(mean_loss(fit, cells, weights), rel=1e-12)


def test_rows_that_are_only_held_out_are_unseen():
    R, held_out = FULL.copy(), np.full((M, N), np.nan)
    held_out[4], R[4] = R[4], np.nan
    with pytest.warns(UserWarning, match="1 rows and 0 columns have no observations"):
        fit = fastemf.complete(R, OMEGA, K, validation=held_out, intercepts=True)
    assert fit.unseen_rows.tolist() == [4]
    lowest = min(record.validation_loss for record in fit.history)
    assert lowest == pytest.approx(mean_loss(fit, held_out), rel=1e-12)


@pytest.mark.parametrize(
    ("validation", "error", "message"),
    [
        (0.0, ValueError, r"validation must be a proportion of the cells in \(0, 1\).*got 0.0"),
        (1, ValueError, r"validation must be a proportion of the cells in \(0, 1\).*got 1"),
        (FULL.T, ValueError, r"validation must have the shape of R, \(14, 11\)"),
        (([99], [0], [1.0]), IndexError, "rows must be below 14, got 99"),
    ],
)
def test_bad_validation(validation, error, message):
    with pytest.raises(error, match=message):
        fastemf.complete(FULL, OMEGA, K, validation=validation)
