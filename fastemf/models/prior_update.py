"""Updates of factors by new observations, with the earlier factors as their prior.

The earlier observations are not stored. Around the earlier solution x₀ of row i, their part of the
objective is approximated by nᵢ (x − x₀)ᵀ M (x − x₀), where nᵢ is their number, and

    M = w̄ Σ_j n_j q_j y_j y_jᵀ / Σ_j n_j + λ̄ I

is the same for all rows: the mean Gram matrix of the columns at their noise weights q, times the
mean sign weight w̄ of the new observations, and the mean ridge of an observation. With M = V E Vᵀ,
the new observations and d = E^½ Vᵀ (x − x₀) are a problem that the kernels solve:

    min Σ_new q_j v ρ(r − dᵀ E^−½ Vᵀ y_j) + nᵢ ‖d‖²

where r are the residuals of x₀. Columns are updated likewise. Rows and columns without earlier
observations are solved as in `fold_in`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastemf.kernels.threads import single_threaded_blas
from fastemf.loss import sign_weights
from fastemf.models.entities import Entities
from fastemf.models.factorization import Factorization
from fastemf.models.fold_in import solve_axis, unweighted_engine
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.weighting import Pair, Weighting
from fastemf.sources.memory import Observations, observe
from fastemf.support.arrays import Floats, Ints, Mask

ROUNDS = 2  # of rows and columns: the first may lack observations with new ones on both sides
SMALLEST = 1e-10  # eigenvalue of M, relative to the largest


class NewCells(NamedTuple):
    """New observations, by position in a model that has all of their rows and columns."""

    shape: tuple[int, int]
    rows: Ints
    cols: Ints
    values: Floats
    weights: Floats | None

    def select(self, mask: Mask) -> NewCells:
        """Return some of the observations."""
        weights = None if self.weights is None else self.weights[mask]
        return NewCells(self.shape, self.rows[mask], self.cols[mask], self.values[mask], weights)

    def observe(self, dtype: np.dtype, values: Floats, n_threads: int) -> Observations:
        """Group the observations, with other values, by row and by column."""
        given = (self.rows, self.cols, values.astype(dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of zeros, which residuals may be
            return observe(given, weights=self.weights, shape=self.shape, n_threads=n_threads)


def update_factors(
    fit: Factorization, cells: NewCells, masses: Pair, n_threads: int
) -> Factorization:
    """Update the factors of a fit, given the numbers of its earlier observations by item."""
    earlier = fit.axes
    masses = masses[0].copy(), masses[1].copy()
    for side, mass in zip(earlier, masses, strict=True):
        mass[side.unseen] = 0  # in this fold
    informed = [mass > 0 for mass in masses]
    for axis in (0, 1) * ROUNDS:
        others = (cells.cols, cells.rows)[axis]
        usable = cells.select(informed[1 - axis][others])
        if not usable.values.size:
            continue
        own = (usable.rows, usable.cols)[axis]
        observed = np.zeros(cells.shape[axis], bool)
        observed[own] = True
        updated = _update_known(fit, earlier, axis, usable, masses, n_threads)
        is_new = observed & (masses[axis] == 0)
        if is_new.any():
            updated = _replace_new(fit, axis, updated, usable, is_new, n_threads)
        informed[axis] |= observed
        updated = replace(updated, unseen=np.flatnonzero(~informed[axis]))
        rows, cols = (updated, fit.cols) if axis == 0 else (fit.rows, updated)
        fit = replace(fit, rows=rows, cols=cols)
    return replace(fit, history=())


def _update_known(
    fit: Factorization, earlier: tuple[Entities, Entities], axis: int, cells: NewCells,
    masses: Pair, n_threads: int,
) -> Entities:  # fmt: skip
    """Solve for the items of one side with the earlier ones as their prior."""
    start, fixed = earlier[axis], fit.axes[1 - axis]
    extended = start.extended_factor()
    others = fixed.factor.astype(np.float64)
    own, other = (cells.rows, cells.cols) if axis == 0 else (cells.cols, cells.rows)
    residuals = cells.values.astype(np.float64)
    if fixed.intercepts is not None:
        others = np.column_stack([others, np.ones(fixed.size)])
        residuals = residuals - (fit.mu + fixed.intercepts[other])
    residuals -= np.einsum("ij,ij->i", extended[own], others[other], dtype=np.float64)
    scales, ridge = _scales(fit, axis, masses)
    weights = sign_weights(residuals, fit.omega) * scales[other]
    if cells.weights is not None:
        weights = weights * cells.weights
    mean_weight = float(weights.sum() / np.sum(scales[other] * _ones_or(cells)))
    with single_threaded_blas():
        W = _whiten(others, start.k, masses[1 - axis], scales, mean_weight, ridge)
        rotated = (others @ W).astype(start.factor.dtype)
    ones = np.ones(start.size)
    observations = (ones, scales) if axis == 0 else (scales, ones)
    engine = CompletionEngine(
        cells.observe(start.factor.dtype, residuals, n_threads), fit.omega, mu=None,
        weighting=Weighting(masses, masses, observations), n_threads=n_threads,
    )  # fmt: skip
    nothing = np.zeros((start.size, rotated.shape[1]), start.factor.dtype)
    moved = engine.solve(axis, nothing, rotated, Ridge(1.0, 0.0)).factor
    with single_threaded_blas():
        found = extended + moved.astype(np.float64) @ W.T
    known = masses[axis] > 0
    found = np.where(known[:, None], found, fit.axes[axis].extended_factor())
    solved = Entities.from_extended(found.astype(start.factor.dtype), start.k)
    return replace(solved, noise=fit.axes[axis].noise)


def _replace_new(
    fit: Factorization, axis: int, updated: Entities, cells: NewCells, is_new: Mask, n_threads: int
) -> Entities:
    """Solve for the items without earlier observations as those of new ones."""
    cells = cells.select(is_new[(cells.rows, cells.cols)[axis]])
    observed = cells.observe(updated.factor.dtype, cells.values, n_threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # all other items have no observations
        solved = solve_axis(fit, observed, axis, unweighted_engine(fit, observed, n_threads))
    factor = np.where(is_new[:, None], solved.extended_factor(), updated.extended_factor())
    noise = updated.noise
    if noise is not None and solved.noise is not None:
        variances = np.where(is_new, solved.noise.variances, noise.variances)
        noise = replace(noise, variances=variances)
    return replace(Entities.from_extended(factor, updated.k), noise=noise)


def _whiten(
    others: Floats, k: int, masses: Floats, scales: Floats, mean_weight: float, ridge: float
) -> Floats:
    """Return V E^−½ of the matrix M. Intercepts, after the k-th column, have no ridge."""
    share = masses * scales / max(float(masses.sum()), np.finfo(np.float64).tiny)
    M = mean_weight * (others.T * share) @ others
    M[np.arange(k), np.arange(k)] += ridge * float(share.sum())
    values, V = np.linalg.eigh(M)
    least = max(SMALLEST * float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    return np.asarray(V / np.sqrt(np.maximum(values, least)))


def _scales(fit: Factorization, axis: int, masses: Pair) -> tuple[Floats, float]:
    """Return the noise weights of the other side, and the mean ridge of an observation."""
    own, other = fit.axes[axis].noise, fit.axes[1 - axis].noise
    if own is None or other is None or fit.family == "equal":
        return np.ones(masses[1 - axis].size), fit.reg
    mass = masses[axis]
    power = 0.5 if fit.family == "weighted" else 1.0
    mean = float(np.average(own.variances**power, weights=mass)) if mass.any() else 1.0
    if fit.family == "ridged":
        return np.ones(masses[1 - axis].size), fit.reg * mean
    return other.variances**-0.5, fit.reg * mean


def _ones_or(cells: NewCells) -> Floats:
    return np.ones(cells.values.size) if cells.weights is None else cells.weights
