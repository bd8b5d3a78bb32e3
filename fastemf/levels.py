"""`complete_levels`: several expectile levels of one matrix, which never cross."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.completion import complete
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.observations.source import Source
from fastemf.solver.opening import source_of
from fastemf.support.validation import check_levels, check_rng
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce, warn

__all__ = ["complete_levels", "fit_near"]


def complete_levels(
    R: Any,
    omegas: Iterable[float],
    k: int,
    *,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    shape: tuple[int, int] | None = None,
    reg: Any = "auto",
    intercepts: bool = False,
    tol: float = 1e-5,
    max_iter: int = 100,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    client: Any = None,
    progress: bool = False,
) -> Levels:
    """Fit a low-rank matrix at each of several expectile levels; their predictions never cross.

    The level farthest from the data's tail (the lowest, where the tail is to the right) is
    fitted as by `complete`: it settles soonest. The others follow in their order, each from its
    neighbour's fit, to the same tolerance. That takes fewer sweeps than starting each anew, and
    ends about as low, though not at the same bits. A cell's predictions are then sorted
    across the levels, which is never worse than leaving them as they are: see `Levels`.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes; read once for all levels.
    omegas
        Two or more different levels in (0, 1), in any order. A level is not a quantile:
        for "95 % of the values below", see `level_for_coverage`.
    k
        Rank of each level's fit.
    rows, cols, values, weights, shape, reg, intercepts, tol, random_state, n_jobs, client, progress
        As in `complete`. With ``reg="auto"`` each level's ridge follows its own residuals.
    max_iter
        Most sweeps to do at each level.

    Returns
    -------
    Levels

    Warns
    -----
    ConvergenceWarning
        Once, with the levels that did not reach `tol`.
    UserWarning
        As in `complete`, once for all levels.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> levels = fastemf.complete_levels(R, (0.1, 0.5, 0.9), k=2)
    >>> levels.predict([3, 4, 5, 6], 7).shape  # a column per level
    (4, 3)
    >>> bool((levels.spread([3, 4], 7) >= 0).all())
    True
    """
    wanted = check_levels(omegas)
    rng = check_rng(random_state)
    settings = {
        "reg": reg, "intercepts": intercepts, "tol": tol, "max_iter": max_iter,
        "random_state": rng, "n_jobs": n_jobs, "progress": progress,
    }  # fmt: skip
    fit: Factorization | None = None
    fits: dict[float, Factorization] = {}
    with (
        source_of(R, weights, shape, (rows, cols, values), client, n_jobs) as observations,
        PassedOnOnce(leave_out=ConvergenceWarning),
    ):
        for omega in wanted if _tail_is_right(observations) else reversed(wanted):
            fit = fits[omega] = fit_near(fit, observations, omega, k, settings)
    open_ended = [omega for omega in wanted if not fits[omega].converged]
    if open_ended:
        names = ", ".join(f"{omega:g}" for omega in open_ended)
        warn(
            f"{len(open_ended)} of {len(wanted)} levels did not settle within max_iter={max_iter} "
            f"sweeps ({names}); raise max_iter or tol",
            ConvergenceWarning,
        )
    return Levels(tuple(fits[omega] for omega in wanted))


def fit_near(
    neighbour: Factorization | None,
    observations: Source,
    omega: float,
    k: int,
    settings: dict[str, Any],
) -> Factorization:
    """`complete` at one level, from another level's fit where there is one."""
    if neighbour is None:
        return complete(observations, omega, k, **settings)
    # Annealing is for rough starts: it would lead away from this one.
    return complete(observations, omega, k, init=neighbour, anneal=False, **settings)


def _tail_is_right(observations: Source) -> bool:
    """The sign of the values' third central moment."""
    mean = observations.expectile(0.5)
    spread = observations.rms(mean) or 1.0  # in whose unit a cube cannot overflow
    return bool(observations.by_row.sums(_cubes, mean, spread) >= 0)


def _cubes(values: NDArray[Any], weights: NDArray[Any], mean: float, spread: float) -> float:
    cubes = ((values.astype(np.float64) - mean) / spread) ** 3
    return float(np.sum(cubes * weights if weights.size else cubes))
