"""`LevelSearch`: the next level to try, on the way to one that leaves a wanted share below."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["LevelSearch", "logit"]

OUTERMOST = 0.999  # levels from 0.001 to this one are searched
CLOSE = 0.5  # standard errors of the share: the held-out cells cannot tell closer ones apart
NARROW = 1e-3  # levels whose logits are this close count as one
OVERSHOOT = 1.25  # steps of the logit are this much longer until two levels bracket the share
STEP = 3.0  # the longest step of the logit


class LevelSearch:
    """The search for the level: secants on logit scales, where shares are nearly straight."""

    def __init__(self, wanted: float, standard_error: float, cells: float) -> None:
        self._wanted = wanted
        self._close = CLOSE * standard_error
        self._finest = 0.5 / cells  # a share of 0 or 1 has no logit
        self._below: _Point | None = None
        self._above: _Point | None = None
        self.out_of_reach = False

    def following(self, omega: float, share: float) -> float | None:
        """Propose the level to try after this one; None when it is found, or none is left."""
        if abs(share - self._wanted) <= self._close:
            return None
        off = logit(float(np.clip(share, self._finest, 1 - self._finest))) - logit(self._wanted)
        here = _Point(logit(omega), off)
        if off < 0:
            before, self._below = self._below, here
        else:
            before, self._above = self._above, here
        if self._below and self._above:
            return self._between(self._below, self._above)
        return self._beyond(here, before)

    def _between(self, low: _Point, high: _Point) -> float | None:
        if high.logit - low.logit < NARROW:
            return None
        # Keep away from the ends, or on a curved line the search would creep towards one of them.
        place = float(np.clip(low.off / (low.off - high.off), 0.1, 0.9))
        return _level(low.logit + place * (high.logit - low.logit))

    def _beyond(self, here: _Point, before: _Point | None) -> float | None:
        limit = logit(OUTERMOST)
        if abs(here.logit) > limit - NARROW:
            self.out_of_reach = True
            return None
        slope = 1.0
        if before is not None:
            slope = (here.off - before.off) / (here.logit - before.logit)
        steepest = OVERSHOOT * abs(here.off) / STEP  # a flatter line leads further than a step
        step = OVERSHOOT * here.off / max(slope, steepest)
        return _level(float(np.clip(here.logit - step, -limit, limit)))


class _Point(NamedTuple):
    logit: float  # of the level
    off: float  # logit of the share, minus that of the wanted one


def logit(share: float) -> float:
    """Compute the logarithm of the odds."""
    return float(np.log(share / (1 - share)))


def _level(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
