"""`SizeTable`: what a quantile adds for its own size, as cells of one size may need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.stacking.shrunk_quantile import Pool, quantile, shrunk_quantiles

__all__ = ["SizeTable", "size_table"]

BINS = 10
PRIOR = 100.0  # observations' worth of the quantile of all


class SizeTable(NamedTuple):
    """Numbers to add at the centres of bins, which rise; in between they are interpolated."""

    centres: NDArray[np.float64]
    values: NDArray[np.float64]

    def corrected(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add what the table says to quantiles."""
        return np.asarray(sizes + np.interp(sizes, self.centres, self.values))


def size_table(
    sizes: NDArray[np.float64],
    residuals: NDArray[np.float64],
    tau: float,
    weights: NDArray[np.float64] | None = None,
) -> SizeTable:
    """Find the τ-quantile of the residuals in bins of predictions, shrunk."""
    shares = np.arange(1, BINS) / BINS
    edges = np.unique([quantile(sizes, share, weights) for share in shares.tolist()])
    bins = np.searchsorted(edges, sizes, side="left")
    mass = np.bincount(bins, weights, edges.size + 1).astype(np.float64)
    found = shrunk_quantiles(
        residuals, bins, edges.size + 1, tau, PRIOR, Pool.of(residuals, weights), weights
    )[:-1]
    total = np.bincount(bins, sizes if weights is None else sizes * weights, edges.size + 1)
    some = mass > 0
    centres = total[some] / mass[some]
    rises = np.append(True, np.diff(centres) > 0)
    return SizeTable(centres[rises], found[some][rises])
