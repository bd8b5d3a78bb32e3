"""`Axis`, one side of a low-rank model: its rows or its columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels, check_known
from fastemf.solver.tables import AxisLevels
from fastemf.support.validation import check_indices

__all__ = ["Axis", "AxisNoise"]


@dataclass(frozen=True, eq=False)
class AxisNoise:
    """How noisy the rows, or the columns, of a fit are.

    Parameters
    ----------
    variances
        One number for each item, around 1.
    level
        Mean square of the slopes of the loss over the other side's variances: what a variance
        of 1 means, in squared units of the data.
    """

    variances: NDArray[np.float64]
    level: float


@dataclass(frozen=True, eq=False)
class Axis:
    """What a low-rank model knows of its rows, or of its columns.

    The two axes of a model both have intercepts or neither has, and likewise labels.

    Parameters
    ----------
    factor
        One row of k numbers for each item, that is, for each row or column of the matrix.
    intercepts
        One number for each item; None in a model without intercepts.
    labels
        What the items are called; None where they go by number.
    unseen
        Numbers of the items without any observation.
    noise
        How noisy the items are, where a tuned fit or its tables make use of that; else None.
    levels
        The items' own levels, where predictions add tables; else None.

    Examples
    --------
    >>> import numpy as np, fastemf
    >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0, 5.0]), omega=0.5, k=1, reg=0)
    >>> fit.rows.size, fit.cols.size, fit.cols.k
    (2, 3, 1)
    """

    factor: NDArray[Any]
    intercepts: NDArray[Any] | None = None
    labels: Labels | None = None
    unseen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    noise: AxisNoise | None = None
    levels: AxisLevels | None = None

    @cached_property
    def table_places(self) -> NDArray[np.float64]:
        """Where the items are among the knots of the tables: see `Tables.places`."""
        if self.levels is None:
            return np.zeros((self.size, 0))
        # Logarithms of the variances, which are 1 where nothing is known of them.
        noise = np.zeros(self.size) if self.noise is None else np.log(self.noise.variances)
        return self.levels.tables.places(self.levels.values, noise)

    @classmethod
    def split(
        cls,
        extended: NDArray[Any],
        k: int,
        labels: Labels | None = None,
        unseen: NDArray[np.int64] | None = None,
    ) -> Axis:
        """Make an axis of a factor whose columns after the k-th, if any, are the intercepts."""
        return cls(
            np.ascontiguousarray(extended[:, :k]),
            extended[:, k].copy() if extended.shape[1] > k else None,
            labels,
            np.empty(0, np.int64) if unseen is None else unseen,
        )

    @property
    def size(self) -> int:
        """Number of items."""
        return int(self.factor.shape[0])

    @property
    def k(self) -> int:
        """The rank."""
        return int(self.factor.shape[1])

    @property
    def has_intercepts(self) -> bool:
        """Whether the model has intercepts."""
        return self.intercepts is not None

    @property
    def name(self) -> str | None:
        """Name of the column that the labels came from, if there are labels and it had one."""
        return None if self.labels is None else self.labels.name

    def ids(self) -> NDArray[Any]:
        """Return what the items go by: their labels, or their numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis
        >>> Axis(np.ones((3, 1))).ids().tolist()
        [0, 1, 2]
        """
        return np.arange(self.size) if self.labels is None else self.labels.values

    def extended(self) -> NDArray[Any]:
        """Return the factor with the intercepts, where there are any, as its last column.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis
        >>> Axis(np.ones((2, 1)), np.array([7.0, 8.0])).extended().tolist()
        [[1.0, 7.0], [1.0, 8.0]]
        """
        if self.intercepts is None:
            return self.factor
        return np.column_stack([self.factor, self.intercepts])

    def positions(self, given: Any, what: str) -> NDArray[np.int64]:
        """Number the items given, by label where there are labels; -1 for an unknown label.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis, Labels
        >>> regions = Axis(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.positions(["us", "uk"], "rows").tolist()
        [1, -1]
        """
        if self.labels is None:
            return check_indices(given, what, self.size)
        return self.labels.positions(given, what=what)

    def place(self, given: Any) -> int | None:
        """Number one item, given as a plain integer or string; None where that takes more.

        What is not known, or given in another way, is left to `positions`, which can say so.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis, Labels
        >>> regions = Axis(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.place("us"), regions.place("uk"), regions.place(["us"])
        (1, None, None)
        """
        if self.labels is not None:
            return self.labels.place(given)
        if type(given) not in (int, np.int64):
            return None
        return int(given) if 0 <= given < self.size else None

    def known_positions(self, given: Any, what: str) -> NDArray[np.int64]:
        """Number the items given as `positions` does; unknown labels raise ValueError.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis, Labels
        >>> regions = Axis(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.known_positions("us", "rows").tolist()
        1
        """
        found = self.positions(given, what)
        check_known((found, given, what))
        return found

    def called(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Name the items at these places: their labels, with None or NaT for -1, or the places.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Axis, Labels
        >>> regions = Axis(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.called(np.array([1, -1])).tolist()
        ['us', None]
        """
        if self.labels is None:
            return places
        found = self.labels.take(places)
        if found.dtype.kind != "M":
            found = found.astype(object)  # integers have no missing value
        found[places < 0] = None
        return found
