"""The house rules that a reader relies on, checked on the syntax tree."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import fastemf

PACKAGE = Path(fastemf.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
}

KERNELS = [name for name in MODULES if name.startswith("kernels.")]

# The rooms, in the order of the data: each may import from those before it and from itself.
# A public module at the top counts as a room where lower rooms use it.
ROOMS = [
    "support", "loss", "metrics", "kernels", "inputs", "observations", "store", "cluster",
    "operators", "solver", "stacking", "model", "fit_plan", "completion", "sensing", "tasks",
    "reporting", "experiments", "commands", "shell",
]  # fmt: skip
SHELL = ("cli", "__main__")

# Names that a room may define again: what each command and each experiment is called by.
SHARED = {"commands": {"add", "run"}, "experiments": {"run"}}


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


def definitions(tree):
    """Public names that a module defines: functions, classes, types, and constants it offers."""
    offered = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if names == ["__all__"]:
                offered = {item.value for item in getattr(node.value, "elts", ())}
        else:
            continue
        yield from (name for name in names if not name.startswith("_") and not name.isupper())
        yield from (name for name in names if name.isupper() and name in offered)


def compiled(tree):
    """Functions of a module that are compiled: decorated as a unit, a helper or the loop."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if getattr(called, "id", "") in ("unit", "helper", "loop"):
                    yield node


@cache
def graph():
    """What each module imports; the package's own names are lazy and count for none."""
    return {name: set(imports(tree)) - {"__init__"} for name, tree in MODULES.items()}


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_rooms_import_one_way(name):
    place = ROOMS.index(room(name))
    assert not {other for other in graph()[name] if ROOMS.index(room(other)) > place}


def for_types(tree):
    """Modules of the package that a module imports for its annotations alone."""
    for node in tree.body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from imports(node)


def test_no_module_imports_itself_by_a_detour():
    left = {name: others - set(for_types(MODULES[name])) for name, others in graph().items()}
    del left["__init__"]
    while left:
        free = {name for name, others in left.items() if not others & left.keys()}
        assert free, f"these import each other: {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in free}


def test_a_public_name_has_one_meaning():
    homes = {}
    for name, tree in MODULES.items():
        if name == "kernels.vectors.meaning":
            continue  # the same operations again, in Python
        for defined in set(definitions(tree)) - SHARED.get(room(name), set()):
            homes.setdefault(defined, []).append(name)
    assert not {defined: names for defined, names in homes.items() if len(names) > 1}


# Public in spite of the underscore: of named tuples, and of Numba's structures.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_getvalue"}


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
    assert not set(private_uses(tree)) - set(own_attributes(tree)) - PUBLIC


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


def test_only_one_file_decorates():
    for name, tree in MODULES.items():
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if name != "kernels.compilation":
            assert not names & {"njit", "jit", "cfunc", "vectorize", "guvectorize", "jitclass"}


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_compiled_is_under_the_stamp(name):
    # The disk cache is stamped with the files of this folder: compiled code that called into
    # another room would leave stale machine code behind after an upgrade.
    outside = {other for other in graph()[name] if room(other) != "kernels"}
    assert {room(other) for other in outside} <= {"support"}
    if outside:  # checks of arguments, in Python
        used = {
            node.id
            for function in compiled(MODULES[name])
            for node in ast.walk(function)
            if isinstance(node, ast.Name)
        }
        assert not {word for word in used if word.startswith("check_")}


def test_there_is_one_parallel_loop_and_its_body_is_one_call():
    loops = [
        (name, node)
        for name in KERNELS
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.For) and "prange" in ast.unparse(node.iter)
    ]
    assert [name for name, _ in loops] == ["kernels.threads"]
    body = loops[0][1].body
    assert len(body) == 1
    assert isinstance(body[0].value, ast.Call)


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_functions_are_short_of_arguments_and_raise_nothing(name):
    for function in compiled(MODULES[name]):
        assert len(function.args.args) <= 12
        for node in ast.walk(function):
            assert not isinstance(node, ast.Raise)
            assert not (
                isinstance(node, ast.Attribute) and node.attr in ("linalg", "dot", "random")
            )
            assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))


def test_kernels_are_found():
    assert sum(1 for name in KERNELS for _ in compiled(MODULES[name])) > 25


def test_the_oracle_imports_nothing_from_the_package():
    tree = ast.parse((Path(__file__).parent / "oracle.py").read_text())
    assert not list(imports(tree))
    assert "fastemf" not in {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
