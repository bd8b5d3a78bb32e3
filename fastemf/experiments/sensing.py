"""Recovery from noiseless Gaussian measurements: how many are needed, and how fast it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastemf import plot
from fastemf.experiments.report import Report, panels
from fastemf.loss import level_weights
from fastemf.models.factorization import Factorization
from fastemf.operators import Gaussian
from fastemf.sensing.sense import sense
from fastemf.solver.settings import Solver
from fastemf.support.arrays import Floats
from fastemf.support.validation import check_integer, check_rank

OMEGAS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
RECOVERY_RATIOS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
RECOVERED = 1e-4  # relative error
RATE_RATIOS = (2.0, 3.0, 6.0)
SETTLED = 5  # sweeps before the factor is steady


class Problem(NamedTuple):
    """Square matrices of a rank, and how many random ones are measured."""

    size: int = 20
    k: int = 2
    trials: int = 10


def recover(
    problem: Problem, p: int, omega: float, seed: int, max_iter: int, stop: float
) -> tuple[Factorization, Floats]:
    """Fit p noiseless Gaussian measurements by Algorithm 1 of the paper; return fit and truth.

    Sweeps end when the loss is below `stop` times that of a zero matrix.
    """
    rng = np.random.default_rng(seed)
    n, k, _ = problem
    X, Y = rng.standard_normal((n, k)), rng.standard_normal((n, k))
    A = Gaussian(p, (n, n), seed)
    b = A.forward(X, Y)
    limit = stop * min(level_weights(omega)) * float(b @ b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # too few measurements or sweeps are intended
        fit = sense(
            A, b, omega, k, solver=Solver(momentum=False, anneal=False), max_iter=max_iter, tol=0,
            callback=lambda record: record.loss < limit,
        )  # fmt: skip
    return fit, X @ Y.T


def relative_error(fit: Factorization, truth: Floats) -> float:
    """Return ‖M̂ − M*‖ / ‖M*‖."""
    return float(np.linalg.norm(fit.to_dense() - truth) / np.linalg.norm(truth))


@dataclass(frozen=True, eq=False)
class Grid:
    """One number for each ratio p / dof and level ω."""

    name: str
    title: str
    ratios: tuple[float, ...]
    omegas: tuple[float, ...]
    values: Floats  # ratios × omegas

    def rows(self) -> list[dict[str, Any]]:
        """Return one line per cell, for the CSV file."""
        return [
            {"p_over_dof": ratio, "omega": omega, "measure": self.name, "value": float(value)}
            for ratio, row in zip(self.ratios, self.values, strict=True)
            for omega, value in zip(self.omegas, row, strict=True)
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return one line per ratio, for the report."""
        return [
            {"p/dof": f"{ratio:g}"}
            | {
                f"ω = {omega:g}": float(value)
                for omega, value in zip(self.omegas, row, strict=True)
            }
            for ratio, row in zip(self.ratios, self.values, strict=True)
        ]


def measure_grid(
    name: str,
    title: str,
    problem: Problem,
    measure: Callable[[int, float], float],
    ratios: Sequence[float],
    *,
    omegas: Sequence[float] = OMEGAS,
    progress: bool = False,
) -> Grid:
    """Fill a grid with ``measure(measurements, level)``."""
    from tqdm.auto import tqdm

    size, k, _ = problem
    values = np.zeros((len(ratios), len(omegas)))
    freedom = k * (2 * size - k)  # of a matrix of rank k
    with tqdm(total=values.size, unit="cell", disable=not progress) as bar:
        for (i, j), _ in np.ndenumerate(values):
            values[i, j] = measure(round(ratios[i] * freedom), omegas[j])
            bar.update()
    title = f"{title} ({size} x {size}, rank {k})"
    return Grid(name, title, tuple(ratios), tuple(omegas), values)


