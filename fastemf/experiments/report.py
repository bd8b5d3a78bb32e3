"""The report of an experiment: figures, a CSV file of all numbers, and an HTML page."""

from __future__ import annotations

import base64
import csv
import html
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.0  # inches
DPI = 110

# The policy forbids loading anything from outside the page.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
figure {{ margin: 2em 0; }}
img {{ max-width: 100%; }}
figcaption {{ color: #444; }}
table {{ border-collapse: collapse; margin: 1em 0 2em; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; font-weight: bold; padding-bottom: 0.5em; }}
th, td {{ padding: 0.15em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


@dataclass
class Report:
    """Figures and tables, collected during an experiment and written at its end."""

    name: str
    title: str
    paragraphs: list[str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _tables: list[tuple[str, list[list[str]]]] = field(default_factory=list)
    _figures: dict[str, bytes] = field(default_factory=dict)

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Add a figure."""
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=DPI)
        self._figures[name] = file.getvalue()
        data = base64.b64encode(file.getvalue()).decode()
        text = html.escape(caption)
        self._parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{text}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def table(self, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a table; its columns are the keys of the first row."""
        columns = list(rows[0])
        lines = [columns, *([_text(row[column]) for column in columns] for row in rows)]
        self._tables.append((title, lines))
        self._parts.append(
            f"<table><caption>{html.escape(title)}</caption>\n"
            + "\n".join(_row("td" if i else "th", line) for i, line in enumerate(lines))
            + "</table>"
        )

    def __str__(self) -> str:
        """Return title and tables, for a terminal."""
        parts = [self.title]
        for title, lines in self._tables:
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            parts += ["", title]
            parts += [
                "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
                for line in lines
            ]
        return "\n".join(parts)

    def write(self, folder: Path) -> list[Path]:
        """Write all files into a directory; return their paths, the page first."""
        page = folder / f"{self.name}.html"
        numbers = folder / f"{self.name}.csv"
        body = [f"<p>{html.escape(text)}</p>" for text in self.paragraphs] + self._parts
        page.write_text(
            PAGE.format(title=html.escape(self.title), body="\n".join(body)), encoding="utf-8"
        )
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        with numbers.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(
                {key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()}
                for row in self.rows
            )
        paths = [page, numbers]
        for name, data in self._figures.items():
            paths.append(folder / f"{self.name}_{name}.png")
            paths[-1].write_bytes(data)
        return paths


def panels(count: int, *, height: float = 4.0, title: str = "") -> tuple[Figure, list[Axes]]:
    """Create a figure with `count` axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure, axes


def check_folder(out: str | os.PathLike[str]) -> Path:
    """Return a writable directory, created if necessary."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"out must be a writable directory, got {out}: {error}") from None
    return folder


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in cells) + "</tr>"
