"""Fields and arrays of a checkpoint, of which nothing is taken for granted when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.alternation import Engine
from fastemf.solver.records import Ridge
from fastemf.support.array_file import DamagedFileError

__all__ = [
    "array",
    "check_overflow",
    "check_ridge",
    "demand",
    "field",
    "floats_of",
    "require_names",
]

Arrays = dict[str, NDArray[Any]]


def demand(right: bool, rule: str) -> None:
    """Refuse a file that breaks a rule."""
    if not right:
        raise DamagedFileError(f"damaged, {rule}")


def require_names(what: str, found: Iterable[str], wanted: set[str]) -> None:
    """Refuse names that are missing or unknown."""
    for name in sorted(wanted.symmetric_difference(found)):
        raise DamagedFileError(
            f"damaged, {what} {name!r:.80} is {'missing' if name in wanted else 'unknown'}"
        )


def field(header: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field of a type."""
    demand(type(header.get(name)) is kind, f"header field {name!r} must be {kind.__name__}")
    return header[name]


def floats_of(header: dict[str, Any], name: str, count: int) -> list[float]:
    """Return a field of so many floats."""
    found: list[float] = field(header, name, list)
    right = len(found) == count and all(type(number) is float for number in found)
    demand(right, f"header field {name!r} must be {count} numbers")
    return found


def array(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a finite array of a shape and type."""
    demand(name in arrays, f"array {name!r} is missing")
    found = arrays[name]
    right = found.shape == shape and found.dtype == dtype
    demand(right, f"{name} must be {dtype} of shape {shape}, got {found.dtype}, {found.shape}")
    if found.size:
        # NaN and infinities show in these two, without an array as long as the factor.
        demand(bool(np.isfinite([found.min(), found.max()]).all()), f"{name} must be finite")
    return found


def check_ridge(ridge: Ridge, engine: Engine, largest: float = 1.0) -> None:
    """Refuse a ridge that overflows; `largest` is what multiplies it beside the observations."""
    limit = float(np.finfo(engine.dtype).max)
    right = all(0 <= part * max(1.0, engine.mass) * largest < limit for part in ridge)
    demand(right, f"its ridge must not overflow {engine.dtype}")


def check_overflow(X: NDArray[Any], Y: NDArray[Any], engine: Engine, *others: Any) -> None:
    """Refuse factors so large that the loss or the ridge overflow; `others` are more of X."""
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            half = engine.evaluate(X, Y)
            squares = [engine.penalty(factor, Y, Ridge(1.0, 1.0)) for factor in (X, *others)]
            squares += [half.above, half.below]
        except FloatingPointError:
            squares = [np.inf]
    demand(bool(np.isfinite(squares).all()), f"its factors must not overflow {engine.dtype}")
