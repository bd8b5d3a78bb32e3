"""Tables and matrices in files: round trips, and errors that name the file and line."""

import gzip
import io
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from fuzz.mutations import archived, members
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from strategies import sparse_array

import fastemf
from fastemf.inputs import table_files
from fastemf.sources.memory import observe

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
def test_tables_round_trip(extension, kind, tmp_path):
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
def test_sparse_matrices_round_trip(extension, tmp_path):
    R = sparse_array((7, 5), 0.5, "coo", np.random.default_rng(0))
    path = tmp_path / f"R{extension}"
    if extension == ".npz":
        sp.save_npz(path, R.tocsr())
    else:
        with (gzip.open if extension == ".mtx.gz" else open)(path, "wb") as file:
            scipy.io.mmwrite(file, R, precision=17)
    found = observe(path)
    assert found.shape == R.shape
    assert found.row_labels is None
    side = found.by_row
    np.testing.assert_array_equal(
        sp.coo_array((side.values, (side.keys, side.indices)), R.shape).toarray(), R.toarray()
    )
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
        (["1", "20", "-3", "0"], "int64"), (["1", "007"], "str"), (["0", "-0"], "str"),
        (["1", "+2"], "str"), (["1", "2.0"], "str"), (["1", "x"], "str"), (["true", "null"], "str"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808", "1"], "str"), (["2024-01-01", "2024-01-02"], "str"),
    ],
)  # fmt: skip
def test_labels_are_integers_if_all_are(cells, kind, tmp_path):
    text = "client,service,ms\n" + "".join(f"{cell},a,1\n" for cell in cells)
    labels = observe(written(tmp_path / "log.csv", text), **NAMES).row_labels
    assert labels.kind == kind
    assert [str(label) for label in labels.values] == cells


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_any_string_survives_a_csv_file(texts):
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
        (HEAD + "a,b,1\na,b,fast\na,b,slow\n", "'ms' must hold numbers, got 'fast' at line 3"),
        (HEAD + "a,b,1\n\n\na,b,1;5\n", r"column 'ms' must hold numbers, got '1;5' at line 5"),
        (HEAD + "a,b,1\na,b,\na,b,\n", "'ms' must have no nulls, got 2 nulls, first at line 3"),
        (HEAD + "a,b,1\na,b,NaN\n", "column 'ms' must have no nulls, got 1 null, first at line 3"),
        (HEAD + "a,b,1\n,b,1\n", "column 'client' must have no nulls, got 1 null, first at line 3"),
        (HEAD + '"a\n\na",b,1\na,b,x\n', r"column 'ms' must hold numbers, got 'x' at line 5"),
        (HEAD + "a,b,inf\n", "finite where it is observed, got inf at line 2"),
        (HEAD + "a,b\n", r"log\.csv: expected a table: line 2 has 2 fields, its header has 3"),
        (HEAD + 'q"q,b,1\n"a,b,1\n', r"log\.csv: expected a table: unexpected end of data after"),
        ("client;service;ms\na;b;1,5\n", "its header seems to be separated by ';'"),
        ("client;service;ms\na;b;1\n", "its header seems to be separated by ';'"),
    ],
)
def test_errors_name_the_line_of_a_csv_file(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        observe(written(tmp_path / "log.csv", text), **NAMES)
    assert "log.csv" in str(caught.value)


@pytest.mark.parametrize("extension", [".parquet", ".mtx", ".npz"])
def test_damaged_files_are_named(extension, tmp_path):
    path = written(tmp_path / f"log{extension}", "something else")
    with pytest.raises(ValueError, match=f"log{extension}: expected"):
        observe(path, **(NAMES if extension == ".parquet" else {}))


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: no such file"):
        observe(tmp_path / "nowhere.csv", **NAMES)
    (tmp_path / "log.xlsx").touch()
    with pytest.raises(
        ValueError, match=r"must end in \.csv, \.csv\.gz, .*\.parquet, \.duckdb, \.mtx"
    ):
        observe(tmp_path / "log.xlsx", **NAMES)
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.parquet$"):
        table_files.write_table(tmp_path / "log.npz", COLUMNS)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileNotFoundError, match="neither a store nor a folder of"):
        observe(tmp_path / "folder.csv", **NAMES)


