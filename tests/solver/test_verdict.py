"""What a tuned fit says of its own worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import fastemf
from fastemf import Baseline, Tuning, TuningStep

LOSSES = {"constant": 2.0, "column": 1.25, "row + column": 1.0}


def tuned(family, rank, loss, level=0.9, intercepts=True, losses=LOSSES):
    """A tuning whose second step was chosen; the first tells that there are intercepts."""
    first = TuningStep("constant" if intercepts else "even", math.inf, 0, 2.0, 0.1, 0.9)
    reg = 3.0 if rank else math.inf
    steps = (first, TuningStep(family, reg, rank, loss, 0.1, level))
    return Tuning(
        steps, 1, tuple(Baseline(*pair) for pair in losses.items()), 500, 10,
        loss=steps[1].loss, effective_omega=steps[1].effective_omega,
    )  # fmt: skip


def test_the_first_line_compares_with_simpler_predictions():
    first = tuned("weighted", 3, 0.86).verdict().splitlines()[0]
    assert first == (
        "held-out loss 0.43 of a constant's, 0.86 of row + column levels; effective level 0.90"
    )


@pytest.mark.parametrize(
    ("family", "rank", "loss", "intercepts", "words"),
    [
        ("weighted", 3, 0.8, True, "3 factors take 20 % off the loss of row + column levels "
         "(weighted: noisy rows and columns count less)"),
        ("ridged", 1, 0.5, True, "1 factor takes 50 % off the loss of row + column levels "
         "(ridged: noisy rows and columns are shrunk more)"),
        ("weighted", 3, 0.999, True, "3 factors, next to nothing more than row + column levels"),
        ("weighted", 3, 1.2, False,
         "3 factors; row + column levels predict as well or better: try intercepts"),
        ("weighted", 0, 1.0, True,
         "no factors were asked for: predictions are row + column levels "
         "(weighted: noisy rows and columns count less)"),
        ("even", 0, 1.0, True,
         "no factors were asked for: predictions are row + column levels"),
        ("constant", 0, 2.0, True,
         "neither factors nor row + column levels add anything: predictions are a constant"),
        ("even", 0, 2.0, False,
         "no factors were asked for: predictions are 0, without intercepts"),
    ],
)  # fmt: skip
def test_the_second_line_says_what_factors_add(family, rank, loss, intercepts, words):
    verdict = tuned(family, rank, loss, intercepts=intercepts).verdict()
    assert verdict.splitlines()[1:] == [words]


def test_factors_that_were_tried_in_vain():
    tuning = tuned("even", 0, 1.0)
    tried = TuningStep("weighted", 3.0, 2, 1.1, 0.1, 0.9)
    verdict = replace(tuning, steps=(*tuning.steps, tried)).verdict()
    assert verdict.endswith("the factors add nothing: predictions are row + column levels")


def test_losses_of_nothing():
    exact = tuned("noise", 2, 2e-30, level=math.nan).verdict()
    assert exact.startswith("held-out loss 1e-30 of a constant's, 2e-30 of row + column levels\n")
    none = tuned("constant", 0, 0.0, losses=dict.fromkeys(LOSSES, 0.0)).verdict()
    assert none.startswith("a constant predicts all observations set aside\n")


def test_a_fit_prints_its_verdict():
    R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.9, random_state=0).R
    fit = fastemf.complete(R, 0.5, 1, intercepts=True)
    assert "\n" not in repr(fit)
    assert str(fit) == f"{fit!r}\n{fit.tuning.verdict()}"
    assert len(fit.tuning.verdict().splitlines()) == 2
    best = fit.tuning.best
    assert best is fit.tuning.steps[fit.tuning.chosen]
    constant = {one.name: one.loss for one in fit.tuning.baselines}["constant"]
    assert f"held-out loss {fit.tuning.loss / constant:.2f} of a constant's" in str(fit)
    assert f"effective level {fit.tuning.effective_omega:.2f}" in str(fit)


def test_a_fit_that_was_not_tuned_says_why():
    small = fastemf.complete(np.outer(np.arange(1.0, 5), np.arange(1.0, 4)), 0.5, 1)
    assert str(small).splitlines()[1:] == [
        "not tuned, the ridge follows the size of the residuals: too few observations to tune by "
        "(12, of at least 400)"
    ]
    for reg in ("noise", 0.1):
        fit = fastemf.complete(np.outer([1.0, 2], [3.0, 4]), 0.5, 1, reg=reg)
        assert str(fit) == repr(fit)
