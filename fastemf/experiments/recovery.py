"""Common parts of the recovery experiments: random problems, the paper's algorithm, tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.model.factorization import Factorization
from fastemf.operators import Gaussian
from fastemf.sensing.sense import sense

__all__ = ["OMEGAS", "Grid", "degrees_of_freedom", "measure_grid", "recover", "relative_error"]


OMEGAS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def degrees_of_freedom(m: int, n: int, k: int) -> int:
    """Return how many numbers determine an m × n matrix of rank k: k (m + n − k)."""
    return k * (m + n - k)


def recover(
    m: int, n: int, k: int, p: int, omega: float, seed: int, max_iter: int, stop: float
) -> tuple[Factorization, NDArray[np.float64]]:
    """Fit noiseless Gaussian measurements by Algorithm 1 to the letter; return fit and truth.

    It ends when the loss is below `stop` times that of fitting nothing.
    """
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    A = Gaussian(p, (m, n), seed)
    b = A.forward(X, Y)
    limit = stop * min(omega, 1 - omega) * float(b @ b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # too few measurements or sweeps: the point
        fit = sense(
            A, b, omega, k, momentum=False, anneal=False, max_iter=max_iter, tol=0,
            callback=lambda record: record.loss < limit,
        )  # fmt: skip
    return fit, X @ Y.T


def relative_error(fit: Factorization, truth: NDArray[np.float64]) -> float:
    """Return ‖M̂ − M*‖ / ‖M*‖."""
    return float(np.linalg.norm(fit.to_dense() - truth) / np.linalg.norm(truth))


@dataclass(frozen=True, eq=False)
class Grid:
    """One number for every (p / dof, ω)."""

    name: str
    title: str
    ratios: tuple[float, ...]
    omegas: tuple[float, ...]
    values: NDArray[np.float64]  # ratios × omegas

    def rows(self) -> list[dict[str, Any]]:
        """Return one line per cell, for a CSV."""
        return [
            {"p_over_dof": ratio, "omega": omega, "measure": self.name, "value": float(value)}
            for ratio, row in zip(self.ratios, self.values, strict=True)
            for omega, value in zip(self.omegas, row, strict=True)
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return one line per ratio, for a reader."""
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
    ratios: tuple[float, ...],
    omegas: tuple[float, ...],
    size: int,
    k: int,
    cell: Callable[[int, float], float],
    progress: bool,
) -> Grid:
    """Fill a grid with ``cell(measurements, level)`` for square problems."""
    from tqdm.auto import tqdm

    values = np.zeros((len(ratios), len(omegas)))
    with tqdm(total=values.size, unit="cell", disable=not progress) as bar:
        for i, ratio in enumerate(ratios):
            p = round(ratio * degrees_of_freedom(size, size, k))
            for j, omega in enumerate(omegas):
                values[i, j] = cell(p, omega)
                bar.update()
    return Grid(name, title, ratios, omegas, values)
