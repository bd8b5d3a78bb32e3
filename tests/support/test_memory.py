"""Requests for more memory than available are refused before the allocation."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import fastemf
from fastemf.operators import Gaussian, Linear
from fastemf.support import memory

GIB = 1 << 30


@pytest.fixture
def small(monkeypatch):
    """A machine with two gibibytes left."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * GIB)


@pytest.fixture(scope="module")
def fit():
    return fastemf.complete(np.outer([1.0, 2.0, 3.0], [3.0, 4.0]), 0.5, 1, reg=0)


def test_available_memory_is_that_of_the_system(tmp_path, monkeypatch):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 9 kB\nMemAvailable:    3 kB\nSwapTotal: 8 kB\nSwapFree:    2 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", file)
    assert memory.available_memory() == 5 * 1024
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "nothing")
    assert memory.available_memory() is None or memory.available_memory() > GIB / 4


def test_an_error_has_the_needed_and_the_available_memory(small, monkeypatch):
    memory.check_memory(2 * GIB, "a fit", "do less")
    with pytest.raises(MemoryError, match="at least 3 GiB of memory, and 2 GiB are available; do"):
        memory.check_memory(3 * GIB, "a fit", "do less")
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check_memory(10**15, "a fit", "do less")


ONE = ([0], [0], [1.0])
WIDE = sp.coo_array(([1.0], ([0], [0])), shape=(3, 10**8))
LINEAR = LinearOperator((3, 10**10), matvec=lambda x: x[:3], dtype=float)
CELLS = np.zeros((20_000, 1), np.int64)
HUGE = {
    "triplets": lambda fit: fastemf.complete(ONE, 0.3, 1, shape=(10**8, 3)),
    "sparse": lambda fit: fastemf.complete(WIDE, 0.3, 1),
    "factors": lambda fit: fastemf.complete(ONE, 0.3, 30, shape=(2 * 10**6, 2 * 10**6)),
    "fold_in": lambda fit: fit.fold_in(ONE, shape=(10**8, 2)),
    "split": lambda fit: fastemf.datasets.split(WIDE, 0.5),
    "predict": lambda fit: fit.predict(CELLS, CELLS.T),
    "rank": lambda fit: fit.rank(np.broadcast_to(0, 10**8), 9, order="smallest"),
    "design": lambda fit: Gaussian(10**6, (10**3, 10**3)).design(np.ones((10**3, 1)), 0),
    "sense": lambda fit: fastemf.sense(Gaussian(10, (2**31, 1000)), np.ones(10), 0.3, 1),
    "rip_constant": lambda fit: fastemf.rip_constant(Gaussian(10, (10**5, 10**5)), 2),
    "Linear": lambda fit: Linear(LINEAR, (10**5, 10**5)),
    "make_skewed": lambda fit: fastemf.datasets.make_skewed(10**5, 10**5),
}


NAMED = {
    "sense": "10 measurements of 2147483648 x 1000 .* rank 1 ",
    "rip_constant": "100000 x 100000 matrices at rank 2 ",
}


@pytest.mark.filterwarnings("ignore:.*fewer than")
@pytest.mark.parametrize("case", HUGE)
def test_requests_above_the_available_memory_are_refused(case, small, fit):
    rule = NAMED.get(case, "") + r"takes at least [0-9.,e+]+ GiB of memory, and 2 GiB"
    with pytest.raises(MemoryError, match=rule):
        HUGE[case](fit)


@pytest.mark.parametrize("axis", [0, 1])
def test_identifiers_are_not_folded_in_as_positions(axis, fit):
    given = ([10**9], [0], [1.0]) if axis == 0 else ([0], [10**9], [1.0])
    with pytest.raises(ValueError, match="1000000000 for 1 observations, so these look like ident"):
        fit.fold_in(given, axis=axis)
    given[axis][0] = 7
    with pytest.warns(UserWarning, match="7 of the 8 new"):
        assert fit.fold_in(given, axis=axis).shape[axis] == 8
