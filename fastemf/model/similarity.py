"""How alike rows are: by what is predicted for them, which does not depend on the basis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.threads import single_threaded_blas
from fastemf.model.prediction import Axes
from fastemf.model.ranking import smallest
from fastemf.solver.axis import Axis

__all__ = ["Similar", "distances_from", "nearest"]


class Similar(NamedTuple):
    """The rows (or columns) like one, the nearest first; see `Factorization.similar_rows`."""

    others: NDArray[Any]
    """Rows (columns), -1 where there are fewer than n; or labels, and None or NaT."""
    distances: NDArray[np.float64]
    """Root mean square difference of the predictions, in the data's unit; NaN where no other."""


def nearest(axis: Axis, distances: NDArray[np.float64], item: int, n: int) -> Similar:
    """Find the n items of an axis at the smallest distances from one item.

    Neither is the item itself among them nor any without observations; to such an item nothing
    is near.
    """
    possible = np.full_like(distances, np.nan) if item in axis.unseen else distances.copy()
    possible[axis.unseen] = np.nan
    possible[item] = np.nan
    others = smallest(possible[None], n)[0]
    return Similar(axis.called(others), np.where(others >= 0, possible[others], np.nan))


def distances_from(axes: Axes, axis: int, item: int) -> NDArray[np.float64]:
    """Compute how far the predictions of each item of an axis are from those of one item.

    With u the items' factors and G = otherᵀ other / count, the mean square difference
    of two items is (u − u')ᵀ G (u − u'). With G = RᵀR, by a QR decomposition of `other`, it
    is the squared length of R (u − u'): so no large numbers cancel, and equal items have
    distance 0.
    """
    this, other = axes[axis].extended(), axes[1 - axis].factor
    if axes[axis].has_intercepts:
        # What the other side's intercepts add is the same for both items.
        other = np.column_stack([other, np.ones(len(other), other.dtype)])
    with single_threaded_blas():
        root = np.linalg.qr(other.astype(np.float64), mode="r") / np.sqrt(other.shape[0])
        apart = (this.astype(np.float64) - this[item].astype(np.float64)) @ root.T
    unit = float(np.abs(apart).max()) or 1.0  # in which no square overflows or vanishes
    return np.asarray(unit * np.sqrt(np.square(apart / unit).sum(axis=1)))
