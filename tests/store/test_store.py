"""Fits of a store against fits of the same data in memory, bit by bit; and damaged stores."""

import json
import pickle
import shutil
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf import store
from fastemf.kernels.width import padded
from fastemf.observations.memory import observe
from fastemf.solver.blocks import RowProblem, Solved, solve_block
from fastemf.solver.half_sweep import Own, Regressors, half_sweep, outcome_of
from fastemf.store.files import header
from fastemf.store.manifest import Manifest, StoredArray

M, N, SIZE = 23, 14, 140
TINY = 200  # bytes: every block has few rows, and the longest one alone
NAMES = sorted(f"{side}.{part}.npy" for side in ("rows", "cols") for part in
               ("indptr", "indices", "values", "weights", "mass"))  # fmt: skip


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
            store.build(R, path, weights=weights, shape=(M, N), budget=2000)
    return folder


def name_of(dtype, weighted):
    return f"{np.dtype(dtype)}{'-weighted' * weighted}"


@pytest.fixture
def copy(folder, tmp_path):
    """A weighted store to damage: it has every kind of file."""
    return shutil.copytree(folder / name_of(np.float64, True), tmp_path / "copy")


def assert_equal_fits(one, other):
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("mu", "reg", "intercept_reg", "scale", "converged"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.unseen_rows, other.unseen_rows)
    np.testing.assert_array_equal(one.unseen_cols, other.unseen_cols)
    histories = [[replace(record, seconds=0.0) for record in fit.history] for fit in (one, other)]
    assert histories[0] == histories[1]


def quietly(R, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastemf.complete(R, 0.2, 3, **({"max_iter": 5, "tol": 0, "n_jobs": 1} | options))


# --- the same bits -------------------------------------------------------------------------

OPTIONS = {
    "auto": {},
    "intercepts": {"intercepts": True},
    "paper": {"reg": 0, "momentum": False, "anneal": False},
    "annealed": {"reg": 0, "intercepts": True},
    "orthogonal": {"reg": 0, "orthogonalize": True},
    "plain ridge": {"reg": 0.3, "reg_scaling": "plain"},
    "conjugate gradients": {"reg": 0.1, "solver": "cg"},
    "random start": {"init": "random", "random_state": 5},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_store_is_fitted_to_the_bits_of_memory(folder, dtype, weighted, name):
    R, weights = make(dtype, weighted)
    expected = quietly(R, weights=weights, shape=(M, N), **OPTIONS[name])
    stored = store.open(folder / name_of(dtype, weighted), budget=TINY)
    assert len(stored.by_row.cuts()) > 4
    assert len(stored.by_col.cuts()) > 4
    assert_equal_fits(quietly(stored, **OPTIONS[name]), expected)


@pytest.mark.parametrize("budget", [400, 1 << 28])
def test_bits_depend_neither_on_blocks_nor_on_threads(folder, budget):
    R, _ = make()
    stored = store.open(folder / name_of(np.float64, False), budget=budget)
    fit = partial(quietly, intercepts=True, max_iter=1)
    expected = fit(R, shape=(M, N), n_jobs=2)
    assert_equal_fits(fit(stored, n_jobs=1), expected)
    assert_equal_fits(fit(stored, n_jobs=2), expected)


def test_sums_over_many_stretches(tmp_path, monkeypatch):
    # Stretches have one length whatever is read at once: 7 entries here, and 7 or 14 at once.
    monkeypatch.setattr("fastemf.inputs.entries.PART", 7)
    monkeypatch.setattr("fastemf.store.reading.PART", 7)
    R, weights = make(np.float32, True)
    observed = observe(R, weights=weights, shape=(M, N))
    store.build(R, tmp_path / "store", weights=weights, shape=(M, N))
    for budget in (1, 400, 1 << 28):
        stored = store.open(tmp_path / "store", budget=budget)
        assert stored.rms(1.5) == observed.rms(1.5)
        assert stored.expectile(0.1) == observed.expectile(0.1)
        assert stored.mass == observed.mass


def test_a_fit_continues_from_another(folder):
    R, _ = make()
    first = quietly(R, shape=(M, N))
    path = folder / name_of(np.float64, False)
    stored = store.open(path, budget=TINY)
    assert_equal_fits(quietly(stored, init=first), quietly(R, shape=(M, N), init=first))
    start = first.X, first.Y
    assert_equal_fits(quietly(path, init=start), quietly(R, shape=(M, N), init=start))


def test_warnings_are_those_of_memory(folder):
    R, _ = make()

    def caught(R, **options):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fastemf.complete(R, 0.2, 3, reg=0, max_iter=1, tol=0, **options)
        return [str(warning.message) for warning in seen]

    expected = caught(R, shape=(M, N))
    assert len(expected) == 3  # empty ones, short ones, not settled
    assert caught(folder / name_of(np.float64, False)) == expected


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # without the JIT
def test_errors_name_the_row_of_the_matrix(tmp_path):
    R = (np.arange(6), np.array([0, 1, 2, 0, 3, 1]), np.ones(6))
    store.build(R, tmp_path / "store")
    other = np.array([[1.0], [1.0], [1.0], [np.inf]])
    for source in (observe(R), store.open(tmp_path / "store", budget=1)):
        with pytest.raises(FloatingPointError, match=r"of row 4 .* \(1 such rows\)"):
            half_sweep(
                source.by_row, Regressors.of(other), Own(np.ones((6, 1)), np.ones((6, 2))),
                RowProblem(0.2, 1), n_threads=1,
            )  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # which `quietly` cannot do on two threads
def test_two_readers_at_once_and_nothing_is_written(copy):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.iterdir()}
    for path in [*before, copy]:
        path.chmod(0o555 if path == copy else 0o444)
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(
            lambda budget: fastemf.complete(store.open(copy, budget=budget), 0.2, 3, max_iter=3),
            (100, TINY),
        )
    assert_equal_fits(one, two)
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.iterdir()
    } == before
    copy.chmod(0o755)


