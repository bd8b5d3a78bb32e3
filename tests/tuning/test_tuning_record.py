"""The record of a tuning and its summary."""

from __future__ import annotations

import math

import numpy as np

import fastemf
from fastemf.tuning.record import Baseline, Tuning, TuningStep


def compare(loss, baseline=1.0, level=0.9, family="weighted"):
    """Return the line that compares a loss with baselines; a constant has twice the loss."""
    losses = {"constant": 2 * baseline, "row + column": baseline}
    baselines = tuple(Baseline(*pair) for pair in losses.items())
    steps = (TuningStep(family, 3.0, 3, loss, 0.1, level),)
    record = Tuning(steps, 0, baselines, 500, 10, loss=loss, effective_omega=level)
    return record.verdict().splitlines()[0]


def test_the_first_line_compares_with_baselines():
    assert compare(0.86) == (
        "validation loss 0.43 relative to a constant, 0.86 relative to row + column intercepts; "
        "effective level 0.90"
    )
    assert compare(2e-30, level=math.nan) == (
        "validation loss 1e-30 relative to a constant, 2e-30 relative to row + column intercepts"
    )
    exact = compare(0.0, baseline=0.0, family="constant")
    assert exact == "a constant predicts all validation cells exactly"


def test_a_fit_prints_its_verdict():
    R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.9, random_state=0).R
    fit = fastemf.complete(R, 0.5, 1, intercepts=True)
    ratio = f"validation loss {fit.tuning.relative_loss('constant'):.2f} relative to a constant"
    head, *verdict = str(fit).splitlines()
    assert repr(fit) == f"{head[:-1]}; {ratio}>"
    assert verdict == fit.tuning.verdict().splitlines()
    assert len(fit.tuning.verdict().splitlines()) == 2
    assert fit.tuning.best is fit.tuning.steps[fit.tuning.chosen]
    constant = {one.name: one.loss for one in fit.tuning.baselines}["constant"]
    assert f"validation loss {fit.tuning.loss / constant:.2f} relative to a constant" in str(fit)
    assert f"effective level {fit.tuning.effective_omega:.2f}" in str(fit)


def test_a_fit_that_was_not_tuned_says_why():
    small = fastemf.complete(np.outer(np.arange(1.0, 5), np.arange(1.0, 4)), 0.5, 1)
    assert str(small).splitlines()[1:] == [
        "not tuned, the ridge is noise-adaptive: too few observations to tune by "
        "(12, of at least 400)"
    ]
    for reg in ("noise", 0.1):
        fit = fastemf.complete(np.outer([1.0, 2], [3.0, 4]), 0.5, 1, reg=reg)
        assert str(fit) == repr(fit)
