"""Validation cells: equal to those of plain NumPy, for any blocks and threads."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf import store
from fastemf.kernels.problem import hash_of_cell
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.sources.cell_sample import N_HASHES, CellSample, draw_marks
from fastemf.sources.memory import observe
from fastemf.tuning import validation_cells
from fastemf.tuning.corrections import STATISTICS
from fastemf.tuning.trial import Trial, TrialFit
from fastemf.tuning.validation_cells import collect_validation_cells

RNG = np.random.default_rng(4)
SHAPE, SIZE, MU = (40, 30), 600, 0.4
ENTRIES = RNG.integers(0, 40, SIZE), RNG.integers(0, 30, SIZE), RNG.gamma(1.0, size=SIZE)
WEIGHTS = RNG.uniform(0.2, 3, SIZE)
FACTORS = [tuple(0.5 * RNG.random((size, 3)) for size in SHAPE) for _ in range(2)]
EFFECTS = [tuple(RNG.random((size, 1)) for size in SHAPE) for _ in range(2)]
SCALES = [tuple(RNG.uniform(0.5, 2, size) for size in SHAPE) for _ in range(2)]
SHIFTS = (0.25, -0.5)


def gathered(observations, n_threads=1):
    """Two trials of a fifth of the cells each."""
    engine = CompletionEngine(observations, 0.2, mu=MU, n_threads=n_threads)
    marks = draw_marks(observations, np.random.default_rng(0))
    first = CellSample.of_proportion(marks, 0.2)
    span = first.part.span
    samples = [first, CellSample(marks, first.part._replace(first=span))]
    trials = [
        Trial(engine.replace(sample=one.rest()), engine.replace(sample=one)) for one in samples
    ]
    fits, simple = (
        [
            TrialFit(trial.training, factors, Ridge(0.0, 0.0), scale, scale, shift)
            for trial, factors, scale, shift in zip(trials, several, SCALES, SHIFTS, strict=True)
        ]
        for several in (FACTORS, EFFECTS)
    )
    return collect_validation_cells(trials, fits, simple, SCALES, marks), marks, span


def by_hand(observed, marks, span):
    """Pick by the hash of every observation, computed one by one."""
    side = observed.by_row
    rows, cols = marks[0][side.keys].tolist(), marks[1][side.indices].tolist()
    hashes = np.array([hash_of_cell(i, j) for i, j in zip(rows, cols, strict=True)])
    found = []
    for n in range(2):
        chosen = (hashes >= n * span) & (hashes < (n + 1) * span)
        i, j = side.keys[chosen], side.indices[chosen]
        (X, Y), (a, c), (s, u) = FACTORS[n], EFFECTS[n], SCALES[n]
        product = (X[i, :2] * Y[j, :2]).sum(1) + X[i, 2] + Y[j, 2]
        statistics = {
            "row effect": a[i, 0], "column effect": c[j, 0], "row noise": np.log(s[i]),
            "column noise": np.log(u[j]), "product": product,
        }  # fmt: skip
        found.append((
            hashes[chosen], side.values[chosen], side.weights[chosen], MU + product + SHIFTS[n],
            np.column_stack([statistics[name] for name in STATISTICS]),
        ))  # fmt: skip
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@pytest.fixture(scope="module")
def observed():
    return observe(ENTRIES, weights=WEIGHTS, shape=SHAPE)


def test_validation_cells_are_chosen_by_their_hash(observed):
    found, marks, span = gathered(observed)
    expected = by_hand(observed, marks, span)
    assert 0.3 * SIZE < found.values.size < 0.5 * SIZE
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.residuals, found.values - found.predicted)


def test_threads_and_blocks_do_not_matter(observed, tmp_path):
    found, _, _ = gathered(observed)
    store.build(ENTRIES, tmp_path / "store", weights=WEIGHTS, shape=SHAPE)
    stored = store.open(tmp_path / "store", budget=4000)
    assert len(stored.by_row.cuts()) > 3
    for other in (gathered(observed, 2)[0], gathered(stored)[0]):
        for a, b in zip(found, other, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_many_validation_cells_are_sampled_by_their_hash(observed, monkeypatch):
    everything, _, span = gathered(observed)
    monkeypatch.setattr(validation_cells, "MOST", 100)
    some, _, _ = gathered(observed)
    kept = round(span * 50 / round(span / N_HASHES * SIZE))  # of each trial's hashes, the first
    chosen = everything.hashes % span < kept
    assert 50 < some.values.size < 150
    for one, other in zip(some, everything, strict=True):
        np.testing.assert_array_equal(one, other[chosen])
