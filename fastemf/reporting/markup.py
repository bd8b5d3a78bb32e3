"""Parts of an HTML page. Whatever a user called something is harmless text here."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastemf.inputs.columns import shortened

__all__ = ["as_cards", "as_figure", "as_section", "as_table", "figure_text", "safe"]

LONGEST = 60  # characters of a label in a table


def safe(text: Any) -> str:
    """Return a text as HTML that shows it, and does nothing else."""
    shown = (char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))
    return html.escape("".join(shown))


def figure_text(value: float) -> str:
    """Write a number for a person: four digits, thousands apart, without an exponent."""
    if math.isnan(value):
        return "–"
    size = abs(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if size != 0 and not 1e-4 <= size < 1e12:
        text = f"{value:.3g}"
    else:
        digits = 3 - math.floor(math.log10(size)) if size else 0
        text = f"{value:,.{min(max(digits, 0), 7)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def as_table(
    heads: Sequence[str], lines: Iterable[Sequence[Any]], *, marked: frozenset[int] = frozenset()
) -> str:
    """Write a table whose first column names the lines; floats are written for a person."""
    first, *others = heads
    head = f"<th>{safe(first)}</th>" + "".join(f"<th>{safe(name)}</th>" for name in others)
    body = []
    for place, (name, *values) in enumerate(lines):
        cells = "".join(f"<td>{safe(_cell(value))}</td>" for value in values)
        row = ' class="ours"' if place in marked else ""
        label = f'<th scope="row"><bdi>{safe(shortened(name, LONGEST))}</bdi></th>'
        body.append(f"<tr{row}>{label}{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return figure_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_figure(title: str, drawing: str, caption: str = "", width: str = "") -> str:
    """Put a title above a drawing or a table, and what it means below; `width`: span or full."""
    below = f"<figcaption>{safe(caption)}</figcaption>" if caption else ""
    return f'<figure class="card {width}"><h3>{safe(title)}</h3>{drawing}{below}</figure>'


def as_cards(cards: Iterable[str], width: str = "") -> str:
    """Put figures beside each other where there is room, else below; `width`: slim or broad."""
    return f'<div class="cards {width}">{"".join(cards)}</div>'


def as_section(title: str, lead: str, *parts: str) -> str:
    """Put a heading and a paragraph that says what is shown above its parts."""
    return f"<section><h2>{safe(title)}</h2><p>{safe(lead)}</p>{''.join(parts)}</section>"
