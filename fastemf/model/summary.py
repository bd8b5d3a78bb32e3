"""How well a fit describes each row or column: counts, residuals and levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.censoring import left_of_limits
from fastemf.inputs.entries import parts
from fastemf.loss import sign_weights
from fastemf.model.prediction import Predicts
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis

__all__ = ["Summary", "summarise_axis"]

ROWS_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """How much data each row (or column) has, and how well a fit describes them.

    ``print(summary)`` shows those with the largest mean loss;
    ``pandas.DataFrame(summary.columns())`` is a table of all. Whatever needs data is NaN
    where there are none.

    Attributes
    ----------
    axis : int
        0 for rows, 1 for columns.
    ids : array
        The rows or columns: indices, or labels where the fit has them.
    observations : int64 array
        Number of observations.
    weight : float64 array or None
        Summed weights, where there are any.
    mean : float64 array
        Mean of the observed values, in the data's unit.
    rms : float64 array
        Root mean square of the residuals, in the data's unit.
    loss : float64 array
        Mean expectile loss: what the fit minimises, without its ridge; of a quantile, mean pinball
        loss.
    w_eff : float64 array or None
        The level at which the fit lies, Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|): near omega where it is
        calibrated, below where it is too low. NaN where every residual is 0. None of a quantile.
    coverage : float64 array or None
        Of a quantile, the share of the values at or below it; else None.
    """

    axis: int
    ids: NDArray[Any]
    observations: NDArray[np.int64]
    weight: NDArray[np.float64] | None
    mean: NDArray[np.float64]
    rms: NDArray[np.float64]
    loss: NDArray[np.float64]
    w_eff: NDArray[np.float64] | None
    coverage: NDArray[np.float64] | None = None

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, as `pandas.DataFrame` and others take them.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> table = fit.summary(R).columns()
        >>> list(table)
        ['row', 'observations', 'mean', 'rms', 'loss', 'w_eff']
        >>> table["mean"].tolist()
        [3.5, 7.0]
        """
        names = ("observations", "weight", "mean", "rms", "loss", "w_eff", "coverage")
        arrays = {name: getattr(self, name) for name in names}
        found = {name: array for name, array in arrays.items() if array is not None}
        return {self._what: self.ids, **found}

    def __repr__(self) -> str:
        return f"<Summary of {self.ids.size} {self._what}s>"

    def __str__(self) -> str:
        empty = np.count_nonzero(self.observations == 0)
        title = f"{self.ids.size} {self._what}s, {empty} without observations"
        worst = np.argsort(-self.loss, kind="stable")[:ROWS_SHOWN]  # NaN comes last
        if worst.size < self.ids.size:
            title += f"; the {worst.size} with the largest mean loss"
        lines = [f"{title}:"]
        cells = [[name, *map(_text, array[worst])] for name, array in self.columns().items()]
        widths = [max(map(len, column)) for column in cells]
        for line in zip(*cells, strict=True):
            lines.append("  ".join(map(str.rjust, line, widths)))
        return "\n".join(lines)

    @property
    def _what(self) -> str:
        return ("row", "column")[self.axis]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def summarise_axis(
    items: Axis,
    predict: Predicts,
    level: float,
    observed: Observations,
    axis: int,
    *,
    is_quantile: bool = False,
) -> Summary:
    """Summarise the entries of each row (axis 0) or column (axis 1), a part at a time."""
    side = (observed.by_row, observed.by_col)[axis]
    groups = side.mass.size
    values, squares, losses, below, absolute, covered = sums = np.zeros((6, groups))
    keys = side.keys
    for part in parts(keys.size):
        b = side.values[part].astype(np.float64)
        cells = (keys[part], side.indices[part])
        r = b - predict(*(cells if axis == 0 else cells[::-1]))
        r = left_of_limits(r, side.censored[part])
        v = side.weights[part].astype(np.float64) if side.weights.size else np.ones(r.size)
        first = int(keys[part.start])  # entries are in the order of their groups
        size = v * np.abs(r)
        square = size * np.abs(r)
        loss = (size if is_quantile else square) * sign_weights(r, level)
        terms = (v * b, square, loss, size * (r < 0), size, v * (r <= 0))
        for total, term in zip(sums, terms, strict=True):
            found = np.bincount(keys[part] - first, weights=term)
            total[first : first + found.size] += found
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no data, or no residuals
        return Summary(
            axis=axis,
            ids=items.ids(),
            observations=np.diff(side.indptr),
            weight=side.mass.copy() if side.weights.size else None,
            mean=values / side.mass,
            rms=np.sqrt(squares / side.mass),
            loss=losses / side.mass,
            w_eff=None if is_quantile else below / absolute,
            coverage=covered / side.mass if is_quantile else None,
        )
