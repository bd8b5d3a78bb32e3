"""`ItemFeatures`: features of cells from the quantiles and scales of their row and column.

For each quantile, every row and every column ("item") has four effects: the quantile of its own
values, and additive effects on the quantiles of values, of residuals from the location (the fits at
ω = 0.5), and of residuals from the location of normal scores. It also has a scale for the residuals
from each location. All are means over the folds. The last entry is for unknown rows or columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastemf.quantile_model.coverage_report import baseline_quantiles
from fastemf.quantile_model.item_quantiles import fit_additive_quantiles, fit_own_quantiles
from fastemf.quantile_model.normal_scores import NormalScores
from fastemf.quantile_model.observed_cells import ObservedCells
from fastemf.quantile_model.residuals import log_scales, residual_scales
from fastemf.quantile_model.shrunk_quantile import Floats, Pool, quantile, shrunk_quantiles
from fastemf.sources.cell_sample import FOLDS
from fastemf.support.arrays import Indices, Mask

OWN, VALUES, LOCATION, SCORES = range(4)
KINDS = 4
SCALE_KAPPAS = (3.0, 10.0, 30.0, 100.0)

# Names of the features, before the predictions of the fits themselves.
FEATURES = (
    "row", "column", "row + column", "location + row + column", "scores + row + column", "scale",
    "scaled scores", "location",
)  # fmt: skip


class FoldResiduals(NamedTuple):
    """Residuals of all observations from the location of each fold's model.

    They are out-of-fold residuals in the fold of the observation, and leave-one-out residuals (by
    leverages) in the others.
    """

    values: Floats
    residuals: Floats

    def location(self, cells: ObservedCells) -> Floats:
        """Return the out-of-fold location of each observation."""
        return self.values - self.residuals[cells.folds, np.arange(self.values.size)]


class Pools(NamedTuple):
    """Distributions that new items are shrunk towards, and the priors κ.

    Atoms, proportions and κ are by kind, quantile and side; κ of scales by location.
    """

    atoms: Floats
    proportions: Floats
    kappas: Floats
    scale_kappas: Floats

    def pool(self, kind: int, t: int, axis: int) -> Pool:
        """Return one of the distributions."""
        return Pool(self.atoms[kind, t, axis], self.proportions[kind, t, axis])


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """Effects and scales of rows and columns; the last entry is for unknown ones.

    Parameters
    ----------
    taus
        The quantiles.
    sides
        Effects of rows and of columns: (kinds, quantiles, items + 1).
    log_scales
        Log scales of rows and of columns: (2, items + 1), for values and for scores.
    scales
        Mean absolute residual from each location.
    multiples
        For each quantile, its multiple of the scale of the scores.
    pools
        Shrinkage of new items.
    """

    taus: tuple[float, ...]
    sides: tuple[Floats, Floats]
    log_scales: tuple[Floats, Floats]
    scales: Floats
    multiples: Floats
    pools: Pools

    def fold_in(
        self, axis: int, cells: ObservedCells, location: Floats, scores: Floats
    ) -> ItemFeatures:  # fmt: skip
        """Compute the features of new rows (axis 0) or columns, given those of the other side.

        Parameters
        ----------
        cells
            Their observations.
        location, scores
            Residuals from both locations, by fold.
        """
        groups, others = (cells.rows, cells.cols) if axis == 0 else (cells.cols, cells.rows)
        size, other = cells.shape[axis], self.sides[1 - axis]
        given = (cells.values, cells.values, location.mean(axis=0), scores.mean(axis=0))
        effects = np.empty((KINDS, other.shape[1], size + 1))
        for kind, values in enumerate(given):
            for t, tau in enumerate(self.taus):
                r = values if kind == OWN else values - other[kind, t][others]
                effects[kind, t] = shrunk_quantiles(
                    r, groups, size, tau, self.pools.kappas[kind, t, axis],
                    self.pools.pool(kind, t, axis), cells.weights,
                )  # fmt: skip
        logs = np.zeros((2, size + 1))
        for which, residuals in enumerate((location, scores)):
            if self.scales[which] > 0:
                about = self.log_scales[1 - axis][which][others]
                logs[which] = log_scales(
                    np.abs(residuals).mean(axis=0), groups, about, size,
                    float(self.scales[which]), float(self.pools.scale_kappas[which]),
                    cells.weights,
                )  # fmt: skip
        return self._replace_side(axis, effects, logs)

    def extend(self, other: ItemFeatures, axis: int) -> ItemFeatures:
        """Append the rows (axis 0) or columns of another, before the entry for unknown ones."""
        side, logs = (
            np.concatenate([ours[axis][..., :-1], theirs[axis]], axis=-1)
            for ours, theirs in ((self.sides, other.sides), (self.log_scales, other.log_scales))
        )
        return self._replace_side(axis, side, logs)

    def _replace_side(self, axis: int, side: Floats, logs: Floats) -> ItemFeatures:
        sides, log_scales = list(self.sides), list(self.log_scales)
        sides[axis], log_scales[axis] = side, logs
        return replace(self, sides=(sides[0], sides[1]), log_scales=(log_scales[0], log_scales[1]))

    def baselines(self, t: int, i: Indices, j: Indices) -> dict[str, Floats]:
        """Return baseline predictions of quantile number t of the cells (i, j); −1 means new."""
        a, c = (side[:, t] for side in self.sides)
        constant = np.full(i.size, c[OWN, -1])
        return baseline_quantiles(constant, c[OWN][j], a[VALUES][i] + c[VALUES][j])

    def features(
        self,
        i: Indices,
        j: Indices,
        location: Floats,
        scores: Floats,
        fits: list[Floats],
        normal: NormalScores,
        used: list[Mask] | None = None,
    ) -> list[Floats]:
        """Compute the features of cells (i, j) for each quantile, one row per feature.

        Parameters
        ----------
        i, j
            Rows and columns, −1 for unknown ones.
        location, scores, fits
            Predictions of the fits: at ω = 0.5, of the normal scores, and at all other levels.
        normal
            Transforms scores to values.
        used
            Which features of each quantile to compute; the others are 0. The default is all.
        """
        scale, score_scale = (
            size * np.exp(rows[i] + cols[j])
            for size, rows, cols in zip(self.scales, *self.log_scales, strict=True)
        )
        features = []
        for t, multiple in enumerate(self.multiples.tolist()):
            a, c = self.sides[0][:, t], self.sides[1][:, t]
            wanted = np.ones(len(FEATURES) + len(fits), bool) if used is None else used[t]
            rows = np.zeros((wanted.size, i.size))
            if wanted[0]:
                rows[0] = a[OWN][i]
            if wanted[1]:
                rows[1] = c[OWN][j]
            if wanted[2]:
                rows[2] = a[VALUES][i] + c[VALUES][j]
            if wanted[3]:
                rows[3] = location + a[LOCATION][i] + c[LOCATION][j]
            if wanted[4]:  # the transform from scores takes most of the time
                rows[4] = normal.to_values(scores + a[SCORES][i] + c[SCORES][j])
            if wanted[6]:
                rows[6] = normal.to_values(scores + multiple * score_scale)
            rows[5], rows[7] = scale, location
            for place, fit in enumerate(fits, len(FEATURES)):
                rows[place] = fit
            features.append(rows)
        return features


def fit_item_features(
    cells: ObservedCells,
    taus: tuple[float, ...],
    location: FoldResiduals,
    scores: FoldResiduals,
    normal: NormalScores,
) -> tuple[ItemFeatures, list[list[Floats]]]:
    """Fit the features of all rows and columns, and compute the out-of-fold features of cells.

    The latter are those of `ItemFeatures.features` without the predictions of the fits.
    """
    shape = (KINDS, len(taus))
    sides = np.empty((*shape, cells.shape[0] + 1)), np.empty((*shape, cells.shape[1] + 1))
    kappas = np.empty((*shape, 2))
    pools: list[Pool] = []
    at, at_scores = location.location(cells), scores.location(cells)
    scales = [_fit_scales(cells, residuals) for residuals in (location, scores)]
    multiples, features = np.empty(len(taus)), []
    plain = np.broadcast_to(cells.values, (FOLDS, cells.values.size))
    for t, tau in enumerate(taus):
        own = [fit_own_quantiles(cells, axis, tau) for axis in (0, 1)]
        additive = (
            fit_additive_quantiles(cells, plain, cells.values, tau),
            fit_additive_quantiles(cells, location.residuals, cells.values, tau),
            fit_additive_quantiles(cells, scores.residuals, scores.values, tau, normal.to_values),
        )
        for axis in (0, 1):
            for kind, one in enumerate((own[axis], *additive)):
                sides[axis][kind, t] = one.sides[axis]
                kappas[kind, t, axis] = one.kappa
        pools += [one.pools[axis] for one in (own[0], *additive) for axis in (0, 1)]
        spread = scales[1].predicted
        relative = np.divide(
            scores.values - at_scores, spread, out=np.zeros_like(spread), where=spread > 0
        )
        multiples[t] = quantile(relative, tau, cells.weights)
        by_scores = additive[2].predicted, at_scores + multiples[t] * spread
        additive_scores, scaled_scores = map(normal.to_values, by_scores)
        direct = [one.predicted for one in (*own, *additive[:2])]
        features.append([*direct, additive_scores, scales[0].predicted, scaled_scores, at])
    by_tau = (len(taus), KINDS, 2, -1)
    atoms, proportions = (
        np.stack([getattr(pool, name) for pool in pools]).reshape(by_tau).swapaxes(0, 1).copy()
        for name in ("values", "proportions")
    )
    rows, cols = (np.stack([getattr(one, side) for one in scales]) for side in ("rows", "cols"))
    items = ItemFeatures(
        taus=taus,
        sides=sides,
        log_scales=(rows, cols),
        scales=np.array([one.mean for one in scales]),
        multiples=multiples,
        pools=Pools(atoms, proportions, kappas, np.array([one.kappa for one in scales])),
    )
    return items, features


class _Scales(NamedTuple):
    """Out-of-fold scales, and their means over the folds."""

    predicted: Floats
    mean: float
    rows: Floats
    cols: Floats
    kappa: float


def _fit_scales(cells: ObservedCells, given: FoldResiduals) -> _Scales:
    """Fit the scales of residuals, with the κ that maximises the Laplace likelihood."""
    best, lowest = None, np.inf
    sizes = np.abs(given.values - given.location(cells))
    for kappa in SCALE_KAPPAS:
        by_fold, predicted = [], np.empty(sizes.size)
        for fold in range(FOLDS):
            out = cells.folds == fold
            kept = cells.select(~out)
            one = residual_scales(
                given.residuals[fold][~out], kept.rows, kept.cols, cells.shape, kappa, kept.weights
            )
            predicted[out] = one.mean * np.exp(
                one.rows[cells.rows[out]] + one.cols[cells.cols[out]]
            )
            by_fold.append(one)
        mean, rows, cols = (np.mean(part, axis=0) for part in zip(*by_fold, strict=True))
        candidate = _Scales(predicted, float(mean), rows, cols, kappa)
        if not predicted.min() > 0:  # all residuals of some fold are 0
            return candidate
        unit = float(np.ldexp(1.0, np.frexp(mean)[1]))  # the loss must not depend on the unit
        loss = np.average(np.log(predicted / unit) + sizes / predicted, weights=cells.weights)
        if best is None or loss < lowest:
            best, lowest = candidate, float(loss)
    if best is None:
        raise FloatingPointError("the scales of residuals are not finite")
    return best
