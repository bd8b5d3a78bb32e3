"""The asymmetric squared loss in plain NumPy: the specification.

Everything here is written for reading, not for speed. The compiled kernels have the sign rule
once more, in `fastemf.kernels.row` and in the vector operations, and the tests hold the two
against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "expectile",
    "expectile_from_sums",
    "expectile_loss",
    "expectile_terms",
    "sign_weights",
]


def sign_weights(residuals: ArrayLike, omega: float) -> NDArray[Any]:
    """Return the weight of each residual: ``omega`` where it is >= 0, else ``1 - omega``.

    A residual is observation minus prediction; one that is exactly zero takes
    ``omega``.

    Examples
    --------
    >>> from fastemf.loss import sign_weights
    >>> sign_weights([2.0, 0.0, -1.0], omega=0.1).tolist()
    [0.1, 0.1, 0.9]
    """
    return np.where(np.asarray(residuals) >= 0, omega, 1.0 - omega)


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
    """Return the sample's ``omega``-expectile: the constant with the smallest expectile loss.

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
    level = expectile_from_sums(lambda around: expectile_terms(b, v, omega, around))
    return min(max(level, float(b.min())), float(b.max()))  # as a mean is, but for rounding


def expectile_terms(
    values: NDArray[Any], weights: NDArray[Any], omega: float, around: float | None
) -> NDArray[np.float64]:
    """Return Σ w b and Σ w, with the weights of the residuals from `around`.

    `around=None` gives all residuals the same weight. Empty `weights` stand for ones.

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


def expectile_from_sums(sums: Callable[[float | None], NDArray[np.float64]]) -> float:
    """Return the expectile of values given only their sums, those of `expectile_terms`.

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
    level = float(top / bottom)
    # Reweighting in one unknown cannot cycle: the level moves one way from its
    # first step on, so it stops when the weights do.
    for _ in range(200):
        top, bottom = sums(level)
        previous, level = level, float(top / bottom)
        if abs(level - previous) <= 1e-15 * abs(level):
            break
    return level