# --- blocks --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("budget", [1, 300, 900, 1 << 20])
def test_blocks_cover_a_side_within_the_budget(folder, axis, budget):
    stored = store.open(folder / name_of(np.float64, True), budget=budget)
    side = (stored.by_row, stored.by_col)[axis]
    R, weights = make(np.float64, True)
    observed = observe(R, weights=weights, shape=(M, N))
    expected = (observed.by_row, observed.by_col)[axis]
    done = 0
    for first, block in side.blocks():
        assert first == done
        done += block.indptr.size - 1
        assert block.size * 20 <= budget / 3 or done == first + 1
        entries = slice(expected.indptr[first], expected.indptr[done])
        np.testing.assert_array_equal(block.indices, expected.indices[entries])
        np.testing.assert_array_equal(block.values, expected.values[entries])
        np.testing.assert_array_equal(block.weights, expected.weights[entries])
        np.testing.assert_array_equal(block.mass, expected.mass[first:done])
        assert block.indptr[0] == 0
    assert done == (M, N)[axis]


def traced_peak(run):
    """Bytes of NumPy arrays (and all else Python knows of) that a call held at most."""
    tracemalloc.start()
    try:
        result = run()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.compiled
def test_memory_is_the_budget_not_the_data(tmp_path):
    size, budget = 1_000_000, 1_600_000
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 3000, size), rng.integers(0, 800, size)
    R = (rows.astype(np.int32), cols.astype(np.int32), rng.random(size))
    data = 12 * size  # bytes of one side
    small = tuple(part[:5000] for part in R)
    store.build(small, tmp_path / "small", shape=(3000, 800), budget=budget // 100)
    quietly(tmp_path / "small", max_iter=1, intercepts=True, reg="noise")  # all kernels are loaded
    path = tmp_path / "store"
    peak, _ = traced_peak(lambda: store.build(R, path, shape=(3000, 800), budget=budget))
    assert peak < 2 * budget < data / 3
    stored = store.open(path, budget=budget)
    peak, fit = traced_peak(lambda: quietly(stored, max_iter=1, intercepts=True, reg="noise"))
    slack = 1 << 22  # factors, the start's sketches, and stretches of 65,536 in float64
    assert peak < budget + slack < data / 2
    assert_equal_fits(quietly(R, shape=(3000, 800), max_iter=1, intercepts=True, reg="noise"), fit)


def solve_elsewhere(sent):
    """What another process would do: everything it needs comes in bytes."""
    address, *rest = pickle.loads(sent)
    return pickle.dumps(solve_block(store.read_block(*address), *rest, n_threads=1))


def test_a_half_sweep_can_be_done_in_pieces_anywhere(folder):
    path = folder / name_of(np.float64, True)
    stored = store.open(path)
    rng = np.random.default_rng(0)
    start, other = rng.standard_normal((M, 3)), rng.standard_normal((N, 3))
    ridge = np.column_stack([0.1 * stored.by_row.mass, np.full(M, 0.5)])
    given = Regressors.of(other, rng.standard_normal(N))
    problem = RowProblem(0.2, 2)
    whole = half_sweep(stored.by_row, given, Own(start, ridge), problem, n_threads=1)
    pieces = Solved.empty(M, 3, start.dtype)
    for first, last in reversed(list(pairwise([0, 1, 9, 10, M]))):
        address = (str(path), 0, first, last)
        own = Own(start[first:last], ridge[first:last])
        rest = (padded(other), *given[1:], *own, problem)
        solved = pickle.loads(solve_elsewhere(pickle.dumps((address, *rest))))
        pieces.put(slice(first, last), Solved(*solved))
    found = outcome_of(pieces, "row")
    np.testing.assert_array_equal(found.factor, whole.factor)
    assert (found.above, found.below, found.gradient) == (whole.above, whole.below, whole.gradient)


def sparse_store(folder, indptr, tail):
    """A store of so many entries that only the last few bytes of its files are written."""
    folder.mkdir()
    size = int(indptr[-1])
    shape = (indptr.size - 1, 50)
    files = {}
    empty = Manifest(shape, size, "float32", False, [], {})
    for name, (dtype, length) in empty.expected().items():
        files[name] = StoredArray(dtype.str, length, 0)
        with (folder / name).open("wb") as file:
            file.write(header(dtype, length))
            file.truncate(files[name].bytes)
    for name, array, first in (
        ("rows.indptr.npy", indptr, 0),
        ("cols.indptr.npy", np.append(np.zeros(50, np.int64), size), 0),
        ("rows.indices.npy", tail[0], size - tail[0].size),
        ("rows.values.npy", tail[1], size - tail[1].size),
    ):
        with (folder / name).open("r+b") as file:
            file.seek(files[name].data + first * array.itemsize)
            file.write(array.tobytes())
    (folder / "manifest.json").write_text(replace(empty, files=files).text())
    return folder


def test_more_entries_than_32_bits_count(tmp_path):
    rng = np.random.default_rng(0)
    lengths = np.array([2**31 + 11, 2**32, 7, 0, 9])  # two rows that nobody reads
    tail = rng.integers(0, 50, 16).astype(np.int32), rng.standard_normal(16).astype(np.float32)
    indptr = np.append(0, np.cumsum(lengths))
    stored = store.open(sparse_store(tmp_path / "huge", indptr, tail))
    assert stored.size == 3 * 2**31 + 11 + 16
    assert stored.by_row.mass.tolist() == lengths.tolist()
    assert stored.by_row.cuts().tolist() == [0, 1, 2, 5]
    block = store.read_block(stored.path, 0, 2, 5)
    assert block.indptr.tolist() == [0, 7, 7, 16]
    small = observe((np.repeat([0, 2], [7, 9]), tail[0], tail[1]), shape=(3, 50))
    start, other = np.ones((3, 4), np.float32), rng.standard_normal((50, 4)).astype(np.float32)
    solve = partial(
        solve_block, **Regressors.of(other)._replace(other=padded(other))._asdict(), start=start,
        ridge=np.full((3, 2), 0.1), own_marks=np.empty(0, np.int64), problem=RowProblem(0.3, 4),
        n_threads=1,
    )  # fmt: skip
    for found, expected in zip(solve(block), solve(small.by_row), strict=True):
        np.testing.assert_array_equal(found, expected)


# --- wrong use -----------------------------------------------------------------------------


def test_weights_and_shape_belong_to_the_store(folder):
    path = folder / name_of(np.float64, True)
    for R in (path, str(path), store.open(path)):
        with pytest.raises(ValueError, match="weights must not be given beside a store"):
            fastemf.complete(R, 0.2, 2, weights=np.ones(SIZE))
        with pytest.raises(ValueError, match="shape must not be given beside a store"):
            fastemf.complete(R, 0.2, 2, shape=(M, N))


def test_what_needs_memory_says_so(folder):
    stored = store.open(folder / name_of(np.float64, False))
    fit = quietly(stored)
    with pytest.raises(TypeError, match="in memory here, got a Store"):
        fit.fold_in(stored)
    with pytest.raises(TypeError, match="in memory here, got a Store"):
        fit.objective(stored)
    with pytest.raises(TypeError, match="in memory here, got a Store"):
        fastemf.datasets.split(stored, 0.5)


def test_a_store_describes_itself(folder):
    stored = store.open(folder / name_of(np.float32, True))
    assert repr(stored) == f"<Store {M} x {N}, {SIZE} observations, float32, weights>"
    info = stored.info
    assert (info["shape"], info["size"], info["dtype"], info["weighted"]) == (
        (M, N), SIZE, "float32", True,
    )  # fmt: skip
    on_disk = sum(path.stat().st_size for path in stored.path.glob("*.npy"))
    assert info["bytes"] == on_disk
    with pytest.raises(AttributeError):
        stored.shape = (1, 1)
    for budget in (0, -5):
        with pytest.raises(ValueError, match="budget must be at least 1"):
            store.open(stored.path, budget=budget)


def test_a_store_is_sent_as_its_address(folder):
    stored = store.open(folder / name_of(np.float32, True), budget=TINY)
    fit = quietly(stored)
    sent = pickle.dumps(stored)
    assert len(sent) < 1000
    assert_equal_fits(quietly(pickle.loads(sent)), fit)


def test_a_labelled_store_gives_a_labelled_fit(tmp_path):
    pa = pytest.importorskip("pyarrow")
    (rows, cols, values), _ = make()
    names = {"rows": "client", "cols": "service", "values": "ms"}
    table = pa.table({"client": [f"c{i}" for i in rows], "service": 7 - cols, "ms": values})
    expected = quietly(table, **names)
    built = store.build(table, tmp_path / "store", budget=3000, **names)
    assert repr(built).endswith("float64, labels>")
    fit = quietly(store.open(built.path, budget=TINY))
    assert_equal_fits(fit, expected)
    assert (fit.row_labels, fit.col_labels) == (expected.row_labels, expected.col_labels)
    cells = (["c0", "c1"], [7, 6])
    np.testing.assert_array_equal(fit.predict(*cells), expected.predict(*cells))
    with pytest.raises(ValueError, match="rows must not be given beside a store"):
        fastemf.complete(built, 0.2, 2, **names)
    for name in ("rows.labels.npy", "rows.label_offsets.npy", "cols.labels.npy"):
        path = built.path / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 0xFF]))
        with pytest.raises(store.StoreError, match=name.replace(".", r"\.")):
            store.verify(built.path)
        if name.startswith("rows"):  # what is no longer text
            with pytest.raises(store.StoreError, match=r"rows\.labels\.npy is damaged"):
                store.open(built.path)
        path.write_bytes(content)
    store.verify(built.path)


