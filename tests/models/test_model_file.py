"""The model file: models round-trip, and damaged or foreign files are refused."""

import gc
import json
import os
import zipfile
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import fastemf

RNG = np.random.default_rng(11)
DATA = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
DATA[0, 1] = DATA[3, 2] = np.nan
WITH_GAPS = DATA.copy()
WITH_GAPS[4] = WITH_GAPS[:, 3] = np.nan
GOOD = Path(__file__).parents[1] / "golden" / "model-v1.npz"  # 3 × 2, with every optional part
REMOVED = object()


def fit(dtype=np.float64, *, intercepts=False):
    R = WITH_GAPS.astype(dtype)
    with pytest.warns(UserWarning, match="no observations"):
        return fastemf.complete(R, 0.3, 2, reg=0.1, tol=0.1, intercepts=intercepts)


def assert_same(one, other):
    """Check that two models, or parts of them, have equal fields of the same types."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif is_dataclass(one):
        for f in fields(one):
            assert_same(getattr(one, f.name), getattr(other, f.name))
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        np.testing.assert_equal(one, other)  # NaN is equal to itself


def assert_round_trip(model, folder):
    model.save(folder / "model.npz")
    loaded = fastemf.load(folder / "model.npz")
    assert_same(model, loaded)
    return loaded


@pytest.fixture(scope="module")
def model():
    return fastemf.load(GOOD)


@pytest.fixture
def bad(tmp_path):
    """Write a copy of a good file with changed header fields and arrays."""

    def write(header=None, /, source=GOOD, **arrays):
        with np.load(source) as file:
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
    after = assert_round_trip(before, tmp_path)
    assert after.X.dtype == dtype
    assert after.history
    assert after.unseen_rows.tolist() == [4]
    assert after.unseen_cols.tolist() == [3]
    np.testing.assert_array_equal(after.to_dense(), before.to_dense())
    assert after.objective(WITH_GAPS) == before.objective(WITH_GAPS)


@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("new_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_of_a_fold_in(dtype, new_dtype, intercepts, tmp_path):
    model = fit(dtype, intercepts=intercepts)
    for axis, new in enumerate((DATA[:2], DATA[:, :2])):
        after = assert_round_trip(model.fold_in(new.astype(new_dtype), axis=axis), tmp_path)
        assert after.shape[axis] == 2
        assert after.history == ()


# --- writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "model.npz", "model.bin", "ein Modell é.npz.old"])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_is_kept_as_given_and_an_older_file_replaced(
    name, kind, model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for one in (replace(model, mu=model.mu + 1), model):
        one.save(kind(name))
        assert os.listdir() == [name]
        assert_same(fastemf.load(kind(name)), one)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["numpy.savez", "os.fsync", "os.replace"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failing_save_leaves_the_folder_unchanged(
    call, error, existing, model, tmp_path, monkeypatch
):
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_that_predicts_infinity_is_neither_read_nor_written(dtype, bad, tmp_path):
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
    assert_refused(bad(source=path, X=one.X), "its numbers must not overflow")


# --- damage: bytes (test_damage.py damages models of every kind) ------------------------------


@pytest.mark.slow
@pytest.mark.thorough
def test_a_flipped_bit_is_refused_or_harmless(model, tmp_path):
    content, path = GOOD.read_bytes(), tmp_path / "flipped.npz"
    with zipfile.ZipFile(GOOD) as archive:
        directory = archive.start_dir  # which no checksum covers
    flips = [(at, at % 8) for at in range(0, directory, 20)]
    flips += [(at, bit) for at in range(directory, len(content)) for bit in (at % 4, 4 + at % 4)]
    refused = 0
    for at, bit in flips:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        try:
            assert_same(fastemf.load(path), model)
        except fastemf.ModelFileError:
            refused += 1
    assert refused > 0
    gc.collect()  # an open handle is a ResourceWarning, so an error


def write_npy(path):
    with path.open("wb") as file:
        np.save(file, DATA)


def write_raw_member(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", '{"format": "fastemf", "version": 1}')


FOREIGN = {
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "text": (lambda path: path.write_text("rows,cols,values\n0,1,2.5\n"), "another kind"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04K\x01."), "another kind"),
    "single array": (write_npy, "single array"),
    "empty zip": (lambda path: path.write_bytes(b"PK\x05\x06" + bytes(18)), "header"),
    "raw zip member": (write_raw_member, "header"),
    "other arrays": (lambda path: np.savez(path, X=DATA), "without a header"),
}


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign.npz"
    for write, message in FOREIGN.values():
        write(path)
        assert_refused(path, message)
    gc.collect()  # an open handle is a ResourceWarning, so an error


def test_a_missing_file_and_a_folder_are_other_errors(model, tmp_path):
    for call, name in ((fastemf.load, "nowhere.npz"), (model.save, "nowhere/model.npz")):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            call(tmp_path / name)
    fastemf.store.build(([0], [0], [1.0]), tmp_path / "log.store")
    with pytest.raises(IsADirectoryError, match="store info"):
        fastemf.load(tmp_path / "log.store")
    with pytest.raises(OSError, match=r"directory|denied"):
        fastemf.load(tmp_path)


# --- damage: header fields and arrays ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "quantiles"])
def test_other_versions_and_unknown_fields_are_refused(kind, bad):
    source = GOOD.with_name(f"{kind}-v1.npz")
    assert_same(fastemf.load(bad(source=source)), fastemf.load(source))
    for version in (2, 99, 0, -1, "1", 1.0, True, None, REMOVED):
        shown = None if version is REMOVED else version
        path = bad({"version": version}, source=source)
        assert_refused(path, f"version {shown}, while this fastemf reads")
    assert_refused(bad({"colour": "red"}, source=source), "header field 'colour' is unknown")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"not JSON", "damaged header"), (b"", "damaged header"),
        (b"\xff\xfe\x00", "damaged header"), (b"[" * 100_000, "damaged header"),
        (b"[1, 2]", "another program"), (b'"fastemf"', "another program"),
        (b'{"version": 1}', "another program"), (b'{"checkpoint": 1}', "checkpoint of a fit"),
    ],
    ids=["text", "empty", "no utf-8", "deep", "list", "string", "no format", "checkpoint"],
)  # fmt: skip
def test_damaged_headers_are_refused(raw, message, bad):
    assert_refused(bad(header=np.frombuffer(raw, np.uint8)), message)


NAN, INF = float("nan"), float("inf")
HEADER = {
    "format": ["otherlib"],
    "kind": ["other", None, 1],
    "omega": [0.0, 1.0, 1.5, -0.1, NAN, "0.3", None, 1],
    "mu": [NAN, INF, "0", None, 0],
    "reg": [-1.0, NAN, INF, "auto", None],
    "intercept_reg": [-1.0, NAN, INF, False],
    "intercepts": [1, None],
    "reg_scaling": ["other", 1, None],
    "converged": [1, 0.0, "yes", None],
    "shift": [NAN, INF, "0", None, 0],
    "family": ["other", "constant", 1, None],
    "noise": [1.0, [], [1.0], [1.0, 2], [1.0, NAN], [-1.0, 1.0], [INF, 1.0], {}],
    "corrections": [
        1, "no", [], True, {"ridge": 0.5}, {"ridge": 0.5, "over": []},
        *({"ridge": bad, "over": [["product", "row noise"]]} for bad in (1, -1.0, NAN, None)),
        *(
            {"ridge": 0.5, "over": over}
            for over in (1, ["product"], [["product"]], [["product", "luck"]], [["product", []]])
        ),
    ],
    "baselines": [[1.0], {}, dict.fromkeys(("constant", "column", "both", "median", "ridge"), 0.0)],
    "imputation": [[2.0, 1.0], [0.0], [0.0, INF], 1],
    "tuning": [1, [], {}, "no"],
    "value_name": [7],
    "weighted": [1, None],
    "history_fields": [["sweep"]],
}  # fmt: skip
RULES = {"format": "another program", "history_fields": "history must"}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in HEADER.items() for v in vs])
def test_wrong_header_fields_are_refused(name, value, bad):
    assert_refused(bad({name: value}), RULES.get(name, f"{name} must"))


@pytest.mark.parametrize("name", [*list(HEADER)[2:], "row_labels", "col_labels"])
def test_a_missing_header_field_is_refused(name, bad):
    assert_refused(bad({name: REMOVED}), f"header field '{name}' is missing")


def test_missing_pickled_and_unknown_arrays_are_refused(bad):
    with np.load(GOOD) as file:
        names = [name for name in file if name != "header"]
    for name in names:
        assert_refused(bad(**{name: REMOVED}), f"array '{name}' is missing")
        pickled = np.array([{"run": "me"}], object)
        assert_refused(bad(**{name: pickled}), "another kind of file")
    assert_refused(bad(Z=np.zeros(3)), "array 'Z' is unknown")
    # One bit in the zip directory can hide both arrays: the model would lose its intercepts.
    assert_refused(bad(row_intercepts=REMOVED, col_intercepts=REMOVED), "intercepts")


STEP = ("reg", "loss", "effective_omega", "rank", "family")  # fields of a step


@pytest.mark.parametrize(
    ("name", "wrong"),
    {
        "steps": [None, {}, [1], [{}]], "chosen": [-1, 2, 0.0, None, 10**400],
        "baselines": [None, [["constant", 2.0]], [{"name": 1, "loss": 2.0}]],
        "cells": [-1, 0.5, True], "noise": [NAN, INF, -1.0, 0], "more": [1],
        "reg": [-1.0], "loss": [NAN], "effective_omega": [10], "rank": [1.0], "family": ["?"],
    }.items(),
)  # fmt: skip
def test_a_wrong_tuning_is_refused(name, wrong, model, bad):
    tuning = asdict(model.tuning)
    for value in wrong:
        new = {"steps": [tuning["steps"][0] | {name: value}]} if name in STEP else {name: value}
        assert_refused(bad({"tuning": tuning | new}), "tuning must")


def holed(shape, hole, dtype=np.float64):
    array = np.ones(shape, dtype)
    array.flat[1] = hole
    return array


ARRAYS = {
    ".*equal rank": [("X", np.ones((3, 3))), ("Y", np.ones((2, 2, 1)))],
    ".*not empty": [("X", np.ones((0, 2)))],
    "must have shape": [("row_intercepts", np.ones(4)), ("col_intercepts", np.ones(3))],
    "must be float32 or float64": [("X", np.ones((3, 2), np.float16))],
    "must have the dtype of X": [
        ("Y", np.ones((2, 2), np.float32)), ("row_intercepts", np.ones(3, np.float32)),
    ],
    "must be finite": [
        ("X", holed((3, 2), np.nan)), ("Y", holed((2, 2), np.inf)),
        ("col_intercepts", holed(2, -np.inf)), ("col_noise", holed(2, np.nan)),
        ("col_effects", holed(2, np.nan)), ("correction_1_second", np.array([0.0, np.inf])),
        ("correction_1", holed((2, 2), np.inf)), ("baseline_cols", holed((2, 3), np.nan)),
        ("history", holed((2, 17), np.nan)),
    ],
    "must be float64 of shape": [
        ("row_noise", np.ones(2)), ("row_effects", np.ones(2)), ("baseline_rows", np.ones(2)),
        ("correction_0_first", np.ones(0)), ("correction_1", np.ones((2, 2), np.float32)),
    ],
    "must be positive": [("row_noise", holed(3, 0.0)), ("imputation_cols", np.zeros(2))],
    "must increase": [("correction_0_first", np.ones(2))],
    "must hold indices below": [
        ("unseen_rows", np.array([3])), ("unseen_cols", np.array([-1])),
        ("unseen_cols", np.array([[1]])),
    ],
    "": [("imputation_rows", np.ones(4))],
    ".*increasing knots": [("imputation_right", np.ones((2, 2)))],
    ".*at most 256 knots": [("imputation_left", np.empty((2, 0)))],
    "must have its columns": [
        ("history", np.ones((2, 3))), ("history", np.ones((2, 17), np.float32)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", ARRAYS)
def test_wrong_arrays_are_refused(rule, bad):
    for name, array in ARRAYS[rule]:
        assert_refused(bad(**{name: array}), f"{name} {rule}".rstrip())


def test_optional_parts_are_complete_or_absent(bad):
    tables = [
        "row_effects", "col_effects",
        *(f"correction_{t}{end}" for t in (0, 1) for end in ("", "_first", "_second")),
    ]  # fmt: skip
    without_tables = dict.fromkeys(tables, REMOVED)
    assert fastemf.load(bad({"corrections": None}, **without_tables)).corrections == ()
    assert_refused(bad({"corrections": None}), "is unknown")
    without = {"row_intercepts": REMOVED, "col_intercepts": REMOVED}
    assert_refused(bad({"intercepts": False}, **without), "corrections require intercepts")
    without = {"row_noise": REMOVED, "col_noise": REMOVED}
    assert fastemf.load(bad({"family": "equal"})).rows.noise is not None
    assert fastemf.load(bad({"family": "equal", "noise": None}, **without)).rows.noise is None
    assert_refused(bad({"noise": None}, **without), "noise must be given")
    for name in ("noise", "baselines", "imputation"):
        assert_refused(bad({name: None}), "is unknown")


# --- groups of quantiles ------------------------------------------------------------------------


def test_wrong_groups_and_shifts_are_refused(bad):
    source = GOOD.with_name("quantiles-v1.npz")
    quantiles = fastemf.load(source)
    assert quantiles.groups == "site"
    shifts = np.ones((2, len(quantiles.taus)))
    shifted = fastemf.load(bad(source=source, group_shifts=shifts))
    np.testing.assert_array_equal(shifted.combination.shifts.by_code, shifts)
    assert_refused(bad({"groups": None}, source=source, group_shifts=shifts), "must be of groups")
    for groups in ("hour", "x", 1, ["site"]):
        assert_refused(
            bad({"groups": groups}, source=source), "groups must be a feature of categories"
        )
    for wrong in (np.ones((3, 2)), shifts.astype(int), shifts * 1e101, shifts * np.nan):
        assert_refused(bad(source=source, group_shifts=wrong), "group_shifts must")


UPDATED = {
    "all_data": True, "observations": 9, "updated": [5, 5], "new": [1, 0], "ridges_kept": True,
    "trees_kept": True, "coverage": [0.3, 0.7], "before": [0.3, 0.7], "unseen": [],
    "moved": [],
}  # fmt: skip


def test_wrong_marks_and_records_of_updates_are_refused(bad):
    source = GOOD.with_name("quantiles-v1.npz")
    marks = fastemf.load(source).marks[0]
    assert marks.size == 6
    for wrong in (marks[:-1], -marks, marks + 2**32, marks.astype(float)):
        assert_refused(bad(source=source, row_marks=wrong), "row_marks must be int64")
    found = fastemf.load(bad({"updated": UPDATED}, source=source)).updated
    assert (found.updated, found.new, found.moved) == ((5, 5), (1, 0), ())
    for change in ({"new": [1]}, {"observations": 1.5}, {"trees_kept": 1}, {"moved": None}):
        assert_refused(bad({"updated": UPDATED | change}, source=source), "updated must have")
    for wrong in (0.0, 1.5, NAN, 1, None):
        assert_refused(bad({"proportion": wrong}, source=source), "proportion must be")
    for wrong in ([0.5], [0.5, 1.5], [0.5, 1], None):
        assert_refused(bad({"fitted_levels": wrong}, source=source), "fitted_levels must be")


COLD = {"name": "x", "coverage": 0.5, "interval": [0.4, 0.6], "cells": 9, "pinball": 1.0}
COLD["baseline"] = 2.0


@pytest.mark.parametrize(
    ("name", "wrong"),
    {
        "tau": [0.31, "0.3", None], "coverage": [1.1, -0.1, INF, 1, None],
        "interval": [[0.1], [0.1, NAN], [0.1, 0.2, 0.3], 0.1], "deciles": [[0.5] * 9, [2.0] * 10],
        "dense_cells": [1.0, True], "pinball": [NAN, INF, "1"], "measured": [1, None],
        "baselines": [{}, {"constant": 1.0}, [1.0], {"constant": None}], "more": [1],
        "cold": [None, [1], [COLD | {"cells": 1.5}], [COLD | {"pinball": NAN}], [COLD | {"x": 1}]],
        "groups": [{}, [COLD | {"interval": [0.4]}], [COLD | {"coverage": -1.0}]],
    }.items(),
)  # fmt: skip
def test_a_wrong_coverage_report_is_refused(name, wrong, bad):
    source = GOOD.with_name("quantiles-v1.npz")
    first, *others = [asdict(one) for one in fastemf.load(source).coverage]
    good = bad({"reports": [first | {"cold": [COLD]}, *others]}, source=source)
    assert fastemf.load(good).coverage[0].cold[0].interval == (0.4, 0.6)
    for value in wrong:
        reports = [first | {name: value}, *others]
        assert_refused(bad({"reports": reports}, source=source), "coverage must")
    for reports in (others, {}, None, [first, *others, first]):
        assert_refused(bad({"reports": reports}, source=source), "coverage must")


# --- several levels -------------------------------------------------------------------------


def test_missing_levels_and_different_labels_are_refused(bad, tmp_path):
    path, labels = tmp_path / "levels.npz", fastemf.Labels([10, 20, 30, 40, 50, 60])
    levels = fastemf.complete_levels(DATA, (0.2, 0.8), 1, reg=0.1, tol=0.1)
    levels.save(path)
    for names in (["0"], ["0", "1", "2"], ["0", "0"], [0, 1], "01", []):
        assert_refused(bad({"fits": names}, source=path), r"bad\.npz")

    def labelled(fit, names):
        cols = replace(fit.cols, labels=fastemf.Labels(list(names)))
        return replace(fit, rows=replace(fit.rows, labels=labels), cols=cols)

    named = [(0, "abcde"), (1, "abcde"), (1, "edcba")]
    first, agreeing, other = (labelled(levels.fits[at], names) for at, names in named)
    replace(levels, fits=(first, agreeing)).save(path)
    assert fastemf.load(path).fits[1].col_labels == first.col_labels
    replace(levels, fits=(first, other)).save(path)
    assert_refused(path, "levels must have the same labels")
