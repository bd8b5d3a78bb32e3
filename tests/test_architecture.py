"""The house rules that a reader relies on, checked on the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fastemf"
MODULES = {path.stem: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}

# Which module may import which. Imports point one way, along the way of the data.
ALLOWED = {
    "__init__": None,  # lazy: every name is looked up when it is used
    "__main__": {"cli"},
    "alternation": {"records", "ridge"},
    "cli": {"__init__", "demo"},
    "completion": {
        "alternation", "factorization", "initialise", "loss", "observations", "progress",
        "records", "ridge", "sweep", "threads", "validation", "warn",
    },
    "datasets": {"validation"},
    "demo": {"completion", "datasets", "loss"},
    "entry_kernels": {"jit"},
    "factorization": {
        "entry_kernels", "loss", "model_file", "observations", "records", "sweep", "threads",
        "validation", "warn",
    },
    "initialise": {
        "entry_kernels", "factorization", "observations", "records", "ridge", "sweep", "threads",
        "validation",
    },
    "jit": set(),
    "kernels": {"jit"},
    "loss": set(),
    "model_file": {"records"},
    "observations": {"entry_kernels", "validation", "warn"},
    "progress": {"records"},
    "records": set(),
    "ridge": {"records"},
    "sweep": {"kernels", "observations", "records", "threads"},
    "threads": {"validation"},
    "validation": set(),
    "warn": set(),
}  # fmt: skip


def imports(tree):
    """Modules of the package that a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fastemf":
            parts = (node.module or "").split(".")
            if len(parts) > 1:
                yield parts[1]
            else:
                for alias in node.names:
                    yield alias.name if alias.name in MODULES else "__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("fastemf."):
                    yield alias.name.split(".")[1]


def decorated(tree):
    """Names of the functions a module compiles."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if (
                    isinstance(decorator, ast.Call)
                    and getattr(decorator.func, "id", "") == "kernel"
                ):
                    yield node


def test_every_module_is_in_the_map():
    assert set(ALLOWED) == set(MODULES)


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_imports_point_one_way(name):
    assert set(imports(MODULES[name])) <= ALLOWED[name]


def test_only_one_file_touches_numbas_threads():
    for name, tree in MODULES.items():
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if name != "threads":
            assert not words & {"set_num_threads", "get_num_threads", "threading_layer"}


def test_only_jit_decorates():
    for name, tree in MODULES.items():
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if name != "jit":
            assert not names & {"njit", "jit", "vectorize", "guvectorize", "jitclass"}


@pytest.mark.parametrize("name", ["kernels", "entry_kernels"])
def test_a_cache_unit_is_one_file(name):
    # The disk cache stamps only the entry's own file: a call into another module of
    # the package would leave stale machine code behind after an upgrade.
    assert set(imports(MODULES[name])) == {"jit"}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.ImportFrom) and node.module == "fastemf.jit"
        for alias in node.names
    }
    assert imported == {"kernel"}


@pytest.mark.parametrize("name", ["kernels", "entry_kernels"])
def test_parallel_bodies_are_one_call(name):
    entries = [
        f
        for f in decorated(MODULES[name])
        if any(word.arg == "parallel" for d in f.decorator_list for word in d.keywords)
    ]
    assert entries
    for entry in entries:
        loop = entry.body[-1]
        assert isinstance(loop, ast.For)
        assert len(loop.body) == 1
        assert isinstance(loop.body[0].value, ast.Call)
        for node in ast.walk(entry):
            assert not isinstance(node, ast.Raise)


def test_kernels_call_no_linear_algebra_and_raise_nothing():
    for name in ("kernels", "entry_kernels"):
        for node in ast.walk(MODULES[name]):
            assert not isinstance(node, ast.Raise)
            assert not (
                isinstance(node, ast.Attribute) and node.attr in ("linalg", "dot", "random")
            )
            assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))


def test_the_oracle_imports_nothing_from_the_package():
    tree = ast.parse((Path(__file__).parent / "oracle.py").read_text())
    assert not list(imports(tree))
    assert "fastemf" not in {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