# --- damage --------------------------------------------------------------------------------


def test_a_whole_store_is_verified(copy):
    store.verify(copy)
    assert sorted(path.name for path in copy.iterdir()) == sorted([*NAMES, "manifest.json"])


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_named(copy, name):
    path = copy / name
    content = path.read_bytes()
    match = str(path).replace(".", r"\.")
    for damaged in (content[:-1], content + b"\0", b""):
        path.write_bytes(damaged)
        with pytest.raises(store.StoreError, match=f"{match} has {len(damaged)} bytes instead of"):
            store.open(copy)
    for place in (6, 60, len(content) // 2 + 70, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 4
        path.write_bytes(flipped)
        with pytest.raises(store.StoreError, match=f"{match} is damaged"):
            store.verify(copy)
    path.unlink()
    for call in (store.open, store.verify, lambda path: store.read_block(path, 0, 0, 1)):
        with pytest.raises(store.StoreError, match=f"{match} is missing"):
            call(copy)


def test_damage_that_a_fit_would_follow_out_of_bounds(copy):
    path = copy / "cols.indices.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x80  # the last index becomes negative
    path.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"cols\.indices\.npy is damaged"):
        quietly(copy)
    path = copy / "rows.indptr.npy"
    content = bytearray(path.read_bytes())
    content[-9] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"rows\.indptr\.npy is damaged"):
        store.open(copy)


