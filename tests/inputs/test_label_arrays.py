"""Labels in model files: round trips, and errors for damaged labels."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastemf
from fastemf import Labels
from fastemf.inputs.label_arrays import from_arrays, to_arrays

NAMES = st.none() | st.text(max_size=5)
KINDS = st.one_of(
    st.lists(st.text(), unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
    st.lists(st.integers(0, 2**64 - 1), unique=True),
    st.lists(st.dates(), unique=True),
    st.lists(st.datetimes(), unique=True),
)


@given(KINDS, NAMES)
def test_labels_round_trip(values, name):
    labels = Labels(values, name)
    about, arrays = to_arrays(labels)
    assert all(array.dtype.kind in "iu" for array in arrays)
    again = from_arrays(json.loads(json.dumps(about)), *arrays, len(values))
    assert again == labels
    assert again.values.tolist() == labels.values.tolist()


ROWS = Labels(["eu-7", "Zürich", "x\0"], "client")
COLS = [
    Labels([5, -(2**63)], "service"),
    Labels([5, 2**64 - 1]),
    Labels(np.array(["1969", "2300"], "datetime64[D]"), "day"),
    Labels(np.array([1, -5], "datetime64[ns]")),
]


def model(cols):
    R = np.array([[1.0, 2.0], [2.0, 4.5], [3.0, np.nan]])
    fit = fastemf.complete(R, 0.3, 1, reg=0.1, tol=0.1)
    rows, cols = replace(fit.rows, labels=ROWS), replace(fit.cols, labels=cols)
    return replace(fit, rows=rows, cols=cols)


@pytest.mark.parametrize("cols", COLS, ids=lambda labels: labels.kind)
def test_a_labelled_model_round_trips(cols, tmp_path):
    fit = model(cols)
    fit.save(tmp_path / "model.npz")
    again = fastemf.load(tmp_path / "model.npz")
    assert again.row_labels == ROWS
    assert again.col_labels == cols
    assert again.predict("Zürich", cols.values[1]) == fit.to_dense()[1, 1]
    assert repr(again) == repr(fit)


@pytest.fixture
def bad(tmp_path):
    """Load a labelled model with changed header fields and arrays; None removes one."""
    model(COLS[2]).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        content = dict(file)

    def load(about=None, **arrays):
        header = json.loads(content["header"].tobytes()) | (about or {})
        changed = content | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        changed |= arrays
        path = tmp_path / "bad.npz"
        np.savez(path, **{key: array for key, array in changed.items() if array is not None})
        return fastemf.load(path)

    return load


def utf8(*texts):
    joined = b"".join(texts)
    return np.frombuffer(joined, np.uint8), np.cumsum([0, *map(len, texts)])


def strings(content, offsets):
    return {"row_labels": content, "row_label_offsets": np.asarray(offsets, np.int64)}


def described(kind, name=None, side="row"):
    """Another description of the labels in the header."""
    return {"about": {f"{side}_labels": {"kind": kind, "name": name}}}


GOOD = utf8(b"a", b"b", b"c")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (strings(*utf8(b"a", b"\xff", b"c")), "UTF-8"),
        (strings(*utf8(b"a", b"\xc3", b"\xbc")), "UTF-8"),  # one letter cut in two
        (strings(*utf8(b"a", b"\xed\xa0\x80", b"c")), "UTF-8"),  # a surrogate
        (strings(*utf8(b"a", b"b", b"a")), "distinct, got 'a' 2 times"),
        (strings(*utf8(b"a", b"b")), "labels must be 3, got 2"),
        (strings(GOOD[0], [0, 2, 1, 3]), "offsets of labels must increase"),
        (strings(GOOD[0], [1, 1, 2, 3]), "offsets of labels must increase"),
        (strings(GOOD[0], [0, 1, 2, 4]), "offsets of labels must increase"),
        (strings(GOOD[0], [0, 1, 2, 2]), "offsets of labels must increase"),
        (strings(GOOD[0], []), "offsets of labels must increase"),
        (strings(GOOD[0].astype(np.int64), GOOD[1]), "must be bytes"),
        ({"row_label_offsets": np.zeros(4)}, "offsets of labels must be int64"),
        ({"row_labels": None}, "array 'row_labels' is missing"),
        ({"row_label_offsets": None}, "array 'row_label_offsets' is missing"),
        ({"col_labels": np.array([1, 1])}, "distinct"),
        ({"col_labels": np.array([1, -(2**63)])}, "no nulls"),  # not a time
        ({"col_labels": np.array([1])}, "labels must be 2, got 1"),
        ({"col_labels": np.array([1.0, 2.0])}, "must be one array of int64"),
        ({"col_labels": np.array([[1], [2]])}, "must be one array of int64"),
        ({"col_label_offsets": np.array([1])}, "must be one array of int64"),
        ({"about": {"row_labels": None}}, "array 'row_label.*' is unknown"),
        ({"about": {"row_labels": "str"}}, "must have a kind and a name"),
        ({"about": {"row_labels": {}}}, "must have a kind and a name"),
        ({"about": {"row_labels": {"kind": "str"}}}, "must have a kind and a name"),
        (described("object"), "kind of labels must be one of"),
        (described(["str"]), "kind of labels must be one of"),
        (described("str", name=3), "name of labels must be a string"),
        (described("uint64", side="col"), "must be one array of uint64"),
        (described("str", side="col"), "must be bytes"),
    ],
)
def test_damaged_labels_are_refused(changes, message, bad):
    with pytest.raises(fastemf.ModelFileError, match=message):
        bad(**changes)
