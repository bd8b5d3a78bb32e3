"""`Summary`: observations, residuals and loss of each row or column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.censoring.coverage import CensoredCells
from fastemf.features.schema import NOT_GIVEN, SideFeatures
from fastemf.inputs.entries import parts
from fastemf.loss import sign_weights
from fastemf.models.bilinear import Predicts
from fastemf.models.entities import Entities
from fastemf.models.tabular import Columns, Tabular
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Array, Floats, Ints

ROWS_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Tabular):
    """Observations, residuals and loss of each row (or column).

    ``print(summary)`` shows the rows with the largest mean loss, and ``summary.to_frame()`` is a
    data frame of all. Statistics of rows without observations are NaN.

    Attributes
    ----------
    axis : int
        0 for rows, 1 for columns.
    ids : array
        The rows or columns: indices, or labels if the model has them.
    observations : int64 array
        Number of observations.
    weight : float64 array or None
        Sums of the weights, if there are any.
    mean : float64 array
        Mean of the observed values, in the units of the data.
    rms : float64 array
        Root mean square of the residuals, in the units of the data.
    loss : float64 array
        Mean expectile loss; for a quantile, mean pinball loss.
    effective_omega : float64 array or None
        The level of the predictions, Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|): close to omega if the fit is
        calibrated, and smaller if its predictions are too low. NaN if every residual is 0; None for
        a quantile.
    coverage : float64 array or None
        For a quantile, the proportion of the values at or below it, among cells whose quantile
        lies within the censoring limit; else None.
    library : {"pandas", "polars"}
        Library of the data frame that `to_frame` returns.
    """

    axis: int
    ids: Array
    observations: Ints
    weight: Floats | None
    mean: Floats
    rms: Floats
    loss: Floats
    effective_omega: Floats | None
    coverage: Floats | None = None
    library: str = "pandas"

    def columns(self) -> Columns:
        """Return the arrays by column name.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> table = fit.summary(R).columns()
        >>> list(table)
        ['row', 'observations', 'mean', 'rms', 'loss', 'effective_omega']
        >>> table["mean"].tolist()
        [3.5, 7.0]
        """
        names = ("observations", "weight", "mean", "rms", "loss", "effective_omega", "coverage")
        arrays = {name: getattr(self, name) for name in names}
        given = {name: array for name, array in arrays.items() if array is not None}
        return {self._what: self.ids, **given}

    def __repr__(self) -> str:
        return f"<Summary of {self.ids.size} {self._what}s>"

    @property
    def _title(self) -> str:
        empty = np.count_nonzero(self.observations == 0)
        title = f"{self.ids.size} {self._what}s, {empty} without observations"
        if self.ids.size > ROWS_SHOWN:
            title += f"; the {ROWS_SHOWN} with the largest mean loss"
        return title

    def _shown(self) -> Columns:
        worst = np.argsort(-self.loss, kind="stable")[:ROWS_SHOWN]  # NaN comes last
        return {name: array[worst] for name, array in self.columns().items()}

    @property
    def _what(self) -> str:
        return ("row", "column")[self.axis]


def summarize_axis(
    items: Entities,
    predict: Predicts,
    level: float,
    observed: Observations,
    axis: int,
    *,
    is_quantile: bool = False,
    features: Floats | None = None,
    censored: CensoredCells | None = None,
) -> Summary:
    """Summarize the entries of each row (axis 0) or column (axis 1), one block at a time.

    `features` are encoded side features of the observations by row. `censored` describes the
    entries of this side if some are censored.
    """
    side = (observed.by_row, observed.by_col)[axis]
    groups = side.mass.size
    values, squares, losses, below, absolute, covered, checked = sums = np.zeros((7, groups))
    keys = side.keys
    if features is not None and axis == 1:
        features, by_row = np.empty_like(features), features
        features[observed.places_by_col()] = by_row
    for part in parts(keys.size):
        b = side.values[part].astype(np.float64)
        cells = (keys[part], side.indices[part])
        given = NOT_GIVEN if features is None else SideFeatures(observed=features[part])
        predicted = predict(*(cells if axis == 0 else cells[::-1]), given)
        r, known = b - predicted, np.ones(b.size, bool)
        if censored is not None and is_quantile:
            r, known = censored.residuals(predicted, part), censored.is_known(predicted, part)
        elif censored is not None:
            r = censored.values[part] - predicted
        v = side.weights[part].astype(np.float64) if side.weights.size else np.ones(r.size)
        first = int(keys[part.start])  # entries are in the order of their groups
        size = v * np.abs(r)
        square = size * np.abs(r)
        loss = (size if is_quantile else square) * sign_weights(r, level)
        covers, counted = v * (known & (r <= 0)), v * known
        terms = (v * b, square, loss, size * (r < 0), size, covers, counted)
        for total, term in zip(sums, terms, strict=True):
            found = np.bincount(keys[part] - first, weights=term)
            total[first : first + found.size] += found
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return Summary(
            axis=axis,
            ids=items.ids(),
            observations=np.diff(side.indptr),
            weight=side.mass.copy() if side.weights.size else None,
            mean=values / side.mass,
            rms=np.sqrt(squares / side.mass),
            loss=losses / side.mass,
            effective_omega=None if is_quantile else below / absolute,
            coverage=covered / checked if is_quantile else None,
        )
