"""Damaged files of every kind raise one kind of error, which names the file."""

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
from fuzz.mutations import ARRAYS, archived, as_npy, changed, members, places

import fastemf
from fastemf import store
from fastemf.models.entities import Entities
from fastemf.solver.checkpoint import CheckpointFile
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.ridge import AnnealedRidge
from fastemf.sources.memory import observe
from fastemf.support.array_file import DamagedFileError, read_arrays

RNG = np.random.default_rng(5)
R = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
OTHER_VALUES = (
    None, True, False, 0, -1, 7, 10**400, 0.5, float("nan"), float("inf"), "", "f8", "07", [],
    [1, 2], ["a"], [None], {}, {"kind": "str", "name": None}, {"kind": [], "name": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a model file with several levels."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    table = pd.DataFrame(R, [f"r{i}" for i in range(6)], [0, 10, 20, 30, 40])
    fastemf.complete_levels(table, (0.3, 0.7), 1, intercepts=True, tol=0.1, n_jobs=1).save(path)
    return path


@pytest.fixture(scope="module")
def quantiles():
    return Path(__file__).parent / "golden" / "quantiles-v1.npz"


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Return a checkpoint whose best iterate is not its last."""
    path = tmp_path_factory.mktemp("state") / "state.npz"
    settings = {"reg": 0, "tol": 0.0, "max_iter": 12, "n_jobs": 1}
    validation = fastemf.Validation(R + 1, patience=50)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(R, 0.3, 2, validation=validation, checkpoint=path, **settings)
    return path


def read_state(path):
    engine = CompletionEngine(observe(R), 0.3, mu=None, n_threads=1)
    CheckpointFile(path, 1, True, {}).read_state(
        AnnealedRidge(0.3, 2, 1.0), (engine, engine), 2, validated=True
    )


FILES = {
    "model": (fastemf.load, fastemf.ModelFileError),
    "quantiles": (fastemf.load, fastemf.ModelFileError),
    "state": (read_state, fastemf.CheckpointError),
}


def is_refused(read, path, error):
    """Return whether reading raises an error, which must name the path."""
    try:
        read(path)
    except error as refusal:
        assert str(path) in str(refusal)  # noqa: PT017
        return True
    return False


@pytest.fixture(params=FILES)
def case(request, tmp_path):
    """Return the content of a valid file, and a function that tests if another is refused."""
    good, path = request.getfixturevalue(request.param), tmp_path / "bad.npz"
    read, error = FILES[request.param]

    def refused(content):
        path.write_bytes(content)
        return is_refused(read, path, error)

    return good.read_bytes(), refused


def test_truncated_files(case):
    content, refused = case
    assert not refused(content)
    for size in range(0, len(content), 1 + len(content) // 60):
        assert refused(content[:size])


@pytest.mark.thorough
def test_headers_with_other_types(case):
    content, refused = case
    parts = dict(members(content))
    count = 0

    def refused_with(name, header):
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        return refused(archived(parts | {name: as_npy(text)}))

    for name in [name for name in parts if name.endswith("header.npy")][:3]:  # others are alike
        header = json.loads(np.load(io.BytesIO(parts[name])).tobytes())
        for number, path in enumerate(places(header)):
            for value in OTHER_VALUES[number % 4 :: 4]:
                count += refused_with(name, changed(header, path, lambda _, value=value: value))
        for key in header:
            refused_with(name, {other: header[other] for other in header if other != key})
    assert count > 100


HOSTILE = (0.0, -1.0, 1.5, 299.0, -301.0, 1e99, -1e300, np.nan, np.inf)


def test_hostile_arrays_of_quantiles_are_refused_or_predict_finite_numbers(quantiles, tmp_path):
    parts, path = dict(members(quantiles.read_bytes())), tmp_path / "bad.npz"
    cells = [["r0", "r5", "x", "r1"], [10, 40, 0, 7]]
    ends = {"refused": 0, "read": 0}
    for name in (name for name in parts if "/" not in name and "header" not in name):
        good = np.load(io.BytesIO(parts[name]))
        for number, value in enumerate(HOSTILE):
            array = good.copy()
            with np.errstate(invalid="ignore"), warnings.catch_warnings(action="ignore"):
                if array.size:
                    array.flat[number % array.size] = np.array(value).astype(array.dtype)
                if number % 3 == 0:
                    array[:] = array[::-1]
            path.write_bytes(archived(parts | {name: as_npy(array)}))
            if is_refused(fastemf.load, path, fastemf.ModelFileError):
                ends["refused"] += 1
                continue
            ends["read"] += 1
            model = fastemf.load(path)
            [hour] = model.features.names[2]  # a changed text changes it
            some = model.predict(*cells, unknown="model", features={hour: [3, None, 1, 99]})
            for predicted in (model.predict_block(["r0", "r4"]), some):
                assert np.isfinite(predicted).all(), (name, value)
                assert (np.diff(predicted, axis=-1) >= 0).all(), (name, value)
            assert np.isfinite(list(model.explain("r0", 10, tau=0.7).parts.values())).all()
    assert min(ends.values()) > 100


@pytest.mark.thorough
def test_other_arrays(case):
    content, refused = case
    parts = dict(members(content))
    for number, name in enumerate(parts):
        assert refused(archived((other, parts[other]) for other in parts if other != name))
        arrays = ARRAYS[number % 2 :: 2]
        count = sum(refused(archived(parts | {name: as_npy(array)})) for array in arrays)
        assert count > len(arrays) / 2


# --- arrays of a file -------------------------------------------------------------------------

GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"
HEADERS = [
    "", "{", "(" * 300, "-" * 5000 + "1", "{[]: 1}", "{'descr': '<f8'}", "[1]", "1 +", "'''", "\0",
    *(GOOD.replace("(2, 3)", shape) for shape in (
        "(2, 4)", "(-2, -3)", "(10**9, 3)", "(1000000000000, 3)", "(2., 3)", "6",
        "(0, 1000000000000000000000000)", "(" + "1, " * 100 + ")",
    )),
    *(GOOD.replace("'<f8'", dtype) for dtype in ("'O'", "'<f7'", "()", "[]", "3", "'|V0'")),
    GOOD.replace("False", "0"), GOOD.replace("False", "Fals"), GOOD.replace("}", ""),
]  # fmt: skip


def npy(header, version=b"\x01\x00"):
    text = header.encode() + b"\n"
    start = b"\x93NUMPY" + version + len(text).to_bytes(2, "little")
    return start + text + np.arange(6.0).tobytes()


def test_an_array_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "arrays.npz"
    path.write_bytes(archived({"a.npy": npy(GOOD), "b.npy": npy(GOOD.replace("False", "True"))}))
    found = read_arrays(path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"].tolist() == [[0, 2, 4], [1, 3, 5]]
    found["a"][0] = 7  # memory of its own
    cube = np.arange(24.0).reshape(2, 3, 4)
    np.savez(path, x=np.ones((0, 3)), y=np.array(2.5), F=np.asfortranarray(cube))
    found = read_arrays(path)
    assert found["x"].shape == (0, 3)
    assert found["y"] == 2.5
    assert found["F"].flags.c_contiguous  # kernels take no other
    assert np.array_equal(found["F"], cube)


def zipped(write, compression=zipfile.ZIP_STORED):
    """Return the bytes of an archive with an array X, to which `write` may add members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about names that exist
        archive.writestr("X.npy", npy(GOOD))
        write(archive)
    return file.getvalue()


def list_again(archive):
    """List the array 99 times more: the members seem to have 100 times its size."""
    for number in range(99):
        again = copy.copy(archive.infolist()[0])
        again.filename = again.orig_filename = f"X{number:02}.npy"
        archive.filelist.append(again)


ARRAY_FILES = {f"header {i}": npy(header) for i, header in enumerate(HEADERS)}
ARRAY_FILES |= {"version 3": npy(GOOD, b"\x03\x00"), "version 9": npy(GOOD, b"\x09\x01")}
DAMAGED = {name: (archived({"X.npy": f}), "X.npy is damaged") for name, f in ARRAY_FILES.items()}
DAMAGED |= {
    "compression": (zipped(lambda _: None, zipfile.ZIP_LZMA), "another kind of file"),
    "same name": (zipped(lambda a: a.writestr("X.npy", npy(GOOD))), "two arrays of the same name"),
    "same bytes": (zipped(list_again), "its members are larger than the file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_invalid_arrays_are_refused(name, tmp_path):
    content, message = DAMAGED[name]
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=message):
        read_arrays(path)


def traced_peak(call):
    """Return the peak of memory of a call in bytes."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_compressed_arrays_are_refused_before_they_are_inflated(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros(10**7))

    def read():
        with pytest.raises(DamagedFileError, match="is compressed, which fastemf never"):
            read_arrays(path)

    assert traced_peak(read) < 10**6


def test_reading_takes_the_memory_of_the_arrays_once(tmp_path):
    path, X = tmp_path / "large.npz", np.ones((10**6, 2))
    fit = fastemf.complete(R, 0.3, 2, reg=0.1, n_jobs=1)
    replace(fit, rows=Entities(X), training=None).save(path)
    assert fastemf.load(path).X.shape == X.shape  # imports and compiles before the measurement
    assert traced_peak(lambda: fastemf.load(path)) < 1.25 * X.nbytes


def refuse_fast(read, path, message):
    """Check for an error; reading a pipe without a writer would block."""
    with pytest.raises(OSError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert not isinstance(caught.value, BlockingIOError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("read", [fastemf.load, read_state])
def test_only_regular_files_are_read(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuse_fast(read, tmp_path / "pipe", "[Nn]ot a regular file")
    (tmp_path / "folder").mkdir()
    refuse_fast(read, tmp_path / "folder", "is a folder|Is a directory")
    refuse_fast(read, Path("/dev/zero"), "[Nn]ot a regular file")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refuse_fast(read, tmp_path / "a", "circle|symbolic links")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
@pytest.mark.parametrize("read", [fastemf.load, read_state])
def test_an_unreadable_file_is_named(read, tmp_path, model):
    path = tmp_path / "secret.npz"
    path.write_bytes(model.read_bytes())
    path.chmod(0)
    refuse_fast(read, path, "denied")


def test_a_disk_error_is_not_reported_as_damage(model, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(zipfile.ZipFile, "open", fail)
    with pytest.raises(OSError, match=r"Input/output error.*model\.npz"):
        fastemf.load(model)


# --- stores -----------------------------------------------------------------------------------


def test_manifests_with_other_types(tmp_path):
    folder = tmp_path / "log"
    lines = {"client": ["a", "b", "b"], "service": [7, 7, 3], "ms": [1.0, 2.0, 4.0]}
    store.build(pa.table(lines), folder, rows="client", cols="service", values="ms")
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())

    def refused(fields):
        path.write_text(json.dumps(fields))
        return is_refused(store.open, folder, store.StoreError)

    assert not refused(manifest)
    count = 0
    for place in places(manifest):
        for value in OTHER_VALUES:
            count += refused(changed(manifest, place, lambda _, value=value: value))
    assert count > 1000
    for key in manifest:
        assert refused({name: manifest[name] for name in manifest if name != key})
