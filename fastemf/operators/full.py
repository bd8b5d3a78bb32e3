"""Operators whose A_i have every entry, stored or drawn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import measurements as kernels
from fastemf.kernels.compilation import Unit
from fastemf.kernels.threads import launch
from fastemf.operators.operator import CheckedOperator
from fastemf.operators.runs import adjoint_runs, even_runs, thread_runs

__all__ = ["FullOperator"]

ENTRIES_PER_LAUNCH = 2e8  # per thread, less than a second: how soon Ctrl-C is heard
ENTRIES_PER_THREAD = 1 << 17  # about a millisecond: less is not worth waking a thread for


class FullOperator(CheckedOperator):
    """Operators whose A_i have every entry, stored or drawn."""

    _source: kernels.Drawing

    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        out = np.empty(self.shape[0])
        Yt = np.ascontiguousarray(Y.T)
        task = kernels.Forward(self._source, X, Yt, out)
        self._launch(kernels.forward, self.shape[0], n_threads, task)
        return out

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        p, m, n = self.shape
        chunks = adjoint_runs(p)
        out = np.empty((chunks.size - 1, (m, n)[side], factor.shape[1]))
        transposed = np.ascontiguousarray(factor.T)
        task = kernels.Adjoint(self._source, chunks, b, transposed, side, m, n, out)
        self._launch(kernels.adjoint, chunks.size - 1, n_threads, task)
        return np.asarray(out.sum(axis=0))

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        _, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        transposed = np.ascontiguousarray(factor.T)
        task = kernels.DesignRows(self._source, which, transposed, side, m, n, out)
        self._launch(kernels.design, which.size, n_threads, task)
        return out

    def _launch(self, unit: Unit, size: int, n_threads: int, task: Any) -> None:
        # Without the JIT, words that wrap around are NumPy scalars, which would warn.
        with np.errstate(over="ignore"):
            entries = float(np.prod(self.shape, dtype=float))
            n_threads = min(n_threads, 1 + int(entries / ENTRIES_PER_THREAD))
            launches = int(np.ceil(entries / (ENTRIES_PER_LAUNCH * n_threads)))
            cuts = even_runs(size, launches)
            done = np.zeros(size, np.bool_)
            task = task._replace(source=self._source._replace(done=done))
            for first, last in pairwise(cuts):
                blocks = first + thread_runs(last - first, n_threads)
                launch(unit, n_threads, blocks, task)
                if not done[blocks[:-1]].all():
                    raise MemoryError("no memory for a row of the measurement matrices")
