"""`Promise`: what a quantile was worth on cells that its models had not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.stacking.limits import Limits
from fastemf.stacking.pinball import mean_pinball
from fastemf.stacking.sampled import Sampled
from fastemf.stacking.shrunk_quantile import Floats
from fastemf.support.level_names import quantile_name

__all__ = ["FEWEST_BEYOND", "Promise", "Simple", "promised", "wilson"]

FEWEST_BEYOND = 20  # cells on the rarer side of a quantile
DECILES = 10
FEWEST_CHECKED = 20  # cells whose quantile lies short of a limit
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
        Cells behind it, as many of equal weight as would tell as much: (Σw)² / Σw², where w is the
        weight of a cell's observations, repeated and mirrored ones together. Fewer than there are
        where these weights differ.
    pinball : float
        Mean pinball loss, in the data's unit.
    constant, column, row_column, larger : float
        That of simpler predictions of the same cells: one quantile of all values, each column's,
        shrunk, the sum of rows' and columns', and the larger of the last two.
    measured : bool
        Whether this is about the rows and columns at hand; False after `Quantiles.fold_in`.
    checked : float
        The share of the cells that `coverage`, `interval`, `deciles`, `many` and `cells` are about:
        less than 1 where values are censored, as nothing is known of cells whose quantile lies
        beyond the limit. NaN stands for shares of no cells. The losses are those of all cells,
        with values drawn from what may lie beyond their limits.
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
    checked: float = 1.0

    @property
    def unchecked(self) -> str:
        """What to say of cells whose quantile lies beyond a limit, if there are some."""
        if self.checked == 1:
            return ""
        return (
            f"beyond the limit in {1 - self.checked:.1%} of the cells, where nothing can be "
            "checked and it is likely too near"
        )

    def __str__(self) -> str:
        low, high = self.interval
        best = min(self.constant, self.column, self.row_column, self.larger)
        found = f"{self.coverage:.4f} of {self.cells:,} cells out of fold at or below"
        deciles = f"{min(self.deciles):.3f} to {max(self.deciles):.3f} by decile"
        losses = (
            f"pinball loss {_share(self.pinball, self.constant)} of a constant's, "
            f"{_share(self.pinball, best)} of the best simple prediction's"
        )
        parts = [f"{found} ({low:.4f} to {high:.4f}), {deciles}"] if self.cells else []
        parts += [self.unchecked] if self.unchecked else []
        text = f"{quantile_name(self.tau)}: {'; '.join([*parts, losses])}"
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
    cells: Sampled, tau: float, predicted: Floats, simple: Simple, limits: Limits | None = None
) -> Promise:
    """Judge predictions of cells, beside simpler ones; `limits` are those of censored values."""
    values, weights = cells.values, cells.weights
    below = (values <= predicted).astype(np.float64)

    def share_of(at: NDArray[np.integer]) -> float:
        if not at.size:
            return math.nan
        if limits is not None:
            return limits.share_below(predicted, weights, at)
        return float(np.average(below[at], weights=None if weights is None else weights[at]))

    seen = np.ones(values.size, bool) if limits is None else limits.in_sight(predicted)
    if limits is not None and np.count_nonzero(seen) < FEWEST_CHECKED:
        seen[:] = False
    known = cells if seen.all() else cells.where(seen)
    order = np.argsort(predicted, kind="stable")
    counts = np.bincount(known.rows, minlength=cells.shape[0])[cells.rows]
    enough = int(np.sort(counts[seen])[known.values.size // 2]) if seen.any() else 0
    share, count = share_of(np.flatnonzero(seen)), known.independent if seen.any() else 0.0
    worth = 1.0 if limits is None else limits.worth(predicted, weights, np.flatnonzero(seen))

    def loss(of: Floats) -> float:
        return mean_pinball(values - of, tau, weights)

    return Promise(
        tau=tau,
        coverage=share,
        interval=wilson(share, worth * count) if seen.any() else (0.0, 1.0),
        deciles=tuple(share_of(part) for part in np.array_split(order[seen[order]], DECILES)),
        many=share_of(np.flatnonzero(seen & (counts >= enough))),
        many_cells=enough,
        cells=round(count),
        pinball=loss(predicted),
        constant=loss(simple.constant),
        column=loss(simple.column),
        row_column=loss(simple.row_column),
        larger=loss(simple.larger),
        checked=float(np.average(seen, weights=weights)),
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
