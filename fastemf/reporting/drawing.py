"""Drawings in SVG, a phone's screen wide, in the colours of the page's style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastemf.inputs.columns import shortened
from fastemf.reporting.markup import safe

__all__ = [
    "WIDTH",
    "Scale",
    "draw_dot",
    "draw_line",
    "draw_path",
    "draw_rect",
    "draw_ring",
    "draw_text",
    "drawn",
    "round_ticks",
]

WIDTH = 360


@dataclass(frozen=True)
class Scale:
    """Where numbers from `low` to `high` lie between two places of a drawing."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        """Return the place of a number; one that is beyond the ends lies at the nearer end."""
        span = self.high - self.low
        share = (min(max(value, self.low), self.high) - self.low) / span if span > 0 else 0.5
        return self.first + share * (self.last - self.first)


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """List about so many round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        power * digit for digit in (1, 2, 2.5, 5, 10) if power * digit >= rough * (1 - 1e-9)
    )
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [step * number for number in numbers]


def drawn(height: float, parts: Iterable[str], what: str) -> str:
    """Make one drawing of its parts; `what` it shows is said where it cannot be seen."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{safe(what)}">'
        f"{''.join(parts)}</svg>"
    )


def draw_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a straight line; `kind` is its class in the style."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def draw_rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Draw a filled rectangle."""
    size = f'width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{kind}"/>'


def draw_dot(x: float, y: float, radius: float, kind: str) -> str:
    """Draw a filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>'


def draw_ring(x: float, y: float, radius: float) -> str:
    """Draw a circle around what was chosen."""
    return draw_dot(x, y, radius, "ring")


def draw_path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Draw a line through points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" class="{kind}"/>'


def draw_text(
    x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", longest: int = 60
) -> str:
    """Write a text that starts, ends or has its middle there; all of it is shown on a touch."""
    short = shortened(text, longest)
    title = f"<title>{safe(text)}</title>" if short != text else ""
    named = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{title}{safe(short)}</text>'
    )
