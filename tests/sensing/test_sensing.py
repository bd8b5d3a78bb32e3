"""`sense` against the oracle: identities, certificates, recovery."""

import tracemalloc

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from scenes import Killed
from scipy.sparse.linalg import aslinearoperator
from strategies import CYCLE, levels, row_problems, seeds

import fastemf
from fastemf.operators import Dense, Entries, Gaussian, Rademacher, Sparse, kernel_operator
from fastemf.sensing import regression
from fastemf.sensing import sense as sense_module
from fastemf.sensing import start as initialize

PLAIN = {"solver": fastemf.Solver(momentum=False), "tol": 0}  # alternation
WITHOUT_STAGES = fastemf.Solver(anneal=False)
UNSETTLED = "ignore::fastemf.ConvergenceWarning"
unsettled = pytest.mark.filterwarnings(UNSETTLED)
underdetermined = pytest.mark.filterwarnings(UNSETTLED, "ignore:.*degrees of freedom")


def problem(m, n, k, ratio, seed, kind=Gaussian, noise=0.0):
    """Measure a low-rank matrix `ratio` times its degrees of freedom, with skewed noise."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    A = kind(int(ratio * k * (m + n - k)), (m, n), seed)
    b = A.forward(X, Y)
    if noise:
        # Noise relative to the measurements, distributed as 0.5 χ²₃.
        b = b + noise * np.std(b) * rng.chisquare(3, b.size)
    return A, b, X @ Y.T


def error(fit, truth):
    return np.linalg.norm(fit.to_dense() - truth) / np.linalg.norm(truth)


@st.composite
def sensing_problems(draw):
    """Draw a dense A, b, a level and a start; over- and underdetermined."""
    rng = np.random.default_rng(draw(seeds))
    m, n, k = draw(st.integers(2, 5)), draw(st.integers(2, 4)), draw(st.integers(1, 2))
    p = draw(st.integers(1, 30))
    A = rng.standard_normal((p, m, n))
    b = rng.standard_normal(p) ** 3
    return A, b, draw(levels), rng.standard_normal((m, k)), rng.standard_normal((n, k))


# --- one half step --------------------------------------------------------------------------


def solve(B, b, omega, ridge=0.0, v=None, start=None):
    return regression.solve_regression(
        regression._InMemory(B), b, np.ones(len(b)) if v is None else v,
        np.zeros(B.shape[1]) if start is None else start, omega, ridge, np.eye(1), 1,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@given(row_problems())
@example((*CYCLE, 0.01, 0.0, None))
@example((*CYCLE, 0.01, 1e-3, None))
def test_a_half_step_solves_the_quadratic_program(case):
    B, b, omega, ridge, v = case
    found = solve(B, b, omega, ridge, v)
    f = oracle.row_objective(B, b, found.factor, omega, ridge, v)
    at_zero = oracle.row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
    assert f <= oracle.row_qp(B, b, omega, ridge, v) + 1e-8 * at_zero
    loss = omega * found.above + (1 - omega) * found.below
    total = loss + ridge * found.factor @ found.factor
    assert total == pytest.approx(f, rel=1e-9, abs=1e-12 * at_zero)


def test_extreme_levels_converge_by_single_sign_changes():
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
def test_conjugate_gradients_reach_the_minimum_of_the_gram_matrix(case):
    B, b, omega, ridge, v = case
    exact = solve(B, b, omega, ridge, v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "GRAM_BYTES", 0)
        by_cg = solve(B, b, omega, ridge, v)
    f, g = (oracle.row_objective(B, b, end.factor, omega, ridge, v) for end in (exact, by_cg))
    at_zero = oracle.row_objective(B, b, np.zeros(B.shape[1]), omega, ridge, v)
    assert g <= f + 1e-8 * at_zero


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
def test_an_overflow_in_a_half_step_raises(monkeypatch, limit, size, start):
    monkeypatch.setattr(regression, "GRAM_BYTES", limit)
    B = size * np.random.default_rng(0).standard_normal((6, 2))
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="float64"):
        solve(B, np.arange(6.0), 0.2, start=np.full(2, start))


# --- whole fits -----------------------------------------------------------------------------


@underdetermined
@given(sensing_problems(), st.sampled_from([0.01, 0.3]))
def test_plain_alternation_equals_the_oracle(case, lam):
    A, b, drawn, *start = case
    settings = PLAIN | {"reg": lam, "init": tuple(start), "max_iter": 2, "n_jobs": 1}
    for omega in (drawn, 0.5):  # the second is least squares
        fit = fastemf.sense(A, b, omega, start[0].shape[1], **settings)
        X, Y = oracle.sense(A, b, *start, omega, lam, sweeps=2)
        r = b - oracle.measurements(A, X, Y)
        loss = np.sum(np.where(r >= 0, omega, 1 - omega) * r**2)
        expected = loss + lam * (np.sum(X**2) + np.sum(Y**2))
        assert fit.history[-1].objective == pytest.approx(expected, rel=1e-6)


@underdetermined
@given(sensing_problems(), st.sampled_from([0, 0.1]))
def test_fits_are_stationary_and_the_objective_falls(case, reg):
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


@underdetermined
@given(sensing_problems())
def test_identities(case):
    A, b, omega, X, Y = case
    k = X.shape[1]
    settings = PLAIN | {"reg": 0.1, "max_iter": 2, "n_jobs": 1}

    def objective(A, b, omega, init, **more):
        return fastemf.sense(A, b, omega, k, init=init, **settings, **more).history[-1].objective

    expected = objective(A, b, omega, (X, Y))
    order = np.random.default_rng(0).permutation(len(b))
    assert objective(A[order], b[order], omega, (X, Y)) == pytest.approx(expected, rel=1e-7)
    assert objective(A, -b, 1 - omega, (-X, Y)) == pytest.approx(expected, rel=1e-7)
    assert objective(A[:, ::-1], b, omega, (X[::-1], Y)) == pytest.approx(expected, rel=1e-7)
    half = fastemf.sense(A.transpose(0, 2, 1), b, omega, k, init=(Y, X), **settings)
    assert half.shape == (A.shape[2], A.shape[1])
    twice = objective(np.concatenate([A, A]), np.concatenate([b, b]), omega, (X, Y))
    weighted = objective(A, b, omega, (X, Y), weights=np.full(len(b), 2.0))
    assert weighted == pytest.approx(twice, rel=1e-7)


def test_representations_agree():
    A, b, truth = problem(5, 4, 1, 3, 0)
    dense = A.to_dense()
    flat = dense.reshape(len(b), -1)
    for form in (A, dense, Dense(dense), sp.csr_array(flat), aslinearoperator(flat)):
        fit = fastemf.sense(form, b, 0.2, 1, shape=(5, 4))
        assert error(fit, truth) < 1e-10
        np.testing.assert_allclose(fit.measure(A), b, atol=1e-10)


@pytest.mark.parametrize("limit", ["DESIGN_BYTES", "GRAM_BYTES"])
def test_a_streamed_design_gives_the_same_fit(monkeypatch, limit):
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
def test_entries_equal_completion(reg):
    rows, cols, b = entries()
    options = {"reg": reg, "max_iter": 20, "solver": fastemf.Solver(reg_scaling="plain")}
    expected = fastemf.complete((rows, cols, b), 0.2, 2, shape=(8, 7), **options)
    fit = fastemf.sense(Entries(rows, cols, (8, 7)), b, 0.2, 2, **options)
    np.testing.assert_array_equal(fit.X, expected.X)
    np.testing.assert_array_equal(fit.Y, expected.Y)
    # The general engine reaches the same result from the same start.
    start = (np.ones((8, 2)) + np.eye(8, 2), np.ones((7, 2)) - np.eye(7, 2))
    solver = fastemf.Solver(momentum=False, reg_scaling="plain")
    options = {"reg": 0.05, "init": start, "solver": solver, "tol": 0, "max_iter": 5}
    expected = fastemf.complete((rows, cols, b), 0.2, 2, shape=(8, 7), **options)
    picks = sp.csr_array((np.ones(40), (np.arange(40), rows * 7 + cols)), shape=(40, 56))
    fit = fastemf.sense(Sparse(picks, (8, 7)), b, 0.2, 2, **options)
    np.testing.assert_allclose(fit.to_dense(), expected.to_dense(), rtol=1e-7)


@unsettled
@pytest.mark.compiled
@pytest.mark.parametrize("kind", [Gaussian, Rademacher])
def test_bits_do_not_depend_on_the_threads(kind, monkeypatch):
    monkeypatch.setattr(kernel_operator, "ENTRIES_PER_THREAD", 1)
    monkeypatch.setattr(regression, "PANEL", 16)  # several tasks
    monkeypatch.setattr(regression, "WORK_PER_THREAD", 0)
    A, b, _ = problem(20, 21, 2, 3, 4, kind, noise=0.2)
    fits = [fastemf.sense(A, b, 0.1, 2, max_iter=5, n_jobs=n_jobs) for n_jobs in (1, 2, 2)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.X, fits[0].X)
        np.testing.assert_array_equal(fit.Y, fits[0].Y)


@underdetermined
def test_underdetermined_fits_are_finite():
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
    loaded = fastemf.load(tmp_path / "model.npz")
    again = fastemf.sense(A, b, 0.3, 1, init=loaded, solver=WITHOUT_STAGES)
    assert again.n_iter <= 2
    assert error(fastemf.sense(A, b, 0.3, 1, init="random", random_state=3), truth) < 1e-8
    scaled = fastemf.sense(Dense(7 * A.to_dense()), b, 0.3, 1)  # no isometry
    assert error(scaled, truth / 7) < 1e-8
    paper = fastemf.sense(A, b, 0.3, 1, solver=fastemf.Solver(orthogonalize=True))
    assert error(paper, truth) < 1e-8
    assert (fit.reg, fit.reg_scaling, fit.mu, fit.row_intercepts) == (0, "plain", 0, None)
    stopped = fastemf.sense(A, b, 0.3, 1, callback=lambda record: record.sweep == 2)
    assert stopped.n_iter == 2


@unsettled
def test_a_spectral_start_without_forming_the_matrix_is_the_same(monkeypatch):
    A, b, _ = problem(6, 5, 1, 4, 6)
    first = fastemf.sense(A, b, 0.3, 1, max_iter=1).history[0].objective
    monkeypatch.setattr(initialize, "FORMED_ENTRIES", 0)
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


# --- recovery -------------------------------------------------------------------------------


def recoveries():
    """Yield shapes, ranks and seeds of problems without noise."""
    yield from ((17, 31, 1, 1), (31, 17, 2, 1), (7, 50, 1, 1), (20, 20, 2, 0))
    yield pytest.param(40, 40, 3, 0, marks=pytest.mark.thorough)
    for seed in range(1, 10):
        yield pytest.param(20, 20, 2, seed, marks=pytest.mark.thorough)
        yield pytest.param(40, 40, 3, seed, marks=pytest.mark.slow)


@pytest.mark.compiled
@pytest.mark.parametrize("omega", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize(("m", "n", "k", "seed"), [*recoveries()])
def test_noiseless_recovery_from_three_times_the_degrees_of_freedom(m, n, k, seed, omega):
    for kind in (Gaussian,) if m == n else (Gaussian, Rademacher):
        A, b, truth = problem(m, n, k, 3 if m == n else 3.13, seed, kind)
        assert error(fastemf.sense(A, b, omega, k), truth) < 1e-8


@pytest.mark.thorough
@unsettled
@pytest.mark.compiled
@pytest.mark.parametrize(("omega", "expected"), [(0.5, 0.50), (0.25, 0.53), (0.1, 0.65)])
def test_error_factor_per_sweep(omega, expected):
    factors, settings = [], {"solver": fastemf.Solver(momentum=False, anneal=False), "tol": 0}
    for seed in range(9):
        A, b, truth = problem(20, 20, 2, 3, seed)
        fits = (fastemf.sense(A, b, omega, 2, max_iter=n, **settings) for n in (6, 16))
        early, late = (error(fit, truth) for fit in fits)
        factors.append((late / early) ** 0.1)
    assert np.median(factors) == pytest.approx(expected, abs=0.08)


@pytest.mark.thorough
@unsettled
@pytest.mark.compiled
def test_a_low_level_reduces_the_error_under_skewed_noise():
    errors = {0.1: [], 0.5: []}
    for seed in range(9):
        A, b, truth = problem(20, 20, 2, 6, seed, noise=0.5)
        for omega, found in errors.items():
            fit = fastemf.sense(A, b, omega, 2, solver=WITHOUT_STAGES, max_iter=30)
            found.append(error(fit, truth))
    assert np.median(errors[0.1]) < np.median(errors[0.5])


@pytest.mark.compiled
@pytest.mark.slow
@unsettled
def test_a_large_implicit_operator_in_little_memory():
    # Stored it would take 14 GB. The peak of NumPy's memory stays below 1 GB.
    A = Gaussian(20_000, (300, 300), seed=0)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 5)), rng.standard_normal((300, 5))
    b = A.forward(X, Y)
    start = (X + 0.1 * rng.standard_normal(X.shape), Y)
    options = {"init": start, "max_iter": 1, "solver": WITHOUT_STAGES}
    tracemalloc.start()
    fit = fastemf.sense(A, b, 0.1, 5, n_jobs=2, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9
    serial = fastemf.sense(A, b, 0.1, 5, n_jobs=1, **options)
    np.testing.assert_array_equal(fit.X, serial.X)
    np.testing.assert_array_equal(fit.Y, serial.Y)


# --- errors and warnings --------------------------------------------------------------------

CUBE = np.random.default_rng(0).standard_normal((9, 3, 2))
B = np.arange(1.0, 10.0)


def spoilt(value):
    return np.where(np.arange(9) == 4, value, B)


ONE_SWEEP, RIDGE = {"max_iter": 1}, {"reg": 1, "solver": fastemf.Solver(orthogonalize=True)}
LARGE = {"init": (np.full((3, 1), 1e60), np.ones((2, 1))), "solver": WITHOUT_STAGES}
INVALID = {
    "length": (CUBE, B[:8], {}, ValueError, r"one value per measurement, shape \(9,\), got \(8,\)"),
    "nan": (CUBE, spoilt(np.nan), {}, ValueError, "b must be finite, got nan at position 4"),
    "large": (CUBE, spoilt(1e200), {}, ValueError, "b is too large for float64.*position 4"),
    "small": (CUBE, np.float32(B * 1e-30), {}, ValueError, "b is too small for float32"),
    "object": (CUBE, B.astype(object), {}, TypeError, "b must hold real numbers.*object"),
    "rank 0": (CUBE, B, {"k": 0}, ValueError, "k must be at least 1, got 0"),
    "rank": (CUBE, B, {"k": 3}, ValueError, r"k must be at most min\(rows, columns\) = 2"),
    "auto": (CUBE, B, {"reg": "auto"}, ValueError, "reg must be a number >= 0 for linear"),
    "orthogonalize": (CUBE, B, RIDGE, ValueError, "orthogonalize=True needs reg=0"),
    "method": (CUBE, B, {"solver": "cg"}, ValueError, "solver must have method='auto'.*got.*'cg'"),
    "init": (CUBE, B, {"init": "zeros"}, ValueError, "init must be .*got 'zeros'"),
    "init shape": (CUBE, B, {"init": (B[:2], B[:2])}, ValueError, r"init\[0\] .*\(3, 1\)"),
    "weights": (CUBE, B, {"weights": spoilt(0)}, ValueError, "positive, got 0.0 at position 4"),
    "overflow": (CUBE * 1e150, B, LARGE, FloatingPointError, "not finite in float64"),
    "few": (CUBE[:3], B[:3], ONE_SWEEP, UserWarning, r"3 measurements are fewer .* = 4 degrees"),
    "few sweeps": (CUBE, B, ONE_SWEEP, fastemf.ConvergenceWarning, "max_iter=1 sweeps"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_errors_name_the_parameter_and_the_rule(name):
    A, b, options, kind, words = INVALID[name]
    options = {"omega": 0.5, "k": 1, **options}
    before = np.array(b, copy=True)
    with pytest.raises(kind, match=words):
        fastemf.sense(A, b, **options)
    np.testing.assert_array_equal(b, before)


# --- cost and magnitude -----------------------------------------------------------------------


@pytest.mark.parametrize(("m", "spent"), [(10**6, "11 hours"), (10**7, "3 years")])
def test_a_slow_sweep_warns_once(m, spent, monkeypatch):
    def begin(*_):
        raise Killed

    monkeypatch.setattr(sense_module, "measured_factors", begin)
    A = fastemf.operators.Gaussian(10, (m, m))
    with pytest.warns(UserWarning, match="estimated|fewer") as caught, pytest.raises(Killed):
        fastemf.sense(A, np.ones(10), 0.3, 1, n_jobs=2)
    slow = [str(one.message) for one in caught if "estimated" in str(one.message)]
    assert len(slow) == 1
    assert f"estimated to take {spent} or more on 2 threads" in slow[0]


@pytest.mark.parametrize("init", ["spectral", "random"])
@pytest.mark.parametrize(("size", "word"), [(1e200, "large"), (1e300, "large"), (1e-200, "small")])
def test_operators_whose_squares_overflow_or_underflow_raise(size, word, init):
    A = size * np.random.default_rng(0).standard_normal((40, 5, 4))
    message = f"A is too {word} for float64: .*; rescale A or b"
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
