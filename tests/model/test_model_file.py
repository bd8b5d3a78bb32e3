"""The model file: what is written comes back, and what is damaged or foreign is refused."""

import gc
import json
import os
import stat
import zipfile
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf.model.measured_share import MeasuredShare
from fastemf.solver.axis import AxisNoise
from fastemf.solver.beyond import Beyond
from fastemf.solver.imputation import Imputation
from fastemf.solver.tables import AxisLevels, Table, Tables
from fastemf.solver.tuning import Baseline, Tuning, TuningStep

RNG = np.random.default_rng(11)
DATA = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
DATA[0, 1] = DATA[3, 2] = np.nan
REMOVED = object()
WITH_GAPS = DATA.copy()
WITH_GAPS[4] = WITH_GAPS[:, 3] = np.nan


def fit(dtype=np.float64, *, intercepts=False):
    with pytest.warns(UserWarning, match="no observations"):
        return fastemf.complete(
            WITH_GAPS.astype(dtype), 0.3, 2, reg=0.1, tol=0.1, intercepts=intercepts
        )


def assert_same(one, other):
    """Every field equal, with its type; those of the axes too."""
    assert type(one) is type(other)
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        assert type(a) is type(b), f.name
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, f.name
            np.testing.assert_array_equal(a, b, err_msg=f.name, strict=True)
        elif f.name in ("history", "tuning"):
            assert repr(a) == repr(b)  # NaN is not equal to itself
        elif is_dataclass(a):
            assert_same(a, b)
        elif f.name == "each":
            for mine, theirs in zip(a, b, strict=True):
                assert_same(mine, theirs)
        elif f.name == "scales":
            for mine, theirs in zip(a, b, strict=True):
                np.testing.assert_array_equal(mine, theirs, strict=True)
        elif f.name == "knots":
            np.testing.assert_array_equal(np.concatenate(a), np.concatenate(b), strict=True)
        else:
            assert a == b, f.name


TUNING = Tuning(
    (
        TuningStep("constant", float("inf"), 0, 2.0, 0.25, float("nan")),
        TuningStep("weighted", 0.5, 2, 1.5, 0.25, 0.3),
    ),
    chosen=1, baselines=(Baseline("constant", 2.0),), cells=40, folds=10, noise=0.75, loss=1.25,
    effective_omega=0.3,
)  # fmt: skip


SHARE = MeasuredShare(0.75, 0.5, 0.125, (0.25, 1.0), 8, 0.125)


