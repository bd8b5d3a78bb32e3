"""`complete`: comparison with an oracle, identities and optimality certificates."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import levels, matrices, seeds

import fastemf
from fastemf.loss import expectile

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*have no observations"),
    pytest.mark.filterwarnings("ignore:.*fewer than k"),
]
SHORT = {"max_iter": 6, "n_jobs": 1}


def random_factors(R, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((len(R), 2)), rng.standard_normal((R.shape[1], 2))


def certificate(fit, R):
    """Largest gradient over the rows of X, relative to the parts that cancel in it."""
    seen, mu = ~np.isnan(R), fit.mu
    a = np.zeros(len(fit.X)) if fit.row_intercepts is None else fit.row_intercepts
    c = np.zeros(len(fit.Y)) if fit.col_intercepts is None else fit.col_intercepts
    worst = 0.0
    for i in np.flatnonzero(seen.any(axis=1)):
        j = seen[i]
        B, b = fit.Y[j], R[i, j] - mu - a[i] - c[j]
        ridge = fit.reg * (j.sum() if fit.reg_scaling == "count" else 1)
        g = oracle.row_gradient(B, b, fit.X[i], fit.omega, ridge)
        parts = np.abs(R[i, j]) + abs(mu) + np.abs(a[i]) + np.abs(c[j])
        scale = np.abs(B).T @ (parts + np.abs(B) @ np.abs(fit.X[i]))
        scale += ridge * np.sqrt(np.nanmax(np.abs(R)))  # a factor is about the root of a value
        worst = max(worst, np.linalg.norm(g) / (np.linalg.norm(scale) + 1e-300))
    return worst


@given(
    matrices(), levels, st.sampled_from([0, 0.01, "auto"]), st.booleans(), st.sampled_from([6, 15])
)
def test_the_last_side_is_stationary_and_no_sweep_increases_the_objective(
    R, omega, reg, intercepts, max_iter
):
    settings = {"reg": reg, "intercepts": intercepts, "max_iter": max_iter, "n_jobs": 1}
    fit = fastemf.complete(R, omega, 2, **settings)
    assert certificate(fit, R) <= 1e-8
    for record in fit.history:
        assert not record.accepted or record.relative_decrease >= -1e-12 or record.loss < 1e-24
        assert record.objective == pytest.approx(record.loss + record.penalty, rel=1e-12)
    assert all(np.isfinite(part).all() for part in (fit.X, fit.Y))
    if accepted := [
        record for record in fit.history if record.accepted
    ]:  # a start that is exact to rounding is not improved on
        assert fit.objective(R) == pytest.approx(accepted[-1].objective, rel=1e-9, abs=1e-20)
    else:
        assert fit.objective(R) <= min(record.objective for record in fit.history)


@given(matrices(full=True), levels, st.sampled_from(["count", "plain"]))
def test_plain_alternation_equals_the_oracle(R, omega, scaling):
    assume(not np.isnan(R).all(axis=0).any() and not np.isnan(R).all(axis=1).any())
    X, Y = random_factors(R)
    solver = fastemf.Solver(momentum=False, reg_scaling=scaling)
    fit = fastemf.complete(R, omega, 2, reg=0.1, solver=solver, init=(X, Y), tol=0, max_iter=2)
    X, Y = oracle.alternate(R, X, Y, omega, 0.1, sweeps=2, scaling=scaling)
    expected = oracle.objective(R, X, Y, omega, 0.1, scaling)
    assert fit.history[-1].objective == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(fit.to_dense(), X @ Y.T, atol=1e-4 * np.nanmax(np.abs(R)))


@given(matrices(full=True), seeds)
def test_level_one_half_is_ridge_als(R, seed):
    X, Y = random_factors(R, seed)
    lam = 0.05
    solver = fastemf.Solver(momentum=False, reg_scaling="plain")
    fit = fastemf.complete(R, 0.5, 2, reg=lam, solver=solver, init=(X, Y), tol=0, max_iter=3)
    seen = ~np.isnan(R)
    for _ in range(3):
        for target, this, other, mask in ((R.T, Y, X, seen.T), (R, X, Y, seen)):
            for i in range(len(this)):
                B, b = other[mask[i]], target[i, mask[i]]
                this[i] = np.linalg.solve(B.T @ B + 2 * lam * np.eye(2), B.T @ b)
    np.testing.assert_allclose(fit.to_dense(), X @ Y.T, rtol=1e-8, atol=1e-8)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0.1]))
def test_negating_the_data_mirrors_the_level(R, omega, intercepts, reg):
    X, Y = random_factors(R)
    settings = {"intercepts": intercepts, "reg": reg, "max_iter": 2, "n_jobs": 1}
    fit = fastemf.complete(R, omega, 2, init=(X, Y), **settings)
    mirror = fastemf.complete(-R, 1 - omega, 2, init=(-X, Y), **settings)
    for one, other in zip(fit.history, mirror.history, strict=True):
        assert other.objective == pytest.approx(one.objective, rel=1e-8)
        assert other.reg == pytest.approx(one.reg, rel=1e-8)
    np.testing.assert_allclose(mirror.to_dense(), -fit.to_dense(), rtol=1e-5, atol=1e-5)


@given(matrices(), levels, seeds)
def test_permuting_rows_and_columns_permutes_the_fit(R, omega, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(len(R)), rng.permutation(R.shape[1])
    X, Y = random_factors(R, rng)
    settings = {"reg": 0.1, "solver": fastemf.Solver(momentum=False), "max_iter": 2, "n_jobs": 1}
    fit = fastemf.complete(R, omega, 2, init=(X, Y), **settings)
    mixed = fastemf.complete(R[p][:, q], omega, 2, init=(X[p], Y[q]), **settings)
    assert mixed.history[-1].objective == pytest.approx(fit.history[-1].objective, rel=1e-9)
    np.testing.assert_allclose(mixed.to_dense(), fit.to_dense()[p][:, q], rtol=1e-6, atol=1e-6)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0.1]))
def test_a_weight_of_two_equals_repeating_the_observation(R, omega, intercepts, reg):
    rows, cols = np.nonzero(~np.isnan(R))
    data, v = (rows, cols, R[rows, cols]), 1 + np.arange(rows.size) % 2
    settings = {"reg": reg, "intercepts": intercepts, "shape": R.shape, **SHORT}
    weighted = fastemf.complete(data, omega, 2, weights=v.astype(float), **settings)
    repeated = fastemf.complete(tuple(part.repeat(v) for part in data), omega, 2, **settings)
    first, other = weighted.history[0], repeated.history[0]
    assert first.objective == pytest.approx(other.objective, rel=1e-8)
    assert first.reg == pytest.approx(other.reg, rel=1e-10)
    assert weighted.mu == pytest.approx(repeated.mu, rel=1e-12)


@given(matrices(), levels)
def test_unregularised_residuals_are_orthogonal_to_the_fit(R, omega):
    fit = fastemf.complete(R, omega, 2, reg=0, solver=fastemf.Solver(anneal=False), **SHORT)
    seen = ~np.isnan(R)
    fitted = fit.to_dense()[seen]
    r = R[seen] - fitted
    w = np.where(r >= 0, omega, 1 - omega)
    # relative to the parts that cancel, at the size residuals have before rounding
    parts = np.sum(w * (np.abs(R[seen]) + np.abs(fitted)) * np.abs(fitted))
    assert abs(np.sum(w * r * fitted)) <= 1e-11 * parts


def test_rank_equal_to_the_smaller_dimension():
    R = np.random.default_rng(0).uniform(1, 2, (4, 7))
    for matrix in (R, R.T):
        fit = fastemf.complete(matrix, 0.3, 4, reg=0)
        np.testing.assert_allclose(fit.to_dense(), matrix, rtol=1e-8)


@pytest.mark.parametrize("intercepts", [False, True])
def test_unseen_rows_and_columns(intercepts):
    R = np.array([[1.0, 2.0, np.nan], [np.nan] * 3, [2.0, 3.0, np.nan], [2.5, 4.0, np.nan]])
    fit = fastemf.complete(R, 0.3, 1, intercepts=intercepts)
    assert (fit.unseen_rows.tolist(), fit.unseen_cols.tolist()) == ([1], [2])
    assert not fit.X[1].any()
    if intercepts:
        assert fit.predict(1, 0) == pytest.approx(fit.mu + fit.col_intercepts[0])
        assert fit.predict(1, 2) == pytest.approx(fit.mu)
        assert fit.mu == pytest.approx(expectile(R[~np.isnan(R)], 0.3))
    else:
        assert fit.predict(1, 0) == 0
    found = fit.predict([0, 1, 0], [0, 0, 2], unseen="nan")
    assert np.isnan(found).tolist() == [False, True, True]


SMALL = fastemf.datasets.make_skewed(14, 12, rank=2, density=0.8, random_state=2).R


def test_orthogonalizing_only_changes_the_basis():
    plain, basis = (
        fastemf.complete(SMALL, 0.2, 2, reg=0, max_iter=5, tol=0, solver=fastemf.Solver(**settings))
        for settings in ({"momentum": False, "anneal": False}, {"orthogonalize": True})
    )
    np.testing.assert_allclose(basis.Y.T @ basis.Y, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(basis.to_dense(), plain.to_dense(), rtol=1e-9)
    for one, other in zip(plain.history, basis.history, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-10)


def test_a_callback_receives_every_record_and_can_stop_the_fit(capsys):
    seen = []

    def stop_at_two(record):
        seen.append(record)
        return record.sweep == 2

    fit = fastemf.complete(SMALL, 0.2, 2, callback=stop_at_two, tol=0, progress=True)
    assert fit.history == tuple(seen)
    assert fit.n_iter == 2
    assert not fit.converged
    out, err = capsys.readouterr()
    assert out == ""
    assert "sweep" in err  # the progress bar


def test_the_same_seed_is_bitwise_identical():
    R = fastemf.datasets.make_skewed(30, 25, rank=2, density=0.5, random_state=2).R
    one, two, generator, other = (
        fastemf.complete(R, 0.2, 2, random_state=seed, max_iter=4)
        for seed in (7, 7, np.random.default_rng(7), 8)
    )
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.X, generator.X)
    assert other.history[-1].objective == pytest.approx(one.history[-1].objective, rel=1e-3)


@pytest.mark.parametrize("init", ["random", "pair"])
def test_other_starts(init):
    R = fastemf.datasets.make_skewed(30, 25, rank=2, density=0.6, noise=0, random_state=2).R
    rng = np.random.default_rng(0)
    start = (rng.uniform(size=(30, 2)), rng.uniform(size=(25, 2))) if init == "pair" else init
    fit = fastemf.complete(R, 0.3, 2, reg=0, init=start)
    assert fit.objective(R) < 1e-20 * np.sum(R.data**2)


def test_a_warm_start_converges_quickly_and_extends():
    R = fastemf.datasets.make_skewed(40, 30, rank=2, density=0.6, random_state=2).R
    for intercepts in (False, True):
        settings = {"intercepts": intercepts, "reg": "noise"}
        small = fastemf.complete(R[:30, :25], 0.2, 2, **settings)
        again = fastemf.complete(R[:30, :25], 0.2, 2, init=small, **settings)
        assert again.n_iter <= 5
        grown = fastemf.complete(R, 0.2, 2, init=small, **settings)
        fresh = fastemf.complete(R, 0.2, 2, **settings)
        assert grown.shape == (40, 30)
        assert grown.history[-1].objective == pytest.approx(fresh.history[-1].objective, rel=0.03)


def test_a_warm_start_fits_cells_of_new_rows_and_columns():
    old, missing = np.outer([1.0, 2.0], [3.0, 4.0]), np.full((2, 2), np.nan)
    R = np.block([[old, missing], [missing, 5 * old]])
    fit = fastemf.complete(R, 0.5, 2, reg=0, init=fastemf.complete(old, 0.5, 2, reg=0))
    np.testing.assert_allclose(fit.to_dense()[2:, 2:], 5 * old, rtol=1e-6)


@pytest.mark.compiled
def test_conjugate_gradients_reach_the_objective_of_exact_solves():
    R = fastemf.datasets.make_skewed(90, 80, rank=5, density=0.9, random_state=1).R
    fits = {
        solver: fastemf.complete(R, 0.2, 66, reg=0.5, solver=solver, tol=1e-7, max_iter=300)
        for solver in ("exact", "cg", "auto")
    }
    assert fits["cg"].objective(R) == pytest.approx(fits["exact"].objective(R), rel=1e-3)
    np.testing.assert_array_equal(fits["auto"].X, fits["cg"].X)  # at this rank
    objectives = [record.objective for record in fits["cg"].history if record.accepted]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    small = {solver: fastemf.complete(R, 0.2, 3, solver=solver) for solver in ("exact", "auto")}
    np.testing.assert_array_equal(small["exact"].X, small["auto"].X)


def test_conjugate_gradients_are_bitwise_identical_for_any_number_of_threads():
    R = fastemf.datasets.make_skewed(90, 80, rank=5, density=0.5, random_state=1).R
    one, two = (fastemf.complete(R, 0.2, 5, solver="cg", n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.Y, two.Y)
