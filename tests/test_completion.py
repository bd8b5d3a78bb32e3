"""`complete` against the oracle, its identities and its certificate."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
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


def certificate(fit, R):
    """Largest gradient over the rows of X, relative to the parts that cancel in it."""
    seen = ~np.isnan(R)
    mu = fit.mu
    a = np.zeros(len(fit.X)) if fit.row_intercepts is None else fit.row_intercepts
    c = np.zeros(len(fit.Y)) if fit.col_intercepts is None else fit.col_intercepts
    worst = 0.0
    for i in range(len(R)):
        j = seen[i]
        if not j.any():
            continue
        B = fit.Y[j]
        b = R[i, j] - mu - a[i] - c[j]
        ridge = fit.reg * (j.sum() if fit.reg_scaling == "count" else 1)
        g = oracle.row_gradient(B, b, fit.X[i], fit.omega, ridge)
        parts = np.abs(R[i, j]) + abs(mu) + np.abs(a[i]) + np.abs(c[j])
        scale = np.abs(B).T @ (parts + np.abs(B) @ np.abs(fit.X[i]))
        scale += ridge * np.sqrt(np.nanmax(np.abs(R)))  # a factor is about the root of a value
        worst = max(worst, np.linalg.norm(g) / (np.linalg.norm(scale) + 1e-300))
    return worst


@given(matrices(), levels, st.sampled_from([0, 0.01, "auto"]), st.booleans())
def test_last_side_is_stationary(R, omega, reg, intercepts):
    fit = fastemf.complete(R, omega, 2, reg=reg, intercepts=intercepts, **SHORT)
    assert certificate(fit, R) <= 1e-8


@given(matrices(), levels, st.sampled_from([0, 0.01, "auto"]), st.booleans())
def test_objective_never_rises_over_an_accepted_sweep(R, omega, reg, intercepts):
    fit = fastemf.complete(R, omega, 2, reg=reg, intercepts=intercepts, max_iter=15, n_jobs=1)
    for record in fit.history:
        assert not record.accepted or record.relative_decrease >= -1e-12 or record.loss < 1e-24
        assert record.objective == pytest.approx(record.loss + record.penalty, rel=1e-12)
    assert all(np.isfinite(part).all() for part in (fit.X, fit.Y))
    accepted = [record for record in fit.history if record.accepted]
    if accepted:  # a start that is exact to rounding is not improved on
        assert fit.objective(R) == pytest.approx(accepted[-1].objective, rel=1e-9, abs=1e-20)
    else:
        assert fit.objective(R) <= min(record.objective for record in fit.history)


@given(matrices(full=True), levels, st.sampled_from(["count", "plain"]))
def test_plain_alternation_is_the_oracles(R, omega, scaling):
    assume(not np.isnan(R).all(axis=0).any() and not np.isnan(R).all(axis=1).any())
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((len(R), 2)), rng.standard_normal((R.shape[1], 2))
    fit = fastemf.complete(
        R, omega, 2, reg=0.1, reg_scaling=scaling, init=(X, Y), momentum=False, tol=0, max_iter=2
    )
    X, Y = oracle.alternate(R, X, Y, omega, 0.1, sweeps=2, scaling=scaling)
    expected = oracle.objective(R, X, Y, omega, 0.1, scaling)
    assert fit.history[-1].objective == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(fit.to_dense(), X @ Y.T, atol=1e-4 * np.nanmax(np.abs(R)))


@given(matrices(full=True), seeds)
def test_half_level_is_ridge_als(R, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((len(R), 2)), rng.standard_normal((R.shape[1], 2))
    lam = 0.05
    fit = fastemf.complete(
        R, 0.5, 2, reg=lam, reg_scaling="plain", init=(X, Y), momentum=False, tol=0, max_iter=3
    )
    seen = ~np.isnan(R)
    for _ in range(3):
        for target, this, other, mask in ((R.T, Y, X, seen.T), (R, X, Y, seen)):
            for i in range(len(this)):
                B, b = other[mask[i]], target[i, mask[i]]
                this[i] = np.linalg.solve(B.T @ B + 2 * lam * np.eye(2), B.T @ b)
    np.testing.assert_allclose(fit.to_dense(), X @ Y.T, rtol=1e-8, atol=1e-8)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0.1]))
def test_negating_the_data_mirrors_the_level(R, omega, intercepts, reg):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((len(R), 2)), rng.standard_normal((R.shape[1], 2))
    settings = {"intercepts": intercepts, "reg": reg, "max_iter": 2, "n_jobs": 1}
    fit = fastemf.complete(R, omega, 2, init=(X, Y), **settings)
    mirror = fastemf.complete(-R, 1 - omega, 2, init=(-X, Y), **settings)
    for one, other in zip(fit.history, mirror.history, strict=True):
        assert other.objective == pytest.approx(one.objective, rel=1e-8)
        assert other.reg == pytest.approx(one.reg, rel=1e-8)
    np.testing.assert_allclose(mirror.to_dense(), -fit.to_dense(), rtol=1e-5, atol=1e-5)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0]))
def test_scaling_by_a_power_of_two_scales_the_fit(R, omega, intercepts, reg):
    fit = fastemf.complete(R, omega, 2, intercepts=intercepts, reg=reg, **SHORT)
    scaled = fastemf.complete(1024 * R, omega, 2, intercepts=intercepts, reg=reg, **SHORT)
    np.testing.assert_allclose(scaled.to_dense(), 1024 * fit.to_dense(), rtol=1e-12)
    assert scaled.n_iter == fit.n_iter


@pytest.mark.compiled
@pytest.mark.parametrize("intercepts", [False, True])
def test_scaling_by_any_number_scales_the_objective(intercepts):
    R = fastemf.datasets.make_skewed(120, 100, rank=3, density=0.3, random_state=1).R
    fit = fastemf.complete(R, 0.1, 3, intercepts=intercepts)
    scaled = fastemf.complete(3.7 * R, 0.1, 3, intercepts=intercepts)
    ratio = scaled.history[-1].objective / 3.7**2 / fit.history[-1].objective
    assert ratio == pytest.approx(1, abs=1e-5)


@given(matrices(), levels, seeds)
def test_permuting_rows_and_columns_permutes_the_fit(R, omega, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(len(R)), rng.permutation(R.shape[1])
    X, Y = rng.standard_normal((len(R), 2)), rng.standard_normal((R.shape[1], 2))
    settings = {"reg": 0.1, "momentum": False, "max_iter": 2, "n_jobs": 1}
    fit = fastemf.complete(R, omega, 2, init=(X, Y), **settings)
    mixed = fastemf.complete(R[p][:, q], omega, 2, init=(X[p], Y[q]), **settings)
    assert mixed.history[-1].objective == pytest.approx(fit.history[-1].objective, rel=1e-9)
    np.testing.assert_allclose(mixed.to_dense(), fit.to_dense()[p][:, q], rtol=1e-6, atol=1e-6)


@given(matrices(), levels, st.booleans(), st.sampled_from(["auto", 0.1]))
def test_weight_two_is_the_observation_twice(R, omega, intercepts, reg):
    rows, cols = np.nonzero(~np.isnan(R))
    b = R[rows, cols]
    v = 1.0 + (np.arange(b.size) % 2)
    twice = np.repeat(np.arange(b.size), v.astype(int))
    settings = {"reg": reg, "intercepts": intercepts, "shape": R.shape, **SHORT}
    weighted = fastemf.complete((rows, cols, b), omega, 2, weights=v, **settings)
    repeated = fastemf.complete((rows[twice], cols[twice], b[twice]), omega, 2, **settings)
    assert weighted.history[0].objective == pytest.approx(repeated.history[0].objective, rel=1e-8)
    assert weighted.history[0].reg == pytest.approx(repeated.history[0].reg, rel=1e-10)
    assert weighted.mu == pytest.approx(repeated.mu, rel=1e-12)


@given(matrices(), levels)
def test_unregularised_residuals_are_orthogonal_to_the_fit(R, omega):
    fit = fastemf.complete(R, omega, 2, reg=0, anneal=False, **SHORT)
    seen = ~np.isnan(R)
    fitted = fit.to_dense()[seen]
    r = R[seen] - fitted
    w = np.where(r >= 0, omega, 1 - omega)
    # relative to the parts that cancel, at the size residuals have before rounding
    parts = np.sum(w * (np.abs(R[seen]) + np.abs(fitted)) * np.abs(fitted))
    assert abs(np.sum(w * r * fitted)) <= 1e-11 * parts


def test_every_input_form_gives_the_same_bits():
    data = fastemf.datasets.make_skewed(12, 9, rank=2, density=0.6, random_state=3).R
    coo = data.tocoo()
    dense = np.full(data.shape, np.nan)
    dense[coo.row, coo.col] = coo.data
    forms = [
        data, sp.csr_matrix(data), coo, dense, np.ma.masked_invalid(dense),
        (coo.row, coo.col, coo.data),
    ]  # fmt: skip
    fits = [fastemf.complete(R, 0.1, 2, max_iter=3, shape=(12, 9)) for R in forms]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.X, fits[0].X)
        np.testing.assert_array_equal(fit.Y, fits[0].Y)


def test_rank_equal_to_the_smaller_dimension():
    R = np.random.default_rng(0).uniform(1, 2, (4, 7))
    for matrix in (R, R.T):
        fit = fastemf.complete(matrix, 0.3, 4, reg=0)
        np.testing.assert_allclose(fit.to_dense(), matrix, rtol=1e-8)


@pytest.mark.parametrize("intercepts", [False, True])
def test_unseen_rows_and_columns(intercepts):
    R = np.array([[1.0, 2.0, np.nan], [np.nan] * 3, [2.0, 3.0, np.nan], [2.5, 4.0, np.nan]])
    fit = fastemf.complete(R, 0.3, 1, intercepts=intercepts)
    np.testing.assert_array_equal(fit.unseen_rows, [1])
    np.testing.assert_array_equal(fit.unseen_cols, [2])
    assert not fit.X[1].any()
    if intercepts:
        assert fit.predict(1, 0) == pytest.approx(fit.mu + fit.col_intercepts[0])
        assert fit.predict(1, 2) == pytest.approx(fit.mu)
        assert fit.mu == pytest.approx(expectile(R[~np.isnan(R)], 0.3))
    else:
        assert fit.predict(1, 0) == 0
    np.testing.assert_array_equal(
        np.isnan(fit.predict([0, 1, 0], [0, 0, 2], unseen="nan")), [False, True, True]
    )


def test_all_zero_data_fit_zero():
    with pytest.warns(UserWarning, match="observations are zero"):
        fit = fastemf.complete(np.zeros((4, 3)), 0.2, 2)
    assert fit.converged
    assert not fit.to_dense().any()


def test_orthogonalising_changes_nothing_but_the_basis():
    R = fastemf.datasets.make_skewed(14, 12, rank=2, density=0.8, random_state=2).R
    settings = {"reg": 0, "max_iter": 5, "tol": 0}
    plain = fastemf.complete(R, 0.2, 2, momentum=False, anneal=False, **settings)
    basis = fastemf.complete(R, 0.2, 2, orthogonalize=True, **settings)
    np.testing.assert_allclose(basis.Y.T @ basis.Y, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(basis.to_dense(), plain.to_dense(), rtol=1e-9)
    for one, other in zip(plain.history, basis.history, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-10)


def test_callback_sees_every_record_and_may_stop():
    R = fastemf.datasets.make_skewed(14, 12, rank=2, density=0.8, random_state=2).R
    seen = []

    def stop_at_two(record):
        seen.append(record)
        return record.sweep == 2

    fit = fastemf.complete(R, 0.2, 2, callback=stop_at_two, tol=0)
    assert fit.history == tuple(seen)
    assert fit.n_iter == 2
    assert not fit.converged


def test_progress_goes_to_standard_error(capsys):
    R = fastemf.datasets.make_skewed(14, 12, rank=2, density=0.8, random_state=2).R
    fastemf.complete(R, 0.2, 2, progress=True, max_iter=3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "sweep" in err


def test_same_seed_same_bits_other_seed_same_answer():
    R = fastemf.datasets.make_skewed(30, 25, rank=2, density=0.5, random_state=2).R
    one, two = (fastemf.complete(R, 0.2, 2, random_state=7, max_iter=4) for _ in range(2))
    np.testing.assert_array_equal(one.X, two.X)
    generator = fastemf.complete(R, 0.2, 2, random_state=np.random.default_rng(7), max_iter=4)
    np.testing.assert_array_equal(one.X, generator.X)
    other = fastemf.complete(R, 0.2, 2, random_state=8, max_iter=4)
    assert other.history[-1].objective == pytest.approx(one.history[-1].objective, rel=1e-3)


@pytest.mark.parametrize("init", ["random", "pair"])
def test_other_starts(init):
    R = fastemf.datasets.make_skewed(30, 25, rank=2, density=0.6, noise=0, random_state=2).R
    rng = np.random.default_rng(0)
    start = (rng.uniform(size=(30, 2)), rng.uniform(size=(25, 2))) if init == "pair" else init
    fit = fastemf.complete(R, 0.3, 2, reg=0, init=start)
    assert fit.objective(R) < 1e-20 * np.sum(R.data**2)


def test_warm_start_stays_and_grows():
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


def test_warm_start_reaches_cells_new_in_both_directions():
    old = np.outer([1.0, 2.0], [3.0, 4.0])
    R = np.full((4, 4), np.nan)
    R[:2, :2] = old
    R[2:, 2:] = 5 * old
    fit = fastemf.complete(R, 0.5, 2, reg=0, init=fastemf.complete(old, 0.5, 2, reg=0))
    np.testing.assert_allclose(fit.to_dense()[2:, 2:], 5 * old, rtol=1e-6)


@pytest.mark.compiled
def test_conjugate_gradients_reach_what_exact_solves_reach():
    R = fastemf.datasets.make_skewed(90, 80, rank=5, density=0.9, random_state=1).R
    fits = {
        solver: fastemf.complete(R, 0.2, 66, reg=0.5, solver=solver, tol=1e-7, max_iter=300)
        for solver in ("exact", "cg", "auto")
    }
    exact, cg, auto = (fit.objective(R) for fit in fits.values())
    assert cg == pytest.approx(exact, rel=1e-3)
    np.testing.assert_array_equal(fits["auto"].X, fits["cg"].X)  # at this rank
    objectives = [record.objective for record in fits["cg"].history if record.accepted]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    small = {solver: fastemf.complete(R, 0.2, 3, solver=solver) for solver in ("exact", "auto")}
    np.testing.assert_array_equal(small["exact"].X, small["auto"].X)
    assert auto == cg


def test_conjugate_gradients_give_the_same_bits_on_any_number_of_threads():
    R = fastemf.datasets.make_skewed(90, 80, rank=5, density=0.5, random_state=1).R
    one, two = (fastemf.complete(R, 0.2, 5, solver="cg", n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.Y, two.Y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "newton"}, ["solver", "exact", "cg", "newton"]),
        ({"solver": "cg", "reg": 0}, ["solver", "ridge", "reg=0"]),
    ],
)
def test_solvers_are_checked(options, words):
    with pytest.raises(ValueError, match="solver") as caught:
        fastemf.complete(np.ones((4, 4)), 0.5, 1, **options)
    assert all(word in str(caught.value) for word in words)
