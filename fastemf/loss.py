"""The asymmetric squared loss in plain NumPy: the specification.

Everything here is written for reading, not for speed. The compiled kernels
repeat these rules in their own file (a cached kernel cannot call into another
one) and the tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["expectile", "expectile_in_parts", "expectile_loss", "sign_weights"]


def sign_weights(residuals: ArrayLike, omega: float) -> NDArray[Any]:
    """Weight of each residual: ``omega`` where it is >= 0, ``1 - omega`` where it is negative.

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
    """Sum of ``v * |omega - 1(r < 0)| * r**2`` over the residuals.

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
    """Sample ``omega``-expectile: the constant with the smallest expectile loss.

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
    return expectile_in_parts(lambda: [(b, v)], omega)


def expectile_in_parts(
    parts: Callable[[], Iterable[tuple[NDArray[Any], NDArray[Any]]]], omega: float
) -> float:
    """`expectile` of values that come in parts, each with its weights (empty for ones).

    `parts` is called for every pass and gives the same parts in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.loss import expectile_in_parts
    >>> ones = np.empty(0)
    >>> expectile_in_parts(lambda: [(np.zeros(3), ones), (np.array([8.0]), ones)], omega=0.5)
    2.0
    """

    def mean(around: float | None) -> float:
        top = bottom = 0.0
        for values, v in parts():
            b = values.astype(np.float64, copy=False)
            w = np.ones_like(b) if around is None else sign_weights(b - around, omega)
            w = v * w if v.size else w
            top, bottom = top + float(np.sum(w * b)), bottom + float(np.sum(w))
        return top / bottom

    level = mean(None)
    # Reweighting in one unknown cannot cycle: the level moves one way from its
    # first step on, so it stops when the weights do.
    for _ in range(200):
        previous, level = level, mean(level)
        if abs(level - previous) <= 1e-15 * abs(level):
            break
    return level
