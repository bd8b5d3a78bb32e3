"""The objective decreases in float32 and float64, at any level, offset and unit of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import seeds

import fastemf
from fastemf.solver.alternation import alternate, orthonormalize
from fastemf.solver.checkpoint import open_checkpoint
from fastemf.solver.records import HalfSweep
from fastemf.solver.ridge import AnnealedRidge, FixedRidge
from fastemf.solver.settings import Settings
from fastemf.support.warn import RoundingWarning

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*have no observations"),
    pytest.mark.filterwarnings("ignore:.*fewer than k"),
]

LEVELS = [1e-6, 0.001, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6]
SINGLE = float(np.finfo(np.float32).eps)


def skewed(seed, offset=0.0, shape=(12, 8), missing=0.4):
    """Skewed values around an offset, in float32's numbers, with NaN for missing."""
    rng = np.random.default_rng(seed)
    D = offset + rng.lognormal(0, 1, shape)
    D[rng.random(shape) < missing] = np.nan
    D[0, 0] = offset + 1
    return D.astype(np.float32)


cases = {
    "seed": seeds,
    "offset": st.sampled_from([0.0, 1.0, 100.0, 1e3, 1e4]),
    "omega": st.sampled_from(LEVELS),
    "reg": st.sampled_from([0, 1e-3, "auto"]),
}


def largest_rise(fit):
    return max((-record.relative_decrease for record in fit.history if record.accepted), default=0)


@given(
    **cases,
    dtype=st.sampled_from(["f4", "f8"]),
    options=st.sampled_from([
        {}, {"intercepts": True}, {"validation": 0.2}, {"solver": "cg"},
        {"solver": fastemf.Solver(momentum=False)},
    ]),
)  # fmt: skip
def test_no_accepted_sweep_raises_the_objective(seed, offset, omega, reg, dtype, options):
    if reg == 0 and "solver" in options:
        options = {"solver": fastemf.Solver(orthogonalize=True)}
    R = skewed(seed, offset).astype(dtype)
    fit = fastemf.complete(R, omega, 2, reg=reg, max_iter=40, **options)
    assert largest_rise(fit) <= 33 * np.finfo(dtype).eps


@given(**cases)
@example(seed=1, offset=1e3, omega=0.9, reg=1e-3)
def test_a_converged_fit_in_float32_leaves_float64_little_to_gain(seed, offset, omega, reg):
    R = skewed(seed, offset)
    fit = fastemf.complete(R, omega, 2, reg=reg)
    if not fit.converged:
        return
    wide, start = R.astype(float), (fit.X.astype(float), fit.Y.astype(float))
    again = fastemf.complete(
        wide, omega, 2, reg=fit.reg, init=start, solver=fastemf.Solver(anneal=False), max_iter=1
    )
    (record,) = again.history
    # A residual is off by the rounding of its value, and the root of F by as much of their norm.
    off = SINGLE * np.sqrt(np.nansum(wide**2))
    reached = record.objective / (1 - record.relative_decrease) if record.objective else 0.0
    assert np.sqrt(reached) <= np.sqrt(1.05 * record.objective) + 4 * off


def test_float32_fits_values_that_are_small_beside_their_offset():
    # Normal equations in float32 treated values below a hundredth of the largest as zero.
    rng = np.random.default_rng(1)
    D = 1000 + rng.lognormal(0, 1, (37, 6))
    D[rng.random((37, 6)) < 0.6] = np.nan
    single = fastemf.complete(D.astype(np.float32), 0.9, 3, reg=1e-3)
    double = fastemf.complete(D, 0.9, 3, reg=1e-3)
    assert largest_rise(single) <= 0
    assert single.history[-1].objective == pytest.approx(double.history[-1].objective, rel=1e-3)


# --- units ---------------------------------------------------------------------------------

OPTIONS = [
    {}, {"reg": 0}, {"reg": 0, "solver": fastemf.Solver(orthogonalize=True)},
    {"intercepts": True}, {"init": "random"}, {"validation": 0.2},
]  # fmt: skip
UNITS = {"f4": st.integers(-28, 28), "f8": st.integers(-230, 230)}


