"""The fingerprint of the data: one for the same entries, wherever they are, and of all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fastemf import store
from fastemf.cluster.source import ClusterSide, ClusterSource
from fastemf.observations.memory import observe
from fastemf.observations.source import Side

M, N = 20, 15


def entries(dtype=np.float64):
    rng = np.random.default_rng(3)
    rows, cols = np.divmod(rng.permutation(M * N)[:200], N)
    return rows, cols, rng.exponential(size=200).astype(dtype)


class Inline:
    """A cluster that is this process."""

    def run(self, task, blocks, shared, own, *args):
        return [
            task(block, shared, mine, *args, 1) for block, mine in zip(blocks, own, strict=True)
        ]


def on_cluster(side, cuts):
    """The side in blocks, as workers would hold it."""

    def block(first, last):
        kept = slice(side.indptr[first], side.indptr[last])
        arrays = (array[kept] for array in (side.indices, side.values, side.weights))
        pointers = side.indptr[first : last + 1] - side.indptr[first]
        return Side(pointers, *arrays, side.mass[first:last])

    blocks = [block(first, last) for first, last in pairwise(cuts)]
    return ClusterSide(Inline(), blocks, np.array(cuts), side.indptr, side.mass, side.dtype)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_same_wherever_the_entries_are(dtype, weighted, tmp_path, monkeypatch):
    rows, cols, values = entries(dtype)
    v = np.arange(1.0, 201.0) if weighted else None
    here = observe((rows, cols, values), weights=v, shape=(M, N))
    expected = here.digest()
    store.build((rows, cols, values), tmp_path / "log", weights=v, shape=(M, N))
    for part in (1 << 16, 7):
        monkeypatch.setattr("fastemf.inputs.entries.PART", part)
        assert here.digest() == expected
        for budget in (1, 400, 1 << 28):
            assert store.open(tmp_path / "log", budget=budget).digest() == expected
        for cuts in ((0, M), (0, 1, 2, 13, M), (0, 10, M)):
            there = on_cluster(here.by_row, cuts), on_cluster(here.by_col, (0, 4, N))
            assert ClusterSource((M, N), *there).digest() == expected


def test_it_does_not_depend_on_the_type_of_the_indices():
    here = observe(entries(), shape=(M, N))
    narrow, wide = (
        replace(
            here,
            by_row=replace(here.by_row, indices=here.by_row.indices.astype(kind)),
            by_col=replace(here.by_col, indices=here.by_col.indices.astype(kind)),
        )
        for kind in (np.int32, np.int64)
    )
    assert narrow.digest() == wide.digest()


def test_every_part_of_the_entries_shows(monkeypatch):
    rows, cols, values = entries()
    seen = {observe((rows, cols, values), shape=(M, N)).digest()}

    def is_new(rows, cols, values, weights=None, shape=(M, N)):
        found = observe((rows, cols, values), weights=weights, shape=shape).digest()
        known = found in seen
        seen.add(found)
        return not known

    assert is_new(rows, cols, values, shape=(M, N + 1))
    assert is_new(rows, cols, values.astype(np.float32))
    assert is_new(rows, cols, values, np.ones(200))
    weights = np.arange(1.0, 201.0)
    assert is_new(rows, cols, values, weights)
    assert is_new(rows, cols, values, weights[::-1])
    for _ in range(2):
        changed = values.copy()
        changed[[4, 150]] = changed[[150, 4]]
        assert is_new(rows, cols, changed)
        monkeypatch.setattr("fastemf.inputs.entries.PART", 7)  # the two are in different parts now
        seen.clear()
        assert is_new(rows, cols, values)


def test_equal_values_elsewhere_are_other_data():
    """Counts of rows and columns, values and their order are the same: the places are not."""
    values = np.array([5.0, 5.0, 5.0, 5.0])
    one = observe(([0, 1, 2, 3], [0, 1, 2, 3], values), shape=(4, 4))
    other = observe(([0, 1, 2, 3], [1, 0, 2, 3], values), shape=(4, 4))
    assert np.array_equal(one.by_row.indptr, other.by_row.indptr)
    assert np.array_equal(one.by_col.indptr, other.by_col.indptr)
    assert one.digest() != other.digest()
