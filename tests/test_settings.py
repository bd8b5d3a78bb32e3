"""One owner for a fit's settings: who takes which, and what depends on what."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

import fastemf
from fastemf import cli
from fastemf.solver.ridge import AnnealedRidge, FixedRidge
from fastemf.solver.settings import CG_RANK, CG_STEPS, Settings

COMPLETE = inspect.signature(fastemf.complete).parameters

IN_MEMORY = "cells are held out by a mask: the data must be in memory"
MANY_FITS = "would have to hold the search, of which a fit is a short part"
ENTRIES = "is about entries in rows and columns, which a general map does not have"
# For every parameter of `complete` that another task does not have with the same default: why.
EXCEPTIONS = {
    fastemf.complete_levels: {"omega": "several levels: omegas"},
    fastemf.complete_quantiles: {
        "omega": "several quantiles: taus",
        "intercepts": "true: without the levels of rows and columns fits are poor ingredients",
        "reg_scaling": "the ridge of tuned fits is scaled by counts",
        "init": "fits start from one another", "anneal": "is for rough starts",
        "orthogonalize": "needs reg=0, which leaves nothing to predict new cells by",
        "tol": "1e-4: means of five fits need no finer one",
        "validation": "each fold is judged by the fits without it",
        "patience": "goes with validation",
    },
    fastemf.level_for_coverage: {
        "omega": "the level is what is looked for",
        "client": IN_MEMORY,
        "checkpoint": MANY_FITS, "checkpoint_every": MANY_FITS, "resume": MANY_FITS,
    },
    fastemf.select: {
        "k": "several ranks: ks",
        "reg": "several ridges: regs",
        "init": "fits start from one another",
        "client": IN_MEMORY,
        "callback": "could not tell the many fits apart",
        "checkpoint": MANY_FITS, "checkpoint_every": MANY_FITS, "resume": MANY_FITS,
    },
    fastemf.sense: {
        "R": "measurements: A and b",
        "rows": ENTRIES, "cols": ENTRIES, "values": ENTRIES, "censored": ENTRIES,
        "reg": "0, the paper's problem: auto follows the counts of rows and columns",
        "reg_scaling": ENTRIES, "intercepts": ENTRIES, "solver": ENTRIES, "client": ENTRIES,
        "validation": "a map measures all at once", "patience": "goes with validation",
    },
}  # fmt: skip


@pytest.mark.parametrize("task", EXCEPTIONS, ids=lambda task: task.__name__)
def test_all_tasks_take_what_complete_takes(task):
    theirs = inspect.signature(task).parameters
    excepted = EXCEPTIONS[task]
    missing = {
        name
        for name, ours in COMPLETE.items()
        if name not in theirs or theirs[name].default != ours.default
    }
    assert missing == set(excepted)
    shared = [name for name in COMPLETE if name in theirs]
    assert [name for name in theirs if name in COMPLETE] == shared  # in the same order
    for name in shared:
        if name not in ("R", "omega", "k", "reg"):
            assert theirs[name].kind == COMPLETE[name].kind
            assert theirs[name].annotation == COMPLETE[name].annotation or name == "weights"


@pytest.mark.parametrize("task", [fastemf.complete, *EXCEPTIONS], ids=lambda task: task.__name__)
def test_every_parameter_is_described(task):
    lines = inspect.getdoc(task).splitlines()
    first, last = lines.index("Parameters"), lines.index("Returns")
    described = {
        name.strip()
        for line in lines[first + 2 : last]
        if line and not line.startswith(" ")
        for name in line.split(",")
    }
    assert described == set(inspect.signature(task).parameters)


def test_settings_are_the_parameters_that_are_no_data():
    data = {"R", "rows", "cols", "values", "weights", "censored", "shape", "client"}
    fields = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert fields.pop("omegas") == ()
    assert list(fields) == [name for name in COMPLETE if name not in data]
    for name, default in fields.items():
        if name not in ("omega", "k"):
            assert default == COMPLETE[name].default


@pytest.mark.parametrize("name", ["ExpectileFactorization", "ExpectilePairRegressor"])
def test_estimators_have_the_same_names_order_and_defaults(name):
    pytest.importorskip("sklearn")
    theirs = inspect.signature(getattr(fastemf, name)).parameters
    assert list(theirs) == [parameter for parameter in COMPLETE if parameter in theirs]
    own = {"omega", "k"} | ({"intercepts"} if name == "ExpectilePairRegressor" else set())
    for parameter in set(theirs) - own:
        assert theirs[parameter].default == COMPLETE[parameter].default


# --- what depends on what ------------------------------------------------------------------


def test_rank_and_intercepts_have_one_default_for_each_purpose():
    pytest.importorskip("sklearn")

    def defaults(name, of):
        return {inspect.signature(getattr(fastemf, task)).parameters[of].default for task in name}

    papers = ["complete", "complete_levels", "level_for_coverage", "select"]
    assert defaults([*papers, "ExpectileFactorization"], "intercepts") == {False}
    predicting = ["ExpectilePairRegressor", "QuantilePairRegressor"]
    assert defaults(["complete_quantiles", *predicting], "intercepts") == {True}
    assert defaults([*papers[:3], "complete_quantiles"], "k") == {inspect.Parameter.empty}
    assert defaults(["ExpectileFactorization", *predicting], "k") == {2}
    shell = [
        cli._arguments([name, "log.csv", "-o", "m.npz"]) for name in ("fit", "levels", "quantiles")
    ]
    assert {(args.rank, args.intercepts) for args in shell} == {(5, True)}
    assert cli._arguments(["select", "log.csv"]).intercepts


def test_orthogonal_factors_have_no_momentum_and_no_annealing():
    settings = Settings(omega=0.1, k=2, reg=0, orthogonalize=True)
    assert not settings.momentum
    assert not settings.anneals
    assert isinstance(settings.numbered_ridge(1.0), FixedRidge)


def test_replaced_settings_are_checked_as_new_ones():
    settings = Settings(omega=0.1, k=2, reg=1, solver="cg", validation=0.1, patience=3)
    assert dataclasses.replace(settings, omega=0.2).patience == 3
    with pytest.raises(ValueError, match='solver="cg" needs a ridge'):
        dataclasses.replace(settings, reg=0)
    with pytest.raises(ValueError, match="patience needs validation, got patience=3"):
        dataclasses.replace(settings, validation=None)
    with pytest.raises(ValueError, match="omega must lie strictly between 0 and 1"):
        dataclasses.replace(settings, omega=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.omega = 0.5


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"k": CG_RANK}, CG_STEPS),
        ({"k": CG_RANK - 1}, 0),
        ({"k": CG_RANK, "reg": 0}, 0),
        ({"k": CG_RANK, "solver": "exact"}, 0),
        ({"k": 1, "solver": "cg"}, CG_STEPS),
    ],
)
def test_which_solver_serves(given, steps):
    assert Settings(omega=0.5, **given).steps == steps


def test_which_ridge_is_followed():
    assert isinstance(Settings(omega=0.5, k=1, reg=0).numbered_ridge(1.0), AnnealedRidge)
    assert isinstance(Settings(omega=0.5, k=1, reg=0.1).numbered_ridge(1.0), FixedRidge)
    fixed = Settings(omega=0.5, k=1, reg=0, anneal=False).numbered_ridge(1.0)
    assert isinstance(fixed, FixedRidge)
    assert fixed.ridge == (0.0, 0.0)


def test_a_ridge_may_be_named():
    for name in ("auto", "noise"):
        assert Settings(omega=0.5, k=1, reg=name).reg == name
        with pytest.raises(ValueError, match=f'reg="{name}" is count-scaled; give reg a number'):
            Settings(omega=0.5, k=1, reg=name, reg_scaling="plain")


def test_a_seed_begins_anew_and_a_generator_goes_on():
    one = Settings(omega=0.5, k=1, random_state=3)
    assert one.generator().random() == one.generator().random()
    rng = np.random.default_rng(3)
    assert Settings(omega=0.5, k=1, random_state=rng).generator() is rng


def test_a_fingerprint_is_what_decides_the_bits():
    settings = Settings(omega=0.1, k=2)
    free = {
        "max_iter": 7, "n_jobs": 1, "callback": print, "progress": True, "checkpoint": "x",
        "checkpoint_every": 3,
    }  # fmt: skip
    assert dataclasses.replace(settings, **free).fingerprint() == settings.fingerprint()
    changed = {
        "omega": 0.2, "k": 3, "reg": 1, "intercepts": True, "init": "random", "tol": 0.1,
        "momentum": False, "anneal": False, "solver": "exact", "random_state": 1,
        "omegas": (0.1, 0.2),
    }  # fmt: skip
    for name, value in changed.items():
        other = dataclasses.replace(settings, **{name: value}).fingerprint()
        assert {key for key in other if other[key] != settings.fingerprint().get(key)} == {name}
