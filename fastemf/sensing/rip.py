"""Restricted isometry: bounds of its constant, and the number of measurements it requires."""

from __future__ import annotations

from math import ceil, log
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from fastemf.kernels.threads import count_threads, single_threaded_blas
from fastemf.loss import level_weights
from fastemf.operators import Operator
from fastemf.operators.conversion import as_operator
from fastemf.sensing.cost import check_cost
from fastemf.sensing.regression import design_of, gram_matrix
from fastemf.support.arrays import Floats
from fastemf.support.validation import (
    check_integer,
    check_level,
    check_number,
    check_rank,
    check_rng,
)

PRACTICAL = 3  # measurements per degree of freedom


class RipConstant(NamedTuple):
    """A lower bound on the restricted isometry constant, and the matrices that attain it."""

    delta: float
    """max(upper − 1, 1 − lower): δ is at least this."""
    lower: float
    """Smallest ratio ‖A(M)‖² / ‖M‖² found for matrices of the rank."""
    upper: float
    """Largest ratio found."""
    minimizer: tuple[Floats, Floats]
    """(X, Y) with ‖X Yᵀ‖ = 1 whose ratio is `lower`."""
    maximiser: tuple[Floats, Floats]
    """(X, Y) with ‖X Yᵀ‖ = 1 whose ratio is `upper`."""


def rip_constant(
    A: Any,
    rank: int,
    *,
    shape: tuple[int, int] | None = None,
    restarts: int = 4,
    max_iter: int = 30,
    tol: float = 1e-4,
    random_state: Any = 0,
    n_jobs: int | None = -1,
) -> RipConstant:
    """Compute a lower bound on the restricted isometry constant δ for a given rank.

    δ is the smallest number with (1 − δ) ‖M‖² ≤ ‖A(M)‖² ≤ (1 + δ) ‖M‖² for all M of
    that rank. Computing it is hard, and random M greatly underestimate it. Here the ratio is
    minimized and maximized by alternation: with Y orthonormal it is a Rayleigh quotient in X,
    whose extreme eigenvector becomes the new X, and vice versa. The returned matrices attain the
    bound; the true δ may be larger.

    Parameters
    ----------
    A, shape
        The operator, in any form `fastemf.sense` takes.
    rank
        The rank; recovery at rank k depends on the constant of rank 2k.
    restarts
        Number of random starts for each extreme; the best result counts.
    max_iter
        Maximum number of alternations per start.
    tol
        Relative change of the ratio at which an alternation stops.
    random_state
        Seed or numpy Generator for the starts.
    n_jobs
        Number of threads; -1 for all.

    Returns
    -------
    RipConstant

    Raises
    ------
    MemoryError
        The Gram matrix of (m·rank)² or (n·rank)² numbers does not fit into memory.

    Warns
    -----
    UserWarning
        When one alternation is estimated to take more than ten minutes.

    Examples
    --------
    >>> import numpy as np, fastemf
    >>> A = fastemf.operators.Gaussian(30, (4, 3), seed=0)
    >>> found = fastemf.rip_constant(A, rank=1, restarts=2)
    >>> X, Y = found.maximiser
    >>> bool(np.isclose(np.sum(A.forward(X, Y) ** 2), found.upper))
    True
    >>> identity = fastemf.operators.Dense(np.eye(6).reshape(6, 2, 3))
    >>> round(fastemf.rip_constant(identity, rank=1).delta, 12)
    0.0
    """
    operator = as_operator(A, shape)
    rank = check_rank(rank, (operator.shape[1], operator.shape[2]), "rank")
    restarts = check_integer(restarts, "restarts", minimum=1)
    max_iter = check_integer(max_iter, "max_iter", minimum=1)
    tol = check_number(tol, "tol")
    rng = check_rng(random_state)
    n_threads = count_threads(n_jobs)
    check_cost(operator, rank, operator.dtype, n_threads, insists_on_gram=True)
    lower, upper = np.inf, -np.inf
    minimizer = maximiser = (np.empty(0), np.empty(0))
    with single_threaded_blas():
        for _ in range(restarts):
            Y = rng.standard_normal((operator.shape[2], rank))
            for up in (False, True):
                ratio, *factors = _extreme_ratio(operator, Y, up, max_iter, tol, n_threads)
                if not up and ratio < lower:
                    lower, minimizer = ratio, (factors[0], factors[1])
                elif up and ratio > upper:
                    upper, maximiser = ratio, (factors[0], factors[1])
    return RipConstant(max(upper - 1, 1 - lower), lower, upper, minimizer, maximiser)


