"""Write the page that lists every public name with its one line: ``python docs/api.py``.

The lines are the summaries of the docstrings; a test compares the page with what this writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import fastemf

PAGE = Path(__file__).parent / "api.md"
MODULES = ("datasets", "loss", "metrics", "operators", "plot", "store")
INTRODUCTION = """\
# Every public name

`help(name)` shows parameters, errors and examples. A method that several classes of a module share
is listed once. `python docs/api.py` writes this page from the docstrings.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    public = {name: getattr(fastemf, name) for name in dir(fastemf) if not name.startswith("_")}
    functions = {name: value for name, value in public.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    parts = [
        INTRODUCTION,
        section("Functions", functions, "fastemf."),
        section("Classes", classes, "fastemf."),
        *(
            section(f"`fastemf.{name}`", exported(public[name]), f"{name}.", summary(public[name]))
            for name in MODULES
        ),
    ]
    return "\n".join(parts)


def exported(module: Any) -> dict[str, Any]:
    """Return what a star import of a module gives, by name."""
    return {name: getattr(module, name) for name in sorted(module.__all__)}


def section(title: str, values: dict[str, Any], prefix: str, introduction: str = "") -> str:
    """Return a heading and a table; a class is followed by its methods and properties."""
    lines = [f"## {title}", "", *([introduction, ""] if introduction else [])]
    lines += ["| name | summary |", "|---|---|"]
    listed: set[Any] = set()  # so that what classes inherit is there once
    for name, value in sorted(values.items(), key=lambda item: not is_protocol(item[1])):
        lines.append(row(prefix + name, value))
        for member, found in members(value) if inspect.isclass(value) else ():
            if found not in listed and member not in listed:
                lines.append(row(f"{prefix.removeprefix('fastemf.')}{name}.{member}", found))
            listed.add(member if is_protocol(value) else found)
    return "\n".join([*lines, ""])


def is_protocol(value: Any) -> bool:
    """Return whether a class only says what others have."""
    return getattr(value, "_is_protocol", False)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class has from this package, by name."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("fastemf"):
            found.update(vars(base))
    for name, value in sorted(found.items()):
        is_member = inspect.isfunction(value) or isinstance(
            value, property | cached_property | classmethod | staticmethod
        )
        if is_member and not name.startswith("_"):
            yield name, getattr(kind, name)


def row(name: str, value: Any) -> str:
    """Return one line of a table."""
    return f"| `{name}` | {summary(value)} |"


def summary(value: Any) -> str:
    """Return the first paragraph of a docstring in Markdown, fit for the cell of a table."""
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{value!r} must have a docstring, got none")
    first = " ".join(text.split("\n\n")[0].split())
    return re.sub(r"``(.*?)``", r"`\1`", first).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
