"""Records of a fit: the ridge, the result of a half-sweep, and one record per sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np

from fastemf.loss import combine_by_sign
from fastemf.support.arrays import Array, Floats


class Ridge(NamedTuple):
    """Ridge on the factors (λ) and on the intercepts (λ₀)."""

    factors: float
    intercepts: float


@dataclass(frozen=True, eq=False)
class HalfSweep:
    """The result of solving one side given the other."""

    factor: Array
    above: float  # Σ v r² over residuals >= 0
    below: float  # Σ v r² over residuals < 0
    gradient: float  # norm of the gradient before the solve
    inner_iterations: int
    sign_flips: int
    line_searches: int

    def loss(self, omega: float) -> float:
        """Return the expectile loss after the solve."""
        return combine_by_sign(self.above, self.below, omega)


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """One sweep: the Y step, then the X step.

    ``objective`` is F = loss + penalty at this record's ``reg``.

    Attributes
    ----------
    sweep : int
        Number of the sweep, from 1; rejected ones count.
    objective, loss, penalty : float
        F after the sweep and its parts, in squared units of the data.
    reg, intercept_reg : float
        λ and λ₀ of this sweep.
    relative_decrease : float
        (F before − F after) / F before, both at this sweep's ridge.
    gradient_norm : float
        Norm of the gradient of F before the two solves; infinite if its square overflows.
    sign_flips : int
        Observations whose weight changed, summed over the Newton iterations.
    inner_iterations : float
        Mean number of Newton iterations per row or column.
    line_searches : int
        Newton steps that a line search shortened or lengthened.
    extrapolation : float
        Step β of the momentum; 0 for a plain sweep.
    accepted : bool
        False if the sweep raised F and was undone.
    restarts : int
        Rejected sweeps so far.
    seconds : float
        Wall time of the sweep.
    validation_loss : float
        Mean expectile loss of the validation entries (``validation`` of `fastemf.complete`) after
        the sweep, or before it if it was undone. NaN without validation entries.
    renewals : int
        How often censored values have been imputed again so far. Each time the objective changes.
    """

    sweep: int
    objective: float
    loss: float
    penalty: float
    reg: float
    intercept_reg: float
    relative_decrease: float
    gradient_norm: float
    sign_flips: int
    inner_iterations: float
    line_searches: int
    extrapolation: float
    accepted: bool
    restarts: int
    seconds: float
    validation_loss: float = math.nan
    renewals: int = 0


FIELDS = {f.name: {"int": int, "float": float, "bool": bool}[f.type] for f in fields(SweepRecord)}  # type: ignore[index]

MAY_BE_NAN = ("validation_loss",)
MAY_OVERFLOW = ("gradient_norm",)
LARGEST = 2.0**53  # counts up to here are exact


def sum_rows(parts: Floats) -> Floats:
    """Sum over rows, column by column: NumPy sums few long rows much faster."""
    return np.asarray(np.ascontiguousarray(parts.T).sum(axis=1))


def norm(values: Floats) -> float:
    """Compute the root of the sum of squares, without overflow of the squares."""
    exponent = np.frexp(np.abs(values).max())[1]
    return float(np.ldexp(np.sqrt(np.sum(np.square(np.ldexp(values, -exponent)))), exponent))


def pack_history(history: Sequence[SweepRecord]) -> Floats:
    """Convert records to an array for a file, one row each."""
    return np.array([astuple(record) for record in history], np.float64).reshape(-1, len(FIELDS))


def unpack_history(table: Array, names: Sequence[str]) -> tuple[SweepRecord, ...]:
    """Make records from the named columns of an array; ValueError if it is not a history."""
    if table.dtype != np.float64 or table.shape[1:] != (len(names),):
        raise ValueError("history must have its columns")
    for name, column in zip(names, table.T, strict=True):
        _check_column(name, column)
    return tuple(
        SweepRecord(**{name: FIELDS[name](x) for name, x in zip(names, row, strict=True)})
        for row in table.tolist()
    )


def _check_column(name: str, column: Floats) -> None:
    right = np.isfinite(column)
    if name in MAY_BE_NAN:
        right |= np.isnan(column)
    if name in MAY_OVERFLOW:
        right |= column == np.inf
    if not right.all():
        raise ValueError("history must be finite")
    if FIELDS[name] is int and not ((column >= 0) & (column < LARGEST) & (column % 1 == 0)).all():
        raise ValueError(f"history must have counts as {name}")
    if FIELDS[name] is bool and not ((column == 0) | (column == 1)).all():
        raise ValueError(f"history must have 0 or 1 as {name}")
