"""A fit that was interrupted goes on to the bits it would have reached."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fastemf
from fastemf.datasets import make_skewed

R = make_skewed(30, 20, rank=2, density=0.5, random_state=1).R

SETTINGS = {
    "auto": {},
    "intercepts": {"intercepts": True},
    "annealed": {"reg": 0},
    "plain": {"reg": 0.1, "momentum": False},
    "orthogonal": {"reg": 0, "orthogonalize": np.bool_(True)},
    "cg": {"reg": 0.05, "solver": "cg"},
    "validation": {"validation": 0.2, "patience": 30, "reg": "noise"},
    "float32": {"R": R.astype(np.float32)},
}


class Killed(BaseException):
    pass


def same_bits(a, b):
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None and right is None) or np.array_equal(left, right)
    assert (a.reg, a.intercept_reg, a.converged) == (b.reg, b.intercept_reg, b.converged)
    for one, other in zip(a.history, b.history, strict=True):
        left, right = (dataclasses.replace(record, seconds=0.0) for record in (one, other))
        assert repr(left) == repr(right)  # NaN is NaN


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("sweep", [1, 7, 13])
def test_resumed_fit_has_the_bits_of_one_without_interruption(name, sweep, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"tol": 1e-9, "max_iter": 24, **SETTINGS[name]}
    data = settings.pop("R", R)
    whole = fastemf.complete(data, 0.2, 2, **settings)

    def kill(record):
        if record.sweep == sweep:
            raise Killed

    kept = {"checkpoint": path, "checkpoint_every": 3}
    with pytest.raises(Killed):
        fastemf.complete(data, 0.2, 2, callback=kill, **kept, **settings)
    assert path.exists() == (sweep > 3)
    again = fastemf.complete(data, 0.2, 2, resume=True, **kept, **settings)
    same_bits(again, whole)
    done = fastemf.complete(data, 0.2, 2, resume=True, **kept, **settings)  # nothing left to do
    same_bits(done, whole)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_more_sweeps_may_be_asked_for(tmp_path):
    for orthogonalize in (False, True):
        settings = {"reg": 0, "orthogonalize": orthogonalize, "tol": 0}
        kept = {"checkpoint": tmp_path / f"{orthogonalize}.npz", "resume": True}
        fastemf.complete(R, 0.2, 2, max_iter=5, **kept, **settings)
        longer = fastemf.complete(R, 0.2, 2, max_iter=12, n_jobs=1, **kept, **settings)
        same_bits(longer, fastemf.complete(R, 0.2, 2, max_iter=12, **settings))


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_fits_of_any_unit_are_kept_and_read(unit, tmp_path):
    """The squared norm of a gradient overflows long before the data do."""
    settings = {"omega": 0.2, "k": 2, "tol": 0}
    fastemf.complete(unit * R, max_iter=5, checkpoint=tmp_path / "state.npz", **settings)
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    again = fastemf.complete(unit * R, max_iter=9, **kept, **settings)
    whole = fastemf.complete(unit * R, max_iter=9, **settings)
    same_bits(again, whole)
    whole.save(tmp_path / "model.npz")
    same_bits(fastemf.load(tmp_path / "model.npz"), whole)


def test_a_fit_from_a_store_goes_on(tmp_path):
    coo = R.tocoo()
    data = fastemf.store.build((coo.row, coo.col, coo.data), tmp_path / "store")
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 2}

    def kill(record):
        if record.sweep == 5:
            raise Killed

    with pytest.raises(Killed):
        fastemf.complete(data, 0.2, 2, callback=kill, **kept)
    again = fastemf.complete(tmp_path / "store", 0.2, 2, resume=True, **kept)
    same_bits(again, fastemf.complete(R, 0.2, 2))
    (tmp_path / "other").mkdir()
    other = fastemf.store.build((coo.row, coo.col, 2 * coo.data), tmp_path / "other" / "store")
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.complete(other, 0.2, 2, resume=True, **kept)


def test_an_old_checkpoint_is_neither_used_nor_lost_by_accident(tmp_path):
    path = tmp_path / "state.npz"
    fastemf.complete(R, 0.2, 2, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"state\.npz exists: resume=True continues"):
        fastemf.complete(R, 0.2, 2, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"omega": 0.3}, r"of a fit with omega=0\.2, and this one has omega=0\.3"),
        ({"k": 3}, "with k=2, and this one has k=3"),
        ({"reg": 0.5}, r"with reg='auto', and this one has reg=0\.5"),
        ({"intercepts": True}, "with intercepts=False"),
        ({"tol": 1e-3}, "with tol="),
        ({"momentum": False}, "with momentum=True"),
        ({"random_state": 3}, "with random_state=0"),
        ({"init": "random"}, "with init='spectral'"),
        ({"R": R * 2}, "of other data"),
        ({"R": R[:, ::-1]}, "of other data"),
        ({"R": R.astype(np.float32)}, "of other data"),
        ({"weights": np.ones(R.nnz)}, "of other data"),
        ({"validation": 0.2}, "of other data"),
    ],
)
def test_other_data_or_settings_are_refused(change, message, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"R": R, "omega": 0.2, "k": 2, "checkpoint": path}
    fastemf.complete(**settings)
    before = path.read_bytes()
    with pytest.raises(fastemf.CheckpointError, match=message):
        fastemf.complete(**(settings | {"resume": True} | change))
    assert path.read_bytes() == before


def test_damaged_checkpoints_are_refused_by_name(tmp_path):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "checkpoint": path, "resume": True}
    fastemf.complete(R, **settings)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    bad = [b"", b"PK", good[: len(good) // 2], good[:-1]]
    for at in rng.choice(len(good), 20, replace=False):
        bad.append(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
    refused = 0
    for content in bad:
        path.write_bytes(content)
        try:
            fastemf.complete(R, **settings)
        except fastemf.CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused >= 20  # some bytes of a zip file mean nothing
    fit = fastemf.complete(R, 0.2, 2)
    fit.save(path)
    with pytest.raises(fastemf.CheckpointError, match="not a fastemf checkpoint"):
        fastemf.complete(R, **settings)


def test_equal_values_in_other_places_are_other_data(tmp_path):
    path = tmp_path / "state.npz"
    rows, cols = np.divmod(np.arange(20), 4)
    kept = {"omega": 0.2, "k": 1, "shape": (5, 8), "checkpoint": path}
    # Every row, every column and every value come up as often in both.
    fastemf.complete((rows, cols + 4 * (rows % 2), np.ones(20)), **kept)
    places = (rows + 1) % 5, cols + 4 * (rows % 2)
    moved = np.lexsort(places[::-1])
    other = (places[0][moved], places[1][moved], np.ones(20))
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.complete(other, resume=True, **kept)


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_checkpoints_of_other_versions_are_refused(version, tmp_path):
    path = tmp_path / "state.npz"
    fastemf.complete(R, 0.2, 2, checkpoint=path)
    rewrite(path, {"checkpoint": version})
    with pytest.raises(
        fastemf.CheckpointError, match=rf"state\.npz .* version {version}, and this"
    ):
        fastemf.complete(R, 0.2, 2, checkpoint=path, resume=True)


# --- crafted checkpoints ---------------------------------------------------------------------


def rewrite(path, header=None, **arrays):
    """Change fields of the header and arrays of a checkpoint; an array of None goes away."""
    with np.load(path) as file:
        content = dict(file)
    about = json.loads(content["header"].tobytes()) | (header or {})
    content |= {"header": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}
    np.savez(path, **{name: array for name, array in content.items() if array is not None})


RECORD = [1.0, 9.0, 8.0, 1.0, 0.1, 0.1, 0.5, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.1, 2.0, 0.0]


def record(**changes):
    names = list(fastemf.SweepRecord.__dataclass_fields__)
    return np.array([[changes.get(name, x) for name, x in zip(names, RECORD, strict=True)]])


CRAFTED = [
    # Kernels would read past the end of these.
    ({}, {"point_X": np.ones((3, 3)), "previous": np.ones((3, 3))}, r"point_X must be float64 of"),
    ({}, {"point_Y": np.ones((1, 3))}, r"point_Y must be float64 of shape \(20, 3\)"),
    ({}, {"point_X": np.ones((30, 1)), "point_Y": np.ones((20, 1))}, "point_X must be"),
    ({}, {"previous": np.ones((31, 3))}, "previous must be"),
    ({}, {"best_Y": np.ones((20, 4))}, "best_Y must be"),
    ({}, {"point_X": np.ones((30, 3), np.float32)}, "point_X must be float64"),
    ({}, {"point_X": np.full((30, 3), np.nan)}, "point_X must be finite"),
    ({}, {"previous": np.full((30, 3), -np.inf)}, "previous must be finite"),
    ({}, {"best_X": np.full((30, 3), np.inf)}, "best_X must be finite"),
    ({}, {"point_X": np.full((30, 3), 1e300)}, "its factors must not overflow float64"),
    ({}, {"previous": np.full((30, 3), 1e300)}, "its factors must not overflow float64"),
    # The square of one intercept is a number, its column's loss is not.
    ({}, {"point_Y": np.where(np.arange(60) == 59, 1e154, 1.0).reshape(20, 3)},
     "its factors must not overflow float64"),
    ({}, {"best_X": None}, "array 'best_X' is missing"),
    ({}, {"Z": np.ones(3)}, "array 'Z' is unknown"),
    ({"colour": "red"}, {}, "header field 'colour' is unknown"),
    ({"at_best": True}, {}, "'best' is unknown"),
    ({"remaining": -1.0}, {}, "remaining must be"),
    ({"remaining": float("nan")}, {}, "remaining must be"),
    ({"accepted_since": -1}, {}, "accepted_since must be"),
    ({"accepted_since": 10**9}, {}, "accepted_since must be"),
    ({"accepted_since": True}, {}, "'accepted_since' must be int"),
    ({"restarts": 77}, {}, "restarts must be those of its history"),
    ({"best_sweep": 0}, {}, "best_sweep must be one of its sweeps"),
    ({"best_sweep": 10**30}, {}, "best_sweep must be one of its sweeps"),
    ({"point": [-1.0, 0.0, 1.0, 1.0, 1.0]}, {}, "point must be finite"),
    ({"point": [0.1, 0.0, float("inf"), 1.0, 1.0]}, {}, "point must be finite"),
    ({"point": [0.1, 0.0, 1.0, 1.0, float("nan")]}, {}, "point must have a validation loss"),
    ({"point": [0.1, 0.0, 1.0]}, {}, "'point' must be 5 numbers"),
    ({"best": [0.1, 0.0, 1.0, float("nan"), 1.0]}, {}, "best must be finite"),
    ({"schedule": [float("nan"), 0.1, 0.0]}, {}, "schedule must be finite"),
    ({"schedule": [-0.1, 0.1, 0.0]}, {}, "schedule must be finite and not negative"),
    ({"schedule": [0.1, 0.1, 0.5]}, {}, "schedule must be settled or not"),
    ({"schedule": [0.1, 1e9, 1.0]}, {}, "schedule must be settled or not"),
    ({"schedule": [1e308, 0.1, 1.0]}, {}, "its ridge must not overflow float64"),
    ({"schedule": [0.1]}, {}, "'schedule' must be 3 numbers"),
    ({}, {"history": np.ones((0, 17))}, "history must have a sweep"),
    ({}, {"history": record(sweep=2.0)}, "history must number its sweeps from 1"),
    ({}, {"history": record(accepted=0.0)}, "history must count its restarts"),
    ({}, {"history": record(accepted=0.5)}, "history must have 0 or 1 as accepted"),
    ({}, {"history": record(sign_flips=-1.0)}, "history must have counts as sign_flips"),
    ({}, {"history": record(sign_flips=1e300)}, "history must have counts as sign_flips"),
    ({}, {"history": record(line_searches=0.5)}, "history must have counts as line_searches"),
    ({}, {"history": record(restarts=3.0)}, "history must count its restarts"),
    ({}, {"history": record(loss=np.nan)}, "history must be finite"),
]  # fmt: skip


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A checkpoint with all that one can hold, and its fit: the best iterate is not the last."""
    path = tmp_path_factory.mktemp("state") / "state.npz"
    full = R.toarray()
    settings = {"omega": 0.2, "k": 2, "intercepts": True, "validation": full + 5, "patience": 90}
    settings["reg"] = "noise"
    settings |= {"max_iter": 12, "tol": 0.0, "checkpoint": path, "resume": True}
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(R, **settings)
    with np.load(path) as file:
        assert "best_X" in file
    return path.read_bytes(), settings


