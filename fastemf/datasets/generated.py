"""Generated data: the skewed matrix of the paper, and a log of response times."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_integer, check_number, check_rank, check_rng

REGIONS = ("ap", "eu", "sa", "us")
SERVICES = ("auth", "cart", "checkout", "images", "mail", "search", "stock", "video")
SIGMA = 0.7  # of the log-normal noise: p99 is five times the median


class LatencyLog(NamedTuple):
    """Columns of a log with one line per call; ``pandas.DataFrame(log._asdict())`` is a table."""

    client: Array
    """Name of the client, such as ``"eu-7"``."""
    service: Array
    """Name of the service, such as ``"checkout-2"``."""
    ms: Floats
    """Response time in milliseconds."""


def make_latencies(
    clients: int = 200, services: int = 60, calls: int = 5000, *, random_state: Any = None
) -> LatencyLog:
    """Generate response times of calls from clients to services, with a long right tail.

    The median of a pair is the distance of the client, plus the work of the service, plus the
    product of the load of the client and the size of the service. It is multiplied by log-normal
    noise. Frequent pairs occur more than once, most pairs never. Every client and every service
    occurs, if there are enough calls.

    Parameters
    ----------
    clients, services
        Number of each.
    calls
        Number of lines.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> from fastemf.datasets import make_latencies
    >>> log = make_latencies(calls=1000, random_state=0)
    >>> log.ms.size, bool(log.ms.mean() > 1.2 * sorted(log.ms)[500])
    (1000, True)
    """
    m = check_integer(clients, "clients", minimum=1)
    n = check_integer(services, "services", minimum=1)
    size = check_integer(calls, "calls", minimum=1)
    rng = check_rng(random_state)
    needed = 8 * (m + n) * 8 + size * 8 * 8  # names have a few characters of four bytes each
    check_memory(needed, f"a log of {size} calls", "lower clients, services or calls")
    client_names = np.array([f"{REGIONS[i % 4]}-{i // 4}" for i in range(m)])
    service_names = np.array(
        [SERVICES[j] if j < 8 else f"{SERVICES[j % 8]}-{j // 8 + 1}" for j in range(n)]
    )
    distance = np.array([80.0, 30.0, 120.0, 15.0])[np.arange(m) % 4] * rng.uniform(0.7, 1.3, m)
    work, load, extent = rng.gamma(2, 15, n), rng.gamma(2, 0.5, m), rng.gamma(1, 60, n)
    popular = rng.pareto(1.5, n) + 0.2
    i = rng.integers(m, size=size)
    j = rng.choice(n, size=size, p=popular / popular.sum())
    _include_all(i, m)
    _include_all(j, n)
    ms = (distance[i] + work[j] + load[i] * extent[j]) * rng.lognormal(0, SIGMA, size)
    return LatencyLog(client_names[i], service_names[j], np.round(ms, 1))


def _include_all(codes: Ints, n: int) -> None:
    """Replace repeated codes by those from 0 to n that do not occur, in place."""
    present, first = np.unique(codes, return_index=True)
    absent = np.setdiff1d(np.arange(n), present)
    repeated = np.setdiff1d(np.arange(codes.size), first)[: absent.size]
    codes[repeated] = absent[: repeated.size]


class SkewedMatrix(NamedTuple):
    """A generated matrix: the sample, the noiseless matrix and all noisy entries."""

    R: Any
    """Sampled noisy entries, a CSR array."""
    truth: Floats
    """The low-rank matrix without noise."""
    noisy: Floats
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
    """Generate the synthetic data of the paper: a sample of a low-rank matrix plus skewed noise.

    Parameters
    ----------
    m, n
        Rows and columns.
    rank
        Rank of the noiseless matrix.
    density
        Proportion of sampled cells in (0, 1]: exactly ``round(density * m * n)`` cells, at least
        one.
    noise
        Factor of the χ² noise; 0 for noiseless data.
    degrees
        Degrees of freedom of the χ² distribution.
    factor_low, factor_high
        Range of the uniformly distributed entries of the factors.
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
