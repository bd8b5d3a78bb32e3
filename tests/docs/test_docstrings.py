"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import fastemf

NAMES = ["fastemf", *(m.name for m in pkgutil.walk_packages(fastemf.__path__, "fastemf."))]


@pytest.mark.docs
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_examples_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def public():
    for name in dir(fastemf):  # with what an extra adds
        value = getattr(fastemf, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if function.__module__.startswith("fastemf") and not method.startswith("_"):
                    yield f"{name}.{method}", function
    for module in (fastemf.datasets, fastemf.loss, fastemf.metrics, fastemf.plot, fastemf.store):
        for name in module.__all__:
            if inspect.isfunction(getattr(module, name)):
                yield name, getattr(module, name)
    for name in fastemf.operators.__all__:
        if name != "Operator":  # the protocol: nothing to call
            yield f"operators.{name}", getattr(fastemf.operators, name)


@pytest.mark.parametrize("name", sorted(dict(public())))
def test_every_public_function_has_an_example(name):
    assert ">>> " in inspect.getdoc(dict(public())[name])
