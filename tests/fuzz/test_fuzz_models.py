"""Model files and checkpoints, damaged or crafted: one kind of error, or a sound result.

A long run: ``FASTEMF_FUZZ=50000 pytest -s -m slow tests/fuzz/test_fuzz_models.py``. A failure
names its seed and number, from which `fuzz.mutations.mutants` makes the same file again.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzz.mutations import count_of, mutants
from scenes import few_quantiles, observed

import fastemf
from fastemf.solver import checkpoint as checkpoints

GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_MODELS = ["model-v1", "model-v2", "model-v3", "model-v4", "quantiles-v4"]
MODELS = [*GOLDEN_MODELS, "levels", "float32", "quantiles"]
SHORT, LONG = 80, 5000  # mutants of each file in the quick suite, and of all files in a long run
RNG = np.random.default_rng(5)
R = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
OPERATOR = fastemf.operators.Dense(RNG.standard_normal((40, 6, 5)))
LEVELS = (0.3, 0.7)
ENOUGH = observed(24, 24, density=0.8)  # to be tuned


# --- good files, and what their readers must do ----------------------------------------------


def read_model(path):
    fit = fastemf.load(path)
    check_model(fit)
    assert repr(fit)
    again = path.with_suffix(".again")
    fit.save(again)
    assert np.array_equal(predictions(fastemf.load(again)), predictions(fit))


def predictions(fit):
    if isinstance(fit, fastemf.Factorization):
        return fit.to_dense()
    return fit.predict_block(fit.axes[0].ids())


def check_model(fit):
    found = predictions(fit)
    assert found.shape[:2] == fit.shape
    assert np.isfinite(found).all()


def completes(**settings):
    def run(path):
        return fastemf.complete(
            R, 0.3, 2, checkpoint=path, resume=True, n_jobs=1, **{"tol": 0, **settings}
        )

    return run


def fit_levels(path, **settings):
    """Levels, of which `path` is the checkpoint of the first to be fitted."""
    name = path.with_name(path.name.replace("-0.3", ""))
    return fastemf.complete_levels(
        R, LEVELS, 1, tol=0, checkpoint=name, resume=True, n_jobs=1, **settings
    )


def fit_measurements(path, **settings):
    b = OPERATOR.forward(R, np.eye(5))
    return fastemf.sense(
        OPERATOR, b, 0.3, 2, tol=0, checkpoint=path, resume=True, n_jobs=1, **settings
    )


def fit_tuned(path, **settings):
    return fastemf.complete(
        ENOUGH, 0.7, 1, intercepts=True, checkpoint=path, resume=True, n_jobs=1, **settings
    )


class Stopped(BaseException):
    pass


def search_under_way(path, monkeypatch):
    """Keep a tuning that has tried all but chosen nothing."""

    def stop(self, tuned):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "SECONDS", 0.0)
        patch.setattr(checkpoints, "REST", 0)
        patch.setattr(checkpoints.Checkpoint, "keep_tuned", stop)
        with pytest.raises(Stopped):
            fit_tuned(path)


STATES = {
    "state": lambda path, **more: completes(intercepts=True, **more)(path),
    "state-annealed": lambda path, **more: completes(reg=0, validation=R + 1, patience=50, **more)(
        path
    ),
    "state-float32": lambda path, **more: fastemf.complete(
        R.astype(np.float32), 0.3, 2, tol=0, checkpoint=path, resume=True, n_jobs=1, **more
    ),
    "state-0.3": fit_levels,
    "state-measurements": fit_measurements,
}


def read_state(name):
    def read(path):
        check_model(STATES.get(name, fit_tuned)(path, max_iter=8))

    return read


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Good files by name: their content, what reads it, and the error it may raise."""
    folder = tmp_path_factory.mktemp("good")
    table = pd.DataFrame(
        R, index=[f"r{i}" for i in range(6)], columns=pd.date_range("2026-01-01", periods=5)
    )
    for name in GOLDEN_MODELS:
        shutil.copy(GOLDEN / f"{name}.npz", folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fastemf.complete_levels(table, LEVELS, 1, intercepts=True, n_jobs=1).save(
            folder / "levels.npz"
        )
        fastemf.complete(R.astype(np.float32), 0.3, 2, n_jobs=1).save(folder / "float32.npz")
        few_quantiles(table).save(folder / "quantiles.npz")
        for name, fit in STATES.items():
            fit(folder / f"{name}.npz", max_iter=6)
    found = {}
    for name in MODELS:
        found[name] = (folder / f"{name}.npz").read_bytes(), read_model, fastemf.ModelFileError
    for name in STATES:
        content = (folder / f"{name}.npz").read_bytes()
        found[name] = content, read_state(name), fastemf.CheckpointError
    return found


@pytest.fixture(scope="module")
def tuned(good, tmp_path_factory):
    """The same, of tuned fits: in their search, and in the sweeps after it."""
    folder = tmp_path_factory.mktemp("tuned")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_tuned(folder / "state-tuned.npz", max_iter=6)
    search_under_way(folder / "state-search.npz", pytest.MonkeyPatch())
    return good | {
        name: ((folder / f"{name}.npz").read_bytes(), read_state(name), fastemf.CheckpointError)
        for name in TUNED
    }


def outcome(path, content, read, error):
    """'refused' or 'read', or what went wrong."""
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of fits that are cut short
            read(path)
    except error as refusal:
        message = str(refusal)
        return "refused" if str(path) in message and len(message) < 2000 else repr(message)
    except Exception as other:
        return repr(other)
    finally:
        for left in path.parent.iterdir():
            left.unlink()
    return "read"


def run(good, name, count, seed, tmp_path):
    content, read, error = good[name]
    path = tmp_path / f"{name}.npz"
    others = [other for other, *_ in good.values()]
    ends, wrong = {"refused": 0, "read": 0}, {}
    assert outcome(path, content, read, error) == "read"
    for label, damaged in mutants(content, count, seed, others):
        end = outcome(path, damaged, read, error)
        if end in ends:
            ends[end] += 1
        else:
            wrong[label] = end
    print(f"{name}: {count} mutants of seed {seed}, {ends}")
    assert wrong == {}
    return ends


TUNED = ["state-tuned", "state-search"]
NAMES = [*MODELS, *STATES]


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_refused_or_sound(name, good, tmp_path):
    ends = run(good, name, SHORT, 0, tmp_path)
    assert ends["refused"] > SHORT / 2
    assert ends["read"] > 0  # or the mutations would all be crude


@pytest.mark.compiled  # a tuned fit is many fits
@pytest.mark.parametrize("name", TUNED)
def test_damaged_tunings_are_refused_or_sound(name, tuned, tmp_path):
    ends = run(tuned, name, SHORT, 0, tmp_path)
    assert ends["refused"] > SHORT / 2


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", TUNED)
def test_many_damaged_tunings_are_refused_or_sound(name, tuned, tmp_path):
    seed = int(np.random.default_rng().integers(2**31))
    run(tuned, name, count_of(LONG) // len(NAMES), seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_files_are_refused_or_sound(name, good, tmp_path):
    seed = int(np.random.default_rng().integers(2**31))
    run(good, name, count_of(LONG) // len(NAMES), seed, tmp_path)
