"""`KnownItems`: what the quantiles know of rows and columns beside the factors of their fits.

For each quantile a row has four numbers, and so has a column: the quantile of its own values, and
what it adds to those of its cells in three ways: to nothing, to the location (the fits at ω = 0.5),
and to the location of the normal scores. It also has the scale of what each location leaves.
All are means over the folds. Last comes what is said of an unknown row or column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.sampling import FOLDS
from fastemf.stacking.item_quantiles import added_quantiles, own_quantiles
from fastemf.stacking.normal_scores import NormalScores
from fastemf.stacking.promise import Simple
from fastemf.stacking.residual_scale import residual_scales, scales_given
from fastemf.stacking.sampled import Sampled
from fastemf.stacking.shrunk_quantile import Floats, Pool, quantile, shrunk_quantiles

__all__ = ["COLUMNS", "KnownItems", "Located", "Pools", "items_out_of_fold"]


OWN, VALUES, LOCATION, SCORES = range(4)
KINDS = 4
SCALE_KAPPAS = (3.0, 10.0, 30.0, 100.0)

# The columns of the regression, before the fits themselves.
COLUMNS = (
    "row", "column", "row + column", "location + row + column", "scores + row + column", "scale",
    "scaled scores", "location",
)  # fmt: skip


class Located(NamedTuple):
    """What a location leaves of the observations in the models of the folds, by fold.

    Residuals are those of observations that had not been fitted: truly so in their own fold, by
    leverages in the others.
    """

    values: Floats
    residuals: Floats

    def location(self, cells: Sampled) -> Floats:
        """Return what the model without an observation's fold predicts for it."""
        return self.values - self.residuals[cells.folds, np.arange(self.values.size)]


class Pools(NamedTuple):
    """What new items are shrunk towards, and by how much.

    Atoms and shares are by kind, quantile and side; κ likewise, and for both scales.
    """

    atoms: Floats
    shares: Floats
    kappas: Floats
    scale_kappas: Floats

    def pool(self, kind: int, t: int, axis: int) -> Pool:
        """Return one of the pools."""
        return Pool(self.atoms[kind, t, axis], self.shares[kind, t, axis])


@dataclass(frozen=True, eq=False)
class KnownItems:
    """Numbers of rows and columns; last those of unknown ones.

    Parameters
    ----------
    taus
        The quantiles' shares.
    sides
        Of rows and of columns: (kinds, quantiles, items + 1).
    log_scales
        Of rows and of columns: (2, items + 1), of the location and of the scores.
    scales
        What both scales begin with.
    multiples
        Of the scale of the scores, for each quantile.
    pools
        What new items need.
    """

    taus: tuple[float, ...]
    sides: tuple[Floats, Floats]
    log_scales: tuple[Floats, Floats]
    scales: Floats
    multiples: Floats
    pools: Pools

    def folded(
        self, axis: int, cells: Sampled, location: Floats, scores: Floats
    ) -> KnownItems:  # fmt: skip
        """Find the numbers of new rows (axis 0) or columns, given those of the other side.

        Parameters
        ----------
        cells
            Their observations.
        location, scores
            What both locations leave of them, by fold.
        """
        groups, others = (cells.rows, cells.cols) if axis == 0 else (cells.cols, cells.rows)
        size, about = cells.shape[axis], self.sides[1 - axis]
        given = (cells.values, cells.values, location.mean(axis=0), scores.mean(axis=0))
        found = np.empty((KINDS, about.shape[1], size + 1))
        for kind, values in enumerate(given):
            for t, tau in enumerate(self.taus):
                left = values if kind == OWN else values - about[kind, t][others]
                found[kind, t] = shrunk_quantiles(
                    left, groups, size, tau, self.pools.kappas[kind, t, axis],
                    self.pools.pool(kind, t, axis), cells.weights,
                )  # fmt: skip
        logs = np.zeros((2, size + 1))
        for which, left in enumerate((location, scores)):
            if self.scales[which] > 0:
                logs[which] = scales_given(
                    np.abs(left).mean(axis=0), groups, self.log_scales[1 - axis][which][others],
                    size, float(self.scales[which]), float(self.pools.scale_kappas[which]),
                    cells.weights,
                )  # fmt: skip
        return self._with(axis, found, logs)

    def extended(self, other: KnownItems, axis: int) -> KnownItems:
        """Put the rows (axis 0) or columns of another after these, before the unknown one."""
        side, logs = (
            np.concatenate([ours[axis][..., :-1], theirs[axis]], axis=-1)
            for ours, theirs in ((self.sides, other.sides), (self.log_scales, other.log_scales))
        )
        return self._with(axis, side, logs)

    def _with(self, axis: int, side: Floats, logs: Floats) -> KnownItems:
        sides, log_scales = list(self.sides), list(self.log_scales)
        sides[axis], log_scales[axis] = side, logs
        return replace(self, sides=(sides[0], sides[1]), log_scales=(log_scales[0], log_scales[1]))

    def simple(self, t: int, i: NDArray[np.integer], j: NDArray[np.integer]) -> Simple:
        """Predict quantile number t of the cells (i, j) in simpler ways; −1 for unknown ones."""
        a, c = (side[:, t] for side in self.sides)
        constant = np.full(i.size, c[OWN, -1])
        return Simple(constant, c[OWN][j], a[VALUES][i] + c[VALUES][j])

    def columns(
        self,
        i: NDArray[np.integer],
        j: NDArray[np.integer],
        location: Floats,
        scores: Floats,
        fits: list[Floats],
        normal: NormalScores,
        used: list[NDArray[np.bool_]] | None = None,
    ) -> list[Floats]:
        """Compute the columns of each quantile for the cells (i, j), one row each.

        Parameters
        ----------
        i, j
            Rows and columns, −1 for unknown ones.
        location, scores, fits
            What the fits predict for them: at ω = 0.5, of the normal scores, and all others.
        normal
            What makes values of scores.
        used
            Which columns of each quantile matter; the others are 0. The default is all.
        """
        scale, of_scores = (
            size * np.exp(rows[i] + cols[j])
            for size, rows, cols in zip(self.scales, *self.log_scales, strict=True)
        )
        found = []
        for t, multiple in enumerate(self.multiples.tolist()):
            a, c = self.sides[0][:, t], self.sides[1][:, t]
            wanted = np.ones(len(COLUMNS) + len(fits), bool) if used is None else used[t]
            columns = np.zeros((wanted.size, i.size))
            if wanted[0]:
                columns[0] = a[OWN][i]
            if wanted[1]:
                columns[1] = c[OWN][j]
            if wanted[2]:
                columns[2] = a[VALUES][i] + c[VALUES][j]
            if wanted[3]:
                columns[3] = location + a[LOCATION][i] + c[LOCATION][j]
            if wanted[4]:  # the way back from scores is what takes the time
                columns[4] = normal.to_values(scores + a[SCORES][i] + c[SCORES][j])
            if wanted[6]:
                columns[6] = normal.to_values(scores + multiple * of_scores)
            columns[5], columns[7] = scale, location
            for place, fit in enumerate(fits, len(COLUMNS)):
                columns[place] = fit
            found.append(columns)
        return found


