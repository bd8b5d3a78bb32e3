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

KERNELS = [
    name
    for name in MODULES
    if name.startswith("kernels.") and name not in ("kernels.compilation", "kernels.threads")
]

# The rooms, in the order of the data: each may import from those before it and from itself.
# A public module at the top counts as a room where lower rooms use it.
ROOMS = [
    "support", "loss", "metrics", "kernels", "inputs", "observations", "store", "cluster",
    "operators", "solver", "model", "completion", "sensing", "tasks", "experiments", "commands",
    "shell",
]  # fmt: skip
SHELL = ("cli", "__main__")


def room(name):
    """The room of a module; what else lies at the top is a task."""
    first = name.split(".")[0]
    if first in SHELL:
        return "shell"
    return first if first in ROOMS else "tasks"


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


def graph():
    """What each module imports; the package's own names are lazy and count for none."""
    return {name: set(imports(tree)) - {"__init__"} for name, tree in MODULES.items()}


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_rooms_import_one_way(name):
    place = ROOMS.index(room(name))
    assert not {other for other in graph()[name] if ROOMS.index(room(other)) > place}


def test_no_module_imports_itself_by_a_detour():
    left = {name: set(others) for name, others in graph().items() if name != "__init__"}
    while left:
        free = {name for name, others in left.items() if not others & left.keys()}
        assert free, f"these import each other: {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in free}


NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}  # public, in spite of the underscore


def own_attributes(tree):
    """Attributes that the classes of a module define: methods, fields, and what self gets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield part.name
                elif isinstance(part, ast.AnnAssign):
                    yield part.target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def private_uses(tree):
    """Attributes with one leading underscore, of anything but self, cls and imported modules."""
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = getattr(node.value, "id", "")
            if not node.attr.startswith("__") and owner not in {"self", "cls", *modules}:
                yield node.attr


@pytest.mark.parametrize("name", sorted(MODULES))
def test_private_attributes_stay_in_their_module(name):
    tree = MODULES[name]
    assert not set(private_uses(tree)) - set(own_attributes(tree)) - NAMED_TUPLES


@pytest.mark.parametrize("name", sorted(MODULES))
def test_private_names_are_not_imported(name):
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastemf"):
            private = {alias.name for alias in node.names if alias.name.startswith("_")}
            assert private <= {"__version__"}


def test_the_rule_about_private_attributes_sees_them():
    tree = ast.parse("import sys\nsys._getframe()\nfit._cells(1)\nself._a\npair._replace(x=1)")
    assert set(private_uses(tree)) == {"_cells", "_replace"}
    assert not set(own_attributes(tree))


def test_only_one_file_touches_numbas_threads():
    for name, tree in MODULES.items():
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if name != "kernels.threads":
            assert not words & {"set_num_threads", "get_num_threads", "threading_layer"}


def test_only_jit_decorates():
    for name, tree in MODULES.items():
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if name != "kernels.compilation":
            assert not names & {"njit", "jit", "vectorize", "guvectorize", "jitclass"}


@pytest.mark.parametrize("name", KERNELS)
def test_a_cache_unit_is_one_file(name):
    # The disk cache stamps only the entry's own file: a call into another module of
    # the package would leave stale machine code behind after an upgrade.
    assert set(imports(MODULES[name])) == {"jit"}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.ImportFrom) and node.module == "fastemf.kernels.compilation"
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
