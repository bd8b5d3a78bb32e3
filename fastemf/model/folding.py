"""New rows or columns of a fit, solved by its own half-sweep with the other side held fixed."""

from __future__ import annotations

import numpy as np

from fastemf.inputs.labels import Labels
from fastemf.model.prediction import Axes
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.support.warn import warn

__all__ = ["folded_axis"]


def folded_axis(
    axes: Axes, axis: int, observed: Observations, engine: CompletionEngine, ridge: Ridge
) -> Axis:
    """Solve the items of one axis of `observed` exactly, given the fit's other axis."""
    before, fixed = axes[axis], axes[1 - axis]
    other = fixed.extended().astype(observed.dtype, copy=False)
    start = np.zeros((observed.shape[axis], other.shape[1]), observed.dtype)
    solved = engine.solve(axis, start, other, ridge).factor
    unseen = np.flatnonzero((observed.by_row, observed.by_col)[axis].mass == 0)
    if unseen.size:
        what = ("rows", "columns")[axis]
        warn(f"{unseen.size} of the {len(start)} new {what} have no observations")
    return Axis.split(
        solved.astype(before.factor.dtype, copy=False),
        before.k,
        _new_labels(before, axis, observed),
        unseen,
    )


def _new_labels(before: Axis, axis: int, observed: Observations) -> Labels | None:
    """Return the labels of what was folded in: its own, or its numbers where it has none."""
    if before.labels is None:
        return None
    found = (observed.row_labels, observed.col_labels)[axis]
    if found is None:
        found = Labels(np.arange(observed.shape[axis]))
    return found.renamed(before.name) if found.name is None else found