@pytest.mark.parametrize(("header", "arrays", "message"), CRAFTED, ids=range(len(CRAFTED)))
def test_crafted_checkpoints_are_refused_by_name(header, arrays, message, state, tmp_path):
    content, settings = state
    path = tmp_path / "state.npz"
    path.write_bytes(content)
    rewrite(path, header, **arrays)
    with pytest.raises(fastemf.CheckpointError, match=message) as caught:
        fastemf.complete(R, **settings | {"checkpoint": path})
    assert str(path) in str(caught.value)


def test_a_rewritten_checkpoint_is_resumed(state, tmp_path):
    content, settings = state
    path = tmp_path / "state.npz"
    path.write_bytes(content)
    rewrite(path)
    with pytest.warns(fastemf.ConvergenceWarning):  # or the refusals above would prove nothing
        assert fastemf.complete(R, **settings | {"checkpoint": path}).n_iter == 12


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("memory", [[0.1, 1.5], [0.1, -1.0], [1e308, 0.0], [0.1]])
def test_crafted_memories_of_an_annealed_ridge_are_refused(memory, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "reg": 0, "checkpoint": path}
    fastemf.complete(R, **settings)
    rewrite(path, {"schedule": memory})
    with pytest.raises(fastemf.CheckpointError, match=r"state\.npz .*(schedule|ridge)"):
        fastemf.complete(R, resume=True, **settings)


