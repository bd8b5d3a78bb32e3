"""HTML of the report: the page, its style, tables and figures. All text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastemf.inputs.columns import LONGEST, shortened

# The colours of Okabe and Ito, as in fastemf.plot.
STYLE = """
:root { color-scheme: light dark; --back: #fff; --card: #f7f8f9; --text: #1b1d1f; --mute: #5b6167;
  --rule: #dfe2e5; --fit: #0072b2; --soft: #9fcbe6; --simple: #a3a9af; --mark: #c24e00; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1d2125; --text: #e8eaec;
  --mute: #a2a9b0; --rule: #343a40; --fit: #56b4e9; --soft: #24506c; --simple: #6f767d;
  --mark: #f0a030; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem 1rem 3rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .2rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: .95rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
p { margin: .3rem 0 .9rem; max-width: 46rem; }
.verdict { font-size: 1.1rem; padding: .7rem 1rem; border-left: 4px solid var(--fit);
  background: var(--card); max-width: none; }
.note { color: var(--mute); font-size: .9rem; }
.cards { display: grid; gap: 1rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
.cards.slim { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15.5rem), 1fr)); }
.cards.broad { grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
.full { grid-column: 1 / -1; } @media (min-width: 44rem) { .span { grid-column: span 2; } }
.card { margin: 0; padding: .8rem; background: var(--card); border-radius: .5rem; min-width: 0; }
figcaption { color: var(--mute); font-size: .85rem; margin-top: .3rem; }
svg { display: block; width: 100%; height: auto; max-width: 30rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--text); }
svg text.mute { fill: var(--mute); }
svg .grid { stroke: var(--rule); } svg .target { stroke: var(--mark); stroke-dasharray: 5 3; }
svg .axis { stroke: var(--mute); } svg .fit { fill: var(--fit); } svg .mark { fill: var(--mark); }
svg .simple { fill: var(--simple); } svg .soft { fill: var(--soft); }
svg line.fit, svg polyline.fit { stroke: var(--fit); stroke-width: 1.5; fill: none; }
svg polyline.simple, svg line.simple { stroke: var(--simple); stroke-width: 1.5; fill: none; }
svg polyline.mark { stroke: var(--mark); stroke-width: 1.5; fill: none; stroke-dasharray: 4 2; }
svg polyline.soft { stroke: var(--soft); stroke-width: 2.5; fill: none; }
svg .beyond { fill: none; stroke: var(--mark); }
svg .ring { fill: none; stroke: var(--text); stroke-width: 1.5; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; font-weight: normal; }
thead th { color: var(--mute); } th:first-child { text-align: left; padding-left: 0; }
tbody th { max-width: 14rem; overflow: hidden; text-overflow: ellipsis; }
tr.ours th, tr.ours td { font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0; }
dt { color: var(--mute); } dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--mute); font-size: .9rem; }
"""


def escape(text: Any) -> str:
    """Escape a text for HTML, and replace characters that cannot be printed."""
    shown = (char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))
    return html.escape("".join(shown))


def number(value: float) -> str:
    """Format a number with four significant digits and thousands separators."""
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


def table(
    heads: Sequence[str], lines: Iterable[Sequence[Any]], *, marked: frozenset[int] = frozenset()
) -> str:
    """Return a table whose first column has the names of the lines."""
    first, *others = heads
    head = f"<th>{escape(first)}</th>" + "".join(f"<th>{escape(name)}</th>" for name in others)
    body = []
    for place, (name, *values) in enumerate(lines):
        cells = "".join(f"<td>{escape(_cell(value))}</td>" for value in values)
        row = ' class="ours"' if place in marked else ""
        label = f'<th scope="row"><bdi>{escape(shortened(_cell(name), LONGEST))}</bdi></th>'
        body.append(f"<tr{row}>{label}{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def figure(title: str, drawing: str, caption: str = "", width: str = "") -> str:
    """Return a drawing or table with title and caption; `width` is span or full."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="card {width}"><h3>{escape(title)}</h3>{drawing}{below}</figure>'


def cards(figures: Iterable[str], width: str = "") -> str:
    """Return figures in a grid that adapts to the screen; `width` is slim or broad."""
    return f'<div class="cards {width}">{"".join(figures)}</div>'


def section(title: str, lead: str, *parts: str) -> str:
    """Return a section with a heading, an introduction and its parts."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{''.join(parts)}</section>"


def details(title: str, content: str) -> str:
    """Return content that is hidden until the reader opens it."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def page(title: str, parts: Iterable[str]) -> str:
    """Return a self-contained page that loads nothing and runs no scripts."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )
