"""Kills at random moments of a save and of a checkpoint: the file is the old or the new one, whole.

A long run: ``FASTEMF_FUZZ=500 pytest -s -m slow tests/fuzz/test_fuzz_kills.py``.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from fuzz.mutations import count_of

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL"),
]

SHORT, LONG = 5, 100  # kills

# A process that forks writers and kills them: they need no time to start.
BEGIN = """
import os, random, signal, sys, time, warnings
from pathlib import Path
import numpy as np, fastemf
warnings.simplefilter("ignore")
path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
seen = set()

def killed_while(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)  # which the parent reports: only a kill ends the work
    time.sleep(draw.uniform(*DELAYS))
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

def partials():
    return [name for name in os.listdir(path.parent) if name != path.name]
"""

SAVE = (
    BEGIN
    + """
DELAYS = 0.0, 0.15
left = 0
rng = np.random.default_rng(0)
fit = fastemf.complete(rng.random((8, 6)), 0.3, 1, reg=0.1, n_jobs=1)
X = rng.random((60_000, 4))
models = [
    fastemf.Factorization(
        rows=fastemf.solver.axis.Axis(X + mark), cols=fastemf.solver.axis.Axis(X[:50]), omega=0.3,
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
)

CHECKPOINT = (
    BEGIN
    + """
DELAYS = 0.0, 0.15
left = 0
R = fastemf.datasets.make_skewed(400, 300, rank=3, density=0.2, random_state=0).R

def fit(max_iter):
    return fastemf.complete(
        R, 0.2, 4, reg=0.1, tol=0, max_iter=max_iter, n_jobs=1, checkpoint=path,
        checkpoint_every=1, resume=True,
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
    if found.converged:  # nothing is written any more: begin anew
        path.unlink()
        found = fit(1)
    done = fit(found.n_iter + 1).n_iter
    assert partials() == [], partials()
print(f"{count} kills of a checkpoint, seed {seed}; {sweeps} sweeps; {left} partial files")
"""
)


def run(script, count, folder):
    seed = int(np.random.default_rng().integers(2**31))
    command = [sys.executable, "-c", script, str(folder / "target.npz"), str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    print(done.stdout)


@pytest.mark.subprocess
@pytest.mark.parametrize("script", [SAVE, CHECKPOINT], ids=["save", "checkpoint"])
def test_a_kill_leaves_a_whole_file(script, tmp_path):
    run(script, SHORT, tmp_path)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("script", [SAVE, CHECKPOINT], ids=["save", "checkpoint"])
def test_many_kills_leave_whole_files(script, tmp_path):
    run(script, max(SHORT, count_of(LONG) // 2), tmp_path)
