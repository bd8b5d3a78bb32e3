"""Small data sets with enough cells to tune a fit, and checks that several files use."""

import re
from dataclasses import replace

import numpy as np
import pytest

import fastemf


class Killed(BaseException):
    """Raised by a callback to end a fit as a signal would."""


def observed(m=30, n=28, *, rank=2, noise=0.3, density=0.6, seed=0):
    """Low rank plus row effects, with heavy-tailed noise that differs by row; NaN is missing."""
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((m, rank)) @ rng.standard_normal((n, rank)).T
    R += rng.uniform(0, 2, m)[:, None]
    R += noise * rng.uniform(0.2, 3, m)[:, None] * (rng.exponential(size=(m, n)) - 1)
    R[rng.random((m, n)) > density] = np.nan
    return R


R = observed()
ROWS, COLS = np.nonzero(~np.isnan(R))
VALUES = R[ROWS, COLS]


def entries(chosen=slice(None)):
    """Return some of the observations of R as triplets."""
    return ROWS[chosen], COLS[chosen], VALUES[chosen]


def refuses(error, *parts):
    """Expect an error whose message has the parts in order: parameter, rule, value received."""
    return pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts))


def resuming(path, every=10):
    return {"checkpoint": fastemf.Checkpoint(path, every=every, resume=True)}


def same_bits(one, other):
    """Assert that two fits are bitwise equal, apart from their seconds."""
    assert one.tuning == other.tuning
    for name in ("reg", "intercept_reg", "mu", "shift", "family", "converged"):
        assert getattr(one, name) == getattr(other, name)
    for left, right in zip(one.axes, other.axes, strict=True):
        np.testing.assert_array_equal(left.factor, right.factor, strict=True)
        np.testing.assert_array_equal(left.intercepts, right.intercepts)
        assert (left.noise is None) == (right.noise is None)
        if left.noise is not None:
            assert left.noise.base == right.noise.base
            np.testing.assert_array_equal(left.noise.variances, right.noise.variances)
    histories = [[replace(record, seconds=0.0) for record in fit.history] for fit in (one, other)]
    assert repr(histories[0]) == repr(histories[1])  # NaN is NaN


def few_quantiles(data, taus=(0.3, 0.7), **settings):
    """Quantiles of few cells, normally refused, with the fits of one fold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.boosting.fit.FEWEST_BEYOND", 0)
        found = fastemf.complete_quantiles(data, taus, 1, reg=0.3, tol=0.1, n_jobs=1, **settings)
    return replace(found, fits=tuple(level[:1] for level in found.fits))
