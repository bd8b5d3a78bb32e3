"""Quantiles of few cells, without the compiler, and their refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fastemf import complete_quantiles
from fastemf.datasets import make_skewed

R = make_skewed(50, 40, rank=2, noise=0.5, density=0.6, random_state=0).R
REPEATED = (*(index.repeat(50) for index in np.nonzero(np.ones((5, 4)))), np.arange(1000.0))


@pytest.mark.parametrize(
    ("data", "taus", "error", "message"),
    [
        (R, "p95", TypeError, "taus must be numbers in"),
        (R, (0.5, 95), ValueError, r"each of taus must be a proportion .* got 95"),
        (R, (0.5, 0.5), ValueError, "taus must be one or more different numbers"),
        (R, (), ValueError, "taus must be one or more different numbers"),
        (R, (0.5, 0.99), ValueError, r"12.0 of 1200 cells; quantiles from 0.01667 to 0.9833"),
        (np.ones((3, 4)), 0.5, ValueError, r"got 0.5 with 6.0 of 12 cells; there are too few"),
        (REPEATED, 0.5, ValueError, r"0.5 with 10.0 of 20 cells"),
    ],
)
def test_bad_quantiles_and_too_few_cells_are_refused(data, taus, error, message):
    with pytest.raises(error, match=message):
        complete_quantiles(data, taus, 1)


def test_few_cells_run_without_the_compiler():
    few = make_skewed(12, 10, rank=1, noise=0.3, density=0.9, random_state=0).R
    with warnings.catch_warnings(action="ignore"):
        quantiles = complete_quantiles(few, 0.5, 1, max_iter=3)
    assert quantiles.predict_block(np.arange(12)).shape == (12, 10, 1)