def test_labels_of_a_later_csv_file_have_the_kind_of_the_fit(tmp_path):
    text = "client,service,ms\n1,a,1\neu,a,2\n1,b,3\neu,b,4\n"
    first = written(tmp_path / "first.csv", text)
    later = written(tmp_path / "later.csv", "client,service,ms\n1,a,1\n1,b,3\n")
    fit = fastemf.complete(first, 0.5, 1, validation=later, **NAMES)
    expected = fit.objective((["1", "1"], ["a", "b"], [1.0, 3.0]))
    assert fit.objective(later, values="ms") == pytest.approx(expected, rel=1e-12)


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
def test_pipes_do_not_block(extension, tmp_path):
    path = tmp_path / f"pipe{extension}"
    os.mkfifo(path)
    assert "expected a regular file" in refusal(path, kind=OSError)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(HEAD.encode()), "compressed by gzip: add .gz to its name"),
        (b"PK\x03\x04" + bytes(100), "a zip archive or an Excel workbook"),
        (b"\xd0\xcf\x11\xe0" + bytes(100), "an Excel workbook"),
        ((HEAD + "a,b,1\n").encode("utf-16"), "UTF-16 text: save it as UTF-8"),
        (b'[{"client": "a", "service": "b", "ms": 1}]\n', "it looks like JSON"),
        (b'{"client": "a", "service": "b", "ms": 1}\n', "it looks like JSON"),
        (b"<html><body>404, 404\n", "it looks like HTML"),
        (b"PAR1\x15\x04", "it looks like Parquet"),
        (b"client,service,m\0s\na,b,1\n", "it contains NUL bytes"),
        (bytes(100), "it contains NUL bytes"),
        (b"cli\xffent,service,ms\na,b,1\n", "save the file as UTF-8"),
        (HEAD.encode() + b"a\xff,b,1\n", "save the file as UTF-8"),
        (b"x" * (3 << 20), "has no column 'client'"),
    ],
    ids=range(13),
)
def test_other_formats_named_csv_are_recognised(content, reason, tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    assert reason in refusal(path)


def test_errors_name_the_parquet_file(tmp_path):
    path = tmp_path / "log.parquet"
    for name, column, message, kind in [
        ("ms", ["1", "2"], "column 'ms' must hold numbers", TypeError),
        ("client", [1.5, 2.5], "column 'client' must hold integers", TypeError),
        ("ms", [1.0, None], "first at row 1 of", ValueError),
        ("ms", [1.0, np.inf], "got inf at row 1 of", ValueError),
    ]:
        columns = {"client": ["a", "b"], "service": ["x", "y"], "ms": [1.0, 2.0]} | {name: column}
        parquet.write_table(pa.table(columns), path)
        assert message in refusal(path, kind=kind)


MARKET = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line must be"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "['coordinate', 'c"),
        (MARKET, "expected a line with its size, got b''"),
        (MARKET + "2 2\n1 1 1\n", "expected a line with its size"),
        (MARKET + "2 -2 1\n1 1 1\n", "expected a line with its size"),
        (MARKET + "2 2 1000000000000\n1 1 1\n", "expected 1000000000000 lines of numbers by"),
        (MARKET + "2 2 1\n1 1 1\n2 2 2\n", "expected 1 lines of numbers by its header, got 2"),
        (MARKET + "2 2 2\n1 1\n1 2 2 2\n", "requires 3 columns but 2 were found at row 1"),
        (MARKET + "2 2 1\n1 1", "expected lines of row, col, value"),
        (MARKET + "2 2 1\n3 1 5\n", "index 2 exceeds"),
        (MARKET + "2 2 1\n1 0 5\n", "negative"),
        (MARKET + "2 2 1\n1.5 1 5\n", "expected lines of row, col, value"),
        (MARKET + "2 2 1\n1 1 5\0\n", "expected lines of row, col, value"),
        (MARKET + "2 2 1\n1 1 5-5\n", "expected lines of row, col, value"),
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


def test_valid_matrix_market_files_are_read_as_by_scipy(tmp_path):
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return sp.coo_array(np.where(rng.random(shape) < 0.5, rng.random(shape), 0.0))

    square = drawn(5, 5)
    path = tmp_path / "R.mtx"
    for R, options in [
        (drawn(6, 4), {}), (drawn(6, 4), {"field": "pattern"}), (square + square.T, {}),
        ((100 * square).astype(int), {"comment": "some\n lines"}), (square - square.T, {}),
        (square.toarray(), {}), ((square + square.T).toarray(), {}),
        ((square - square.T).toarray(), {}),
    ]:  # fmt: skip
        scipy.io.mmwrite(path, R, precision=17, **options)
        ours, theirs = table_files.read_file(path, [], []).content, scipy.io.mmread(path)
        assert sp.issparse(ours) == sp.issparse(theirs)
        if sp.issparse(ours):
            ours, theirs = ours.toarray(), theirs.toarray()
        np.testing.assert_array_equal(ours, theirs)


def npz_parts(path):
    sp.save_npz(path, sp.csr_array(([1.0, 2.0], ([0, 1], [1, 2])), shape=(2, 3)))
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("changes", "message", "kind"),
    [
        ({"format": np.array(b"xyz")}, 'Unknown format "xyz', ValueError),
        ({"format": np.array([1, 2])}, "R.npz", ValueError),
        ({"shape": np.array([2.0, 3.0])}, "cannot be interpreted as an integer", ValueError),
        ({"shape": np.array([-2, 3])}, "R.npz", ValueError),
        ({"shape": np.array([10**12, 3])}, "R.npz", ValueError),
        ({"indices": np.array([1, 10**9])}, "R.npz", (IndexError, ValueError)),
        ({"indptr": np.array([0, 9, 2])}, "R.npz", ValueError),
        ({"data": np.array(["a", "b"])}, "R.npz", (TypeError, ValueError)),
        ({"data": np.ones((2, 2))}, "should be 1-D", ValueError),
        ({"data": None}, "data is not a file in the archive", ValueError),
    ],
    ids=range(10),
)
def test_damaged_npz_matrices(changes, message, kind, tmp_path):
    path = tmp_path / "R.npz"
    parts = {name: part for name, part in (npz_parts(path) | changes).items() if part is not None}
    np.savez(path, **parts)
    with pytest.raises(kind) as caught:
        observe(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_wrong_header_is_refused(tmp_path):
    path = tmp_path / "R.npz"
    np.savez(path, **npz_parts(path))
    parts = dict(members(path.read_bytes()))
    parts["data.npy"] = parts["data.npy"].replace(b"(2,), }         ", b"(200000000,), } ")
    path.write_bytes(archived(parts))
    assert "reading array data" in refusal(path, {})


# --- packed texts, JSON, and texts that are written in another way ----------------------------

LINES = [("a", "x", 1.5), ("a", "y", 2.0), ("b", "x", -0.25)]


def texts_of(lines, sep=",", end="\n"):
    return "".join(sep.join(map(str, line)) + end for line in [("client", "service", "ms"), *lines])


@pytest.mark.parametrize("ending", [".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst"])
def test_compressed_tables_equal_uncompressed_ones(ending, tmp_path):
    path = tmp_path / f"log{ending}"

    def write(lines):
        raw = texts_of(lines, "\t" if ending.startswith(".tsv") else ",").encode()
        packed = pa.compress(raw, codec="zstd", asbytes=True)
        path.write_bytes(gzip.compress(raw) if ending.endswith(".gz") else packed)

    write(LINES)
    assert table_files.column_names(path) == ["client", "service", "ms"]
    found = table_files.read_file(path, ["client", "service"], ["ms"]).content
    assert [tuple(line.values()) for line in found.to_pylist()] == LINES
    write([*LINES, ("b", "y", "?")])
    with pytest.raises(ValueError, match=r"got '\?' at line 5 of .*log"):
        table_files.read_file(path, ["client", "service"], ["ms"])


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.zst"])
def test_damaged_compressed_files_are_named(ending, tmp_path):
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
    assert observe(path, **NAMES).by_row.values.tolist() == [1.5, 2.0, -0.25]
    path.write_text('{"client": "a"}\n{"client": \n')
    with pytest.raises(ValueError, match="expected one JSON object per line"):
        table_files.read_file(path, ["client"], [])
    path.write_text('{"client": "a", "service": "x", "ms": 1}\n{"client": "a", "service": "x"}\n')
    with pytest.raises(ValueError, match=r"1 null, first at line 2 of .*log\.jsonl"):
        observe(path, **NAMES)
