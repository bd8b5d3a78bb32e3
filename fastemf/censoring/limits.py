"""Censoring limits: which recorded values are only bounds of the true value, such as time-outs."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.support.arrays import Array

RIGHT, LEFT = 1, -1  # codes: the true value is at or above the limit, or at or below; 0: observed
BETWEEN = 2  # the true value is in an interval, whose middle is recorded
WORDS = {
    "": 0, "none": 0, "nan": 0, "false": 0, "0": 0, "0.0": 0, "right": RIGHT, "true": RIGHT,
    "1": RIGHT, "1.0": RIGHT, "left": LEFT, "-1": LEFT, "-1.0": LEFT,
}  # fmt: skip
RULE = (
    'censored must be ("right", limit), ("left", limit), or mark each observation as "right", '
    '"left" or neither (true means "right")'
)


@dataclass(frozen=True)
class CensoringLimit:
    """A limit at which the values of all rows and columns are censored."""

    code: int
    value: float

    @property
    def as_pair(self) -> tuple[str, float]:
        """The limit in the form of the parameter `censored`."""
        return ("right" if self.code == RIGHT else "left"), self.value

    def codes(self, values: Array) -> NDArray[np.int8]:
        """Return the code of each value: censored if it is at or beyond the limit."""
        limit = values.dtype.type(self.value)
        beyond = values >= limit if self.code == RIGHT else values <= limit
        return np.where(beyond, np.int8(self.code), np.int8(0))


def residuals_within_limits(r: Array, codes: Array) -> Array:
    """Return residuals, zero where the prediction is beyond the limit and agrees with it."""
    return np.where(codes * r < 0, 0.0, r) if codes.size else r


def parse_limit(censored: Any) -> CensoringLimit | None:
    """Parse a pair such as ``("right", 20.0)``; return None for other forms of `censored`."""
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
    return CensoringLimit(RIGHT if side == "right" else LEFT, float(limit))


def is_codes_matrix(censored: Any) -> bool:
    """Return whether `censored` marks the cells of a matrix rather than each observation."""
    return sp.issparse(censored) or np.ndim(censored) == 2


def parse_codes(given: Any) -> NDArray[np.int8]:
    """Parse one mark per observation: words, booleans, or the codes 1, -1 and 0."""
    if hasattr(given, "to_pylist"):  # NumPy would read an Arrow dictionary as numbers
        given = np.array(given.to_pylist(), object)
    values = np.asarray(given)
    if values.ndim != 1:
        raise ValueError(f"{RULE}, got an array of {values.ndim} dimensions")
    return _codes_of(values)


def parse_cell_codes(
    censored: Any, shape: tuple[int, int], rows: Array, cols: Array
) -> NDArray[np.int8]:
    """Look up the marks of cells in a matrix; cells that are not stored are not censored."""
    if sp.issparse(censored):
        stored = sp.coo_array(censored)
        _check_shape(stored.shape, shape)
        codes = sp.coo_array((_codes_of(stored.data).astype(float), stored.coords), shape)
        found = np.asarray(codes.tocsr()[rows, cols]).ravel()
        return np.asarray(np.sign(found), np.int8)
    values = codes_matrix(censored)
    _check_shape(values.shape, shape)
    return _codes_of(values[rows, cols])


def codes_matrix(censored: Any) -> Array:
    """Return a dense matrix of marks as an array; masked cells are not censored."""
    if isinstance(censored, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(censored, 0))
    return np.asarray(censored)


def _check_shape(found: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(found) != shape:
        raise ValueError(f"censored must have R's shape {shape}, got {tuple(found)}")


def _codes_of(values: Array) -> NDArray[np.int8]:
    if values.dtype.kind not in "bif":
        seen: dict[Any, int] = {}
        words = values.ravel().tolist()
        return np.array([seen.get(word) or _code(word, seen) for word in words], np.int8)
    values = np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
    wrong = ~np.isin(values, (0, RIGHT, LEFT))
    if wrong.any():
        raise ValueError(f"{RULE}; as numbers 1, -1 and 0, got {values[wrong][0].item()!r}")
    return values.astype(np.int8)


def _code(word: Any, seen: dict[Any, int]) -> int:
    """Parse one mark and remember its code."""
    try:
        is_missing = word is None or bool(word != word)
    except TypeError:  # comparisons with pandas' NA have no truth value
        is_missing = True
    if is_missing:
        return 0
    text = str(word).strip().lower()
    code = WORDS.get(text)
    if code is None:
        raise ValueError(f"{RULE}, got {word!r:.200}")
    seen[word] = code
    return code
