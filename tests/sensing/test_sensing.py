"""`sense` against the oracle, its identities and certificates, and the bars a user can check."""

from __future__ import annotations

import tracemalloc

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator
from strategies import levels, row_problems, seeds

import fastemf
from fastemf.operators import Dense, Entries, Gaussian, Rademacher, Sparse, full
from fastemf.sensing import cost, regression
from fastemf.sensing import sense as sense_module
from fastemf.sensing import start as initialise
from fastemf.support import memory

unsettled = pytest.mark.filterwarnings("ignore::fastemf.support.warn.ConvergenceWarning")


def problem(m, n, k, ratio, seed, kind=Gaussian, noise=0.0):
    """A low-rank matrix measured `ratio` times its degrees of freedom, with skewed noise."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    A = kind(int(ratio * k * (m + n - k)), (m, n), seed)
    b = A.forward(X, Y)
    if noise:
        # As large against the measurements as it says, skewed as 0.5 χ²₃.
        b = b + noise * np.std(b) * rng.chisquare(3, b.size)
    return A, b, X @ Y.T


def error(fit, truth):
    return np.linalg.norm(fit.to_dense() - truth) / np.linalg.norm(truth)


@st.composite
def sensing_problems(draw):
    """Dense A, b, level, a start and a ridge; over- and underdetermined."""
    rng = np.random.default_rng(draw(seeds))
    m, n, k = draw(st.integers(2, 5)), draw(st.integers(2, 4)), draw(st.integers(1, 2))
    p = draw(st.integers(1, 30))
    A = rng.standard_normal((p, m, n))
    b = rng.standard_normal(p) ** 3
    return A, b, draw(levels), rng.standard_normal((m, k)), rng.standard_normal((n, k))


# --- one half step --------------------------------------------------------------------------


def solve(B, b, omega, ridge=0.0, v=None, start=None):
    return regression.solve_regression(
        regression._Held(B),
        b,
        np.ones(len(b)) if v is None else v,
        np.zeros(B.shape[1]) if start is None else start,
        omega,
        ridge,
        np.eye(1),
        1,
    )


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@given(row_problems())
def test_half_step_is_the_qps(case):
    B, b, omega, ridge, v = case
    found = solve(B, b, omega, ridge, v)
    f = oracle.row_objective(B, b, found.factor, omega, ridge, v)
    at_zero = oracle.row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
    assert f <= oracle.row_qp(B, b, omega, ridge, v) + 1e-8 * at_zero
    loss = omega * found.above + (1 - omega) * found.below
    assert loss + ridge * found.factor @ found.factor == pytest.approx(
        f, rel=1e-9, abs=1e-12 * at_zero
    )


def test_extreme_levels_are_solved_though_steps_flip_single_measurements():
    rng = np.random.default_rng(0)
    B, omega, ridge = rng.standard_normal((180, 48)), 1e-9, 1e-6
    b = B @ rng.standard_normal(48) + 0.01 * rng.standard_normal(180) ** 2
    found = solve(B, b, omega, ridge, start=rng.standard_normal(48))
    assert found.inner_iterations > 60
    r = b - B @ found.factor
    terms = np.where(r >= 0, omega, 1 - omega)[:, None] * B * r[:, None]
    left = terms.sum(axis=0) - ridge * found.factor
    assert np.abs(left).max() <= 1e-6 * np.abs(terms).sum(axis=0).max()


@given(row_problems())
def test_conjugate_gradients_end_where_the_gram_matrix_does(case):
    B, b, omega, ridge, v = case
    exact = solve(B, b, omega, ridge, v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "GRAM_BYTES", 0)
        by_cg = solve(B, b, omega, ridge, v)
    f, g = (oracle.row_objective(B, b, end.factor, omega, ridge, v) for end in (exact, by_cg))
    at_zero = oracle.row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
    assert g <= f + 1e-8 * at_zero


def test_the_cycle_of_plain_reweighting_is_escaped():
    # maths: with full steps from 0 the signs repeat with period 4.
    B = np.array([[-1, 2], [-3, -8], [-5, 0], [1, -1], [0, -5]], float)
    found = solve(B, np.array([2, 0, 3, -1, -3], float), 0.01)
    np.testing.assert_allclose(found.factor, [-0.60354149, 0.59067389], atol=1e-8)
    assert found.line_searches > 0


@given(row_problems(), seeds)
def test_undetermined_half_steps_have_minimum_norm(case, seed):
    B, b, omega, _, _ = case
    B = np.hstack([B, B[:, :1]])  # never of full rank
    start = np.random.default_rng(seed).standard_normal(B.shape[1])
    found = solve(B, b, omega, start=start)
    null = np.eye(B.shape[1]) - np.linalg.pinv(B) @ B
    assert np.abs(null @ found.factor).max() <= 1e-6 * (1 + np.abs(found.factor).max())


@pytest.mark.parametrize("limit", [regression.GRAM_BYTES, 0])
@pytest.mark.parametrize(("size", "start"), [(1e160, 0.0), (1e100, 1e100)])
def test_a_half_step_that_overflows_says_so(monkeypatch, limit, size, start):
    monkeypatch.setattr(regression, "GRAM_BYTES", limit)
    B = size * np.random.default_rng(0).standard_normal((6, 2))
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="float64"):
        solve(B, np.arange(6.0), 0.2, start=np.full(2, start))


def test_line_search_finds_the_minimum():
    rng = np.random.default_rng(3)
    for _ in range(50):
        r, s, v = rng.standard_normal(9), rng.standard_normal(9), rng.uniform(0.5, 2, 9)
        s *= np.sign(np.sum(np.where(r >= 0, 0.05, 0.95) * v * r * s))  # downhill
        t = regression._line_search(r, s, v, 0.05, 0.0, 0.0)
        grid = np.concatenate([t * np.linspace(0.9, 1.1, 201), np.linspace(0, 3, 301)])
        values = [np.sum(v * np.where(r - u * s >= 0, 0.05, 0.95) * (r - u * s) ** 2) for u in grid]
        best = np.sum(v * np.where(r - t * s >= 0, 0.05, 0.95) * (r - t * s) ** 2)
        assert best <= min(values) + 1e-12


# --- whole fits -----------------------------------------------------------------------------


@unsettled
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@given(sensing_problems(), st.sampled_from([0.01, 0.3]))
def test_plain_alternation_is_the_oracles(case, lam):
    A, b, omega, X, Y = case
    fit = fastemf.sense(
        A, b, omega, X.shape[1], reg=lam, init=(X, Y), momentum=False, tol=0, max_iter=2, n_jobs=1
    )
    X, Y = oracle.sense(A, b, X, Y, omega, lam, sweeps=2)
    r = b - oracle.measurements(A, X, Y)
    loss = np.sum(np.where(r >= 0, omega, 1 - omega) * r**2)
    expected = loss + lam * (np.sum(X**2) + np.sum(Y**2))
    assert fit.history[-1].objective == pytest.approx(expected, rel=1e-6)


@unsettled
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@given(sensing_problems(), st.sampled_from([0, 0.1]))
def test_stationary_and_descending(case, reg):
    A, b, omega, X, _ = case
    k = X.shape[1]
    fit = fastemf.sense(A, b, omega, k, reg=reg, max_iter=8, n_jobs=1)
    for record in fit.history:
        assert not record.accepted or record.relative_decrease >= -1e-9 or record.loss < 1e-18
    last = [record for record in fit.history if record.accepted][-1]
    r = b - fit.measure(A)
    loss = np.sum(np.where(r >= 0, omega, 1 - omega) * r**2)
    assert last.loss == pytest.approx(loss, rel=1e-8, abs=1e-18 * np.sum(b**2))
    D = oracle.sensing_design(A, fit.Y, 0)
    g = oracle.row_gradient(D, b, fit.X.ravel(), omega, last.reg)
    scale = np.abs(D).T @ (np.abs(b) + np.abs(D) @ np.abs(fit.X.ravel()))
    scale += reg * np.sqrt(np.abs(b).max())  # a factor is about the root of a value
    assert np.linalg.norm(g) <= 1e-7 * np.linalg.norm(scale)


@unsettled
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@given(sensing_problems())
def test_identities(case):
    A, b, omega, X, Y = case
    k = X.shape[1]
    settings = {"reg": 0.1, "momentum": False, "max_iter": 2, "tol": 0, "n_jobs": 1}

    def objective(A, b, omega, init, **more):
        return fastemf.sense(A, b, omega, k, init=init, **settings, **more).history[-1].objective

    expected = objective(A, b, omega, (X, Y))
    order = np.random.default_rng(0).permutation(len(b))
    assert objective(A[order], b[order], omega, (X, Y)) == pytest.approx(expected, rel=1e-7)
    assert objective(A, -b, 1 - omega, (-X, Y)) == pytest.approx(expected, rel=1e-7)
    by_row = A[:, ::-1]
    assert objective(by_row, b, omega, (X[::-1], Y)) == pytest.approx(expected, rel=1e-7)
    transposed = A.transpose(0, 2, 1)
    half = fastemf.sense(transposed, b, omega, k, init=(Y, X), **settings)
    assert half.shape == (A.shape[2], A.shape[1])
    twice = objective(np.concatenate([A, A]), np.concatenate([b, b]), omega, (X, Y))
    weighted = objective(A, b, omega, (X, Y), weights=np.full(len(b), 2.0))
    assert weighted == pytest.approx(twice, rel=1e-7)


@unsettled
def test_half_level_is_least_squares():
    A, b, _ = problem(5, 4, 1, 3, 1, noise=0.3)
    X, Y = np.ones((5, 1)), np.ones((4, 1))
    fit = fastemf.sense(A, b, 0.5, 1, reg=0.2, init=(X, Y), momentum=False, tol=0, max_iter=2)
    dense = A.to_dense()
    for _ in range(2):
        for side in (1, 0):
            D = oracle.sensing_design(dense, X if side else Y, side)
            new = np.linalg.solve(D.T @ D + 0.4 * np.eye(D.shape[1]), D.T @ b).reshape(-1, 1)
            X, Y = (X, new) if side else (new, Y)
    np.testing.assert_allclose(fit.to_dense(), X @ Y.T, rtol=1e-9)


def test_representations_agree():
    A, b, truth = problem(5, 4, 1, 3, 0)
    dense = A.to_dense()
    flat = dense.reshape(len(b), -1)
    found = [
        fastemf.sense(form, b, 0.2, 1, shape=(5, 4))
        for form in (A, dense, Dense(dense), sp.csr_array(flat), aslinearoperator(flat))
    ]
    for fit in found:
        assert error(fit, truth) < 1e-10
        np.testing.assert_allclose(fit.measure(A), b, atol=1e-10)


@pytest.mark.parametrize("limit", ["DESIGN_BYTES", "GRAM_BYTES"])
def test_nothing_held_is_as_good(monkeypatch, limit):
    A, b, truth = problem(4, 3, 1, 3, 2)
    expected = fastemf.sense(A, b, 0.2, 1)
    monkeypatch.setattr(regression, limit, 0)
    monkeypatch.setattr(regression, "BLOCK_BYTES", 1 << 9)
    fit = fastemf.sense(A, b, 0.2, 1)
    assert error(fit, truth) < 1e-9
    early = [record.objective for record in expected.history[:4]]
    assert [record.objective for record in fit.history[:4]] == pytest.approx(early, rel=1e-6)


def entries(seed=0):
    rng = np.random.default_rng(seed)
    truth = np.outer(rng.uniform(1, 2, 8), rng.uniform(1, 2, 7))
    rows, cols = np.divmod(rng.permutation(56)[:40], 7)
    return rows, cols, truth[rows, cols] + 0.1 * rng.chisquare(3, 40)


@unsettled
@pytest.mark.parametrize("reg", [0, 0.05])
def test_entries_are_completion(reg):
    rows, cols, b = entries()
    options = {"reg": reg, "max_iter": 20}
    expected = fastemf.complete(
        (rows, cols, b), 0.2, 2, shape=(8, 7), reg_scaling="plain", **options
    )
    fit = fastemf.sense(Entries(rows, cols, (8, 7)), b, 0.2, 2, **options)
    np.testing.assert_array_equal(fit.X, expected.X)
    np.testing.assert_array_equal(fit.Y, expected.Y)
    # and the general engine finds the same from the same start
    start = (np.ones((8, 2)) + np.eye(8, 2), np.ones((7, 2)) - np.eye(7, 2))
    options = {"reg": 0.05, "init": start, "momentum": False, "tol": 0, "max_iter": 5}
    expected = fastemf.complete(
        (rows, cols, b), 0.2, 2, shape=(8, 7), reg_scaling="plain", **options
    )
    picks = sp.csr_array((np.ones(40), (np.arange(40), rows * 7 + cols)), shape=(40, 56))
    fit = fastemf.sense(Sparse(picks, (8, 7)), b, 0.2, 2, **options)
    np.testing.assert_allclose(fit.to_dense(), expected.to_dense(), rtol=1e-7)


@unsettled
@pytest.mark.compiled
@pytest.mark.parametrize("kind", [Gaussian, Rademacher])
def test_bits_do_not_depend_on_the_threads(kind, monkeypatch):
    monkeypatch.setattr(full, "ENTRIES_PER_THREAD", 1)
    monkeypatch.setattr(regression, "PANEL", 16)  # several tasks
    monkeypatch.setattr(regression, "WORK_PER_THREAD", 0)
    A, b, _ = problem(20, 21, 2, 3, 4, kind, noise=0.2)
    fits = [fastemf.sense(A, b, 0.1, 2, max_iter=5, n_jobs=n_jobs) for n_jobs in (1, 2, 2)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.X, fits[0].X)
        np.testing.assert_array_equal(fit.Y, fits[0].Y)


@unsettled
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_too_large_a_rank_and_too_few_measurements_stay_finite():
    A, b, _ = problem(5, 4, 1, 5, 3)
    fit = fastemf.sense(A, b, 0.2, 4)
    assert np.isfinite(fit.to_dense()).all()
    few = fastemf.sense(Gaussian(3, (5, 4)), np.array([1.0, -2.0, 3.0]), 0.2, 2)
    assert np.isfinite(few.to_dense()).all()
    np.testing.assert_allclose(few.measure(Gaussian(3, (5, 4))), [1, -2, 3], atol=1e-6)
    zero = fastemf.sense(A, np.zeros(len(b)), 0.2, 1)
    np.testing.assert_array_equal(zero.to_dense(), 0)


def test_starts(tmp_path):
    A, b, truth = problem(5, 4, 1, 4, 6)
    fit = fastemf.sense(A, b, 0.3, 1)
    fit.save(tmp_path / "model.npz")
    again = fastemf.sense(A, b, 0.3, 1, init=fastemf.load(tmp_path / "model.npz"), anneal=False)
    assert again.n_iter <= 2
    assert error(fastemf.sense(A, b, 0.3, 1, init="random", random_state=3), truth) < 1e-8
    scaled = fastemf.sense(Dense(7 * A.to_dense()), b, 0.3, 1)  # no isometry
    assert error(scaled, truth / 7) < 1e-8
    paper = fastemf.sense(A, b, 0.3, 1, orthogonalize=True)
    assert error(paper, truth) < 1e-8
    assert (fit.reg, fit.reg_scaling, fit.mu, fit.row_intercepts) == (0, "plain", 0, None)
    stopped = fastemf.sense(A, b, 0.3, 1, callback=lambda record: record.sweep == 2)
    assert stopped.n_iter == 2


@unsettled
def test_a_start_too_large_to_form_is_the_same(monkeypatch):
    A, b, _ = problem(6, 5, 1, 4, 6)
    first = fastemf.sense(A, b, 0.3, 1, max_iter=1).history[0].objective
    monkeypatch.setattr(initialise, "FORMED_ENTRIES", 0)
    again = fastemf.sense(A, b, 0.3, 1, max_iter=1).history[0].objective
    assert again == pytest.approx(first, rel=1e-9)


def test_float32_stays_float32():
    A, b, truth = problem(5, 4, 1, 4, 5)
    single = Dense(A.to_dense().astype(np.float32))
    fit = fastemf.sense(single, b.astype(np.float32), 0.2, 1)
    assert fit.X.dtype == fit.Y.dtype == np.float32
    assert error(fit, truth) < 1e-4
    assert fastemf.sense(single, b, 0.2, 1).X.dtype == np.float64


def test_measure_includes_intercepts():
    R = np.add.outer(np.arange(5.0), np.arange(4.0)) + np.outer(np.arange(5.0), np.ones(4))
    fit = fastemf.complete(R, 0.5, 1, intercepts=True)
    A = Gaussian(9, (5, 4), seed=1)
    expected = np.einsum("pij,ij->p", A.to_dense(), fit.to_dense())
    np.testing.assert_allclose(fit.measure(A), expected, atol=1e-10)
    with pytest.raises(ValueError, match=r"fit's shape \(5, 4\), got \(4, 5\)"):
        fit.measure(Gaussian(9, (4, 5)))


# --- the bars -------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("omega", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.thorough) for s in range(1, 10))]
)
def test_noiseless_recovery_from_three_times_the_degrees_of_freedom(omega, seed):
    A, b, truth = problem(20, 20, 2, 3, seed)
    assert error(fastemf.sense(A, b, omega, 2), truth) < 1e-8


@pytest.mark.thorough
@pytest.mark.compiled
@pytest.mark.parametrize("omega", [0.1, 0.5])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 10))]
)
def test_noiseless_recovery_at_rank_three(omega, seed):
    A, b, truth = problem(40, 40, 3, 3, seed)
    assert error(fastemf.sense(A, b, omega, 3), truth) < 1e-8


@pytest.mark.compiled
@pytest.mark.parametrize("kind", [Gaussian, Rademacher])
@pytest.mark.parametrize(("m", "n", "k"), [(17, 31, 1), (31, 17, 2), (7, 50, 1)])
def test_noiseless_recovery_of_rectangles(kind, m, n, k):
    A, b, truth = problem(m, n, k, 3.13, 1, kind)
    for omega in (0.1, 0.5):
        assert error(fastemf.sense(A, b, omega, k), truth) < 1e-8


@pytest.mark.thorough
@unsettled
@pytest.mark.compiled
@pytest.mark.parametrize(("omega", "expected"), [(0.5, 0.50), (0.25, 0.53), (0.1, 0.65)])
def test_error_factor_per_sweep(omega, expected):
    factors = []
    for seed in range(9):
        A, b, truth = problem(20, 20, 2, 3, seed)
        early, late = (
            error(
                fastemf.sense(A, b, omega, 2, momentum=False, anneal=False, tol=0, max_iter=sweeps),
                truth,
            )
            for sweeps in (6, 16)
        )
        factors.append((late / early) ** 0.1)
    assert np.median(factors) == pytest.approx(expected, abs=0.08)


@pytest.mark.thorough
@unsettled
@pytest.mark.compiled
def test_a_low_level_sees_through_skewed_noise():
    errors = {0.1: [], 0.5: []}
    for seed in range(9):
        A, b, truth = problem(20, 20, 2, 6, seed, noise=0.5)
        for omega, found in errors.items():
            found.append(error(fastemf.sense(A, b, omega, 2, anneal=False, max_iter=30), truth))
    assert np.median(errors[0.1]) < np.median(errors[0.5])


@pytest.mark.compiled
@pytest.mark.slow
@unsettled
def test_a_large_implicit_operator_in_little_memory():
    # 14 GB if it were stored. What NumPy allocates at once stays below a gigabyte.
    A = Gaussian(20_000, (300, 300), seed=0)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 5)), rng.standard_normal((300, 5))
    b = A.forward(X, Y)
    start = (X + 0.1 * rng.standard_normal(X.shape), Y)
    options = {"init": start, "max_iter": 1, "anneal": False}
    tracemalloc.start()
    fit = fastemf.sense(A, b, 0.1, 5, n_jobs=2, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9
    serial = fastemf.sense(A, b, 0.1, 5, n_jobs=1, **options)
    np.testing.assert_array_equal(fit.X, serial.X)
    np.testing.assert_array_equal(fit.Y, serial.Y)


# --- refusals and warnings ------------------------------------------------------------------

CUBE = np.random.default_rng(0).standard_normal((9, 3, 2))
B = np.arange(1.0, 10.0)


def spoilt(value, dtype=float):
    b = B.astype(dtype)
    b[4] = value
    return b


REFUSED = {
    "length": (CUBE, B[:8], {}, ValueError, r"one value per measurement, shape \(9,\), got \(8,\)"),
    "matrix": (CUBE, B[:, None], {}, ValueError, r"shape \(9,\), got \(9, 1\)"),
    "nan": (CUBE, spoilt(np.nan), {}, ValueError, "b must be finite, got nan at position 4"),
    "inf": (CUBE, spoilt(-np.inf), {}, ValueError, "b must be finite, got -inf at position 4"),
    "large": (CUBE, spoilt(1e200), {}, ValueError, "b is too large for float64.*position 4"),
    "small": (CUBE, B * 1e-30, {"f4": 1}, ValueError, "b is too small for float32"),
    "object": (CUBE, B.astype(object), {}, TypeError, "b must hold real numbers.*object"),
    "object A": (CUBE.astype(object), B, {}, TypeError, "A must hold real numbers.*object"),
    "nan A": (CUBE * np.nan, B, {}, ValueError, "A must be finite, got nan"),
    "no measurements": (CUBE[:0], B[:0], {}, ValueError, r"got \(0, 3, 2\)"),
    "rank": (CUBE, B, {"k": 3}, ValueError, r"k must be at most min\(rows, columns\) = 2"),
    "level": (CUBE, B, {"omega": 1.5}, ValueError, "omega must lie strictly between 0 and 1"),
    "auto": (CUBE, B, {"reg": "auto"}, ValueError, "reg must be a number >= 0 for linear"),
    "negative reg": (CUBE, B, {"reg": -1}, ValueError, "reg must be finite and not negative"),
    "orthogonalize": (
        CUBE, B, {"reg": 1, "orthogonalize": True}, ValueError, "orthogonalize=True needs reg=0",
    ),
    "callback": (CUBE, B, {"callback": 3}, TypeError, "callback must be callable, got 3"),
    "init": (CUBE, B, {"init": "zeros"}, ValueError, "init must be .*got 'zeros'"),
    "init shape": (
        CUBE, B, {"init": (np.ones((2, 1)), np.ones((2, 1)))}, ValueError, r"init\[0\] .*\(3, 1\)",
    ),
    "weights": (CUBE, B, {"weights": spoilt(0)}, ValueError, "positive, got 0.0 at position 4"),
    "weights length": (CUBE, B, {"weights": B[:3]}, ValueError, r"weights .*\(9,\), got \(3,\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_and_why(name):
    A, b, options, kind, words = REFUSED[name]
    options = {"omega": 0.5, "k": 1, **options}
    if options.pop("f4", False):
        b = b.astype(np.float32)
    before = np.array(b, copy=True)
    with pytest.raises(kind, match=words):
        fastemf.sense(A, b, **options)
    np.testing.assert_array_equal(b, before)


@unsettled
def test_fewer_measurements_than_degrees_of_freedom_warn():
    with pytest.warns(UserWarning, match=r"3 measurements are fewer than the .* = 4 degrees"):
        fastemf.sense(CUBE[:3], B[:3], 0.5, 1)


def test_an_overflow_says_so():
    with pytest.raises(FloatingPointError, match="not finite in float64"):
        fastemf.sense(
            CUBE * 1e150, B, 0.5, 1, init=(np.full((3, 1), 1e60), np.ones((2, 1))), anneal=False
        )


def test_too_few_sweeps_warn():
    A, b, _ = problem(5, 4, 1, 3, 0)
    with pytest.warns(fastemf.ConvergenceWarning, match="max_iter=2 sweeps"):
        fastemf.sense(A, b, 0.2, 1, max_iter=2)


# --- what it takes --------------------------------------------------------------------------


def test_what_memory_has_no_room_for_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 31)
    A = fastemf.operators.Gaussian(10, (2**31, 1000))
    with (
        pytest.raises(MemoryError, match=r"10 measurements of 2147483648 x 1000 .* rank 1 takes"),
        pytest.warns(UserWarning, match="fewer than"),
    ):
        fastemf.sense(A, np.ones(10), 0.3, 1)
    with pytest.raises(MemoryError, match=r"100000 x 100000 matrices at rank 2 takes at least"):
        fastemf.rip_constant(fastemf.operators.Gaussian(10, (10**5, 10**5)), 2)


@pytest.mark.parametrize(("m", "spent"), [(10**6, "11 hours"), (10**7, "3 years")])
def test_a_slow_sweep_is_announced_once(m, spent, monkeypatch):
    class Begun(Exception):  # noqa: N818
        pass

    def begin(*_):
        raise Begun

    monkeypatch.setattr(sense_module, "measured_factors", begin)
    A = fastemf.operators.Gaussian(10, (m, m))
    with pytest.warns(UserWarning, match="estimated|fewer") as caught, pytest.raises(Begun):
        fastemf.sense(A, np.ones(10), 0.3, 1, n_jobs=2)
    told = [str(one.message) for one in caught if "estimated" in str(one.message)]
    assert len(told) == 1
    assert f"estimated to take {spent} or more on 2 threads" in told[0]


def test_the_estimate_follows_the_work():
    def seconds(p, m, n, k, n_threads=1, kind=fastemf.operators.Gaussian):
        return cost.sweep_seconds(kind(p, (m, n)), k, np.dtype(float), n_threads)

    base = seconds(10**5, 3000, 2000, 2)
    assert seconds(2 * 10**5, 3000, 2000, 2) == pytest.approx(2 * base)
    assert seconds(10**5, 3000, 2000, 2, n_threads=2) == pytest.approx(base / 2)
    assert seconds(10**5, 2000, 3000, 2) == pytest.approx(base)
    assert seconds(10**5, 3000, 2000, 2, kind=fastemf.operators.Rademacher) < base
    assert seconds(10**5, 3000, 2000, 3) > base
    assert seconds(400, 30, 20, 2) < 0.1


@pytest.mark.parametrize("init", ["spectral", "random"])
@pytest.mark.parametrize(("size", "word"), [(1e200, "large"), (1e300, "large"), (1e-200, "small")])
def test_maps_whose_squares_overflow_or_vanish_are_refused(size, word, init):
    A = size * np.random.default_rng(0).standard_normal((40, 5, 4))
    message = f"A is too {word} for float64 beside b: .*; rescale A or b"
    with pytest.raises(ValueError, match=message) as caught:
        fastemf.sense(A, np.arange(1.0, 41.0), 0.3, 1, init=init)
    assert type(caught.value) is ValueError  # not LinAlgError


@pytest.mark.parametrize("init", ["spectral", "random"])
@pytest.mark.parametrize("size", [2.0**300, 2.0**-300])
def test_maps_of_any_other_size_give_the_same_fit(size, init):
    A = np.random.default_rng(0).standard_normal((40, 5, 4))
    b = np.arange(1.0, 41.0)
    ours, theirs = (fastemf.sense(by * A, b, 0.3, 1, init=init, tol=1e-9) for by in (size, 1.0))
    np.testing.assert_allclose(size * ours.to_dense(), theirs.to_dense(), rtol=1e-3, atol=1e-3)
