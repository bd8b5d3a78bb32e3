"""The share of random problems that is recovered, by measurements and level.

The measurements are Gaussian and noiseless, and the algorithm is the paper's. The theory asks for
(w₊/w₋)⁴ k³ n log n measurements; the diagram shows how few suffice.
"""

from __future__ import annotations

from fastemf.experiments.recovery import OMEGAS, Grid, measure_grid, recover, relative_error

__all__ = ["run"]

RATIOS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
RECOVERED = 1e-4  # relative error
MAX_ITER = 250


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
    """Measure the share of `trials` square problems recovered in `max_iter` sweeps, by cell.

    Examples
    --------
    >>> from fastemf.experiments import phase_diagram
    >>> grid = phase_diagram.run(6, 1, trials=1, ratios=(4.0,), omegas=(0.5,))
    >>> grid.values.tolist()
    [[1.0]]
    """
    title = f"share of {trials} problems recovered ({size} x {size}, rank {k})"

    def share(p: int, omega: float) -> float:
        problems = (
            recover(size, size, k, p, omega, seed, max_iter, stop=1e-12) for seed in range(trials)
        )
        return sum(relative_error(fit, truth) < RECOVERED for fit, truth in problems) / trials

    return measure_grid("share_recovered", title, ratios, omegas, size, k, share, progress)