@pytest.mark.compiled  # NumPy warns of what the kernels report
@pytest.mark.parametrize("size", [1e20, 1e25, 1e38])
def test_a_checkpoint_whose_next_sweep_overflows_is_named(size, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "reg": 0.1, "tol": 0, "checkpoint": path}
    data = R.astype(np.float32)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(data, max_iter=8, **settings)
    before = path.read_bytes()
    rewrite(path, previous=np.full((30, 2), size, np.float32))
    with pytest.raises(fastemf.CheckpointError, match=r"state\.npz cannot be resumed: the normal"):
        fastemf.complete(data, max_iter=9, resume=True, **settings)
    path.write_bytes(before)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(data, max_iter=9, resume=True, **settings)


def test_crafted_checkpoints_of_levels_and_measurements_are_refused(tmp_path):
    settings = {"checkpoint": tmp_path / "state.npz", "resume": True}
    fastemf.complete_levels(R, (0.2, 0.8), 2, **settings)
    rewrite(tmp_path / "state-0.8.npz", point_X=np.ones((3, 2)), previous=np.ones((3, 2)))
    with pytest.raises(fastemf.CheckpointError, match=r"state-0\.8\.npz .* point_X must be"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, **settings)
    A = fastemf.operators.Gaussian(60, (8, 6), seed=1)
    b = A.forward(np.ones((8, 1)), np.ones((6, 1)))
    fastemf.sense(A, b, 0.2, 2, reg=0.1, **settings)
    rewrite(tmp_path / "state.npz", point_Y=np.ones((2, 2)))
    with pytest.raises(fastemf.CheckpointError, match=r"state\.npz .* point_Y must be"):
        fastemf.sense(A, b, 0.2, 2, reg=0.1, **settings)


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "checkpoint": path, "checkpoint_every": 2}
    writes = []

    def full(*args, **kwargs):
        writes.append(path.read_bytes() if path.exists() else b"")
        if len(writes) == 3:
            raise OSError(28, "No space left on device")
        return savez(*args, **kwargs)

    savez = np.savez
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        fastemf.complete(R, tol=0, **settings)
    assert path.read_bytes() == writes[2] != b""
    assert os.listdir(tmp_path) == ["state.npz"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"resume": True}, ValueError, "resume=True needs checkpoint"),
        ({"checkpoint": "x", "checkpoint_every": 0}, ValueError, "checkpoint_every must be at"),
        ({"checkpoint": "no/such/folder"}, FileNotFoundError, "there is no such folder"),
    ],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        fastemf.complete(R, 0.2, 2, callback=lambda _: pytest.fail("after a sweep"), **settings)


