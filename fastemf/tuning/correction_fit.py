"""The fit of correction tables to the residuals of validation cells.

Intercepts and factors cannot represent every function of the size and noise of rows and columns;
small tables can. The first is a function of the row and column effects, the others of the product
and the noise of the column or the row: noise that grows with the prediction raises a high level,
and shrinks an unreliable prediction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.loss import expectile, expectile_loss, sign_weights
from fastemf.sources.cell_sample import FOLDS
from fastemf.support.arrays import Floats, Ints, Mask
from fastemf.tuning.corrections import (
    COL_EFFECT,
    COL_NOISE,
    PRODUCT,
    ROW_EFFECT,
    ROW_NOISE,
    Correction,
    knot_positions,
)
from fastemf.tuning.validation_cells import ValidationCells

OVER = ((ROW_EFFECT, COL_EFFECT), (PRODUCT, COL_NOISE), (PRODUCT, ROW_NOISE))
KNOTS = 8
BY_VALUE = 0.25  # weight of equidistant knots; the rest are quantiles. Tails need knots too
PRIOR = 20.0  # observations with the value 0 at each pair of knots
SMOOTHING = 0.3
NEWTON_STEPS = 3  # of the expectile at each pair of knots
NESTED = 30_000  # cells: of more, hardly any table is selected by chance


class FittedCorrections(NamedTuple):
    """Correction tables, a shift to add to them, and their performance."""

    each: tuple[Correction, ...]
    shift: float  # the ω-expectile of their residuals
    loss: float  # mean out-of-fold loss
    effective_omega: float  # of out-of-fold predictions


class Selection(NamedTuple):
    """Tables that lower the out-of-fold loss, their shift, and out-of-fold residuals."""

    tables: tuple[Correction, ...]
    shift: float
    residuals: Floats


def fit_corrections(cells: ValidationCells, omega: float) -> FittedCorrections:
    """Fit tables one after the other, and keep those that lower the out-of-fold loss.

    Where there are few cells, chance lowers the loss of some tables. Their loss is then that of
    tables selected without the fold, and if they do not lower it, there are none.
    """
    v = cells.weights
    selected = _select_tables(cells, omega)
    if selected.tables and v.size <= NESTED:
        selected = selected._replace(residuals=_residuals_of_selection(cells, omega))
        plain = _select_tables(cells, omega, over=())
        if expectile_loss(selected.residuals, omega, v) >= expectile_loss(
            plain.residuals, omega, v
        ):
            selected = plain
    tables, shift, residuals = selected
    above, below = (float(np.sum(v * np.maximum(sign * residuals, 0.0))) for sign in (1, -1))
    return FittedCorrections(
        tables,
        shift,
        expectile_loss(residuals, omega, v) / float(v.sum()),
        below / (above + below) if above + below > 0 else float("nan"),
    )


def _select_tables(
    cells: ValidationCells, omega: float, over: tuple[tuple[str, str], ...] = OVER
) -> Selection:
    fold_of, v = cells.hashes % FOLDS, cells.weights
    others = [fold_of != fold for fold in range(FOLDS)]
    center = expectile(cells.residuals, omega, v)
    left = cells.residuals - center
    # Residuals of all cells, for each fold by the tables of the other folds.
    apart = np.stack([_center(cells.residuals, v, omega, other) for other in others])
    tables = []
    for pair in over:
        statistics = cells.columns(pair)
        knots = [_knots(statistic, v) for statistic in statistics]
        if min(part.size for part in knots) < 2:
            continue
        x, y = (knot_positions(*each) for each in zip(statistics, knots, strict=True))
        table = _fit_table(pair, knots, x, y, left, v, omega)
        rest = np.stack([
            apart[fold] - _fit_table(
                pair, knots, x[other], y[other], apart[fold][other], v[other], omega
            ).between(x, y)
            for fold, other in enumerate(others)
        ])  # fmt: skip
        after, before = (expectile_loss(_out_of_fold(r, fold_of), omega, v) for r in (rest, apart))
        if after >= before:
            continue
        tables.append(table)
        left, apart = left - table.between(x, y), rest
    residuals = _out_of_fold(
        np.stack([_center(r, v, omega, other) for r, other in zip(apart, others, strict=True)]),
        fold_of,
    )
    return Selection(tuple(tables), center + expectile(left, omega, v), residuals)


def _residuals_of_selection(cells: ValidationCells, omega: float) -> Floats:
    """Return the residual of each cell by tables that were selected and fitted without its fold."""
    fold_of, residuals = cells.hashes % FOLDS, cells.residuals
    for fold in range(FOLDS):
        within = fold_of == fold
        if within.all() or not within.any():
            continue
        others, own = (ValidationCells(*(part[at] for part in cells)) for at in (~within, within))
        tables, shift, _ = _select_tables(others, omega)
        residuals[within] -= shift + sum(table.at(*own.columns(table.over)) for table in tables)
    return residuals


def _center(r: Floats, v: Floats, omega: float, some: Mask) -> Floats:
    """Subtract the ω-expectile of some of the residuals from all."""
    return r - expectile(r[some], omega, v[some]) if some.any() else r


def _out_of_fold(apart: Floats, fold_of: Ints) -> Floats:
    """Return the out-of-fold residual of each cell."""
    return np.asarray(apart[fold_of, np.arange(fold_of.size)])


def _knots(statistic: Floats, v: Floats) -> Floats:
    """Choose knots between quantiles of the statistic and equidistant values."""
    order = np.argsort(statistic, kind="stable")
    values, mass = statistic[order], np.cumsum(v[order])
    proportions = (np.arange(KNOTS) + 0.5) / KNOTS
    quantiles = values[np.searchsorted(mass, proportions * mass[-1])]
    evenly = values[0] + np.arange(KNOTS) / (KNOTS - 1) * (values[-1] - values[0])
    return np.unique((1 - BY_VALUE) * quantiles + BY_VALUE * evenly)


def _fit_table(
    over: tuple[str, str],
    knots: list[Floats],
    x: Floats,
    y: Floats,
    r: Floats,
    v: Floats,
    omega: float,
) -> Correction:
    """Find the shrunk ω-expectile of the residuals nearest to each pair of knots, smoothed."""
    shape = knots[0].size, knots[1].size
    bins = np.rint(x).astype(np.int64) * shape[1] + np.rint(y).astype(np.int64)
    steps = np.zeros(shape[0] * shape[1])
    for _ in range(NEWTON_STEPS):
        weight = v * sign_weights(r - steps[bins], omega)
        prior = PRIOR * float(weight.sum() / v.sum())
        slope, curvature = (np.bincount(bins, part, steps.size) for part in (weight * r, weight))
        steps = slope / (curvature + prior)
    return Correction(over, (knots[0], knots[1]), _smooth(steps.reshape(shape)))


def _smooth(values: Floats) -> Floats:
    """Average each value with its neighbours."""
    total, count = np.zeros_like(values), np.zeros_like(values)
    for axis in (0, 1):
        for here, there in ((slice(1, None), slice(-1)), (slice(-1), slice(1, None))):
            one, other = [slice(None)] * 2, [slice(None)] * 2
            one[axis], other[axis] = here, there
            total[tuple(one)] += values[tuple(other)]
            count[tuple(one)] += 1
    return np.asarray((1 - SMOOTHING) * values + SMOOTHING * total / count)
