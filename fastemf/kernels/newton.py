"""The rule by which a Newton step is taken, for the rows of a matrix and linear measurements.

With the signs frozen f is a quadratic, whose minimum the step p reaches; it predicts a decrease
of g·p. Because the signs move with x, the full step may raise f or lead into a cycle. So a step
that does not bring a quarter of what it predicts is replaced by the exact minimum along p.
Where the prediction is below the rounding of f, f cannot tell whether the step pays: it is
taken unless f rises by more than rounding.
"""

from __future__ import annotations

__all__ = ["bound_of_f", "is_solved", "rounding_of"]

SUFFICIENT = 0.25  # share of the predicted decrease that a full step must bring


def rounding_of(f: float, noise: float, eps: float) -> float:
    """Return how far f may be off; `noise` is the part that comes from its residuals."""
    return 64 * eps * f + noise


def bound_of_f(f: float, predicted: float, rounding: float, full: bool) -> float:
    """Return the largest f at which a step, the full one or the best along p, is accepted."""
    if predicted <= rounding:
        return f + rounding
    return f - SUFFICIENT * predicted if full else f


def is_solved(
    predicted: float, rounding: float, noise: float, flips: float, step: float, accurate: bool
) -> bool:
    """Tell whether x is as good as it gets after a step that was taken.

    A full step that changed no weight has reached the minimum of its quadratic, to an accuracy
    that a second one could improve only where H is ill-conditioned.
    """
    if predicted <= noise:
        return True
    return flips == 0 and (predicted <= rounding or (step == 1 and accurate))
