"""`Predictor`, the base of fitted models: rows and columns, and predictions of cells."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from fastemf.features.schema import NOT_GIVEN, SideFeatures
from fastemf.inputs.labels import Labels, check_known
from fastemf.inputs.tables import is_table
from fastemf.models import reading
from fastemf.models.bilinear import Axes, Predicts
from fastemf.models.description import Described
from fastemf.models.reading import GivenFeatures
from fastemf.models.tabular import Columns, add_columns, hold_table
from fastemf.models.topk_screen import Screen
from fastemf.support.arrays import Array, Floats, Indices, Ints
from fastemf.support.display_names import quantile_name
from fastemf.support.memory import check_memory
from fastemf.support.validation import (
    check_choice,
    check_clip,
    check_fitted_level,
    check_flag,
    check_indices,
)

UNKNOWN = ("error", "nan", "model")  # how to treat unknown labels
NEW = np.array(["", "new column", "new row", "new row and column"], object)


class Predictor(Described):
    """Rows and columns of a fitted model, found by index or label, and predictions of cells."""

    _of_quantiles: ClassVar = False

    # --- what a subclass defines -----------------------------------------------------------

    @property
    @abstractmethod
    def axes(self) -> Axes:
        """Rows and columns, indexed by axis."""

    @property
    @abstractmethod
    def _fitted(self) -> tuple[float, ...]:
        """The fitted expectile levels, or quantiles."""

    @abstractmethod
    def _predict_cell(self, i: int, j: int) -> Any:
        """Predict one cell, bitwise as `_predict_cells`: a number, or one per level."""

    @abstractmethod
    def _predict_cells(self, i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
        """Predict cells by index, -1 for an unknown row or column; levels are the last axis."""

    @abstractmethod
    def _predict_rows(self, i: Ints, given: SideFeatures = NOT_GIVEN) -> Array:
        """Predict whole rows; levels are the last axis."""

    @abstractmethod
    def _distances(self, axis: int, item: int) -> Floats:
        """Compute the distance of each row (axis 0) or column from one, by its predictions."""

    def _read_features(
        self, features: Any, row_features: Any, col_features: Any, shape: tuple[int, ...],
        labels: tuple[Any, Any] = (None, None), *, by_label: bool = False,
    ) -> SideFeatures:  # fmt: skip
        """Encode the side features given with a call, for predictions of this shape.

        `labels` (or indices) are those of the cells. With `by_label`, features of rows and columns
        are given as in a fit, and never as values of cells.
        """
        given = {"features": features, "row_features": row_features, "col_features": col_features}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} must be None for a model without side features")
        return NOT_GIVEN

    @property
    @abstractmethod
    def _limits(self) -> tuple[float, float] | None:
        """Censoring limits on both sides, infinite if there is none; None without censoring."""

    @property
    def _prediction_names(self) -> list[str]:
        """Names of the columns of predictions, for a model of several levels or quantiles."""
        name = quantile_name if self._of_quantiles else "omega={:g}".format
        return [name(level) for level in self._fitted]

    @property
    def _ranks_unseen(self) -> bool:
        """Whether rows without observations have predictions that depend on the column."""
        return self.axes[0].has_intercepts

    @property
    def _feature_schema(self) -> GivenFeatures | None:
        """The side features of observations, if the model has any."""
        return None

    def _make_screen(self) -> Screen | None:
        """Return a fast approximate prediction of whole rows, if the model has one."""
        return None

    # --- rows and columns ------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.axes[0].size, self.axes[1].size

    @property
    def row_labels(self) -> Labels | None:
        """Labels of the rows, if there are any."""
        return self.axes[0].labels

    @property
    def col_labels(self) -> Labels | None:
        """Labels of the columns, if there are any."""
        return self.axes[1].labels

    @property
    def _names(self) -> tuple[str, str]:
        """Names of the columns of row and column labels in tables."""
        return self.axes[0].name or "row", self.axes[1].name or "col"

    @property
    def unseen_rows(self) -> Ints:
        """Rows without observations."""
        return self.axes[0].unseen

    @property
    def unseen_cols(self) -> Ints:
        """Columns without observations."""
        return self.axes[1].unseen

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.axes[0].factor.dtype

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields of the model, without cached objects, for a copy or a pickle."""
        names = {field.name for field in fields(self)}  # type: ignore[arg-type]
        return {name: part for name, part in vars(self).items() if name in names}

    def _position(self, axis: int, given: Any) -> int:
        """Return the index of one row (axis 0) or column, given by index or label."""
        at = self.axes[axis].known_positions(given, ("rows", "cols")[axis])
        if at.ndim:
            raise ValueError(f"{('row', 'col')[axis]} must be a single one, got shape {at.shape}")
        return int(at)

    def _predict_above(self, threshold: Any) -> Predicts:
        """Return a function that predicts the probability of a value above a threshold."""
        raise ValueError(
            f"above must be None for a model without quantiles, got {threshold!r}; "
            "complete_quantiles fits them"
        )

    def _select(self, omega: Any, tau: Any) -> tuple[float, Predicts]:
        """Return the selected level or quantile, and a function that predicts cells at it."""
        names, what, given = ["omega", "tau"], "levels", [omega, tau]
        if self._of_quantiles:
            names, what, given = names[::-1], "quantiles", given[::-1]
        if given[1] is not None:
            raise ValueError(
                f"{names[1]} must be None, as {names[0]} selects one of the {what} of this model, "
                f"got {given[1]!r}"
            )
        if given[0] is None:
            fitted = ", ".join(f"{one:g}" for one in self._fitted)
            raise ValueError(f"{names[0]} must be one of the {what} fitted, {fitted}, got None")
        place = check_fitted_level(given[0], self._fitted, names[0], what)

        def predict(i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
            return self._predict_cells(i, j, given)[..., place]

        return self._fitted[place], predict

    # --- predictions -----------------------------------------------------------------------

    def predict(
        self, rows: Any, cols: Any = None, *, unseen: str = "model", unknown: str = "error",
        clip: Any = None, features: Any = None, row_features: Any = None, col_features: Any = None,
        as_frame: bool = False,
    ) -> Any:  # fmt: skip
        """Predict the cells (rows[i], cols[i]), in the units of the data.

        Parameters
        ----------
        rows, cols
            Indices from 0, or labels if the model has them. They are broadcast against each other.
            A labelled model also takes one table with the columns it was fitted from.
        unseen
            Prediction of cells whose row or column had no observations in the fit. ``"model"``
            predicts ``mu + shift`` plus the intercept of the other side, or 0 without intercepts;
            ``"nan"`` returns NaN.
        unknown
            Prediction of cells whose row or column label is not in the model, or whose index is
            beyond the last in a model without labels. ``"error"`` raises a `ValueError` or an
            `IndexError`; ``"nan"`` returns NaN; ``"model"`` treats them as rows or columns without
            observations, with an effect of 0 and average noise in the correction tables. Without
            intercepts, ``"model"`` also returns NaN.
        clip
            ``(low, high)``: predictions outside are set to the bound; None leaves a side open. Use
            ``clip=(0, None)`` for quantities that cannot be negative. NaN stays NaN.
        features, row_features, col_features
            Side features of the cells, of their rows and of their columns, for a model that was
            fitted with some: dicts or tables by name, with scalars or one value per cell. A table
            of cells has the former as columns. Features of rows and columns may also be a table or
            a file with one line per label, as in the fit. Those of known rows and columns are
            replaced; absent ones are missing. ``row_features`` and ``col_features`` imply
            ``unknown="model"`` for their side.
        as_frame
            Return the table `rows` with the predictions as further columns: ``prediction``, or
            ``p50``, ``p95`` and so on, or ``omega=0.5`` and so on. For a model of censored values,
            or if unknown labels are allowed, the column ``note`` marks predictions beyond the
            censoring limit, and new rows and columns; it is otherwise empty.

        Returns
        -------
        array of the broadcast shape
            `Levels` and `Quantiles` add a last axis, along which values never decrease. With
            `as_frame`, a data frame of pandas or polars like `rows`, or an Arrow table.

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

        A table of pairs:

        >>> log = pd.DataFrame({"client": ["eu", "us"], "service": ["buy", "pay"], "ms": [1.0, 6]})
        >>> named = fastemf.complete(
        ...     log, 0.5, 1, reg=0, rows="client", cols="service", values="ms"
        ... )
        >>> named.predict(log, as_frame=True).columns.tolist()
        ['client', 'service', 'ms', 'prediction']

        New rows, and several levels:

        >>> fit = fastemf.complete(table, omega=0.5, k=0, intercepts=True)
        >>> bool(fit.predict("mars", "pay", unknown="model") == fit.mu + fit.col_intercepts[2])
        True
        >>> levels = fastemf.complete_levels(table, (0.1, 0.5, 0.9), k=1)
        >>> low, middle, high = levels.predict("eu", "pay")
        >>> bool(low <= middle <= high)
        True
        """
        check_choice(unseen, "unseen", ("model", "nan"))
        check_choice(unknown, "unknown", UNKNOWN)
        bounds = None if clip is None else check_clip(clip, self._dtype)
        extra = (features, row_features, col_features)
        if as_frame is not False and check_flag(as_frame, "as_frame"):
            return self._predict_frame(rows, cols, unseen, unknown, bounds, extra)
        if unseen == "model" and all(one is None for one in extra):
            i, j = (axis.position(at) for axis, at in zip(self.axes, (rows, cols), strict=True))
            if i is not None and j is not None:
                return _clip(np.array(self._predict_cell(i, j)), bounds)
        return self._predict_pairs(rows, cols, unseen, unknown, bounds, extra)[2]

    def _predict_pairs(
        self, rows: Any, cols: Any, unseen: str, unknown: str, bounds: Any,
        extra: tuple[Any, Any, Any],
    ) -> tuple[Ints, Ints, Array]:  # fmt: skip
        """Find the cells (rows[i], cols[i]), given by label, index or a table, and predict them."""
        encoded = None
        if cols is None:
            if not is_table(rows):
                raise TypeError(f"cols must be given unless rows is a table, got {type(rows)}")
            schema = self._feature_schema
            if schema is None:
                rows, cols = reading.label_columns(self.axes, rows)
            else:
                rows, cols, encoded = reading.pair_columns(self.axes, rows, schema.schema)
        i, j, given = self._read_cells(rows, cols, unknown, extra)
        if given.observed is None:
            given = given._replace(observed=encoded)
        out = self._predict_cells(i, j, given)
        if unknown == "nan":
            out[(i < 0) | (j < 0)] = np.nan
        if unseen == "nan":
            out[np.isin(i, self.unseen_rows) | np.isin(j, self.unseen_cols)] = np.nan
        return i, j, _clip(out, bounds)

    def _predict_frame(
        self, table: Any, cols: Any, unseen: str, unknown: str, bounds: Any,
        extra: tuple[Any, Any, Any],
    ) -> Any:  # fmt: skip
        """Return a table of cells with their predictions."""
        if cols is not None or not is_table(table):
            raise TypeError(
                "rows must be a table, and cols None, for as_frame=True, got "
                f"{type(table).__name__} and {type(cols).__name__}"
            )
        table = hold_table(table)
        return add_columns(
            table, self._predict_columns(table, None, unseen, unknown, bounds, extra)
        )

    def _predict_columns(
        self, rows: Any, cols: Any, unseen: str, unknown: str, bounds: Any,
        extra: tuple[Any, Any, Any],
    ) -> Columns:  # fmt: skip
        """Return the predictions of cells as columns by name, and notes about them.

        There are notes for a model of censored values, and if unknown labels are allowed.
        """
        i, j, predicted = self._predict_pairs(rows, cols, unseen, unknown, bounds, extra)
        names = ["prediction"] if predicted.ndim == 1 else self._prediction_names
        columns = dict(zip(names, predicted.reshape(i.size, -1).T, strict=True))
        if is_strict(unknown, extra) and self._limits is None:
            return columns
        notes = NEW[2 * (i < 0) + (j < 0)]
        low, high = self._limits or (-math.inf, math.inf)
        for name, values in columns.items():
            beyond = (values <= low) | (values >= high)
            text = f"{name} beyond the limit"
            notes[beyond] = [f"{one}; {text}" if one else text for one in notes[beyond]]
        return {**columns, "note": notes}

    def _read_cells(
        self, rows: Any, cols: Any, unknown: str, extra: tuple[Any, Any, Any]
    ) -> tuple[Ints, Ints, SideFeatures]:
        """Find cells by index or label, broadcast, and encode their side features."""
        axes = self.axes
        i, j = axes[0].positions(rows, "rows"), axes[1].positions(cols, "cols")
        if unknown == "error":
            check_known_cells(axes, (i, j), (rows, cols), extra[1:])
        try:
            shape = np.broadcast_shapes(i.shape, j.shape)
        except ValueError:
            raise ValueError(
                f"rows and cols must have shapes that broadcast, got {i.shape} and {j.shape}"
            ) from None
        check_memory(
            (16 + self._dtype.itemsize) * math.prod(shape),
            f"a prediction of {math.prod(shape)} cells",
            "predict fewer at a time, or whole rows with predict_block",
        )
        if i.shape != j.shape:  # broadcast views are read-only
            i, j = (index.copy() for index in np.broadcast_arrays(i, j))
        return i, j, self._read_features(*extra, shape, (rows, cols))

    def _read_cell(
        self, row: Any, col: Any, unknown: str, *extra: Any
    ) -> tuple[Ints, Ints, SideFeatures]:
        """Find one cell; the arrays have one element."""
        i, j, given = self._read_cells(row, col, unknown, (extra[0], extra[1], extra[2]))
        if i.size != 1:
            raise ValueError(f"row and col must be a single cell, got shape {i.shape}")
        return i.ravel(), j.ravel(), given

    def predict_block(self, rows: Any, *, clip: Any = None, features: Any = None) -> Array:
        """Predict whole rows (indices, or labels), as a (len(rows), n) array.

        `clip` and `features` (of the cells) are as in `predict`. `Levels` and `Quantiles` add a
        last axis.

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
        given = self._read_features(features, None, None, (i.size, self.shape[1]))
        return _clip(self._predict_rows(i, given), bounds)


def is_strict(unknown: str, extra: tuple[Any, Any, Any]) -> bool:
    """Return whether all unknown labels are refused, given the side features of a call."""
    return unknown == "error" and extra[1] is None and extra[2] is None


def check_known_cells(
    axes: Axes, places: tuple[Ints, Ints], given: tuple[Any, Any], features: tuple[Any, Any]
) -> None:
    """Raise an error for unknown labels or indices of a side without given features.

    Labels are unknown at position -1.
    """
    sides = zip(axes, places, given, ("rows", "cols"), features, strict=True)
    strict = [side[:4] for side in sides if side[4] is None]
    for axis, _, indices, what in strict:
        if axis.labels is None:
            check_indices(indices, what, axis.size)
    check_known(*(side[1:] for side in strict if side[0].labels is not None))


def _clip(predicted: Array, bounds: tuple[Any, Any] | None) -> Array:
    """Clip predictions in place, unless `bounds` is None."""
    return predicted if bounds is None else np.clip(predicted, *bounds, out=predicted)
