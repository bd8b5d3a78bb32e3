"""Write the reference page of public names: ``python docs/api.py``.

Each line is the summary of a docstring. A test compares the page with the output of this script.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import fastemf

PAGE = Path(__file__).parent / "api.md"
MODULES = ("datasets", "loss", "metrics", "operators", "plot", "store")
RESULTS = {
    "boosting.coverage_report": ("CoverageReport", "GroupCoverage"),
    "models.boosted_levels": ("BoostedLevels", "LevelGroup", "LevelReport"),
    "models.entities": ("Entities",),
    "models.evaluation": ("Evaluation", "QuantileScore", "Score"),
    "models.explanation": ("Explanation",),
    "models.leave_one_out": ("LeaveOneOut",),
    "models.quantiles": ("Interval",),
    "models.ranking": ("Ranking",),
    "models.similarity": ("Similar",),
    "models.summary": ("Summary",),
    "selection": ("Candidate", "Selection"),
    "solver.records": ("SweepRecord",),
    "tuning.baselines": ("TrainingBaselines",),
    "tuning.record": ("Baseline", "Tuning", "TuningStep"),
}
INTRODUCTION = """\
# API reference

`help(name)` shows parameters, exceptions and examples. Inherited methods are listed once per
section. `python docs/api.py` writes this page from the docstrings.
"""
RESULTS_INTRODUCTION = (
    "Return values of the functions and methods above. They are imported from the module shown."
)


def page() -> str:
    """Return the whole page as Markdown."""
    public = {name: getattr(fastemf, name) for name in dir(fastemf) if not name.startswith("_")}
    functions = {name: value for name, value in public.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    parts = [
        INTRODUCTION,
        section("Functions", functions, "fastemf."),
        section("Classes", classes, "fastemf."),
        section("Result classes", results(), "fastemf.", RESULTS_INTRODUCTION),
        *(
            section(f"`fastemf.{name}`", exported(public[name]), f"{name}.", summary(public[name]))
            for name in MODULES
        ),
    ]
    return "\n".join(parts)


def results() -> dict[str, Any]:
    """Return the result classes that are not top-level names, by path within the package."""
    return {
        f"{module}.{name}": getattr(import_module(f"fastemf.{module}"), name)
        for module, names in RESULTS.items()
        for name in names
    }


def exported(module: Any) -> dict[str, Any]:
    """Return the exported names of a module with their values."""
    return {name: getattr(module, name) for name in sorted(module.__all__)}


def section(title: str, values: dict[str, Any], prefix: str, introduction: str = "") -> str:
    """Return a heading and a table; a class is followed by its methods and properties."""
    lines = [f"## {title}", "", *([introduction, ""] if introduction else [])]
    lines += ["| name | summary |", "|---|---|"]
    listed: set[Any] = set()  # inherited members are listed once
    for name, value in sorted(values.items(), key=lambda item: not is_protocol(item[1])):
        lines.append(row(prefix + name, value))
        for member, found in members(value) if inspect.isclass(value) else ():
            if found not in listed and member not in listed:
                owner = value.__name__ if prefix == "fastemf." else prefix + name
                lines.append(row(f"{owner}.{member}", found))
            listed.add(member if is_protocol(value) else found)
    return "\n".join([*lines, ""])


def is_protocol(value: Any) -> bool:
    """Return whether a class is a protocol."""
    return getattr(value, "_is_protocol", False)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that this package defines, by name."""
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
    """Return the first paragraph of a docstring in Markdown, as the cell of a table."""
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{value!r} must have a docstring, got none")
    first = " ".join(text.split("\n\n")[0].split())
    return re.sub(r"``(.*?)``", r"`\1`", first).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
