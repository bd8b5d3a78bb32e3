"""A tuned fit that was interrupted goes on to the same bits, and repeats nothing it had done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pytest
from scenes import observed
from solver.test_tuned import same_bits

import fastemf
from fastemf.solver import checkpoint as checkpoints
from fastemf.solver import following
from fastemf.solver.tuner import Tuner

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

R = observed()
SETTINGS = {
    "intercepts": {"omega": 0.9, "intercepts": True},
    "factors alone": {"omega": 0.2},
    "little noise": {"omega": 0.5, "intercepts": True, "low": True},
    "random start": {"omega": 0.5, "init": "random"},
    "validation": {"omega": 0.3, "intercepts": True, "validation": 0.2},
}


LOW = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, noise=0.05, random_state=4).R
LEVELS = {"omegas": (0.2, 0.8), "k": 2, "intercepts": True, "n_jobs": 1}


class Killed(BaseException):
    pass


def fit(name="intercepts", data=None, **more):
    settings = {"k": 2, "n_jobs": 1, **SETTINGS[name], **more}
    if settings.pop("low", False) and data is None:
        rng = np.random.default_rng(2)
        data = np.outer(rng.random(30) + 1, rng.random(24) + 1)
        data += 0.02 * rng.standard_normal(data.shape)
        data[rng.random(data.shape) < 0.3] = np.nan
    return fastemf.complete(R if data is None else data, **settings)


@cache
def whole(name):
    return fit(name)


@pytest.fixture
def judged(monkeypatch):
    """Count the candidates that are fitted, and let the fit be killed before one of them."""
    counted = []
    judged = Tuner._judged
    limit = [None]

    def counting(self, family, reg, fits):
        if limit[0] is not None and len(counted) >= limit[0]:
            raise Killed
        counted.append((family, reg))
        return judged(self, family, reg, fits)

    monkeypatch.setattr(Tuner, "_judged", counting)
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "REST", 0)

    def until(number):
        counted.clear()
        limit[0] = number
        return counted

    return until


@pytest.mark.parametrize("name", SETTINGS)
def test_a_tuning_goes_on_from_any_candidate(name, judged, tmp_path):
    reference = whole(name)
    steps = reference.tuning.steps
    assert len(steps) > 5
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    # After each of the first ones, within the path, and before the last.
    moments = [0, 1, 2, 3, len(steps) // 2, len(steps) - 1]
    for moment, before in zip(moments, [0, *moments], strict=False):
        counted = judged(moment - before)
        with pytest.raises(Killed):
            fit(name, **kept)
        assert len(counted) == moment - before
        assert json.loads(np.load(tmp_path / "state.npz")["header"].tobytes())["stage"] == "search"
    counted = judged(None)
    same_bits(fit(name, **kept), reference)
    assert counted == [(step.family, step.reg) for step in steps[moments[-1] :]]
    judged(0)
    same_bits(fit(name, **kept), reference)  # nothing left to tune or to sweep


@pytest.mark.parametrize("name", SETTINGS)
def test_a_tuning_that_is_done_is_not_repeated(name, judged, tmp_path):
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 2, "resume": True}
    judged(None)
    for sweep in (1, 3):  # before any state of the sweeps is written, and after

        def kill(record, sweep=sweep):
            if record.sweep == sweep:
                raise Killed

        if len(whole(name).history) >= sweep:
            with pytest.raises(Killed):
                fit(name, callback=kill, **kept)
        judged(0)
    same_bits(fit(name, **kept), whole(name))


def test_what_was_tuned_in_memory_goes_on_from_a_store(judged, tmp_path):
    rows, cols = np.nonzero(~np.isnan(R))
    fastemf.store.build((rows, cols, R[rows, cols]), tmp_path / "store", shape=R.shape)
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    judged(4)
    with pytest.raises(Killed):
        fit(**kept)
    judged(None)
    same_bits(fit(data=tmp_path / "store", **kept), whole("intercepts"))


def test_levels_go_on_within_the_tuning_of_the_second(judged, tmp_path):
    settings = {"omegas": (0.2, 0.8), "k": 2, "intercepts": True, "n_jobs": 1}
    reference = fastemf.complete_levels(R, **settings)
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    first = len(reference.fits[0].tuning.steps)
    judged(first + 2)
    with pytest.raises(Killed):
        fastemf.complete_levels(R, **settings, **kept)
    counted = judged(None)
    again = fastemf.complete_levels(R, **settings, **kept)
    assert len(counted) == len(reference.fits[1].tuning.steps) - 2
    for one, two in zip(again.fits, reference.fits, strict=True):
        same_bits(one, two)


def test_quick_candidates_are_not_written_one_by_one(monkeypatch, tmp_path):
    stages = []
    write = checkpoints.Checkpoint._write

    def counting(self, stage, *args):
        stages.append(stage)
        write(self, stage, *args)

    monkeypatch.setattr(checkpoints.Checkpoint, "_write", counting)
    monkeypatch.setattr(checkpoints, "SECONDS", 1e9)
    same_bits(fit(checkpoint=tmp_path / "state.npz"), whole("intercepts"))
    assert stages[0] == "tuned"
    assert set(stages[1:]) == {"fit"}


def test_another_generator_is_another_fit(judged, tmp_path):
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    judged(3)
    with pytest.raises(Killed):
        fit(random_state=np.random.default_rng(1), **kept)
    judged(None)
    with pytest.raises(fastemf.CheckpointError, match="of a fit with seed="):
        fit(random_state=np.random.default_rng(2), **kept)
    again = fit(random_state=np.random.default_rng(1), **kept)
    same_bits(again, fit(random_state=np.random.default_rng(1)))


# --- crafted files ---------------------------------------------------------------------------


@pytest.fixture
def states(judged, tmp_path):
    """The files of a fit that was killed in its tuning, and right after it."""
    judged(7)
    with pytest.raises(Killed):
        fit(checkpoint=tmp_path / "search.npz")
    judged(None)

    def kill(record):
        raise Killed

    with pytest.raises(Killed):
        fit(checkpoint=tmp_path / "tuned.npz", callback=kill)
    return tmp_path


def content_of(path):
    with np.load(path) as file:
        arrays = dict(file)
    return json.loads(arrays.pop("header").tobytes()), arrays


def crafted(path, header, arrays):
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=text, **arrays)


def refusal(path):
    with pytest.raises(fastemf.CheckpointError) as caught:
        fit(checkpoint=path, resume=True)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_files_that_are_written_again_are_read(states):
    for name in ("search", "tuned"):
        header, arrays = content_of(states / f"{name}.npz")
        crafted(states / f"{name}.npz", header, arrays)
        same_bits(fit(checkpoint=states / f"{name}.npz", resume=True), whole("intercepts"))


OTHERS = [
    np.float64(3), np.ones(0), np.ones((2, 3)), np.ones(5, np.float32), np.arange(40),
    np.array(["a"]), np.zeros((40, 1), complex),
]  # fmt: skip


@pytest.mark.parametrize("name", ["search", "tuned"])
def test_arrays_of_a_tuning_are_checked(name, states):
    path = states / f"{name}.npz"
    header, arrays = content_of(path)
    for key in sorted(arrays)[:: max(1, len(arrays) // 12)]:
        bad = [*OTHERS, np.full_like(arrays[key], np.nan), np.full_like(arrays[key], np.inf)]
        bad += [-1e300 * np.ones_like(arrays[key])] * (not key.startswith("losses"))
        bad += [np.vstack([arrays[key]] * 2)]
        for array in bad:
            crafted(path, header, {**arrays, key: array})
            assert "is not a fastemf checkpoint" in refusal(path)
        crafted(path, header, {other: arrays[other] for other in arrays if other != key})
        assert "missing" in refusal(path) or "rank" in refusal(path)
    crafted(path, header, {**arrays, "Z": np.ones(3)})
    assert "'Z' is unknown" in refusal(path)


def change(header, *keys, to):
    """A copy of a header with another value at a place."""
    copy = json.loads(json.dumps(header))
    part = copy
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return copy


def test_headers_of_a_search_are_checked(states):
    path = states / "search.npz"
    header, arrays = content_of(path)
    step = ("search", "tried", "steps")
    last = len(header["search"]["fits"]) - 1
    for keys, to, message in [
        (("stage",), "start", "stage must be one of"),
        (("stage",), "tuned", "'search' is unknown"),
        (("stage",), [], "'stage' must be str"),
        (("search",), None, "'search' must be dict"),
        (("search", "colour"), 1, "'colour' is unknown"),
        (("search", "intercept_ridge"), -1.0, "ridge must not overflow"),
        (("search", "intercept_ridge"), 1, "must be float"),
        (("search", "noise", "weighted"), float("nan"), "ridge must not overflow"),
        (("search", "noise", "weighted"), 1e308, "ridge must not overflow"),
        (("search", "noise", "weighted"), "1", "norms"),
        (("search", "noise", "weighted"), 1.5, "candidates must be those of this fit"),
        (("search", "fits"), [], "must have fits"),
        (("search", "fits", 1), [], "must have their fits"),
        (("search", "fits", last), [], "must have their fits"),
        (("search", "fits", 1, 0), [0.0, 1.0], "must be 3 numbers"),
        (("search", "fits", 1, 0), [0.0, 1.0, 1e200], "shift must not overflow"),
        (("search", "fits", 1, 0), [float("inf"), 1.0, 0.0], "ridge must not overflow"),
        (("search", "fits", 1), [[0.0, 1.0, 0.0]], "a trial has one fit"),
        ((*step, 1, "family"), "ridged", "candidates must be those of this fit"),
        ((*step, 1, "family"), "odd", "families"),
        ((*step, 1, "loss"), -1.0, "loss"),
        ((*step, last, "rank"), 1 + header["search"]["tried"]["steps"][last]["rank"], "rank"),
        ((*step, last, "reg"), 0.123, "candidates must be those of this fit"),
    ]:
        crafted(path, change(header, *keys, to=to), arrays)
        assert message in refusal(path)


def test_headers_of_what_was_tuned_are_checked(states):
    path = states / "tuned.npz"
    header, arrays = content_of(path)
    numbers = header["tuned"]["numbers"]
    for keys, to, message in [
        (("stage",), "search", "'search' is missing"),
        (("stage",), "fit", "'accepted_since' must be int"),
        (("tuned",), 3, "'tuned' must be dict"),
        (
            ("tuned", "family"),
            "even" if header["tuned"]["family"] != "even" else "ridged",
            "family",
        ),
        (("tuned", "numbers"), numbers[:5], "must be 6 numbers"),
        (("tuned", "numbers"), [-1.0, *numbers[1:]], "ridge must not overflow"),
        (("tuned", "numbers"), [1e308, *numbers[1:]], "ridge must not overflow"),
        (("tuned", "numbers"), [*numbers[:3], 1e200, *numbers[4:]], "shift must not overflow"),
        (("tuned", "numbers"), [*numbers[:2], float("nan"), *numbers[3:]], "shift must not"),
        (("tuned", "tables"), 1, "tables must have a ridge"),
        (("tuned", "tables"), {"ridge": 1.0, "over": [["product", "luck"]]}, "tables must be over"),
        (("tuned", "tuning", "chosen"), -1, "chosen"),
        (("tuned", "tuning", "steps"), [], "chosen"),
        (("colour",), "red", "'colour' is unknown"),
    ]:
        crafted(path, change(header, *keys, to=to), arrays)
        assert message in refusal(path)


@pytest.fixture
def level(judged, tmp_path):
    """The file of the first of two levels, which has factors for the second to begin with."""
    reference = fastemf.complete_levels(LOW, **LEVELS, checkpoint=tmp_path / "state.npz")
    return tmp_path / "state-0.2.npz", reference


def test_a_level_begins_with_the_fits_that_the_file_of_its_neighbour_has(level, tmp_path):
    path, reference = level
    header, arrays = content_of(path)
    assert header["tuned"]["leads"]["trials"] == reference.fits[0].tuning.folds == 10
    assert sum(name.startswith("lead_") for name in arrays) == 6 * 10
    crafted(path, header, arrays)
    (tmp_path / "state-0.8.npz").unlink()
    again = fastemf.complete_levels(LOW, **LEVELS, checkpoint=tmp_path / "state.npz", resume=True)
    for one, two in zip(again.fits, reference.fits, strict=True):
        same_bits(one, two)
    others = {name: part for name, part in arrays.items() if not name.startswith("lead_")}
    crafted(path, change(header, "tuned", "leads", to=None), others)
    (tmp_path / "state-0.8.npz").unlink()
    anew = fastemf.complete_levels(LOW, **LEVELS, checkpoint=tmp_path / "state.npz", resume=True)
    same_bits(anew.fits[0], reference.fits[0])
    assert len(anew.fits[1].tuning.steps) > len(reference.fits[1].tuning.steps)


def test_a_following_level_goes_on_from_any_of_its_candidates(level, judged, tmp_path):
    _, reference = level
    for path in tmp_path.glob("state*"):
        path.unlink()
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    first, second = (len(fit.tuning.steps) for fit in reference.fits)
    assert second > 3
    judged(first)
    with pytest.raises(Killed):
        fastemf.complete_levels(LOW, **LEVELS, **kept)
    for _ in range(second - 1):  # one more candidate each time
        judged(1)
        with pytest.raises(Killed):
            fastemf.complete_levels(LOW, **LEVELS, **kept)
    judged(None)
    again = fastemf.complete_levels(LOW, **LEVELS, **kept)
    for one, two in zip(again.fits, reference.fits, strict=True):
        same_bits(one, two)


@pytest.mark.parametrize("few_cells", [1, 10**6], ids=["one trial looks", "three trials look"])
def test_levels_of_fewer_and_fewer_trials_go_on_too(judged, tmp_path, monkeypatch, few_cells):
    monkeypatch.setattr(following, "FEW_CELLS", few_cells)
    levels = LEVELS | {"omegas": (0.2, 0.5, 0.8), "intercepts": False}
    reference = fastemf.complete_levels(LOW, **levels)
    assert [fit.tuning.folds for fit in reference.fits] == [10, 5, 5]
    kept = {"checkpoint": tmp_path / "state.npz", "resume": True}
    most = sum(len(fit.tuning.steps) for fit in reference.fits)
    for _ in range(most - 1):  # one more candidate each time
        judged(1)
        with pytest.raises(Killed):
            fastemf.complete_levels(LOW, **levels, **kept)
    judged(1)
    again = fastemf.complete_levels(LOW, **levels, **kept)
    for one, two in zip(again.fits, reference.fits, strict=True):
        same_bits(one, two)


def test_leads_are_checked(level, tmp_path):
    path, _ = level
    (tmp_path / "state-0.8.npz").unlink()
    header, arrays = content_of(path)
    about = ("tuned", "leads")

    def message_of(header, arrays):
        crafted(path, header, arrays)
        with pytest.raises(fastemf.CheckpointError) as caught:
            fastemf.complete_levels(LOW, **LEVELS, checkpoint=tmp_path / "state.npz", resume=True)
        return str(caught.value)

    for keys, to, message in [
        (about, 3, "leads must have fields"),
        ((*about, "colour"), 1, "'colour' is unknown"),
        ((*about, "trials"), 9, "'lead_X_9' is unknown"),
        ((*about, "trials"), 11, "1 to 10 trials"),
        ((*about, "trials"), 0, "1 to 10 trials"),
        ((*about, "ratio"), 0.0, "positive and finite"),
        ((*about, "ratio"), float("inf"), "positive and finite"),
        ((*about, "family"), "noise", "family with noise scales"),
        ((*about, "family"), 1, "'family' must be str"),
    ]:
        assert message in message_of(change(header, *keys, to=to), arrays)
    for part in ("X", "Y", "rows", "cols", "row_levels", "col_levels"):
        name = f"lead_{part}_3"
        for bad in (*OTHERS, np.full_like(arrays[name], np.nan)):
            assert part in message_of(header, {**arrays, name: bad})


# --- a true kill -----------------------------------------------------------------------------

FIT = """
import sys, warnings, fastemf
from fastemf.solver import checkpoint
checkpoint.SECONDS = checkpoint.REST = 0
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(150, 120, rank=3, density=0.4, random_state=1).R
fit = fastemf.complete(R, 0.8, 4, intercepts=True, checkpoint=sys.argv[1], resume=True)
fit.save(sys.argv[1] + ".model.npz")
"""


@pytest.mark.subprocess
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_tuning_that_is_killed_ends_with_the_same_bits(tmp_path):
    def run(path, kill_at=None):
        """Run the fit; kill it after so many writings of its checkpoint. Return the stage."""
        process = subprocess.Popen([sys.executable, "-c", FIT, str(path)])
        seen, writings = None, 0
        deadline = time.monotonic() + 600
        while process.poll() is None and time.monotonic() < deadline:
            now = path.stat().st_mtime_ns if path.exists() else None
            writings += now != seen
            seen = now
            if kill_at is not None and writings >= kill_at:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.001)
        assert process.wait(60) in (0, -signal.SIGKILL)
        return content_of(path)[0]["stage"]

    assert run(tmp_path / "whole") == "fit"
    stages = [run(tmp_path / "cut", kill_at) for kill_at in (2, 4, 8)]
    assert stages[0] == "search"
    assert run(tmp_path / "cut") == "fit"
    reference = fastemf.load(tmp_path / "whole.model.npz")
    same_bits(fastemf.load(tmp_path / "cut.model.npz"), reference)
