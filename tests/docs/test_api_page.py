"""The page of public names is what the docstrings say."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

import fastemf

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_script_writes():
    written = runpy.run_path(str(DOCS / "api.py"))["page"]()
    assert written == PAGE, "the page is stale: run python docs/api.py"


@pytest.mark.parametrize("name", [name for name in dir(fastemf) if not name.startswith("_")])
def test_every_public_name_is_listed(name):
    value = getattr(fastemf, name)
    if inspect.ismodule(value):
        assert f"## `fastemf.{name}`" in PAGE
        for inner in value.__all__:
            assert f"| `{name}.{inner}` |" in PAGE
    else:
        assert f"| `fastemf.{name}` |" in PAGE


@pytest.mark.parametrize(
    "name", ["Factorization", "Levels", "Calibration", "Selection", "Labels", "store.Store"]
)
def test_every_method_of_a_result_is_listed(name):
    kind = fastemf.store.Store if name == "store.Store" else getattr(fastemf, name)
    for method, found in inspect.getmembers(kind, inspect.isroutine):
        if not method.startswith("_"):
            # What Levels shares with Factorization is listed there.
            shared = getattr(fastemf.Factorization, method, None) is found
            listed = "Factorization" if shared else name
            assert f"| `{listed}.{method}` |" in PAGE
