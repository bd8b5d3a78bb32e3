"""A resumed fit is bitwise identical to an uninterrupted one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scenes import Killed, resuming, same_bits

import fastemf
from fastemf.datasets import make_skewed
from fastemf.solver.records import SweepRecord

R = make_skewed(30, 20, rank=2, density=0.5, random_state=1).R

SETTINGS = {
    "auto": {},
    "intercepts": {"intercepts": True},
    "annealed": {"reg": 0},
    "plain": {"reg": 0.1, "solver": fastemf.Solver(momentum=False)},
    "orthogonal": {"reg": 0, "solver": fastemf.Solver(orthogonalize=np.bool_(True))},
    "cg": {"reg": 0.05, "solver": "cg"},
    "validation": {"validation": fastemf.Validation(0.2, patience=30), "reg": "noise"},
    "float32": {"R": R.astype(np.float32)},
}


class Killer:
    """A callback that ends the fit after some sweeps, counted over all levels."""

    def __init__(self, sweeps):
        self.left = sweeps

    def __call__(self, record):
        self.left -= 1
        if self.left < 0:
            raise Killed


def same_levels(one, other):
    for left, right in zip(one.fits, other.fits, strict=True):
        same_bits(left, right)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("sweep", [1, 7, 13])
def test_resumed_fit_has_the_bits_of_one_without_interruption(name, sweep, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"tol": 1e-9, "max_iter": 24, **SETTINGS[name]}
    data = settings.pop("R", R)
    whole = fastemf.complete(data, 0.2, 2, **settings)
    kept = resuming(path, every=3)
    with pytest.raises(Killed):
        fastemf.complete(data, 0.2, 2, callback=Killer(sweep - 1), **kept, **settings)
    assert path.exists() == (sweep > 3)
    for _ in range(2):  # the second time nothing is left to do
        same_bits(fastemf.complete(data, 0.2, 2, **kept, **settings), whole)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize(
    ("unit", "settings"),
    [
        (1, {"reg": 0}), (1, {"reg": 0, "solver": fastemf.Solver(orthogonalize=True)}),
        (1e-120, {}), (1e120, {}),  # the squared norm of a gradient overflows before the data do
    ],
)  # fmt: skip
def test_more_sweeps_may_be_asked_for(unit, settings, tmp_path):
    settings = {"omega": 0.2, "k": 2, "tol": 0, **settings}
    kept = resuming(tmp_path / "state.npz")
    fastemf.complete(unit * R, max_iter=5, **kept, **settings)
    longer = fastemf.complete(unit * R, max_iter=12, n_jobs=1, **kept, **settings)
    whole = fastemf.complete(unit * R, max_iter=12, **settings)
    same_bits(longer, whole)
    whole.save(tmp_path / "model.npz")
    assert repr(fastemf.load(tmp_path / "model.npz").history) == repr(whole.history)  # NaN is NaN


def test_a_fit_from_a_store_is_resumed(tmp_path):
    coo = R.tocoo()
    data = fastemf.store.build((coo.row, coo.col, coo.data), tmp_path / "store")
    kept = resuming(tmp_path / "state.npz", every=2)
    with pytest.raises(Killed):
        fastemf.complete(data, 0.2, 2, callback=Killer(4), **kept)
    again = fastemf.complete(tmp_path / "store", 0.2, 2, **kept)
    same_bits(again, fastemf.complete(R, 0.2, 2))
    (tmp_path / "other").mkdir()
    other = fastemf.store.build((coo.row, coo.col, 2 * coo.data), tmp_path / "other" / "store")
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        fastemf.complete(other, 0.2, 2, **kept)


def test_an_old_checkpoint_is_neither_used_nor_lost_by_accident(tmp_path):
    path = tmp_path / "state.npz"
    fastemf.complete(R, 0.2, 2, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"state\.npz exists: resume=True continues"):
        fastemf.complete(R, 0.2, 2, checkpoint=path, callback=fail)
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError, match="the folder does not exist"):
        fastemf.complete(R, 0.2, 2, checkpoint="no/such/folder", callback=fail)


OTHERS = [
    ({"omega": 0.3}, r"of a fit with omega=0\.2, and this one has omega=0\.3"),
    ({"k": 3}, "with k=2, and this one has k=3"),
    ({"reg": 0.5}, r"with reg='auto', and this one has reg=0\.5"),
    ({"intercepts": True}, "with intercepts=False"),
    ({"tol": 1e-3}, "with tol="),
    ({"solver": fastemf.Solver(momentum=False)}, "with momentum=True"),
    ({"random_state": 3}, "with random_state=0"),
    ({"init": "random"}, "with init='spectral'"),
    *(({"R": data}, "of other data") for data in (R * 2, R[:, ::-1], R.astype(np.float32))),
    ({"weights": np.ones(R.nnz)}, "of other data"),
    ({"validation": 0.2}, "of other data"),
]


def test_other_data_or_settings_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    settings = {"R": R, "omega": 0.2, "k": 2, **resuming(path)}
    fastemf.complete(**settings)
    before = path.read_bytes()
    for change, message in OTHERS:
        with pytest.raises(fastemf.CheckpointError, match=message):
            fastemf.complete(**(settings | change))
        assert path.read_bytes() == before


# --- crafted checkpoints ---------------------------------------------------------------------


def rewrite(path, **changes):
    """Change header fields and arrays in a checkpoint; None removes an array."""
    with np.load(path) as file:
        content = dict(file)
    about = json.loads(content["header"].tobytes())
    for name, value in changes.items():
        if value is None or isinstance(value, np.ndarray):
            content[name] = value
        else:
            (about if name in about else about["state"])[name] = value
    content["header"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **{name: array for name, array in content.items() if array is not None})


RECORD = [1.0, 9.0, 8.0, 1.0, 0.1, 0.1, 0.5, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.1, 2.0, 0.0]


def record(**changes):
    names = list(SweepRecord.__dataclass_fields__)
    return np.array([[changes.get(name, x) for name, x in zip(names, RECORD, strict=True)]])


def each(name, *values):
    return [{name: value} for value in values]


NAN, INF, SHAPE = float("nan"), float("inf"), (30, 3)  # the shape of X with intercepts
CRAFTED = {
    "version 2, and this": each("checkpoint", 2),
    "header field 'colour' is unknown": each("colour", "red"),
    "'best' is unknown": each("at_best", True),
    "contraction must be": each("contraction", -1.0, NAN),
    "accepted_since must be": each("accepted_since", -1, 10**9),
    "'accepted_since' must be int": each("accepted_since", True),
    "restarts must be those of its history": each("restarts", 77),
    "best_sweep must be one of its sweeps": each("best_sweep", 0, 10**30),
    "point must be finite": each("point", [-1.0, 0.0, 1.0, 1.0, 1.0], [0.1, 0.0, INF, 1.0, 1.0]),
    "point must have a validation loss": each("point", [0.1, 0.0, 1.0, 1.0, NAN]),
    "'point' must be 5 numbers": each("point", [0.1, 0.0, 1.0]),
    "best must be finite": each("best", [0.1, 0.0, 1.0, NAN, 1.0]),
    "schedule must be finite and not negative": each("schedule", [NAN, 0.1, 0.0], [-0.1, 0.1, 0.0]),
    "schedule must be settled or not": each("schedule", [0.1, 0.1, 0.5], [0.1, 1e9, 1.0]),
    "its ridge must not overflow float64": each("schedule", [1e308, 0.1, 1.0]),
    "'schedule' must be 3 numbers": each("schedule", [0.1]),
    # Kernels would read past the end of these.
    "point_X must be float64 of": [
        {"point_X": np.ones((3, 3)), "previous": np.ones((3, 3))},
        {"point_X": np.ones((30, 1)), "point_Y": np.ones((20, 1))},
        {"point_X": np.ones(SHAPE, np.float32)},
    ],
    r"point_Y must be float64 of shape \(20, 3\)": each("point_Y", np.ones((1, 3))),
    "previous must be": each("previous", np.ones((31, 3))),
    "best_Y must be": each("best_Y", np.ones((20, 4))),
    "point_X must be finite": each("point_X", np.full(SHAPE, NAN)),
    "previous must be finite": each("previous", np.full(SHAPE, -INF)),
    "best_X must be finite": each("best_X", np.full(SHAPE, INF)),
    "its factors must not overflow float64": [
        {"point_X": np.full(SHAPE, 1e300)}, {"previous": np.full(SHAPE, 1e300)},
        # The square of one intercept is a number, its column's loss is not.
        {"point_Y": np.where(np.arange(60) == 59, 1e154, 1.0).reshape(20, 3)},
    ],
    "array 'best_X' is missing": each("best_X", None),
    "array 'Z' is unknown": each("Z", np.ones(3)),
    "history must have a sweep": each("history", np.ones((0, 17))),
    "history must number its sweeps from 1": each("history", record(sweep=2.0)),
    "history must count its restarts": each("history", record(accepted=0.0), record(restarts=3.0)),
    "history must have 0 or 1 as accepted": each("history", record(accepted=0.5)),
    "counts as sign_flips": each("history", record(sign_flips=-1.0), record(sign_flips=1e300)),
    "history must have counts as line_searches": each("history", record(line_searches=0.5)),
    "history must be finite": each("history", record(loss=NAN)),
}  # fmt: skip


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A checkpoint with all that one can hold, and its fit: the best iterate is not the last."""
    path = tmp_path_factory.mktemp("state") / "state.npz"
    settings = {"omega": 0.2, "k": 2, "intercepts": True, "reg": "noise", "max_iter": 12, "tol": 0}
    settings["validation"] = fastemf.Validation(R.toarray() + 5, patience=90)
    settings |= resuming(path)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(R, **settings)
    rewrite(path)
    with pytest.warns(fastemf.ConvergenceWarning):  # a copy is resumed
        assert fastemf.complete(R, **settings).n_iter == 12
    return path.read_bytes(), settings


