"""Tables as sums over what is known of the row alone and of the column alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.tables import OF_COL, OF_PRODUCT, OF_ROW
from fastemf.solver.tables import OF, Table, Tables

__all__ = ["Parts", "TableParts"]

ORDER = (OF_PRODUCT, OF_ROW, OF_COL)


class Parts(NamedTuple):
    """What some rows, or some columns, contribute to the sums."""

    linear: NDArray[np.float64]  # (items, terms)
    rises: NDArray[np.float64]  # (items, pieces)
    below: NDArray[np.float64]  # all that the tables add to an item's cells is between this
    above: NDArray[np.float64]  # and this


class _Turned(NamedTuple):
    """A table whose first side is over the product, if one is, and else over the row."""

    of: tuple[int, int]
    places: tuple[int, int]  # columns of the places
    table: Table

    @classmethod
    def each(cls, tables: Tables) -> list[_Turned]:
        """List the tables so turned."""
        found = []
        for t, table in enumerate(tables.each):
            one, other = (OF[name] for name in table.over)
            if ORDER.index(one) <= ORDER.index(other):
                found.append(cls((one, other), (2 * t, 2 * t + 1), table))
            else:
                turned = Table(table.over[::-1], table.knots[::-1], table.values.T)
                found.append(cls((other, one), (2 * t + 1, 2 * t), turned))
        return found


class TableParts:
    """The tables of a fit as two sums.

    A table over a row and a column is a product of the weights that either gives to the knots. One
    over the product of factors and one side is linear between two knots of the product, and how
    much it rises there depends on that side alone. So all tables together are a sum over
    ``linear(row) · linear(column)``, which has their values at the product's last knot, minus one
    over pieces between knots of ``rises(row) + rises(column)`` times the share of the piece that
    the product is short of.

    Attributes
    ----------
    low, high
        The knots at both ends of the pieces. Tables with the same knots of the product share them.
    left_out
        What the sums are off by at most: a table over the product alone counts with its middle.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = _Turned.each(tables)
        self._slots: dict[tuple[float, ...], slice] = {}
        low, high, self.left_out = [np.empty(0)], [np.empty(0)], 0.0
        count = 0
        for of, _, table in self._tables:
            if of == (OF_PRODUCT, OF_PRODUCT):
                self.left_out += float(np.ptp(table.values)) / 2
            elif of[0] == OF_PRODUCT and tuple(table.knots[0]) not in self._slots:
                knots = table.knots[0]
                self._slots[tuple(knots)] = slice(count, count + knots.size - 1)
                low.append(knots[:-1])
                high.append(knots[1:])
                count += low[-1].size
        self.low, self.high = np.concatenate(low), np.concatenate(high)

    def at(self, places: NDArray[np.float64], of: int) -> Parts:
        """Find the parts of rows (`of` is `OF_ROW`) or columns at these places among the knots."""
        linear, none = [], np.ones((places.shape[0], 1))
        rises = np.zeros((places.shape[0], self.low.size))
        below, above = np.zeros((2, places.shape[0]))
        for kinds, columns, table in self._tables:
            x, y = (places[:, column] for column in columns)
            V = table.values
            ends = V.reshape(1, -1)  # the values that others are between
            if kinds == (OF_ROW, OF_COL) and of == OF_ROW:
                linear.append(ends := _weights(x, V.shape[0]) @ V)
            elif kinds == (OF_ROW, OF_COL):
                linear.append(_weights(y, V.shape[1]))
            elif kinds == (OF_PRODUCT, OF_PRODUCT):
                linear.append(none * (V.max() + V.min()) / 2 if of == OF_ROW else none)
            elif kinds[1] != of:
                linear.append(none)
            elif kinds[0] == of:
                linear.append(ends := table.between(x, y)[:, None])
            else:
                ends = _weights(y, V.shape[1]) @ V.T
                linear.append(ends[:, -1:])
                rises[:, self._slots[tuple(table.knots[0])]] += np.diff(ends, axis=1)
            below += ends.min(axis=1)
            above += ends.max(axis=1)
        return Parts(np.column_stack(linear), rises, below, above)


def _weights(places: NDArray[np.float64], n_knots: int) -> NDArray[np.float64]:
    """Compute what an interpolation weighs each knot by: (items, knots)."""
    at, every = places.astype(np.int64), np.arange(places.size)
    weights = np.zeros((places.size, n_knots))
    weights[every, at] = 1 - (places - at)
    weights[every, np.minimum(at + 1, n_knots - 1)] += places - at
    return weights
