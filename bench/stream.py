"""Skewed observations of a low-rank matrix, generated chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

CHUNK = 1 << 20
TABLE = 1 << 22  # entries of the look-up tables, which are ten times as fast as a search
RANK = 8

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Stream:
    """About 500 observations per row and 2500 per column, log-normally distributed, float32."""

    entries: int
    seed: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        m = max(50, self.entries // 500)
        return m, max(20, m // 5)

    def __iter__(self) -> Iterator[Entries]:
        rng = np.random.default_rng(self.seed)
        tables = [_table(rng, n, spread) for n, spread in zip(self.shape, (1.15, 1.4), strict=True)]
        factors = [rng.random((n, RANK), np.float32) for n in self.shape]
        for first in range(0, self.entries, CHUNK):
            count = min(CHUNK, self.entries - first)
            rows, cols = (table[rng.integers(0, table.size, count)] for table in tables)
            values = np.einsum("ij,ij->i", factors[0][rows], factors[1][cols])
            values += 1.5 * rng.standard_exponential(count, np.float32)
            yield rows, cols, values


def _table(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    """Return indices below n, repeated in proportion to log-normal weights, at least once each."""
    weights = np.exp(spread * rng.standard_normal(n))
    times = np.maximum(1, np.rint(weights / weights.sum() * max(TABLE, 4 * n))).astype(np.int64)
    return np.repeat(np.arange(n, dtype=np.int32), times)
