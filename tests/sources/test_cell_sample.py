"""Cells set aside: by a hash that is fair, and the same for repeated and mirrored cells."""

import numpy as np
import pyarrow as pa
import pytest

from fastemf.kernels.problem import hash_of_cell, is_in_sample
from fastemf.solver.engine import CompletionEngine
from fastemf.sources.cell_sample import N_HASHES, CellSample, HashRange, draw_marks
from fastemf.sources.memory import observe
from fastemf.tuning.ridge_path import _make_trials


def marks(shape, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, N_HASHES, size, dtype=np.int64) for size in shape)


def hashes(rows, cols):
    return np.array([[hash_of_cell(int(i), int(j)) for j in cols] for i in rows])


def test_the_hash_does_not_depend_on_which_is_the_row():
    rows, cols = marks((20, 30))
    np.testing.assert_array_equal(hashes(rows, cols), hashes(cols, rows).T)


def test_hashes_are_spread_evenly():
    """Pearson's statistic of 64 cells of equal probability has mean 63 and deviation 11."""
    found = hashes(*marks((150, 140)))
    assert found.min() >= 0
    assert found.max() < N_HASHES
    for numbers in (found >> 26, found & 63):
        counts = np.bincount(numbers.ravel(), minlength=64)
        expected = found.size / 64
        assert np.sum((counts - expected) ** 2 / expected) < 63 + 5 * 11
    share = np.mean(found < N_HASHES // 10, axis=1)  # of each row
    assert abs(share.mean() - 0.1) < 0.01
    assert share.max() < 0.25


TENTH = N_HASHES // 10


@pytest.mark.parametrize(
    "limits", [(0, TENTH), (N_HASHES - TENTH // 2, TENTH), (5, 1), (7, N_HASHES - 1)]
)
def test_a_cell_is_in_a_part_or_in_the_rest(limits):
    part = HashRange(*limits)
    rows, cols = marks((12, 15), seed=1)
    for i in rows.tolist():
        for j in cols.tolist():
            assert is_in_sample(i, j, *part) != is_in_sample(i, j, *part.rest())
    assert part.rest().rest() == part


def observed(m, n, density, seed=0):
    rng = np.random.default_rng(seed)
    R = rng.standard_normal((m, n))
    R[rng.random((m, n)) > density] = np.nan
    return observe(R)


def engine_of(observations):
    return CompletionEngine(observations, 0.3, mu=None, n_threads=1)


@pytest.mark.compiled  # else there is one fold
def test_folds_are_apart_and_of_the_size_asked_for():
    engine = engine_of(observed(60, 50, 0.5))
    trials = _make_trials(engine, draw_marks(engine.observations, np.random.default_rng(3)))
    assert len(trials) == 10
    judged = np.array([trial.validation.masses[0] for trial in trials])
    for trial in trials:
        for axis in (0, 1):
            both = trial.training.masses[axis] + trial.validation.masses[axis]
            np.testing.assert_array_equal(both, engine.masses[axis])
    # ten tenths are all cells, but for what rounding 2³² / 10 leaves
    assert abs(judged.sum() - engine.mass) <= 1
    assert np.all(abs(judged.sum(axis=1) / engine.mass - 0.1) < 0.03)


def test_a_share_is_that_of_the_cells():
    engine = engine_of(observed(120, 100, 0.9))
    drawn = draw_marks(engine.observations, np.random.default_rng(0))
    for share in (0.05, 0.3, 0.9):
        found = engine.replace(sample=CellSample.of_proportion(drawn, share)).mass / engine.mass
        assert found == pytest.approx(share, abs=0.02)


def test_repeated_observations_stay_together():
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 20, 300), rng.integers(0, 15, 300)
    rows, cols = np.tile(rows, 3), np.tile(cols, 3)
    engine = engine_of(observe((rows, cols, rng.standard_normal(900)), shape=(20, 15)))
    for trial in _make_trials(engine, draw_marks(engine.observations, rng)):
        assert not np.any(trial.validation.masses[0] % 3)


def test_mirrored_cells_of_a_square_matrix_share_their_marks():
    rows, cols = draw_marks(observed(30, 30, 0.5), np.random.default_rng(0))
    np.testing.assert_array_equal(rows, cols)
    rows, cols = draw_marks(observed(30, 29, 0.5), np.random.default_rng(0))
    assert not np.intersect1d(rows, cols).size


def labelled(ours, theirs):
    columns = {"from": np.repeat(ours, len(theirs)), "to": np.tile(theirs, len(ours))}
    columns["ms"] = np.random.default_rng(0).standard_normal(len(columns["to"]))
    return observe(pa.table(columns), rows="from", cols="to", values="ms")


def test_marks_go_by_label():
    names = np.array([f"host {i}" for i in range(12)])
    mixed = np.random.default_rng(1).permutation(names)[:9]
    data = labelled(names, mixed)
    rows, cols = draw_marks(data, np.random.default_rng(0))
    by_name = dict(zip(data.row_labels.values, rows, strict=True))
    assert [by_name[name] for name in data.col_labels.values] == cols.tolist()


@pytest.mark.parametrize("theirs", [[f"service {i}" for i in range(12)], list(range(12))])
def test_other_things_have_other_marks(theirs):
    names = [f"host {i}" for i in range(12)]
    rows, cols = draw_marks(labelled(names, theirs), np.random.default_rng(0))
    assert not np.intersect1d(rows, cols).size


def test_earlier_marks_are_kept():
    data = observed(30, 30, 0.5)
    drawn = draw_marks(data, np.random.default_rng(0))
    earlier = tuple(np.where(np.arange(30) < 20, mark, -1) for mark in drawn)
    rows, cols = draw_marks(data, np.random.default_rng(1), earlier)
    np.testing.assert_array_equal(rows[:20], drawn[0][:20])
    np.testing.assert_array_equal(rows, cols)  # also of new entities
    assert not np.isin(rows[20:], drawn[0]).any()
    # A row that is new has the mark that its column has already.
    rows, cols = draw_marks(data, np.random.default_rng(1), (np.full(30, -1), drawn[1]))
    np.testing.assert_array_equal(rows, drawn[1])
    np.testing.assert_array_equal(cols, drawn[1])
