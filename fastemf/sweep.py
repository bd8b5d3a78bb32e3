"""One half-sweep on this machine: balanced blocks → kernel → status → error."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf import kernels
from fastemf.observations import Observations, Side
from fastemf.records import HalfSweep, Ridge
from fastemf.threads import launch, single_threaded_blas

__all__ = ["CompletionEngine", "balanced", "half_sweep"]

BLOCKS_PER_THREAD = 8  # the loop over blocks is scheduled statically: several even out what is left
WORK_PER_LAUNCH = 4e9  # multiply-adds per thread, about a second: how soon Ctrl-C is heard


def half_sweep(
    side: Side,
    other: NDArray[Any],
    offset: NDArray[Any],
    start: NDArray[Any],
    ridge: NDArray[np.float64],
    intercept_ridge: float,
    *,
    omega: float,
    n_factors: int,
    n_threads: int,
    solve: bool = True,
    steps: int = 0,
    name: str = "row",
) -> HalfSweep:
    """Solve every row of one side, a pure function of its arguments.

    Parameters
    ----------
    side
        The rows' observations.
    other, offset
        What the rows are regressed on, and what is subtracted from the values
        first, both by index on the other side; `offset` may be empty.
    start
        (rows, q) where Newton starts; with ``solve=False`` where F is evaluated.
    ridge, intercept_ridge, n_factors
        Ridge per row on the first `n_factors` coordinates, and on the rest.
    steps
        0 for exact solves, or how many steps of conjugate gradients a row gets.
    name
        What a row is called in an error.
    """
    dtype = side.values.dtype.type
    n_rows, q = start.shape
    out = np.empty_like(start)
    stats = np.zeros((n_rows, kernels.N_STATS))
    status = np.zeros(n_rows, np.int8)
    wide = kernels.padded(other)
    limits = np.finfo(dtype)
    level = kernels.Level(dtype(omega), dtype(1 - omega), float(limits.eps), float(limits.tiny))
    work = np.diff(side.indptr) * float(q * q) + q**3 / 3 + 10 * q
    for group in _launches(work, n_threads):
        blocks = group[0] + balanced(work[group[0] : group[1]], BLOCKS_PER_THREAD * n_threads)
        launch(
            kernels.SWEEP, n_threads, blocks,
            side.indptr, side.indices, side.values, side.weights, wide, offset,
            ridge, float(intercept_ridge), n_factors, level,
            kernels.MAX_NEWTON if solve else 0, steps, start, out, stats, status,
        )  # fmt: skip
    broken = np.flatnonzero(status == kernels.NOT_FINITE)
    if broken.size:
        raise FloatingPointError(
            f"the normal equations of {name} {broken[0]} are not finite in "
            f"{np.dtype(dtype)} ({broken.size} such {name}s): the data or the factors are too "
            "large; rescale the data, use float64, or raise reg"
        )
    # Sums over rows happen here, in one order, whatever the blocks were.
    total = stats.sum(axis=0)
    return HalfSweep(
        factor=out,
        above=float(total[kernels.ABOVE]),
        below=float(total[kernels.BELOW]),
        gradient=float(np.sqrt(total[kernels.GRADIENT])),
        inner_iterations=int(total[kernels.ITERATIONS]),
        sign_flips=int(total[kernels.FLIPS]),
        line_searches=int(total[kernels.SEARCHES]),
    )


def balanced(work: NDArray[np.float64], n_blocks: int) -> NDArray[np.int64]:
    """Boundaries of at most `n_blocks` runs of rows with about equal work."""
    done = np.cumsum(work)
    cuts = np.searchsorted(done, done[-1] * np.arange(1, n_blocks) / n_blocks)
    return np.unique(np.concatenate([[0], cuts, [work.size]])).astype(np.int64)


def _launches(work: NDArray[np.float64], n_threads: int) -> list[tuple[int, int]]:
    n_launches = int(np.ceil(work.sum() / (WORK_PER_LAUNCH * n_threads)))
    cuts = balanced(work, n_launches).tolist()
    return list(pairwise(cuts))


class CompletionEngine:
    """Half-sweeps over the entries of a matrix, in this process.

    Factors carry an intercept as their last column where there are intercepts:
    rows then solve for (x_i, a_i) against (y_j, 1) with target b − μ − c_j, and
    the other way round, so one kernel serves both.

    Parameters
    ----------
    observations
        The entries.
    omega
        Expectile level.
    level
        μ, or None for a model without intercepts.
    scale
        Spread around `level` of the data the model was fitted to; the default is theirs.
    count_scaled
        Whether a row's ridge is multiplied by its number of observations.
    n_threads
        Threads of each launch.
    steps
        0 for exact solves, or how many steps of conjugate gradients a row gets.
    """

    def __init__(
        self,
        observations: Observations,
        omega: float,
        *,
        level: float | None,
        scale: float | None = None,
        count_scaled: bool,
        n_threads: int,
        steps: int = 0,
    ) -> None:
        self.omega = omega
        self._steps = steps
        self._level = level
        self._n_threads = n_threads
        self._sides = (observations.by_row, observations.by_col)
        self._scales = tuple(
            side.mass if count_scaled else np.ones_like(side.mass) for side in self._sides
        )
        self.mass = observations.mass
        size = observations.rms()
        self.rounding = 16 * float(np.finfo(observations.dtype).eps) * size
        self.spread = observations.rms(level or 0.0)  # around the level
        if self.spread <= self.rounding:  # constant data have none: their size must do
            self.spread = size
        # The constant column beside the factors is as large as their entries should be (to a
        # power of two, so that nothing is rounded): then the minimum norm of a singular row
        # follows the data's unit, and the normal equations are evenly scaled.
        scale = self.spread if scale is None else scale
        exponent = np.frexp(np.sqrt(scale))[1] if scale > 0 else 0
        self._unit = observations.dtype.type(2.0**exponent)

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Best `this` (rows for axis 0, columns for axis 1) given `other`."""
        return self._half(axis, this, other, ridge, solve=True)

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Loss and gradient at (X, Y), moving nothing."""
        return self._half(0, X, Y, Ridge(0.0, 0.0), solve=False)

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """λ (Σ n‖x‖² + Σ n‖y‖²) + λ₀ (Σ a² + Σ c²)."""
        total = 0.0
        for factor, scale in zip((X, Y), self._scales, strict=True):
            k = factor.shape[1] - (self._level is not None)
            for part, weight in (
                (factor[:, :k], ridge.factors * scale),
                (factor[:, k:], np.full_like(scale, ridge.intercepts)),
            ):
                # Row by row in float64: no copy of the factor.
                total += float(np.sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) * weight))
        return total

    def orthonormal(self, factor: NDArray[Any]) -> NDArray[Any]:
        """Q of the factor's QR decomposition."""
        with single_threaded_blas():
            return np.linalg.qr(factor)[0]

    def _half(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge, *, solve: bool
    ) -> HalfSweep:
        factors, intercepts, unit = this, ridge.intercepts, self._unit
        offset = np.empty(0, this.dtype)
        k = this.shape[1]
        if self._level is not None:
            k -= 1
            offset = (self._level + other[:, k]).astype(this.dtype)
            other = np.column_stack([other[:, :k], np.full_like(offset, unit)])
            factors = np.column_stack([this[:, :k], this[:, k] / unit])
            intercepts *= float(unit) ** 2
        half = half_sweep(
            self._sides[axis],
            other,
            offset,
            np.ascontiguousarray(factors),
            ridge.factors * self._scales[axis],
            intercepts,
            omega=self.omega,
            n_factors=k,
            n_threads=self._n_threads,
            solve=solve,
            steps=self._steps,
            name="row" if axis == 0 else "column",
        )
        if self._level is not None:
            half.factor[:, k] *= unit
        return half