def test_a_file_that_shrinks_while_it_is_read(copy):
    stored = store.open(copy, budget=TINY)
    path = copy / "rows.values.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(store.StoreError, match=r"rows\.values\.npy ended early"):
        quietly(stored)


def edited(copy, **changes):
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 4}, "store version 4, while this fastemf reads 1 to 3"),
        ({"version": "1"}, "store version '1'"),
        ({"format": "other"}, "of another program"),
        ({"shape": [M + 1, N]}, "manifest.json is damaged"),
        ({"shape": "large"}, "manifest.json is damaged"),
        ({"size": SIZE + 1}, "manifest.json is damaged"),
        ({"dtype": "float16"}, "manifest.json is damaged"),
        ({"weighted": False}, "manifest.json is damaged: .*weights.npy does not belong"),
        ({"files": {}}, "manifest.json is damaged"),
        ({"files": {"rows.indptr.npy": 3}}, "manifest.json is damaged"),
    ],
)
def test_damaged_manifests(copy, changes, match):
    edited(copy, **changes)
    for call in (store.open, store.verify):
        with pytest.raises(store.StoreError, match=match):
            call(copy)


def test_what_is_no_store(tmp_path, copy):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        store.open(tmp_path / "nowhere")
    with pytest.raises(store.StoreError, match=r"has no manifest\.json; build one"):
        store.open(tmp_path)
    (copy / "manifest.json").write_bytes(b"\xff{")
    with pytest.raises(store.StoreError, match=r"manifest\.json is damaged"):
        store.open(copy)


# --- older versions ------------------------------------------------------------------------


def test_stores_of_the_first_version_open():
    stored = store.open(Path(__file__).parents[1] / "golden" / "store-v1")
    store.verify(stored.path)
    assert stored.row_labels.values.tolist() == ["a", "b", "ü"]
    assert stored.col_labels.values.tolist() == [7, 3]
    assert stored.by_row.mass.tolist() == [1.0, 3.0, 3.0]
    assert stored.expectile(0.5) == (1 * 1 + 2 * 2 + 4 * 1 + 8 * 3) / 7
