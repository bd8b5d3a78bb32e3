"""How the suite runs: how many examples it draws, and one process that compiles for all."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # workers share the cores: do not spin
INTERPRETED = bool(numba.config.DISABLE_JIT)
WARM = """
import warnings
import numpy as np, fastemf
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.7, random_state=0).R  # enough to tune
for dtype in (np.float64, np.float32):
    for settings in ({}, {"reg": 0}, {"reg": 0.1, "solver": "cg"}):
        fit = fastemf.complete(R.astype(dtype), 0.3, 2, max_iter=2, n_jobs=1, **settings)
    fit.predict([0], [0])
A = fastemf.operators.Gaussian(60, (5, 4))
fastemf.sense(A, np.arange(60.0), 0.3, 1, max_iter=2)
"""


def pytest_configure(config):
    # Few examples do for the inner loop, which leaves the thorough tests out by name; without
    # the JIT no more are affordable.
    thorough = "thorough" not in config.getoption("markexpr")
    settings.register_profile(
        "fastemf",
        deadline=None,
        max_examples=60 if thorough and not INTERPRETED else 15,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        derandomize=bool(os.environ.get("CI")),
    )
    settings.load_profile("fastemf")
    if INTERPRETED:  # all of it would take minutes
        cut_tuning_short()
        make_new_memory_signal()


def make_new_memory_signal():
    """Fill what NumPy leaves empty with NaNs that warn, and so fail, wherever one is computed with.

    What lies in new memory is otherwise chance, and so is whether a test sees that it was read.
    """
    signals = {np.dtype(np.float64): (np.uint64, 0x7FF0000000000001)}
    signals[np.dtype(np.float32)] = np.uint32, 0x7F800001

    def signalling(make):
        def made(*args, **kwargs):
            new = make(*args, **kwargs)
            if type(new) is np.ndarray and new.dtype in signals:
                unsigned, bits = signals[new.dtype]
                new.view(unsigned)[...] = bits
            return new

        return functools.wraps(make)(made)

    np.empty, np.empty_like = signalling(np.empty), signalling(np.empty_like)


def cut_tuning_short():
    """Leave of a tuned fit what it takes to run each of its steps."""
    from fastemf.solver import following, path, trial, tuner

    path.MOST_FOLDS = 1
    tuner.MOST_STEPS, tuner.SWEEPS, tuner.INTERCEPT_SWEEPS = 2, 1, 1
    following.MOST_STEPS, following.SETTLING = 2, 1
    tuner.MULTIPLES, tuner.FOLLOWING, trial.NEWTON_STEPS = (1.0, 10.0), 2, 2


def pytest_sessionstart(session):
    """Compile once, before xdist's workers would each compile the same for themselves."""
    config = session.config
    workers = config.getoption("tx", None) and not hasattr(config, "workerinput")
    if workers and not INTERPRETED and not config.getoption("collectonly"):
        subprocess.run([sys.executable, "-c", WARM], check=False)  # tests will say what is wrong


def pytest_collection_modifyitems(items):
    if INTERPRETED:
        skip = pytest.mark.skip(reason="needs compiled kernels")
        for item in items:
            if "compiled" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def data_folder():
    """Folder of the real data sets, or a skip."""
    folder = os.environ.get("FASTEMF_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FASTEMF_DATA does not name a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def browser():
    """A browser that needs no screen, or a skip."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no chromium (Debian: apt-get install chromium)")
    return found
