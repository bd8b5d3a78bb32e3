"""Kills at random moments of a save and of a checkpoint: the file is the old or the new one.

A long run: ``FASTEMF_FUZZ=500 pytest -s -m slow tests/fuzz/test_fuzz_kills.py``.
"""

import subprocess
import sys

import numpy as np
import pytest
from fuzz.mutations import count_of

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL"),
]

# A process that forks writers and kills them: they need no time to start.
BEGIN = """
import os, random, signal, sys, time, warnings
from pathlib import Path
import numpy as np, fastemf
from fastemf.models.entities import Entities
warnings.simplefilter("ignore")
path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
seen, left = set(), 0

def killed_while(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)  # reported by the parent: only a kill should end this
    time.sleep(draw.uniform(0.0, 0.15))
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

def partials():
    return [name for name in os.listdir(path.parent) if name != path.name]
"""

SAVE = """
rng = np.random.default_rng(0)
fit = fastemf.complete(rng.random((8, 6)), 0.3, 1, reg=0.1, n_jobs=1)
X = rng.random((60_000, 4))
models = [
    fastemf.Factorization(
        rows=Entities(X + mark), cols=Entities(X[:50]), omega=0.3,
        mu=0.0, reg=0.1, reg_scaling="count", intercept_reg=0.0, scale=1.0, converged=True,
        history=fit.history,
    )
    for mark in range(3)
]

def save_for_ever():
    while True:
        for model in models[:2]:
            model.save(path)

models[0].save(path)
for _ in range(count):
    killed_while(save_for_ever)
    found = fastemf.load(path)
    (mark,) = [mark for mark in range(3) if np.array_equal(found.X, models[mark].X)]
    seen.add(mark)
    left += bool(partials())
    models[2].save(path)
    assert partials() == [], partials()
print(f"{count} kills of a save, seed {seed}; found models {sorted(seen)}; {left} partial files")
"""

CHECKPOINT = """
R = fastemf.datasets.make_skewed(400, 300, rank=3, density=0.2, random_state=0).R

def fit(max_iter):
    return fastemf.complete(
        R, 0.2, 4, reg=0.1, tol=0, max_iter=max_iter, n_jobs=1,
        checkpoint=fastemf.Checkpoint(path, every=1, resume=True),
    )

def fit_and_wait():
    fit(10**6)
    time.sleep(600)

done = sweeps = fit(1).n_iter
for _ in range(count):
    killed_while(fit_and_wait)
    found = fit(1)  # the file is read, and no sweep is left to do
    assert found.n_iter >= done, (found.n_iter, done)
    sweeps += found.n_iter - done
    left += bool(partials())
    if found.converged:  # nothing is written any more: start again
        path.unlink()
        found = fit(1)
    done = fit(found.n_iter + 1).n_iter
    assert partials() == [], partials()
print(f"{count} kills of a checkpoint, seed {seed}; {sweeps} sweeps; {left} partial files")
"""


@pytest.mark.subprocess
@pytest.mark.parametrize("kills", [5, pytest.param(count_of(100) // 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("script", [SAVE, CHECKPOINT], ids=["save", "checkpoint"])
def test_a_kill_leaves_a_whole_file(script, kills, tmp_path):
    seed = int(np.random.default_rng().integers(2**31))
    options = [str(tmp_path / "target.npz"), str(kills), str(seed)]
    command = [sys.executable, "-c", BEGIN + script, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    print(done.stdout)
