"""`Explanation`: the contributions to one prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fastemf.models.bilinear import Axes, corrections_at
from fastemf.models.tabular import Columns, Tabular


@dataclass(frozen=True, eq=False)
class Explanation(Tabular):
    """Contributions to a prediction, in the units of the data; see `Factorization.explain`.

    Attributes
    ----------
    level : float
        The expectile level, or the quantile.
    parts : dict of str to float
        Contributions by what they are about, whose sum is `value` up to rounding.
    value : float
        The prediction.
    notes : tuple of str
        Remarks on how far the prediction can be trusted.
    """

    level: float
    parts: dict[str, float]
    value: float
    notes: tuple[str, ...] = ()

    def columns(self) -> Columns:
        """Return the parts and their contributions, the largest first.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.add.outer([0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 7.0, 7.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, intercepts=True)
        >>> sorted(fit.explain(0, 3).columns()["part"])
        ['column', 'corrections', 'factors', 'mu', 'row', 'shift']
        """
        names = sorted(self.parts, key=lambda name: -abs(self.parts[name]))
        return {"part": names, "contribution": [self.parts[name] for name in names]}

    @property
    def _title(self) -> str:
        return f"prediction {self.value:.4g}, the sum of"

    @property
    def _notes(self) -> Iterable[str]:
        return self.notes


def limit_notes(value: float, limits: tuple[float, float] | None) -> tuple[str, ...]:
    """Return a remark if a prediction lies at or beyond a censoring limit."""
    if limits is None or limits[0] < value < limits[1]:
        return ()
    return ("the prediction is beyond the censoring limit, where it is extrapolated",)


def explain_cell(axes: Axes, omega: float, mu: float, shift: float, i: int, j: int) -> Explanation:
    """Compute the terms of the prediction of the cell (i, j)."""
    rows, cols = axes
    product = float(rows.factor[i].astype(np.float64) @ cols.factor[j].astype(np.float64))
    if not rows.has_intercepts:  # mu and shift go with them
        mu = shift = 0.0
    a = 0.0 if rows.intercepts is None else float(rows.intercepts[i])
    c = 0.0 if cols.intercepts is None else float(cols.intercepts[j])
    tables = corrections_at(axes, np.array([i]), np.array([j]), np.array([a + c + product]))
    parts = {
        "mu": mu, "shift": shift, "row": a, "column": c, "factors": product,
        "corrections": float(tables[0]),
    }  # fmt: skip
    return Explanation(omega, parts, sum(parts.values()))
