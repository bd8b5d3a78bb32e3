"""Tables in files: what is written comes back, and what is wrong is named by its line."""

from __future__ import annotations

import io
import sys

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import sparse_array

import fastemf
from fastemf.inputs import table_files
from fastemf.observations.memory import observe

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
COLUMNS = {
    "client": ["eu-7", "us-1", "eu-7", 'a "b", c', "Zürich"],
    "service": [3, 1, 1, -2, 3],
    "ms": [1.5, 2.0, 0.1, 1e-300, 7.25],
}
TABLES = [".csv", ".tsv", ".parquet", ".CSV"]


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def assert_holds_columns(observed):
    expected = observe(pa.table(COLUMNS), **NAMES)
    assert observed.row_labels == expected.row_labels
    assert observed.col_labels == expected.col_labels
    np.testing.assert_array_equal(observed.by_row.values, expected.by_row.values)
    np.testing.assert_array_equal(observed.by_row.indices, expected.by_row.indices)


# --- round trips ---------------------------------------------------------------------------


@pytest.mark.parametrize("extension", TABLES)
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_tables_come_back(extension, kind, tmp_path):
    path = kind(tmp_path / f"log{extension}")
    table_files.write_table(path, COLUMNS)
    assert_holds_columns(observe(path, **NAMES))


def test_open_files_and_standard_streams(monkeypatch, capsysbinary):
    text = io.StringIO()
    table_files.write_table(text, COLUMNS)
    assert_holds_columns(observe(io.StringIO(text.getvalue()), **NAMES))
    binary = io.BytesIO()
    table_files.write_table(binary, COLUMNS)
    assert_holds_columns(observe(io.BytesIO(binary.getvalue()), **NAMES))
    table_files.write_table("-", COLUMNS)
    assert capsysbinary.readouterr().out == binary.getvalue()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(binary.getvalue())))
    assert_holds_columns(observe("-", **NAMES))


@pytest.mark.parametrize("extension", [".mtx", ".mtx.gz", ".npz"])
def test_sparse_matrices_come_back(extension, tmp_path):
    rng = np.random.default_rng(0)
    R = sparse_array((7, 5), 0.5, "coo", rng)
    path = tmp_path / f"R{extension}"
    if extension == ".npz":
        sp.save_npz(path, R.tocsr())
    elif extension == ".mtx":
        scipy.io.mmwrite(path, R, precision=17)
    else:
        import gzip

        with gzip.open(path, "wb") as file:
            scipy.io.mmwrite(file, R, precision=17)
    found, expected = observe(path), observe(R.tocsr())
    assert found.shape == expected.shape
    assert found.row_labels is None
    for i in range(7):
        part = slice(*expected.by_row.indptr[i : i + 2])
        ours, theirs = (
            dict(zip(side.indices[part], side.values[part], strict=True))
            for side in (found.by_row, expected.by_row)
        )
        assert ours == theirs
    with pytest.raises(ValueError, match="name the columns of a table"):
        observe(path, **NAMES)


def test_a_fit_from_a_file(tmp_path):
    path = tmp_path / "log.csv"
    table_files.write_table(path, COLUMNS)
    fit = fastemf.complete(path, 0.3, 1, **NAMES)
    same = fastemf.complete(pa.table(COLUMNS), 0.3, 1, **NAMES)
    np.testing.assert_array_equal(fit.X, same.X)
    assert fit.objective(path, values="ms") == same.objective(pa.table(COLUMNS), values="ms")
    assert fit.fold_in(path, values="ms").row_labels == fit.row_labels


# --- the labels of a CSV file --------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "20", "-3", "0"], "int64"),
        (["1", "007"], "str"),
        (["0", "-0"], "str"),
        (["1", "+2"], "str"),
        (["1", "2.0"], "str"),
        (["1", "x"], "str"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808", "1"], "str"),
        (["2024-01-01", "2024-01-02"], "str"),
        (["true", "null"], "str"),
    ],
)
def test_labels_are_integers_only_where_all_are(cells, kind, tmp_path):
    text = "client,service,ms\n" + "".join(f"{cell},a,1\n" for cell in cells)
    labels = observe(written(tmp_path / "log.csv", text), **NAMES).row_labels
    assert labels.kind == kind
    assert [str(label) for label in labels.values] == cells


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_any_text_survives_a_csv_file(texts):
    texts = [f"x{text}" for text in texts]  # not a number, not empty
    out = io.BytesIO()
    table_files.write_table(out, {"client": texts, "service": texts, "ms": np.ones(len(texts))})
    found = table_files.read_file(io.BytesIO(out.getvalue()), ["client"], []).content
    assert found.column("client").to_pylist() == texts


