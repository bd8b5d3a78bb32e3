"""A long-running process in small: fits, files and questions, round after round.

It prints one JSON list, a pair per round: resident kilobytes, and objects that Python tracks.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

import fastemf


def resident() -> int:
    """Kilobytes that this process has in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmRSS")


def one_round(rng: np.random.Generator, folder: Path) -> None:
    """Use most of the library once, on shapes that no other round has."""
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


def main(seconds: float) -> None:
    """Go on for that long; a round of the same seed at the start and the end does the same."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    samples, end = [], time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            one_round(rng, Path(folder))
            gc.collect()
            samples.append((resident(), len(gc.get_objects())))
    print(json.dumps(samples))


if __name__ == "__main__":
    main(float(sys.argv[1]))
