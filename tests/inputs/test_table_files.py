"""Tables in files: what is written comes back, and what is wrong is named by its line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
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
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet, \.csv\.gz"):
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


def test_what_is_said_of_a_damaged_text_is_one_line(tmp_path):
    for text in ('client,service,ms\na,b,1\n"a,b\nc,d\n', "client,service,ms\na\0\tb\r\n"):
        with pytest.raises(ValueError, match="expected a table: CSV parse error") as caught:
            observe(written(tmp_path / "log.csv", text), **NAMES)
        assert str(caught.value).isprintable()


def test_foreign_csv_files_are_recognised(tmp_path):
    german = written(tmp_path / "de.csv", "client;service;ms\na;b;1,5\nc;d;2,5\n")
    with pytest.raises(ValueError, match="its header looks separated by ';'"):
        observe(german, rows="client;service;ms", cols="x", values="y")
    latin = tmp_path / "latin.csv"
    latin.write_bytes("client,service,ms\nZürich,a,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="save the file as UTF-8"):
        observe(latin, **NAMES)


# --- hostile files -------------------------------------------------------------------------


def refusal(path, names=NAMES, kind=ValueError):
    with pytest.raises(kind) as caught:
        observe(path, **names)
    text = str(caught.value)
    assert str(path) in text
    assert len(text) < 1000
    assert type(caught.value) is kind
    return text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("extension", [".csv", ".parquet", ".mtx", ".npz"])
def test_pipes_are_not_waited_for(extension, tmp_path):
    path = tmp_path / f"pipe{extension}"
    os.mkfifo(path)
    assert "expected a regular file" in refusal(path, kind=OSError)


def test_a_closed_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match=r"^standard input is closed$"):
        observe("-", **NAMES)


def test_long_fields_are_named_by_their_line(tmp_path):
    """Python's csv module, which counts the lines, has a limit for fields."""
    text = f"{HEAD}a,b,1\n{'x' * 300_000},b,fast\n"
    path = written(tmp_path / "log.csv", text)
    limit = csv.field_size_limit()
    assert "got 'fast' at line 3 of" in refusal(path)
    assert csv.field_size_limit() == limit
    path = written(tmp_path / "log.csv", f"{HEAD}a,b,{'9' * 300_000}x\n")
    assert "column 'ms' must hold numbers, got '999" in refusal(path)
    path = written(tmp_path / "log.csv", f"{HEAD}{'x' * 300_000},b,2\n")
    assert observe(path, **NAMES).row_labels.values.tolist() == ["x" * 300_000]


