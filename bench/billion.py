"""``python -m bench.billion --entries 1e9``: a fit of data that do not fit into memory.

The data are generated chunk by chunk into a store (k = 8, float32). Prints times and peak memory.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from pathlib import Path

from bench.child import reset_peak, resident
from bench.stream import RANK, Stream

BYTES_PER_ENTRY = 40  # at the peak of a build: spill 12, two sides 16, buckets 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=float, default=1e9)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--memory", type=float, default=256e6, help="bytes of memory")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="folder with enough space")
    options = parser.parse_args()
    stream = Stream(int(options.entries))
    needed = int(1.02 * BYTES_PER_ENTRY * stream.entries)
    free = shutil.disk_usage(options.folder).free
    if needed > free:
        parser.error(f"{needed:,} bytes are needed in {options.folder}, but only {free:,} are free")
    warnings.simplefilter("ignore")

    import fastemf

    m, n = stream.shape
    print(f"{stream.entries:,} observations of a {m:,} x {n:,} matrix, float32", flush=True)
    memory = int(options.memory)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        began = time.perf_counter()
        path = Path(folder) / "store"
        stored = fastemf.store.build(iter(stream), path, shape=stream.shape, memory_limit=memory)
        report("generate and build", time.perf_counter() - began)
        print(f"{stored.info['bytes'] / 1e9:.2f} GB on disk", flush=True)

        reset_peak()
        began = time.perf_counter()
        fit = fastemf.complete(
            fastemf.store.open(path, budget=memory), 0.1, RANK, max_iter=options.sweeps, tol=0,
            callback=lambda record: print(
                f"sweep {record.sweep}: {record.seconds:.1f} s, objective {record.objective:.6g}",
                flush=True,
            ),
        )  # fmt: skip
        report(f"fit, {options.sweeps} sweeps", time.perf_counter() - began)
        print(f"factors: {(fit.X.nbytes + fit.Y.nbytes) / 1e6:.0f} MB")


def report(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.1f} s, peak memory {resident('VmHWM') / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
