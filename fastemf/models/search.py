"""`SearchMethods`: the best columns of rows, and similar rows or columns, of any model."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastemf.features.schema import SideFeatures
from fastemf.models import reading
from fastemf.models.predictor import UNKNOWN, Predictor, is_strict
from fastemf.models.ranking import CELLS_PER_BLOCK, Ranking, rank_rows
from fastemf.models.similarity import Similar, has_useful_factors, nearest
from fastemf.models.tabular import library_of
from fastemf.models.topk_screen import Screen
from fastemf.support.arrays import Array, Indices, Ints
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_choice, check_clip, check_integer
from fastemf.support.warn import warn


class SearchMethods(Predictor):
    """Rankings of columns, and similarity of rows or columns, by their predictions."""

    def rank(
        self, row: Any, n: int, *, order: str, omega: float | None = None,
        tau: float | None = None, above: float | None = None, seen: Any = None,
        unknown: str = "error", clip: Any = None, features: Any = None, row_features: Any = None,
    ) -> Ranking:  # fmt: skip
        """Find the n best columns of one row, of several rows, or of all rows.

        Values are bitwise identical to those of `predict`, and the ranking of a row does not
        depend on the other rows. Ties are broken by the smaller index. Columns without
        observations are never listed. A row without observations is ranked by the columns'
        intercepts; without intercepts it gets no columns.

        To rank by risk, rank by a high quantile: the safest service is the one with the smallest
        p95, not the one with the smallest typical value.

        Parameters
        ----------
        row
            One row, a one-dimensional array of rows (indices, or labels if the model has them), or
            None for all rows. Rows are predicted in blocks, so memory is bounded.
        n
            Number of columns per row, at most all columns.
        order
            ``"smallest"`` if small values are good (latency), ``"largest"`` if large values are
            good (spend). There is no default, because the wrong order lists the worst columns.
        omega, tau
            The expectile level of `Levels`, or the quantile of `Quantiles`, to rank by.
        above
            For `Quantiles`, instead of `tau`: rank by the probability of a value above this
            threshold, see `Quantiles.predict_distribution`.
        seen
            Data whose observed cells are left out, in any form that `fastemf.complete` accepts:
            pass the training data to list new columns only. In a table with the label columns of
            the fit, every line marks a cell as seen, whatever its value; unknown labels are
            ignored. The data are read in each call, so rank many rows at once.
        unknown
            Treatment of rows with an unknown label or index, as in `predict`: ``"error"``; with
            ``"nan"`` they get no columns, with ``"model"`` those of a row without observations.
        clip
            As in `predict`. It bounds the listed values, not their order.
        features, row_features
            Side features of the cells and of the rows, as in `predict`: scalars, one value per
            row, or ``row_features`` with one line per label. They imply ``unknown="model"``.

        Returns
        -------
        Ranking
            ``cols`` and ``values``, best first, of shape (n,) for one row and (rows, n) for
            several; -1 and NaN if a row has fewer than n candidates. In a labelled model ``cols``
            are labels, with None (NaT for dates) instead of -1.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.rank(1, 2, order="smallest").cols.tolist()
        [0, 1]
        >>> best = fit.rank(None, 1, order="largest", seen=R)  # cells not observed
        >>> best.cols.tolist()
        [[2], [-1], [1]]
        >>> best.values.round(6).tolist()
        [[3.0], [nan], [6.0]]
        >>> levels = fastemf.complete_levels(R, (0.1, 0.9), k=1)
        >>> levels.rank(1, 2, order="smallest", omega=0.9).cols.tolist()
        [0, 1]
        """
        n = min(check_integer(n, "n", minimum=1), self.axes[1].size)
        check_choice(order, "order", ("smallest", "largest"))
        check_choice(unknown, "unknown", UNKNOWN)
        bounds = check_clip(clip, self._dtype)
        if above is None:
            _, predict_selected = self._select(omega, tau)
        elif omega is None and tau is None:
            predict_selected = self._predict_above(above)
        else:
            raise ValueError(f"omega and tau must be None with above, got {omega!r} and {tau!r}")
        rows = np.arange(self.axes[0].size)
        if row is not None:
            refuses = is_strict(unknown, (features, row_features, None))
            find = self.axes[0].known_positions if refuses else self.axes[0].positions
            rows = find(row, "rows")
        if rows.ndim > 1:
            raise ValueError(
                f"row must be one row, a one-dimensional array or None, got {rows.shape}"
            )
        labels = self.axes[0].ids() if row is None else row
        given = self._read_features(features, row_features, None, rows.shape, (labels, None))
        seen_data, seen = seen, reading.read_seen(self.axes, seen)

        def rank(rows: Ints, given: SideFeatures, screen: Screen | None) -> tuple[Array, Array]:
            def predict(i: Indices, j: Indices) -> Array:
                cells = (None if one is None else np.tile(one, (i.size, 1)) for one in given)
                predicted = predict_selected(i, j, SideFeatures(*cells))
                return np.where(i < 0, np.nan, predicted) if unknown == "nan" else predicted

            return rank_rows(
                self.axes, predict, rows, n, largest=order == "largest", seen=seen, screen=screen,
                ranks_unseen=self._ranks_unseen,
            )  # fmt: skip

        every = np.atleast_1d(rows)
        if all(one is None for one in given):
            many = every.size * self.axes[1].size > CELLS_PER_BLOCK
            cols, values = rank(every, given, self._make_screen() if many else None)
        else:  # row by row, as each has its features
            of_row = [
                SideFeatures(*(None if one is None else one[at : at + 1] for one in given))
                for at in range(every.size)
            ]
            each = [rank(every[at : at + 1], one, None) for at, one in enumerate(of_row)]
            cols, values = (np.concatenate(part) for part in zip(*each, strict=True))
        values = np.clip(values, *bounds)
        if not rows.ndim:
            cols, values = cols[0], values[0]
        ids = self.axes[0].ids_at(every)
        if every.min(initial=0) < 0:  # new rows have no other name
            ids = np.atleast_1d(np.asarray(row))
            ids = ids.astype(object) if ids.dtype.kind in "UT" else ids
        name = "prediction" if above is None else f"above {above:g}"
        library = library_of(row, seen_data)
        return Ranking(cols, values, ids, self._names, library=library, value_name=name)

    def missing_pairs(self, R: Any) -> tuple[Array, Array]:
        """List the pairs of a row and a column that data have no observation of.

        Parameters
        ----------
        R
            The data, in any form that `rank` accepts as `seen`.

        Returns
        -------
        rows, cols : arrays
            Labels, or indices, of the pairs, row by row, for `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict(*fit.missing_pairs(R)).round(6).tolist()
        [3.0, 6.0]
        """
        m, n = self.shape
        check_memory(33 * m * n, f"a list of up to {m * n} pairs", "use rank, row by row")
        seen, is_missing = reading.read_seen(self.axes, R), np.ones((m, n), bool)
        if seen is not None:
            is_missing[seen.keys, seen.indices] = False
        i, j = np.nonzero(is_missing)
        return self.axes[0].ids()[i], self.axes[1].ids()[j]

    # --- similarity ------------------------------------------------------------------------

    def similar_rows(self, row: Any, n: int) -> Similar:
        """Find the n rows with the predictions closest to those of a row.

        The distance between two rows is the root mean square difference of their predictions over
        all columns, intercepts included, in the units of the data. `Levels` average over all
        levels, and `Quantiles` over the expectile levels they are based on. Factors are not
        compared, because they are only determined up to a change of basis. No dense matrix is
        formed. The row itself and rows without observations are not listed, and a row without
        observations has no similar rows. Of equal distances the smaller index comes first. If the
        factors explain nothing, because there are none or they are negligible, a warning says so:
        the similar rows are then those with a similar average.

        Parameters
        ----------
        row
            Index of a row, or its label if the model has labels.
        n
            Number of rows, at most all of them.

        Returns
        -------
        Similar
            ``others`` and ``distances``, nearest first; -1 and NaN if there are fewer than n.
            In a labelled model ``others`` are labels, as in `rank`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 5.0, 2.0], [3.0, 3.0, 3.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> near = fit.similar_rows(0, 2)
        >>> near.others.tolist(), near.distances.round(6).tolist()
        ([2, 1], [3.0, 12.0])
        """
        return self._similar(0, row, n)

    def similar_cols(self, col: Any, n: int) -> Similar:
        """Find the n columns with the predictions closest to those of a column.

        See `similar_rows`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([3.0, 3.0, 3.0], [1.0, 5.0, 2.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.similar_cols(1, 1).distances.round(6).tolist()  # column 2: 15 against 6
        [9.0]
        """
        return self._similar(1, col, n)

    def _similar(self, axis: int, item: Any, n: int) -> Similar:
        items, index = self.axes[axis], self._position(axis, item)
        n = min(check_integer(n, "n", minimum=1), items.size)
        if not any(map(has_useful_factors, self._fits)):
            what = ("rows", "columns")[axis]
            warn(
                f"the factors of the model explain nothing, so these are the {what} with the "
                "closest intercepts (their average values), not those with a similar pattern"
            )
        others, distances = nearest(items, self._distances(axis, index), index, n)
        return Similar(others, distances, self._names[axis])
