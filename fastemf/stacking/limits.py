"""`Limits`: what can be checked of a quantile where some values are only known to lie beyond one.

A value that was cut at a limit is known to exceed every quantile short of it, and nothing is known
where the quantile lies beyond. If one limit holds for all cells, the share at or below is that of
the cells whose quantile lies short of it, which assumes nothing. If limits differ from cell to cell
it is Kaplan and Meier's estimate, which takes them to be independent of the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.censoring import LEFT, RIGHT
from fastemf.stacking.shrunk_quantile import Floats

__all__ = ["Limits"]


@dataclass(frozen=True, eq=False)
class Limits:
    """Observations of which some are censored.

    Parameters
    ----------
    given
        What was recorded.
    codes
        Which of it are limits, and in which direction the truth lies.
    values
        The same with every limit replaced by a value beyond it.
    """

    given: Floats
    codes: NDArray[np.integer]
    values: Floats

    @cached_property
    def sight(self) -> tuple[float, float]:
        """Between which values quantiles can be checked; infinite where no one limit holds."""
        ends = []
        for code in (LEFT, RIGHT):
            limits, others = code * self.given[self.codes == code], code * self.given
            nearest = limits.min(initial=np.inf)
            one_for_all = not (others[self.codes == 0] > nearest).any()
            ends.append(code * float(nearest) if one_for_all else code * np.inf)
        return ends[0], ends[1]

    def in_sight(self, predicted: Floats) -> NDArray[np.bool_]:
        """Mark the observations whose quantile can be checked."""
        low, high = self.sight
        return np.asarray((low < predicted) & (predicted < high))

    def share_below(
        self, predicted: Floats, weights: Floats | None, at: NDArray[np.integer]
    ) -> float:  # fmt: skip
        """Estimate the share at or below what was predicted, of the observations `at`.

        Where limits are of both kinds, those on the left count as what they were replaced by.
        """
        sign, reached, at_risk = self._reached(predicted, weights, at)
        beyond = float(np.prod(1 - reached / at_risk))
        return 1 - beyond if sign == RIGHT else beyond

    def worth(
        self, predicted: Floats, weights: Floats | None, at: NDArray[np.integer]
    ) -> float:  # fmt: skip
        """Return what one of the observations `at` tells of the share, of one that is no limit.

        This is by Greenwood's variance of the estimate.
        """
        _, reached, at_risk = self._reached(predicted, weights, at)
        left = at_risk - reached
        beyond = float(np.prod(left / at_risk))
        if not 0 < beyond < 1:
            return 1.0
        total = at.size if weights is None else float(weights[at].sum())
        variance = beyond**2 * float(np.sum(reached / (at_risk * left)))
        return min(1.0, beyond * (1 - beyond) / (variance * total))

    def _reached(
        self, predicted: Floats, weights: Floats | None, at: NDArray[np.integer]
    ) -> tuple[int, Floats, Floats]:  # fmt: skip
        """Find the weight of those that lie at or below, one by one, and what was left till then.

        Where limits are on the left, these are those that lie above.
        """
        sign = RIGHT if (self.codes == RIGHT).any() else LEFT
        lost = self.codes[at] == sign
        values = np.where(lost, self.given[at], self.values[at])
        e = sign * (values - predicted[at])
        v = np.ones(e.size) if weights is None else weights[at]
        order = np.lexsort((lost, e))  # of equal ones, those observed come first
        e, lost, v = e[order], lost[order], v[order]
        at_risk = np.cumsum(v[::-1])[::-1]
        reached = ~lost & ((e <= 0) if sign == RIGHT else (e < 0))
        return sign, v[reached], at_risk[reached]
