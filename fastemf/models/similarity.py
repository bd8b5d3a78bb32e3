"""Similarity of rows or columns by their predictions, which do not depend on the basis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastemf.kernels.threads import single_threaded_blas
from fastemf.models.bilinear import Axes
from fastemf.models.entities import Entities
from fastemf.models.ranking import smallest
from fastemf.models.tabular import Columns, Tabular, typed, unused_name
from fastemf.support.arrays import Array, Floats

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization

NEGLIGIBLE = 0.01  # root mean square of the factors' product, relative to that of the data


@dataclass(frozen=True, eq=False)
class Similar(Tabular):
    """Similar rows (or columns), nearest first; see `Factorization.similar_rows`.

    Attributes
    ----------
    others : array
        Rows (columns), with -1 if there are fewer than n; or labels, with None or NaT.
    distances : float64 array
        Root mean square differences of the predictions, in the units of the data; NaN for -1.
    name : str
        Name of the column of labels.
    """

    others: Array
    distances: Floats
    name: str

    def __iter__(self) -> Iterator[Array]:
        return iter((self.others, self.distances))

    def columns(self) -> Columns:
        """Return the others and their distances, without empty places.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 5.0, 2.0], [3.0, 3.0, 3.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> print(fit.similar_rows(0, 2))
        differences of predictions, nearest first:
        row  distance
          2         3
          1        12
        """
        kept = ~np.isnan(self.distances)
        name = unused_name("distance", [self.name])
        return {self.name: typed(self.others[kept]), name: self.distances[kept]}

    @property
    def _title(self) -> str:
        return "differences of predictions, nearest first"


def nearest(axis: Entities, distances: Floats, item: int, n: int) -> tuple[Array, Floats]:
    """Find the n items of an axis nearest to one item.

    The item itself and items without observations are excluded. An item without observations has
    no neighbours.
    """
    possible = np.full_like(distances, np.nan) if item in axis.unseen else distances.copy()
    possible[axis.unseen] = np.nan
    possible[item] = np.nan
    others = smallest(possible[None], n)[0]
    return axis.ids_at(others), np.where(others >= 0, possible[others], np.nan)


def distances_from(axes: Axes, axis: int, item: int) -> Floats:
    """Compute the root mean square difference of the predictions of each item from one item.

    With u the items' factors and G = otherᵀ other / count, the mean square difference
    of two items is (u − u')ᵀ G (u − u'). With G = RᵀR, from a QR decomposition of `other`, it
    is the squared length of R (u − u'). This avoids cancellation, and equal items have distance 0.
    """
    this, other = axes[axis].extended_factor(), axes[1 - axis].factor
    if axes[axis].has_intercepts:
        # The other side's intercepts are the same for both items and cancel.
        other = np.column_stack([other, np.ones(len(other), other.dtype)])
    with single_threaded_blas():
        root = np.linalg.qr(other.astype(np.float64), mode="r") / np.sqrt(other.shape[0])
        apart = (this.astype(np.float64) - this[item].astype(np.float64)) @ root.T
    unit = float(np.abs(apart).max()) or 1.0  # avoids overflow and underflow of squares
    return np.asarray(unit * np.sqrt(np.square(apart / unit).sum(axis=1)))


def has_useful_factors(fit: Factorization) -> bool:
    """Return whether factors are more than negligible and, in a tuned fit, reduce its loss."""
    if fit.tuning is not None and fit.tuning.has_intercepts and not fit.tuning.factors_help:
        return False
    X, Y = (axis.factor.astype(np.float64) for axis in fit.axes)
    units = [float(np.abs(factor).max(initial=0)) or 1.0 for factor in (X, Y)]  # as above
    X, Y = X / units[0], Y / units[1]
    mean_square = float(np.sum((X.T @ X) * (Y.T @ Y))) / (len(X) * len(Y))
    return units[0] * units[1] * math.sqrt(mean_square) > NEGLIGIBLE * fit.scale


def mean_distances(fits: Sequence[Axes], axis: int, item: int) -> Floats:
    """Return the root mean square of the distances in several fits."""
    apart = [distances_from(axes, axis, item) for axes in fits]
    return np.asarray(np.hypot.reduce(apart) / np.sqrt(len(apart)))
