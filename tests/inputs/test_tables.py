"""Tables of any library: a labelled fit equals the fit of the numbered entries."""

import datetime
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import fastemf
from fastemf.datasets import split
from fastemf.sources.memory import observe

RNG = np.random.default_rng(5)
SIZE = 70
NAMES = {"rows": "client", "cols": "service", "values": "ms"}
ROWS = RNG.permutation(np.r_[np.arange(8), RNG.integers(0, 8, SIZE - 8)])
COLS = RNG.permutation(np.r_[np.arange(6), RNG.integers(0, 6, SIZE - 6)])
MS = RNG.gamma(2.0, 10.0, SIZE)
WEIGHTS = RNG.integers(1, 4, SIZE).astype(float)
DAY = datetime.datetime(2024, 2, 29)

KINDS = {
    "strings": lambda i: f"näme-{7 * i % 11}",
    "integers": lambda i: 10**12 - 37 * i,
    "times": lambda i: DAY + datetime.timedelta(minutes=17 * (i % 5) - 1000 * i),
}


def columns(kind="strings"):
    label = KINDS[kind]
    return {
        "client": [label(int(i)) for i in ROWS],
        "service": [label(int(j)) for j in COLS],
        "ms": MS,
        "n": WEIGHTS,
    }


def as_pandas(data, categorical=False):
    table = pd.DataFrame(data, index=RNG.permutation(SIZE))  # which must not matter
    return table.astype({"client": "category", "service": "category"}) if categorical else table


def as_polars(data, categorical=False):
    table = pl.DataFrame(data)
    if categorical:
        table = table.with_columns(pl.col("client", "service").cast(pl.Categorical))
    return table


def as_arrow(data, categorical=False):
    table = pa.table(data)
    table = pa.concat_tables([table[:31], table[31:]])  # in chunks
    if categorical:
        for at, name in enumerate(("client", "service")):
            table = table.set_column(at, name, table.column(name).dictionary_encode())
    return table


LIBRARIES = {"pandas": as_pandas, "polars": as_polars, "pyarrow": as_arrow}
FORMS = [
    (library, kind, categorical)
    for library in LIBRARIES
    for kind in KINDS
    for categorical in (False, True)
    if not (categorical and library == "polars" and kind != "strings")  # polars has no others
]


