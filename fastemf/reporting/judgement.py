"""`Judgement`: a model, the observations that judge it, and what it predicts of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.tables import ColumnNames
from fastemf.loss import sign_weights
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.model.quantiles import Quantiles
from fastemf.model.reading import CellValues, named_columns, read_cells
from fastemf.observations.memory import Observations, observe
from fastemf.stacking.shrunk_quantile import Floats
from fastemf.support.level_names import expectile_name, quantile_name

__all__ = ["Judgement", "judged_by"]

CELLS_PER_PART = 1 << 18


@dataclass(frozen=True, eq=False)
class Judgement:
    """A model and observations of labels that it has.

    Parameters
    ----------
    model
        The model.
    cells
        Where the observations are, by position, and what they are.
    left_out
        How many there were beside them, of labels that the model does not have.
    """

    model: Factorization | Levels | Quantiles
    cells: CellValues
    left_out: int

    @property
    def is_quantiles(self) -> bool:
        """Whether its levels are shares of the values, judged by the pinball loss."""
        return isinstance(self.model, Quantiles)

    @property
    def levels(self) -> tuple[float, ...]:
        """The shares or the expectile levels, from the lowest on."""
        if isinstance(self.model, Quantiles):
            return self.model.taus
        return self.model.omegas if isinstance(self.model, Levels) else (self.model.omega,)

    @property
    def names(self) -> list[str]:
        """What the levels are called."""
        return list(map(quantile_name if self.is_quantiles else expectile_name, self.levels))

    @property
    def fits(self) -> tuple[Factorization, ...]:
        """The fit of each level; of quantiles one of the fits that they are made of."""
        if isinstance(self.model, Quantiles):
            return (self.model.fits[0][0],)
        return self.model.fits if isinstance(self.model, Levels) else (self.model,)

    @property
    def middle(self) -> int:
        """Which level is nearest to 0.5: the one that stands for all where one must."""
        return int(np.argmin(np.abs(np.array(self.levels) - 0.5)))

    @property
    def unit(self) -> str:
        """What values are measured in: the name of their column."""
        return self.model.value_name or "the data's unit"

    def item(self, axis: int) -> str:
        """Return what one row, or one column, is called: the name that their column had."""
        return self.model.axes[axis].name or ("row", "column")[axis]

    def called(self, axis: int, places: NDArray[np.int64]) -> list[str]:
        """Write what the rows, or columns, at these places are called."""
        found = self.model.axes[axis].ids()[places]
        if found.dtype.kind == "M":
            found = np.datetime_as_string(found, unit="auto")
        return list(map(str, found.tolist()))

    @cached_property
    def observations(self) -> Observations:
        """The observations as a model can be asked about them, by row and by column."""
        rows, cols, values, weights = self.cells
        return observe((rows, cols, values), weights=weights, shape=self.model.shape)

    @cached_property
    def cell_numbers(self) -> NDArray[np.int64]:
        """A number of each observation's cell, which those of one cell share."""
        return np.asarray(self.cells.rows.astype(np.int64) * self.model.shape[1] + self.cells.cols)

    @cached_property
    def weights(self) -> Floats:
        """What each observation counts."""
        values, weights = self.cells.values, self.cells.weights
        return np.ones(values.size) if weights is None else weights.astype(np.float64)

    @cached_property
    def predicted(self) -> Floats:
        """What is predicted of each observation, a row for each level."""
        rows, cols = (axis.ids() for axis in self.model.axes)
        size = self.cells.values.size
        out = np.empty((len(self.levels), size))
        for first in range(0, size, CELLS_PER_PART):
            part = slice(first, first + CELLS_PER_PART)
            found = self.model.predict(rows[self.cells.rows[part]], cols[self.cells.cols[part]])
            out[:, part] = found.reshape(-1, len(self.levels)).T
        return out

    def residuals(self, at: int) -> Floats:
        """Compute observed minus predicted at one of the levels."""
        return np.asarray(self.cells.values - self.predicted[at])

    def losses(self, at: int) -> Floats:
        """Compute what each observation adds to the loss by which one of the levels is judged."""
        r = self.residuals(at)
        sides = sign_weights(r, self.levels[at]) * np.abs(r)
        return np.asarray(sides if self.is_quantiles else sides * np.abs(r))

    def below(self, at: int) -> tuple[Floats, Floats]:
        """Return two numbers for each observation, whose sums have the level found as their ratio.

        For quantiles that is the share at or below the prediction, for expectiles the share of
        the absolute residuals that lies below it.
        """
        r, v = self.residuals(at), self.weights
        if self.is_quantiles:
            return v * (r <= 0), v
        size = v * np.abs(r)
        return size * (r < 0), size


def judged_by(
    model: Any, R: Any, unknown: str, names: ColumnNames, weights: Any, shape: Any
) -> Judgement:
    """Read observations once, whatever they come from, and place them by a model's labels."""
    if not isinstance(model, Factorization | Levels | Quantiles):
        raise TypeError(f"model must be a Factorization, Levels or Quantiles, got {type(model)}")
    names = named_columns(model.axes, model.value_name, R, names)
    given = read_cells(model.axes, R, names, weights, shape, strict=unknown == "error")
    cells = given.known()
    if cells.values.size == 0:
        raise ValueError("R must hold an observation of labels that the model has, got none")
    return Judgement(model, cells, given.values.size - cells.values.size)