def test_bytes_of_other_columns_do_not_matter(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"client,service,ms,note\na,b,1,\xff\xfe\na,c,2,\0\n")
    assert observe(path, **NAMES).by_row.values.tolist() == [1, 2]
    path.write_bytes(b"client,service,ms,note\na,b,1,\xff\xfe\na,c,fast,\0\n")
    assert "got 'fast' at line 3" in refusal(path)
    path.write_bytes(b"client,service,ms,n\xf6te\na,b,1,x\na,c,2,y\n")
    assert observe(path, **NAMES).by_row.values.tolist() == [1, 2]
    path.write_bytes(b"client,service,n\xf6te\na,b,1\n")
    told = refusal(path)
    assert "has no column 'ms'; it has 'client', 'service', 'n\ufffdte'; save the file as" in told
    shown = table_files.column_names(path)[2]  # by which it cannot be read
    with pytest.raises(ValueError, match="save the file as UTF-8"):
        table_files.read_file(path, ["client"], [shown])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(HEAD.encode()), "compressed by gzip: unpack it"),
        (b"PK\x03\x04" + bytes(100), "a zip archive or an Excel workbook"),
        (b"\xd0\xcf\x11\xe0" + bytes(100), "an Excel workbook"),
        ((HEAD + "a,b,1\n").encode("utf-16"), "UTF-16 text: save it as UTF-8"),
        (b'[{"client": "a", "service": "b", "ms": 1}]\n', "it looks like JSON"),
        (b'{"client": "a", "service": "b", "ms": 1}\n', "it looks like JSON"),
        (b"<html><body>404, 404\n", "it looks like HTML"),
        (b"PAR1\x15\x04", "it looks like Parquet"),
        (b"client,service,m\0s\na,b,1\n", "it holds NUL bytes"),
        (bytes(100), "it holds NUL bytes"),
        (b"cli\xffent,service,ms\na,b,1\n", "save the file as UTF-8"),
        (HEAD.encode() + b"a\xff,b,1\n", "save the file as UTF-8"),
        (b"x" * (3 << 20), "expected a table"),
    ],
    ids=range(13),
)
def test_what_is_no_csv_is_recognised(content, reason, tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    assert reason in refusal(path)


def parquet_file(tmp_path, table):
    path = tmp_path / "log.parquet"
    parquet.write_table(table, path)
    return path


def test_parquet_files_are_named_in_every_refusal(tmp_path):
    for name, column, message, kind in [
        ("ms", ["1", "2"], "column 'ms' must hold numbers", TypeError),
        ("client", [1.5, 2.5], "column 'client' must hold integers", TypeError),
        ("ms", [1.0, None], "first at row 1 of", ValueError),
        ("ms", [1.0, np.inf], "got inf at row 1 of", ValueError),
    ]:
        columns = {"client": ["a", "b"], "service": ["x", "y"], "ms": [1.0, 2.0]} | {name: column}
        assert message in refusal(parquet_file(tmp_path, pa.table(columns)), kind=kind)


def test_text_in_parquet_that_is_no_utf8(tmp_path):
    raw = pa.array([b"a\xff", b"b"]).view(pa.string())
    table = pa.table({"client": raw, "service": ["x", "y"], "ms": [1.0, 2.0]})
    path = parquet_file(tmp_path, table)
    assert "UTF8" in refusal(path).upper().replace("-", "")


MARKET = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line must be"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "['coordinate', 'c"),
        (MARKET, "expected a line with its size, got b''"),
        (MARKET + "2 2\n1 1 1\n", "expected a line with its size"),
        (MARKET + "2 -2 1\n1 1 1\n", "expected a line with its size"),
        (
            MARKET + "2 2 1000000000000\n1 1 1\n",
            "header says 1000000000000 lines of numbers, got 1",
        ),
        (MARKET + "2 2 1\n1 1 1\n2 2 2\n", "header says 1 lines of numbers, got 2"),
        (
            MARKET + "2 2 2\n1 1\n1 2 2 2\n",
            "(in an array, of entries), got b'1 1'",
        ),
        (MARKET + "2 2 1\n1 1", "expected lines of positions"),
        (MARKET + "2 2 1\n3 1 5\n", "ndex out of bounds"),
        (MARKET + "2 2 1\n1 0 5\n", "ndex out of bounds"),
        (MARKET + "2 2 1\n1.5 1 5\n", "expected lines of positions"),
        (MARKET + "2 2 1\n1 1 5\0\n", "expected lines of positions"),
        (MARKET + "2 2 1\n1 1 5-5\n", "expected lines of positions"),
        (MARKET + "2 2 1\n1 1 nan\n", "must be finite"),
        (MARKET.replace("general", "symmetric") + "2 3 1\n1 1 1\n", "must be square, got 2 x 3"),
        (MARKET + "100000000000 100000000000 1\n1 1 1\n", "takes at least"),
    ],
    ids=range(17),
)
def test_damaged_matrix_market_files(text, message, tmp_path):
    kind = MemoryError if "takes" in message else ValueError
    assert message in refusal(written(tmp_path / "R.mtx", text), {}, kind)
    path = tmp_path / "R.mtx.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert message in refusal(path, {}, kind)
    path.write_bytes(gzip.compress(text.encode())[:-3])
    refusal(path, {})


def test_matrix_market_files_are_read_as_scipy_reads_good_ones(tmp_path):
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return sp.coo_array(np.where(rng.random(shape) < 0.5, rng.random(shape), 0.0))

    square = drawn(5, 5)
    path = tmp_path / "R.mtx"
    for R, options in [
        (drawn(6, 4), {}),
        (drawn(6, 4), {"field": "pattern"}),
        ((100 * square).astype(int), {"comment": "some\n lines"}),
        (square + square.T, {}),
        (square - square.T, {}),
        (square.toarray(), {}),
        ((square + square.T).toarray(), {}),
        ((square - square.T).toarray(), {}),
    ]:
        scipy.io.mmwrite(path, R, precision=17, **options)
        ours, theirs = table_files.read_file(path, [], []).content, scipy.io.mmread(path)
        assert sp.issparse(ours) == sp.issparse(theirs)
        if sp.issparse(ours):
            ours, theirs = ours.toarray(), theirs.toarray()
        np.testing.assert_array_equal(ours, theirs)


def test_blank_lines_of_matrix_market_files_are_none(tmp_path):
    text = f"{MARKET}% two\n\n 2 2 2\n\n1 1 5\n \t\r\n\n 2  2\t7.5e0 \r\n\n"
    found = observe(written(tmp_path / "R.mtx", text))
    assert found.by_row.values.tolist() == [5, 7.5]


def npz_parts(form="csr"):
    R = sp.coo_array(([1.0, 2.0], ([0, 1], [1, 2])), shape=(2, 3)).asformat(form)
    out = io.BytesIO()
    sp.save_npz(out, R)
    with np.load(io.BytesIO(out.getvalue())) as file:
        return dict(file)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_every_form_of_a_matrix_of_scipy(form, tmp_path):
    path = tmp_path / "R.npz"
    np.savez(path, **npz_parts(form))
    found = table_files.read_file(path, [], []).content
    assert found.format == form
    np.testing.assert_array_equal(found.toarray(), sp.load_npz(path).toarray())