@pytest.mark.parametrize("message", CRAFTED)
def test_crafted_checkpoints_are_refused_by_name(message, state, tmp_path):
    path, (content, settings) = tmp_path / "state.npz", state
    for changes in CRAFTED[message]:
        path.write_bytes(content)
        rewrite(path, **changes)
        with pytest.raises(fastemf.CheckpointError, match=message) as caught:
            fastemf.complete(R, **settings | resuming(path))
        assert str(path) in str(caught.value)


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("schedule", [[0.1, 1.5], [0.1, -1.0], [1e308, 0.0], [0.1]])
def test_crafted_states_of_an_annealed_ridge_are_refused(schedule, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "reg": 0, **resuming(path)}
    fastemf.complete(R, **settings)
    rewrite(path, schedule=schedule)
    with pytest.raises(fastemf.CheckpointError, match=r"state\.npz .*(schedule|ridge)"):
        fastemf.complete(R, **settings)


@pytest.mark.compiled  # NumPy warns of what the kernels report
@pytest.mark.parametrize("size", [1e20, 1e25, 1e38])
def test_a_checkpoint_whose_next_sweep_overflows_is_named(size, tmp_path):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "reg": 0.1, "tol": 0, **resuming(path)}
    data = R.astype(np.float32)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(data, max_iter=8, **settings)
    before = path.read_bytes()
    rewrite(path, previous=np.full((30, 2), size, np.float32))
    with pytest.raises(fastemf.CheckpointError, match=r"state\.npz cannot be resumed: the normal"):
        fastemf.complete(data, max_iter=9, **settings)
    path.write_bytes(before)
    with pytest.warns(fastemf.ConvergenceWarning):
        fastemf.complete(data, max_iter=9, **settings)


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    settings = {"omega": 0.2, "k": 2, "checkpoint": fastemf.Checkpoint(path, every=2)}
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