# --- several levels -------------------------------------------------------------------------


class Killer:
    """A callback that ends the process, as it were, after so many sweeps of all levels."""

    def __init__(self, sweeps):
        self.left = sweeps

    def __call__(self, record):
        self.left -= 1
        if self.left < 0:
            raise Killed


GAP = R.toarray()
GAP[GAP == 0] = np.nan
GAP[7] = np.nan  # a row that starts at random

LEVELS = {
    "auto": {},
    "intercepts": {"intercepts": True, "solver": "cg"},
    "annealed": {"reg": 0},
    "validation": {"validation": 0.2, "patience": 4, "reg": "noise"},
    # A plain ridge weighs such a row's start too: the first record of a level shows it.
    "unseen": {"R": GAP, "init": "random", "reg": 0.1, "reg_scaling": "plain"},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", LEVELS)
def test_resumed_levels_have_the_bits_of_ones_without_interruption(name, tmp_path):
    settings = {"omegas": (0.1, 0.5, 0.9), "k": 2, "max_iter": 12, "tol": 1e-6, **LEVELS[name]}
    data = settings.pop("R", R)
    whole = fastemf.complete_levels(data, **settings)
    sweeps = sum(fit.n_iter for fit in whole.fits)
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 2, "resume": True}
    first = whole.fits[0].n_iter
    # Within the first level, between two levels, twice within the others.
    for killed, after in enumerate((5, first - 4, 3, 4)):
        with pytest.raises(Killed):
            fastemf.complete_levels(data, callback=Killer(after), **kept, **settings)
        files = {path.name for path in tmp_path.iterdir()}
        assert files <= {f"state-{omega}.npz" for omega in (0.1, 0.5, 0.9)}
        assert len(files) >= 1 + (killed > 2)
    done = []
    again = fastemf.complete_levels(data, callback=done.append, **kept, **settings)
    assert len(done) < sweeps - first  # the first level was done, and others in part
    for one, two in zip(again.fits, whole.fits, strict=True):
        same_bits(one, two)
    done.clear()
    again = fastemf.complete_levels(data, callback=done.append, **kept, **settings)
    assert not done
    for one, two in zip(again.fits, whole.fits, strict=True):
        same_bits(one, two)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_levels_that_a_callback_ended_are_not_fitted_again(tmp_path):
    settings = {"omegas": (0.1, 0.5, 0.9), "k": 2, "tol": 0}
    whole = fastemf.complete_levels(R, callback=lambda record: record.sweep >= 5, **settings)
    assert [fit.n_iter for fit in whole.fits] == [5, 5, 5]
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 1, "resume": True}
    killer = Killer(7)  # in the second level

    def ends_early(record):
        killer(record)
        return record.sweep >= 5

    with pytest.raises(Killed):
        fastemf.complete_levels(R, callback=ends_early, **kept, **settings)
    for _ in range(2):
        again = fastemf.complete_levels(
            R, callback=lambda record: record.sweep >= 5, **kept, **settings
        )
        for one, two in zip(again.fits, whole.fits, strict=True):
            same_bits(one, two)


