"""Comparisons of entries and of fits, bit by bit."""

import numpy as np
from scenes import same_bits


def assert_same_side(one, other):
    for name in ("indptr", "indices", "values", "weights", "mass"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def assert_same_entries(one, other):
    assert one.shape == other.shape
    assert_same_side(one.by_row, other.by_row)
    assert_same_side(one.by_col, other.by_col)


def assert_equal_fits(fit, reference):
    """Check that all arrays, settings and records of two fits are equal, apart from seconds."""
    same_bits(fit, reference)
    assert fit.scale == reference.scale
    for name in ("row_intercepts", "col_intercepts", "unseen_rows", "unseen_cols"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(reference, name), strict=True)
    for name in ("constant", "column", "both", "median", "ridge", "rows", "cols"):
        ours, theirs = (getattr(one.training, name) for one in (fit, reference))
        np.testing.assert_array_equal(ours, theirs, strict=True)
    for one, other in zip(fit.axes, reference.axes, strict=True):
        assert (one.effects is None) == (other.effects is None)
        if one.effects is not None:
            np.testing.assert_array_equal(one.effects.values, other.effects.values)
            for mine, theirs in zip(fit.corrections, reference.corrections, strict=True):
                np.testing.assert_array_equal(mine.values, theirs.values)