@pytest.fixture(scope="module")
def model():
    """A model with all that a file can hold but labels."""
    before = fit(intercepts=True)
    knots = np.array([-1.0, 0.5, 2.0]), np.arange(2.0)
    values = np.arange(6.0).reshape(3, 2)
    tables = Tables(
        (
            Table(("row level", "column level"), knots, values),
            Table(("product", "row noise"), knots, -values),
        ),
        0.5,
    )
    rows, cols = (
        replace(
            axis,
            noise=AxisNoise(1 + np.arange(axis.size) / 4, 0.5 + at),
            levels=AxisLevels(np.arange(axis.size) / 3, tables),
        )
        for at, axis in enumerate(before.axes)
    )
    return replace(
        before, rows=rows, cols=cols, shift=0.125, family="weighted", tuning=TUNING,
        coverage=SHARE,
        imputation=Imputation(
            (np.arange(1.0, rows.size + 1), np.ones(cols.size)),
            Beyond(np.array([-1.0, 2.0]), np.array([0.5, 2.0])),
            Beyond(np.array([0.0]), np.array([0.0])),
            (-8.0, 9.0),
            None,
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def good(model, tmp_path_factory):
    """A good file's path; its arrays are rewritten to make bad ones."""
    path = tmp_path_factory.mktemp("good") / "model.npz"
    model.save(path)
    return path


@pytest.fixture
def bad(good, tmp_path):
    """Write a copy of the good file with header fields and arrays changed; None removes one."""

    def write(header=None, **arrays):
        with np.load(good) as file:
            content = dict(file)
        scalars = json.loads(content["header"].tobytes()) | (header or {})
        scalars = {name: value for name, value in scalars.items() if value is not REMOVED}
        content["header"] = np.frombuffer(json.dumps(scalars).encode(), np.uint8)
        content |= arrays
        path = tmp_path / "bad.npz"
        np.savez(path, **{key: array for key, array in content.items() if array is not REMOVED})
        return path

    return write


def assert_refused(path, message):
    with pytest.raises(fastemf.ModelFileError, match=message) as caught:
        fastemf.load(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ValueError)


# --- round trip -----------------------------------------------------------------------------


@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(dtype, intercepts, tmp_path):
    before = fit(dtype, intercepts=intercepts)
    before.save(tmp_path / "model.npz")
    after = fastemf.load(tmp_path / "model.npz")
    assert_same(before, after)
    assert after.X.dtype == dtype
    assert after.history
    assert after.unseen_rows.tolist() == [4]
    assert after.unseen_cols.tolist() == [3]
    np.testing.assert_array_equal(after.to_dense(), before.to_dense())
    assert after.objective(WITH_GAPS) == before.objective(WITH_GAPS)


@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("new_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_of_a_fold_in(dtype, new_dtype, axis, intercepts, tmp_path):
    rows = slice(2) if axis == 0 else slice(None)
    cols = slice(2) if axis == 1 else slice(None)
    new = fit(dtype, intercepts=intercepts).fold_in(DATA[rows, cols].astype(new_dtype), axis=axis)
    new.save(tmp_path / "model.npz")
    after = fastemf.load(tmp_path / "model.npz")
    assert_same(new, after)
    assert after.shape[axis] == 2
    assert after.history == ()


def test_a_good_copy_loads(bad, model):
    assert_same(fastemf.load(bad()), model)  # or the refusals below would prove nothing


# --- writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "model.npz", "model.bin", "ein Modell é.npz.old"])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_is_kept_as_given(name, kind, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save(kind(name))
    assert os.listdir() == [name]
    assert_same(fastemf.load(kind(name)), model)


def test_saving_replaces_an_older_file(model, tmp_path):
    path = tmp_path / "model.npz"
    replace(model, mu=model.mu + 1).save(path)
    model.save(path)
    assert_same(fastemf.load(path), model)
    assert os.listdir(tmp_path) == ["model.npz"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_the_file_has_the_permissions_of_any_new_file(model, tmp_path):
    before = os.umask(0o027)
    try:
        model.save(tmp_path / "model.npz")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.npz").stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["numpy.savez", "os.fsync", "os.replace"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failing_save_leaves_what_was_there(call, error, existing, model, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    if existing:
        model.save(path)
    content = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(file, *_, **__):
        if call == "numpy.savez":
            file.write(b"half of it")
        raise error

    monkeypatch.setattr(call, fail)
    with pytest.raises(type(error)):
        replace(model, mu=0.5).save(path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_what_is_no_regular_file_is_not_replaced(model, tmp_path):
    """A model saved to /dev/null by root must not take its place."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="pipe: it is not a regular file"):
        model.save(path)
    assert path.is_fifo()
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


def test_saving_into_a_missing_folder_says_so(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "model.npz")


# --- damage ---------------------------------------------------------------------------------


def outcome(path, model):
    """'refused' or 'same', or what went wrong."""
    try:
        assert_same(fastemf.load(path), model)
    except fastemf.ModelFileError:
        return "refused"
    except AssertionError:
        return "another model"
    except Exception as error:
        return repr(error)
    return "same"


def test_truncated_files_are_refused(good, model, tmp_path):
    content, path = good.read_bytes(), tmp_path / "cut.npz"
    wrong = {}
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        if (end := outcome(path, model)) != "refused":
            wrong[size] = end
    assert wrong == {}
    gc.collect()  # a handle left open is a ResourceWarning, so an error


@pytest.mark.thorough
def test_a_flipped_bit_is_refused_or_harmless(good, model, tmp_path):
    content, path = good.read_bytes(), tmp_path / "flipped.npz"
    with zipfile.ZipFile(good) as archive:
        directory = archive.start_dir  # what no checksum covers
    flips = [(at, at % 8) for at in range(0, directory, 5)]
    flips += [(at, bit) for at in range(directory, len(content)) for bit in range(8)]
    wrong, ends = {}, set()
    for at, bit in flips:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        ends.add(end := outcome(path, model))
        if end not in ("refused", "same"):
            wrong.setdefault(end, f"byte {at} of {len(content)}, bit {bit}")
    assert wrong == {}
    assert "refused" in ends
    gc.collect()


def write_text(path):
    path.write_text("rows,cols,values\n0,1,2.5\n")


def write_npy(path):
    with path.open("wb") as file:
        np.save(file, DATA)


def write_raw_member(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", '{"format": "fastemf", "version": 1}')


FOREIGN = {
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "text": (write_text, "another kind"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04K\x01."), "another kind"),
    "single array": (write_npy, "single array"),
    "empty zip": (lambda path: path.write_bytes(b"PK\x05\x06" + bytes(18)), "header"),
    "raw zip member": (write_raw_member, "header"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files_are_refused(kind, tmp_path):
    path = tmp_path / "foreign.npz"
    write, message = FOREIGN[kind]
    write(path)
    assert_refused(path, message)
    gc.collect()


def test_a_missing_file_and_a_folder_are_no_model_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fastemf.load(tmp_path / "nowhere.npz")
    fastemf.store.build(([0], [0], [1.0]), tmp_path / "log.store")
    with pytest.raises(IsADirectoryError, match="store info"):
        fastemf.load(tmp_path / "log.store")
    with pytest.raises(OSError, match=r"directory|denied"):
        fastemf.load(tmp_path)


# --- content --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 99, 0, -1, "1", 1.0, True, None, REMOVED])
def test_other_versions_are_refused(version, bad):
    shown = None if version is REMOVED else version
    assert_refused(bad({"version": version}), f"version {shown}, while this fastemf reads 1 to 6")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"not JSON", "damaged header"),
        (b"", "damaged header"),
        (b"\xff\xfe\x00", "damaged header"),
        (b"[" * 100_000, "damaged header"),
        (b"[1, 2]", "another program"),
        (b'"fastemf"', "another program"),
        (b'{"version": 1}', "another program"),
    ],
    ids=["text", "empty", "no utf-8", "deep", "list", "string", "no format"],
)
def test_damaged_headers_are_refused(raw, message, good, tmp_path):
    with np.load(good) as file:
        content = dict(file) | {"header": np.frombuffer(raw, np.uint8)}
    np.savez(tmp_path / "bad.npz", **content)
    assert_refused(tmp_path / "bad.npz", message)


def test_intercepts_lost_as_a_pair_are_noticed(bad):
    # One bit in the zip directory can hide both arrays: another model, not one without intercepts.
    assert_refused(bad(row_intercepts=REMOVED, col_intercepts=REMOVED), "intercepts")


HEADER = {
    "omega": [0.0, 1.0, 1.5, -0.1, float("nan"), "0.3", None, 1],
    "mu": [float("nan"), float("inf"), "0", None, 0],
    "reg": [-1.0, float("nan"), float("inf"), "auto", None],
    "intercept_reg": [-1.0, float("nan"), float("inf"), False],
    "reg_scaling": ["other", 1, None],
    "converged": [1, 0.0, "yes", None],
    "shift": [float("nan"), float("inf"), "0", None, 0],
    "family": ["other", "constant", 1, None],
    "noise": [1.0, [], [1.0], [1.0, 2], [1.0, float("nan")], [-1.0, 1.0], [float("inf"), 1.0], {}],
    "tables": [
        1, "no", [], True, {"ridge": 0.5}, {"ridge": 0.5, "over": []},
        *({"ridge": bad, "over": [["product", "row noise"]]} for bad in (1, -1.0, np.nan, None)),
        *(
            {"ridge": 0.5, "over": over}
            for over in (1, ["product"], [["product"]], [["product", "luck"]], [["product", []]])
        ),
    ],
    "tuning": [1, [], {}, "no", asdict(TUNING) | {"more": 1}],
    "coverage": [
        1, "no", [], {}, asdict(SHARE) | {"more": 1},
        *(asdict(SHARE) | {"wanted": bad} for bad in (-0.1, 1.5, 1, np.nan, None)),
        *(asdict(SHARE) | {"interval": bad} for bad in (None, [0.5], [0.5, 2.0], [0, 1])),
        *(asdict(SHARE) | {"held_out": bad} for bad in (0, 2.0, True, 2**63)),
        *(asdict(SHARE) | {"shift": bad} for bad in (1, np.inf, np.nan)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in HEADER.items() for v in vs])
def test_wrong_scalars_are_refused(name, value, bad):
    assert_refused(bad({name: value}), f"{name} must")


@pytest.mark.parametrize("name", [*HEADER, "history_fields"])
def test_a_missing_header_field_is_refused(name, bad):
    assert_refused(bad({name: REMOVED}), f"header field '{name}' is missing")


@pytest.mark.parametrize(
    "name",
    [
        "X", "Y", "history", "unseen_rows", "unseen_cols", "row_intercepts", "col_intercepts",
        "row_noise", "col_noise", "row_levels", "col_levels", "table_0", "table_1", "table_0_first",
        "table_1_second",
    ],
)  # fmt: skip
def test_a_missing_array_is_refused(name, bad):
    assert_refused(bad(**{name: REMOVED}), f"array '{name}' is missing")


TUNINGS = {
    "steps": [None, {}, [1], [{}], [asdict(TUNING.steps[0]) | {"rank": -1}],
              [asdict(TUNING.steps[0]), asdict(TUNING.steps[0]) | {"family": "other"}]],
    "chosen": [-1, 2, 0.0, None, 10**400],
    "baselines": [None, [["constant", 2.0]], [{"name": 1, "loss": 2.0}]],
    "cells": [-1, 0.5, True],
    "folds": [-1, "1"],
    "note": [None, 1],
    "noise": [float("nan"), float("inf"), -1.0, 0],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in TUNINGS.items() for v in vs])
def test_a_wrong_tuning_is_refused(name, value, bad):
    assert_refused(bad({"tuning": asdict(TUNING) | {name: value}}), "tuning must")


def test_no_step_of_a_tuning_may_be_wrong(bad):
    for name, value in [
        ("reg", -1.0),
        ("loss", float("nan")),
        ("effective_omega", 10),
        ("rank", 1.0),
    ]:
        step = asdict(TUNING.steps[1]) | {name: value}
        assert_refused(bad({"tuning": asdict(TUNING) | {"steps": [step, step]}}), f"as {name}")


def test_unknown_keys_are_refused(bad):
    assert_refused(bad({"colour": "red"}), "header field 'colour' is unknown")
    assert_refused(bad(Z=np.zeros(3)), "array 'Z' is unknown")


def test_another_program_and_no_header_are_refused(bad, tmp_path):
    assert_refused(bad({"format": "otherlib"}), "another program")
    np.savez(tmp_path / "plain.npz", X=DATA)
    assert_refused(tmp_path / "plain.npz", "without a header")


@pytest.mark.parametrize("name", ["X", "history", "unseen_rows"])
def test_pickled_arrays_are_refused(name, bad):
    assert_refused(bad(**{name: np.array([{"run": "me"}], object)}), "another kind of file")


def holed(shape, hole, dtype=np.float64):
    array = np.ones(shape, dtype)
    array.flat[1] = hole
    return array


ARRAYS = [
    ("X", np.ones(6), "equal rank"),
    ("X", np.ones((6, 3)), "equal rank"),
    ("Y", np.ones((5, 2, 1)), "equal rank"),
    ("X", np.ones((7, 2)), "row_intercepts must have shape"),
    ("Y", np.ones((4, 2)), "col_intercepts must have shape"),
    ("X", np.ones((6, 2), np.float16), "X must be float32 or float64"),
    ("X", np.ones((6, 2), int), "X must be float32 or float64"),
    ("X", np.ones((6, 2), complex), "X must be float32 or float64"),
    ("X", np.full((6, 2), "a"), "X must be float32 or float64"),
    ("Y", np.ones((5, 2), np.float32), "Y must have the dtype of X"),
    ("row_intercepts", np.ones(6, np.float32), "row_intercepts must have the dtype of X"),
    ("row_intercepts", np.ones((6, 1)), "row_intercepts must have shape"),
    ("col_intercepts", np.ones(6), "col_intercepts must have shape"),
    ("X", holed((6, 2), np.nan), "X must be finite"),
    ("Y", holed((5, 2), np.inf), "Y must be finite"),
    ("col_intercepts", holed(5, -np.inf), "col_intercepts must be finite"),
    ("X", holed((6, 2), 1e308), "its numbers must not overflow float64"),
    ("unseen_rows", np.array([6]), "unseen_rows must hold indices below 6"),
    ("unseen_cols", np.array([-1]), "unseen_cols must hold indices below 5"),
    ("unseen_rows", np.array([1.0]), "unseen_rows must hold indices"),
    ("unseen_cols", np.array([[1]]), "unseen_cols must hold indices"),
    ("row_noise", np.ones(5), "row_noise must be float64 of shape"),
    ("col_noise", np.ones(5, np.float32), "col_noise must be float64 of shape"),
    ("col_noise", holed(5, np.nan), "col_noise must be finite"),
    ("row_noise", holed(6, 0.0), "row_noise must be positive"),
    ("row_levels", np.ones(5), "row_levels must be float64 of shape"),
    ("col_levels", holed(5, np.nan), "col_levels must be finite"),
    ("col_levels", holed(5, 1e308), "col_levels must be finite"),
    ("table_0_first", np.ones(3), "table_0_first must rise"),
    ("table_0_first", np.ones(0), "table_0_first must be float64 of shape"),
    ("table_0_first", np.arange(4.0), "table_0 must be float64 of shape"),
    ("table_1_second", np.array([0.0, np.inf]), "table_1_second must be finite"),
    ("table_1_second", np.ones((2, 1)), "table_1_second must be float64 of shape"),
    ("table_1", np.ones((2, 3)), "table_1 must be float64 of shape"),
    ("table_1", np.ones((3, 2), np.float32), "table_1 must be float64 of shape"),
    ("table_1", holed((3, 2), np.inf), "table_1 must be finite"),
    ("trained_rows", np.ones(5), "trained_rows must be float64 of shape"),
    ("trained_cols", np.ones((5, 2)), "trained_cols must be float64 of shape"),
    ("trained_cols", holed((5, 3), np.nan), "trained_cols must be finite"),
    ("history", np.ones((2, 3)), "history must have its columns"),
    ("history", np.ones(17), "history must have its columns"),
    ("history", np.ones((2, 17), np.float32), "history must have its columns"),
    ("history", holed((2, 17), np.nan), "history must be finite"),
    ("history", np.full((2, 17), np.nan), "history must be finite"),
    ("history", np.full((2, 17), np.inf), "history must be finite"),
]


@pytest.mark.parametrize(("name", "array", "message"), ARRAYS)
def test_wrong_arrays_are_refused(name, array, message, bad):
    assert_refused(bad(**{name: array}), message)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_that_predicts_infinity_is_neither_read_nor_written(dtype, tmp_path):
    good = fit(dtype)
    large = dtype(np.finfo(dtype).max / 4)
    one = replace(good, rows=replace(good.rows, factor=good.X * 0 + large))
    path = tmp_path / "model.npz"
    with pytest.raises(ValueError, match=r"model\.npz: its numbers must not overflow float"):
        one.save(path)
    nothing = replace(good.rows, factor=good.X * np.nan)
    with pytest.raises(ValueError, match=r"model\.npz: X must be finite"):
        replace(good, rows=nothing).save(path)
    good.save(path)
    with np.load(path) as file:
        content = dict(file) | {"X": one.X}
    np.savez(path, **content)
    assert_refused(path, "its numbers must not overflow")


HISTORY = [
    ("accepted", 0.5, "0 or 1 as accepted"),
    ("sweep", 1.5, "counts as sweep"),
    ("restarts", -1.0, "counts as restarts"),
    ("sign_flips", 1e300, "counts as sign_flips"),
]


@pytest.mark.parametrize(("name", "value", "message"), HISTORY)
def test_wrong_records_are_refused(name, value, message, bad):
    table = np.ones((2, 17))
    table[0, list(fastemf.SweepRecord.__dataclass_fields__).index(name)] = value
    assert_refused(bad(history=table), message)


def test_a_model_without_rows_is_refused(bad):
    none = np.ones(0)
    assert_refused(bad(X=np.ones((0, 2)), row_intercepts=none, unseen_rows=none.astype(int)), "X")


def test_history_must_have_the_known_columns(bad):
    assert_refused(bad({"history_fields": ["sweep"]}), "history")


def test_a_validation_loss_may_be_missing_but_not_infinite(bad):
    history = np.ones((2, 17))
    history[:, -2] = np.nan, 2.5
    losses = [record.validation_loss for record in fastemf.load(bad(history=history)).history]
    np.testing.assert_equal(losses, [np.nan, 2.5])
    history[0, -2] = np.inf
    assert_refused(bad(history=history), "history must be finite")


LATER = dict.fromkeys(
    (
        "shift", "family", "tuning", "noise", "tables", "training", "value_name", "coverage",
        "imputation",
    ),
    REMOVED,
)  # fmt: skip
LIMITS = dict.fromkeys(("row_scales", "col_scales", "beyond_right", "beyond_left"), REMOVED)
TABLES = dict.fromkeys(
    (
        "row_levels", "col_levels", "table_0", "table_0_first", "table_0_second", "table_1",
        "table_1_first", "table_1_second",
    ),
    REMOVED,
)  # fmt: skip
TRAINED = {"trained_rows": REMOVED, "trained_cols": REMOVED}
LATER_ARRAYS = {"row_noise": REMOVED, "col_noise": REMOVED, **TABLES, **TRAINED, **LIMITS}


@pytest.fixture
def older(bad, good):
    """Write a copy of the good file whose history has only the first columns, and more changed."""

    def write(columns, header=None, **arrays):
        with np.load(good) as file:
            names = json.loads(file["header"].tobytes())["history_fields"]
            history = file["history"]
        assert names[-2:] == ["validation_loss", "renewals"]
        named = {**(header or {}), "history_fields": names[:columns]}
        return bad(named, history=history[:, :columns], **arrays)

    return write


def test_tables_are_there_as_a_whole_and_beside_intercepts(bad):
    assert fastemf.load(bad({"tables": None}, **TABLES)).tables == ()
    assert_refused(bad({"tables": None}), "is unknown")
    without = {"row_intercepts": REMOVED, "col_intercepts": REMOVED}
    assert_refused(bad({"intercepts": False}, **without), "tables must have intercepts")


def test_only_a_weighted_fit_needs_noise(bad):
    gone = {"row_noise": REMOVED, "col_noise": REMOVED}
    assert fastemf.load(bad({"family": "even"})).rows.noise is not None
    assert fastemf.load(bad({"family": "even", "noise": None}, **gone)).rows.noise is None
    assert_refused(bad({"noise": None}, **gone), "noise must be there")
    assert_refused(bad({"noise": None}), "array 'col_noise' is unknown")


def test_version_4_knows_of_no_limits(bad, older):
    old = fastemf.load(older(-1, {"version": 4, "imputation": REMOVED}, **LIMITS))
    assert old.imputation is None
    assert {record.renewals for record in old.history} == {0}
    assert_refused(bad({"version": 4}), "header field 'imputation' is unknown")


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"imputation": [2.0, 1.0]}, {}, "two bounds, finite and rising"),
        ({"imputation": [0.0]}, {}, "two bounds, finite and rising"),
        ({"imputation": [0.0, float("inf")]}, {}, "two bounds, finite and rising"),
        ({"imputation": None}, {}, "is unknown"),
        ({}, {"row_scales": np.ones(3)}, "row_scales"),
        ({}, {"col_scales": np.zeros(5)}, "col_scales must be positive"),
        ({}, {"beyond_right": np.array([[1.0, 1.0], [2.0, 2.0]])}, "must have knots that rise"),
        ({}, {"beyond_left": np.array([[np.nan], [1.0]])}, "beyond_left"),
        ({}, {"beyond_left": np.empty((2, 0))}, "at most 256 knots"),
        ({}, {"beyond_left": np.ones(4)}, "at most 256 knots"),
    ],
)
def test_wrong_replacements_of_limits_are_refused(header, arrays, message, bad):
    assert_refused(bad(header, **arrays), message)


def test_version_3_has_no_levels_of_its_data(bad, older):
    later = dict.fromkeys(("training", "value_name", "coverage", "imputation"), REMOVED)
    old = fastemf.load(older(-1, {"version": 3, **later}, **TRAINED, **LIMITS))
    assert old.training is old.value_name is old.coverage is None
    assert_refused(bad({"version": 3}), "is unknown")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"constant": float("nan")}, "training must have finite numbers"),
        ({"ridge": 0.0}, "a positive ridge"),
        ({"median": 1}, "training must have finite numbers"),
        ({"more": 1.0}, "training must have the numbers constant"),
    ],
)
def test_wrong_levels_of_the_data_are_refused(changed, message, model, bad):
    names = ("constant", "column", "both", "median", "ridge")
    numbers = {name: getattr(model.training, name) for name in names}
    assert fastemf.load(bad({"training": numbers})).training.ridge == numbers["ridge"]
    assert_refused(bad({"training": numbers | changed}), message)
    assert_refused(bad({"training": None}), "'trained_cols' is unknown")
    assert_refused(bad({"training": [1.0]}), "training must have the numbers")
    assert_refused(bad({"value_name": 7}), "value_name must be a string")


def test_version_2_has_neither_shift_nor_noise(bad, older):
    old = fastemf.load(older(-1, {"version": 2, **LATER}, **LATER_ARRAYS))
    assert (old.shift, old.family, old.tuning) == (0.0, "even", None)
    assert old.rows.noise is None
    assert old.cols.noise is None
    assert_refused(bad({"version": 2}), "is unknown")


def test_version_1_has_no_validation_loss(bad, older):
    first = {"version": 1, "row_labels": REMOVED, "col_labels": REMOVED, **LATER}
    old = older(-2, first, **LATER_ARRAYS)
    assert np.isnan([record.validation_loss for record in fastemf.load(old).history]).all()
    assert_refused(bad(first, **LATER_ARRAYS), "history must have its columns")


@pytest.mark.parametrize("count", [3, 10**15, True])
def test_levels_that_are_not_there_are_refused(count, tmp_path):
    path = tmp_path / "levels.npz"
    fastemf.complete_levels(DATA, (0.2, 0.8), 1, reg=0.1, tol=0.1).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes()) | {"levels": count}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(fastemf.ModelFileError):
        fastemf.load(path)


def test_levels_with_different_labels_are_refused(tmp_path):
    path, labels = tmp_path / "levels.npz", fastemf.Labels([10, 20, 30, 40, 50, 60])
    levels = fastemf.complete_levels(DATA, (0.2, 0.8), 1, reg=0.1, tol=0.1)
    first, second = (
        replace(
            fit,
            rows=replace(fit.rows, labels=labels),
            cols=replace(fit.cols, labels=fastemf.Labels(list(names))),
        )
        for fit, names in zip(levels.fits, ("abcde", "edcba"), strict=True)
    )
    agreeing = replace(second, cols=replace(second.cols, labels=first.col_labels))
    replace(levels, fits=(first, agreeing)).save(path)
    assert fastemf.load(path).fits[1].col_labels == first.col_labels
    replace(levels, fits=(first, second)).save(path)
    with pytest.raises(fastemf.ModelFileError, match="levels must have the same labels"):
        fastemf.load(path)
