"""Records of a fit: the ridge in force, a half-sweep's outcome, and one record per sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIELDS", "HalfSweep", "Ridge", "SweepRecord", "history_of", "history_table", "norm"]


class Ridge(NamedTuple):
    """Ridge on the factors (λ) and on the intercepts (λ₀)."""

    factors: float
    intercepts: float


@dataclass(frozen=True, eq=False)
class HalfSweep:
    """One side solved given the other, and what that took."""

    factor: NDArray[Any]
    above: float  # Σ v r² over residuals >= 0
    below: float  # Σ v r² over residuals < 0
    gradient: float  # norm of the gradient before the solve
    inner_iterations: int
    sign_flips: int
    line_searches: int


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
        λ and λ₀ in force during this sweep.
    relative_decrease : float
        (F before − F after) / F before, both at this sweep's ridge.
    gradient_norm : float
        Norm of the gradient of F that the two half-steps met before they solved; infinite where
        its square is too large for a float.
    sign_flips : int
        Observations whose weight changed, summed over the Newton iterations.
    inner_iterations : float
        Newton iterations per row or column, on average.
    line_searches : int
        Newton steps that had to be shortened or lengthened.
    extrapolation : float
        Momentum's step β; 0 for a plain sweep.
    accepted : bool
        False where the sweep raised F and was undone.
    restarts : int
        Rejected sweeps so far.
    seconds : float
        Wall time of the sweep.
    validation_loss : float
        Expectile loss per summed weight on the entries held out (``validation`` of
        `fastemf.complete`), at the iterate held after the sweep: where it was undone, the one
        before. NaN where nothing is held out.
    renewals : int
        How often the values that replace censored ones have been made anew so far. With each, the
        objective is another one.
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


def total(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over rows, each column by itself: NumPy goes through a few long rows much faster."""
    return np.asarray(np.ascontiguousarray(parts.T).sum(axis=1))


def norm(values: NDArray[np.float64]) -> float:
    """Compute the root of the sum of squares, which themselves may leave the range of float64."""
    exponent = np.frexp(np.abs(values).max())[1]
    return float(np.ldexp(np.sqrt(np.sum(np.square(np.ldexp(values, -exponent)))), exponent))


def history_table(history: Sequence[SweepRecord]) -> NDArray[np.float64]:
    """Convert records to a table for a file, a row each."""
    return np.array([astuple(record) for record in history], np.float64).reshape(-1, len(FIELDS))


def history_of(table: NDArray[Any], names: Sequence[str]) -> tuple[SweepRecord, ...]:
    """Make records from the columns of a table; fields that it lacks get their defaults.

    A table that is not a history raises ValueError.
    """
    if table.dtype != np.float64 or table.shape[1:] != (len(names),):
        raise ValueError("history must have its columns")
    for name, column in zip(names, table.T, strict=True):
        _check_column(name, column)
    return tuple(
        SweepRecord(**{name: FIELDS[name](x) for name, x in zip(names, row, strict=True)})
        for row in table.tolist()
    )


def _check_column(name: str, column: NDArray[np.float64]) -> None:
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
