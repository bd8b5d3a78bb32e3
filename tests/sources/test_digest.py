"""The hash and the sums of the data: bitwise equal for all sources of the same entries."""

import numpy as np
import pytest

from fastemf import store
from fastemf.sources.cluster.source import ClusterSource
from fastemf.sources.memory import observe

M, N = 20, 15


def entries(dtype=np.float64):
    rng = np.random.default_rng(3)
    rows, cols = np.divmod(rng.permutation(M * N)[:200], N)
    return rows, cols, rng.exponential(size=200).astype(dtype)


class Inline:
    """A cluster that runs in this process."""

    def __init__(self, n_workers):
        self.n_workers, self.client = n_workers, self

    def submit(self, task, *args, pure):
        return task(*args)

    def run(self, task, blocks, shared, own, *args):
        pairs = zip(blocks, own, strict=True)
        return [task(block, shared, mine, *args, 1) for block, mine in pairs]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_sources_have_the_same_hash_and_sums(dtype, weighted, tmp_path, monkeypatch):
    rows, cols, values = entries(dtype)
    v = np.arange(1.0, 201.0) if weighted else None
    here = observe((rows, cols, values), weights=v, shape=(M, N))
    expected = here.digest()
    store.build((rows, cols, values), tmp_path / "log", weights=v, shape=(M, N))
    first, second = (
        tuple(column[part] for column in (rows, cols, values))
        for part in (slice(0, 120), slice(120, None))
    )
    v1, v2 = (None, None) if v is None else (v[:120], v[120:])
    store.build(first, tmp_path / "grown", weights=v1, shape=(M, N))
    store.append(tmp_path / "grown", second, weights=v2)
    sources = [
        store.open(tmp_path / name, budget=budget)
        for name in ("log", "grown")
        for budget in (1, 400, 1 << 28)
    ]
    sources += [ClusterSource(store.open(tmp_path / "log"), Inline(count)) for count in (1, 2, 5)]
    for part in (1 << 16, 7):  # sums over other stretches, or in another order, would differ
        monkeypatch.setattr("fastemf.inputs.entries.PART", part)
        sums = here.rms(0.3), here.expectile(0.1), here.mass
        assert here.digest() == expected
        for source in sources:
            assert source.digest() == expected
            assert (source.rms(0.3), source.expectile(0.1), source.mass) == sums


def test_every_part_of_the_entries_changes_the_hash(monkeypatch):
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


def test_equal_values_in_other_cells_have_another_hash():
    """Counts, values and their order are equal; positions are not."""
    values = np.array([5.0, 5.0, 5.0, 5.0])
    one = observe(([0, 1, 2, 3], [0, 1, 2, 3], values), shape=(4, 4))
    other = observe(([0, 1, 2, 3], [1, 0, 2, 3], values), shape=(4, 4))
    assert np.array_equal(one.by_row.indptr, other.by_row.indptr)
    assert np.array_equal(one.by_col.indptr, other.by_col.indptr)
    assert one.digest() != other.digest()
