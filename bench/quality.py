"""The number of sweeps that reach a given objective, found from curves of the objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.competitors import Point

WITHIN = 1e-3  # of the best objective of all competitors


def target(curves: Iterable[Sequence[Point]]) -> float:
    """Return the objective to reach: within 0.1 % of the best on any curve."""
    return (1 + WITHIN) * min(point.objective for curve in curves for point in curve)


def gap(point: Point, wanted: float) -> float:
    """Return the relative distance of a point from the best objective."""
    return point.objective * (1 + WITHIN) / wanted - 1


def first_reaching(
    curve: Sequence[Point], wanted: float, refit: Callable[[int], Point]
) -> Point | None:
    """Return the point with the fewest sweeps at or below `wanted`; None if none is.

    Between two points of a coarse curve the number of sweeps is bisected by further fits.
    """
    before = 0
    for point in curve:
        if point.objective <= wanted:
            break
        before = point.sweeps
    else:
        return None
    while point.sweeps - before > 1:
        middle = refit((before + point.sweeps) // 2)
        if middle.objective <= wanted:
            point = middle
        else:
            before = middle.sweeps
    return point
