"""The public API: the page that lists it is up to date, and the docstring examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import runpy
from pathlib import Path

import pytest

import fastemf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "fastemf").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def public_names():
    """Return the public functions and classes by the name that the page gives them."""
    found = {}
    for name in dir(fastemf):
        value = getattr(fastemf, name)
        if inspect.ismodule(value):
            found |= {f"{name}.{inner}": getattr(value, inner) for inner in value.__all__}
        elif not name.startswith("_"):
            found[f"fastemf.{name}"] = value
    return found


def functions():
    """Yield the public functions, and the public methods of the package's own classes."""
    for name, value in public_names().items():
        is_operator = name.startswith("operators.") and name != "operators.Operator"
        if inspect.isfunction(value) or is_operator:
            yield name, value
        elif inspect.isclass(value) and name.startswith("fastemf."):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if function.__module__.startswith("fastemf") and not method.startswith("_"):
                    yield f"{name}.{method}", function


def test_page_is_up_to_date():
    written = runpy.run_path(str(ROOT / "docs" / "api.py"))["page"]()
    assert written == PAGE, "run python docs/api.py"


def test_page_lists_every_public_name():
    assert [name for name in public_names() if f"| `{name}` |" not in PAGE] == []


def test_every_public_function_has_an_example():
    assert [name for name, f in functions() if ">>> " not in (inspect.getdoc(f) or "")] == []


@pytest.mark.docs
@pytest.mark.parametrize("name", EXAMPLES)
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
