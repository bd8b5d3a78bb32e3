"""Seconds per sweep on a generated matrix; ``--quick`` for a small one."""

from __future__ import annotations

import argparse
import time

import numba
import numpy as np

import fastemf


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small matrix")
    parser.add_argument("--smoke", action="store_true", help="tiny: only that it runs")
    args = parser.parse_args()
    size = 60 if args.smoke else 500 if args.quick else 3000
    R = fastemf.datasets.make_skewed(size, size, rank=5, density=0.1, random_state=0).R
    print(f"numba {numba.__version__}, numpy {np.__version__}, {numba.get_num_threads()} threads")
    print(f"{size} x {size}, {R.nnz} entries")
    for k in (5, 10):
        for omega in (0.5, 0.1):
            began = time.perf_counter()
            stop = {"tol": 0, "callback": lambda record: record.sweep == 5}
            fastemf.complete(R, omega, k, reg=0.1, max_iter=1, callback=lambda _: True)
            compiled = time.perf_counter() - began
            fit = fastemf.complete(R, omega, k, reg=0.1, **stop)
            best = min(record.seconds for record in fit.history)
            print(f"k={k:3d} omega={omega}: {best:.4f} s per sweep (first call {compiled:.1f} s)")


if __name__ == "__main__":
    main()
