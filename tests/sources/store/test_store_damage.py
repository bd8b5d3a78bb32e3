"""Damaged and hostile stores and input files: errors name the file."""

import gzip
import io
import json
import os
import shutil
import sys
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fastemf
from fastemf import cli, store
from fastemf.sources.store.files import checksum
from fastemf.sources.store.manifest import Manifest, _signed

M, N, SIZE = 9, 7, 60
EVERYWHERE = ("open", "verify", "read_block", "complete")
CONTENT = EVERYWHERE[1:]  # whatever reads the entries
DATA = "data-2/"  # folder of the generation
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
NAMES = {"rows": "r", "cols": "c", "values": "b"}


def log(seed, m, n):
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(0, m, SIZE), rng.integers(0, n, SIZE)
    rows[:m], cols[:n] = np.arange(m), np.arange(n)
    values, weights = rng.chisquare(3, SIZE) + 1, rng.uniform(0.5, 2, SIZE)
    columns = {"r": [f"é{i}" for i in rows], "c": cols * 10, "b": values, "v": weights}
    return pa.table(columns | {"hour": rng.integers(0, 24, SIZE)})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An appended store with every kind of file: weights, labels of both sides, other columns."""
    path = tmp_path_factory.mktemp("whole") / "store"
    store.build(log(0, M, N), path, weights="v", columns=["hour"], **NAMES)
    store.append(path, log(1, M + 3, N + 2))
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def sign(folder, name):
    """Update the checksum of a file, as an attacker would."""
    manifest, path = Manifest.read(folder), folder / name
    files = manifest.files | {path.name: replace(manifest.files[path.name], crc32=checksum(path))}
    (folder / "manifest.json").write_text(replace(manifest, files=files).text())


def change(folder, name, edit):
    """Edit an array of a store and sign it."""
    array = np.load(folder / name)
    edit(array)
    head = (folder / name).read_bytes()[: -array.nbytes]
    (folder / name).write_bytes(head + array.tobytes())
    sign(folder, name)


def call(how, folder):
    if how == "open":
        store.open(folder)
    elif how == "verify":
        store.verify(folder)
    elif how == "append":
        store.append(folder, ([0], [0], [1.0]))
    elif how == "read_block":
        for axis, n in enumerate((M + 3, N + 2)):
            store.read_block(folder, axis, 0, n)
    elif how == "read_columns":
        store.open(folder).read_columns()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fastemf.complete(store.open(folder, budget=300), 0.3, 2, max_iter=2, n_jobs=1)


def refused(folder, name, ways=EVERYWHERE, match="."):
    for how in ways:
        with pytest.raises(store.StoreError, match=match) as caught:
            call(how, folder)
        assert str(folder / name) in str(caught.value)
        assert "\n" not in str(caught.value)


# --- files -----------------------------------------------------------------------------------

FILES = [
    f"{DATA}{side}.{part}.npy"
    for side in ("rows", "cols")
    for part in ("indptr", "indices", "values", "weights", "labels", "label_offsets")
    if (side, part) != ("cols", "label_offsets")  # integers have none
]
FILES += [DATA + name for name in ("rows.positions.npy", "columns.parquet")]


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_named(copy, name):
    content = (copy / name).read_bytes()
    for damaged in (content[:-1], content + b"\0", b""):
        (copy / name).write_bytes(damaged)
        match = f"has {len(damaged)} bytes instead"
        refused(copy, name, ("open", "verify", "append"), match)
    for place in (6, 60, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 4
        (copy / name).write_bytes(flipped)
        refused(copy, name, ("verify", "append"), "is damaged")
    (copy / name).unlink()
    refused(copy, name, ("open", "verify", "read_block"), "is missing")


ODD = {
    "loop": lambda path: path.symlink_to(path),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@POSIX
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "name",
    ["manifest.json"]
    + [
        DATA + name
        for name in ("rows.indptr.npy", "cols.values.npy", "rows.labels.npy", "columns.parquet")
    ],
)
def test_paths_that_are_not_files_are_named(copy, name, kind):
    (copy / name).unlink()
    ODD[kind](copy / name)
    refused(copy, "" if (name, kind) == ("manifest.json", "dangling") else name)


@POSIX
@pytest.mark.parametrize("match", ["ended early", "cannot be read: Not a regular"])
def test_a_file_that_changes_while_it_is_read(copy, match):
    opened, path = store.open(copy, budget=300), copy / DATA / "rows.values.npy"
    content = path.read_bytes()
    path.unlink()
    if match == "ended early":
        path.write_bytes(content[:-8])
    else:
        os.mkfifo(path)
    with pytest.raises(store.StoreError, match=rf"rows\.values\.npy {match}"):
        fastemf.complete(opened, 0.3, 2)


@POSIX
def test_links(copy, tmp_path):
    for name in ("rows.values.npy", "columns.parquet"):
        shutil.move(copy / DATA / name, tmp_path / name)
        (copy / DATA / name).symlink_to(tmp_path / name)
    for how in (*EVERYWHERE, "read_columns"):
        call(how, copy)
    assert store.append(copy, log(2, M, N)).read_columns().num_rows == 3 * SIZE
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(
        store.StoreError, match=r"loop.manifest.json cannot be read: .*symbolic links"
    ):
        store.open(tmp_path / "loop")
    for name in ("nowhere", "a\0b"):
        with pytest.raises(FileNotFoundError, match="no such folder"):
            store.open(tmp_path / name)


# --- manifests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "{" * 100, "[" * 100_000, '{"a":' * 50_000, "1" * 10_000, "\0", "\ud800",
     '{"format": "fastemf store", "version": ' + "[" * 900 + "]" * 900 + "}",
     '{"format": "fastemf store", "version": "\\ud800\\n' + "x" * 10_000 + '"}'],
    ids=range(11),
)  # fmt: skip
def test_invalid_manifests(copy, text):
    (copy / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    refused(copy, "manifest.json")


def test_a_manifest_of_any_size_is_not_read(copy):
    with (copy / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)
    refused(copy, "manifest.json")


EDITS = [
    (lambda fields: fields.update(format="other"), "its format is not"),
    (lambda fields: fields.update(shape="large"), "is damaged: ('shape'|a count) is not valid"),
    (lambda fields: fields.update(shape=[0, N]), "is damaged: ('shape'|a count) is not valid"),
    (lambda fields: fields.update(size=0), "."),
    (lambda fields: fields.update(size=2**63 - 1), "."),
    (lambda fields: fields.update(dtype="float16"), "'dtype' is not valid"),
    (lambda fields: fields.update(weighted=False), "weights.npy"),
    (lambda fields: fields.update(files={}), "cols.indices.npy"),
    (lambda fields: fields.update(more=1), "."),
    (lambda fields: fields.update({"\ud800\n": 1}), "."),
    (lambda fields: fields.pop("crc32"), "."),
    (lambda fields: fields.update(crc32=fields["crc32"] ^ 1), "its checksum does not match"),
    (lambda fields: fields["labels"][0].update(name=None), "."),
    (lambda fields: fields["labels"][0].update(name="\ud800"), "."),
    (lambda fields: fields["labels"][0].update(name="another"), "."),
    (lambda fields: fields["labels"][1].update(kind="datetime64[D]"), "."),
    (lambda fields: fields["files"].update({"\ud800\n": fields["files"]["rows.indptr.npy"]}), "."),
    (lambda fields: fields["files"]["cols.values.npy"].update(crc32=5), "."),
    (lambda fields: fields.pop("generation"), "('generation'|a count) is not valid"),
    (lambda fields: fields.update(generation="../x"), "('generation'|a count) is not valid"),
    (lambda fields: fields.update(generation=0), "('generation'|a count) is not valid"),
    (lambda fields: fields.pop("columns"), "'columns' is not valid"),
    (lambda fields: fields["columns"].update(rows=7), "'columns' is not valid"),
    (lambda fields: fields["columns"].update(rows="another"), "its checksum does not match"),
    (lambda fields: fields.update(more=[]), "columns.parquet"),
    (lambda fields: fields.update(more=["\ud800"]), "'more' is not valid"),
    (lambda fields: fields["files"].pop("columns.parquet"), "columns.parquet"),
]


@pytest.mark.parametrize(("edit", "match"), EDITS, ids=range(len(EDITS)))
def test_edited_manifests(copy, edit, match):
    fields = json.loads((copy / "manifest.json").read_text())
    edit(fields)
    (copy / "manifest.json").write_text(json.dumps(fields))
    refused(copy, "manifest.json", (*EVERYWHERE, "append"), match)


@pytest.mark.parametrize("version", [0, 2, True, "1", None])
def test_other_versions_are_refused(copy, version):
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    rule = f"store version {version!r}, while this fastemf reads version 1"
    refused(copy, "", ("open", "verify"), rule)


def test_no_byte_of_a_manifest_changes_what_is_read(copy):
    path = copy / "manifest.json"
    content = path.read_bytes()
    before = store.open(copy)
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = store.open(copy)
        except store.StoreError as error:
            assert str(copy) in str(error)  # noqa: PT017
            continue
        assert found.info == before.info
        assert found.row_labels == before.row_labels
        assert found.col_labels == before.col_labels


def test_the_layout_of_the_manifest_does_not_matter(copy):
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7, sort_keys=True))
    store.verify(copy)


# --- content that checksums do not find --------------------------------------------------------

ALL = slice(None)
HOSTILE = {
    EVERYWHERE: [
        ("rows.indptr", 0, -1), ("rows.indptr", 0, 1), ("rows.indptr", -1, 2 * SIZE - 1),
        ("cols.indptr", 3, 2**62), ("cols.indptr", 3, -(2**63)),
    ],
    ("open", "verify", "complete"): [("rows.labels", 0, 255), ("cols.labels", 0, 10)],  # twice
    CONTENT: [
        ("cols.indices", 5, M + 3), ("rows.indices", 5, -1), ("rows.values", 5, np.nan),
        ("cols.values", 5, -np.inf), ("cols.values", 5, 1e200), ("rows.weights", 5, 0.0),
        ("cols.weights", 5, np.inf), ("rows.weights", 5, -1.0),
    ],
    ("read_columns",): [("rows.positions", 5, 2 * SIZE), ("rows.positions", 5, -1)],
    ("verify", "complete"): [
        ("cols.weights", 2, 1e150), ("rows.weights", 2, 1e-150),
        ("rows.values", 5, 1e150), ("cols.values", 5, -1e150), ("rows.values", ALL, 1e-300),
        ("cols.values", ALL, -1e-300),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("ways", "case"), [(ways, case) for ways, cases in HOSTILE.items() for case in cases]
)
def test_hostile_content(copy, ways, case):
    name, at, value = case
    change(copy, f"{DATA}{name}.npy", lambda array: array.__setitem__(at, value))
    refused(copy, f"{DATA}{name}.npy", ways)


def columns_of(path, **changes):
    table = parquet.read_table(path)
    for name, column in changes.items():
        table = table.drop(["hour"]).append_column(name, pa.array(column))
    parquet.write_table(table, path)


COLUMNS = {
    "garbage": lambda path: path.write_bytes(b"PAR1" + b"x" * 50 + b"PAR1"),
    "another column": lambda path: columns_of(path, minute=[1] * 2 * SIZE),
    "fewer lines": lambda path: parquet.write_table(parquet.read_table(path)[1:], path),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_hostile_columns(copy, case):
    path = copy / DATA / "columns.parquet"
    COLUMNS[case](path)
    fields = json.loads((copy / "manifest.json").read_text())
    fields["files"][path.name] |= {"length": path.stat().st_size, "crc32": checksum(path)}
    fields.pop("crc32")
    (copy / "manifest.json").write_text(json.dumps(_signed(fields)))
    refused(copy, f"{DATA}columns.parquet", ("read_columns",))


@pytest.mark.parametrize("name", ["rows.indices.npy", "cols.indices.npy", "cols.values.npy"])
def test_different_sides_are_detected(copy, name):
    def swap(array):
        at = int(np.flatnonzero(array != array[0])[0])
        array[[0, at]] = array[[at, 0]]

    change(copy, DATA + name, swap)
    match = r"cols\.indices\.npy .*entries by column differ from those by row"
    with pytest.raises(store.StoreError, match=match):
        store.verify(copy)


def test_wrong_headers_are_detected(copy):
    name = f"{DATA}rows.values.npy"
    (copy / name).write_bytes((copy / name).read_bytes().replace(b"<f8", b"<i8", 1))
    sign(copy, name)
    refused(copy, name, ("verify",), "is damaged: its header")


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (0, M + 4)])
def test_blocks_out_of_bounds(whole, first, last):
    with pytest.raises(IndexError, match=f"<= {M + 3}, got {first} and {last}"):
        store.read_block(whole, 0, first, last)
    with pytest.raises(ValueError, match="axis must be 0 or 1, got 2"):
        store.read_block(whole, 2, 0, 1)


def test_the_command_line_prints_one_line(copy, capsys):
    (copy / DATA / "rows.values.npy").unlink()
    for action in ("info", "verify"):
        assert cli.main(["store", action, str(copy)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "rows.values.npy is missing" in err


# --- sources -----------------------------------------------------------------------------------

HEAD = b"r,c,b\n"
LINES = b"".join(b"a%d,x%d,%d.5\n" % (i, i % 3, i) for i in range(50))
PACKED = gzip.compress(HEAD + LINES * 200)
TABLE = io.BytesIO()
parquet.write_table(
    pa.table({"r": ["aé", "b", "c"], "c": [1, 2, 3], "b": [1.5, 2.5, 3.5]}), TABLE,
    compression="none", use_dictionary=False,
)  # fmt: skip
PARQUET = TABLE.getvalue()
SOURCES = {
    "a NUL in a number.csv": HEAD + LINES + b"a,x,1\x002\n",
    "many NULs.csv": HEAD + LINES + b"\0" * 5000 + b"\n",
    "only NULs.csv": b"\0" * 5000,
    "a long word for a number.csv": HEAD + LINES + b"a,x," + b"y" * 50_000 + b"\n",
    "a quote that never ends.csv": HEAD + LINES + b'"a,x,1\n' + LINES,
    "no UTF-8.csv": HEAD + LINES + b"\xff\xfe,x,1\n",
    "names that are no UTF-8.csv": b"\xff,c,b\n" + LINES,
    "UTF-16.csv": (HEAD + LINES).decode().encode("utf-16"),
    "too few fields.csv": HEAD + LINES + b"a,x\n",
    "cut.csv.gz": PACKED[:-20],
    "overwritten.csv.gz": PACKED[:30] + b"\xff" * 20 + PACKED[50:],
    "no gzip.csv.gz": b"no gzip",
    "no UTF-8.parquet": PARQUET.replace("é".encode(), b"\xff\xff"),  # also in the statistics
    "cut.parquet": PARQUET[:-9],
    "overwritten.parquet": PARQUET[:4] + b"\0" * 200 + PARQUET[204:],
    "no parquet.parquet": b"PAR1" * 9,
}


@pytest.mark.parametrize("name", SOURCES)
def test_damaged_sources(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(SOURCES[name])
    with pytest.raises((ValueError, OSError)) as caught:
        store.build(path, tmp_path / "store", **NAMES, memory_limit=1 << 16)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("name", "column"), [("r", [b"a", b"b"]), ("b", ["x", "y"])])
def test_columns_of_other_types_are_named_with_their_file(tmp_path, name, column):
    columns = {"r": ["a", "b"], "c": [1, 2], "b": [1.5, 2.5]} | {name: column}
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    with pytest.raises(TypeError, match=rf"column '{name}' must hold .*log\.parquet"):
        store.build(tmp_path / "log.parquet", tmp_path / "store", **NAMES)