def items_out_of_fold(
    cells: Sampled,
    taus: tuple[float, ...],
    location: Located,
    scores: Located,
    normal: NormalScores,
) -> tuple[KnownItems, list[list[Floats]]]:
    """Find the numbers of all rows and columns, and the columns of each quantile out of fold.

    These are those of `KnownItems.columns`, from the other folds of each cell, but for the fits.
    """
    shape = (KINDS, len(taus))
    sides = np.empty((*shape, cells.shape[0] + 1)), np.empty((*shape, cells.shape[1] + 1))
    kappas = np.empty((*shape, 2))
    pools: list[Pool] = []
    at, at_scores = location.location(cells), scores.location(cells)
    scales = [_scales(cells, left) for left in (location, scores)]
    multiples, columns = np.empty(len(taus)), []
    plain = np.broadcast_to(cells.values, (FOLDS, cells.values.size))
    for t, tau in enumerate(taus):
        own = [own_quantiles(cells, axis, tau) for axis in (0, 1)]
        added = (
            added_quantiles(cells, plain, cells.values, tau),
            added_quantiles(cells, location.residuals, cells.values, tau),
            added_quantiles(cells, scores.residuals, scores.values, tau, normal.to_values),
        )
        for axis in (0, 1):
            for kind, one in enumerate((own[axis], *added)):
                sides[axis][kind, t] = one.sides[axis]
                kappas[kind, t, axis] = one.kappa
        pools += [one.pools[axis] for one in (own[0], *added) for axis in (0, 1)]
        spread = scales[1].predicted
        relative = np.divide(
            scores.values - at_scores, spread, out=np.zeros_like(spread), where=spread > 0
        )
        multiples[t] = quantile(relative, tau, cells.weights)
        columns.append([
            own[0].predicted,
            own[1].predicted,
            added[0].predicted,
            added[1].predicted,
            normal.to_values(added[2].predicted),
            scales[0].predicted,
            normal.to_values(at_scores + multiples[t] * spread),
            at,
        ])  # fmt: skip
    by_tau = (len(taus), KINDS, 2, -1)
    atoms, shares = (
        np.stack([getattr(pool, name) for pool in pools]).reshape(by_tau).swapaxes(0, 1).copy()
        for name in ("values", "shares")
    )
    rows, cols = (np.stack([getattr(one, side) for one in scales]) for side in ("rows", "cols"))
    found = KnownItems(
        taus=taus,
        sides=sides,
        log_scales=(rows, cols),
        scales=np.array([one.mean for one in scales]),
        multiples=multiples,
        pools=Pools(atoms, shares, kappas, np.array([one.kappa for one in scales])),
    )
    return found, columns


class _Scales(NamedTuple):
    """Scales out of fold, and their means over the folds."""

    predicted: Floats
    mean: float
    rows: Floats
    cols: Floats
    kappa: float


def _scales(cells: Sampled, left: Located) -> _Scales:
    """Find the scales of what a location leaves, with the κ of the greatest Laplace likelihood."""
    best, lowest = None, np.inf
    sizes = np.abs(left.values - left.location(cells))
    for kappa in SCALE_KAPPAS:
        found, predicted = [], np.empty(sizes.size)
        for fold in range(FOLDS):
            out = cells.folds == fold
            kept = cells.where(~out)
            one = residual_scales(
                left.residuals[fold][~out], kept.rows, kept.cols, cells.shape, kappa, kept.weights
            )
            predicted[out] = one.mean * np.exp(
                one.rows[cells.rows[out]] + one.cols[cells.cols[out]]
            )
            found.append(one)
        mean, rows, cols = (np.mean(part, axis=0) for part in zip(*found, strict=True))
        candidate = _Scales(predicted, float(mean), rows, cols, kappa)
        if not predicted.min() > 0:  # nothing is left in some fold
            return candidate
        unit = float(np.ldexp(1.0, np.frexp(mean)[1]))  # logarithms must not see the data's unit
        loss = np.average(np.log(predicted / unit) + sizes / predicted, weights=cells.weights)
        if best is None or loss < lowest:
            best, lowest = candidate, float(loss)
    if best is None:
        raise FloatingPointError("the scales of residuals are not finite")
    return best
