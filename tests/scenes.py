"""Data that are large enough to tune a fit by, and small enough for it to be quick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fastemf


def observed(m=30, n=28, *, rank=2, noise=0.3, density=0.6, seed=0):
    """Low rank around row levels, with noise of a long tail, larger in some rows; NaN: missing."""
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((m, rank)) @ rng.standard_normal((n, rank)).T
    R += rng.uniform(0, 2, m)[:, None]
    R += noise * rng.uniform(0.2, 3, m)[:, None] * (rng.exponential(size=(m, n)) - 1)
    R[rng.random((m, n)) > density] = np.nan
    return R


def few_quantiles(data, taus=(0.3, 0.7), **settings):
    """Quantiles of few cells, which would be refused, with one fold's fits: all a file can hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.quantiles.FEWEST_BEYOND", 0)
        found = fastemf.complete_quantiles(data, taus, 1, reg=0.3, tol=0.1, n_jobs=1, **settings)
    return replace(found, fits=tuple(level[:1] for level in found.fits))
