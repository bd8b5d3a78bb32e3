"""Whether the methods of an operator that somebody else wrote belong together."""

from __future__ import annotations

import numpy as np

from fastemf.operators.operator import Operator
from fastemf.support.validation import check_dtype

__all__ = ["check_adjoint"]


def check_adjoint(A: Operator) -> None:
    """Raise where an operator's methods do not belong together, on one random probe."""
    p, m, n = A.shape
    check_dtype(np.dtype(A.dtype), "A")
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((size, 2)).astype(A.dtype) for size in (m, n))
    b = rng.standard_normal(p)
    try:
        measured = np.asarray(A.forward(X, Y), np.float64)
        back = [np.asarray(A.adjoint_times(b, (Y, X)[side], side), np.float64) for side in (0, 1)]
    except NotImplementedError:
        raise TypeError(
            "A must have both directions: a LinearOperator needs rmatvec beside matvec"
        ) from None
    some = np.unique(rng.integers(0, p, 3))
    rows = [np.asarray(A.design((Y, X)[side], side, some), np.float64) for side in (0, 1)]
    if not all(np.isfinite(part).all() for part in (measured, *back, *rows)):
        raise ValueError("A must be finite, got NaN or infinity from a random probe")
    tolerance = 1e3 * float(np.finfo(A.dtype).eps)
    expected = float(b @ measured)
    size = float(np.linalg.norm(b) * np.linalg.norm(measured))
    for side, factor in ((0, X), (1, Y)):
        found = float(np.sum(back[side] * factor))
        if not abs(found - expected) <= tolerance * size:
            raise ValueError(
                "A's forward and adjoint must agree: for random b and M, <b, A(M)> is "
                f"{expected:.6g} by the forward map and {found:.6g} by the adjoint"
            )
        gap = np.max(np.abs(rows[side] @ factor.ravel() - measured[some]))
        if not gap <= tolerance * np.linalg.norm(measured):
            raise ValueError(
                f"A's design(factor, {side}) times a factor must be forward's measurements, got a "
                f"difference of {gap:.3g}"
            )
