"""`CensoredCells`: scores of predictions on cells of which some are censored.

A censored value is known to exceed every quantile below its limit; where the quantile is beyond
the limit, the value gives no information. If one limit applies to all cells, the coverage is that
of the cells whose quantile is within the limit, without further assumptions. If limits differ
between cells, it is the Kaplan–Meier estimate, which assumes limits independent of values.

The pinball loss compares min(value, limit) with min(prediction, limit). The smaller of a value and
a constant has the smaller of its quantile and the constant as its quantile, so this is a proper
score where the limit is known for every cell. Other censored values contribute what is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastemf.censoring.kaplan_meier import sort_at_risk
from fastemf.censoring.limits import LEFT, RIGHT, CensoringLimit, residuals_within_limits
from fastemf.support.arrays import Floats, Indices, Mask


@dataclass(frozen=True, eq=False)
class CensoredCells:
    """Cells of which some are censored.

    Parameters
    ----------
    recorded
        The recorded values.
    codes
        Which of them are limits, and on which side of the limit the true value is.
    values
        The same values, each limit replaced by an imputed value.
    limit
        The limit that applies to all cells, if it is known.
    """

    recorded: Floats
    codes: Indices
    values: Floats
    limit: CensoringLimit | None = None

    def select(self, at: Indices) -> CensoredCells:
        """Return some of the cells."""
        return CensoredCells(self.recorded[at], self.codes[at], self.values[at], self.limit)

    @cached_property
    def checkable_range(self) -> tuple[float, float]:
        """The range of quantiles that can be checked; infinite where cells have several limits."""
        if self.limit is not None:
            end = self.limit.value
            return (-np.inf, end) if self.limit.code == RIGHT else (end, np.inf)
        ends = []
        for code in (LEFT, RIGHT):
            limits, others = code * self.recorded[self.codes == code], code * self.recorded
            nearest = limits.min(initial=np.inf)
            is_common = not (others[self.codes == 0] > nearest).any()
            ends.append(code * float(nearest) if is_common else code * np.inf)
        return ends[0], ends[1]

    def is_checkable(self, predicted: Floats) -> Mask:
        """Mark the cells whose predicted quantile lies within the limits common to all cells."""
        low, high = self.checkable_range
        return np.asarray((low < predicted) & (predicted < high))

    def is_known(self, predicted: Floats, part: slice = slice(None)) -> Mask:
        """Mark those of some cells for which the side of the value is known."""
        beyond = self.codes[part] * (self.recorded[part] - predicted) < 0
        return self.is_checkable(predicted) & ~beyond

    def residuals(self, predicted: Floats, part: slice = slice(None)) -> Floats:
        """Compute the known part of the residuals of some cells: both sides end at the limit."""
        low, high = self.checkable_range
        known = np.clip(self.recorded[part], low, high) - np.clip(predicted, low, high)
        return np.asarray(residuals_within_limits(known, self.codes[part]))

    def coverage(self, predicted: Floats, weights: Floats | None, at: Indices) -> float:
        """Estimate the proportion of the cells `at` with a value at or below the prediction.

        Where cells have limits on both sides, left-censored values count as imputed.
        """
        sign, covered, at_risk = self._count_covered(predicted, weights, at)
        beyond = float(np.prod(1 - covered / at_risk))
        return 1 - beyond if sign == RIGHT else beyond

    def efficiency(self, predicted: Floats, weights: Floats | None, at: Indices) -> float:
        """Return the information per cell relative to uncensored cells, by Greenwood's formula."""
        _, covered, at_risk = self._count_covered(predicted, weights, at)
        left = at_risk - covered
        beyond = float(np.prod(left / at_risk))
        if not 0 < beyond < 1:
            return 1.0
        total = at.size if weights is None else float(weights[at].sum())
        variance = beyond**2 * float(np.sum(covered / (at_risk * left)))
        return min(1.0, beyond * (1 - beyond) / (variance * total))

    def _count_covered(
        self, predicted: Floats, weights: Floats | None, at: Indices
    ) -> tuple[int, Floats, Floats]:
        """Return the side, the weights of the observed values covered, and the weights at risk.

        For left-censored cells these are the values above the prediction.
        """
        sign = RIGHT if (self.codes == RIGHT).any() else LEFT
        lost = self.codes[at] == sign
        values = np.where(lost, self.recorded[at], self.values[at])
        v = np.ones(at.size) if weights is None else weights[at]
        r, lost, v, at_risk = sort_at_risk(sign * (values - predicted[at]), lost, v)
        covered = ~lost & ((r <= 0) if sign == RIGHT else (r < 0))
        return sign, v[covered], at_risk[covered]
