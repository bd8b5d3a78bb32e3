"""Restricted isometry: bounds that are attained, and sample sizes by hand."""

from itertools import product
from math import ceil, log

import numpy as np
import pytest

import fastemf
from fastemf.operators import Dense, Entries, Gaussian


def ratio(A, X, Y):
    return np.sum(A.forward(X, Y) ** 2) / np.linalg.norm(X @ Y.T) ** 2


@pytest.mark.parametrize("rank", [1, 2])
def test_the_bounds_are_attained_and_beat_random_probes(rank):
    A = Gaussian(30, (5, 4), seed=1)
    found = fastemf.rip_constant(A, rank)
    assert ratio(A, *found.maximiser) == pytest.approx(found.upper, rel=1e-10)
    assert ratio(A, *found.minimizer) == pytest.approx(found.lower, rel=1e-10)
    assert np.linalg.norm(found.maximiser[0] @ found.maximiser[1].T) == pytest.approx(1)
    assert found.delta == max(found.upper - 1, 1 - found.lower)
    few = fastemf.rip_constant(A, rank, restarts=1)
    assert found.lower <= few.lower <= few.upper <= found.upper
    rng = np.random.default_rng(0)
    dense = A.to_dense().reshape(30, -1)
    probes = [rng.standard_normal((5, rank)) @ rng.standard_normal((4, rank)).T for _ in range(500)]
    ratios = [np.sum((dense @ M.ravel()) ** 2) / np.sum(M**2) for M in probes]
    assert found.lower < min(ratios) < max(ratios) < found.upper
    # The extremes over all matrices bound those of any rank.
    values = np.linalg.svd(dense, compute_uv=False) ** 2
    assert values[-1] - 1e-9 <= found.lower <= found.upper <= values[0] + 1e-9


def test_full_rank_is_the_spectrum():
    A = Gaussian(30, (3, 3), seed=2)
    values = np.linalg.svd(A.to_dense().reshape(30, -1), compute_uv=False) ** 2
    found = fastemf.rip_constant(A, 3)
    assert found.upper == pytest.approx(values[0], rel=1e-6)
    assert found.lower == pytest.approx(values[-1], rel=1e-6)


def test_rank_one_against_all_angles():
    A = Gaussian(12, (2, 2), seed=5)
    angles = np.linspace(0, np.pi, 361)
    units = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    dense = A.to_dense()
    ratios = [np.sum((dense @ v @ u) ** 2) for u, v in product(units, units)]
    found = fastemf.rip_constant(A, 1, tol=1e-10, max_iter=200)
    assert max(ratios) <= found.upper <= max(ratios) * 1.001
    assert min(ratios) * 0.999 - 1e-6 <= found.lower <= min(ratios)


def test_known_operators():
    scaled = Dense(2 * np.eye(12).reshape(12, 3, 4))
    found = fastemf.rip_constant(scaled, 2)
    assert (found.lower, found.upper) == (pytest.approx(4), pytest.approx(4))
    hidden = fastemf.rip_constant(Entries([0, 1], [0, 1], (2, 2)), 1)  # measures only the diagonal
    assert hidden.lower == pytest.approx(0, abs=1e-12)
    assert hidden.delta >= 1 - 1e-12


def test_results_are_bitwise_identical_for_any_n_jobs():
    A = Gaussian(20, (4, 3), seed=1)
    one, two = (fastemf.rip_constant(A, 1, n_jobs=n_jobs, restarts=2) for n_jobs in (1, 2))
    assert (one.lower, one.upper) == (two.lower, two.upper)


def test_sample_sizes_by_hand():
    needed = fastemf.measurements_needed(30, 50, 2, omega=0.2, constant=3.0)
    growth = 3.0 * 8 * 50 * log(50)
    assert needed.theory == ceil(4**4 * growth)
    assert needed.printed == ceil(4**2 * growth)
    assert needed.degrees_of_freedom == 2 * (30 + 50 - 2)
    assert needed.practical == 3 * needed.degrees_of_freedom
    assert needed == fastemf.measurements_needed(50, 30, 2, omega=0.8, constant=3.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fastemf.rip_constant(Gaussian(9, (3, 2)), 3), "rank must be at most .* = 2"),
        (lambda: fastemf.rip_constant(Gaussian(9, (3, 2)), 1, restarts=0), "restarts must be at"),
        (lambda: fastemf.measurements_needed(3, 2, 3), "k must be at most"),
        (lambda: fastemf.measurements_needed(3, 2, 1, omega=2), "omega must lie"),
        (lambda: fastemf.measurements_needed(3, 2, 1, constant=0), "constant must be positive"),
        (lambda: fastemf.measurements_needed(10**400, 10, 2), "omega closer to 0.5"),
        (lambda: fastemf.measurements_needed(9, 9, 2, 1e-300), "omega closer to 0.5"),
        (lambda: fastemf.measurements_needed(9, 9, 2, constant=1e308), "omega closer to 0.5"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(call, words):
    with pytest.raises(ValueError, match=words):
        call()
