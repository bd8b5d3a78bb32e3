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
    "matrix_of",
]

RIGHT, LEFT = 1, -1  # codes: the truth is at or above the value, at or below it; 0 is a value
WORDS = {
    "": 0, "none": 0, "nan": 0, "false": 0, "0": 0, "0.0": 0, "right": RIGHT, "true": RIGHT,
    "1": RIGHT, "1.0": RIGHT, "left": LEFT, "-1": LEFT, "-1.0": LEFT,
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
    if isinstance(censored, numbers.Real):
        raise ValueError(f'{RULE}, got {censored!r}; a time-out is ("right", {censored!r})')
    if not isinstance(censored, tuple):
        return None
    named = len(censored) == 2 and isinstance(censored[0], str)
    if not named or censored[0] not in ("right", "left"):
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
    if hasattr(given, "to_pylist"):  # Arrow's dictionaries would be read as numbers
        given = np.array(given.to_pylist(), object)
    values = np.asarray(given)
    if values.ndim != 1:
        raise ValueError(f"{RULE}, got an array of {values.ndim} dimensions")
    return _codes_of(values)


def codes_of_cells(
    censored: Any, shape: tuple[int, int], rows: NDArray[Any], cols: NDArray[Any]
) -> NDArray[np.int8]:
    """Look the marks of cells up in a matrix; cells that a sparse one does not store have none."""
    if sp.issparse(censored):
        stored = sp.coo_array(censored)
        _check_shape(stored.shape, shape)
        codes = sp.coo_array((_codes_of(stored.data).astype(float), stored.coords), shape)
        found = np.asarray(codes.tocsr()[rows, cols]).ravel()
        return np.asarray(np.sign(found), np.int8)
    values = matrix_of(censored)
    _check_shape(values.shape, shape)
    return _codes_of(values[rows, cols])


def matrix_of(censored: Any) -> NDArray[Any]:
    """Return a dense matrix of marks as an array; what is masked has none."""
    if isinstance(censored, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(censored, 0))
    return np.asarray(censored)


def _check_shape(found: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(found) != shape:
        raise ValueError(f"censored must have R's shape {shape}, got {tuple(found)}")


def _codes_of(values: NDArray[Any]) -> NDArray[np.int8]:
    if values.dtype.kind not in "bif":
        known: dict[Any, int] = {}
        words = values.ravel().tolist()
        return np.array([known.get(word) or _code(word, known) for word in words], np.int8)
    values = np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
    wrong = ~np.isin(values, (0, RIGHT, LEFT))
    if wrong.any():
        raise ValueError(f"{RULE}; as numbers 1, -1 and 0, got {values[wrong][0].item()!r}")
    return values.astype(np.int8)


def _code(word: Any, known: dict[Any, int]) -> int:
    """Read one mark, and remember it."""
    try:
        is_missing = word is None or bool(word != word)
    except TypeError:  # pandas' NA is neither equal to itself nor not
        is_missing = True
    if is_missing:
        return 0
    text = str(word).strip().lower()
    code = WORDS.get(text)
    if code is None:
        raise ValueError(f"{RULE}, got {word!r:.200}")
    known[word] = code
    return code