def fail(record):
    pytest.fail("after a sweep")


# --- several levels -------------------------------------------------------------------------


GAP = R.toarray()
GAP[GAP == 0] = np.nan
GAP[7] = np.nan  # a row that starts at random

LEVELS = {
    "auto": {},
    "intercepts": {"intercepts": True, "solver": "cg"},
    "annealed": {"reg": 0},
    "validation": {"validation": fastemf.Validation(0.2, patience=4), "reg": "noise"},
    # A plain ridge weighs such a row's start too: the first record of a level shows it.
    "unseen": {
        "R": GAP, "init": "random", "reg": 0.1, "solver": fastemf.Solver(reg_scaling="plain"),
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", LEVELS)
def test_resumed_levels_have_the_bits_of_ones_without_interruption(name, tmp_path):
    settings = {"omegas": (0.1, 0.5, 0.9), "k": 2, "max_iter": 12, "tol": 1e-6, **LEVELS[name]}
    data = settings.pop("R", R)
    whole = fastemf.complete_levels(data, **settings)
    sweeps = sum(fit.n_iter for fit in whole.fits)
    kept, first = resuming(tmp_path / "state.npz", every=2), whole.fits[0].n_iter
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
    same_levels(again, whole)
    same_levels(fastemf.complete_levels(data, callback=fail, **kept, **settings), whole)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_levels_that_a_callback_ended_are_not_fitted_again(tmp_path):
    def fit_five_sweeps(kill=lambda record: None, **kept):
        settings = {"callback": lambda record: kill(record) or record.sweep >= 5, "tol": 0}
        return fastemf.complete_levels(R, (0.1, 0.5, 0.9), 2, **settings, **kept)

    whole = fit_five_sweeps()
    assert [fit.n_iter for fit in whole.fits] == [5, 5, 5]
    kept = resuming(tmp_path / "state.npz", every=1)
    with pytest.raises(Killed):
        fit_five_sweeps(Killer(7), **kept)  # in the second level
    for _ in range(2):
        same_levels(fit_five_sweeps(**kept), whole)


def test_levels_refuse_files_of_other_fits_before_any_work(tmp_path):
    path = tmp_path / "state"
    fastemf.complete_levels(R, (0.2, 0.8), 2, checkpoint=path)
    assert sorted(os.listdir(tmp_path)) == ["state-0.2", "state-0.8"]
    (tmp_path / "state-0.2").unlink()
    with pytest.raises(FileExistsError, match=r"state-0\.8 exists: resume=True continues from it"):
        fastemf.complete_levels(R, (0.2, 0.8), 2, checkpoint=path, callback=fail)
    settings = {"R": R, "omegas": (0.2, 0.8), "k": 2, **resuming(path)}
    fastemf.complete_levels(**settings)
    for change, message in (
        ({"omegas": (0.2, 0.5)}, r"omegas=\[0\.2, 0\.8\], and this one has"),
        ({"R": 2 * R}, "of other data"),
        ({"random_state": 1}, "with random_state=0, and this one has"),
    ):
        with pytest.raises(fastemf.CheckpointError, match=message):
            fastemf.complete_levels(**settings | change, callback=fail)


def test_more_sweeps_of_levels_may_be_asked_for(tmp_path):
    kept = resuming(tmp_path / "state.npz")
    with pytest.warns(fastemf.ConvergenceWarning, match="2 of 2 levels did not converge"):
        short = fastemf.complete_levels(R, (0.2, 0.8), 2, max_iter=3, **kept)
    longer = fastemf.complete_levels(R, (0.2, 0.8), 2, **kept)
    for one, two in zip(short.fits, longer.fits, strict=True):
        assert two.converged
        assert repr(two.history[:3]) == repr(one.history)  # NaN is NaN


# --- linear measurements --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["gaussian", "entries"])
@pytest.mark.parametrize(
    "settings", [{}, {"reg": 0.1}, {"solver": fastemf.Solver(orthogonalize=True)}], ids=repr
)
def test_a_fit_of_measurements_is_resumed(kind, settings, tmp_path):
    rng = np.random.default_rng(0)
    M = rng.random((8, 2)) @ rng.random((2, 6))
    if kind == "gaussian":
        A = fastemf.operators.Gaussian(60, M.shape, seed=1)
    else:
        rows, cols = np.divmod(rng.permutation(48)[:40], 6)
        A = fastemf.operators.Entries(rows, cols, M.shape)
    b = A.forward(M, np.eye(6)) + rng.exponential(0.1, A.shape[0])
    settings = {"A": A, "b": b, "omega": 0.2, "k": 2, "tol": 0, "max_iter": 14, **settings}
    whole = fastemf.sense(**settings)
    settings |= resuming(tmp_path / "state.npz", every=2)
    with pytest.raises(Killed):
        fastemf.sense(callback=Killer(7), **settings)
    same_bits(fastemf.sense(n_jobs=1, **settings), whole)
    changes = [{"b": 2 * b}, {"weights": np.full(b.size, 2.0)}, {"omega": 0.3}]
    if kind == "gaussian":
        changes.append({"A": fastemf.operators.Gaussian(60, M.shape, seed=2)})
    for change in changes:
        message = r"omega=0\.2" if "omega" in change else "of other data"
        with pytest.raises(fastemf.CheckpointError, match=message):
            fastemf.sense(**settings | change)


# --- a golden file ---------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint-v1.npz"
PLAIN = np.outer(np.arange(1.0, 9.0), np.arange(1.0, 7.0)) + np.arange(48.0).reshape(8, 6) % 5


def fit_golden(path=None, max_iter=9):
    """Fit plain numbers; with ``max_iter=4`` this wrote the golden file."""
    settings = {"reg": 0.1, "intercepts": True, "tol": 0, "n_jobs": 1, "max_iter": max_iter}
    return fastemf.complete(PLAIN, 0.3, 2, **settings, **(resuming(path, 1) if path else {}))


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_a_golden_checkpoint_is_resumed(tmp_path):
    path = tmp_path / "state.npz"
    path.write_bytes(GOLDEN.read_bytes())
    resumed, whole = fit_golden(path), fit_golden()
    assert resumed.n_iter == whole.n_iter == 9
    with np.load(GOLDEN) as file:
        seconds = file["history"][:, list(SweepRecord.__dataclass_fields__).index("seconds")]
    assert [record.seconds for record in resumed.history[:4]] == seconds.tolist()  # not repeated
    np.testing.assert_allclose(resumed.to_dense(), whole.to_dense(), rtol=1e-9)
