"""New rows or columns of a fit, solved by its own half-sweep with the other side held fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels, listed
from fastemf.model.prediction import Axes
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.noise import own_variances, weighting_of
from fastemf.solver.records import Ridge
from fastemf.solver.tables import AxisLevels
from fastemf.support.warn import warn

__all__ = ["check_new", "folded_axis", "joined_axis", "new_labels"]

NOISE_ROUNDS = 2  # in which new items improve their noise scales


def folded_axis(
    axes: Axes,
    axis: int,
    observed: Observations,
    engine: CompletionEngine,
    ridge: Ridge,
    family: str = "even",
    variances: NDArray[np.float64] | None = None,
) -> Axis:
    """Solve the items of one axis of `observed` exactly, given the fit's other axis.

    Where the fit has noise scales, the new items find theirs from their own residuals, unless
    their `variances` are given.
    """
    before, fixed = axes[axis], axes[1 - axis]
    other = fixed.extended().astype(observed.dtype, copy=False)
    solved = np.zeros((observed.shape[axis], other.shape[1]), observed.dtype)
    noise = None
    if before.noise is None or fixed.noise is None:
        solved = engine.solve(axis, solved, other, ridge).factor
    else:
        rounds = NOISE_ROUNDS if variances is None else 0
        own = np.ones(len(solved)) if variances is None else variances
        for last in range(rounds + 1):
            pair = (own, fixed.noise.variances) if axis == 0 else (fixed.noise.variances, own)
            weighed = engine.view(weighting=weighting_of(family, engine, pair))
            solved = weighed.solve(axis, solved, other, ridge).factor
            if last < rounds:
                factors = (solved, other) if axis == 0 else (other, solved)
                level = before.noise.level
                own = own_variances(weighed, axis, factors, ridge, pair, level)
        noise = AxisNoise(own, before.noise.level)
    unseen = np.flatnonzero((observed.by_row, observed.by_col)[axis].mass == 0)
    if unseen.size:
        what = ("rows", "columns")[axis]
        warn(f"{unseen.size} of the {len(solved)} new {what} have no observations")
    folded = Axis.split(
        solved.astype(before.factor.dtype, copy=False),
        before.k,
        new_labels(before, axis, observed),
        unseen,
    )
    return replace(folded, noise=noise, levels=_new_levels(before, fixed, axis, engine))


def check_new(before: Axis, axis: int, observed: Observations) -> None:
    """Refuse items that could not stand beside those of a fit: already there, or without a name."""
    found = (observed.row_labels, observed.col_labels)[axis]
    if before.labels is None:
        return
    what = ("rows", "columns")[axis]
    if found is None:
        raise ValueError(f"R_new must have labels of its {what}, as the fit has, got a matrix")
    there = before.labels.positions(found.values, what=f"labels of the new {what}") >= 0
    if there.any():
        raise ValueError(
            f"{np.count_nonzero(there)} of the new {what} are in the fit already "
            f"({listed(found.values[there])}): extend adds new ones; to take in more of those "
            "it has, refit with all data, as fastemf update --all or complete(..., init=fit) does"
        )


def joined_axis(before: Axis, new: Axis) -> Axis:
    """Put new items, which were folded in, after those of a fit."""
    intercepts, noise, levels, labels = before.intercepts, before.noise, before.levels, None
    if intercepts is not None and new.intercepts is not None:
        intercepts = np.concatenate([intercepts, new.intercepts])
    if noise is not None and new.noise is not None:
        noise = replace(noise, variances=np.concatenate([noise.variances, new.noise.variances]))
    if levels is not None and new.levels is not None:
        levels = replace(levels, values=np.concatenate([levels.values, new.levels.values]))
    if before.labels is not None and new.labels is not None:
        labels = before.labels.joined(new.labels)
    return Axis(
        np.concatenate([before.factor, new.factor]),
        intercepts,
        labels,
        np.concatenate([before.unseen, before.size + new.unseen]),
        noise,
        levels,
    )


def _new_levels(
    before: Axis, fixed: Axis, axis: int, engine: CompletionEngine
) -> AxisLevels | None:
    """Find the levels of new items given those of the other side, where the fit has tables."""
    if before.levels is None or fixed.levels is None:
        return None
    other = fixed.levels.values[:, None].astype(engine.dtype)
    nothing = np.zeros((engine.shape[axis], 1), engine.dtype)
    ridge = Ridge(0.0, before.levels.tables.ridge)
    found = engine.solve(axis, nothing, other, ridge).factor
    return AxisLevels(found[:, 0].astype(np.float64), before.levels.tables)


def new_labels(before: Axis, axis: int, observed: Observations) -> Labels | None:
    """Return the labels of what was folded in: its own, or its numbers where it has none."""
    if before.labels is None:
        return None
    found = (observed.row_labels, observed.col_labels)[axis]
    if found is None:
        found = Labels(np.arange(observed.shape[axis]))
    return found.renamed(before.name) if found.name is None else found
