"""`Gaussian` and `Rademacher`: entries drawn whenever they are needed, none stored."""

from __future__ import annotations

from math import sqrt

import numpy as np

from fastemf.kernels import measurements as kernels
from fastemf.operators.full import FullOperator
from fastemf.support.validation import check_integer, check_shape

__all__ = ["Gaussian", "Rademacher"]


class _Drawn(FullOperator):
    """Operators whose entries are drawn whenever they are needed."""

    def __init__(self, p: int, shape: tuple[int, int], seed: int, kind: int) -> None:
        m, n = check_shape(shape, "shape")
        p = check_integer(p, "p", minimum=1)
        for name, size in (("p", p), ("rows", m), ("columns", n)):
            if size >= 1 << 32:
                raise ValueError(f"{name} must be below 2**32, got {size}")
        self.seed = check_integer(seed, "seed", minimum=0)
        if self.seed >= 1 << 64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        self.shape = (p, m, n)
        self.dtype = np.dtype(np.float64)
        low, high = self.seed & 0xFFFFFFFF, self.seed >> 32
        self._source = kernels.Drawing(
            kind, low, high, 1.0 / sqrt(p), np.empty((0, 0, 0)), np.empty(0, np.bool_)
        )


class Gaussian(_Drawn):
    """Independent N(0, 1/p) entries, drawn when needed and never stored.

    With that variance E ‖A(M)‖² = ‖M‖². Entry (r, c) of A_i is a pure function
    of (seed, i, r, c), by Philox4x32-10 and Box and Muller's transform: it does not
    depend on blocks, threads, processes, machines or the order of access
    (`fastemf.kernels.random_entries` has the details).

    Parameters
    ----------
    p
        Number of measurements.
    shape
        (m, n) of the matrices measured.
    seed
        Integer from 0 to 2**64 − 1. Different seeds give independent operators.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.operators import Gaussian
    >>> A = Gaussian(500, (6, 4), seed=1)
    >>> b = A.forward(np.ones((6, 1)), np.ones((4, 1)))
    >>> bool(np.allclose(b, A.to_dense().sum(axis=(1, 2))))
    True
    >>> bool(0.8 < np.sum(b**2) / 24 < 1.2)  # a near-isometry: ‖ones‖² = 24
    True
    """

    def __init__(self, p: int, shape: tuple[int, int], seed: int = 0) -> None:
        super().__init__(p, shape, seed, kernels.GAUSSIAN)


class Rademacher(_Drawn):
    """Entries ±1/√p with equal chances, drawn when needed and never stored.

    Sub-Gaussian, so the restricted isometry property holds as for `Gaussian`; one
    random word gives 64 entries, so they are far cheaper.

    Parameters
    ----------
    p, shape, seed
        As for `Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.operators import Rademacher
    >>> sorted(np.unique(Rademacher(4, (5, 5), seed=0).to_dense()).tolist())
    [-0.5, 0.5]
    """

    def __init__(self, p: int, shape: tuple[int, int], seed: int = 0) -> None:
        super().__init__(p, shape, seed, kernels.RADEMACHER)
