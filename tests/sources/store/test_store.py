"""Fits of stores are bitwise identical to fits in memory; versions and the golden store."""

import shutil
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sources.comparisons import assert_equal_fits

import fastemf
from fastemf import store
from fastemf.solver.half_sweep import Regressors, RowArrays, RowProblem, solve_side, summarize_rows
from fastemf.sources.memory import observe

M, N, SIZE = 23, 14, 140
TINY = 200  # bytes: blocks of few rows


def make(dtype=np.float64, weighted=False):
    rng = np.random.default_rng(3)
    rows = np.minimum(rng.geometric(0.15, SIZE) - 1, M - 2)  # the last row and column are empty
    cols = np.minimum(rng.geometric(0.2, SIZE) - 1, N - 2)
    X, Y = rng.uniform(0.5, 1, (M, 2)), rng.uniform(0.5, 1, (N, 2))
    values = np.einsum("ij,ij->i", X[rows], Y[cols]) + 0.3 * rng.chisquare(3, SIZE)
    weights = rng.uniform(0.2, 3, SIZE).astype(dtype) if weighted else None
    return (rows, cols, values.astype(dtype)), weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores of both types, with and without weights."""
    folder = tmp_path_factory.mktemp("stores")
    for dtype in (np.float32, np.float64):
        for weighted in (False, True):
            R, weights = make(dtype, weighted)
            path = folder / name_of(dtype, weighted)
            store.build(R, path, weights=weights, shape=(M, N), memory_limit=2000)
    return folder


def name_of(dtype, weighted):
    return f"{np.dtype(dtype)}{'-weighted' * weighted}"


@pytest.fixture
def copy(folder, tmp_path):
    """A weighted store to damage: it has every kind of file."""
    return shutil.copytree(folder / name_of(np.float64, True), tmp_path / "copy")


def quietly(R, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastemf.complete(R, 0.2, 3, **({"max_iter": 5, "tol": 0, "n_jobs": 1} | options))


# --- the same bits -------------------------------------------------------------------------

OPTIONS = {
    "auto": {},
    "intercepts": {"intercepts": True},
    "paper": {"reg": 0, "solver": fastemf.Solver(momentum=False, anneal=False)},
    "annealed": {"reg": 0, "intercepts": True},
    "orthogonal": {"reg": 0, "solver": fastemf.Solver(orthogonalize=True)},
    "plain ridge": {"reg": 0.3, "solver": fastemf.Solver(reg_scaling="plain")},
    "conjugate gradients": {"reg": 0.1, "solver": "cg"},
    "random start": {"init": "random", "random_state": 5},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
def test_fits_are_bitwise_identical_to_memory(folder, dtype, weighted, name):
    R, weights = make(dtype, weighted)
    expected = quietly(R, weights=weights, shape=(M, N), **OPTIONS[name])
    stored = store.open(folder / name_of(dtype, weighted), budget=TINY)
    assert len(stored.by_row.cuts()) > 4
    assert len(stored.by_col.cuts()) > 4
    assert_equal_fits(quietly(stored, **OPTIONS[name]), expected)


@pytest.mark.parametrize("budget", [400, 1 << 28])
def test_results_do_not_depend_on_blocks_and_threads(folder, budget):
    R, _ = make()
    stored = store.open(folder / name_of(np.float64, False), budget=budget)
    fit = partial(quietly, intercepts=True, max_iter=1)
    expected = fit(R, shape=(M, N), n_jobs=2)
    assert_equal_fits(fit(stored, n_jobs=1), expected)
    assert_equal_fits(fit(stored, n_jobs=2), expected)


def test_a_fit_continues_from_another(folder):
    R, _ = make()
    first = quietly(R, shape=(M, N))
    path = folder / name_of(np.float64, False)
    stored = store.open(path, budget=TINY)
    assert_equal_fits(quietly(stored, init=first), quietly(R, shape=(M, N), init=first))
    start = first.X, first.Y
    assert_equal_fits(quietly(path, init=start), quietly(R, shape=(M, N), init=start))


def test_warnings_equal_those_in_memory(folder):
    R, _ = make()

    def caught(R, **options):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fastemf.complete(R, 0.2, 3, reg=0, max_iter=1, tol=0, **options)
        return [str(warning.message) for warning in seen]

    expected = caught(R, shape=(M, N))
    assert len(expected) == 3  # empty rows, short rows, no convergence
    assert caught(folder / name_of(np.float64, False)) == expected


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # without the JIT
def test_errors_name_the_row_of_the_matrix(tmp_path):
    R = (np.arange(6), np.array([0, 1, 2, 0, 3, 1]), np.ones(6))
    store.build(R, tmp_path / "store")
    other = np.array([[1.0], [1.0], [1.0], [np.inf]])
    for source in (observe(R), store.open(tmp_path / "store", budget=1)):
        arrays = RowArrays(np.ones((6, 1)), np.ones((6, 2)))
        given = source.by_row, Regressors.of(other), arrays, RowProblem(0.2, 1)
        solved = solve_side(*given, n_threads=1)
        with pytest.raises(FloatingPointError, match=r"of row 4 .* \(1 such rows\)"):
            summarize_rows(solved, "row")


@pytest.mark.filterwarnings("ignore")  # which `quietly` cannot do on two threads
def test_two_readers_at_once_and_nothing_is_written(copy):
    def state():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")}

    before, folders = state(), [copy, copy / "data-1"]
    for path in [*before, copy]:
        path.chmod(0o555 if path in folders else 0o444)
    opened = [store.open(copy, budget=budget) for budget in (100, TINY)]
    with ThreadPoolExecutor(2) as pool:
        fits = pool.map(lambda stored: fastemf.complete(stored, 0.2, 3, max_iter=3), opened)
    assert_equal_fits(*fits)
    assert state() == before
    for path in folders:
        path.chmod(0o755)


# --- blocks --------------------------------------------------------------------------------


def traced_peak(run):
    """Return the peak memory of a call, in bytes."""
    tracemalloc.start()
    try:
        result = run()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.compiled
def test_memory_is_bounded_by_the_budget(tmp_path):
    size, budget, shape = 1_000_000, 1_600_000, (3000, 800)
    rng = np.random.default_rng(0)
    rows, cols = (rng.integers(0, n, size + size // 2).astype(np.int32) for n in shape)
    R = (rows, cols, rng.random(rows.size))
    small, first = (tuple(column[:count] for column in R) for count in (5000, size))
    second = tuple(column[size:] for column in R)
    fit = partial(quietly, max_iter=1, intercepts=True, reg="noise")
    store.build(small, tmp_path / "small", shape=shape, memory_limit=budget // 100)
    fit(tmp_path / "small")  # loads all kernels
    path, data = tmp_path / "store", 12 * size  # bytes of one side
    slack = 1 << 22  # factors, the start's sketches, and stretches of 65,536 in float64
    writes = partial(store.build, first, path, shape=shape), partial(store.append, path, second)
    for write in writes:
        peak, stored = traced_peak(partial(write, memory_limit=budget))
        assert peak < 2 * budget < data / 3
        peak, found = traced_peak(partial(fit, store.open(path, budget=budget)))
        assert peak < budget + slack < data / 2
    assert stored.size == rows.size
    assert_equal_fits(fit(R, shape=shape), found)
    row = (np.zeros(size, np.int32), *first[1:])  # longer than the limit
    writes = (
        partial(store.build, row, tmp_path / "row"),
        partial(store.append, tmp_path / "row", row),
    )
    for write in writes:
        peak, stored = traced_peak(partial(write, memory_limit=budget, weights=row[2] + 1))
        assert peak < 2 * budget < data / 3
    twice = tuple(map(np.concatenate, zip(row, row, strict=True)))
    assert stored.digest() == observe(twice, weights=twice[2] + 1).digest()


# --- wrong use -----------------------------------------------------------------------------


def test_weights_and_shape_are_refused(folder):
    path = folder / name_of(np.float64, True)
    for R in (path, str(path), store.open(path)):
        with pytest.raises(ValueError, match="weights must not be given with a store"):
            fastemf.complete(R, 0.2, 2, weights=np.ones(SIZE))
        with pytest.raises(ValueError, match="shape must not be given with a store"):
            fastemf.complete(R, 0.2, 2, shape=(M, N))


def test_tasks_that_need_memory_refuse_stores(folder):
    stored = store.open(folder / name_of(np.float64, False))
    fit = quietly(stored)
    for task in (fit.fold_in, fit.objective, partial(fastemf.datasets.split, train=0.5)):
        with pytest.raises(TypeError, match="in memory here, got a Store"):
            task(stored)


def test_a_store_describes_itself(folder):
    stored = store.open(folder / name_of(np.float32, True))
    assert repr(stored) == f"<Store {M} x {N}, {SIZE} observations, float32, weights>"
    on_disk = sum(path.stat().st_size for path in stored.path.rglob("*.npy"))
    facts = {"shape": (M, N), "size": SIZE, "dtype": "float32", "weighted": True, "bytes": on_disk}
    assert stored.info == stored.info | facts
    with pytest.raises(AttributeError):
        stored.shape = (1, 1)
    for budget in (0, -5):
        with pytest.raises(ValueError, match="budget must be at least 1"):
            store.open(stored.path, budget=budget)


def test_a_labelled_store_gives_a_labelled_fit(tmp_path):
    (rows, cols, values), _ = make()
    names = {"rows": "client", "cols": "service", "values": "ms"}
    table = pa.table({"client": [f"c{i}" for i in rows], "service": 7 - cols, "ms": values})
    expected = quietly(table, **names)
    built = store.build(table, tmp_path / "store", memory_limit=3000, **names)
    assert repr(built).endswith("float64, labels>")
    fit = quietly(store.open(built.path, budget=TINY))
    assert_equal_fits(fit, expected)
    assert (fit.row_labels, fit.col_labels) == (expected.row_labels, expected.col_labels)
    cells = (["c0", "c1"], [7, 6])
    np.testing.assert_array_equal(fit.predict(*cells), expected.predict(*cells))
    with pytest.raises(ValueError, match="rows must not be given with a store"):
        fastemf.complete(built, 0.2, 2, **names)


# --- the file format -----------------------------------------------------------------------


def test_the_golden_store_opens():
    # Built from four observations of labelled cells with weights and the hour, then two appended.
    stored = store.open(Path(__file__).parents[2] / "golden" / "store-v1")
    store.verify(stored.path)
    assert stored.row_labels.values.tolist() == ["a", "b", "ü", "new"]
    assert stored.col_labels.values.tolist() == [7, 3, 9]
    assert stored.by_row.mass.tolist() == [1.0, 3.0, 5.0, 1.0]
    assert stored.by_col.mass.tolist() == [6.0, 2.0, 2.0]
    assert stored.expectile(0.5) == (1 * 1 + 2 * 2 + 4 * 1 + 8 * 3 + 16 * 2 + 32 * 1) / 10
    assert store.read_block(stored.path, 0, 0, 4).values.tolist() == [1, 2, 4, 8, 16, 32]
    assert stored.read_columns().to_pydict() == {"hour": [0, 1, 3, 2, 5, 4]}
