"""`EvaluatedModel`: a model, held-out observations and the predictions of these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.censoring.coverage import CensoredCells
from fastemf.features.schema import SideFeatures
from fastemf.inputs.tables import ColumnNames
from fastemf.loss import sign_weights
from fastemf.models.boosted import Boosted
from fastemf.models.boosted_levels import BoostedLevels
from fastemf.models.factorization import Factorization
from fastemf.models.levels import Levels
from fastemf.models.quantiles import Quantiles
from fastemf.models.reading import CellValues, named_columns, read_cells
from fastemf.support.arrays import Floats, Ints
from fastemf.support.display_names import expectile_name, quantile_name

CELLS_PER_PART = 1 << 18


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """A model and observations of known labels.

    Parameters
    ----------
    model
        The model.
    cells
        The observations, by position.
    left_out
        Number of other observations, whose labels are not in the model.
    """

    model: Factorization | Levels | BoostedLevels | Quantiles
    cells: CellValues
    left_out: int

    @property
    def is_quantiles(self) -> bool:
        """Whether the levels are quantiles, evaluated by the pinball loss."""
        return isinstance(self.model, Quantiles)

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles or expectile levels, in increasing order."""
        return self.model._fitted

    @property
    def names(self) -> list[str]:
        """Names of the levels."""
        return list(map(quantile_name if self.is_quantiles else expectile_name, self.levels))

    @property
    def fits(self) -> tuple[Factorization, ...]:
        """The fit of each level; for boosted models, one of the underlying fits."""
        if isinstance(self.model, Boosted):
            return self.model.fits[0][:1]
        return self.model.fits if isinstance(self.model, Levels) else (self.model,)

    @property
    def middle(self) -> int:
        """Index of the level nearest to 0.5, used where a single level is shown."""
        return int(np.argmin(np.abs(np.array(self.levels) - 0.5)))

    @property
    def unit(self) -> str:
        """The name of the column of values, as their unit."""
        return self.model.value_name or "the data's unit"

    def axis_name(self, axis: int) -> str:
        """Return the name of the labels of rows (axis 0) or columns."""
        return self.model.axes[axis].name or ("row", "column")[axis]

    def labels(self, axis: int, positions: Ints) -> list[str]:
        """Return the labels of rows (axis 0) or columns as text."""
        labels = self.model.axes[axis].ids()[positions]
        if labels.dtype.kind == "M":
            labels = np.datetime_as_string(labels, unit="auto")
        return list(map(str, labels.tolist()))

    @cached_property
    def cell_numbers(self) -> Ints:
        """An identifier of the cell of each observation."""
        return np.asarray(self.cells.rows.astype(np.int64) * self.model.shape[1] + self.cells.cols)

    @cached_property
    def weights(self) -> Floats:
        """The weight of each observation."""
        values, weights = self.cells.values, self.cells.weights
        return np.ones(values.size) if weights is None else weights.astype(np.float64)

    @cached_property
    def predicted(self) -> Floats:
        """Predictions of all observations, one row per level."""
        cells, size = self.cells, self.cells.values.size
        out = np.empty((len(self.levels), size))
        for first in range(0, size, CELLS_PER_PART):
            part = slice(first, first + CELLS_PER_PART)
            side = SideFeatures(observed=None if cells.features is None else cells.features[part])
            values = self.model._predict_cells(cells.rows[part], cells.cols[part], side)
            out[:, part] = values.reshape(-1, len(self.levels)).T
        return out

    @cached_property
    def censored(self) -> tuple[CensoredCells | None, ...]:
        """Censored values of the observations for each level; None if all are exact."""
        return tuple(self.model._censored_cells(self.cells, level) for level in self.levels)

    def residuals(self, at: int) -> Floats:
        """Compute observed minus predicted at one level.

        Censored values are imputed; for a quantile both sides end at the limit.
        """
        predicted, censored = self.predicted[at], self.censored[at]
        if censored is None:
            return np.asarray(self.cells.values - predicted)
        if self.is_quantiles:
            return censored.residuals(predicted)
        return np.asarray(censored.values - predicted)

    def losses(self, at: int) -> Floats:
        """Compute the contribution of each observation to the loss at one level."""
        r = self.residuals(at)
        sides = sign_weights(r, self.levels[at]) * np.abs(r)
        return np.asarray(sides if self.is_quantiles else sides * np.abs(r))

    def below(self, at: int) -> tuple[Floats, Floats]:
        """Return numerator and denominator of the observed level, for each observation.

        The ratio of their sums is the coverage for quantiles, and the effective level for
        expectiles: the proportion of the absolute residuals that lies below the prediction.
        """
        r, v, censored = self.residuals(at), self.weights, self.censored[at]
        if self.is_quantiles:
            if censored is not None:
                v = v * censored.is_known(self.predicted[at])
            return v * (r <= 0), v
        size = v * np.abs(r)
        return size * (r < 0), size


def read_evaluated(
    model: Any, R: Any, unknown: str, names: ColumnNames, weights: Any, shape: Any,
    features: Any = None, censored: Any = None,
) -> EvaluatedModel:  # fmt: skip
    """Read observations once, and place them by the labels of a model."""
    if not isinstance(model, Factorization | Levels | BoostedLevels | Quantiles):
        raise TypeError(
            f"model must be a Factorization, Levels, BoostedLevels or Quantiles, got {type(model)}"
        )
    names = named_columns(model.axes, model.value_name, R, names)
    asked = model._ask_features(features)
    every = read_cells(
        model.axes, R, names, weights, shape, strict=unknown == "error", features=asked,
        censored=model._find_censored(R, censored),
    )  # fmt: skip
    cells = every.select_known()
    if cells.values.size == 0:
        raise ValueError("R must contain observations of labels that are in the model, got none")
    return EvaluatedModel(model, cells, every.values.size - cells.values.size)
