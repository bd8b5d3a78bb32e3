"""Damaged and hostile stores and sources: each is refused by an error that names the file."""

import gzip
import json
import os
import shutil
import sys
import warnings

import numpy as np
import pytest

import fastemf
from fastemf import cli, store
from fastemf.store.files import checksum
from fastemf.store.manifest import Manifest, StoredArray

M, N, SIZE = 9, 7, 60
EVERYWHERE = ("open", "verify", "read_block", "complete")


def entries(seed=0):
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(0, M, SIZE), rng.integers(0, N, SIZE)
    rows[:M], cols[:N] = np.arange(M), np.arange(N)
    return (rows, cols, rng.chisquare(3, SIZE) + 1), rng.uniform(0.5, 2, SIZE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store with every kind of file: weights, and labels of both sides."""
    pa = pytest.importorskip("pyarrow")
    (rows, cols, values), weights = entries()
    table = pa.table({"r": [f"é{i}" for i in rows], "c": cols * 10, "b": values, "v": weights})
    path = tmp_path_factory.mktemp("whole") / "store"
    names = {"rows": "r", "cols": "c", "values": "b", "weights": "v"}
    store.build(table, path, **names)
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def sign(folder):
    """Give a store the checksums of what it holds, as who damages it on purpose would."""
    fields = json.loads((folder / "manifest.json").read_text())
    files = {
        name: StoredArray(stored["dtype"], stored["length"], checksum(folder / name))
        for name, stored in fields["files"].items()
    }
    manifest = Manifest(
        tuple(fields["shape"]), fields["size"], fields["dtype"], fields["weighted"],
        fields["labels"], files,
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.text())


def change(folder, name, edit):
    """Edit an array of a store and sign it."""
    path = folder / name
    array = np.load(path)
    edit(array)
    head = path.read_bytes()[: -array.nbytes]
    path.write_bytes(head + array.tobytes())
    sign(folder)


def call(how, folder):
    if how == "open":
        store.open(folder)
    elif how == "verify":
        store.verify(folder)
    elif how == "read_block":
        for axis, n in enumerate((M, N)):
            store.read_block(folder, axis, 0, n)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fastemf.complete(store.open(folder, budget=300), 0.3, 2, max_iter=2, n_jobs=1)


def refused(folder, name, ways=EVERYWHERE):
    for how in ways:
        with pytest.raises(store.StoreError) as caught:
            call(how, folder)
        assert str(folder / name) in str(caught.value)
        assert "\n" not in str(caught.value)


# --- files that are none ---------------------------------------------------------------------

FILES = ["manifest.json", "rows.indptr.npy", "cols.values.npy", "rows.labels.npy"]


def loop(path):
    path.symlink_to(path)


def dangling(path):
    path.symlink_to("nowhere")


def a_folder(path):
    path.mkdir()


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
@pytest.mark.parametrize("make", [loop, dangling, a_folder, pipe, device])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_named(copy, name, make):
    (copy / name).unlink()
    make(copy / name)
    where = "" if name == "manifest.json" and make is dangling else name
    refused(copy, where)


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes")
def test_a_file_that_becomes_a_pipe_while_it_is_read(copy):
    opened = store.open(copy, budget=300)
    (copy / "rows.values.npy").unlink()
    os.mkfifo(copy / "rows.values.npy")
    with pytest.raises(store.StoreError, match=r"rows\.values\.npy cannot be read: Not a regular"):
        fastemf.complete(opened, 0.3, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_files_may_lie_elsewhere(copy, tmp_path):
    shutil.move(copy / "rows.values.npy", tmp_path / "elsewhere.npy")
    (copy / "rows.values.npy").symlink_to(tmp_path / "elsewhere.npy")
    for how in EVERYWHERE:
        call(how, copy)


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_folder_that_leads_nowhere(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(store.StoreError, match=r"loop cannot be read: .*symbolic links"):
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
def test_manifests_that_are_none(copy, text):
    (copy / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    refused(copy, "manifest.json")


def test_a_manifest_of_any_size_is_not_read(copy):
    with (copy / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)
    refused(copy, "manifest.json")


@pytest.mark.parametrize(
    "edit",
    [
        lambda fields: fields.update(shape=[0, N]),
        lambda fields: fields.update(size=0),
        lambda fields: fields.update(size=2**63 - 1),
        lambda fields: fields.update(more=1),
        lambda fields: fields.update({"\ud800\n": 1}),
        lambda fields: fields.pop("crc32"),
        lambda fields: fields.update(crc32=fields["crc32"] ^ 1),
        lambda fields: fields["labels"][0].update(name=None),
        lambda fields: fields["labels"][0].update(name="\ud800"),
        lambda fields: fields["labels"][0].update(name="another"),
        lambda fields: fields["labels"][1].update(kind="datetime64[D]"),
        lambda fields: fields["files"].update({"\ud800\n": fields["files"]["rows.indptr.npy"]}),
        lambda fields: fields["files"]["cols.values.npy"].update(crc32=5),
    ],
    ids=range(13),
)
def test_edited_manifests(copy, edit):
    fields = json.loads((copy / "manifest.json").read_text())
    edit(fields)
    (copy / "manifest.json").write_text(json.dumps(fields))
    refused(copy, "manifest.json")


def test_no_byte_of_a_manifest_changes_what_is_read(copy):
    path = copy / "manifest.json"
    content = path.read_bytes()
    before = store.open(copy)
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = store.open(copy)
        except store.StoreError as error:
            assert str(path) in str(error) or str(copy) in str(error)  # noqa: PT017
            continue
        assert found.info == before.info
        assert found.row_labels == before.row_labels
        assert found.col_labels == before.col_labels


def test_a_layout_of_its_own_is_no_damage(copy):
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7, sort_keys=True))
    store.verify(copy)


# --- content that checksums do not find --------------------------------------------------------


def put(at, value):
    def edit(array):
        array[at] = value

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "ways"),
    [
        ("rows.indptr.npy", put(0, -1), EVERYWHERE),
        ("rows.indptr.npy", put(0, 1), EVERYWHERE),
        ("rows.indptr.npy", put(-1, SIZE - 1), EVERYWHERE),
        ("cols.indptr.npy", put(3, 2**62), EVERYWHERE),
        ("cols.indptr.npy", put(3, -(2**63)), EVERYWHERE),
        ("rows.mass.npy", put(2, np.nan), EVERYWHERE),
        ("cols.mass.npy", put(2, 0.0), EVERYWHERE),
        ("cols.mass.npy", put(2, -1.0), EVERYWHERE),
        ("cols.mass.npy", put(2, 1.0), EVERYWHERE),
        ("rows.mass.npy", put(2, 1e300), EVERYWHERE),
        ("cols.weights.npy", put(2, 1e150), ("verify", "read_block", "complete")),
        ("rows.labels.npy", put(0, 255), ("open", "verify", "complete")),
        ("cols.labels.npy", put(0, 10), ("open", "verify", "complete")),  # twice
        ("cols.indices.npy", put(5, M), ("verify", "read_block", "complete")),
        ("rows.indices.npy", put(5, -1), ("verify", "read_block", "complete")),
        ("rows.values.npy", put(5, np.nan), ("verify", "read_block", "complete")),
        ("cols.values.npy", put(5, -np.inf), ("verify", "read_block", "complete")),
        ("cols.values.npy", put(5, 1e200), ("verify", "read_block", "complete")),
        ("rows.values.npy", put(slice(None), 1e-300), ("verify", "complete")),
        ("cols.values.npy", put(slice(None), -1e-300), ("verify", "complete")),
        ("rows.values.npy", put(5, 1e150), ("verify", "complete")),
        ("cols.values.npy", put(5, -1e150), ("verify", "complete")),
        ("rows.weights.npy", put(5, 0.0), ("verify", "read_block", "complete")),
        ("cols.weights.npy", put(5, np.inf), ("verify", "read_block", "complete")),
    ],
)
def test_hostile_content(copy, name, edit, ways):
    change(copy, name, edit)
    refused(copy, name, ways)


@pytest.mark.parametrize("name", ["rows.indices.npy", "cols.indices.npy", "cols.values.npy"])
def test_sides_that_differ_are_found(copy, name):
    def swap(array):
        at = int(np.flatnonzero(array != array[0])[0])
        array[[0, at]] = array[[at, 0]]

    change(copy, name, swap)
    match = r"cols\.indices\.npy .*entries by column are not those by row"
    with pytest.raises(store.StoreError, match=match):
        store.verify(copy)


@pytest.mark.parametrize("budget", [1, 300, 1 << 20])
def test_a_store_is_verified_in_blocks(whole, budget, monkeypatch):
    monkeypatch.setattr("fastemf.store.verification.BUDGET", budget)
    store.verify(whole)


def test_headers_are_those_of_the_vectors(copy):
    path = copy / "rows.values.npy"
    path.write_bytes(path.read_bytes().replace(b"<f8", b"<i8", 1))
    sign(copy)
    with pytest.raises(store.StoreError, match=r"rows\.values\.npy is damaged: its header"):
        store.verify(copy)


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (0, M + 1)])
def test_blocks_that_are_not_there(copy, first, last):
    with pytest.raises(IndexError, match=f"within 0 to {M}, got {first} and {last}"):
        store.read_block(copy, 0, first, last)
    with pytest.raises(ValueError, match="axis must be 0 or 1, got 2"):
        store.read_block(copy, 2, 0, 1)


def test_a_shell_says_it_in_one_line(copy, capsys):
    (copy / "rows.values.npy").unlink()
    for action in ("info", "verify"):
        assert cli.main(["store", action, str(copy)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "rows.values.npy is missing" in err


# --- sources -----------------------------------------------------------------------------------

NAMES = {"rows": "r", "cols": "c", "values": "b"}
HEAD = b"r,c,b\n"
LINES = b"".join(b"a%d,x%d,%d.5\n" % (i, i % 3, i) for i in range(50))
CSV = {
    "a NUL in a number": HEAD + LINES + b"a,x,1\x002\n",
    "many NULs": HEAD + LINES + b"\0" * 5000 + b"\n",
    "only NULs": b"\0" * 5000,
    "a long field": HEAD + LINES + b"a," + b"x" * 200_000 + b",1\n" + LINES,
    "a long word for a number": HEAD + LINES + b"a,x," + b"y" * 50_000 + b"\n",
    "a quote that never ends": HEAD + LINES + b'"a,x,1\n' + LINES,
    "no UTF-8": HEAD + LINES + b"\xff\xfe,x,1\n",
    "names that are no UTF-8": b"\xff,c,b\n" + LINES,
    "UTF-16": (HEAD + LINES).decode().encode("utf-16"),
    "too few fields": HEAD + LINES + b"a,x\n",
}


def one_line_naming(path, target, **settings):
    with pytest.raises((ValueError, OSError)) as caught:
        store.build(path, target, **NAMES, **settings)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert not target.exists()


@pytest.mark.parametrize("case", CSV)
def test_damaged_csv(tmp_path, case):
    pytest.importorskip("pyarrow")
    path = tmp_path / "log.csv"
    path.write_bytes(CSV[case])
    one_line_naming(path, tmp_path / "store", budget=1 << 16)


def test_damaged_gzip(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "log.csv.gz"
    packed = gzip.compress(HEAD + LINES * 200)
    for content in (packed[:-20], packed[:30] + b"\xff" * 20 + packed[50:], b"no gzip"):
        path.write_bytes(content)
        one_line_naming(path, tmp_path / "store")


def test_damaged_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "log.parquet"
    table = pa.table({"r": ["aé", "b", "c"], "c": [1, 2, 3], "b": [1.5, 2.5, 3.5]})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    for damaged in (
        content.replace("é".encode(), b"\xff\xff"),  # also in the statistics
        content[:-9],
        content[:4] + b"\0" * 200 + content[204:],
        b"PAR1" * 9,
    ):
        path.write_bytes(damaged)
        one_line_naming(path, tmp_path / "store")


def test_parquet_that_holds_less_than_it_says(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "log.parquet"
    table = pa.table({"r": ["a", "b", "c"], "c": [1, 2, 3], "b": [1.5, 2.5, 3.5]})
    parquet.write_table(table, path)
    batches = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile,
        "iter_batches",
        lambda *args, **settings: (batch[:2] for batch in batches(*args, **settings)),
    )
    one_line_naming(path, tmp_path / "store")


def test_columns_of_other_types_are_named_with_their_file(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    good = {"r": ["a", "b"], "c": [1, 2], "b": [1.5, 2.5]}
    for name, column in (("r", [b"a", b"b"]), ("b", ["x", "y"])):
        parquet.write_table(pa.table(good | {name: column}), tmp_path / "log.parquet")
        with pytest.raises(TypeError, match=rf"column '{name}' must hold .*log\.parquet"):
            store.build(tmp_path / "log.parquet", tmp_path / "store", **NAMES)
