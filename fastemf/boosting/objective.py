"""`Objective`: the loss that a boosted model minimizes, for a quantile or for an expectile."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.statistics import mean_pinball, quantile
from fastemf.loss import expectile, expectile_loss, sign_weights
from fastemf.support.arrays import Floats

QUANTILE, EXPECTILE = "quantile", "expectile"


class Objective(NamedTuple):
    """The pinball loss at a quantile, or the expectile loss at a level."""

    kind: str
    level: float  # τ or ω

    def losses(self, residuals: Floats) -> Floats:
        """Compute the loss of each residual."""
        sizes = np.abs(residuals) if self.kind == QUANTILE else residuals**2
        return np.asarray(sign_weights(residuals, self.level) * sizes)

    def loss(self, residuals: Floats, weights: Floats | None = None) -> float:
        """Compute the mean loss of residuals."""
        if self.kind == QUANTILE:
            return mean_pinball(residuals, self.level, weights)
        total = expectile_loss(residuals, self.level, weights)
        return total / (residuals.size if weights is None else float(np.sum(weights)))

    def centre(self, values: Floats, weights: Floats | None = None) -> float:
        """Return the constant with the smallest loss."""
        if self.kind == QUANTILE:
            return quantile(values, self.level, weights)
        return expectile(values, self.level, weights)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of LightGBM that state the loss."""
        if self.kind == QUANTILE:
            return {"objective": "quantile", "alpha": self.level}
        return {"objective": "custom"}

    @property
    def derivatives(self) -> Any:
        """The function that LightGBM needs for a loss that it does not have."""
        return None if self.kind == QUANTILE else self._derivatives

    def _derivatives(self, predicted: Floats, data: Any) -> tuple[Floats, Floats]:
        """Return the first and second derivatives by the prediction."""
        r = data.get_label().astype(np.float64) - predicted
        w = sign_weights(r, self.level)
        return -2 * w * r, 2 * w
