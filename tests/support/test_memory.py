"""What would take more memory than there is is refused before it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import fastemf
from fastemf.support import memory

GIB = 1 << 30


@pytest.fixture
def small(monkeypatch):
    """A machine with two gibibytes left."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * GIB)


@pytest.fixture(scope="module")
def fit():
    return fastemf.complete(np.outer([1.0, 2.0, 3.0], [3.0, 4.0]), 0.5, 1, reg=0)


def test_what_the_system_says(tmp_path, monkeypatch):
    file = tmp_path / "meminfo"
    file.write_text(
        "MemTotal: 9 kB\nMemAvailable:    3 kB\nSwapTotal: 8 kB\nSwapFree:        2 kB\n"
    )
    monkeypatch.setattr(memory, "MEMINFO", file)
    assert memory.available_memory() == 5 * 1024
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "nothing")
    assert memory.available_memory() is None or memory.available_memory() > GIB / 4


def test_a_refusal_says_what_it_takes_what_there_is_and_what_to_do(small):
    memory.check_memory(2 * GIB, "a fit", "do less")
    with pytest.raises(
        MemoryError, match=r"^a fit takes at least 3 GiB of memory, and 2 GiB are left; do less$"
    ):
        memory.check_memory(3 * GIB, "a fit", "do less")


def test_where_the_system_says_nothing_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check_memory(10**15, "a fit", "do less")


ONE = ([0], [0], [1.0])
HUGE = {
    "triplets": lambda fit: fastemf.complete(ONE, 0.3, 1, shape=(10**8, 3)),
    "sparse": lambda fit: fastemf.complete(
        sp.coo_array(([1.0], ([0], [0])), shape=(3, 10**8)), 0.3, 1
    ),
    "columns": lambda fit: fastemf.complete(
        sp.csc_array(([1.0], [0], [0, 1]), shape=(10**8, 1)), 0.3, 1
    ),
    "factors": lambda fit: fastemf.complete(ONE, 0.3, 30, shape=(2 * 10**6, 2 * 10**6)),
    "fold_in": lambda fit: fit.fold_in(ONE, shape=(10**8, 2)),
    "split": lambda fit: fastemf.datasets.split(
        sp.coo_array(([1.0], ([0], [0])), shape=(3, 10**8)), 0.5
    ),
    "predict": lambda fit: fit.predict(
        np.zeros((20_000, 1), np.int64), np.zeros((1, 20_000), np.int64)
    ),
    "predict_block": lambda fit: fit.predict_block(np.broadcast_to(0, 2 * 10**8)),
    "rank": lambda fit: fit.rank(np.broadcast_to(0, 10**8), 9, order="smallest"),
    "design": lambda fit: fastemf.operators.Gaussian(10**6, (10**3, 10**3)).design(
        np.ones((10**3, 1)), 0
    ),
    "Linear": lambda fit: fastemf.operators.Linear(
        LinearOperator((3, 10**10), matvec=lambda x: x[:3], dtype=float), (10**5, 10**5)
    ),
    "make_skewed": lambda fit: fastemf.datasets.make_skewed(10**5, 10**5),
    "make_latencies": lambda fit: fastemf.datasets.make_latencies(calls=10**9),
}  # fmt: skip


@pytest.mark.parametrize("case", HUGE)
def test_numbers_ask_for_no_more_memory_than_there_is(case, small, fit):
    with pytest.raises(MemoryError, match=r"takes at least [0-9.,e+]+ GiB of memory, and 2 GiB"):
        HUGE[case](fit)


@pytest.mark.parametrize("axis", [0, 1])
def test_identifiers_are_not_folded_in_as_positions(axis, fit):
    given = ([10**9], [0], [1.0]) if axis == 0 else ([0], [10**9], [1.0])
    with pytest.raises(ValueError, match="1000000000 for 1 observations, so these look like ident"):
        fit.fold_in(given, axis=axis)
    given[axis][0] = 7
    with pytest.warns(UserWarning, match="7 of the 8 new"):
        assert fit.fold_in(given, axis=axis).shape[axis] == 8
