"""Data that are large enough to tune a fit by, and small enough for it to be quick."""

from __future__ import annotations

import numpy as np


def observed(m=30, n=28, *, rank=2, noise=0.3, density=0.6, seed=0):
    """Low rank around row levels, with noise of a long tail, larger in some rows; NaN: missing."""
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((m, rank)) @ rng.standard_normal((n, rank)).T
    R += rng.uniform(0, 2, m)[:, None]
    R += noise * rng.uniform(0.2, 3, m)[:, None] * (rng.exponential(size=(m, n)) - 1)
    R[rng.random((m, n)) > density] = np.nan
    return R
