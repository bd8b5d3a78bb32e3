"""Correction tables: functions of two statistics of a cell that a fit adds to its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.kernels.corrections import OF_COL, OF_PRODUCT, OF_ROW, CorrectionStack
from fastemf.support.array_file import require
from fastemf.support.arrays import Array, Floats

ROW_EFFECT, COL_EFFECT, ROW_NOISE, COL_NOISE, PRODUCT = STATISTICS = (
    "row effect", "column effect", "row noise", "column noise", "product",
)  # fmt: skip
EFFECTS = (ROW_EFFECT, COL_EFFECT)
OF = {
    ROW_EFFECT: OF_ROW, ROW_NOISE: OF_ROW, COL_EFFECT: OF_COL, COL_NOISE: OF_COL,
    PRODUCT: OF_PRODUCT,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Correction:
    """A correction table: a function of two statistics of a cell, in the units of the data.

    Values are interpolated between the knots, and constant outside of them.

    Parameters
    ----------
    over
        The two statistics: ``"row effect"`` and ``"column effect"`` are the intercepts of a model
        without factors, ``"row noise"`` and ``"column noise"`` the logarithms of the relative
        variances of the residuals, and ``"product"`` is the prediction without its constant and
        without correction tables.
    knots
        Increasing values of the first and of the second statistic.
    values
        One number for each pair of knots.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.tuning.corrections import Correction
    >>> knots = np.array([0.0, 1.0]), np.array([5.0])
    >>> table = Correction(("row effect", "column effect"), knots, np.array([[2.0], [4.0]]))
    >>> table.at(np.array([-3.0, 0.5]), np.array([5.0, 6.0])).tolist()
    [2.0, 3.0]
    """

    over: tuple[str, str]
    knots: tuple[Floats, Floats]
    values: Floats

    def at(self, first: Floats, second: Floats) -> Floats:
        """Compute the values at statistics of one shape."""
        return self.between(*map(knot_positions, (first, second), self.knots))

    def between(self, x: Floats, y: Floats) -> Floats:
        """Compute the values at positions among the knots."""
        V = self.values
        a, c = x.astype(np.int64), y.astype(np.int64)
        b, d = np.minimum(a + 1, V.shape[0] - 1), np.minimum(c + 1, V.shape[1] - 1)
        s, t = x - a, y - c
        near = V[a, c] + t * (V[a, d] - V[a, c])
        far = V[b, c] + t * (V[b, d] - V[b, c])
        return np.asarray(near + s * (far - near))


@dataclass(frozen=True, eq=False)
class Corrections:
    """The correction tables of a fit, and the ridge λ₀ of the row and column effects."""

    each: tuple[Correction, ...]
    ridge: float

    @cached_property
    def stack(self) -> CorrectionStack:
        """The tables as arguments of their kernel."""
        most = max(max(table.values.shape) for table in self.each)
        knots, values = np.zeros((len(self.each), 2, most)), np.zeros((len(self.each), most, most))
        for t, table in enumerate(self.each):
            values[t, : table.values.shape[0], : table.values.shape[1]] = table.values
            for side in (0, 1):
                knots[t, side, : table.knots[side].size] = table.knots[side]
        of = np.array([[OF[name] for name in table.over] for table in self.each])
        sizes = np.array([table.values.shape for table in self.each])
        return CorrectionStack(of, knots, sizes, values)

    @property
    def largest(self) -> float:
        """Largest absolute correction."""
        return float(sum(np.abs(table.values).max() for table in self.each))

    def knot_positions(self, effects: Floats, noise: Floats) -> Floats:
        """Find the positions of rows, or columns, among the knots of every table, two columns each.

        The column of a statistic of the other axis, or of the product, has no meaning.
        """
        found = np.zeros((effects.size, 2 * len(self.each)))
        for t, table in enumerate(self.each):
            for side, (name, knots) in enumerate(zip(table.over, table.knots, strict=True)):
                if name != PRODUCT:
                    statistic = effects if name in EFFECTS else noise
                    found[:, 2 * t + side] = knot_positions(statistic, knots)
        return found


@dataclass(frozen=True, eq=False)
class EntityEffects:
    """The effects of the rows, or of the columns, of a fit, and its correction tables."""

    values: Floats
    corrections: Corrections


def knot_positions(statistic: Floats, knots: Floats) -> Floats:
    """Return the index of the knot before each number, plus the fraction of the way to the next."""
    last = knots.size - 1
    if last == 0:
        return np.zeros(np.shape(statistic))
    first = np.clip(np.searchsorted(knots, statistic, side="right") - 1, 0, last - 1)
    low, high = knots[first], knots[first + 1]
    return np.asarray(first + (np.clip(statistic, low, high) - low) / (high - low))


# --- in files ------------------------------------------------------------------------------------

MOST = 100  # tables in a file


def array_names(place: int) -> tuple[str, str, str]:
    """Return the names of a table's arrays: the knots of both its statistics, and its values."""
    return f"correction_{place}_first", f"correction_{place}_second", f"correction_{place}"


def pack_corrections(tables: Corrections) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header field and the arrays of tables."""
    arrays: dict[str, Any] = {}
    for place, table in enumerate(tables.each):
        arrays |= dict(zip(array_names(place), (*table.knots, table.values), strict=True))
    return {"ridge": tables.ridge, "over": [list(table.over) for table in tables.each]}, arrays


def check_corrections(field: Any) -> list[tuple[str, str]]:
    """Check the header field, and return the statistics of each table."""
    right = isinstance(field, dict) and set(field) == {"ridge", "over"}
    right = right and type(field["ridge"]) is float and 0 <= field["ridge"] < np.inf
    require(right, "corrections must have a ridge of at least 0 and pairs of statistics")
    over = field["over"]
    right = isinstance(over, list) and 0 < len(over) <= MOST
    right = right and all(
        isinstance(pair, list) and len(pair) == 2 and all(name in STATISTICS for name in pair)
        for pair in over
    )
    require(right, f"corrections must be over pairs of {', '.join(STATISTICS)}")
    return [(first, second) for first, second in over]


def unpack_corrections(field: dict[str, Any], arrays: dict[str, Array]) -> Corrections:
    """Make tables from a header field and arrays."""
    found = []
    for place, over in enumerate(check_corrections(field)):
        names = array_names(place)
        first, second, values = (arrays[name] for name in names)
        for name, knots in zip(names, (first, second), strict=False):
            check_numbers(name, knots, max(knots.size, 1))
            require(bool((knots[1:] > knots[:-1]).all()), f"{name} must increase")
        check_numbers(names[2], values, first.size, second.size)
        found.append(Correction(over, (first, second), values))
    return Corrections(tuple(found), field["ridge"])


def check_numbers(name: str, array: Array, *shape: int) -> None:
    """Refuse an array of another type or shape, or with numbers that are not finite."""
    right = array.dtype == np.float64 and array.shape == shape
    require(right, f"{name} must be float64 of shape {shape}")
    # Differences must be finite too.
    right = bool((np.abs(array) < np.finfo(np.float64).max / 4).all())
    require(right, f"{name} must be finite, and below a quarter of the largest number")