def first_appearance(items):
    """Distinct items and codes by np.unique, renumbered."""
    _, first, inverse = np.unique(items, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [items[at] for at in first[order]], np.argsort(order)[inverse]


def numbered(data):
    """The triplets of a table."""
    row_labels, rows = first_appearance(data["client"])
    col_labels, cols = first_appearance(data["service"])
    return (rows, cols, data["ms"]), row_labels, col_labels


def fit_of(R, **options):
    return fastemf.complete(R, 0.2, 2, intercepts=True, tol=1e-2, **options)


@pytest.fixture(scope="module")
def fit():
    return fit_of(as_arrow(columns()), **NAMES)


# --- the identity --------------------------------------------------------------------------


@pytest.mark.parametrize(("library", "kind", "categorical"), FORMS)
def test_a_table_equals_its_triplets(library, kind, categorical):
    data = columns(kind)
    table = LIBRARIES[library](data, categorical)
    triplets, row_labels, col_labels = numbered(data)
    labelled = fit_of(table, **NAMES, weights="n")
    plain = fit_of(triplets, weights=WEIGHTS)
    np.testing.assert_array_equal(labelled.X, plain.X)
    np.testing.assert_array_equal(labelled.Y, plain.Y)
    assert labelled.row_labels.values.tolist() == row_labels
    assert labelled.col_labels.values.tolist() == col_labels
    assert (labelled.row_labels.name, labelled.col_labels.name) == ("client", "service")

    expected = plain.predict(triplets[0], triplets[1])
    np.testing.assert_array_equal(labelled.predict(data["client"], data["service"]), expected)
    np.testing.assert_array_equal(labelled.predict(table["client"], table["service"]), expected)
    np.testing.assert_array_equal(labelled.predict(table), expected)
    expected = plain.predict_block([2, 3])
    np.testing.assert_array_equal(labelled.predict_block(row_labels[2:4]), expected)
    np.testing.assert_array_equal(labelled.predict_block(row_labels[5]), plain.predict_block(5))
    expected = plain.objective(triplets, weights=WEIGHTS)
    assert labelled.objective(table, values="ms", weights="n") == expected
    assert labelled.effective_omega(table, values="ms") == plain.effective_omega(triplets)
    assert labelled.objective((data["client"], data["service"], MS)) == plain.objective(triplets)


class Foreign:
    """A table of an unknown library that supports Arrow's protocol."""

    def __init__(self, table):
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_any_table_with_the_protocol_of_arrow_is_accepted(fit):
    foreign = Foreign(as_arrow(columns()))
    np.testing.assert_array_equal(fit_of(foreign, **NAMES).X, fit.X)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("client", r"column 'client' must hold integers, strings or dates as labels, .* at row 0"),
        ("ms", "column 'ms' must hold numbers"),
    ],
)
def test_complex_numbers_are_refused(name, match):
    table = pd.DataFrame({"client": ["a", "b"], "service": [1, 2], "ms": [1.0, 2.0], name: [1j, 2]})
    with pytest.raises(TypeError, match=match):
        observe(table, **NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_frame_equals_its_matrix(kind):
    data = pd.DataFrame(columns(kind))
    wide = data.pivot_table(index="client", columns="service", values="ms")
    assert wide.isna().to_numpy().any()
    labelled, plain = fit_of(wide), fit_of(wide.to_numpy())
    np.testing.assert_array_equal(labelled.X, plain.X)
    assert labelled.row_labels == fastemf.Labels(wide.index.to_numpy(), "client")
    assert labelled.col_labels == fastemf.Labels(wide.columns.to_numpy(), "service")
    expected = plain.predict(3, np.arange(wide.shape[1]))
    np.testing.assert_array_equal(labelled.predict(wide.index[3], wide.columns), expected)
    shuffled = wide.iloc[::-1, ::-1]
    expected = plain.objective(wide.to_numpy())
    assert labelled.objective(shuffled) == pytest.approx(expected, rel=1e-12)
    expected = plain.objective(wide.to_numpy(), weights=np.full(wide.shape, 2.0))
    doubled = 2 * wide.notna().astype(float)
    assert labelled.objective(wide, weights=doubled) == pytest.approx(expected)
    with pytest.raises(ValueError, match="weights must have the index"):
        fit_of(wide, weights=shuffled)


def test_a_wide_frame_of_nullable_numbers():
    wide = pd.DataFrame({"a": [1, None, 3], "b": [2, 5, None]}, dtype="Int64")
    observed = observe(wide)
    assert observed.by_row.values.tolist() == [1, 2, 5, 3]
    assert observed.row_labels.values.tolist() == [0, 1, 2]


def test_triplets_without_column_names_cause_a_warning():
    with pytest.raises(TypeError, match=r"got column 'client' of dtype .* name them by rows="):
        observe(pd.DataFrame(columns()))
    with pytest.warns(UserWarning, match="names rows=, cols= and values="):
        observe(pd.DataFrame({"client": ROWS, "service": COLS, "ms": MS}))


def test_labels_that_are_numbers_are_labels():
    table = pa.table({"client": [7, 3, 7, 0], "service": [1, 1, 0, 0], "ms": [1.0, 2.0, 3.0, 4.0]})
    fit = fastemf.complete(table, 0.5, 1, **NAMES, reg=0.1)
    assert fit.row_labels.values.tolist() == [7, 3, 0]
    np.testing.assert_allclose(fit.predict_block(0), fit.to_dense()[[2]], rtol=1e-12)
    assert fit.predict(7, 1) == pytest.approx(fit.to_dense()[0, 0], rel=1e-12)
    with pytest.raises(ValueError, match=r"unknown labels: 1 in rows \(1\)"):
        fit.predict(1, 1)


def test_the_number_of_threads_does_not_matter():
    one, two = (observe(as_arrow(columns()), **NAMES, n_threads=n) for n in (1, 2))
    assert one.row_labels == two.row_labels
    np.testing.assert_array_equal(one.by_col.indices, two.by_col.indices)


def test_observations_keep_their_labels(fit):
    observed = observe(as_arrow(columns()), **NAMES)
    again = fit_of(observed)
    assert again.row_labels == fit.row_labels
    np.testing.assert_array_equal(again.X, fit.X)
    assert again.objective(observed) == fit.objective(as_arrow(columns()), values="ms")
    other = observe(as_arrow(columns("integers")), **NAMES)
    with pytest.raises(ValueError, match="other labels"):
        fit.objective(other)
    train, test = split(observed, 0.8, random_state=0)
    assert train.nnz + test.nnz == SIZE
    assert train.shape == observed.shape


# --- unknown labels ------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_unknown_labels_are_one_error(library, fit):
    known = columns()
    data = {"client": ["who", *known["client"][1:]], "service": [*known["service"][:-1], "what"]}
    data |= {"ms": MS, "n": WEIGHTS}
    table = LIBRARIES[library](data)
    message = r"^unknown labels: 1 in rows \('who'\) and 1 in cols \('what'\)$"
    for call in (
        lambda: fit.predict(data["client"], data["service"]),
        lambda: fit.predict(table),
        lambda: fit.objective(table, values="ms"),
        lambda: fit.effective_omega(table, values="ms"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    found = fit.predict(table, unknown="nan")
    assert np.isnan(found).tolist() == [True, *[False] * (SIZE - 2), True]
    np.testing.assert_array_equal(found[1:-1], fit.predict(as_arrow(known))[1:-1])


def test_predict_on_a_table_needs_labels_with_names(fit):
    plain = fit_of((ROWS, COLS, MS))
    with pytest.raises(TypeError, match="no labels"):
        plain.predict(as_arrow(columns()))
    with pytest.raises(ValueError, match="no labels to match a table by"):
        plain.objective(as_arrow(columns()), **NAMES)
    wide = pd.DataFrame(columns()).pivot_table("ms", "client", "service")
    unnamed = fit_of(wide.rename_axis(index=None, columns=None))
    assert "labels, reg" in repr(unnamed)
    with pytest.raises(ValueError, match="no column names"):
        unnamed.predict(as_arrow(columns()))
    with pytest.raises(ValueError, match="no column 'service'; it has 'client', 'ms', 'n'"):
        fit.predict(as_arrow(columns()).drop_columns(["service"]))


# --- fold-in and warm starts ----------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("library", LIBRARIES)
def test_folding_in_a_table(library, axis):
    data = columns()
    fit = fit_of(as_arrow(data), **NAMES)
    side = ("client", "service")[axis]
    data[side] = [f"new {label}" for label in data[side]]
    new = fit.fold_in(LIBRARIES[library](data), axis=axis, values="ms")
    (rows, cols, ms), *labels = numbered(data)
    plain = fit_of((rows, cols, ms)).fold_in((rows, cols, ms), axis=axis)
    np.testing.assert_array_equal(new.to_dense(), plain.to_dense())
    assert (new.row_labels, new.col_labels)[axis].values.tolist() == labels[axis]
    assert (new.row_labels, new.col_labels)[axis].name == side
    assert (new.row_labels, new.col_labels)[1 - axis] == (fit.row_labels, fit.col_labels)[1 - axis]
    by_triplets = fit.fold_in((data["client"], data["service"], ms), axis=axis)
    assert by_triplets.row_labels == new.row_labels
    assert by_triplets.col_labels == new.col_labels
    np.testing.assert_array_equal(by_triplets.to_dense(), new.to_dense())


def test_folding_in_a_matrix_numbers_its_rows(fit):
    new = fit.fold_in(np.full((2, 6), 3.0))
    assert new.row_labels == fastemf.Labels([0, 1], "client")
    predicted = new.predict(1, columns()["service"][0])
    assert predicted == pytest.approx(new.to_dense()[1, 0], rel=1e-12)


def test_a_warm_start_matches_labels():
    data = columns()
    old = fastemf.complete(as_arrow(data), 0.2, 2, **NAMES, reg=0.1, tol=1e-2)
    order = RNG.permutation(SIZE)
    shuffled = pa.table({name: np.asarray(column)[order] for name, column in data.items()})
    observed = observe(shuffled, **NAMES)
    theirs = old.row_labels.positions(observed.row_labels.values)
    assert theirs.tolist() != sorted(theirs)
    pair = (old.X[theirs], old.Y[old.col_labels.positions(observed.col_labels.values)])
    by_label, by_hand = (
        fastemf.complete(observed, 0.2, 2, init=init, reg=0.1, tol=1e-2) for init in (old, pair)
    )
    np.testing.assert_array_equal(by_label.X, by_hand.X)
    np.testing.assert_array_equal(by_label.Y, by_hand.Y)


def test_a_warm_start_may_have_more_and_fewer_rows():
    data = columns()
    old = fit_of(as_arrow(data), **NAMES)
    fewer = as_arrow(data).filter(pa.array(np.array(data["client"]) != data["client"][0]))
    new = pa.table({"client": ["new"], "service": [data["service"][0]], "ms": [20.0], "n": [1.0]})
    again = fit_of(pa.concat_tables([new, fewer]), **NAMES, init=old, max_iter=50)
    assert again.shape == old.shape  # one went, one came
    assert again.row_labels.values[0] == "new"
    assert data["client"][0] not in again.row_labels.values
    with pytest.raises(TypeError, match="row labels must be strings"):
        fit_of(as_arrow(columns("integers")), **NAMES, init=old)


# --- bad tables ----------------------------------------------------------------------------


def changed(name, column, library="pyarrow"):
    return LIBRARIES[library](columns() | {name: column})


def holed(items, *places):
    return [None if at in places else item for at, item in enumerate(items)]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["client", "ms", "n"])
def test_nulls_are_counted(library, name):
    table = changed(name, holed(columns()[name], 4, 9), library)
    with pytest.raises(ValueError, match=f"'{name}' must have no nulls, got 2 .* at row 4"):
        observe(table, **NAMES, weights="n")


def test_nan_is_null_and_infinity_is_an_error():
    def with_one(array, at, value):
        return np.r_[array[:at], value, array[at + 1 :]]

    for library in LIBRARIES:
        with pytest.raises(ValueError, match="'ms' must have no nulls, got 1 null, first at row 3"):
            observe(changed("ms", with_one(MS, 3, np.nan), library), **NAMES)
    for name, column, message in (
        ("ms", with_one(MS, 3, np.inf), "finite where it is observed, got inf at row 3 of the tab"),
        ("n", with_one(WEIGHTS, 5, 0), "positive in float64, got 0.0 at row 5 of the table"),
    ):
        with pytest.raises(ValueError, match=message):
            observe(changed(name, column), **NAMES, weights="n")


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("client", MS, "column 'client' must hold integers, strings or dates .* got type double"),
        ("client", [True] * SIZE, "column 'client' .* got type bool"),
        ("service", [b"x"] * SIZE, "column 'service' .* got type binary"),
        ("ms", ["12"] * SIZE, "column 'ms' must hold numbers, got type string"),
        ("n", ["12"] * SIZE, "column 'n' must hold numbers, got type string"),
    ],
)
def test_columns_of_the_wrong_type_are_named(name, column, message):
    with pytest.raises(TypeError, match=message):
        observe(changed(name, column), **NAMES, weights="n")