@given(st.data(), seeds, st.sampled_from(LEVELS), st.sampled_from(["f4", "f8"]))
def test_a_fit_follows_the_unit_of_the_data(data, seed, omega, dtype):
    # Factors go with the root of the unit, which is exact for powers of four.
    options = data.draw(st.sampled_from(OPTIONS))
    R, unit = skewed(seed).astype(dtype), np.dtype(dtype).type(4.0 ** data.draw(UNITS[dtype]))
    one = fastemf.complete(R, omega, 2, max_iter=15, **options)
    other = fastemf.complete(unit * R, omega, 2, max_iter=15, **options)
    assert one.n_iter == other.n_iter
    np.testing.assert_array_equal(unit * one.to_dense(), other.to_dense())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        other.save(path)
        np.testing.assert_array_equal(fastemf.load(path).X, other.X)


@pytest.mark.parametrize("unit", [1e-15, 1e-9, 3e-5, 7.0, 1e9, 1e15])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_orthogonal_factors_recover_noiseless_data_in_any_unit(unit, dtype):
    # Solves started from factors in another unit than that of the data.
    rng = np.random.default_rng(0)
    M = unit * np.outer(rng.uniform(1, 2, 12), rng.uniform(1, 2, 9))
    R = np.where(rng.random(M.shape) < 0.3, np.nan, M).astype(dtype)
    fit = fastemf.complete(R, 0.3, 1, reg=0, solver=fastemf.Solver(orthogonalize=True))
    assert fit.converged
    np.testing.assert_allclose(fit.to_dense(), M, rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_orthonormalising_keeps_the_product(unit, dtype):
    rng = np.random.default_rng(0)
    X, Y = (unit * rng.standard_normal((9, 3))).astype(dtype), rng.standard_normal((7, 3))
    X[:, 2] = X[:, 0]
    Q, other = orthonormalize(X, Y.astype(dtype))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=16 * eps)
    np.testing.assert_allclose(Q @ other.T, X @ Y.T, atol=32 * eps * unit)


@pytest.mark.parametrize("unit", [1e-103, 1e-104, 1e-106])
@pytest.mark.filterwarnings("ignore:.*observations are zero:UserWarning")
def test_gradients_that_all_but_vanish_have_a_norm(unit, tmp_path):
    start = unit * np.array([[1.0, 0], [1, 2], [3, 1]]), unit * np.array([[1.0, 1], [2, 0]])
    fit = fastemf.complete(np.zeros((3, 2)), 0.3, 2, reg=0, init=start, max_iter=1)
    assert 0 < fit.history[0].gradient_norm < 1e-306
    fit.save(tmp_path / "model.npz")
    assert repr(fastemf.load(tmp_path / "model.npz").history) == repr(fit.history)


# --- refused data -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "unit", "weight", "message"),
    [
        ("f4", 1e18, 1e12, "R and its weights are too large for float32.*or pass float64"),
        ("f8", 1e140, 1e30, "R and its weights are too large for float64.*rescale the weights"),
        ("f8", 1.0, 1e300, "R and its weights are too large for float64"),
        ("f8", 1e-140, 1e-40, "R and its weights are too small for float64.*underflow"),
        ("f8", 1e-140, 1e-20, "R and its weights are too small for float64.*underflow"),
    ],
)
def test_sums_that_leave_the_range_are_refused(dtype, unit, weight, message, tmp_path):
    R = skewed(0, missing=0.0).astype(dtype) * np.dtype(dtype).type(unit)
    rows, cols = np.divmod(np.arange(R.size), R.shape[1])
    weights = np.full(R.size, weight, dtype)
    entries = (rows, cols, R.ravel())
    with pytest.raises(ValueError, match=message):
        fastemf.complete(entries, 0.3, 2, weights=weights)
    log = fastemf.store.build(entries, tmp_path / "log", weights=weights)
    with pytest.raises(ValueError, match=message):
        fastemf.complete(log, 0.3, 2)


def test_zeros_are_fitted_whatever_they_weigh():
    weights = np.full((6, 5), 1e-300)
    with pytest.warns(UserWarning, match="are zero"):
        fit = fastemf.complete(np.zeros((6, 5)), 0.3, 1, weights=weights)
    assert fit.converged
    assert not fit.to_dense().any()


# --- sweeps that rise ----------------------------------------------------------------------


