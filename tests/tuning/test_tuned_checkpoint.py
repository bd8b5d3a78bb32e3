"""Checkpoints of tuned fits: the finished tuning is kept, an interrupted one is repeated."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from scenes import Killed, R, entries, resuming, same_bits

import fastemf
from fastemf.tuning.tuner import Tuner

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

RNG = np.random.default_rng(2)
QUIET = np.outer(RNG.random(30) + 1, RNG.random(24) + 1) + 0.02 * RNG.standard_normal((30, 24))
QUIET[RNG.random(QUIET.shape) < 0.3] = np.nan
SETTINGS = {
    "intercepts": {"omega": 0.9, "intercepts": True},
    "little noise": {"R": QUIET, "omega": 0.5, "intercepts": True},
    "factors only": {"omega": 0.2, "init": "random"},
    "validation": {"omega": 0.3, "intercepts": True, "validation": 0.2},
}
LOW = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, noise=0.05, random_state=4).R
LEVELS = {"omegas": (0.2, 0.8), "k": 2, "intercepts": True, "n_jobs": 1}


def fit(name="intercepts", **more):
    return fastemf.complete(**{"R": R, "k": 2, "n_jobs": 1, **SETTINGS[name], **more})


@cache
def whole(name):
    return fit(name)


def kill(record):
    raise Killed


@pytest.fixture
def limit(monkeypatch):
    """Count the candidates that are tried, and kill the fit after so many of them."""
    add = Tuner.add

    def until(number):
        counted = []

        def counting(self, family, reg, fits):
            if len(counted) == number:
                raise Killed
            counted.append((family, reg))
            return add(self, family, reg, fits)

        monkeypatch.setattr(Tuner, "add", counting)
        return counted

    return until


@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupted_tuning_is_repeated_and_a_finished_one_is_not(name, limit, tmp_path):
    path = tmp_path / "state.npz"
    kept = resuming(path, every=2)
    reference = whole(name)
    limit(4)
    with pytest.raises(Killed):
        fit(name, **kept)
    assert not path.exists()
    counted = limit(None)
    with pytest.raises(Killed):
        fit(name, callback=kill, **kept)
    assert counted == [(step.family, step.reg) for step in reference.tuning.steps]
    assert content_of(path)[0].keys() == {"checkpoint", "fingerprint", "tuning"}
    limit(0)  # no candidate is tried again
    same_bits(fit(name, **kept), reference)
    same_bits(fit(name, **kept), reference)  # nor is there a sweep left to run


def test_a_fit_tuned_in_memory_resumes_from_a_store(limit, tmp_path):
    fastemf.store.build(entries(), tmp_path / "store", shape=R.shape)
    kept = resuming(tmp_path / "state.npz")
    with pytest.raises(Killed):
        fit(callback=kill, **kept)
    reference = whole("intercepts")
    limit(0)
    same_bits(fit(R=tmp_path / "store", **kept), reference)


def test_another_generator_is_another_fit(tmp_path):
    kept, seeded = resuming(tmp_path / "state.npz"), np.random.default_rng
    with pytest.raises(Killed):
        fit(random_state=seeded(1), callback=kill, **kept)
    with pytest.raises(fastemf.CheckpointError, match="of a fit with seed="):
        fit(random_state=seeded(2), **kept)
    same_bits(fit(random_state=seeded(1), **kept), fit(random_state=seeded(1)))


# --- crafted files ---------------------------------------------------------------------------


def content_of(path):
    with np.load(path) as file:
        arrays = dict(file)
    return json.loads(arrays.pop("header").tobytes()), arrays


def craft(path, header, arrays):
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def refusal(path, resume, header, arrays):
    """Return the message that refuses a crafted checkpoint."""
    craft(path, header, arrays)
    with pytest.raises(fastemf.CheckpointError) as caught:
        resume()
    assert str(path) in str(caught.value)
    return str(caught.value)


def change(header, *keys, to):
    """Copy a header with another value at a place."""
    if not keys:
        return to
    return header | {keys[0]: change(header.get(keys[0]), *keys[1:], to=to)}


OTHERS = [
    np.float64(3), np.ones(0), np.ones((2, 3)), np.ones(5, np.float32), np.arange(40),
    np.array(["a"]), np.zeros((40, 1), complex),
]  # fmt: skip


@pytest.fixture
def tuned(tmp_path):
    """The checkpoint of a fit that was killed after its tuning, and a call that resumes it."""
    path = tmp_path / "tuned.npz"
    with pytest.raises(Killed):
        fit(checkpoint=path, callback=kill)
    return path, lambda: fit(**resuming(path))


def test_arrays_of_a_tuning_are_checked(tuned):
    path, resume = tuned
    header, arrays = content_of(path)
    for key, array in arrays.items():
        filled = [np.full_like(array, value) for value in (np.nan, np.inf, -1e300)]
        for bad in (*OTHERS, *filled, np.vstack([array] * 2)):
            message = refusal(path, resume, header, {**arrays, key: bad})
            assert "is not a fastemf checkpoint" in message
        others = {name: part for name, part in arrays.items() if name != key}
        assert "missing" in refusal(path, resume, header, others)
    assert "'Z' is unknown" in refusal(path, resume, header, {**arrays, "Z": np.ones(3)})
    craft(path, header, arrays)
    same_bits(resume(), whole("intercepts"))


def test_headers_of_a_tuning_are_checked(tuned):
    path, resume = tuned
    header, arrays = content_of(path)
    tuning = header["tuning"]
    numbers = tuning["numbers"]
    for keys, to, message in [
        (("tuning",), 3, "'tuning' must be dict"),
        (("state",), {}, "'accepted_since' must be int"),
        (("tuning", "family"), "equal" if tuning["family"] != "equal" else "ridged", "family"),
        (("tuning", "numbers"), numbers[:5], "must be 6 numbers"),
        (("tuning", "numbers"), [-1.0, *numbers[1:]], "ridge must not overflow"),
        (("tuning", "numbers"), [1e308, *numbers[1:]], "ridge must not overflow"),
        (("tuning", "numbers"), [*numbers[:3], 1e200, *numbers[4:]], "shift must not overflow"),
        (("tuning", "numbers"), [*numbers[:2], float("nan"), *numbers[3:]], "shift must not"),
        (("tuning", "tables"), 1, "must have a ridge"),
        (("tuning", "tables"), {"ridge": 1.0, "over": [["product", "luck"]]}, "must be over"),
        (("tuning", "record", "chosen"), -1, "chosen"),
        (("tuning", "record", "steps"), [], "chosen"),
        (("colour",), "red", "'colour' is unknown"),
    ]:
        assert message in refusal(path, resume, change(header, *keys, to=to), arrays)


# --- levels, whose tunings start from each other -----------------------------------------------


@pytest.fixture
def levels(tmp_path):
    """Two levels with their checkpoints: that of the first holds the start of the second."""
    reference = fastemf.complete_levels(LOW, **LEVELS, checkpoint=tmp_path / "state.npz")
    (tmp_path / "state-0.8.npz").unlink()
    settings = LEVELS | resuming(tmp_path / "state.npz")
    return tmp_path / "state-0.2.npz", reference, lambda: fastemf.complete_levels(LOW, **settings)


def test_the_next_level_starts_from_the_checkpoint_of_the_first(levels, limit):
    path, reference, resume = levels
    header, _ = content_of(path)
    assert header["tuning"]["warm_start"]["trials"] == reference.fits[0].tuning.folds == 10
    limit(2)
    with pytest.raises(Killed):  # in the tuning of the second level
        resume()
    counted = limit(None)
    again = resume()
    assert len(counted) == len(reference.fits[1].tuning.steps)
    for one, two in zip(again.fits, reference.fits, strict=True):
        same_bits(one, two)


def test_warm_starts_are_checked(levels):
    path, _, resume = levels
    header, arrays = content_of(path)
    about = ("tuning", "warm_start")
    for keys, to, message in [
        (about, 3, "warm start must have fields"),
        ((*about, "colour"), 1, "'colour' is unknown"),
        ((*about, "trials"), 9, "'start_X_9' is unknown"),
        ((*about, "trials"), 11, "1 to 10 trials"),
        ((*about, "trials"), 0, "1 to 10 trials"),
        ((*about, "ratio"), 0.0, "positive and finite"),
        ((*about, "ratio"), float("inf"), "positive and finite"),
        ((*about, "family"), "noise", "family with noise scales"),
        ((*about, "family"), 1, "'family' must be str"),
    ]:
        assert message in refusal(path, resume, change(header, *keys, to=to), arrays)
    for part in ("X", "Y", "rows", "cols", "row_intercepts", "col_intercepts"):
        name = f"tuning_start_{part}_3"
        for bad in (*OTHERS, np.full_like(arrays[name], np.nan)):
            assert part in refusal(path, resume, header, {**arrays, name: bad})
