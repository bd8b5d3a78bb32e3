"""Settings of a fit: the signatures of the tasks, checks, and dependencies."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import fastemf
from fastemf import Checkpoint, Solver, Validation, cli
from fastemf.solver.settings import Settings

COMPLETE = inspect.signature(fastemf.complete).parameters

IN_MEMORY = "cells are held out by a mask, so the data must be in memory"
MANY_FITS = "would have to hold many fits"
ENTRIES = "needs entries in rows and columns, which a general map does not have"
OTHER_TYPES = ("weights", "values")  # those of further sources, and intervals
# Parameters of `complete` that another task lacks, or has with another default, and why.
EXCEPTIONS = {
    fastemf.complete_levels: {"omega": "several levels: omegas"},
    fastemf.complete_quantiles: {
        "omega": "several quantiles: taus",
        "intercepts": "True, since without intercepts the features predict poorly",
        "tol": "1e-4, since predictions are means of five fits",
    },
    fastemf.select: {
        "k": "several ranks: ks",
        "time": "folds are random", "half_life": "folds are random",
        "reg": "several ridges: regs",
        "init": "fits start from one another",
        "client": IN_MEMORY, "store_path": IN_MEMORY,
        "callback": "could not distinguish the fits",
        "checkpoint": MANY_FITS,
    },
    fastemf.sense: {
        "R": "measurements: A and b",
        "rows": ENTRIES, "cols": ENTRIES, "values": ENTRIES, "censored": ENTRIES,
        "reg": "0, the problem of the paper; auto needs counts of rows and columns",
        "time": ENTRIES, "half_life": ENTRIES,
        "intercepts": ENTRIES, "client": ENTRIES, "store_path": ENTRIES,
        "validation": "a map measures all at once",
    },
}  # fmt: skip


@pytest.mark.parametrize("task", EXCEPTIONS, ids=lambda task: task.__name__)
def test_all_tasks_share_the_parameters_of_complete(task):
    theirs = inspect.signature(task).parameters
    shared = [name for name in COMPLETE if name in theirs]
    equal = {name for name in shared if theirs[name].default == COMPLETE[name].default}
    assert COMPLETE.keys() - equal == set(EXCEPTIONS[task])
    assert [name for name in theirs if name in COMPLETE] == shared  # in the same order
    for name in shared:
        if name not in ("R", "omega", "k", "reg"):
            assert theirs[name].kind == COMPLETE[name].kind
            assert theirs[name].annotation == COMPLETE[name].annotation or name in OTHER_TYPES


@pytest.mark.parametrize("task", [fastemf.complete, *EXCEPTIONS], ids=lambda task: task.__name__)
def test_every_parameter_is_described(task):
    lines = inspect.getdoc(task).splitlines()
    first, last = lines.index("Parameters"), lines.index("Returns")
    names = [line for line in lines[first + 2 : last] if line and not line.startswith(" ")]
    described = {name.strip() for line in names for name in line.split(",")}
    assert described == set(inspect.signature(task).parameters)


def test_settings_are_the_parameters_other_than_data():
    data = {"R", "rows", "cols", "values", "weights", "censored", "shape", "client", "store_path"}
    data |= {"time", "half_life"}
    fields = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert (fields.pop("omegas"), fields.pop("fits_rank")) == ((), False)
    assert list(fields) == [name for name in COMPLETE if name not in data]
    for name, default in fields.items():
        if name not in ("omega", "k", "solver"):
            assert default == COMPLETE[name].default


ESTIMATORS = {
    "ExpectileFactorization": (fastemf.complete, {"omega", "k"}),
    "ExpectilePairRegressor": (fastemf.complete, {"omega", "k", "intercepts"}),
    "QuantilePairRegressor": (fastemf.complete_quantiles, {"quantile", "k"}),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_share_names_order_and_defaults(name):
    pytest.importorskip("sklearn")
    task, own = ESTIMATORS[name]
    theirs = inspect.signature(getattr(fastemf, name)).parameters
    ours = inspect.signature(task).parameters
    assert [one for one in theirs if one != "quantile"] == [one for one in ours if one in theirs]
    assert all(theirs[one].default == ours[one].default for one in set(theirs) - own)
    assert theirs["k"].default == 2
    assert theirs["intercepts"].default == name.endswith("Regressor")


# --- dependencies ------------------------------------------------------------------


def test_defaults_of_rank_and_intercepts():
    assert COMPLETE["k"].default is inspect.Parameter.empty
    assert COMPLETE["intercepts"].default is False
    for name in ("fit", "levels", "quantiles"):
        args = cli._parse_arguments([name, "log.csv", "-o", "m.npz"])
        assert (args.rank, args.intercepts) == (None, True)  # min(5, rows, columns)
    assert cli._parse_arguments(["select", "log.csv"]).intercepts


def test_replaced_settings_are_checked_as_new_ones():
    validation = Validation(0.1, patience=3)
    settings = Settings(omega=0.1, k=2, reg=1, solver=Solver(method="cg"), validation=validation)
    assert dataclasses.replace(settings, omega=0.2).patience == 3
    with pytest.raises(ValueError, match='solver="cg" needs a ridge'):
        dataclasses.replace(settings, reg=0)
    with pytest.raises(ValueError, match="omega must lie strictly between 0 and 1"):
        dataclasses.replace(settings, omega=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.omega = 0.5


@pytest.mark.parametrize(
    ("create", "error", "message"),
    [
        (lambda: Solver(method="lu"), ValueError, "method must be one of 'auto', 'exact', 'cg', g"),
        (lambda: Solver(reg_scaling=None), ValueError, "reg_scaling must be one of 'count', 'pl"),
        (lambda: Solver(momentum=1), TypeError, "momentum must be True or False, got 1"),
        (lambda: Solver(anneal="yes"), TypeError, "anneal must be True or False, got 'yes'"),
        (lambda: Solver(orthogonalize=0), TypeError, "orthogonalize must be True or False, got 0"),
        (lambda: Checkpoint(3), TypeError, "path must be a path, got 3"),
        (lambda: Checkpoint("."), ValueError, "path must name a file, got '.'"),
        (lambda: Checkpoint("x", every=0), ValueError, "every must be at least 1, got 0"),
        (lambda: Checkpoint("x", every=2.5), TypeError, "every must be an integer, got 2.5"),
        (lambda: Checkpoint("x", resume=1), TypeError, "resume must be True or False, got 1"),
        (lambda: Validation(None), ValueError, "data must be a proportion in .* got None"),
        (lambda: Validation(0.2, patience=0), ValueError, "patience must be at least 1, got 0"),
        (lambda: Validation(0.2, patience=2.5), TypeError, "patience must be an integer, got 2.5"),
    ],
)
def test_expert_settings_are_checked_on_creation(create, error, message):
    with pytest.raises(error, match=message):
        create()


def test_the_fingerprint_has_the_settings_that_determine_the_result():
    settings = Settings(omega=0.1, k=2)
    free = {
        "max_iter": 7, "n_jobs": 1, "callback": print, "progress": True,
        "checkpoint": Checkpoint("x", every=3),
    }  # fmt: skip
    assert dataclasses.replace(settings, **free).fingerprint() == settings.fingerprint()
    changed = {
        "omega": 0.2, "k": 3, "reg": 1, "intercepts": True, "init": "random", "tol": 0.1,
        "random_state": 1, "omegas": (0.1, 0.2),
    }  # fmt: skip
    expert = {"momentum": False, "anneal": False, "method": "exact"}
    cases = [({name: value}, name) for name, value in changed.items()]
    cases += [({"solver": Solver(**{name: value})}, name) for name, value in expert.items()]
    cases.append(({"validation": Validation(0.1, patience=3)}, "patience"))
    for change, name in cases:
        other = dataclasses.replace(settings, **change).fingerprint()
        assert {key for key in other if other[key] != settings.fingerprint().get(key)} == {name}
