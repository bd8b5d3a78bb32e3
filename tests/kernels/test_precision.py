"""Rows that are numerically singular in float32 are solved in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import row_objective
from strategies import seeds
from test_kernels import solve

import fastemf
from fastemf.kernels import precision
from fastemf.kernels import problem as kernels

pytestmark = pytest.mark.compiled  # too slow to be interpreted


@given(
    seeds, st.integers(1, 20), st.sampled_from([1e-6, 0.1, 0.5, 1 - 1e-6]),
    st.sampled_from([0.0, 1e-6, 1e-3]), st.sampled_from([1e-1, 1e-2, 1e-3]),
)  # fmt: skip
def test_nearly_parallel_rows_are_fitted_as_in_float64(seed, d, omega, ridge, apart):
    rng = np.random.default_rng(seed)
    B = (1 + apart * rng.standard_normal((d, 3))).astype(np.float32)
    b = (1 + apart * rng.lognormal(0, 1, d)).astype(np.float32)
    wide, values = B.astype(float), b.astype(float)
    x, _, _ = solve(B, b, omega, ridge, dtype=np.float32)
    y, _, _ = solve(wide, values, omega, ridge)
    found, best = (row_objective(wide, values, z.astype(float), omega, ridge) for z in (x, y))
    eps = float(np.finfo(np.float32).eps)
    size = np.sum(values**2) + np.sum((np.abs(wide) @ np.abs(x)) ** 2)
    # Normal equations in float32 have half its digits. In float64 a direction counts as zero below
    # 64 times the eps of `solve_in_float64`, relative to H |y|².
    none = 64 * (64 * eps**2) * np.sum(wide**2) * np.sum(y**2)
    assert found <= 1.001 * best + eps * size + none


def test_reported_sums_are_those_of_the_rounded_solution():
    rng = np.random.default_rng(0)
    B = (1 + 1e-3 * rng.standard_normal((2, 3))).astype(np.float32)
    b = np.array([1.0, 2.0], np.float32)
    x, stats, status = solve(B, b, 0.3, dtype=np.float32)
    assert status == kernels.MINIMUM_NORM
    r = b - B.astype(float) @ x.astype(float)
    expected = [np.sum(r[r >= 0] ** 2), np.sum(r[r < 0] ** 2)]
    np.testing.assert_allclose(stats[[kernels.ABOVE, kernels.BELOW]], expected)


# Some rows have fewer entries than unknowns.
SHORT = {"reg": 0, "solver": fastemf.Solver(anneal=False), "intercepts": True}


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*fewer than k")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", [{"reg": 1e-4}, SHORT], ids=["ridge", "none"])
def test_results_do_not_depend_on_runs_or_threads(weighted, settings, monkeypatch):
    rng = np.random.default_rng(3)
    R = 1e3 + rng.lognormal(0, 1, (40, 7))
    R[rng.random(R.shape) < 0.5] = np.nan
    options = {"max_iter": 5, **settings}
    if weighted:
        options["weights"] = rng.uniform(0.1, 10, R.shape).astype(np.float32)
    whole = fastemf.complete(R.astype(np.float32), 0.9, 3, **options)
    seen = []
    monkeypatch.setattr(precision, "OBSERVATIONS", 8)
    cuts = precision._cuts
    monkeypatch.setattr(precision, "_cuts", lambda lengths: seen.append(cuts(lengths)) or seen[-1])
    cut = fastemf.complete(R.astype(np.float32), 0.9, 3, n_jobs=1, **options)
    assert any(cuts.size for cuts in seen)
    np.testing.assert_array_equal(whole.X, cut.X)
    np.testing.assert_array_equal(whole.Y, cut.Y)
