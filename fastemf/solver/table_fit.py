"""The fit of tables to what a model leaves of cells that it has not seen.

A sum of levels and a product of factors cannot follow a function of how large, or how noisy, a row
and a column are; small tables can. The first is over the levels of row and column, the others are
over the product and the noise of the column or of the row: noise that grows with the prediction
lifts a high level, and shrinks a prediction that is not to be trusted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.loss import expectile, sign_weights
from fastemf.solver.judged import Judged
from fastemf.solver.sampling import FOLDS
from fastemf.solver.tables import (
    COL_LEVEL,
    COL_NOISE,
    PRODUCT,
    ROW_LEVEL,
    ROW_NOISE,
    STATISTICS,
    Table,
    places,
)

__all__ = ["FittedTables", "fitted_tables"]

OVER = ((ROW_LEVEL, COL_LEVEL), (PRODUCT, COL_NOISE), (PRODUCT, ROW_NOISE))
KNOTS = 8
BY_VALUE = 0.25  # of a knot; the rest is by quantile: tails need knots of their own
PRIOR = 20.0  # observations' worth of zero at each pair of knots
SMOOTHING = 0.3
NEWTON_STEPS = 3  # of the expectile at each pair of knots


class FittedTables(NamedTuple):
    """Tables, what is to be added beside them, and what they are worth."""

    each: tuple[Table, ...]
    shift: float  # the ω-expectile of what they leave
    loss: float  # mean, of each fold with tables and shift of the others
    effective_omega: float  # likewise


def fitted_tables(judged: Judged, omega: float) -> FittedTables:
    """Fit those tables, one after the other, that lower the loss of folds not fitted."""
    fold_of, v = judged.hashes % FOLDS, judged.weights
    others = [fold_of != fold for fold in range(FOLDS)]
    level = expectile(judged.residuals, omega, v)
    left = judged.residuals - level
    # What is left of all cells by the tables of the other folds, for each fold.
    apart = np.stack([_centred(judged.residuals, v, omega, other) for other in others])
    tables = []
    for over in OVER:
        pair = [judged.statistics[:, STATISTICS.index(name)] for name in over]
        knots = [_knots(statistic, v) for statistic in pair]
        if min(part.size for part in knots) < 2:
            continue
        x, y = (places(*each) for each in zip(pair, knots, strict=True))
        table = _fitted(over, knots, x, y, left, v, omega)
        rest = np.stack([
            apart[fold] - _fitted(
                over, knots, x[other], y[other], apart[fold][other], v[other], omega
            ).between(x, y)
            for fold, other in enumerate(others)
        ])  # fmt: skip
        if _loss(_own(rest, fold_of), v, omega) >= _loss(_own(apart, fold_of), v, omega):
            continue
        tables.append(table)
        left, apart = left - table.between(x, y), rest
    honest = _own(
        np.stack([_centred(r, v, omega, other) for r, other in zip(apart, others, strict=True)]),
        fold_of,
    )
    above, below = (float(np.sum(v * np.maximum(sign * honest, 0.0))) for sign in (1, -1))
    return FittedTables(
        tuple(tables), level + expectile(left, omega, v), _loss(honest, v, omega) / float(v.sum()),
        below / (above + below) if above + below > 0 else float("nan"),
    )  # fmt: skip


def _centred(
    r: NDArray[np.float64], v: NDArray[np.float64], omega: float, some: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Subtract the ω-expectile of some of the residuals from all."""
    return r - expectile(r[some], omega, v[some]) if some.any() else r


def _own(apart: NDArray[np.float64], fold_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return of each cell what the tables without its fold leave."""
    return np.asarray(apart[fold_of, np.arange(fold_of.size)])


def _loss(r: NDArray[np.float64], v: NDArray[np.float64], omega: float) -> float:
    return float(np.sum(v * sign_weights(r, omega) * r**2))


def _knots(statistic: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose knots where the statistic's values are, and some beyond."""
    order = np.argsort(statistic, kind="stable")
    values, mass = statistic[order], np.cumsum(v[order])
    shares = (np.arange(KNOTS) + 0.5) / KNOTS
    quantiles = values[np.searchsorted(mass, shares * mass[-1])]
    evenly = values[0] + np.arange(KNOTS) / (KNOTS - 1) * (values[-1] - values[0])
    return np.unique((1 - BY_VALUE) * quantiles + BY_VALUE * evenly)


def _fitted(
    over: tuple[str, str],
    knots: list[NDArray[np.float64]],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    r: NDArray[np.float64],
    v: NDArray[np.float64],
    omega: float,
) -> Table:
    """Find the shrunk ω-expectile of the residuals nearest to each pair of knots, smoothed."""
    shape = knots[0].size, knots[1].size
    bins = np.rint(x).astype(np.int64) * shape[1] + np.rint(y).astype(np.int64)
    steps = np.zeros(shape[0] * shape[1])
    for _ in range(NEWTON_STEPS):
        weight = v * sign_weights(r - steps[bins], omega)
        prior = PRIOR * float(weight.sum() / v.sum())
        slope, curvature = (np.bincount(bins, part, steps.size) for part in (weight * r, weight))
        steps = slope / (curvature + prior)
    return Table(over, (knots[0], knots[1]), _smoothed(steps.reshape(shape)))


def _smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Combine each value with those beside it."""
    total, count = np.zeros_like(values), np.zeros_like(values)
    for axis in (0, 1):
        for here, there in ((slice(1, None), slice(-1)), (slice(-1), slice(1, None))):
            one, other = [slice(None)] * 2, [slice(None)] * 2
            one[axis], other[axis] = here, there
            total[tuple(one)] += values[tuple(other)]
            count[tuple(one)] += 1
    return np.asarray((1 - SMOOTHING) * values + SMOOTHING * total / count)
