"""`Interval`: where values lie with a given share, by quantiles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.support.validation import check_choice

__all__ = ["Interval", "ends_of", "interval_between"]


class Interval(NamedTuple):
    """Where values lie with a given share, in the data's unit; see `Quantiles.interval`."""

    lower: NDArray[Any]
    """The lower ends; minus infinity for an interval that is open below."""
    upper: NDArray[Any]
    """The upper ends; infinity for one that is open above."""


def ends_of(share: float, side: Any) -> tuple[float | None, float | None]:
    """Return the quantiles that an interval lies between, None where it is open."""
    check_choice(side, "side", ("central", "below", "above"))
    return {
        "central": ((1 - share) / 2, (1 + share) / 2),
        "below": (None, share),
        "above": (1 - share, None),
    }[side]


def interval_between(predicted: NDArray[Any], places: list[int | None]) -> Interval:
    """Make intervals of predictions, whose last axis are quantiles, given those at the ends."""
    nothing = np.isnan(predicted[..., 0])
    lower, upper = (
        np.where(nothing, np.nan, predicted.dtype.type(infinite))
        if at is None
        else predicted[..., at]
        for at, infinite in zip(places, (-np.inf, np.inf), strict=True)
    )
    return Interval(np.asarray(lower), np.asarray(upper))
