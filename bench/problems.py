"""Matrices for the timings: generated ones, and real ones in the folder FASTEMF_DATA."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

NOISE = 0.5  # scale of the noise, which is χ² with three degrees of freedom
SKEWED = {
    "tiny": (60, 40, 600),
    "small": (5_000, 2_000, 300_000),
    "skewed": (50_000, 10_000, 4_900_000),
}


def uniform(m: int, n: int, nnz: int, seed: int = 0) -> sp.csr_matrix:
    """Return a matrix with uniformly distributed entries."""
    rng = np.random.default_rng(seed)
    return _sample(rng, m, n, nnz, np.full(m, 1.0), np.full(n, 1.0))


def skewed(m: int, n: int, nnz: int, seed: int = 0, noise: float = NOISE) -> sp.csr_matrix:
    """Return entries distributed as in logs: log-normal activity of rows, popularity of columns.

    With 50,000 × 10,000 and 4.6M entries the row counts have a median of about 50 and a
    maximum of a few thousand, the column counts a median of about 170 and a maximum of a few
    tens of thousands.
    """
    rng = np.random.default_rng(seed)
    rows, cols = np.exp(1.15 * rng.standard_normal(m)), np.exp(1.4 * rng.standard_normal(n))
    return _sample(rng, m, n, nnz, rows, cols, noise)


def clear(name: str) -> sp.csr_matrix:
    """Return a skewed problem with a fifth of the noise, so that factors improve on intercepts."""
    return skewed(*SKEWED[name], noise=NOISE / 5)


@lru_cache(maxsize=1)  # three sections use the largest
def grown(entries: int) -> sp.csr_matrix:
    """Return about that many entries, with the same number per row at every size."""
    m = max(20, entries // 92)
    draws = 1.03 * entries
    for _ in range(5):  # small matrices have many repeated draws
        R = skewed(m, max(10, m // 5), int(draws))
        if R.nnz > 0.97 * entries:
            break
        draws *= entries / R.nnz
    return R


def label(entries: float) -> str:
    """Format 1000000 as 1M and 300000 as 300k."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if entries >= size:
            return f"{entries / size:g}{letter}"
    return f"{entries:g}"


def _sample(rng, m, n, nnz, row_weights, col_weights, noise=NOISE) -> sp.csr_matrix:
    """Draw about nnz distinct cells with these marginal weights; low rank plus skewed noise."""
    total = row_weights.sum()
    counts = np.minimum(rng.poisson(nnz * row_weights / total), n // 2).astype(np.int64)
    counts = np.maximum(counts, 1)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    edges = np.cumsum(col_weights)
    cols = np.searchsorted(edges, rng.random(indptr[-1]) * edges[-1]).astype(np.int32)
    rows = np.repeat(np.arange(m, dtype=np.int32), counts)
    # Drop repeated cells, which competitors treat differently.
    cell = rows.astype(np.int64) * n + cols
    del rows, cols
    cell.sort()
    cell = cell[np.concatenate([[True], cell[1:] != cell[:-1]])]
    rows, cols = (cell // n).astype(np.int32), (cell % n).astype(np.int32)
    del cell
    X, Y = rng.uniform(size=(m, 8)).astype(np.float32), rng.uniform(size=(n, 8)).astype(np.float32)
    values = np.empty(rows.size, np.float32)
    for first in range(0, rows.size, 1 << 20):
        part = slice(first, first + (1 << 20))
        values[part] = np.einsum("ij,ij->i", X[rows[part]], Y[cols[part]])
        values[part] += noise * rng.chisquare(3, values[part].size)
    indptr = np.searchsorted(rows, np.arange(m + 1))
    return sp.csr_matrix((values, cols, indptr), shape=(m, n))


def web_services(sources: int = 7) -> sp.csr_matrix:
    """Return response times of recovered fragments of WS-DREAM; `sources` is a bit mask."""
    with np.load(real_file("wsdream1_rt_union.npz")) as file:
        keep = (file["src"] & sources) > 0
        cells = file["row"][keep].astype(np.int32), file["col"][keep].astype(np.int32)
        return sp.csr_matrix((file["val"][keep], cells), shape=tuple(file["shape"]))


def web_services_sample() -> sp.csr_matrix:
    """Return the uniform 5 % sample among the fragments, in float64."""
    return web_services(sources=1).astype(np.float64)


def planetlab() -> sp.csr_matrix:
    """Return half of the round-trip times of the first PlanetLab snapshot."""
    with np.load(real_file("netlatency_planetlab.npz")) as file:
        R = file["rtt_ms"][0]
    keep = (np.random.default_rng(0).random(R.shape) < 0.5) & ~np.eye(len(R), dtype=bool)
    return sp.csr_matrix((R[keep].astype(np.float32), np.nonzero(keep)), shape=R.shape)


def real_file(name: str) -> Path:
    """Return the path of a real data set."""
    folder = os.environ.get("FASTEMF_DATA", "")
    path = Path(folder) / name
    if not folder or not path.exists():
        raise FileNotFoundError(f"{name}: set FASTEMF_DATA to the folder that holds it")
    return path


PROBLEMS: dict[str, Callable[[], sp.csr_matrix]] = {
    "tiny": lambda: skewed(*SKEWED["tiny"]),
    "small": lambda: skewed(*SKEWED["small"]),
    "uniform": lambda: uniform(50_000, 10_000, 4_600_000),
    "skewed": lambda: skewed(*SKEWED["skewed"]),
    "web services": web_services,
    "planetlab": planetlab,
}