class Rising:
    """An engine whose first sweeps lower F and whose later ones raise it."""

    omega, mass, size, eps = 0.5, 1.0, 1.0, SINGLE
    shape, dtype, has_intercepts = (2, 3), np.dtype(np.float32), False

    def __init__(self, rise, falls=2):
        self.rounding = 16 * SINGLE
        self._rise, self._falls, self._solves = rise, falls, 0

    def solve(self, axis, this, other, ridge):
        self._solves += 1
        sweep = (self._solves + 1) // 2
        loss = 2.0**-sweep if sweep <= self._falls else 2.0**-self._falls * (1 + self._rise)
        return HalfSweep(this + np.float32(1), 2 * loss, 0.0, 0.0, 0, 0, 0)

    def evaluate(self, X, Y):
        return HalfSweep(X, 2.0, 0.0, 0.0, 0, 0, 0)

    def penalty(self, X, Y, ridge):
        return 0.0


def run(rise, schedule=None, checkpoint=None):
    """The outcome of such an engine from zeros; X counts the sweeps that were kept."""
    solver = fastemf.Solver(momentum=False)
    settings = Settings(omega=0.5, k=1, reg=0, solver=solver, checkpoint=checkpoint)
    start = np.zeros((2, 1), np.float32), np.zeros((3, 1), np.float32)
    kept = open_checkpoint(settings, lambda: ["same"]) if checkpoint else None
    schedule = schedule or FixedRidge.from_number(0.0, 0.5)
    return alternate(Rising(rise), lambda _: start, schedule, settings, checkpoint=kept)


def test_a_rise_is_undone_and_ends_the_fit_also_when_resumed(tmp_path):
    checkpoint = fastemf.Checkpoint(tmp_path / "state.npz", resume=True)
    ends = []
    for _ in range(2):
        with pytest.warns(RoundingWarning, match=r"in float32 explains.*pass float64"):
            ends.append(run(0.1, checkpoint=checkpoint))
    for end in ends:
        assert (end.converged, end.stalled, end.stopped) == (False, True, False)
        assert [record.accepted for record in end.history] == [True, True, False]
        assert (end.X == 2).all()
        assert repr(end.history) == repr(ends[0].history)
        assert end.history[-1].restarts == 1
        assert end.history[-1].relative_decrease == pytest.approx(-0.1)


def test_a_rise_by_rounding_is_undone_and_means_convergence():
    # Rounding of the solves and of the residuals, and rounding of F alone.
    for rise, accepted in ((200 * SINGLE, False), (20 * SINGLE, True)):
        end = run(rise)
        assert [record.accepted for record in end.history] == [True, True, accepted]
        assert (end.converged, end.stalled) == (True, False)


def test_a_moving_ridge_continues_after_such_a_rise():
    end = run(200 * SINGLE, AnnealedRidge(0.5, 1, 1.0))
    assert end.converged
    assert len(end.history) == AnnealedRidge.SWEEPS * len(AnnealedRidge.STAGES) + 1


def test_orthogonal_factors_leave_rows_without_observations_at_zero():
    R = np.full((6, 5), np.nan)
    R[:3, :2] = np.outer([1.0, 2.0, 3.0], [1.0, 0.5])  # of rank one, fitted at rank two
    with pytest.warns(UserWarning, match="no observations"):
        fit = fastemf.complete(R, 0.4, 2, reg=0, solver=fastemf.Solver(orthogonalize=True))
    assert not fit.X[fit.unseen_rows].any()
    assert not fit.Y[fit.unseen_cols].any()


@pytest.mark.parametrize("init", ["random", "pair"])
def test_rows_without_observations_are_zero_if_no_sweep_is_accepted(init, monkeypatch):
    R = np.outer(np.arange(1.0, 6.0), np.arange(1.0, 5.0))
    R[2], R[:, 1] = np.nan, np.nan
    start = (np.ones((5, 1)), np.ones((4, 1))) if init == "pair" else init

    def end_at_the_start(engine, start, *rest, **more):
        X, Y = start(engine)
        return alternate(engine, start, *rest, **more)._replace(X=X, Y=Y)

    monkeypatch.setattr("fastemf.fitting.alternate", end_at_the_start)
    fit = fastemf.complete(R, 0.3, 1, reg=0, init=start)
    assert not fit.X[2].any()
    assert not fit.Y[1].any()
    assert fit.X[0].any()


def test_a_start_that_no_sweep_improves_has_the_ridge_of_its_objective():
    R = np.array([[1.00198755, 0.99769455], [1.2626637, 1.00115432]])
    fit = fastemf.complete(R, 0.001, 2, reg="noise", intercepts=True, max_iter=15, n_jobs=1)
    assert not any(record.accepted for record in fit.history)
    assert fit.objective(R) <= min(record.objective for record in fit.history)
