"""The latest observations, and weights that decrease with the age of an observation."""

from __future__ import annotations

import math

import numpy as np

from fastemf.sources.memory import Observations
from fastemf.support.arrays import Floats, Mask

LATEST = 0.1  # proportion of the observations
MOST_LATEST = 0.5
MOST_HALVINGS = 30.0  # so that the weights of the oldest observations are not too small


def times_of(observed: Observations) -> Floats:
    """Return the times of observations that have some."""
    assert observed.times is not None
    return observed.times.values


def has_latest(times: Floats) -> bool:
    """Return whether at least half of the observations are earlier than the latest ones."""
    return bool(np.mean(times == times.max()) <= MOST_LATEST)


def latest_from(times: Floats) -> float:
    """Return the time from which observations are the latest tenth.

    Observations of equal time stay together. Of all distinct times it is the one that leaves the
    proportion closest to a tenth, and at most half.
    """
    distinct, counts = np.unique(times, return_counts=True)
    proportions = np.cumsum(counts[::-1])[::-1] / times.size
    if not has_latest(times):
        raise ValueError(
            "time must tell the latest tenth of the observations from earlier ones, got "
            f"{counts[-1]} of {times.size} observations at the latest time, {distinct[-1]:g}"
        )
    possible = np.flatnonzero(proportions <= MOST_LATEST)
    return float(distinct[possible[np.argmin(np.abs(proportions[possible] - LATEST))]])


def weigh_by_age(observed: Observations, half_life: float) -> Observations:
    """Multiply the weights by 2^(−age / half-life), where age is the time before the latest one.

    The latest observations keep their weights, so that the sum of the weights still measures how
    much is known. An infinite half-life changes nothing.
    """
    if math.isinf(half_life):
        return observed
    times = times_of(observed)
    with np.errstate(over="ignore"):
        halvings = np.minimum((times.max() - times) / half_life, MOST_HALVINGS)
    weights, values = observed.by_row.weights, observed.by_row.values
    decreasing = 0.5**halvings * (weights if weights.size else 1.0)
    return observed.reweight(decreasing.astype(values.dtype))


def of_known_items(observed: Observations, earlier: Observations) -> Mask:
    """Mark the observations whose row and column have earlier observations."""
    side = observed.by_row
    return np.asarray(
        (earlier.by_row.mass[side.keys] > 0) & (earlier.by_col.mass[side.indices] > 0)
    )
