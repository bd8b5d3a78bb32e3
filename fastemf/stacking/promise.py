"""`Promise`: what a quantile was worth on cells that its models had not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastemf.stacking.pinball import mean_pinball
from fastemf.stacking.sampled import Sampled
from fastemf.stacking.shrunk_quantile import Floats
from fastemf.support.level_names import quantile_name

__all__ = ["FEWEST_BEYOND", "Promise", "Simple", "promised", "wilson"]

FEWEST_BEYOND = 20  # cells on the rarer side of a quantile
DECILES = 10
NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Promise:
    """What a quantile was worth on cells that neither its models nor its regression had seen.

    Attributes
    ----------
    tau : float
        The share wanted at or below the quantile.
    coverage : float
        The share found.
    interval : (float, float)
        Where the share of other such cells lies, with 95 % confidence (Wilson).
    deciles : tuple of 10 floats
        The shares in the tenths of the cells with the smallest predictions, the next, and so on.
    many : float
        The share in rows with many cells.
    many_cells : int
        How many these have, at least: half of the observations are in such rows.
    cells : int
        Cells behind it; repeated observations of a cell, and mirrored cells, count as one.
    pinball : float
        Mean pinball loss, in the data's unit.
    constant, column, row_column, larger : float
        That of simpler predictions of the same cells: one quantile of all values, each column's,
        shrunk, the sum of rows' and columns', and the larger of the last two.
    measured : bool
        Whether this is about the rows and columns at hand; False after `Quantiles.fold_in`.
    """

    tau: float
    coverage: float
    interval: tuple[float, float]
    deciles: tuple[float, ...]
    many: float
    many_cells: int
    cells: int
    pinball: float
    constant: float
    column: float
    row_column: float
    larger: float
    measured: bool = True

    def __str__(self) -> str:
        low, high = self.interval
        best = min(self.constant, self.column, self.row_column, self.larger)
        text = (
            f"{quantile_name(self.tau)}: {self.coverage:.4f} of {self.cells:,} cells out of fold "
            f"at or below ({low:.4f} to {high:.4f}), {min(self.deciles):.3f} to "
            f"{max(self.deciles):.3f} by decile; pinball loss "
            f"{_share(self.pinball, self.constant)} of a constant's, "
            f"{_share(self.pinball, best)} of the best simple prediction's"
        )
        return text if self.measured else f"{text}; not measured for what was folded in"


class Simple(NamedTuple):
    """Simpler predictions of cells: a constant, columns' quantiles, rows' and columns' added up."""

    constant: Floats
    column: Floats
    row_column: Floats

    @property
    def larger(self) -> Floats:
        """The larger of a column's quantile and of what row and column add up to."""
        return np.asarray(np.maximum(self.column, self.row_column))


def promised(
    cells: Sampled, tau: float, predicted: Floats, simple: Simple
) -> Promise:  # fmt: skip
    """Judge predictions of cells, beside simpler ones."""
    values, weights = cells.values, cells.weights
    below = (values <= predicted).astype(np.float64)
    order = np.argsort(predicted, kind="stable")
    deciles = [
        float(np.average(below[part], weights=None if weights is None else weights[part]))
        for part in np.array_split(order, DECILES)
    ]
    counts = np.bincount(cells.rows, minlength=cells.shape[0])[cells.rows]
    enough = int(np.sort(counts)[counts.size // 2])
    many = counts >= enough
    share = float(np.average(below, weights=weights))

    def loss(of: Floats) -> float:
        return mean_pinball(values - of, tau, weights)

    return Promise(
        tau=tau,
        coverage=share,
        interval=wilson(share, cells.independent),
        deciles=tuple(deciles),
        many=float(np.average(below[many], weights=None if weights is None else weights[many])),
        many_cells=enough,
        cells=round(cells.independent),
        pinball=loss(predicted),
        constant=loss(simple.constant),
        column=loss(simple.column),
        row_column=loss(simple.row_column),
        larger=loss(simple.larger),
    )


def wilson(share: float, count: float) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share that was found in so many cells."""
    z = NORMAL_95
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    spread = np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    half = z / (1 + z**2 / count) * float(spread)
    # At a share of 0 or 1 the interval ends there, which rounding must not move.
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))


def _share(loss: float, of: float) -> str:
    return f"{loss / of:.3f}" if of > 0 else "0"
