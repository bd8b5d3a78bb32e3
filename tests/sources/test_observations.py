"""Every input form of `observe`, against entries grouped in plain Python."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sources.comparisons import assert_same_entries
from strategies import sparse_array

from fastemf.sources.memory import observe

M, N = SHAPE = (6, 5)
# Unsorted, with two kinds of repeats, two zeros, an empty row (3) and an empty column (4).
ENTRIES = [
    (4, 1, 7.0), (0, 3, -2.0), (4, 1, 7.5), (2, 0, 0.0), (0, 0, 1.5), (5, 2, 4.0),
    (2, 3, 3.0), (4, 0, -1.0), (0, 3, -2.0), (1, 2, 0.0), (1, 0, 8.0),
]  # fmt: skip
SIZE = len(ENTRIES)
UNIQUE = list({(i, j): (i, j, value) for i, j, value in ENTRIES}.values())
DIAGONALS = {0: [1.0, 0.0, 3.0, 4.0], -2: [5.0, 6.0, 0.0, 8.0], 3: [9.0, 9.0, 9.0, 2.0]}
BLOCKS = [  # (block row, block column, 2 x 1 block), the first one twice
    (0, 3, [[1.0], [0.0]]), (0, 1, [[2.0], [3.0]]), (0, 3, [[4.0], [5.0]]), (2, 0, [[0.0], [6.0]]),
]  # fmt: skip


# --- plain Python: what should come out -----------------------------------------------------


def grouped(stored, axis, n):
    """Entries (row, col, value, weight) of each row or column in the given order."""
    return [[(e[1 - axis], *e[2:]) for e in stored if e[axis] == g] for g in range(n)]


def read(side):
    weights = side.weights.tolist() or [1.0] * side.values.size
    cells = list(zip(side.indices.tolist(), side.values.tolist(), weights, strict=True))
    return [cells[a:b] for a, b in pairwise(side.indptr.tolist())]


def assert_holds(observed, shape, stored):
    """The observations are exactly `stored`, by row and by column, in order."""
    stored = [e if len(e) == 4 else (*e, 1.0) for e in stored]
    assert observed.shape == shape
    assert observed.size == len(stored)
    assert observed.mass == math.fsum(e[3] for e in stored)
    for axis, side in enumerate((observed.by_row, observed.by_col)):
        assert read(side) == grouped(stored, axis, shape[axis])
        expected = [math.fsum(e[3] for e in stored if e[axis] == g) for g in range(shape[axis])]
        assert side.mass.tolist() == expected


# --- the same entries in every form: (R, entries in their stored order) ---------------------


def columns(entries):
    rows, cols, values = zip(*entries, strict=True)
    return np.array(rows), np.array(cols), np.array(values)


def coo(cls):
    rows, cols, values = columns(ENTRIES)
    return cls((values, (rows, cols)), shape=SHAPE), ENTRIES


def compressed(cls, axis):
    stored = [e for g in range(SHAPE[axis]) for e in ENTRIES if e[axis] == g]
    indptr = [sum(e[axis] < g for e in ENTRIES) for g in range(SHAPE[axis] + 1)]
    indices, values = columns(stored)[1 - axis], columns(stored)[2]
    return cls((values, indices, np.array(indptr)), shape=SHAPE), stored


def dok(cls):
    rows, cols, values = columns(UNIQUE)
    R = cls(sp.coo_array((values, (rows, cols)), shape=SHAPE))
    return R, [(int(i), int(j), float(value)) for (i, j), value in R.items()]


def lil(cls):
    R = cls(SHAPE)
    for i, j, value in sorted(UNIQUE):  # by assignment, a zero would not be stored
        R.rows[i].append(j)
        R.data[i].append(value)
    return R, sorted(UNIQUE)


def dia(cls):
    stored = [
        (j - offset, j, value)
        for offset, diagonal in DIAGONALS.items()
        for j, value in enumerate(diagonal)
        if 0 <= j - offset < M and j < N
    ]
    return cls((np.array(list(DIAGONALS.values())), list(DIAGONALS)), shape=SHAPE), stored


def bsr(cls):
    stored = [(2 * i + r, j, block[r][0]) for i, j, block in BLOCKS for r in range(2)]
    indptr = [sum(b[0] < g for b in BLOCKS) for g in range(M // 2 + 1)]
    data, indices = np.array([b[2] for b in BLOCKS]), np.array([b[1] for b in BLOCKS])
    return cls((data, indices, np.array(indptr)), shape=SHAPE), stored


DENSE = np.full(SHAPE, np.nan)
for _i, _j, _value in UNIQUE:
    DENSE[_i, _j] = _value

BUILDERS = {
    "coo": coo, "csr": partial(compressed, axis=0), "csc": partial(compressed, axis=1),
    "dok": dok, "lil": lil, "dia": dia, "bsr": bsr,
}  # fmt: skip
SPARSE = {
    f"{name}_{kind}": partial(build, getattr(sp, f"{name}_{kind}"))
    for kind in ("matrix", "array")
    for name, build in BUILDERS.items()
}
OTHERS = {
    "triplets": lambda: (columns(ENTRIES), ENTRIES),
    "triplets of lists": lambda: (tuple(part.tolist() for part in columns(ENTRIES)), ENTRIES),
    "dense": lambda: (DENSE.copy(), sorted(UNIQUE)),
    "masked": lambda: (np.ma.masked_invalid(DENSE), sorted(UNIQUE)),
    "matrix": lambda: (DENSE.copy().view(np.matrix), sorted(UNIQUE)),
    "lists": lambda: (DENSE.tolist(), sorted(UNIQUE)),
}
FORMS = SPARSE | OTHERS


def snapshot(thing):
    """Everything about an input that a function could change, to compare later."""
    if isinstance(thing, np.ndarray):
        content = repr(thing.tolist()) if thing.dtype == object else thing.tobytes()
        mask = snapshot(thing.mask) if isinstance(thing, np.ma.MaskedArray) else None
        return content, mask, thing.dtype, thing.shape, thing.strides, thing.flags.writeable
    if sp.issparse(thing):  # with the cached flags such as has_sorted_indices, where cached
        return {name: snapshot(value) for name, value in vars(thing).items()}
    return [snapshot(item) for item in thing] if isinstance(thing, tuple) else repr(thing)


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_their_entries_in_order_and_are_unchanged(form):
    R, stored = FORMS[form]()
    before = snapshot(R)
    observed = observe(R, shape=SHAPE)
    assert snapshot(R) == before
    assert_holds(observed, SHAPE, stored)
    assert observed.dtype == np.float64
    assert any(value == 0 for _, _, value in stored)  # or zeros were not tested


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array", "dia_array", "bsr_array"])
def test_an_error_leaves_the_input_unchanged(form):
    R, _ = FORMS[form]()
    R.data.flat[1] = np.nan
    R.data.flags.writeable = False
    before = snapshot(R)
    with pytest.raises(ValueError, match="finite"):
        observe(R)
    assert snapshot(R) == before


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_compressed_matrix_shares_its_arrays(form):
    R = sparse_array((9, 7), 0.4, form, np.random.default_rng(0))
    observed = observe(R)
    own, other = observed.by_row, observed.by_col
    if form == "csc":
        own, other = other, own
    assert np.shares_memory(own.values, R.data)
    assert np.shares_memory(own.indices, R.indices)
    assert not np.shares_memory(other.values, R.data)


@pytest.mark.compiled
def test_threads_do_not_change_the_order():
    rng = np.random.default_rng(3)
    rows, cols = rng.integers(0, 40, 5000), rng.integers(0, 30, 5000)
    values, weights = rng.random(5000), rng.random(5000) + 0.1
    R = sp.csr_array((values, (rows, cols)), shape=(40, 30))
    for form, v in (((rows, cols, values), weights), (R, None), (R.tocsc(), None)):
        assert_same_entries(*(observe(form, weights=v, n_threads=n) for n in (1, 2)))


# --- number types and memory ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f4", "g", ">i4", ">f4", ">f8"])
@pytest.mark.parametrize("form", ["dense", "masked", "triplets", "csr"])
def test_number_types(form, dtype):
    data = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype)
    i, j = np.indices(data.shape)
    csr = sp.csr_array(np.ones((2, 3)))
    csr.data = data.ravel()  # scipy's constructor refuses some types, assignment does not
    R = {
        "dense": data,
        "masked": np.ma.array(data, mask=False),
        "triplets": (i.ravel(), j.ravel(), data.ravel()),
        "csr": csr,
    }[form]
    observed = observe(R)
    assert observed.dtype == (np.float32 if dtype in ("f4", ">f4") else np.float64)
    assert observed.by_row.weights.dtype == observed.by_col.weights.dtype == observed.dtype
    assert observed.dtype.isnative
    cells = [(a, b) for a in range(2) for b in range(3)]
    assert_holds(observed, (2, 3), [(a, b, float(data[a, b])) for a, b in cells])


VIEWS = {
    "strided": lambda base: base[::2, ::-3],
    "fortran": np.asfortranarray,
    "read-only": lambda base: np.frombuffer(base.tobytes()).reshape(base.shape),
    "broadcast": lambda base: np.broadcast_to(base[0], (3, 8)),
    "memory-mapped": lambda _: np.load("base.npy", mmap_mode="r"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_memory_layouts(view, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = np.arange(1.0, 49).reshape(6, 8)
    np.save("base.npy", base)
    R = VIEWS[view](base)
    before = snapshot(R)
    m, n = R.shape
    stored = [(i, j, float(R[i, j])) for i in range(m) for j in range(n)]
    assert_holds(observe(R), (m, n), stored)
    rows, cols = np.repeat(np.arange(m), n)[::-1], np.tile(np.arange(n), m)[::-1]
    rows.flags.writeable = False
    assert_holds(observe((rows, cols, R.ravel()[::-1])), (m, n), stored[::-1])
    assert snapshot(R) == before


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64, np.dtype(">i2")])
def test_narrow_indices_do_not_overflow(dtype):
    top = min(np.iinfo(dtype).max, 40_000)
    rows, cols = np.array([top, 0, top], dtype), np.array([0, 100, 100], dtype)
    observed = observe((rows, cols, [1.0, 2.0, 3.0]))
    assert observed.shape == (top + 1, 101)
    assert read(observed.by_row)[top] == [(0, 1.0, 1.0), (100, 3.0, 1.0)]
    assert read(observed.by_col)[100] == [(0, 2.0, 1.0), (top, 3.0, 1.0)]


# --- weights --------------------------------------------------------------------------------


def weight(value):
    return abs(value) + 0.5


def weights_like(R):
    W = R.tocoo() if R.format in ("dok", "lil") else R.copy()
    W.data = weight(W.data)
    return W.asformat(R.format)


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_weights(form):
    R, stored = FORMS[form]()
    weighted = [(*e, weight(e[2])) for e in stored]
    W = weights_like(R)
    before = snapshot(W)
    assert_holds(observe(R, weights=W), SHAPE, weighted)
    assert snapshot(W) == before


@pytest.mark.parametrize("form", ["csr_array", "csc_array", "coo_matrix", "triplets"])
@pytest.mark.parametrize("kind", [list, np.array, np.float32, lambda w: np.repeat(w, 2)[::2]])
def test_flat_weights(form, kind):
    R, stored = FORMS[form]()
    weighted = [(*e, weight(e[2])) for e in stored]
    given = kind([e[3] for e in weighted])
    assert_holds(observe(R, weights=given, shape=SHAPE), SHAPE, weighted)


@pytest.mark.parametrize("form", ["dense", "masked", "matrix", "lists"])
@pytest.mark.parametrize("missing", [np.nan, 0.0, -1.0])
def test_dense_weights_of_missing_values_are_ignored(form, missing):
    R, stored = FORMS[form]()
    W = np.full(SHAPE, missing)
    for i, j, value in stored:
        W[i, j] = weight(value)
    assert_holds(observe(R, weights=W), SHAPE, [(*e, weight(e[2])) for e in stored])


WRONG_WEIGHTS = {
    "too few": ("triplets", np.ones(SIZE - 1), ValueError, r"one per observation.*\(11,\).*\(10,"),
    "scalar": ("csr_array", 2.0, ValueError, r"one per observation.*got \(\)"),
    "matrix for flat": ("coo_array", np.ones(SHAPE), ValueError, r"one per observation.*\(6, 5\)"),
    "flat for dok": ("dok_array", np.ones(10), TypeError, "dok format must be a sparse matrix"),
    "flat for dense": ("dense", np.ones(10), ValueError, r"shape of R, \(6, 5\), got \(10,\)"),
    "sparse for dense": ("dense", sp.csr_array(np.ones(SHAPE)), TypeError, "got a sparse one"),
    "sparse for triplets": ("triplets", sp.csr_array(np.ones(SHAPE)), TypeError, "dtype object"),
    "text": ("triplets", ["a"] * SIZE, TypeError, "must hold real numbers.*<U1"),
    "complex": ("csr_array", np.ones(SIZE) * 1j, TypeError, "must hold.*complex128"),
    "shape": ("csr_array", sp.csr_array(np.ones((5, 6))), ValueError, r"\(6, 5\), got \(5, 6\)"),
    "entries": ("csr_array", sp.csr_array(np.ones(SHAPE)), ValueError, "30 stored.*11 stored"),
    "zero": ("triplets", [1.0] * 2 + [0.0] * 9, ValueError, "positive.*got 0.0 at row 4, column 1"),
    "negative": ("triplets", [1.0] * 9 + [-2, 1], ValueError, "got -2.0 at row 1, column 2"),
    "NaN": ("triplets", [1.0] * 10 + [np.nan], ValueError, "got nan at row 1, column 0"),
    "infinite": ("triplets", [np.inf] * SIZE, ValueError, "got inf at row 4, column 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_WEIGHTS)
def test_wrong_weights_are_refused(case):
    form, weights, error, message = WRONG_WEIGHTS[case]
    R, _ = FORMS[form]()
    before = snapshot((R, weights))
    with pytest.raises(error, match=f"weights.*{message}"):
        observe(R, weights=weights)
    assert snapshot((R, weights)) == before


# --- corrupt structures: refused before a compiled loop follows them -------------------------


CORRUPT = {
    "csr_array": [
        ("indptr", [0, 3, 2, 5, 5, 8, 11]), ("indptr", [1, 3, 5, 5, 5, 8, 11]),
        ("indptr", [0, 3, 5, 5, 5, 8, 11, 11]), ("indices", [N] * SIZE), ("indices", [-1] * SIZE),
        ("indices", [0] * (SIZE - 1)), ("data", [1.0] * (SIZE - 1)),
    ],
    "csc_array": [
        ("indptr", [0, 3, 11]), ("indptr", [0, 3, 5, 8, 11, 99]), ("indices", [M] * SIZE),
    ],
    "coo_array": [
        ("row", [M] * SIZE), ("col", [-1] * SIZE), ("data", [1.0] * (SIZE - 1)),
        ("row", [0] * (SIZE - 1)),
    ],
    "bsr_array": [("indices", [N] * len(BLOCKS)), ("indptr", [0, 3, 3, 9])],
    "dia_array": [("offsets", [0])],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "name", "values"), [(form, *case) for form, cases in CORRUPT.items() for case in cases]
)
def test_corrupt_sparse_structures_are_refused(form, name, values, monkeypatch):
    R, _ = FORMS[form]()
    setattr(R, name, np.array(values))

    def follow(*_):
        raise AssertionError("a corrupt structure reached the compiled loop")

    monkeypatch.setattr("fastemf.sources.grouping.launch", follow)
    with pytest.raises((ValueError, IndexError)):
        observe(R)


# --- properties -----------------------------------------------------------------------------

CELLS = (st.integers(0, M - 1), st.integers(0, N - 1))
VALUES = st.integers(-800, 800).filter(bool).map(lambda i: i / 8)
WEIGHTS = st.integers(1, 40).map(lambda i: i / 4)
WEIGHTED = st.lists(st.tuples(*CELLS, VALUES, WEIGHTS), min_size=1, max_size=30)


def observe_weighted(entries):
    rows, cols, values, weights = (list(part) for part in zip(*entries, strict=True))
    return observe((rows, cols, values), weights=weights, shape=SHAPE)


@given(WEIGHTED)
def test_entries_by_row_equal_those_by_column_equal_the_input(entries):
    observed = observe_weighted(entries)
    assert_holds(observed, SHAPE, entries)
    by_row = [(i, *cell) for i, row in enumerate(read(observed.by_row)) for cell in row]
    by_col = [(c[0], j, *c[1:]) for j, col in enumerate(read(observed.by_col)) for c in col]
    assert sorted(by_row) == sorted(by_col) == sorted(entries)


@given(WEIGHTED.flatmap(lambda entries: st.tuples(st.just(entries), st.permutations(entries))))
def test_a_permutation_changes_only_the_order(both):
    one, other = (observe_weighted(entries) for entries in both)
    for side, permuted in ((one.by_row, other.by_row), (one.by_col, other.by_col)):
        assert side.indptr.tolist() == permuted.indptr.tolist()
        assert side.mass.tolist() == permuted.mass.tolist()
        assert [sorted(g) for g in read(side)] == [sorted(g) for g in read(permuted)]


# --- subsets --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["triplets", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_subset_equals_observing_only_those_entries(form, dtype, weighted):
    rng = np.random.default_rng(5)
    rows, cols = rng.integers(M, size=40), rng.integers(N, size=40)  # unsorted, with repeats
    values, weights = rng.random(40).astype(dtype), rng.random(40) + 0.5
    if form != "triplets":
        order = np.argsort(rows if form == "csr" else cols, kind="stable")
        rows, cols, values, weights = rows[order], cols[order], values[order], weights[order]

    def seen(part):
        i, j, b = rows[part], cols[part], values[part]
        v = weights[part] if weighted else None
        if form == "triplets":
            return observe((i, j, b), weights=v, shape=SHAPE)
        pointers = np.cumsum(np.bincount(i if form == "csr" else j, minlength=6))
        pointers = np.concatenate([[0], pointers])[: (M if form == "csr" else N) + 1]
        kind = sp.csr_array if form == "csr" else sp.csc_array
        return observe(kind((b, j if form == "csr" else i, pointers), shape=SHAPE), weights=v)

    by_row = np.argsort(rows, kind="stable")
    for share in (0.1, 0.5, 1.0):
        kept = rng.random(40) <= share
        assert_same_entries(seen(slice(None)).subset(kept[by_row]), seen(kept))


@pytest.mark.parametrize("mask", [np.zeros(SIZE, bool), np.ones(SIZE - 1, bool)])
def test_invalid_subset_masks(mask):
    with pytest.raises(ValueError, match=f"mask must keep at least one of the {SIZE}"):
        observe(columns(ENTRIES)).subset(mask)
