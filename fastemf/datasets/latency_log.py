"""A generated log of response times, for the first steps with a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.support.memory import check_memory
from fastemf.support.validation import check_integer, check_rng

__all__ = ["LatencyLog", "make_latencies"]

REGIONS = ("ap", "eu", "sa", "us")
SERVICES = ("auth", "cart", "checkout", "images", "mail", "search", "stock", "video")
SIGMA = 0.7  # of the log-normal noise: the slowest of a hundred calls takes five times the median


class LatencyLog(NamedTuple):
    """One line per call, as three columns; ``pandas.DataFrame(log._asdict())`` makes a table."""

    client: NDArray[Any]
    """Who called, such as ``"eu-7"``."""
    service: NDArray[Any]
    """Who answered, such as ``"checkout-2"``."""
    ms: NDArray[np.float64]
    """How long that took, in milliseconds."""


def make_latencies(
    clients: int = 200, services: int = 60, calls: int = 5000, *, random_state: Any = None
) -> LatencyLog:
    """Generate response times of calls from clients to services, with a long right tail.

    The median of a pair is the way to the client, plus the service's work, plus a
    product of the client's load and the service's size; noise multiplies it. Busy
    pairs occur more than once, most never.

    Parameters
    ----------
    clients, services
        How many of each; a few may not occur in the log.
    calls
        Lines of the log.
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
    taken = 8 * (m + n) * 8 + size * 8 * 8  # names are a few characters of four bytes each
    check_memory(taken, f"a log of {size} calls", "lower clients, services or calls")
    client_names = np.array([f"{REGIONS[i % 4]}-{i // 4}" for i in range(m)])
    service_names = np.array(
        [SERVICES[j] if j < 8 else f"{SERVICES[j % 8]}-{j // 8 + 1}" for j in range(n)]
    )
    way = np.array([80.0, 30.0, 120.0, 15.0])[np.arange(m) % 4] * rng.uniform(0.7, 1.3, m)
    work, load, extent = rng.gamma(2, 15, n), rng.gamma(2, 0.5, m), rng.gamma(1, 60, n)
    popular = rng.pareto(1.5, n) + 0.2
    i = rng.integers(m, size=size)
    j = rng.choice(n, size=size, p=popular / popular.sum())
    ms = (way[i] + work[j] + load[i] * extent[j]) * rng.lognormal(0, SIGMA, size)
    return LatencyLog(client_names[i], service_names[j], np.round(ms, 1))
