"""Configuration of the test suite: Hypothesis profiles, compilation, shared fixtures."""

import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # workers share the cores
INTERPRETED = bool(numba.config.DISABLE_JIT)
WARM = """
import sys, warnings
import numpy as np, fastemf
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.7, random_state=0).R  # can be tuned
for settings in ({}, {"reg": 0}, {"reg": 0.1, "solver": "cg"}):
    fit = fastemf.complete(R.astype(sys.argv[1]), 0.3, 2, max_iter=2, n_jobs=1, **settings)
fit.predict([0], [0])
A = fastemf.operators.Gaussian(60, (5, 4))
fastemf.sense(A, np.arange(60).astype(sys.argv[1]), 0.3, 1, max_iter=2)
"""


def pytest_configure(config):
    # Plain pytest, whose marker expression names "thorough", draws few examples, and so do runs
    # without the JIT, which are slow.
    thorough = "thorough" not in config.getoption("markexpr")
    settings.register_profile(
        "fastemf", deadline=None, max_examples=30 if thorough and not INTERPRETED else 10,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        derandomize=bool(os.environ.get("CI")),
    )  # fmt: skip
    settings.load_profile("fastemf")
    if INTERPRETED:
        cut_tuning_short()
        make_new_memory_signal()


def make_new_memory_signal():
    """Fill the arrays of np.empty with signalling NaNs: arithmetic with one warns, and so fails.

    The content of new memory is random otherwise, and a test may miss that it is read.
    """
    signals = {np.dtype(np.float64): (np.uint64, 0x7FF0000000000001)}
    signals[np.dtype(np.float32)] = np.uint32, 0x7F800001

    def signalling(make):
        def make_signalling(*args, **kwargs):
            new = make(*args, **kwargs)
            if type(new) is np.ndarray and new.dtype in signals:
                unsigned, bits = signals[new.dtype]
                new.view(unsigned)[...] = bits
            return new

        return functools.wraps(make)(make_signalling)

    np.empty, np.empty_like = signalling(np.empty), signalling(np.empty_like)


def cut_tuning_short():
    """Run each step of a tuning, with as few folds, sweeps and candidates as possible."""
    from fastemf.tuning import ridge_path, trial, tuner, warm_start

    shorter = {
        ridge_path: {"MOST_FOLDS": 1},
        trial: {"INTERCEPT_SWEEPS": 1, "NEWTON_STEPS": 2},
        tuner: {"MOST_STEPS": 2, "MULTIPLES": (1.0, 10.0), "NOISE_RIDGE_SWEEPS": 2, "SWEEPS": 1},
        warm_start: {"MOST_STEPS": 2, "SETTLING": 1},
    }
    for module, constants in shorter.items():
        assert constants.keys() <= vars(module).keys()
        vars(module).update(constants)


def pytest_sessionstart(session):
    """Compile the kernels once, before each worker of xdist compiles them for itself."""
    config = session.config
    workers = config.getoption("tx", None) and not hasattr(config, "workerinput")
    if workers and not INTERPRETED and not config.getoption("collectonly"):
        types = ("float64", "float32")
        warming = [subprocess.Popen([sys.executable, "-c", WARM, dtype]) for dtype in types]
        for process in warming:
            process.wait()  # the tests report errors


def pytest_collection_modifyitems(items):
    if INTERPRETED:
        skip = pytest.mark.skip(reason="needs compiled kernels")
        for item in items:
            if "compiled" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def data_folder():
    """Folder of the real data sets; skips without FASTEMF_DATA."""
    folder = os.environ.get("FASTEMF_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FASTEMF_DATA is not a folder")
    return Path(folder)


@pytest.fixture
def browser(tmp_path):
    """A function that opens a page on a small screen and evaluates an expression in JavaScript."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no chromium (Debian: apt-get install chromium)")

    def evaluate(text, expression):
        probe = tmp_path / "probe.html"
        policy = "default-src 'none'; "
        text = text.replace(policy, f"{policy}script-src 'unsafe-inline'; ")
        found = f"document.body.dataset.found = JSON.stringify({expression})"
        probe.write_text(f"{text}<script>onload = () => {{ {found} }}</script>", "utf-8")
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path}/profile", "--window-size=390,800",
            "--virtual-time-budget=5000", "--dump-dom",
        ]  # fmt: skip
        done = subprocess.run([path, *options, probe.as_uri()], capture_output=True, text=True)
        return json.loads(html.unescape(re.search('data-found="(.*?)"[ >]', done.stdout)[1]))

    return evaluate
