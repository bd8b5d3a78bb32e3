"""Packed trees, damaged or crafted: refused, or finite predictions of any features.

A long run: ``FASTEMF_FUZZ=50000 pytest -s -m slow tests/fuzz/test_fuzz_trees.py``. A failure
prints its seed and number, from which `fuzz.mutations.mutants` reproduces the file.
"""

import io

import numpy as np
import pytest
from boosting.test_forest import random_features, random_forest
from fuzz.mutations import count_of, mutants

from fastemf.boosting.forest import Forest, ForestPredictor
from fastemf.support.array_file import DamagedFileError, read_arrays

SHORT, LONG = 300, 5000
N_FEATURES = 5


def content_of(forest):
    file = io.BytesIO()
    np.savez(file, **forest.pack())
    return file.getvalue()


def outcome(path, content, X):
    """Return 'refused' or 'read', or a description of any other result."""
    path.write_bytes(content)
    try:
        forest = Forest.unpack(read_arrays(path), N_FEATURES)
    except DamagedFileError:
        return "refused"
    predicted, contributions = ForestPredictor([forest]).predict(X)[:, 0], forest.contributions(X)
    if not (np.isfinite(predicted).all() and np.isfinite(contributions).all()):
        return f"predicted {predicted}, contributions {contributions}"
    scale = np.abs(contributions).max(initial=1.0)
    if np.abs(contributions.sum(axis=1) - predicted).max() > 1e-9 * scale:
        return f"predicted {predicted}, contributions {contributions}"
    return "read"


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damaged_trees_are_refused_or_valid(many, tmp_path):
    seed = int(np.random.default_rng().integers(2**31)) if many else 0
    rng = np.random.default_rng(seed)
    X = random_features(rng, 20, N_FEATURES)
    contents = [content_of(random_forest(rng, N_FEATURES, n, 12)) for n in (0, 1, 8)]
    ends, wrong = {"refused": 0, "read": 0}, {}
    for label, damaged in mutants(contents[-1], count_of(LONG) if many else SHORT, seed, contents):
        try:
            end = outcome(tmp_path / "trees.npz", damaged, X)
        except Exception as error:
            end = repr(error)
        if end in ends:
            ends[end] += 1
        else:
            wrong[label] = end
    print(f"seed {seed}: {ends}")
    assert wrong == {}
    assert min(ends.values()) > 0
