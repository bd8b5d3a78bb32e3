"""The asymmetric squared loss in NumPy: the specification.

This module defines the loss for all Python code and favours clarity over speed.
`fastemf.kernels.loss` has the compiled counterpart, and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.support.arrays import Array, Floats

__all__ = ["expectile", "expectile_from_sums", "expectile_loss", "expectile_terms", "sign_weights"]


def sign_weights(residuals: ArrayLike, omega: float) -> Array:
    """Return the weight of each residual: ``omega`` where it is >= 0, else ``1 - omega``.

    A residual is observation minus prediction. A residual of exactly zero has the weight
    ``omega``.

    Examples
    --------
    >>> from fastemf.loss import sign_weights
    >>> sign_weights([2.0, 0.0, -1.0], omega=0.1).tolist()
    [0.1, 0.1, 0.9]
    """
    return select_by_sign(residuals, *level_weights(omega))


def expectile_loss(residuals: ArrayLike, omega: float, weights: ArrayLike | None = None) -> float:
    """Return the sum of ``v * |omega - 1(r < 0)| * r**2`` over the residuals.

    Examples
    --------
    >>> from fastemf.loss import expectile_loss
    >>> expectile_loss([2.0, -1.0], omega=0.25)  # 0.25 * 4 + 0.75 * 1
    1.75
    """
    r = np.asarray(residuals, dtype=np.float64)
    v = 1.0 if weights is None else np.asarray(weights, dtype=np.float64)
    return float(np.sum(v * sign_weights(r, omega) * r**2))


def expectile(values: ArrayLike, omega: float, weights: ArrayLike | None = None) -> float:
    """Return the ``omega``-expectile of a sample: the constant with the smallest expectile loss.

    Parameters
    ----------
    values
        The sample, in any shape; not empty.
    omega
        Level in (0, 1); 0.5 gives the mean.
    weights
        Positive weights of the values' shape.

    Examples
    --------
    >>> from fastemf.loss import expectile
    >>> expectile([0.0, 0.0, 0.0, 8.0], omega=0.5)
    2.0
    >>> round(expectile([0.0, 0.0, 0.0, 8.0], omega=0.1), 3)
    0.286
    """
    b = np.asarray(values, dtype=np.float64).ravel()
    v = np.ones_like(b) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    if b.size == 0:
        raise ValueError("values must not be empty")
    found = expectile_from_sums(lambda around: expectile_terms(b, v, omega, around))
    return min(max(found, float(b.min())), float(b.max()))  # rounding may leave this range


def expectile_terms(values: Array, weights: Array, omega: float, around: float | None) -> Floats:
    """Return Σ w b and Σ w, where w are the weights of the residuals b − `around`.

    With `around=None` all residuals have the same weight. Empty `weights` stand for ones.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.loss import expectile_terms
    >>> expectile_terms(np.array([1.0, 3.0]), np.empty(0), omega=0.25, around=2.0).tolist()
    [1.5, 1.0]
    """
    b = values.astype(np.float64, copy=False)
    w = np.ones_like(b) if around is None else sign_weights(b - around, omega)
    w = weights * w if weights.size else w
    return np.array([np.sum(w * b), np.sum(w)])


def expectile_from_sums(sums: Callable[[float | None], Floats]) -> float:
    """Return the expectile of values that are available only through `expectile_terms`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.loss import expectile_from_sums, expectile_terms
    >>> parts, ones = (np.zeros(3), np.array([8.0])), np.empty(0)
    >>> expectile_from_sums(
    ...     lambda around: sum(expectile_terms(part, ones, 0.5, around) for part in parts)
    ... )
    2.0
    """
    top, bottom = sums(None)
    found = float(top / bottom)
    # Reweighting in one unknown cannot cycle: from the first step on it moves in one direction,
    # so it stops when the weights do.
    for _ in range(200):
        top, bottom = sums(found)
        previous, found = found, float(top / bottom)
        if abs(found - previous) <= 1e-15 * abs(found):
            break
    return found


# --- parts of the rule, for other modules of the package -----------------------------------


def level_weights(omega: float) -> tuple[float, float]:
    """Return the weights of residuals >= 0 and of residuals < 0."""
    return omega, 1.0 - omega


def weight_change(omega: float) -> float:
    """Return the change of a residual's weight where it becomes negative."""
    return 1 - 2 * omega  # rounded once, unlike the difference of the two weights


def select_by_sign(residuals: ArrayLike, above: Any, below: Any) -> Array:
    """Return `above` where a residual is >= 0, and `below` where it is < 0."""
    return np.asarray(np.where(np.asarray(residuals) >= 0, above, below))


def split_squares(residuals: Array, weights: Array) -> tuple[float, float]:
    """Return Σ v r² over the residuals >= 0 and over those < 0, in float64."""
    r = residuals.astype(np.float64, copy=False)
    squares, is_above = weights * r**2, select_by_sign(r, True, False)
    return float(np.sum(squares[is_above])), float(np.sum(squares[~is_above]))


def combine_by_sign(above: float, below: float, omega: float) -> float:
    """Return the total of a weighted sum, given its parts over residuals >= 0 and < 0."""
    weight_above, weight_below = level_weights(omega)
    return weight_above * above + weight_below * below
