"""The asymmetric squared loss in compiled code.

A residual r has the weight `upper` = ω where r ≥ 0 and `lower` = 1 − ω where r < 0. Kernels call
the helpers; vector operations call the `emit_…` functions, which write the same rule in LLVM
instructions. The Python counterpart is `fastemf.loss`.
"""

from __future__ import annotations

from fastemf.kernels.compilation import helper


@helper()
def sign_weight(r, upper, lower):
    """Return the weight of a residual."""
    return upper if r >= 0 else lower


@helper()
def split_weight(v, r):
    """Return v and 0 where r ≥ 0, and 0 and v where r < 0."""
    above = v if r >= 0 else 0.0
    return above, v - above


@helper()
def combine_by_sign(above, below, upper, lower):
    """Return the total of a weighted sum, given its parts over residuals ≥ 0 and < 0."""
    return upper * above + lower * below


def emit_is_negative(do, r):
    """Compare each lane with 0."""
    return do.builder.fcmp_ordered("<", r, do.zero)


def emit_sign_weights(do, r, upper, lower):
    """Select the weight of each lane."""
    return do.builder.select(emit_is_negative(do, r), lower, upper)


def emit_squares(do, r, v):
    """Compute v r² in float64, as two vectors: where r ≥ 0, and where r < 0."""
    square = do.weighted_squares(r, v)
    negative = emit_is_negative(do, r)
    above = do.builder.select(negative, do.zero_64, square)
    return above, do.builder.select(negative, square, do.zero_64)
