"""The protocol `Operator`, and the base class of the operators of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fastemf.kernels.threads import count_threads
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_dtype, check_indices, check_integer


@runtime_checkable
class Operator(Protocol):
    """Protocol of measurement operators for `fastemf.sense`.

    Any object with these attributes is accepted. The consistency of `forward`, `adjoint_times` and
    `design` is checked once, on random factors.

    Attributes
    ----------
    shape : (p, m, n)
        Measurements, rows and columns.
    dtype : numpy.dtype
        float32 or float64, the type of its entries.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: Array, Y: Array, *, n_jobs: int = -1) -> Array:
        """Compute the p measurements <A_i, X Yᵀ>."""

    def adjoint_times(self, b: Array, factor: Array, side: int = 0, *, n_jobs: int = -1) -> Array:
        """Compute S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i."""

    def design(self, factor: Array, side: int, rows: Any = None, *, n_jobs: int = -1) -> Array:
        """Compute the rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i. `rows` selects
        measurements, in that order; all by default.
        """


class CheckedOperator(ABC):
    """Base class of operators: checks of arguments, and conversion to an array."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: ArrayLike, Y: ArrayLike, *, n_jobs: int = -1) -> Array:
        """Compute the p measurements <A_i, X Yᵀ>.

        Parameters
        ----------
        X, Y
            (m, r) and (n, r).
        n_jobs
            Number of threads; -1 for all. Results are bitwise identical for any number.
        """
        X, Y = self._factor(X, "X", 0), self._factor(Y, "Y", 1)
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"X and Y must have equal ranks, got {X.shape[1]} and {Y.shape[1]}")
        return self._forward(X, Y, count_threads(n_jobs)).astype(self.dtype, copy=False)

    def adjoint_times(
        self, b: ArrayLike, factor: ArrayLike, side: int = 0, *, n_jobs: int = -1
    ) -> Array:
        """Compute S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i.

        Parameters
        ----------
        b
            (p,) coefficients.
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            Shape of the result: 0 gives (m, r), 1 gives (n, r).
        n_jobs
            Number of threads; -1 for all. Results are bitwise identical for any number.
        """
        _check_side(side)
        b = np.require(b, np.float64, ["C", "W"])
        if b.shape != (self.shape[0],):
            raise ValueError(f"b must have shape ({self.shape[0]},), got {b.shape}")
        factor = self._factor(factor, "factor", 1 - side)
        done = self._adjoint_times(b, factor, side, count_threads(n_jobs))
        return done.astype(self.dtype, copy=False)

    def design(self, factor: ArrayLike, side: int, rows: Any = None, *, n_jobs: int = -1) -> Array:
        """Compute the rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i.

        Parameters
        ----------
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            The factor that the rows multiply: 0 for X, 1 for Y.
        rows
            Measurements, in this order; all by default.
        n_jobs
            Number of threads; -1 for all.

        Returns
        -------
        (len(rows), m·r or n·r) array
        """
        _check_side(side)
        factor = self._factor(factor, "factor", 1 - side)
        p = self.shape[0]
        length = p if rows is None else np.size(rows)
        check_memory(
            length * self.shape[1 + side] * factor.shape[1] * self.dtype.itemsize,
            f"the design of {length} measurements",
            "request some rows at a time",
        )
        which = np.arange(p) if rows is None else check_indices(rows, "rows", p)
        which = np.require(which, np.int64, ["C", "W"])
        return self._design(factor, side, which, count_threads(n_jobs))

    def to_dense(self, *, max_bytes: int = 1 << 30) -> Array:
        """Return all A_i as a (p, m, n) array, of at most `max_bytes` (1 GiB).

        Examples
        --------
        >>> from fastemf.operators import Entries
        >>> Entries([1], [0], (2, 2)).to_dense().tolist()
        [[[0.0, 0.0], [1.0, 0.0]]]
        """
        p, m, n = self.shape
        size = p * m * n * self.dtype.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {p} x {m} x {n} array takes {size:,} bytes, above "
                f"max_bytes={max_bytes:,}; use forward, adjoint_times or design, or raise max_bytes"
            )
        return self.design(np.eye(n), 0).reshape(p, m, n)

    def __repr__(self) -> str:
        p, m, n = self.shape
        return f"<{type(self).__name__}, {p} measurements of {m} x {n} matrices, {self.dtype}>"

    def _factor(self, factor: ArrayLike, name: str, side: int) -> Array:
        array = np.asarray(factor)
        check_dtype(array.dtype, name)
        size = self.shape[1 + side]
        if array.ndim != 2 or array.shape[0] != size:
            raise ValueError(f"{name} must have shape ({size}, rank), got {array.shape}")
        return np.require(array, self.dtype, ["C", "W"])

    @abstractmethod
    def _forward(self, X: Array, Y: Array, n_threads: int) -> Array:
        """Implement `forward` for checked factors."""

    @abstractmethod
    def _adjoint_times(self, b: Floats, factor: Array, side: int, n_threads: int) -> Array:
        """Implement `adjoint_times` for checked arguments."""

    @abstractmethod
    def _design(self, factor: Array, side: int, which: Ints, n_threads: int) -> Array:
        """Implement `design` for checked arguments."""


def check_adjoint(A: Operator) -> None:
    """Check on random factors that the methods of an operator are consistent."""
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
            "A must have both directions: a LinearOperator needs rmatvec as well as matvec"
        ) from None
    some = np.unique(rng.integers(0, p, 3))
    rows = [np.asarray(A.design((Y, X)[side], side, some), np.float64) for side in (0, 1)]
    if not all(np.isfinite(part).all() for part in (measured, *back, *rows)):
        raise ValueError("A must be finite, got NaN or infinity for random factors")
    tolerance = 1e3 * float(np.finfo(A.dtype).eps)
    expected = float(b @ measured)
    size = float(np.linalg.norm(b) * np.linalg.norm(measured))
    for side, factor in enumerate((X, Y)):
        found = float(np.sum(back[side] * factor))
        if not abs(found - expected) <= tolerance * size:
            raise ValueError(
                "A's forward and adjoint must agree: for random b and M, <b, A(M)> is "
                f"{expected:.6g} by the forward map and {found:.6g} by the adjoint"
            )
        gap = np.max(np.abs(rows[side] @ factor.ravel() - measured[some]))
        if not gap <= tolerance * np.linalg.norm(measured):
            raise ValueError(
                f"A's design(factor, {side}) times a factor must equal forward's measurements, "
                f"got a difference of {gap:.3g}"
            )


def check_columns(found: tuple[int, ...], shape: tuple[int, int]) -> int:
    """Check the shape of a (p, m·n) matrix; return its number of measurements."""
    m, n = shape
    if len(found) != 2 or found[1] != m * n:
        raise ValueError(
            f"A must have m * n = {m * n} columns for matrices of shape {shape}, got shape {found}"
        )
    if found[0] == 0:
        raise ValueError(f"A must have at least one measurement, got shape {found}")
    return int(found[0])


def _check_side(side: Any) -> None:
    if isinstance(side, bool) or not isinstance(side, (int, np.integer)) or side not in (0, 1):
        raise ValueError(f"side must be 0 (for X) or 1 (for Y), got {side!r}")
