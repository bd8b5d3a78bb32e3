"""`CensoredCoverage`: the coverage of a quantile on cells of which some are censored.

A censored value is known to exceed every quantile below its limit; where the quantile is beyond
the limit, the value gives no information. If one limit applies to all cells, the coverage is that
of the cells whose quantile is within the limit, without further assumptions. If limits differ
between cells, it is the Kaplan–Meier estimate, which assumes limits independent of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastemf.censoring.kaplan_meier import sort_at_risk
from fastemf.censoring.limits import LEFT, RIGHT
from fastemf.support.arrays import Floats, Indices, Mask


@dataclass(frozen=True, eq=False)
class CensoredCoverage:
    """Cells of which some are censored.

    Parameters
    ----------
    recorded
        The recorded values.
    codes
        Which of them are limits, and on which side of the limit the true value is.
    values
        The same values, each limit replaced by an imputed value.
    """

    recorded: Floats
    codes: Indices
    values: Floats

    def select(self, at: Indices) -> CensoredCoverage:
        """Return some of the cells."""
        return CensoredCoverage(self.recorded[at], self.codes[at], self.values[at])

    @cached_property
    def checkable_range(self) -> tuple[float, float]:
        """The range of quantiles that can be checked; infinite where cells have several limits."""
        ends = []
        for code in (LEFT, RIGHT):
            limits, others = code * self.recorded[self.codes == code], code * self.recorded
            nearest = limits.min(initial=np.inf)
            is_common = not (others[self.codes == 0] > nearest).any()
            ends.append(code * float(nearest) if is_common else code * np.inf)
        return ends[0], ends[1]

    def is_checkable(self, predicted: Floats) -> Mask:
        """Mark the cells whose predicted quantile can be checked."""
        low, high = self.checkable_range
        return np.asarray((low < predicted) & (predicted < high))

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
