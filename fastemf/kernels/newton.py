"""Acceptance rule of Newton steps, for the rows of a matrix and for linear measurements.

With fixed signs f is a quadratic. The step p reaches its minimum and predicts a decrease of g·p.
The signs change with x, so the full step may increase f or lead into a cycle. A step that achieves
less than a quarter of the predicted decrease is therefore replaced by the exact minimum along p.
If the prediction is below the rounding error of f, the step is accepted unless f rises by more
than the rounding error.
"""

from __future__ import annotations

SUFFICIENT = 0.25  # proportion of the predicted decrease that a full step must achieve


def rounding_of(f: float, noise: float, eps: float) -> float:
    """Return the rounding error of f; `noise` is the part due to the residuals."""
    return 64 * eps * f + noise


def bound_of_f(f: float, predicted: float, rounding: float, full: bool) -> float:
    """Return the largest f at which a step is accepted: the full step, or the best along p."""
    if predicted <= rounding:
        return f + rounding
    return f - SUFFICIENT * predicted if full else f


def is_solved(
    predicted: float, rounding: float, noise: float, flips: float, step: float, accurate: bool
) -> bool:
    """Return whether x is optimal to rounding after an accepted step.

    A full step that changed no weight has reached the minimum of its quadratic. A second step
    could improve on it only if H is ill-conditioned.
    """
    if predicted <= noise:
        return True
    return flips == 0 and (predicted <= rounding or (step == 1 and accurate))
