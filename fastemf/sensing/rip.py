"""Restricted isometry: how far an operator is from it, and how many measurements it takes."""

from __future__ import annotations

from math import ceil, log
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fastemf.kernels.threads import count_threads, single_threaded_blas
from fastemf.operators import Operator
from fastemf.operators.conversion import as_operator
from fastemf.sensing.cost import check_cost
from fastemf.sensing.regression import design_of, gram_matrix
from fastemf.support.validation import (
    check_integer,
    check_level,
    check_number,
    check_rank,
    check_rng,
)

__all__ = ["MeasurementsNeeded", "RipConstant", "measurements_needed", "rip_constant"]

PRACTICAL = 3  # measurements per degree of freedom


class RipConstant(NamedTuple):
    """A lower bound for the restricted isometry constant, and its witnesses."""

    delta: float
    """max(upper − 1, 1 − lower): δ is at least this."""
    lower: float
    """Smallest ‖A(M)‖² / ‖M‖² found over matrices of the rank."""
    upper: float
    """Largest one found."""
    minimiser: tuple[NDArray[np.float64], NDArray[np.float64]]
    """(X, Y) with ‖X Yᵀ‖ = 1 whose ratio is `lower`."""
    maximiser: tuple[NDArray[np.float64], NDArray[np.float64]]
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
    """Bound the restricted isometry constant δ of a rank from below.

    δ is the smallest number with (1 − δ) ‖M‖² ≤ ‖A(M)‖² ≤ (1 + δ) ‖M‖² for all M of
    the rank. Finding it is hard; random M grossly understate it. Here the ratio is
    optimised, up and down: with Y orthonormal it is a Rayleigh quotient in X, whose
    best eigenvector becomes the new X, and so on in turn. The bound is attained by
    the matrices returned; the true δ may be larger.

    Parameters
    ----------
    A, shape
        The operator, in any form `fastemf.sense` takes.
    rank
        The rank; for recovery at rank k the theory asks about 2k.
    restarts
        Random starts in each direction; the best counts.
    max_iter
        Most alternations per start.
    tol
        A start ends when an alternation changes its ratio by less than this, relatively.
    random_state
        Seed or numpy Generator for the starts.
    n_jobs
        Threads; -1 for all.

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
    minimiser = maximiser = (np.empty(0), np.empty(0))
    with single_threaded_blas():
        for _ in range(restarts):
            Y = rng.standard_normal((operator.shape[2], rank))
            for up in (False, True):
                ratio, *factors = _climb(operator, Y, up, max_iter, tol, n_threads)
                if not up and ratio < lower:
                    lower, minimiser = ratio, (factors[0], factors[1])
                elif up and ratio > upper:
                    upper, maximiser = ratio, (factors[0], factors[1])
    return RipConstant(max(upper - 1, 1 - lower), lower, upper, minimiser, maximiser)


def _climb(
    A: Operator, Y: NDArray[np.float64], up: bool, max_iter: int, tol: float, n_threads: int
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Alternate eigenproblems from Y; return the ratio reached and the factors that attain it."""
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
    """How many measurements recovery takes, in theory and in practice."""

    theory: int
    """c (w₊/w₋)⁴ k³ n log n: the paper's first theorem put into the RIP's sample size."""
    printed: int
    """c (w₊/w₋)² k³ n log n, as the paper prints it."""
    degrees_of_freedom: int
    """k (m + n − k): with fewer the matrix is not determined at all."""
    practical: int
    """Three times the degrees of freedom: where to start."""


def measurements_needed(
    m: int, n: int, k: int, omega: float = 0.5, *, constant: float = 1.0
) -> MeasurementsNeeded:
    """Estimate how many Gaussian measurements recover an m × n matrix of rank k at level omega.

    The theory gives a growth, not a number: its constant is unknown and comes as a
    parameter. With w₊ and w₋ the larger and smaller of ω and 1 − ω, the paper's Theorem 1 asks
    for δ₂ₖ of the order of (w₋/w₊)²/k, and n log n · k / δ² Gaussian measurements have that;
    the sample size printed there has the square of w₊/w₋ instead of its fourth power.

    In practice two to three times the degrees of freedom suffice for noiseless recovery at
    levels from 0.1 to 0.9; extreme levels and noise take more. Start from `practical`, and
    judge by held-out measurements.

    Parameters
    ----------
    m, n, k
        Rows, columns, rank.
    omega
        Expectile level.
    constant
        c, the theory's unknown constant.

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
    kappa = max(omega, 1 - omega) / min(omega, 1 - omega)
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