@pytest.mark.parametrize("path", ["", "."])
def test_levels_need_a_file_name_for_their_checkpoints(path):
    with pytest.raises(OSError, match=r"checkpoint|folder|directory"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, checkpoint=path)


def test_levels_refuse_files_of_other_fits_before_any_work(tmp_path):
    def fail(record):
        pytest.fail("after a sweep")

    path = tmp_path / "state"
    fastemf.complete_levels(R, (0.2, 0.8), 2, checkpoint=path)
    assert sorted(os.listdir(tmp_path)) == ["state-0.2", "state-0.8"]
    (tmp_path / "state-0.2").unlink()
    with pytest.raises(FileExistsError, match=r"state-0\.8 exists: resume=True continues from it"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, checkpoint=path, callback=fail)
    with pytest.raises(ValueError, match="resume=True needs checkpoint"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, resume=True, callback=fail)
    again = {"checkpoint": path, "resume": True}
    fastemf.complete_levels(R, (0.2, 0.8), 2, **again)
    with pytest.raises(fastemf.CheckpointError, match=r"omegas=\[0\.2, 0\.8\], and this one has"):
        fastemf.complete_levels(R, (0.2, 0.5), 2, callback=fail, **again)
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.complete_levels(2 * R, (0.2, 0.8), 2, callback=fail, **again)
    with pytest.raises(fastemf.CheckpointError, match="with random_state=0, and this one has"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, random_state=1, callback=fail, **again)


