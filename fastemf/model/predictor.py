"""`Predictor`: from labels to positions to predictions, for models of one level and of several.

What is unknown, what was never seen, which bounds hold and which columns are best is decided
here; a model says how it predicts cells and rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import is_table
from fastemf.model.prediction import Axes, Predicts, predict_pairs
from fastemf.model.ranking import CELLS_PER_BLOCK, Ranking, rank_rows
from fastemf.model.reading import label_columns, read_seen
from fastemf.model.screen import Screen
from fastemf.support.validation import check_choice, check_clip, check_integer

__all__ = ["NEWCOMERS", "Predictor"]

NEWCOMERS = ("error", "nan", "model")  # what unknown labels may be


class Predictor(ABC):
    """What predicts the cells of a matrix, at one level or at several."""

    # --- what a model says of itself -------------------------------------------------------

    @property
    @abstractmethod
    def axes(self) -> Axes:
        """Rows and columns, to be indexed by axis."""

    @abstractmethod
    def _cell(self, i: int, j: int) -> Any:
        """Predict one cell of the model, with the bits of `_cells`: a number, or one per level."""

    @abstractmethod
    def _cells(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        """Predict cells, -1 for an item that is not in the model; levels are the last axis."""

    @abstractmethod
    def _rows(self, i: NDArray[np.int64]) -> NDArray[Any]:
        """Predict whole rows; levels are the last axis."""

    @abstractmethod
    def _of_level(self, level: Any) -> tuple[float, Predicts]:
        """Choose one level: which it is, and what predicts cells at it."""

    def _screen(self) -> Screen | None:
        """Make what predicts whole rows fast, if something does."""
        return None

    # --- its rows and columns --------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.axes[0].size, self.axes[1].size

    @property
    def row_labels(self) -> Labels | None:
        """What the rows are called."""
        return self.axes[0].labels

    @property
    def col_labels(self) -> Labels | None:
        """What the columns are called."""
        return self.axes[1].labels

    @property
    def unseen_rows(self) -> NDArray[np.int64]:
        """Rows without any observation."""
        return self.axes[0].unseen

    @property
    def unseen_cols(self) -> NDArray[np.int64]:
        """Columns without any observation."""
        return self.axes[1].unseen

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.axes[0].factor.dtype

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle takes along: not what was made ready for predictions."""
        kept = {field.name for field in fields(self)}  # type: ignore[arg-type]
        return {name: part for name, part in vars(self).items() if name in kept}

    def _single(self, axis: int, given: Any) -> int:
        """Return the position of one row (axis 0) or column, given by index or label."""
        at = self.axes[axis].known_positions(given, ("rows", "cols")[axis])
        if at.ndim:
            raise ValueError(f"{('row', 'col')[axis]} must be a single one, got shape {at.shape}")
        return int(at)

    # --- predictions -----------------------------------------------------------------------

    def predict(
        self,
        rows: Any,
        cols: Any = None,
        *,
        unseen: str = "model",
        unknown: str = "error",
        clip: Any = None,
    ) -> NDArray[Any]:
        """Predict the cells (rows[i], cols[i]), in the data's unit.

        Parameters
        ----------
        rows, cols
            Integer indices from 0, or labels where the fit has them, broadcast against each
            other. A labelled fit also takes one table, with the columns it was fitted from.
        unseen
            What a cell in a never-observed row or column gets: ``"model"`` the
            model's value (that of the other side's intercept, or 0 without
            intercepts), ``"nan"`` NaN.
        unknown
            What labels that the fit does not have are: ``"error"``; ``"nan"`` for NaN; or
            ``"model"`` for rows and columns without observations. A known row then has
            ``mu + shift`` plus its intercept in every new column, a known column likewise in
            every new row, and a new row has ``mu + shift`` in a new column; tables
            take what is new for a level of 0 and the mean's noise. Without intercepts nothing is
            known of such cells: NaN.
        clip
            ``(low, high)``: values beyond are set to the bound, None leaves a side open. Use
            ``clip=(0, None)`` for quantities that cannot be negative, as predictions can.
            NaN stays NaN.

        Returns
        -------
        array of the broadcast shape
            With one more axis, the last, for the levels of a model of several: many cells make a
            table with one column per level, along which values never fall.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict([0, 2], [2, 1]).round(6).tolist()
        [3.0, 6.0]
        >>> fit.predict([0, 2], [2, 1], clip=(None, 5)).round(6).tolist()
        [3.0, 5.0]
        >>> import pandas as pd
        >>> table = pd.DataFrame(R, index=["eu", "us", "asia"], columns=["buy", "find", "pay"])
        >>> fit = fastemf.complete(table, omega=0.5, k=1, reg=0)
        >>> fit.predict(["eu", "mars"], "pay", unknown="nan").round(6).tolist()
        [3.0, nan]

        Newcomers, and several levels:

        >>> fit = fastemf.complete(table, omega=0.5, k=0, intercepts=True)
        >>> bool(fit.predict("mars", "pay", unknown="model") == fit.mu + fit.col_intercepts[2])
        True
        >>> levels = fastemf.complete_levels(table, (0.1, 0.5, 0.9), k=1)
        >>> low, middle, high = levels.predict("eu", "pay")
        >>> bool(low <= middle <= high)
        True
        """
        check_choice(unseen, "unseen", ("model", "nan"))
        check_choice(unknown, "unknown", NEWCOMERS)
        bounds = None if clip is None else check_clip(clip, self._dtype)
        if unseen == "model":
            i, j = (axis.place(at) for axis, at in zip(self.axes, (rows, cols), strict=True))
            if i is not None and j is not None:
                return _within(bounds, np.array(self._cell(i, j)))
        if cols is None:
            if not is_table(rows):
                raise TypeError(f"cols must be given unless rows is a table, got {type(rows)}")
            rows, cols = label_columns(self.axes, rows)
        out = predict_pairs(self.axes, self._cells, rows, cols, unseen=unseen, unknown=unknown)
        return _within(bounds, out)

    def predict_block(self, rows: Any, *, clip: Any = None) -> NDArray[Any]:
        """Predict whole rows (indices, or labels), as a (len(rows), n) array.

        `clip` is as in `predict`, and so are the levels of a model of several.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict_block([0]).round(6).tolist()
        [[1.0, 2.0, 3.0]]
        >>> fastemf.complete_levels(R, (0.1, 0.9), k=1).predict_block([0, 2]).shape
        (2, 3, 2)
        """
        bounds = None if clip is None else check_clip(clip, self._dtype)
        i = np.atleast_1d(self.axes[0].known_positions(rows, "rows"))
        if i.ndim != 1:
            raise ValueError(f"rows must be one-dimensional, got shape {i.shape}")
        return _within(bounds, self._rows(i))

    def rank(
        self,
        row: Any,
        n: int,
        *,
        order: str,
        level: float | None = None,
        seen: Any = None,
        unknown: str = "error",
        clip: Any = None,
    ) -> Ranking:
        """Find the n best columns of a row, of several rows, or of all.

        Values are bitwise identical to those of `predict`, and a row's ranking does not depend
        on the rows it is asked with. Of equal values the smaller index comes first. Columns
        without any observation are never listed: nothing is known of them but the
        fallback that `predict` gives. A row without any is ranked by the columns'
        intercepts; where the fit has none it gets no columns.

        To rank by risk, rank by a high level: the safest service is the one with
        the smallest high expectile, not the one with the smallest typical value.

        Parameters
        ----------
        row
            A row, a one-dimensional array of rows (indices, or labels where the fit has
            them), or None for all rows. Rows are predicted a block at a time: memory is
            bounded whatever their number.
        n
            How many columns; above the number of columns it is that number.
        order
            ``"smallest"`` if small values are good (latency), ``"largest"`` if large ones
            are (spend). There is no default: the wrong one lists the worst.
        level
            Which level to rank by, for a model of several.
        seen
            Data whose observed entries are left out, in any form `fastemf.complete`
            takes: pass the training data to get new columns only. Of a table with the columns
            that the fit's labels came from, every line counts; labels that the fit does not have
            are ignored. It is read as a whole in each call, so ask for many rows at once.
        unknown
            What rows whose label the fit does not have are, as in `predict`: ``"error"``; with
            ``"nan"`` they get no columns, with ``"model"`` those of a row without observations.
        clip
            As in `predict`. It bounds the values listed, not their order: among columns
            at a bound the model's own values decide.

        Returns
        -------
        Ranking
            ``cols`` and ``values``, best first, of shape (n,) for one row and (rows, n) for
            several; -1 and NaN where there are fewer than n columns to list. Of a labelled
            fit ``cols`` are labels, None (NaT for dates) in place of -1.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.rank(1, 2, order="smallest").cols.tolist()
        [0, 1]
        >>> best = fit.rank(None, 1, order="largest", seen=R)  # what was not measured
        >>> best.cols.tolist()
        [[2], [-1], [1]]
        >>> best.values.round(6).tolist()
        [[3.0], [nan], [6.0]]
        >>> levels = fastemf.complete_levels(R, (0.1, 0.9), k=1)
        >>> levels.rank(1, 2, order="smallest", level=0.9).cols.tolist()
        [0, 1]
        """
        n = min(check_integer(n, "n", minimum=1), self.axes[1].size)
        check_choice(order, "order", ("smallest", "largest"))
        check_choice(unknown, "unknown", NEWCOMERS)
        bounds = check_clip(clip, self._dtype)
        _, of_level = self._of_level(level)

        def predict(i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
            found = of_level(i, j)
            return np.where(i < 0, np.nan, found) if unknown == "nan" else found

        rows = np.arange(self.axes[0].size)
        if row is not None:
            find = self.axes[0].known_positions if unknown == "error" else self.axes[0].positions
            rows = find(row, "rows")
        if rows.ndim > 1:
            raise ValueError(
                f"row must be one row, a one-dimensional array or None, got {rows.shape}"
            )
        left_out, largest = read_seen(self.axes, seen), order == "largest"
        many = rows.size * self.axes[1].size > CELLS_PER_BLOCK
        cols, values = rank_rows(
            self.axes, predict, np.atleast_1d(rows), n, largest=largest, seen=left_out,
            screen=self._screen() if many else None,
        )  # fmt: skip
        values = np.clip(values, *bounds)
        return Ranking(cols, values) if rows.ndim else Ranking(cols[0], values[0])


def _within(bounds: tuple[Any, Any] | None, predicted: NDArray[Any]) -> NDArray[Any]:
    """Set predictions beyond the bounds, where there are some, to these."""
    return predicted if bounds is None else np.clip(predicted, *bounds, out=predicted)