def _extreme_ratio(
    A: Operator, Y: Floats, up: bool, max_iter: int, tol: float, n_threads: int
) -> tuple[float, Floats, Floats]:
    """Alternate eigenproblems from Y; return the extreme ratio and its factors."""
    factors = [np.empty((A.shape[1], Y.shape[1])), Y]
    ratio = np.nan
    for _ in range(max_iter):
        before = ratio
        for side in (0, 1):
            other = np.linalg.qr(factors[1 - side])[0]
            design = design_of(A, other.astype(A.dtype, copy=False), side, n_threads)
            H = gram_matrix(design, np.ones(design.shape[0]), n_threads)
            last = H.shape[0] - 1 if up else 0
            _, vector = scipy.linalg.eigh(H.T, lower=True, subset_by_index=(last, last))
            factors[side] = vector[:, 0].astype(np.float64).reshape(factors[side].shape)
            factors[1 - side] = other
        measured = np.asarray(A.forward(factors[0], factors[1], n_jobs=n_threads), np.float64)
        ratio = float(measured @ measured)
        if abs(ratio - before) <= tol * max(ratio, tol):
            break
    return ratio, factors[0], factors[1]


class MeasurementsNeeded(NamedTuple):
    """Numbers of measurements for recovery, in theory and in practice."""

    theory: int
    """c (w₊/w₋)⁴ k³ n log n: the sample size for the RIP constant of the paper's Theorem 1."""
    printed: int
    """c (w₊/w₋)² k³ n log n, as printed in the paper."""
    degrees_of_freedom: int
    """k (m + n − k): fewer measurements do not determine the matrix."""
    practical: int
    """Three times the degrees of freedom, a good first choice."""


def measurements_needed(
    m: int, n: int, k: int, omega: float = 0.5, *, constant: float = 1.0
) -> MeasurementsNeeded:
    """Estimate the number of Gaussian measurements that recover an m × n matrix of rank k.

    The theory gives a rate of growth with an unknown constant, which is a parameter here. With w₊
    and w₋ the larger and smaller of ω and 1 − ω, Theorem 1 of the paper requires δ₂ₖ of the order
    of (w₋/w₊)²/k, which n log n · k / δ² Gaussian measurements achieve. The sample size printed
    in the paper has the square of w₊/w₋ instead of the fourth power.

    In practice two to three times the degrees of freedom suffice for noiseless recovery at levels
    from 0.1 to 0.9; extreme levels and noise require more. Start with `practical`, and evaluate
    on held-out measurements.

    Parameters
    ----------
    m, n, k
        Rows, columns, rank.
    omega
        Expectile level.
    constant
        The unknown constant c of the theory.

    Returns
    -------
    MeasurementsNeeded

    Examples
    --------
    >>> import fastemf
    >>> needed = fastemf.measurements_needed(100, 100, 5, omega=0.1)
    >>> needed.degrees_of_freedom, needed.practical
    (975, 2925)
    >>> needed.theory > needed.printed > needed.practical
    True
    """
    m = check_integer(m, "m", minimum=1)
    n = check_integer(n, "n", minimum=1)
    k = check_rank(k, (m, n))
    omega = check_level(omega)
    if not check_number(constant, "constant") > 0:
        raise ValueError(f"constant must be positive, got {constant!r}")
    weights = level_weights(omega)
    kappa = max(weights) / min(weights)
    long = max(m, n)
    dof = k * (m + n - k)
    try:
        growth = constant * k**3 * long * log(long)
        theory, printed = ceil(kappa**4 * growth), ceil(kappa**2 * growth)
    except OverflowError:
        raise ValueError(
            "m, n, k and constant must be smaller, or omega closer to 0.5, for a sample size below "
            f"1e308; got omega={omega:g} and constant={constant:g}"
        ) from None
    return MeasurementsNeeded(theory, printed, dof, PRACTICAL * dof)
