"""The compiled loss against the specification in `fastemf.loss`."""

import numpy as np
import pytest

from fastemf import loss as specification
from fastemf.kernels import loss as compiled

OMEGA = 0.1
RESIDUALS = np.array([-2.0, -1e-300, -0.0, 0.0, 1e-300, 3.0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.25])


def test_the_sign_rule_of_the_kernels_matches_the_specification():
    upper, lower = specification.level_weights(OMEGA)
    ours = [compiled.sign_weight(r, upper, lower) for r in RESIDUALS]
    np.testing.assert_array_equal(ours, specification.sign_weights(RESIDUALS, OMEGA))
    assert ours[2] == ours[3] == OMEGA
    assert specification.weight_change(OMEGA) == pytest.approx(lower - upper, rel=1e-15)


def test_sums_split_by_sign_add_up_to_the_loss_and_its_slope():
    upper, lower = specification.level_weights(OMEGA)
    split = np.array([compiled.split_weight(v, r) for v, r in zip(WEIGHTS, RESIDUALS, strict=True)])
    squares = split.T @ RESIDUALS**2
    np.testing.assert_allclose(squares, specification.split_squares(RESIDUALS, WEIGHTS), rtol=1e-15)
    loss = specification.expectile_loss(RESIDUALS, OMEGA, WEIGHTS)
    assert compiled.combine_by_sign(*squares, upper, lower) == pytest.approx(loss, rel=1e-15)
    assert specification.combine_by_sign(*squares, OMEGA) == pytest.approx(loss, rel=1e-15)
    slope = np.sum(WEIGHTS * specification.sign_weights(RESIDUALS, OMEGA) * RESIDUALS)
    ours = compiled.combine_by_sign(*(split.T @ RESIDUALS), upper, lower)
    assert ours == pytest.approx(slope, rel=1e-15)
