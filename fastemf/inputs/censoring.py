"""Which values are censored: known to lie at or beyond what was recorded, as a time-out is."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = [
    "LEFT",
    "RIGHT",
    "Cap",
    "cap_of",
    "codes_of_cells",
    "codes_of_lines",
    "is_by_cell",
    "left_of_limits",
]

RIGHT, LEFT = 1, -1  # codes: the truth is at or above the value, at or below it; 0 is a value
WORDS = {
    "": 0, "none": 0, "nan": 0, "false": 0, "0": 0, "right": RIGHT, "true": RIGHT, "1": RIGHT,
    "left": LEFT, "-1": LEFT,
}  # fmt: skip
RULE = (
    'censored must be ("right", limit), ("left", limit), or mark each observation as "right", '
    '"left" or neither (true means "right")'
)


@dataclass(frozen=True)
class Cap:
    """A limit at which values are censored, whatever their row and column."""

    code: int
    limit: float

    def codes(self, values: NDArray[Any]) -> NDArray[np.int8]:
        """Mark the values at or beyond the limit."""
        limit = values.dtype.type(self.limit)
        beyond = values >= limit if self.code == RIGHT else values <= limit
        return np.where(beyond, np.int8(self.code), np.int8(0))


def left_of_limits(r: NDArray[Any], codes: NDArray[np.int8]) -> NDArray[Any]:
    """Return residuals, 0 where a prediction lies beyond a limit, which then says nothing."""
    return np.where(codes * r < 0, 0.0, r) if codes.size else r


def cap_of(censored: Any) -> Cap | None:
    """Return the limit that a pair such as ``("right", 20.0)`` stands for; None for other forms."""
    if not isinstance(censored, tuple):
        return None
    if len(censored) != 2 or censored[0] not in ("right", "left"):
        raise ValueError(f"{RULE}, got {censored!r:.200}")
    side, limit = censored
    right = isinstance(limit, numbers.Real) and not isinstance(limit, bool)
    if not right or not np.isfinite(float(limit)):
        raise ValueError(f"the limit of censored must be a finite number, got {limit!r:.200}")
    return Cap(RIGHT if side == "right" else LEFT, float(limit))


def is_by_cell(censored: Any) -> bool:
    """Tell whether the marks are those of cells of a matrix, not one for each observation."""
    return sp.issparse(censored) or np.ndim(censored) == 2


def codes_of_lines(given: Any) -> NDArray[np.int8]:
    """Read one mark per observation: words, booleans, or the codes 1, -1 and 0."""
    values = np.asarray(given.to_pylist() if hasattr(given, "to_pylist") else given)
    if values.ndim != 1:
        raise ValueError(f"{RULE}, got an array of {values.ndim} dimensions")
    if values.dtype.kind in "bif":
        return _checked(values)
    found = np.empty(values.size, np.int8)
    for word in set(values.tolist()):
        code = WORDS.get("" if word is None else str(word).strip().lower())
        if code is None:
            raise ValueError(f"{RULE}, got {word!r:.200}")
        found[values == word] = code
    return found


def codes_of_cells(
    censored: Any, shape: tuple[int, int], rows: NDArray[Any], cols: NDArray[Any]
) -> NDArray[np.int8]:
    """Look the marks of cells up in a matrix; cells that a sparse one does not store have none."""
    if tuple(censored.shape) != shape:
        raise ValueError(f"censored must have R's shape {shape}, got {tuple(censored.shape)}")
    if sp.issparse(censored):
        # Adding up repeated cells of booleans would end at True, of codes at a number beyond 1.
        signs = sp.csr_array(censored, dtype=np.float64)
        return _checked(np.sign(np.asarray(signs[rows, cols]).ravel()))
    values = np.asarray(censored)[rows, cols]
    return _checked(values) if values.dtype.kind in "bif" else codes_of_lines(values)


def _checked(values: NDArray[Any]) -> NDArray[np.int8]:
    values = np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
    wrong = ~np.isin(values, (0, RIGHT, LEFT))
    if wrong.any():
        raise ValueError(f"{RULE}; as numbers 1, -1 and 0, got {values[wrong][0]!r}")
    return values.astype(np.int8)
