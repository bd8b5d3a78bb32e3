"""A generated matrix with right-skewed noise: the paper's synthetic data."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.support.memory import check_memory
from fastemf.support.validation import check_integer, check_number, check_rank, check_rng

__all__ = ["SkewedMatrix", "make_skewed"]


class SkewedMatrix(NamedTuple):
    """A generated matrix: what is seen, what is behind it, and everything that was drawn."""

    R: Any
    """Sampled noisy entries, a CSR array."""
    truth: NDArray[np.float64]
    """The low-rank matrix without noise."""
    noisy: NDArray[np.float64]
    """All entries with noise, sampled or not."""


def make_skewed(
    m: int = 1000,
    n: int = 1000,
    *,
    rank: int = 10,
    density: float = 0.05,
    noise: float = 0.5,
    degrees: float = 3.0,
    factor_low: Any = 0.0,
    factor_high: Any = 1.0,
    random_state: Any = None,
) -> SkewedMatrix:
    """Generate the paper's synthetic data: low rank plus right-skewed noise, sampled at random.

    Parameters
    ----------
    m, n
        Rows and columns.
    rank
        Rank of the truth.
    density
        Share of the cells sampled, in (0, 1]; exactly ``round(density * m * n)`` of
        them, at least one.
    noise
        The noise is this times a χ² variable; 0 for noiseless data.
    degrees
        Degrees of freedom of the χ².
    factor_low, factor_high
        The factors' entries are uniform between these.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> from fastemf.datasets import make_skewed
    >>> data = make_skewed(30, 20, rank=2, density=0.25, random_state=0)
    >>> data.R.shape, data.R.nnz, data.truth.shape
    ((30, 20), 150, (30, 20))
    """
    m = check_integer(m, "m", minimum=1)
    n = check_integer(n, "n", minimum=1)
    rank = check_rank(rank, (m, n), "rank")
    if not 0 < check_number(density, "density") <= 1:
        raise ValueError(f"density must lie in (0, 1], got {density!r}")
    noise = check_number(noise, "noise")
    if not check_number(degrees, "degrees") > 0:
        raise ValueError(f"degrees must be positive, got {degrees!r}")
    for name, bound in (("factor_low", factor_low), ("factor_high", factor_high)):
        if isinstance(bound, bool) or not isinstance(bound, numbers.Real):
            raise TypeError(f"{name} must be a number, got {bound!r}")
        if not np.isfinite(float(bound)):
            raise ValueError(f"{name} must be finite, got {bound!r}")
    if not factor_low <= factor_high:
        raise ValueError(
            f"factor_low must not exceed factor_high, got {factor_low!r} and {factor_high!r}"
        )
    rng = check_rng(random_state)
    check_memory(3 * 8 * m * n, f"a dense {m} x {n} matrix with its noise", "lower m or n")
    X = rng.uniform(factor_low, factor_high, (m, rank))
    Y = rng.uniform(factor_low, factor_high, (n, rank))
    truth = X @ Y.T
    noisy = truth + noise * rng.chisquare(degrees, (m, n))
    size = max(1, round(density * m * n))
    cells = np.sort(rng.choice(m * n, size=size, replace=False))
    rows, cols = np.divmod(cells, n)
    indptr = np.searchsorted(rows, np.arange(m + 1))
    R = sp.csr_array((noisy[rows, cols], cols.astype(np.int32), indptr), shape=(m, n))
    return SkewedMatrix(R, truth, noisy)