@pytest.mark.parametrize(
    ("changes", "message", "kind"),
    [
        ({"format": np.array(b"xyz")}, "its format must be one of csr", ValueError),
        ({"format": np.array([1, 2])}, "it has no format", ValueError),
        ({"shape": np.array([2.0, 3.0])}, "its shape must be two integers", ValueError),
        ({"shape": np.array([-2, 3])}, "R.npz", ValueError),
        ({"shape": np.array([10**12, 3])}, "R.npz", ValueError),
        ({"indices": np.array([1.0, 2.0])}, "its indices must be integers", ValueError),
        ({"indices": np.array([1, 10**9])}, "R.npz", (IndexError, ValueError)),
        ({"indptr": np.array([0, 9, 2])}, "R.npz", ValueError),
        ({"data": np.array(["a", "b"])}, "R.npz", (TypeError, ValueError)),
        ({"data": np.ones((2, 2))}, "its data must have 1 dimensions", ValueError),
        ({"data": None}, "it has no array 'data'", ValueError),
    ],
    ids=range(11),
)
def test_damaged_matrices_of_scipy(changes, message, kind, tmp_path):
    path = tmp_path / "R.npz"
    parts = {name: part for name, part in (npz_parts() | changes).items() if part is not None}
    np.savez(path, **parts)
    with pytest.raises(kind) as caught:
        observe(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_header_of_an_array_asks_for_no_memory(tmp_path):
    path = tmp_path / "R.npz"
    np.savez(path, **npz_parts())
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["data.npy"] = parts["data.npy"].replace(b"(2,), }         ", b"(200000000,), } ")
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    assert "data.npy" in refusal(path, {})


# --- packed texts, JSON, and texts that are written in another way ----------------------------

LINES = [("a", "x", 1.5), ("a", "y", 2.0), ("b", "x", -0.25)]


def texts_of(lines, sep=",", end="\n"):
    return "".join(sep.join(map(str, line)) + end for line in [("client", "service", "ms"), *lines])


@pytest.mark.parametrize("ending", [".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst"])
def test_packed_tables_are_read_as_they_are_unpacked(ending, tmp_path):
    raw = texts_of(LINES, "\t" if ending.startswith(".tsv") else ",").encode()
    path = tmp_path / f"log{ending}"
    packing = {"gz": "gzip", "zst": "zstd"}[ending.rpartition(".")[2]]
    path.write_bytes(pa.compress(raw, codec=packing, asbytes=True) if packing == "zstd"
                     else gzip.compress(raw))  # fmt: skip
    assert table_files.column_names(path) == ["client", "service", "ms"]
    found = table_files.read_file(path, ["client", "service"], ["ms"]).content
    assert [tuple(line.values()) for line in found.to_pylist()] == LINES
    bad = texts_of([*LINES, ("b", "y", "?")], "\t" if ending.startswith(".tsv") else ",").encode()
    path.write_bytes(pa.compress(bad, codec=packing, asbytes=True) if packing == "zstd"
                     else gzip.compress(bad))  # fmt: skip
    with pytest.raises(ValueError, match=r"got '\?' at line 5 of .*log"):
        table_files.read_file(path, ["client", "service"], ["ms"])


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.zst"])
def test_what_is_packed_badly_is_named(ending, tmp_path):
    path = tmp_path / f"log{ending}"
    for raw in (b"client,ms\neu,1\n", gzip.compress(texts_of(LINES).encode())[:-12], b""):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="expected a table"):
            table_files.read_file(path, ["client", "service"], ["ms"])
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet$"):
        table_files.write_table(path, {"ms": [1.0]})


def test_lines_of_json(tmp_path):
    path = tmp_path / "log.jsonl"
    objects = [dict(zip(("client", "service", "ms"), line, strict=True)) for line in LINES]
    path.write_text("".join(json.dumps({**one, "more": [1]}) + "\n" for one in objects))
    assert table_files.column_names(path) == ["client", "service", "ms", "more"]
    found = table_files.read_file(path, ["client", "service"], ["ms"]).content
    assert found.to_pylist() == objects
    names = {"rows": "client", "cols": "service", "values": "ms"}
    assert observe(path, **names).by_row.values.tolist() == [1.5, 2.0, -0.25]
    path.write_text('{"client": "a"}\n{"client": \n')
    with pytest.raises(ValueError, match="expected an object of JSON on each line"):
        table_files.read_file(path, ["client"], [])
    path.write_text('{"client": "a", "service": "x", "ms": 1}\n{"client": "a", "service": "x"}\n')
    with pytest.raises(ValueError, match=r"1 null, first at line 2 of .*log\.jsonl"):
        observe(path, **names)


def test_an_open_file_may_say_how_it_is_written():
    file = io.BytesIO(b"client;service;ms\na;x;1,5\na;y;2\n")
    file.delimiter, file.decimal = ";", ","
    found = table_files.read_file(file, ["client", "service"], ["ms"]).content
    assert found.column("ms").to_pylist() == [1.5, 2.0]
    for wrong in (b"1.5", b"1.234,5"):
        file = io.BytesIO(b"client;service;ms\na;x;" + wrong + b"\n")
        file.delimiter, file.decimal = ";", ","
        with pytest.raises(ValueError, match=r"column 'ms' must hold numbers, got '1\."):
            table_files.read_file(file, ["client", "service"], ["ms"])
