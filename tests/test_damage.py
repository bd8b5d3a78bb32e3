"""Damaged files are refused by name: whatever bytes they hold, one kind of error comes out."""

from __future__ import annotations

import copy
import errno
import io
import json
import os
import tracemalloc
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scenes import few_quantiles

import fastemf
from fastemf import store
from fastemf.observations.memory import observe
from fastemf.solver.axis import Axis
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.ridge import AnnealedRidge
from fastemf.support.array_file import DamagedFileError, read_arrays

RNG = np.random.default_rng(5)
R = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
OTHER_VALUES = (
    None, True, False, 0, -1, 7, 10**400, 0.5, float("nan"), float("inf"), "", "f8", "07", [],
    [1, 2], ["a"], [None], {}, {"kind": "str", "name": None}, {"kind": [], "name": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model file with all that one can hold: labels, intercepts, several levels."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    names = {"index": [f"r{i}" for i in range(6)], "columns": [0, 10, 20, 30, 40]}
    table = pd.DataFrame(R, **names)
    fastemf.complete_levels(table, (0.3, 0.7), 1, intercepts=True, tol=0.1, n_jobs=1).save(path)
    return path


@pytest.fixture(scope="module")
def quantiles(tmp_path_factory):
    """A model file of quantiles."""
    path = tmp_path_factory.mktemp("quantiles") / "quantiles.npz"
    names = {"index": [f"r{i}" for i in range(6)], "columns": [0, 10, 20, 30, 40]}
    few_quantiles(pd.DataFrame(R, **names)).save(path)
    return path


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A checkpoint whose best iterate is not its last."""
    path = tmp_path_factory.mktemp("state") / "state.npz"
    settings = {"reg": 0, "tol": 0.0, "max_iter": 12, "patience": 50, "n_jobs": 1}
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(R, 0.3, 2, validation=R + 1, checkpoint=path, **settings)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "log"
    lines = {"client": ["a", "b", "b"], "service": [7, 7, 3], "ms": [1.0, 2.0, 4.0]}
    store.build(pa.table(lines), path, rows="client", cols="service", values="ms")
    return path


def load_model(path):
    fastemf.load(path)


def take_up(path):
    engine = CompletionEngine(observe(R), 0.3, mu=None, n_threads=1)
    Checkpoint(path, 1, True, {}).resumed(
        AnnealedRidge(0.3, 2, 1.0), (engine, engine), 2, judged=True
    )


FILES = {
    "model": (load_model, fastemf.ModelFileError),
    "quantiles": (load_model, fastemf.ModelFileError),
    "state": (take_up, fastemf.CheckpointError),
}


@pytest.fixture(params=FILES)
def case(request, tmp_path):
    """A good file's content, where to put a bad one, and whether that was refused."""
    good = request.getfixturevalue(request.param)
    read, error = FILES[request.param]
    path = tmp_path / "bad.npz"

    def refused(content):
        path.write_bytes(content)
        try:
            read(path)
        except error as refusal:
            assert str(path) in str(refusal)  # noqa: PT017
            return True
        return False

    return good.read_bytes(), refused


def test_good_files_are_read(case):
    content, refused = case
    assert not refused(content)


def test_truncated_files(case):
    content, refused = case
    for size in range(0, len(content), 1 + len(content) // 60):
        assert refused(content[:size])


def test_flipped_bytes(case):
    content, refused = case
    rng = np.random.default_rng(0)
    ends = []
    for _ in range(150):
        damaged = bytearray(content)
        for at in rng.choice(len(content), rng.integers(1, 5), replace=False):
            damaged[at] ^= rng.integers(1, 256)
        ends.append(refused(bytes(damaged)))
    assert np.mean(ends) > 0.8  # some bytes of an archive mean nothing


def members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(parts):
    """An archive with the right checksums, of whatever is in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def paths(tree, here=()):
    """Every place in a JSON value."""
    yield here
    if isinstance(tree, (dict, list)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from paths(part, (*here, key))


def changed(tree, path, value):
    """A JSON value with another one at a place."""
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


def test_headers_with_other_types(case):
    content, refused = case
    parts = members(content)
    count = 0
    for name in [name for name in parts if name.endswith("header.npy")][:3]:  # others are alike
        header = json.loads(np.load(io.BytesIO(parts[name])).tobytes())
        for path in paths(header):
            for value in OTHER_VALUES[:: 1 if len(path) == 1 else 4]:
                text = json.dumps(changed(header, path, value)).encode()
                bad = parts | {name: as_npy(np.frombuffer(text, np.uint8))}
                count += refused(archived(bad))
        for key in header:
            left = {other: part for other, part in header.items() if other != key}
            text = json.dumps(left).encode()
            refused(archived(parts | {name: as_npy(np.frombuffer(text, np.uint8))}))
    assert count > 100


OTHER_ARRAYS = [
    np.float64(3), np.ones(0), np.ones((0, 2)), np.ones((3, 2)), np.ones((6, 3), np.float32),
    np.arange(5), np.arange(5, dtype=">i8"), np.full((6, 2), np.nan), np.full(6, np.inf),
    np.array(["a", "b"]), np.array([b"x"]), np.ones((2, 2, 2)), np.ones(6, complex),
    np.ones((2, 16)) * 1e300, np.zeros(3, "f8,i4"), np.zeros(2, "M8[D]"), np.zeros(6, bool),
]  # fmt: skip


@pytest.mark.parametrize("name", ["row_log_scales", "col_log_scales"])
def test_scales_that_no_number_can_be(quantiles, tmp_path, name):
    parts, path = members(quantiles.read_bytes()), tmp_path / "bad.npz"
    member = next(one for one in parts if one.endswith(f"{name}.npy"))
    logs = np.load(io.BytesIO(parts[member]))
    for value, is_read in [(299.0, True), (-301.0, False), (1e300, False)]:
        logs[0, 1] = value
        path.write_bytes(archived(parts | {member: as_npy(logs)}))
        if is_read:
            fit = fastemf.load(path)
            assert np.isfinite(fit.predict_block(fit.axes[0].ids())).all()
            continue
        with pytest.raises(fastemf.ModelFileError, match=f"{name} must lie between -300 and 300"):
            fastemf.load(path)


def test_other_arrays(case):
    content, refused = case
    parts = members(content)
    for name in parts:
        assert refused(archived({other: parts[other] for other in parts if other != name}))
        count = sum(refused(archived(parts | {name: as_npy(array)})) for array in OTHER_ARRAYS)
        assert count > len(OTHER_ARRAYS) / 2


# --- arrays of a file -------------------------------------------------------------------------

GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"
HEADERS = [
    "", "{", "(" * 300, "-" * 5000 + "1", "{[]: 1}", "{'descr': '<f8'}", "[1]", "1 +", "'''", "\0",
    GOOD.replace("(2, 3)", "(2, 4)"), GOOD.replace("(2, 3)", "(-2, -3)"),
    GOOD.replace("(2, 3)", "(10**9, 3)"), GOOD.replace("(2, 3)", "(1000000000000, 3)"),
    GOOD.replace("(2, 3)", "(0, 1000000000000000000000000)"), GOOD.replace("(2, 3)", "6"),
    GOOD.replace("(2, 3)", "(2., 3)"), GOOD.replace("(2, 3)", "(" + "1, " * 100 + ")"),
    GOOD.replace("'<f8'", "'O'"), GOOD.replace("'<f8'", "'<f7'"), GOOD.replace("'<f8'", "()"),
    GOOD.replace("'<f8'", "[]"), GOOD.replace("'<f8'", "3"), GOOD.replace("'<f8'", "'|V0'"),
    GOOD.replace("False", "0"), GOOD.replace("False", "Fals"), GOOD.replace("}", ""),
]  # fmt: skip


def npy(header, version=b"\x01\x00"):
    text = header.encode() + b"\n"
    return (
        b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + np.arange(6.0).tobytes()
    )


def test_an_array_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "arrays.npz"
    path.write_bytes(archived({"a.npy": npy(GOOD), "b.npy": npy(GOOD.replace("False", "True"))}))
    found = read_arrays(path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"].tolist() == [[0, 2, 4], [1, 3, 5]]
    found["a"][0] = 7  # memory of its own
    np.savez(path, x=np.ones((0, 3)), y=np.array(2.5))
    assert read_arrays(path)["x"].shape == (0, 3)
    assert read_arrays(path)["y"] == 2.5
    np.savez(path, F=np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)))
    assert read_arrays(path)["F"].flags.c_contiguous  # kernels take no other
    assert np.array_equal(read_arrays(path)["F"], np.arange(24.0).reshape(2, 3, 4))


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_what_is_no_array_is_refused(header, tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(archived({"X.npy": npy(header)}))
    with pytest.raises(DamagedFileError, match=r"X\.npy is damaged"):
        read_arrays(path)


def test_other_versions_of_an_array_and_other_archives_are_refused(tmp_path):
    path = tmp_path / "bad.npz"
    for version in (b"\x03\x00", b"\x09\x01"):
        path.write_bytes(archived({"X.npy": npy(GOOD, version)}))
        with pytest.raises(DamagedFileError, match=r"X\.npy is damaged"):
            read_arrays(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("X.npy", npy(GOOD))
    with pytest.raises(DamagedFileError, match="another kind of file"):
        read_arrays(path)


def test_compressed_arrays_are_refused_before_they_are_inflated(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros(10**7))
    tracemalloc.start()
    with pytest.raises(DamagedFileError, match=r"X\.npy is compressed, which fastemf never writes"):
        read_arrays(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


def test_an_array_may_be_in_a_file_only_once(tmp_path):
    path = tmp_path / "bad.npz"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(2):
            archive.writestr("X.npy", npy(GOOD))
    with pytest.raises(DamagedFileError, match="two arrays of one name"):
        read_arrays(path)


def test_many_names_of_the_same_bytes_are_refused(tmp_path):
    """A directory that names one large array a hundred times claims a hundred times the file."""
    path = tmp_path / "bad.npz"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("X00.npy", as_npy(np.zeros(10**4)))
        for number in range(1, 100):
            again = copy.copy(archive.infolist()[0])
            again.filename = again.orig_filename = f"X{number:02}.npy"
            archive.filelist.append(again)
    path.write_bytes(file.getvalue())
    with pytest.raises(DamagedFileError, match="its parts are larger than the file"):
        read_arrays(path)


def test_reading_takes_the_memory_of_the_arrays_once(tmp_path):
    path = tmp_path / "large.npz"
    fit = fastemf.complete(R, 0.3, 2, reg=0.1, n_jobs=1)
    X = np.ones((10**6, 2))
    large = replace(fit, rows=Axis(X), training=None)
    large.save(path)
    fastemf.load(path)  # what is imported or compiled now does not count
    tracemalloc.start()
    found = fastemf.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.X.shape == X.shape
    assert peak < 1.25 * X.nbytes


def refuse_fast(read, path, message):
    """A pipe without a writer would be waited for, for ever."""
    with pytest.raises(OSError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert not isinstance(caught.value, BlockingIOError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("read", [load_model, take_up])
def test_what_is_no_file_is_refused_at_once(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuse_fast(read, tmp_path / "pipe", "[Nn]ot a regular file")
    (tmp_path / "folder").mkdir()
    refuse_fast(read, tmp_path / "folder", "is a folder|Is a directory")
    refuse_fast(read, Path("/dev/zero"), "[Nn]ot a regular file")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refuse_fast(read, tmp_path / "a", "circle|symbolic links")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
@pytest.mark.parametrize("read", [load_model, take_up])
def test_a_file_that_may_not_be_read_is_named(read, tmp_path, model):
    path = tmp_path / "secret.npz"
    path.write_bytes(model.read_bytes())
    path.chmod(0)
    refuse_fast(read, path, "denied")


def test_an_error_of_the_disk_is_not_taken_for_damage(model, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(zipfile.ZipFile, "open", fail)
    with pytest.raises(OSError, match=r"Input/output error.*model\.npz"):
        fastemf.load(model)


# --- stores -----------------------------------------------------------------------------------


def test_manifests_with_other_types(folder):
    path = folder / "manifest.json"
    good = path.read_text()
    manifest = json.loads(good)
    refused = 0
    try:
        for place in paths(manifest):
            for value in OTHER_VALUES:
                path.write_text(json.dumps(changed(manifest, place, value)))
                try:
                    store.open(folder)
                except store.StoreError as error:
                    assert str(folder) in str(error)  # noqa: PT017
                    refused += 1
        for key in manifest:
            path.write_text(json.dumps({name: manifest[name] for name in manifest if name != key}))
            with pytest.raises(store.StoreError, match=r"manifest\.json"):
                store.open(folder)
    finally:
        path.write_text(good)
    assert refused > 1000
    assert store.open(folder).shape == (2, 2)


def test_manifests_with_flipped_bytes(folder):
    path = folder / "manifest.json"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    try:
        for _ in range(200):
            damaged = bytearray(good[: rng.integers(1, len(good))] if rng.random() < 0.2 else good)
            damaged[rng.integers(len(damaged))] ^= rng.integers(1, 256)
            path.write_bytes(damaged)
            try:
                store.open(folder)
            except store.StoreError:
                refused += 1
    finally:
        path.write_bytes(good)
    assert refused > 50  # blanks, checksums and names may change
