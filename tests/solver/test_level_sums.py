"""Sums by fold and bin against plain NumPy, whatever the blocks and threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fastemf import store
from fastemf.kernels.level_sums import CURVATURE, SLOPE, UNITS, WITH, WITHOUT
from fastemf.observations.memory import observe
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.level_sums import FOLDS, LeftOver, fold_part
from fastemf.solver.level_table import LevelTable
from fastemf.solver.records import Ridge
from fastemf.solver.sampling import CellSample, marks_of

RNG = np.random.default_rng(4)
SHAPE, SIZE, BINS = (40, 30), 600, (4, 3)
ENTRIES = RNG.integers(0, 40, SIZE), RNG.integers(0, 30, SIZE), RNG.gamma(1.0, size=SIZE)
WEIGHTS = RNG.uniform(0.2, 3, SIZE)
X, Y = 0.5 * RNG.random((40, 3)), 0.5 * RNG.random((30, 3))
ITEMS = tuple(
    RNG.integers(0, n, (m, FOLDS)).astype(np.uint8) for m, n in zip(SHAPE, BINS, strict=True)
)
PLACES = tuple(RNG.uniform(0, n - 1, (m, FOLDS)) for m, n in zip(SHAPE, BINS, strict=True))
STEPS = RNG.uniform(-0.05, 0.05, BINS)
VALUES = RNG.uniform(-0.5, 0.5, (FOLDS, *BINS))
OMEGA, MU, SHIFT = 0.2, 0.4, 0.1


def left_over(observations, n_threads=1):
    engine = CompletionEngine(observations, OMEGA, mu=MU, n_threads=n_threads)
    marks = marks_of(observations, np.random.default_rng(0))
    leverages = engine.leverages(X, Y, Ridge(0.1, 0.1))
    return engine, LeftOver(engine, (X, Y), leverages, SHIFT, marks), leverages, marks


@pytest.fixture(scope="module")
def observed():
    return observe(ENTRIES, weights=WEIGHTS, shape=SHAPE)


def by_hand(observed, leverages, engine, marks):
    """Row, column, weight, fold and what is left of each observation."""
    side = observed.by_row
    i, j, b, v = side.keys, side.indices, side.values, side.weights
    r = b - MU - X[i, 2] - Y[j, 2] - np.einsum("ij,ij->i", X[i, :2], Y[j, :2])
    w = np.where(r >= 0, OMEGA, 1 - OMEGA) * np.minimum(v, 1)
    for leverage, at in zip(leverages, (i, j), strict=True):
        r = r / (1 - np.minimum(0.95, w * leverage[at]))
    r = np.clip(r, b - b.max(), b - b.min()) - SHIFT
    fold = np.full(SIZE, -1)
    for number in range(FOLDS):
        masses = CompletionEngine(
            observed, OMEGA, mu=MU, n_threads=1, sample=CellSample(marks, fold_part(number))
        ).masses
        assert masses[0].sum() == pytest.approx(masses[1].sum())
        first, span = fold_part(number)
        hashes = np.array([hash_of(*pair) for pair in zip(marks[0][i], marks[1][j], strict=True)])
        fold[(hashes >= first) & (hashes < first + span)] = number
        np.testing.assert_allclose(np.bincount(i, v * (fold == number), 40), masses[0])
    assert (fold >= 0).all()
    return i, j, v, fold, r


def hash_of(own, mark):
    z = (int(own) + int(mark)) % 2**32
    for _ in range(2):
        z = ((z ^ (z >> 16)) * 0x45D9F3B) % 2**32
    return z ^ (z >> 16)


def test_sums_are_those_of_numpy(observed):
    engine, left, leverages, marks = left_over(observed)
    i, j, v, fold, t = by_hand(observed, leverages, engine, marks)
    steps = STEPS[ITEMS[0][i, fold], ITEMS[1][j, fold]] / left.scale
    w = v * np.where(t >= steps, OMEGA, 1 - OMEGA)
    cells = np.ravel_multi_index((fold, ITEMS[0][i, fold], ITEMS[1][j, fold]), (FOLDS, *BINS))
    found = left.by_bin(ITEMS, STEPS) / UNITS / 2.0 ** -np.frexp(engine.mass)[1]
    expected = np.bincount(cells, w * t, FOLDS * 12).reshape(FOLDS, *BINS)
    np.testing.assert_allclose(found[..., SLOPE] / left.scale, expected, atol=1e-10)
    expected = np.bincount(cells, w, FOLDS * 12).reshape(FOLDS, *BINS)
    np.testing.assert_allclose(found[..., CURVATURE], expected, atol=1e-10)


def test_losses_are_those_of_numpy(observed):
    engine, left, leverages, marks = left_over(observed)
    i, j, v, fold, t = by_hand(observed, leverages, engine, marks)
    centres = [np.arange(float(n)) for n in BINS]
    added = np.empty(SIZE)
    for number, values in enumerate(VALUES):
        one = fold == number
        table = LevelTable(*centres, values / left.scale, 1.0)
        added[one] = table.at(PLACES[0][i[one], number], PLACES[1][j[one], number])
    found = left.losses(PLACES, VALUES) / UNITS / 2.0 ** -np.frexp(engine.mass)[1]
    for column, r in ((WITH, t - added), (WITHOUT, t)):
        losses = v * np.where(r >= 0, OMEGA, 1 - OMEGA) * r**2
        expected = np.bincount(fold, losses, FOLDS)
        np.testing.assert_allclose(found[:, column] / left.scale**2, expected, rtol=1e-10)


def test_blocks_and_threads_do_not_matter(observed, tmp_path, monkeypatch):
    store.build(ENTRIES, tmp_path / "store", weights=WEIGHTS, shape=SHAPE)
    stored = store.open(tmp_path / "store", budget=2000)
    assert len(stored.by_row.cuts()) > 4
    monkeypatch.setattr("fastemf.solver.remainder.WORK_OF_LAUNCH", 0)
    _, expected, *_ = left_over(observed)
    for source, n_threads in ((observed, 2), (stored, 1), (stored, 2)):
        _, left, *_ = left_over(source, n_threads)
        assert (left.scale, left.reach) == (expected.scale, expected.reach)
        np.testing.assert_array_equal(left.by_bin(ITEMS, STEPS), expected.by_bin(ITEMS, STEPS))
        np.testing.assert_array_equal(left.losses(PLACES, VALUES), expected.losses(PLACES, VALUES))


def test_folds_take_every_hash_once():
    parts = [fold_part(fold) for fold in range(FOLDS)]
    assert parts[0].first == 0
    assert sum(part.span for part in parts) == 2**32
    for one, other in pairwise(parts):
        assert one.first + one.span == other.first
        # The kernel multiplies: the last hash of a part is still in it.
        assert (one.first + one.span - 1) * FOLDS >> 32 == parts.index(one)
        assert other.first * FOLDS >> 32 == parts.index(other)


def test_huge_and_tiny_weights_and_values_stay_in_range():
    for size, weight in ((1e-100, 1e-30), (1e100, 1e30), (1.0, 1e300)):
        try:
            observed = observe(
                (*ENTRIES[:2], size * ENTRIES[2]), weights=weight * WEIGHTS, shape=SHAPE
            )
            engine = CompletionEngine(observed, OMEGA, mu=size * MU, n_threads=1)
        except ValueError:  # which leaves the range of squares
            continue
        factors = np.zeros((40, 1)), np.zeros((30, 1))
        nothing = np.zeros(40), np.zeros(30)
        left = LeftOver(engine, factors, nothing, size * SHIFT, marks_of(observed, RNG))
        sums = left.by_bin(ITEMS, STEPS).sum(axis=(0, 1, 2))
        assert 0 < sums[CURVATURE] < 2**60
        assert abs(int(sums[SLOPE])) < 2**60