def test_mixed_types_are_an_error():
    for name in ("client", "ms"):
        mixed = pd.Series(["a", 1] * (SIZE // 2), dtype=object)
        table = pd.DataFrame(columns()).assign(**{name: mixed})
        with pytest.raises(TypeError, match=f"column '{name}' must"):
            observe(table, **NAMES)
    wide = pd.DataFrame(np.ones((3, 2)), columns=["a", 1])
    with pytest.raises(TypeError, match=r"cols must .* of one type, got int, str"):
        observe(wide)
    tuples = pd.DataFrame(np.ones((2, 2)), index=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
    with pytest.raises(TypeError, match=r"rows must .* got tuple"):
        observe(tuples)


@pytest.mark.parametrize("library", LIBRARIES)
def test_errors_list_the_column_names(library):
    table = LIBRARIES[library](columns())
    listed = "it has 'client', 'service', 'ms', 'n'"
    for wrong, message in [
        ({"rows": "customer"}, f"no column 'customer'; {listed}"),
        ({"values": None}, f"rows=, cols= and values= must name columns .*; {listed}"),
        ({"weights": "w"}, f"no column 'w'; {listed}"),
        ({"rows": 3}, "column names must be strings, got 3"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            observe(table, **NAMES | wrong)


def test_other_misuse_is_an_error():
    table = as_arrow(columns())
    twice = pd.DataFrame(np.ones((2, 3)), columns=["a", "a", "b"])
    for R, options, message in (
        (table, {}, "must name columns of the table; it has 'client'"),
        (table, NAMES | {"shape": (8, 6)}, "shape is for triplets"),
        (np.ones((3, 3)), NAMES, "name the columns of a table, got .* type ndarray"),
        (table[:0], NAMES, "without rows"),
        (pd.DataFrame(), {}, "at least one observation"),
        (table, NAMES | {"weights": [1.0]}, "one per observation"),
        (pl.Series(["a"]), NAMES, "table with named columns"),
        (twice, {"rows": "a", "cols": "b", "values": "a"}, "more than one column 'a'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            observe(R, **options)


@pytest.mark.subprocess
def test_a_table_without_pyarrow_names_the_extra():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas as pd\n"
        "from fastemf.sources.memory import observe\n"
        "wide = observe(pd.DataFrame([[1.0, 2.0]], index=['a'], columns=['x', 'y']))\n"
        "assert wide.row_labels.values.tolist() == ['a']\n"
        "table = pd.DataFrame({'a': ['x'], 'b': ['y'], 'c': [1.0]})\n"
        "try:\n    observe(table, rows='a', cols='b', values='c')\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    settings = {"env": os.environ | {"NUMBA_DISABLE_JIT": "1"}, "capture_output": True}
    ran = subprocess.run([sys.executable, "-c", code], text=True, **settings)
    assert ran.stdout == "tables need duckdb and pyarrow: pip install 'fastemf[table]'\n", (
        ran.stderr
    )


def test_validation_of_a_table_may_be_any_entries():
    data = pa.table(columns())
    rows, cols = (data.column(name).to_pylist() for name in ("client", "service"))
    inner = observe(data, **NAMES)
    held = sp.coo_array((inner.by_row.values, (inner.by_row.keys, inner.by_row.indices)))
    fits = [
        fastemf.complete(data, 0.3, 2, validation=judge, reg=0.1, tol=1, **NAMES)
        for judge in (data, (rows, cols, MS), held)
    ]
    losses = [[record.validation_loss for record in fit.history] for fit in fits]
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-12)
    assert not np.isnan(losses[0]).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", ["index", "columns"])
def test_repeated_labels_of_a_matrix_are_refused(axis, kind, fit):
    labels = [KINDS[kind](i) for i in (0, 1, 2)]
    wide = pd.DataFrame(np.arange(9.0).reshape(3, 3) + 1, index=labels, columns=labels)
    wide.iloc[2, 1] = np.nan
    twice = wide.set_axis([labels[0], labels[1], labels[1]], axis=axis)
    named = re.escape(repr(observe(wide).row_labels.values[1]))
    message = f"the {axis} of R as a matrix must have distinct labels, got {named} 2 times"
    fitted = fastemf.complete(wide, 0.5, 1, reg=0.1)
    for call in (
        lambda: fastemf.complete(twice, 0.5, 1),
        lambda: fastemf.complete_levels(twice, (0.2, 0.8), 1),
        lambda: fastemf.select(twice, 0.5, [1]),
        lambda: split(twice, 0.5),
        lambda: fitted.objective(twice),
        lambda: fitted.fold_in(twice, axis=int(axis == "columns")),
        lambda: fitted.rank(None, 2, order="smallest", seen=twice),
        lambda: fastemf.complete(wide, 0.5, 1, validation=twice),
    ):
        with pytest.raises(ValueError, match=message):
            call()
