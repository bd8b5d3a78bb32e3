"""Entries that are gathered for a tuning are the same wherever they come from."""

import numpy as np
import pytest
from scenes import observed, same_bits
from sources.comparisons import assert_same_entries

import fastemf
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.residual_sums import residual_sums
from fastemf.sources.cell_sample import N_HASHES, CellSample, HashRange, draw_marks
from fastemf.sources.gathering import gather_sample, gather_small
from fastemf.sources.memory import observe
from fastemf.tuning import ridge_path as path

RNG = np.random.default_rng(3)
SIZE = 2500
ROWS, COLS = RNG.integers(0, 50, SIZE), RNG.integers(0, 40, SIZE)
ENTRIES = (ROWS, COLS, RNG.standard_normal(SIZE))
WEIGHTS = RNG.uniform(0.5, 3, SIZE)


def hashes(marks):
    """The hash of each entry's cell, in plain Python."""
    found = []
    for i, j in zip(ROWS, COLS, strict=True):
        z = (int(marks[0][i]) + int(marks[1][j])) % 2**32
        for _ in range(2):
            z = (z ^ (z >> 16)) * 0x45D9F3B % 2**32
        found.append(z ^ (z >> 16))
    return np.array(found)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("limits", [(0, N_HASHES // 3), (N_HASHES - 10**9, 2 * 10**9)])
def test_a_sample_is_that_of_the_cells_hashes(weights, limits, tmp_path):
    part = HashRange(*limits)
    whole = observe(ENTRIES, weights=weights, shape=(50, 40))
    marks = draw_marks(whole, np.random.default_rng(0))
    members = (hashes(marks) - part.first) % N_HASHES < part.span
    assert 0 < members.sum() < SIZE
    kept = tuple(column[members] for column in ENTRIES)
    v = None if weights is None else weights[members]
    alone = observe(kept, weights=v, shape=(50, 40))
    sample = CellSample(marks, part)
    assert_same_entries(gather_sample(whole, sample, 1), alone)
    assert_same_entries(gather_sample(whole, sample, 2), alone)
    fastemf.store.build(ENTRIES, tmp_path / "store", weights=weights, shape=(50, 40))
    blocks = fastemf.store.open(tmp_path / "store", budget=20_000)
    assert len(list(blocks.by_row.blocks())) > 1
    assert_same_entries(gather_sample(blocks, sample, 1), alone)


def test_data_in_memory_are_not_gathered(tmp_path):
    whole = observe(ENTRIES)
    assert gather_small(whole) is whole
    fastemf.store.build(ENTRIES, tmp_path / "store")
    data = fastemf.store.open(tmp_path / "store")
    assert gather_small(data) is data


def test_the_engine_of_a_sample_agrees_with_a_view_of_it():
    whole = observe(ENTRIES, weights=WEIGHTS, shape=(50, 40))
    engine = CompletionEngine(whole, 0.3, mu=0.1, n_threads=1)
    sample = CellSample(draw_marks(whole, np.random.default_rng(0)), HashRange(5, N_HASHES // 2))
    gathered = gather_sample(whole, sample, 1)
    alone = engine.replace(observations=gathered, cells=sample.part, recount=True)
    view = engine.replace(sample=sample)
    assert alone.observations.size < SIZE
    assert alone.unit == view.unit
    for one, other in zip(alone.masses, view.masses, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    factors = RNG.standard_normal((50, 3)), RNG.standard_normal((40, 3))
    np.testing.assert_allclose(
        residual_sums(alone, 0, *factors), residual_sums(view, 0, *factors), rtol=1e-12, atol=1e-12
    )


# --- tuned on a sample -----------------------------------------------------------------------


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(path, "SAMPLED", 1500)
    monkeypatch.setattr(path, "FEW", 700)


def large():
    return observed(70, 60, noise=0.2, seed=4)


@pytest.mark.compiled
@pytest.mark.thorough
@pytest.mark.parametrize("omega", [0.2, 0.8])
def test_more_cells_than_a_sample_have_the_same_bits_from_a_store(omega, small_limits, tmp_path):
    R = large()
    fit = fastemf.complete(R, omega, 2, intercepts=True, n_jobs=1)
    assert 100 < fit.tuning.cells / fit.tuning.folds < 200  # a tenth of the sample
    rows, cols = np.nonzero(~np.isnan(R))
    fastemf.store.build((rows, cols, R[rows, cols]), tmp_path / "store", shape=R.shape)
    blocks = fastemf.store.open(tmp_path / "store", budget=20_000)
    same_bits(fastemf.complete(blocks, omega, 2, intercepts=True), fit)


@pytest.mark.compiled
@pytest.mark.thorough
def test_tuning_on_a_sample_agrees_with_tuning_on_all_cells(monkeypatch, small_limits):
    R, new = large(), observed(70, 60, noise=0.2, density=1.0, seed=4)
    held_out = np.isnan(R)
    losses = []
    for limit in (1500, 10**9):
        monkeypatch.setattr(path, "SAMPLED", limit)
        fit = fastemf.complete(R, 0.5, 2, intercepts=True)
        assert fit.tuning.best.rank == 2
        losses.append(np.mean(np.square(new - fit.to_dense())[held_out]))
    levels = fastemf.complete(R, 0.5, 0, intercepts=True).to_dense()
    assert losses[0] < 1.2 * losses[1]
    assert losses[0] < 0.2 * np.mean(np.square(new - levels)[held_out])