# --- what is wrong -------------------------------------------------------------------------

HEAD = "client,service,ms\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"log\.csv: expected a table: it is empty"),
        (HEAD, r"log\.csv: expected lines after the header, got none"),
        ("client,ms\na,1\n", "has no column 'service'; it has 'client', 'ms'"),
        ("client,client,service,ms\na,a,b,1\n", "more than one column 'client'"),
        (
            HEAD + "a,b,1\na,b,fast\na,b,slow\n",
            r"column 'ms' must hold numbers, got 'fast' at line 3",
        ),
        (HEAD + "a,b,1\n\n\na,b,1;5\n", r"column 'ms' must hold numbers, got '1;5' at line 5"),
        (
            HEAD + "a,b,1\na,b,\na,b,\n",
            "column 'ms' must have no nulls, got 2 nulls, first at line 3",
        ),
        (HEAD + "a,b,1\na,b,NaN\n", "column 'ms' must have no nulls, got 1 null, first at line 3"),
        (HEAD + "a,b,1\n,b,1\n", "column 'client' must have no nulls, got 1 null, first at line 3"),
        (HEAD + '"a\n\na",b,1\na,b,x\n', r"column 'ms' must hold numbers, got 'x' at line 5"),
        (HEAD + "a,b,inf\n", "finite where it is observed, got inf at line 2"),
        (HEAD + "a,b\n", r"log\.csv: expected a table: .*Expected 3 columns, got 2"),
    ],
)
def test_a_bad_csv_file_is_named_by_its_line(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        observe(written(tmp_path / "log.csv", text), **NAMES)
    assert "log.csv" in str(caught.value)


def test_blanks_around_numbers_and_byte_order_marks_are_harmless(tmp_path):
    path = written(tmp_path / "log.csv", "\ufeff" + HEAD + "a,b, 1.5 \nc,d,2\n")
    assert observe(path, **NAMES).by_row.values.tolist() == [1.5, 2]


def test_latin_1_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes((HEAD + "Zürich,b,1\n").encode("latin-1"))
    with pytest.raises(ValueError, match=r"log\.csv"):
        observe(path, **NAMES)


@pytest.mark.parametrize("extension", [".parquet", ".mtx", ".npz"])
def test_damaged_files_are_named(extension, tmp_path):
    path = written(tmp_path / f"log{extension}", "something else")
    names = NAMES if extension == ".parquet" else {}
    with pytest.raises(ValueError, match=f"log{extension}: expected"):
        observe(path, **names)


def test_an_empty_parquet_file_and_missing_columns(tmp_path):
    path = tmp_path / "log.parquet"
    table_files.write_table(path, {name: column[:0] for name, column in COLUMNS.items()})
    with pytest.raises(ValueError, match="expected rows, got none"):
        observe(path, **NAMES)
    with pytest.raises(ValueError, match=r"log\.parquet has no column 'x'; it has 'client'"):
        observe(path, **NAMES | {"cols": "x"})
    with pytest.raises(ValueError, match=r"must name columns of .*log\.parquet; it has 'client'"):
        observe(path)


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: no such file"):
        observe(tmp_path / "nowhere.csv", **NAMES)
    (tmp_path / "log.xlsx").touch()
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet, \.mtx"):
        observe(tmp_path / "log.xlsx", **NAMES)
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet$"):
        table_files.write_table(tmp_path / "log.npz", COLUMNS)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="folder"):
        observe(tmp_path / "folder.csv", **NAMES)


def test_labels_of_a_later_csv_file_are_what_those_of_the_fit_are(tmp_path):
    text = "client,service,ms\n1,a,1\neu,a,2\n1,b,3\neu,b,4\n"
    first = written(tmp_path / "first.csv", text)
    later = written(tmp_path / "later.csv", "client,service,ms\n1,a,1\n1,b,3\n")
    fit = fastemf.complete(first, 0.5, 1, validation=later, **NAMES)
    expected = fit.objective((["1", "1"], ["a", "b"], [1.0, 3.0]))
    assert fit.objective(later, values="ms") == pytest.approx(expected, rel=1e-12)


def test_foreign_csv_files_are_recognised(tmp_path):
    german = written(tmp_path / "de.csv", "client;service;ms\na;b;1,5\nc;d;2,5\n")
    with pytest.raises(ValueError, match="its header looks separated by ';'"):
        observe(german, rows="client;service;ms", cols="x", values="y")
    latin = tmp_path / "latin.csv"
    latin.write_bytes("client,service,ms\nZürich,a,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="save the file as UTF-8"):
        observe(latin, **NAMES)