def phase_diagram(
    problem: Problem, ratios: Sequence[float] = RECOVERY_RATIOS, max_iter: int = 250, **grid: Any
) -> Grid:
    """Measure the proportion of problems that are recovered, by measurements and level.

    The theory requires (w₊/w₋)⁴ k³ n log n measurements; far fewer suffice. `grid` are the options
    `omegas` and `progress` of `measure_grid`.

    Examples
    --------
    >>> from fastemf.experiments.sensing import Problem, phase_diagram
    >>> grid = phase_diagram(Problem(6, 1, trials=1), ratios=(4.0,), omegas=(0.5,))
    >>> grid.values.tolist()
    [[1.0]]
    """
    trials = problem.trials

    def proportion(p: int, omega: float) -> float:
        fits = (recover(problem, p, omega, seed, max_iter, stop=1e-12) for seed in range(trials))
        return sum(relative_error(fit, truth) < RECOVERED for fit, truth in fits) / trials

    title = f"proportion of {trials} problems recovered"
    return measure_grid("share_recovered", title, problem, proportion, ratios, **grid)


def convergence_rate(
    problem: Problem, ratios: Sequence[float] = RATE_RATIOS, max_iter: int = 100, **grid: Any
) -> Grid:
    """Measure the median error factor per sweep, by measurements and level.

    The error of Algorithm 1 decreases geometrically. The loss is quadratic in the error, so the
    factor is the square root of that of the loss. `grid` is as in `phase_diagram`.

    Examples
    --------
    >>> from fastemf.experiments.sensing import Problem, convergence_rate
    >>> grid = convergence_rate(Problem(5, 1, trials=1), ratios=(6.0,), omegas=(0.5,))
    >>> bool(0 < grid.values[0, 0] < 0.6)
    True
    """

    def factor(p: int, omega: float) -> float:
        factors = []
        for seed in range(problem.trials):
            fit, _ = recover(problem, p, omega, seed, max_iter, stop=1e-20)
            losses = [record.loss for record in fit.history]
            first = min(SETTLED, len(losses) - 2)
            power = 0.5 / (len(losses) - 1 - first)
            factors.append((losses[-1] / losses[first]) ** power)
        return float(np.median(factors))

    title = f"error factor per sweep, median of {problem.trials} problems"
    return measure_grid("error_factor", title, problem, factor, ratios, **grid)


def run(*, size: int = 20, rank: int = 2, repeats: int = 10, progress: bool = False) -> Report:
    """Measure the phase diagram and the convergence rate of square problems."""
    check_integer(size, "size", minimum=1)
    check_rank(rank, (size, size), "rank")
    check_integer(repeats, "repeats", minimum=1)
    problem = Problem(size, rank, repeats)
    recovered = phase_diagram(problem, progress=progress)
    factors = convergence_rate(problem, progress=progress)
    report = Report(
        "sensing",
        "Recovery from linear measurements",
        [
            f"Noiseless Gaussian measurements of {size} × {size} matrices of rank {rank}, "
            f"{repeats} random problems per number, Algorithm 1 exactly as in the paper. "
            "Degrees of freedom: k (m + n − k)."
        ],
        rows=[*recovered.rows(), *factors.rows()],
    )
    figure, (ax,) = panels(1, height=4.4)
    plot.phase_diagram(recovered.values, recovered.ratios, recovered.omegas, ax=ax)
    ax.set_title(recovered.title, fontsize=11)
    report.figure("phase_diagram", figure, f"{recovered.title.capitalize()}.")
    figure, (ax,) = panels(1)
    curves = {
        f"{ratio:g} measurements per degree of freedom": row
        for ratio, row in zip(factors.ratios, factors.values, strict=True)
    }
    plot.against_level(curves, factors.omegas, label="error factor per sweep", ax=ax)
    ax.set_title(factors.title, fontsize=11)
    report.figure("convergence_rate", figure, f"{factors.title.capitalize()}.")
    for grid in (recovered, factors):
        report.table(grid.title, grid.table())
    return report
