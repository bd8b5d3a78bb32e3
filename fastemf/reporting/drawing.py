"""SVG drawings in the colours of the page, as wide as the screen of a phone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastemf.inputs.columns import shortened
from fastemf.reporting.markup import escape, number

WIDTH = 360


@dataclass(frozen=True)
class Scale:
    """A linear map of numbers from `low` to `high` to positions in a drawing."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        """Return the position of a number, clipped to the ends."""
        span = self.high - self.low
        fraction = (min(max(value, self.low), self.high) - self.low) / span if span > 0 else 0.5
        return self.first + fraction * (self.last - self.first)


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """List about `count` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        power * digit for digit in (1, 2, 2.5, 5, 10) if power * digit >= rough * (1 - 1e-9)
    )
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [step * number for number in numbers]


def image(height: float, parts: Iterable[str], label: str) -> str:
    """Combine parts into one drawing; screen readers read the label."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a straight line; `kind` is its CSS class."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Draw a filled rectangle."""
    size = f'width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{kind}"/>'


def dot(x: float, y: float, radius: float, kind: str) -> str:
    """Draw a filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>'


def horizontal_grid(y: Scale, left: float, right: float) -> list[str]:
    """Draw horizontal lines at round numbers, with the numbers on the left."""
    parts = []
    for tick in round_ticks(y.low, y.high):
        parts.append(line(left, y(tick), right, y(tick), "grid"))
        parts.append(label(left - 5, y(tick) + 4, f"{tick:.3g}", anchor="end", kind="mute"))
    return parts


def number_axis(x: Scale, bottom: float) -> list[str]:
    """Draw round numbers below a horizontal scale."""
    return [
        label(x(tick), bottom, number(tick), anchor="middle", kind="mute")
        for tick in round_ticks(x.low, x.high)
    ]


def bars(items: Sequence[tuple[str, float]], x: Scale, step: int, others: str) -> list[str]:
    """Draw a horizontal bar for each name and value, the first as the model, and an axis."""
    left, parts = x.first, []
    for place, (name, value) in enumerate(items):
        y = 4 + place * step
        parts.append(label(left - 6, y + step // 2 + 1, name, anchor="end"))
        parts.append(rect(left, y, x(value) - left, step - 6, others if place else "fit"))
        parts.append(label(x(value) + 4, y + step // 2 + 1, number(value)))
    return [*parts, line(left, 0, left, 4 + len(items) * step, "axis")]


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Draw a line through points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" class="{kind}"/>'


def label(
    x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", longest: int = 60
) -> str:
    """Draw a text, shortened if necessary; its full form is shown as a tooltip."""
    short = shortened(text, longest)
    title = f"<title>{escape(text)}</title>" if short != text else ""
    named = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{title}{escape(short)}</text>'
    )
