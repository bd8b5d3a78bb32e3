"""Import rules and rules for compiled code, checked on the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import fastemf

PACKAGE = Path(fastemf.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
}
KERNELS = {name: tree for name, tree in MODULES.items() if name.startswith("kernels.")}
COMPILERS = {"njit", "jit", "cfunc", "vectorize", "guvectorize", "jitclass"}


def is_for_types(node):
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def imports(tree):
    """Yield the modules of the package that a module imports when it runs."""
    skipped = {id(inner) for node in tree.body if is_for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            first, _, home = (node.module or "").partition(".")
            if first == "fastemf":
                names = [f"{home}.{alias.name}".strip(".") for alias in node.names]
                yield from (name if name in MODULES else home for name in names)


def compiled(tree):
    """Yield the functions of a module that are compiled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if getattr(called, "id", "") in ("unit", "helper", "loop"):
                    yield node


def test_imports_have_no_cycles():
    left = {name: set(imports(tree)) for name, tree in MODULES.items() if name != "__init__"}
    while left:
        free = {name for name, others in left.items() if not others & left.keys()}
        assert free, f"these modules import each other: {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in free}


def test_kernels_import_only_kernels_and_support():
    # The disk cache is invalidated by changes in the folder kernels/ only.
    for name, tree in KERNELS.items():
        rooms = {other.split(".")[0] for other in imports(tree)}
        interpreted = {"loss"} if name == "kernels.simd.reference" else set()
        assert rooms <= {"kernels", "support"} | interpreted, name


def test_there_is_one_parallel_loop_and_its_body_is_one_call():
    loops = [
        (name, node)
        for name, tree in KERNELS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and "prange" in ast.unparse(node.iter)
    ]
    assert [name for name, _ in loops] == ["kernels.threads"]
    (call,) = loops[0][1].body
    assert isinstance(call.value, ast.Call)


def test_only_two_modules_call_numba():
    for name, tree in MODULES.items():
        nodes = list(ast.walk(tree))
        words = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        words |= {node.id for node in nodes if isinstance(node, ast.Name)}
        assert name == "kernels.compilation" or not words & COMPILERS, name
        assert name == "kernels.threads" or "set_num_threads" not in words, name


def test_compiled_functions_raise_nothing_and_call_no_blas():
    functions = [(name, f) for name, tree in KERNELS.items() for f in compiled(tree)]
    assert len(functions) > 25
    for name, function in functions:
        for node in ast.walk(function):
            assert not isinstance(node, ast.Raise), (name, function.name)
            attribute = node.attr if isinstance(node, ast.Attribute) else ""
            assert attribute not in ("linalg", "dot", "random"), (name, function.name)
            operator = node.op if isinstance(node, ast.BinOp) else None
            assert not isinstance(operator, ast.MatMult), (name, function.name)


def test_the_oracle_imports_nothing_from_the_package():
    assert "fastemf" not in (Path(__file__).parent / "oracle.py").read_text()
