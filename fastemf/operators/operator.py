"""`Operator`, what is asked of a linear map, and what all maps of this room share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.kernels.threads import count_threads
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_dtype, check_indices, check_integer

__all__ = ["CheckedOperator", "Operator", "check_columns"]


@runtime_checkable
class Operator(Protocol):
    """What `fastemf.sense` asks of a measurement operator.

    Anything with these attributes will do; that `forward`, `adjoint_times` and
    `design` belong together is checked once, on a random probe.

    Attributes
    ----------
    shape : (p, m, n)
        Measurements, rows and columns.
    dtype : numpy.dtype
        float32 or float64, the type of its entries.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: NDArray[Any], Y: NDArray[Any], *, n_jobs: int = -1) -> NDArray[Any]:
        """Compute the p measurements <A_i, X Yᵀ>."""

    def adjoint_times(
        self, b: NDArray[Any], factor: NDArray[Any], side: int = 0, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Compute S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i."""

    def design(
        self, factor: NDArray[Any], side: int, rows: Any = None, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Compute the rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i. `rows` are
        the measurements wanted, in that order; all by default.
        """


class CheckedOperator(ABC):
    """Checks and conveniences that all operators here share."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: ArrayLike, Y: ArrayLike, *, n_jobs: int = -1) -> NDArray[Any]:
        """Compute the p measurements <A_i, X Yᵀ>.

        Parameters
        ----------
        X, Y
            (m, r) and (n, r).
        n_jobs
            Threads; -1 for all. Results are bitwise identical for any number of them.
        """
        X, Y = self._factor(X, "X", 0), self._factor(Y, "Y", 1)
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"X and Y must have equal ranks, got {X.shape[1]} and {Y.shape[1]}")
        return self._forward(X, Y, count_threads(n_jobs)).astype(self.dtype, copy=False)

    def adjoint_times(
        self, b: ArrayLike, factor: ArrayLike, side: int = 0, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Compute S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i.

        Parameters
        ----------
        b
            (p,) coefficients.
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            Whose shape the result has: 0 (m, r), 1 (n, r).
        n_jobs
            Threads; -1 for all. Results are bitwise identical for any number of them.
        """
        _check_side(side)
        b = np.require(b, np.float64, ["C", "W"])
        if b.shape != (self.shape[0],):
            raise ValueError(f"b must have shape ({self.shape[0]},), got {b.shape}")
        factor = self._factor(factor, "factor", 1 - side)
        done = self._adjoint_times(b, factor, side, count_threads(n_jobs))
        return done.astype(self.dtype, copy=False)

    def design(
        self, factor: ArrayLike, side: int, rows: Any = None, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Compute the rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i.

        Parameters
        ----------
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            The factor whose coefficients these are: 0 for X, 1 for Y.
        rows
            The measurements wanted, in that order; all by default.
        n_jobs
            Threads; -1 for all.

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
            "ask for some rows at a time",
        )
        which = np.arange(p) if rows is None else check_indices(rows, "rows", p)
        which = np.require(which, np.int64, ["C", "W"])
        return self._design(factor, side, which, count_threads(n_jobs))

    def to_dense(self, *, max_bytes: int = 1 << 30) -> NDArray[Any]:
        """Return every A_i in a (p, m, n) array; refused above `max_bytes` (1 GiB).

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

    def _factor(self, factor: ArrayLike, name: str, side: int) -> NDArray[Any]:
        array = np.asarray(factor)
        check_dtype(array.dtype, name)
        size = self.shape[1 + side]
        if array.ndim != 2 or array.shape[0] != size:
            raise ValueError(f"{name} must have shape ({size}, rank), got {array.shape}")
        return np.require(array, self.dtype, ["C", "W"])

    @abstractmethod
    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        """Do what `forward` does, of checked factors."""

    @abstractmethod
    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        """Do what `adjoint_times` does, of checked arguments."""

    @abstractmethod
    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        """Do what `design` does, of checked arguments."""


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
