"""The memory of a process that fits, saves, loads and predicts stays constant.

As a script this file runs rounds of fits, files and predictions. It prints a JSON list with two
numbers per round: resident kilobytes and objects tracked by Python.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fastemf

MINUTES = float(os.environ.get("FASTEMF_SOAK_MINUTES", "1"))


def resident():
    """Resident memory of this process in kilobytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def one_round(rng, folder):
    """Use most of the library once, with shapes of this round."""
    m, n = (int(size) for size in rng.integers(20, 90, 2))
    dtype = (np.float64, np.float32)[int(rng.integers(2))]
    R = fastemf.datasets.make_skewed(m, n, rank=2, density=0.3, random_state=rng).R.astype(dtype)
    k, options = int(rng.integers(1, 9)), {"max_iter": 5, "intercepts": bool(rng.integers(2))}
    fit = fastemf.complete(R, float(rng.uniform(0.05, 0.95)), k, **options)
    fastemf.complete(R, 0.3, k, reg=0.1, solver="cg", **options)
    fastemf.complete(R, 0.5, k, reg=0, validation=0.2, max_iter=5)
    levels = fastemf.complete_levels(R, (0.1, 0.9), k, **options)
    for model in (fit, levels):
        model.save(folder / "model.npz")
        loaded = fastemf.load(folder / "model.npz")
        loaded.predict(np.arange(m)[:, None], np.arange(n))
    fit.fold_in(R)
    fit.rank(None, 3, order="smallest", seen=R)
    fit.similar_rows(0, 3)
    fit.summary(R, 1)
    coo = sp.coo_array(R)
    log = pd.DataFrame({"row": [f"r{i}" for i in coo.row], "col": coo.col, "value": coo.data})
    labelled = fastemf.complete(log, 0.2, 1, rows="row", cols="col", values="value", max_iter=3)
    labelled.predict(log)
    model = fastemf.ExpectilePairRegressor(0.4, 1, max_iter=3).fit(log[["row", "col"]], coo.data)
    model.predict(log[["row", "col"]])
    A = fastemf.operators.Gaussian(60, (int(rng.integers(3, 8)), 5), seed=int(rng.integers(9)))
    fastemf.sense(A, rng.standard_normal(60), 0.3, 1, max_iter=3)
    fastemf.select(R, 0.3, [1], [0.1], 2, max_iter=3)


def main(seconds):
    """Run rounds for the given number of seconds."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    samples, end = [], time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            one_round(rng, Path(folder))
            gc.collect()
            samples.append((resident(), len(gc.get_objects())))
    print(json.dumps(samples))


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_stays_flat():
    # With one arena, threads reuse the memory that others freed.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, __file__, str(60 * MINUTES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, objects = np.array(json.loads(done.stdout)).T
    print(f"{size.size} rounds: {size[0]} kB at first, {size[-1]} kB at last")
    assert size.size >= 12, "too few rounds"
    third = size.size // 3  # the first third warms up imports, kernels and pools
    for counts, unit in ((size, "kB"), (objects, "objects")):
        before, after = np.median(counts[third : 2 * third]), np.median(counts[2 * third :])
        assert after <= 1.02 * before, f"{before:.0f} {unit} grew to {after:.0f}"


if __name__ == "__main__":
    main(float(sys.argv[1]))
