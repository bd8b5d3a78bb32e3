"""Model files and checkpoints, damaged or crafted: one kind of error, or a valid result.

A long run: ``FASTEMF_FUZZ=50000 pytest -s -m slow tests/fuzz/test_fuzz_models.py``. A failure
prints its seed and number, from which `fuzz.mutations.mutants` reproduces the file.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzz.mutations import count_of, mutants
from scenes import observed

import fastemf

GOLDEN = Path(__file__).parents[1] / "golden"
SHORT, LONG = 80, 5000  # mutants of each file in the quick suite, and of all files in a long run
RNG = np.random.default_rng(5)
R = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
DATES = pd.date_range("2026-01-01", periods=5)
TABLE = pd.DataFrame(R, index=[f"r{i}" for i in range(6)], columns=DATES)
OPERATOR = RNG.standard_normal((40, 6, 5))
MEASURED = np.einsum("pij,ij->p", OPERATOR, R)
LEVELS = (0.3, 0.7)
ENOUGH = observed(24, 24, density=0.8)  # cells to tune a fit
EARLY = {"reg": 0, "validation": fastemf.Validation(R + 1, patience=50)}


# --- valid files, and their readers ----------------------------------------------------------

MODELS = {
    "model": lambda: fastemf.load(GOLDEN / "model-v1.npz"),
    "quantiles": lambda: fastemf.load(GOLDEN / "quantiles-v1.npz"),
    "levels": lambda: fastemf.complete_levels(TABLE, LEVELS, 1, intercepts=True, n_jobs=1),
    "float32": lambda: fastemf.complete(R.astype(np.float32), 0.3, 2, n_jobs=1),
}
STATES = {
    "state": lambda **more: fastemf.complete(R, 0.3, 2, tol=0, intercepts=True, **more),
    "state-annealed": lambda **more: fastemf.complete(R, 0.3, 2, tol=0, **EARLY, **more),
    "state-float32": lambda **more: fastemf.complete(R.astype(np.float32), 0.3, 2, tol=0, **more),
    "state-0.3": lambda **more: fastemf.complete_levels(R, LEVELS, 1, tol=0, **more),
    "state-measurements": lambda **more: fastemf.sense(OPERATOR, MEASURED, 0.3, 2, tol=0, **more),
    "state-tuned": lambda **more: fastemf.complete(ENOUGH, 0.7, 1, intercepts=True, **more),
}
# A tuned fit is many fits.
NAMES = [
    pytest.param(name, marks=[pytest.mark.compiled] if name == "state-tuned" else [])
    for name in (*MODELS, *STATES)
]


def read_model(path):
    model = fastemf.load(path)
    assert repr(model)
    expected = check_predictions(model)
    again = path.with_suffix(".again")
    model.save(again)
    np.testing.assert_array_equal(check_predictions(fastemf.load(again)), expected)


def check_predictions(model):
    predicted = model.predict_block(model.axes[0].ids())
    assert predicted.shape[:2] == model.shape
    assert np.isfinite(predicted).all()
    return predicted


def resume(path, max_iter):
    """Continue a fit from its checkpoint; that of levels is named after the first level."""
    name = path.with_name(path.name.replace("-0.3", ""))
    checkpoint = fastemf.Checkpoint(name, resume=True)
    return STATES[path.stem](checkpoint=checkpoint, n_jobs=1, max_iter=max_iter)


def read_state(path):
    check_predictions(resume(path, max_iter=8))


@pytest.fixture(scope="module")
def content_of(tmp_path_factory):
    """Return a function that returns the content of a valid file by name."""
    folder, contents = tmp_path_factory.mktemp("valid"), {}

    def read(name):
        path = folder / f"{name}.npz"
        if name not in contents:
            with warnings.catch_warnings(action="ignore"):
                MODELS[name]().save(path) if name in MODELS else resume(path, max_iter=6)
            contents[name] = path.read_bytes()
        return contents[name]

    return read


# --- mutants ---------------------------------------------------------------------------------


def outcome(path, content):
    """Return 'refused' or 'read', or a description of any other result."""
    is_model = path.stem in MODELS
    read = read_model if is_model else read_state
    error = fastemf.ModelFileError if is_model else fastemf.CheckpointError
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about fits that do not converge
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


def run(content_of, name, count, seed, tmp_path):
    path = tmp_path / f"{name}.npz"
    others = [content_of(other) for other in (*MODELS, *STATES) if other != "state-tuned"]
    ends, wrong = {"refused": 0, "read": 0}, {}
    assert outcome(path, content_of(name)) == "read"
    for label, damaged in mutants(content_of(name), count, seed, others):
        end = outcome(path, damaged)
        if end in ends:
            ends[end] += 1
        else:
            wrong[label] = end
    print(f"{name}: {count} mutants of seed {seed}, {ends}")
    assert wrong == {}
    return ends


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_valid(name, many, content_of, tmp_path):
    if many:
        seed = int(np.random.default_rng().integers(2**31))
        run(content_of, name, count_of(LONG) // len(NAMES), seed, tmp_path)
    else:
        ends = run(content_of, name, SHORT, 0, tmp_path)
        assert ends["refused"] > SHORT / 2
        assert ends["read"] > 0 or name == "state-tuned"  # some mutations are harmless
