"""The house rules that a reader relies on, checked on the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fastemf"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
}

KERNELS = ["kernels", "entry_kernels", "operator_kernels"]

# A command imports what it needs when it runs.
SHARED = {"commands.arguments"}
COMMANDS = {
    "demo": {*SHARED, "demo", "latency_log", "table_files"},
    "fit": {*SHARED, "commands.info", "commands.output", "completion", "coverage"},
    "info": {*SHARED, "__init__", "commands.output"},
    "levels": {*SHARED, "commands.info", "commands.output", "levels"},
    "predict": {*SHARED, "__init__", "commands.label_text", "commands.output", "table_files"},
    "rank": {
        *SHARED,
        "__init__",
        "commands.label_text",
        "commands.output",
        "commands.predict",
        "table_files",
    },
    "reproduce": {*SHARED, "experiments.reproduce"},
    "select": {*SHARED, "commands.output", "selection", "whole_file"},
    "store": {*SHARED, "__init__"},
}

# Which module may import which. Imports point one way, along the way of the data.
ALLOWED = {
    "__init__": None,  # lazy: every name is looked up when it is used
    "__main__": {"cli"},
    "alternation": {"records", "ridge"},
    "blocks": {"kernels", "observations", "threads"},
    "checkpoint": {"alternation", "records", "ridge", "whole_file"},
    "cli": {"__init__", *(f"commands.{name}" for name in COMMANDS)},
    **{f"commands.{name}": imports for name, imports in COMMANDS.items()},
    "cluster": {"__init__", "observations", "threads"},
    "cluster_source": {"blocks", "cluster", "entries", "kernels", "labels", "observations"},
    "commands.__init__": set(),
    "commands.arguments": {"table_files"},
    "commands.label_text": {"labels"},
    "commands.output": {"table_files", "whole_file"},
    "columns": set(),
    "completion": {
        "checkpoint", "factorization", "fitting", "hold_out", "initialise", "observations",
        "records", "ridge", "sources", "sweep", "threads", "validation", "warn",
    },
    "coverage": {
        "factorization", "hold_out", "levels", "metrics", "observations", "threads", "validation",
        "warn",
    },
    "datasets": {"hold_out", "latency_log", "matrix_files", "validation", "warn"},
    "demo": {"completion", "datasets", "loss", "metrics"},
    "distribution": {
        "cluster", "cluster_source", "partitions", "store.__init__", "store.chunks",
        "store.manifest", "tables",
    },
    "entries": {"validation", "value_check", "warn"},
    "entry_kernels": {"jit"},
    "estimators": {
        "completion", "factorization", "loss", "metrics", "observations", "threads", "validation",
    },
    "experiments.__init__": set(),
    "experiments.chi_squared": {"experiments.report", "plot", "validation"},
    "experiments.convergence_rate": {"experiments.recovery"},
    "experiments.measured": {
        "datasets", "experiments.report", "experiments.settings", "experiments.tally", "metrics",
        "plot",
    },
    "experiments.netlatency": {
        "datasets", "experiments.measured", "experiments.report", "experiments.settings",
        "validation",
    },
    "experiments.phase_diagram": {"experiments.recovery"},
    "experiments.recovery": {"factorization", "operators", "sensing"},
    "experiments.report": set(),
    "experiments.reproduce": {
        "experiments.netlatency", "experiments.report", "experiments.sensing",
        "experiments.settings", "experiments.synthetic", "experiments.wsdream",
    },
    "experiments.sensing": {
        "experiments.convergence_rate", "experiments.phase_diagram", "experiments.report", "plot",
        "validation",
    },
    "experiments.settings": {"completion", "factorization", "validation"},
    "experiments.synthetic": {
        "datasets", "experiments.chi_squared", "experiments.report", "experiments.settings",
        "experiments.tally", "factorization", "plot", "validation",
    },
    "experiments.tally": {"experiments.settings", "factorization", "loss", "metrics"},
    "experiments.wsdream": {
        "datasets", "experiments.measured", "experiments.report", "experiments.settings",
        "validation",
    },
    "factorization": {
        "labels", "loss", "low_rank_model", "metrics", "model_file", "observations", "ranking",
        "records", "similarity", "summary", "sweep", "table_files", "tables", "threads",
        "validation", "warn",
    },
    "hold_out": {"observations", "table_files", "tables", "validation"},
    "fitting": {"alternation", "checkpoint", "progress", "records", "ridge", "warn"},
    "initialise": {
        "blocks", "entries", "factorization", "kernels", "labels", "observations", "operators",
        "records", "ridge", "sweep", "threads", "validation",
    },
    "jit": set(),
    "kernels": {"jit"},
    "label_arrays": {"labels"},
    "labels": {"columns"},
    "latency_log": {"validation"},
    "levels": {
        "completion", "factorization", "model_file", "observations", "sources", "validation",
        "warn",
    },
    "loss": set(),
    "low_rank_model": {
        "entry_kernels", "labels", "operators", "records", "tables", "threads", "validation",
    },
    "matrix_files": set(),
    "metrics": {"loss", "validation"},
    "models": {"factorization", "levels", "model_file"},
    "model_file": {"label_arrays", "labels", "records", "whole_file"},
    "observations": {
        "columns", "entries", "entry_kernels", "kernels", "labels", "loss", "table_files",
        "tables", "threads",
    },
    "operator_kernels": {"jit"},
    "operators": {"operator_kernels", "threads", "validation"},
    "partitions": {
        "cluster", "cluster_source", "labels", "observations", "store.chunks",
        "store.label_index", "validation", "value_check",
    },
    "plot": {"factorization", "levels", "loss", "metrics", "selection", "validation"},
    "progress": {"records"},
    "ranking": {"observations"},
    "records": set(),
    "regression": {"loss", "operators", "records"},
    "ridge": {"records"},
    "rip": {"operators", "regression", "threads", "validation"},
    "selection": {
        "__init__", "completion", "factorization", "hold_out", "loss", "observations", "plot",
        "progress", "threads", "validation",
    },
    "sensing": {
        "completion", "factorization", "initialise", "operators", "fitting",
        "records", "regression", "ridge", "threads", "validation", "warn",
    },
    "similarity": {"ranking", "threads"},
    "summary": {"entries", "loss", "observations"},
    "sources": {"distribution", "observations", "store.__init__", "threads"},
    "store.__init__": {"store.building", "store.manifest", "store.reading"},
    "store.building": {
        "label_arrays", "labels", "store.chunks", "store.manifest", "store.reading", "store.sides",
        "store.spill", "store.workplace", "validation",
    },
    "store.chunks": {"columns", "table_files", "tables", "validation"},
    "store.cuts": set(),
    "store.files": set(),
    "store.label_index": {"columns", "labels", "table_files"},
    "store.manifest": {"store.files"},
    "store.reading": {
        "entries", "label_arrays", "labels", "observations", "store.cuts", "store.files",
        "store.manifest", "validation",
    },
    "store.sides": {
        "entries", "entry_kernels", "observations", "store.cuts", "store.files", "store.manifest",
        "store.spill", "store.workplace", "threads",
    },
    "store.spill": {
        "labels", "store.chunks", "store.files", "store.label_index", "store.workplace",
        "validation", "value_check",
    },
    "store.workplace": {"store.files", "warn"},
    "sweep": {"blocks", "kernels", "observations", "records", "threads"},
    "table_files": {"columns", "tables", "whole_file"},
    "tables": {"columns", "entries", "labels", "validation"},
    "threads": {"validation"},
    "validation": set(),
    "value_check": {"warn"},
    "warn": set(),
    "whole_file": set(),
}  # fmt: skip


def imports(tree):
    """Modules of the package that a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fastemf":
            home = (node.module or "").removeprefix("fastemf").removeprefix(".")
            if home in MODULES:
                yield home
            else:  # a package: the names may be its modules
                for alias in node.names:
                    name = f"{home}.{alias.name}".removeprefix(".")
                    yield name if name in MODULES else f"{home}.__init__".removeprefix(".")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("fastemf."):
                    yield alias.name.removeprefix("fastemf.")


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


@pytest.mark.parametrize("name", KERNELS)
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


@pytest.mark.parametrize("name", KERNELS)
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
    for name in KERNELS:
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