def test_more_sweeps_of_levels_may_be_asked_for(tmp_path):
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    with pytest.warns(fastemf.ConvergenceWarning, match="2 of 2 levels did not converge"):
        short = fastemf.complete_levels(R, (0.2, 0.8), 2, max_iter=3, **kept)
    longer = fastemf.complete_levels(R, (0.2, 0.8), 2, **kept)
    for one, two in zip(short.fits, longer.fits, strict=True):
        assert two.converged
        assert two.history[:3] == one.history or repr(two.history[:3]) == repr(one.history)


# --- linear measurements --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["gaussian", "entries"])
@pytest.mark.parametrize("settings", [{}, {"reg": 0.1}, {"orthogonalize": True}], ids=repr)
def test_a_fit_of_measurements_goes_on(kind, settings, tmp_path):
    rng = np.random.default_rng(0)
    M = rng.random((8, 2)) @ rng.random((2, 6))
    if kind == "gaussian":
        A = fastemf.operators.Gaussian(60, M.shape, seed=1)
    else:
        rows, cols = np.divmod(rng.permutation(48)[:40], 6)
        A = fastemf.operators.Entries(rows, cols, M.shape)
    b = A.forward(M, np.eye(6)) + rng.exponential(0.1, A.shape[0])
    settings = {"tol": 0, "max_iter": 14, **settings}
    whole = fastemf.sense(A, b, 0.2, 2, **settings)
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 2}
    with pytest.raises(Killed):
        fastemf.sense(A, b, 0.2, 2, callback=Killer(7), **kept, **settings)
    kept["resume"] = True
    same_bits(fastemf.sense(A, b, 0.2, 2, n_jobs=1, **kept, **settings), whole)
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.sense(A, 2 * b, 0.2, 2, **kept, **settings)
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.sense(A, b, 0.2, 2, weights=np.full(b.size, 2.0), **kept, **settings)
    if kind == "gaussian":
        other = fastemf.operators.Gaussian(60, M.shape, seed=2)
        with pytest.raises(fastemf.CheckpointError, match="of other data"):
            fastemf.sense(other, b, 0.2, 2, **kept, **settings)
    with pytest.raises(fastemf.CheckpointError, match=r"omega=0\.2"):
        fastemf.sense(A, b, 0.3, 2, **kept, **settings)


FIT = """
import sys, warnings, fastemf
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(400, 300, rank=5, density=0.3, random_state=1).R
fit = fastemf.complete(R, 0.2, 8, tol=0, max_iter=400, validation=0.1, patience=400,
                       checkpoint=sys.argv[1], checkpoint_every=1, resume=True)
fit.save(sys.argv[1] + ".model.npz")
"""


@pytest.mark.slow
@pytest.mark.compiled
def test_a_fit_killed_ten_times_ends_with_the_same_bits(tmp_path):
    def written(path):
        """What changes whenever the file is replaced."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def run(path, writes=None):
        """Run the fit, or kill it once its file was seen to change so many times."""
        process = subprocess.Popen([sys.executable, "-c", FIT, str(path)])
        seen, before = 0, written(path)
        while writes is not None and process.poll() is None:
            after = written(path)
            seen, before = seen + (after != before), after
            if seen >= writes:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        return process.wait(1500) == 0

    assert run(tmp_path / "whole")
    whole = fastemf.load(tmp_path / "whole.model.npz")
    rng = np.random.default_rng(0)
    cut = tmp_path / "cut"
    kills = sum(not run(cut, writes=int(rng.integers(1, 20))) for _ in range(10))
    run(cut)
    assert kills >= 8
    same_bits(fastemf.load(tmp_path / "cut.model.npz"), whole)


def test_a_checkpoint_is_not_a_model(tmp_path):
    path = tmp_path / "state.npz"
    fastemf.complete(R, 0.2, 2, checkpoint=path)
    with pytest.raises(fastemf.ModelFileError, match="it is the checkpoint of a fit"):
        fastemf.load(path)
