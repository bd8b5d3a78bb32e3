"""Warm-up sweeps: the result is that of exact sweeps in the dtype of the data."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import same_bits

import fastemf
from fastemf.solver import warm_up
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.settings import Settings
from fastemf.solver.warm_up import warm_up_engine
from fastemf.sources import mapped
from fastemf.sources.memory import observe
from fastemf.sources.source import Side

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning"),
    pytest.mark.compiled,
]

DATA = fastemf.datasets.make_skewed(60, 50, rank=3, density=0.4, random_state=0).R
FIT = {"reg": 0.5, "intercepts": True}
RIDGES = ({"reg": 0.5}, {"reg": 3.0, "solver": fastemf.Solver(reg_scaling="plain")})


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Use warm-up sweeps for small data too."""
    monkeypatch.setattr(warm_up, "WORK", 0.0)


def without(*args, **options):
    """Fit without warm-up sweeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_up, "WORK", np.inf)
        return fastemf.complete(*args, **options)


def engine_of(R, omega, mu=None):
    return CompletionEngine(observe(R), omega, mu=mu, n_threads=1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("ridge", RIDGES, ids=str)
def test_the_result_is_that_of_exact_sweeps(omega, ridge, dtype):
    R, exact = DATA.astype(dtype), dtype == np.float64
    options = ridge | {"tol": 1e-12 if exact else 1e-6, "max_iter": 3000, "intercepts": True}
    warm, plain = (fit(R, omega, 2, **options) for fit in (fastemf.complete, without))
    assert warm.converged
    assert plain.converged
    assert warm.X.dtype == plain.X.dtype == dtype
    rtol = 1e-7 if exact else 1e-3
    np.testing.assert_allclose(warm.history[-1].objective, plain.history[-1].objective, rtol=rtol)
    if exact:
        np.testing.assert_allclose(warm.to_dense(), plain.to_dense(), rtol=2e-3, atol=1e-3)
        assert warm.history[-1].gradient_norm < 1e-4 * warm.history[0].gradient_norm
    rises = [
        after.objective / before.objective
        for before, after in zip(warm.history, warm.history[1:], strict=False)
        if after.accepted and before.reg == after.reg
    ]
    assert max(rises) < 1 + 1e-6  # where one type follows the other
    assert [record.sweep for record in warm.history] == list(range(1, len(warm.history) + 1))


@pytest.mark.parametrize("omega", [0.1, 0.5])
def test_many_observations_are_not_kept_twice(omega, monkeypatch):
    whole = fastemf.complete(DATA, omega, 3, **FIT)
    monkeypatch.setattr(warm_up, "KEPT", 0)
    monkeypatch.setattr(mapped, "PART", 100)
    settings = Settings(omega=omega, k=3)
    found = warm_up_engine(engine_of(DATA, omega), settings).observations
    assert not isinstance(found.by_row, Side)
    parts = [block for _, block in found.by_col._side.blocks()]
    assert len(parts) > 5
    assert sum(part.size for part in parts) == DATA.nnz
    same_bits(whole, fastemf.complete(DATA, omega, 3, **FIT))


@pytest.mark.thorough
@pytest.mark.parametrize("omega", [0.1, 0.5])
def test_threads_and_stores_give_the_same_bits(omega, tmp_path):
    i, j = DATA.nonzero()
    fastemf.store.build((i, j, DATA.data), tmp_path / "store")
    for options in (FIT, {"reg": "auto", "intercepts": True}, {"reg": "noise"}):
        one = fastemf.complete(DATA, omega, 3, n_jobs=1, **options)
        for data in (DATA, tmp_path / "store"):
            same_bits(fastemf.complete(data, omega, 3, n_jobs=2, **options), one)


@pytest.mark.parametrize("omega", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fit_is_resumed_from_warm_up_sweeps_and_from_later_ones(omega, dtype, tmp_path):
    R = DATA.astype(dtype)
    whole = fastemf.complete(R, omega, 2, max_iter=40, **FIT)
    for sweeps in (2, len(whole.history) - 1):
        file = tmp_path / f"{sweeps}.npz"
        kept = {"checkpoint": fastemf.Checkpoint(file, every=1, resume=True)}
        fastemf.complete(R, omega, 2, max_iter=sweeps, **kept, **FIT)
        same_bits(whole, fastemf.complete(R, omega, 2, max_iter=40, **kept, **FIT))


def test_max_iter_and_callbacks_end_warm_up_sweeps():
    warm = fastemf.complete(DATA, 0.1, 2, reg=0.5, tol=1e-3, max_iter=100)
    for sweeps in range(1, len(warm.history) + 1):
        stop = {"callback": lambda record, last=sweeps: record.sweep == last}
        for more in (stop, {"max_iter": sweeps}):
            fit = fastemf.complete(DATA, 0.1, 2, reg=0.5, tol=1e-3, **more)
            assert len(fit.history) == sweeps
            # X minimizes the objective for Y: a solve does not move it.
            again = engine_of(DATA, 0.1).solve(0, fit.X, fit.Y, Ridge(fit.reg, 0.0)).factor
            np.testing.assert_allclose(again, fit.X, rtol=1e-7, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("reg", [0, "noise", "auto"])
def test_noiseless_data_are_recovered(reg):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((60, 3)) @ rng.standard_normal((50, 3)).T
    R = np.where(rng.random(whole.shape) < 0.6, whole, np.nan)
    fit = fastemf.complete(R, 0.3, 3, reg=reg, tol=1e-12, max_iter=1000)
    assert np.abs(fit.to_dense() - whole).max() < 1e-9


@pytest.mark.parametrize("omega", [0.02, 0.98])
def test_intercepts_only_are_solved_in_one_step(omega):
    R = 1.0 + (np.random.default_rng(0).random((30, 20)) < 0.1)
    engine = engine_of(R, omega, mu=float(R.mean()))
    nothing, ridge = engine.no_factors(), Ridge(0.0, 0.1)
    one, other = (
        which.solve(1, nothing[1], nothing[0], ridge).factor
        for which in (engine, engine.replace(max_newton=1))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("omega", [0.02, 0.3, 0.9])
def test_one_step_lowers_the_loss_of_every_row(omega):
    engine = engine_of(DATA, omega)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 2)), rng.standard_normal((50, 2))
    engines = engine.replace(max_newton=1), engine
    stepped, solved = (one.solve(0, X, Y, Ridge(0.1, 0.0)).factor for one in engines)

    def each(at):
        dense, known = DATA.toarray(), DATA.toarray() != 0
        r = np.where(known, dense - at @ Y.T, 0.0)
        loss = (np.where(r >= 0, omega, 1 - omega) * r**2).sum(axis=1)
        return loss + 0.1 * known.sum(axis=1) * (at**2).sum(axis=1)

    assert (each(solved) <= each(stepped) * (1 + 1e-12)).all()
    assert (each(stepped) <= each(X)).all()
    assert each(stepped).sum() < 0.9 * each(X).sum()


def with_outlier(R):
    """Return entries with a value that float32 cannot represent, and their weights."""
    values, weights = R.data.copy(), np.ones(R.nnz)
    values[0], weights[0] = 1e45, 1e-100
    return observe((*R.nonzero(), values), weights=weights)


START = (np.ones((60, 2)), np.ones((50, 2)))


@pytest.mark.parametrize(
    ("change", "omega", "settings", "expected"),
    [
        (lambda R: R, 0.5, {}, np.float32),
        (lambda R: R.astype(np.float32), 0.5, {}, None),
        (lambda R: R.astype(np.float32), 0.1, {}, np.float32),
        (lambda R: R * 1e-20, 0.5, {}, None),
        (lambda R: R * 1e20, 0.5, {}, None),
        (lambda R: R * 1e20, 0.1, {}, np.float64),
        (with_outlier, 0.5, {}, None),
        (lambda R: 1e6 + R.toarray(), 0.5, {"intercepts": True}, None),  # a relatively small spread
        (lambda R: R, 0.1, {"solver": fastemf.Solver(method="exact")}, None),
        (lambda R: R, 0.1, {"init": START}, None),
    ],
)
def test_where_they_are_used(change, omega, settings, expected):
    engine = engine_of(change(DATA), omega, mu=1e6 if "intercepts" in settings else None)
    found = warm_up_engine(engine, Settings(omega=omega, k=2, **settings))
    assert (found and found.dtype) == expected


@pytest.mark.parametrize("omega", [0.1, 0.9])
def test_a_tuned_fit_is_as_good(omega):
    warm, plain = (fit(DATA, omega, 4, intercepts=True) for fit in (fastemf.complete, without))
    assert warm.tuning.loss == pytest.approx(plain.tuning.loss, rel=0.02)
