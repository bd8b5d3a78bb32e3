"""Splits hold out whole cells at random."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from fastemf.sources.hold_out import cells, folds, hold_out
from fastemf.sources.memory import observe

RNG = np.random.default_rng(3)
ROWS, COLS = RNG.integers(7, size=60), RNG.integers(5, size=60)
CELLS = len(set(zip(ROWS.tolist(), COLS.tolist(), strict=True)))
assert CELLS < 60  # or there are no repeats


@cache
def observed():
    return observe((ROWS, COLS, np.arange(60.0)))


def pairs(source):
    side = source.by_row
    return list(zip(side.keys.tolist(), side.indices.tolist(), strict=True))


def of_entry():
    return pairs(observed())


def test_cells_are_the_distinct_pairs():
    found, of_cell = cells(observed())
    assert [divmod(cell, 5) for cell in found.tolist()] == sorted(set(of_entry()))
    assert [divmod(cell, 5) for cell in found[of_cell].tolist()] == of_entry()


@pytest.mark.parametrize("count", [2, 5, CELLS])
@pytest.mark.parametrize("seed", range(3))
def test_folds_partition_the_cells_evenly(count, seed):
    fold, _ = folds(observed(), count, np.random.default_rng(seed))
    of_cell = dict(zip(of_entry(), fold.tolist(), strict=True))
    assert [of_cell[cell] for cell in of_entry()] == fold.tolist()  # repeats are together
    sizes = Counter(of_cell.values())
    assert set(sizes) == set(range(count))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.mark.parametrize(("count", "parts", "made"), [(2, 3, 3), (5, 10, CELLS // 5)])
def test_parts_divide_the_cells_of_the_same_folds_evenly(count, parts, made):
    whole, none = folds(observed(), count, np.random.default_rng(1))
    fold, part = folds(observed(), count, np.random.default_rng(1), parts=parts)
    assert not none.any()
    assert fold.tolist() == whole.tolist()
    of_cell = dict(zip(of_entry(), zip(fold, part, strict=True), strict=True))
    sizes = Counter(of_cell.values())
    assert len(sizes) == count * made
    assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.mark.parametrize(
    ("share", "size"), [(0.25, round(0.25 * CELLS)), (1e-9, 1), (0.999, CELLS - 1)]
)
def test_a_proportion_is_of_the_cells_and_no_part_is_empty(share, size):
    parts = [pairs(part) for part in hold_out(observed(), share, np.random.default_rng(0))]
    assert len(set(parts[1])) == size
    assert not set(parts[0]) & set(parts[1])
    assert sorted(parts[0] + parts[1]) == sorted(of_entry())


def test_given_entries_hold_out_nothing():
    given = np.full((7, 5), np.nan, np.float32)
    given[3, 2] = 4.0
    fitted, judged = hold_out(observed(), given, np.random.default_rng(0))
    assert fitted is observed()
    assert pairs(judged) == [(3, 2)]
    assert judged.dtype == observed().dtype


def test_too_few_cells():
    rng = np.random.default_rng(0)
    message = f"folds must be at most the {CELLS} cells.*got {CELLS + 1}"
    with pytest.raises(ValueError, match=message):
        folds(observed(), CELLS + 1, rng)
    alone = observe(([0, 0], [0, 0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="validation needs at least two cells observed, got 1"):
        hold_out(alone, 0.5, rng)
