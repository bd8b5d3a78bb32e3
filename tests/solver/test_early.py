"""Early sweeps lead the way; the end is that of exact sweeps in the type of the data."""

from __future__ import annotations

import numpy as np
import pytest

import fastemf
from fastemf.observations import changed
from fastemf.observations.memory import observe
from fastemf.observations.source import Side
from fastemf.solver import early
from fastemf.solver.early import early_engine
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.settings import Settings

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning"),
    pytest.mark.compiled,
]

DATA = fastemf.datasets.make_skewed(60, 50, rank=3, density=0.4, random_state=0).R
FIT = {"reg": 0.5, "intercepts": True}
RIDGES = ({"reg": 0.5}, {"reg": 3.0, "reg_scaling": "plain"})


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Small data do not have them by themselves."""
    monkeypatch.setattr(early, "WORK", 0.0)


@pytest.fixture
def without(monkeypatch):
    def fit(*args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(early, "WORK", np.inf)
            return fastemf.complete(*args, **options)

    return fit


def same_bits(one, other):
    for name in ("X", "Y", "row_intercepts", "col_intercepts", "shift"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    records = [
        [(record.objective, record.extrapolation, record.accepted) for record in fit.history]
        for fit in (one, other)
    ]
    assert records[0] == records[1]


def engine_of(R, omega, **more):
    return CompletionEngine(observe(R), omega, mu=None, n_threads=1, **more)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("ridge", RIDGES, ids=str)
def test_the_end_is_that_of_exact_sweeps(omega, ridge, dtype, without):
    R, exact = DATA.astype(dtype), dtype == np.float64
    options = ridge | {"tol": 1e-12 if exact else 1e-6, "max_iter": 3000, "intercepts": True}
    led, plain = (fit(R, omega, 2, **options) for fit in (fastemf.complete, without))
    assert led.converged
    assert plain.converged
    assert led.X.dtype == plain.X.dtype == dtype
    # From the same start both come to the same minimum, and each row is solved.
    rtol = 1e-7 if exact else 1e-3
    np.testing.assert_allclose(led.history[-1].objective, plain.history[-1].objective, rtol=rtol)
    if exact:
        np.testing.assert_allclose(led.to_dense(), plain.to_dense(), rtol=2e-3, atol=1e-3)
        assert led.history[-1].gradient_norm < 1e-4 * led.history[0].gradient_norm
    rises = [
        after.objective / before.objective
        for before, after in zip(led.history, led.history[1:], strict=False)
        if after.accepted and before.reg == after.reg
    ]
    assert max(rises) < 1 + 1e-6  # where one type follows the other
    assert [record.sweep for record in led.history] == list(range(1, len(led.history) + 1))


@pytest.mark.parametrize("omega", [0.1, 0.5])
def test_many_observations_are_not_kept_twice(omega, monkeypatch):
    whole = fastemf.complete(DATA, omega, 3, **FIT)
    monkeypatch.setattr(early, "KEPT", 0)
    monkeypatch.setattr(changed, "PART", 100)
    settings = Settings(omega=omega, k=3)
    found = early_engine(engine_of(DATA, omega), settings).observations
    assert not isinstance(found.by_row, Side)
    parts = [block for _, block in found.by_col._side.blocks()]
    assert len(parts) > 5
    assert sum(part.size for part in parts) == DATA.nnz
    same_bits(whole, fastemf.complete(DATA, omega, 3, **FIT))


@pytest.mark.parametrize("omega", [0.1, 0.5])
def test_threads_and_stores_give_the_same_bits(omega, tmp_path):
    i, j = DATA.nonzero()
    fastemf.store.build((i, j, DATA.data), tmp_path / "store")
    for options in (FIT, {"reg": "auto", "intercepts": True}, {"reg": "noise"}):
        one, two, stored = (
            fastemf.complete(data, omega, 3, n_jobs=jobs, **options)
            for data, jobs in ((DATA, 1), (DATA, 2), (tmp_path / "store", 2))
        )
        same_bits(one, two)
        same_bits(one, stored)


@pytest.mark.parametrize("omega", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fit_goes_on_from_early_sweeps_and_from_later_ones(omega, dtype, tmp_path):
    R = DATA.astype(dtype)
    whole = fastemf.complete(R, omega, 2, max_iter=40, **FIT)
    for sweeps in (2, len(whole.history) - 1):
        file = tmp_path / f"{sweeps}.npz"
        fastemf.complete(R, omega, 2, max_iter=sweeps, checkpoint=file, checkpoint_every=1, **FIT)
        more = {"checkpoint": file, "resume": True}
        same_bits(whole, fastemf.complete(R, omega, 2, max_iter=40, **more, **FIT))


def test_sweeps_end_where_the_user_says_even_where_early_ones_do():
    led = fastemf.complete(DATA, 0.1, 2, reg=0.5, tol=1e-3, max_iter=100)
    for sweeps in range(1, len(led.history) + 1):
        stopped, limited = (
            fastemf.complete(DATA, 0.1, 2, reg=0.5, tol=1e-3, **more)
            for more in (
                {"callback": lambda record, last=sweeps: record.sweep == last},
                {"max_iter": sweeps},
            )
        )
        for fit in (stopped, limited):
            assert len(fit.history) == sweeps
            again = engine_of(DATA, 0.1).solve(0, fit.X, fit.Y, Ridge(fit.reg, 0.0)).factor
            np.testing.assert_allclose(again, fit.X, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("reg", [0, "noise", "auto"])
def test_what_has_no_noise_is_recovered_to_the_rounding_of_its_type(reg):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((60, 3)) @ rng.standard_normal((50, 3)).T
    R = np.where(rng.random(whole.shape) < 0.6, whole, np.nan)
    fit = fastemf.complete(R, 0.3, 3, reg=reg, tol=1e-12, max_iter=1000)
    assert np.abs(fit.to_dense() - whole).max() < 1e-9


def test_levels_and_fits_that_go_on_from_others_have_them_too():
    levels = fastemf.complete_levels(DATA, (0.1, 0.5, 0.9), 2, intercepts=True)
    assert [fit.X.dtype for fit in levels.fits] == [np.float64] * 3
    more = fastemf.complete(DATA, 0.3, 2, intercepts=True, init=levels.fits[0])
    assert more.X.dtype == np.float64


@pytest.mark.parametrize("omega", [0.02, 0.98])
def test_levels_alone_are_solved(omega):
    R = 1.0 + (np.random.default_rng(0).random((30, 20)) < 0.1)
    engine = CompletionEngine(observe(R), omega, mu=float(R.mean()), n_threads=1)
    nothing, ridge = engine.no_factors(), Ridge(0.0, 0.1)
    one, other = (
        which.solve(1, nothing[1], nothing[0], ridge).factor
        for which in (engine, engine.stepping())
    )
    np.testing.assert_array_equal(one, other)


def test_a_value_that_float32_has_not_is_left_in_float64():
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((30, 20)) < 0.5)
    values, weights = rng.random(i.size), np.ones(i.size)
    values[0], weights[0] = 1e45, 1e-100
    engine = CompletionEngine(observe((i, j, values), weights=weights), 0.5, mu=None, n_threads=1)
    assert early_engine(engine, Settings(omega=0.5, k=2)) is None


def test_what_early_sweeps_reach_is_solved_in_the_type_of_the_data():
    fit = fastemf.complete(DATA, 0.1, 2, reg=0.5, max_iter=2)
    assert fit.X.dtype == np.float64
    # X is the best there is for Y: a solve from there does not move it.
    engine = engine_of(DATA, 0.1)
    again = engine.solve(0, fit.X, fit.Y, Ridge(fit.reg, 0.0)).factor
    np.testing.assert_allclose(again, fit.X, rtol=1e-9, atol=1e-12)


def test_a_callback_ends_early_sweeps_too():
    fit = fastemf.complete(DATA, 0.1, 2, reg=0.5, callback=lambda record: record.sweep == 2)
    assert len(fit.history) == 2
    assert fit.X.dtype == np.float64


@pytest.mark.parametrize("omega", [0.02, 0.3, 0.9])
def test_one_step_lowers_the_loss_of_every_row(omega):
    engine = engine_of(DATA, omega)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 2)), rng.standard_normal((50, 2))
    ridge = Ridge(0.1, 0.0)
    stepped, solved = (which.solve(0, X, Y, ridge).factor for which in (engine.stepping(), engine))

    def each(at):
        dense, known = DATA.toarray(), DATA.toarray() != 0
        r = np.where(known, dense - at @ Y.T, 0.0)
        loss = (np.where(r >= 0, omega, 1 - omega) * r**2).sum(axis=1)
        return loss + 0.1 * known.sum(axis=1) * (at**2).sum(axis=1)

    assert (each(solved) <= each(stepped) * (1 + 1e-12)).all()
    assert (each(stepped) <= each(X)).all()
    assert each(stepped).sum() < 0.9 * each(X).sum()


@pytest.mark.parametrize(
    ("change", "omega", "expected"),
    [
        (lambda R: R, 0.5, np.float32),
        (lambda R: R.astype(np.float32), 0.5, None),
        (lambda R: R.astype(np.float32), 0.1, np.float32),
        (lambda R: R * 1e-20, 0.5, None),
        (lambda R: R * 1e20, 0.5, None),
        (lambda R: R * 1e20, 0.1, np.float64),
    ],
)
def test_where_they_are_used(change, omega, expected):
    settings = Settings(omega=omega, k=2)
    found = early_engine(engine_of(change(DATA), omega), settings)
    assert (found and found.dtype) == expected


def test_values_that_hardly_differ_are_not_rounded():
    R = DATA.copy()
    R.data = 1e6 + R.data
    engine = CompletionEngine(observe(R), 0.5, mu=1e6, n_threads=1)
    assert early_engine(engine, Settings(omega=0.5, k=2, intercepts=True)) is None


def test_nor_fits_that_are_to_be_exact_or_to_begin_elsewhere():
    start = (np.ones((60, 2)), np.ones((50, 2)))
    for more in ({"solver": "exact"}, {"init": start}):
        settings = Settings(omega=0.1, k=2, **more)
        assert early_engine(engine_of(DATA, 0.1), settings) is None


def test_nor_small_problems(monkeypatch):
    monkeypatch.undo()
    assert early_engine(engine_of(DATA, 0.1), Settings(omega=0.1, k=2)) is None


@pytest.mark.parametrize("omega", [0.1, 0.9])
def test_a_tuned_fit_is_as_good(omega, without):
    led, plain = (fit(DATA, omega, 4, intercepts=True) for fit in (fastemf.complete, without))
    assert led.tuning.loss == pytest.approx(plain.tuning.loss, rel=0.02)
