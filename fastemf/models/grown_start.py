"""A start from the factors of an earlier model, whose matrix may be smaller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastemf.inputs.labels import Labels
from fastemf.models.entities import Entities
from fastemf.support.arrays import Floats, Ints

SMALL = 1e-2  # of the size of the earlier factors: the size of new random rows


def grow_factors(
    axes: tuple[Entities, Entities],
    shape: tuple[int, int],
    k: int,
    rng: np.random.Generator,
    *,
    offset: float | None,
    labels: tuple[Labels | None, Labels | None] = (None, None),
) -> tuple[Floats, ...]:
    """Return X, Y, a and c of an earlier model, with small random factors for new rows and columns.

    `offset` is added to the row intercepts; None for a fit without intercepts.
    """
    if axes[0].k != k:
        raise ValueError(f"init has rank {axes[0].k}, k is {k}; they must be equal")
    if offset is None and axes[0].has_intercepts:
        raise ValueError("init has intercepts; pass intercepts=True to start from it")
    factors: list[Floats] = []
    intercepts: list[Floats] = []
    for axis, (known, size) in enumerate(zip(axes, shape, strict=True)):
        theirs, ours = match_items(axes, axis, labels[axis], shape)
        column = np.zeros((size, 1))
        if known.intercepts is not None:
            column[ours, 0] = known.intercepts[theirs]
        if axis == 0 and offset is not None:
            column[ours] += offset
        intercepts.append(column)
        # Not zero: a cell that is new in both directions would stay zero.
        total = np.sum(np.square(known.factor, dtype=np.float64))
        small = SMALL * np.sqrt(total / max(1, known.factor.size))
        grown = small * rng.standard_normal((size, k))
        seen = ~np.isin(theirs, known.unseen)
        grown[ours[seen]] = known.factor[theirs[seen]]
        factors.append(grown)
    return (*factors, *intercepts)


def align_entities(axis: Entities, positions: Ints) -> Entities:
    """Return the items at positions, without labels; −1 is a new one without observations."""
    if not axis.size:
        raise ValueError("init must have rows and columns, got a model without any")
    is_new = positions < 0
    factor = np.where(is_new[:, None], 0, axis.factor[positions]).astype(axis.factor.dtype)
    intercepts, noise = axis.intercepts, axis.noise
    if intercepts is not None:
        intercepts = np.where(is_new, 0, intercepts[positions]).astype(intercepts.dtype)
    if noise is not None:
        noise = replace(noise, variances=np.where(is_new, 1.0, noise.variances[positions]))
    unseen = np.flatnonzero(is_new | np.isin(positions, axis.unseen))
    return Entities(factor, intercepts, None, unseen, noise)


def match_items(
    axes: tuple[Entities, Entities], axis: int, labels: Labels | None, shape: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Match the rows of model and data, by label where both have some, else by index.

    Returns their positions in the model, and in the data.
    """
    known = axes[axis]
    if known.labels is None or labels is None:
        if known.size > shape[axis]:
            sizes = axes[0].size, axes[1].size
            raise ValueError(f"init has shape {sizes}, larger than the data's {shape}")
        same = np.arange(known.size)
        return same, same
    found = known.labels.positions(labels, what=("row labels", "column labels")[axis])
    ours = np.flatnonzero(found >= 0)
    return found[ours], ours
