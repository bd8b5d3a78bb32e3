"""The factor by which the error falls per sweep, by measurements and level.

The measurements are Gaussian and noiseless, and the algorithm is the paper's, whose error falls
geometrically. The loss is quadratic in the error, so the factor is the square root of the
loss's.
"""

from __future__ import annotations

import numpy as np

from fastemf.experiments.recovery import OMEGAS, Grid, measure_grid, recover

__all__ = ["run"]

RATIOS = (2.0, 3.0, 6.0)
SETTLED = 5  # sweeps before the factor is steady
MAX_ITER = 100


def run(
    size: int = 20,
    k: int = 2,
    trials: int = 10,
    *,
    ratios: tuple[float, ...] = RATIOS,
    omegas: tuple[float, ...] = OMEGAS,
    max_iter: int = MAX_ITER,
    progress: bool = False,
) -> Grid:
    """Measure the median error factor per sweep over `trials` square problems, in every cell.

    Examples
    --------
    >>> from fastemf.experiments import convergence_rate
    >>> grid = convergence_rate.run(5, 1, trials=1, ratios=(6.0,), omegas=(0.5,))
    >>> bool(0 < grid.values[0, 0] < 0.6)
    True
    """
    title = f"error factor per sweep, median of {trials} problems ({size} x {size}, rank {k})"

    def factor(p: int, omega: float) -> float:
        factors = [_factor(size, k, p, omega, seed, max_iter) for seed in range(trials)]
        return float(np.median(factors))

    return measure_grid("error_factor", title, ratios, omegas, size, k, factor, progress)


def _factor(size: int, k: int, p: int, omega: float, seed: int, max_iter: int) -> float:
    fit, _ = recover(size, size, k, p, omega, seed, max_iter, stop=1e-20)
    losses = [record.loss for record in fit.history]
    first = min(SETTLED, len(losses) - 2)
    return float((losses[-1] / losses[first]) ** (0.5 / (len(losses) - 1 - first)))
